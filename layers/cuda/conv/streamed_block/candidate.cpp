// Candidate "streamed_block" of QConv: the convolutions of a residual block of 128 channels inside, and the addition of
// x, in one launch.
#include <algorithm>
#include <optional>
#include <variant>

#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/chain/conv_chain.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/streamed_block/plan.h"
#include "layers/cuda/conv/tensor_map.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"

namespace pipit::internal {

namespace {

using cuda::BlockRoles;
using cuda::ConvChain;
using cuda::StreamedBlockArgs;
using cuda::StreamedPlan;

struct Block {
  ConvChain chain;
  BlockRoles roles;
  StreamedPlan plan;
  bool small_sums = false;

  const NodeSpec& node(int role) const { return *chain.nodes[static_cast<std::size_t>(role)]; }

  /// Nothing where the nodes are no such block or do not fit.
  static std::optional<Block> of(const NodeSpec& first, std::span<const ChainLink> links) {
    std::optional<ConvChain> chain = ConvChain::of(first, links);
    if (!chain) return std::nullopt;
    const std::optional<BlockRoles> roles = cuda::block_roles(chain->shape, cuda::kStreamedInner);
    if (!roles) return std::nullopt;
    const auto planned = cuda::plan_streamed_block(chain->shape, *roles, cuda::hopper_processors(first.gpu));
    const auto* plan = std::get_if<StreamedPlan>(&planned);
    if (plan == nullptr) return std::nullopt;
    const auto all_below = [&](std::int64_t limit) {
      return std::all_of(chain->nodes.begin(), chain->nodes.end(),
                         [&](const NodeSpec* node) { return cuda::has_sums_below(*node, true, limit); });
    };
    if (!all_below(cuda::kLargeSum)) return std::nullopt;
    const bool small = all_below(cuda::kSmallSum);
    return Block{std::move(*chain), *roles, *plan, small};
  }
};

class StreamedBlock final : public Kernel {
 public:
  explicit StreamedBlock(const NodeSpec& spec) : StreamedBlock(Block::of(spec, spec.fusion.chain).value()) {}

  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return weights_.bytes() + constants_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    StreamedBlockArgs args = args_;
    args.x = x_map(inputs[0].data);
    args.y = static_cast<std::byte*>(outputs[0].data);
    PIPIT_CUDA(cuda::launch_streamed_block(args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  explicit StreamedBlock(const Block& block) {
    const StreamedPlan& plan = block.plan;
    args_.plan = plan;
    args_.small_sums = block.small_sums;
    args_.head = cuda::unit_bounds(block.node(block.roles.head));
    args_.window = cuda::unit_bounds(block.node(block.roles.window));
    args_.tail = cuda::unit_bounds(block.node(block.roles.tail));
    args_.residual_scale = cuda::bounds_of(block.node(block.roles.tail)).residual_scale;
    args_.grid = {cuda::Divisor(plan.width * plan.height), cuda::Divisor(plan.width), plan.height,
                  plan.positions};
    pack(block);
    PIPIT_CUDA(cuda::prepare_streamed_block(args_));
    x_map(weights_.data());  // throws what is wrong with the geometry, if anything, before the first run
  }

  CUtensorMap x_map(const void* x) const {
    const StreamedPlan& plan = args_.plan;
    return cuda::matrix_map(x, std::int64_t{plan.in_chunks} * cuda::kStreamedInner, plan.positions,
                            cuda::kStreamedInner, cuda::kUnitRows);
  }

  void pack(const Block& block) {
    const BlockRoles& roles = block.roles;
    const std::vector<std::byte> head = cuda::ordered_weights(block.node(roles.head));
    const std::vector<std::byte> window = cuda::ordered_weights(block.node(roles.window));
    const std::vector<std::byte> tail = cuda::ordered_weights(block.node(roles.tail));
    const std::vector<std::byte> weights =
        cuda::pack_streamed_weights(block.plan, head.data(), window.data(), tail.data());
    std::vector<std::byte> constants;
    cuda::append_unit_constants(block.node(roles.head), true, constants);
    cuda::append_unit_constants(block.node(roles.window), false, constants);
    cuda::append_unit_constants(block.node(roles.tail), true, constants);
    weights_ = cuda::DeviceBuffer(weights.data(), weights.size());
    constants_ = cuda::DeviceBuffer(constants.data(), constants.size());
    args_.weights = weights_.as<const std::byte>();
    args_.constants = constants_.as<const std::byte>();
  }

  cuda::DeviceBuffer weights_;
  cuda::DeviceBuffer constants_;
  StreamedBlockArgs args_;
};

bool takes_chain(const NodeSpec& first, std::span<const ChainLink> links) {
  if (links.empty())
    return cuda::is_int8_conv(first) && !cuda::refuse_link(first) && cuda::has_hopper_kernels();
  return Block::of(first, links).has_value();
}

// A round is the tiles for which weights are brought once.
std::optional<Estimate> estimate(const NodeSpec& first, std::span<const ChainLink> links) {
  const std::optional<Block> block = Block::of(first, links);
  if (!block) return std::nullopt;
  const StreamedPlan& plan = block->plan;
  const int processors = cuda::hopper_processors(first.gpu);
  cuda::LaunchTerms terms;
  terms.steps = plan.stages();
  terms.rounds = static_cast<double>(plan.worker_tiles) / cuda::kStreamedGroups;
  terms.blocks = static_cast<double>(plan.tiles) / (cuda::kStreamedGroups * processors);
  terms.megabytes = cuda::chain_megabytes(first, links);
  return cuda::estimate_of("streamed_block i8", terms);
}

}  // namespace

void register_cuda_streamed_block(Registry& registry) {
  cuda::register_chain<StreamedBlock>(registry, "streamed_block", takes_chain, estimate);
}

}  // namespace pipit::internal
