// Candidate "basic_block" of Conv and QConv: two 3x3 convolutions of 64 channels, and the addition of what the first
// one reads, in one launch.
#include <algorithm>
#include <optional>
#include <variant>

#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/basic_block/plan.h"
#include "layers/cuda/conv/chain/conv_chain.h"
#include "layers/cuda/conv/tensor_map.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"

namespace pipit::internal {

namespace {

using cuda::BasicBlockArgs;
using cuda::BasicBlockPlan;
using cuda::ConvChain;

struct Block {
  ConvChain chain;
  BasicBlockPlan plan;

  const NodeSpec& head() const { return *chain.nodes[0]; }
  const NodeSpec& tail() const { return *chain.nodes[1]; }

  /// Nothing where the nodes are no such block or do not fit.
  static std::optional<Block> of(const NodeSpec& first, std::span<const ChainLink> links) {
    std::optional<ConvChain> chain = ConvChain::of(first, links);
    if (!chain || !cuda::is_basic_block(chain->shape)) return std::nullopt;
    const auto planned = cuda::plan_basic_block(chain->shape);
    const auto* plan = std::get_if<BasicBlockPlan>(&planned);
    if (plan == nullptr) return std::nullopt;
    Block block{std::move(*chain), *plan};
    if (plan->element_bytes == 1) {
      for (const NodeSpec* node : block.chain.nodes) {
        if (!cuda::has_sums_below(*node, true, cuda::kSmallSum)) return std::nullopt;
      }
    }
    return block;
  }
};

class BasicBlock final : public Kernel {
 public:
  explicit BasicBlock(const NodeSpec& spec)
      : BasicBlock(Block::of(spec, spec.fusion.chain).value(), spec.gpu) {}

  bool orders_prior_writes() const override { return true; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return weights_.bytes() + constants_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    BasicBlockArgs args = args_;
    args.x = x_map(inputs[0].data);
    args.y = static_cast<std::byte*>(outputs[0].data);
    PIPIT_CUDA(cuda::launch_basic_block(args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  BasicBlock(const Block& block, int gpu) {
    const BasicBlockPlan& plan = block.plan;
    args_.plan = plan;
    args_.head = cuda::unit_bounds(block.head());
    args_.tail = cuda::unit_bounds(block.tail());
    args_.residual_scale = cuda::bounds_of(block.tail()).residual_scale;
    args_.workers = std::min(cuda::hopper_processors(gpu), plan.tiles);
    args_.least_tiles = plan.tiles / args_.workers;
    args_.more_tiles = plan.tiles % args_.workers;
    args_.grid = {cuda::Divisor(plan.width * plan.height), cuda::Divisor(plan.width), plan.height,
                  plan.positions};
    args_.x_ring = cuda::Divisor(plan.x_ring);
    args_.ring = cuda::Divisor(plan.ring);
    std::vector<std::byte> weights, constants;
    for (const NodeSpec* node : block.chain.nodes) cuda::append_units(*node, true, weights, constants);
    weights_ = cuda::DeviceBuffer(weights.data(), weights.size());
    constants_ = cuda::DeviceBuffer(constants.data(), constants.size());
    args_.weights = weights_.as<const std::byte>();
    args_.constants = constants_.as<const std::byte>();
    PIPIT_CUDA(cuda::prepare_basic_block(plan));
    x_map(weights_.data());  // throws what is wrong with the geometry, if anything, before the first run
  }

  CUtensorMap x_map(const void* x) const {
    const BasicBlockPlan& plan = args_.plan;
    return cuda::matrix_map(x, plan.row_bytes(), plan.positions, plan.row_bytes(), cuda::kUnitRows);
  }

  cuda::DeviceBuffer weights_;
  cuda::DeviceBuffer constants_;
  BasicBlockArgs args_;
};

bool takes_chain(const NodeSpec& first, std::span<const ChainLink> links) {
  if (links.empty()) return !cuda::refuse_link(first) && cuda::has_hopper_kernels();
  return Block::of(first, links).has_value();
}

std::optional<Estimate> estimate(const NodeSpec& first, std::span<const ChainLink> links) {
  const std::optional<Block> block = Block::of(first, links);
  if (!block) return std::nullopt;
  const BasicBlockPlan& plan = block->plan;
  const int processors = cuda::hopper_processors(first.gpu);
  cuda::LaunchTerms terms;
  terms.steps = 2.0 * cuda::kBlockTaps;
  terms.rounds = static_cast<double>(ceil_div(plan.tiles, processors));
  terms.blocks = static_cast<double>(plan.tiles) / processors;
  terms.megabytes = cuda::chain_megabytes(first, links);
  return cuda::estimate_of("basic_block" + cuda::chain_type(plan.element_bytes), terms);
}

}  // namespace

void register_cuda_basic_block(Registry& registry) {
  cuda::register_chain<BasicBlock>(registry, "basic_block", takes_chain, estimate);
}

}  // namespace pipit::internal
