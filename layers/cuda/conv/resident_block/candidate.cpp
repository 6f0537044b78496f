// Candidate "resident_block" of Conv and QConv: the convolutions of a residual block of 64 channels inside, and its
// addition, in one launch.
#include <algorithm>
#include <optional>
#include <variant>

#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/chain/conv_chain.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/resident_block/plan.h"
#include "layers/cuda/conv/tensor_map.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

using cuda::BlockAdds;
using cuda::BlockPlan;
using cuda::BlockRoles;
using cuda::ConvChain;
using cuda::ResidentBlockArgs;

struct Block {
  ConvChain chain;
  BlockRoles roles;
  BlockPlan plan;

  const NodeSpec& node(int role) const { return *chain.nodes[static_cast<std::size_t>(role)]; }
  /// The first computed of two convolutions that are added, which need not have a ReLU; -1: there is none.
  int added() const {
    return plan.adds == BlockAdds::projection ? roles.projection
           : plan.adds == BlockAdds::tail     ? roles.tail
                                              : -1;
  }

  /// Nothing where the nodes are no such block or do not fit.
  static std::optional<Block> of(const NodeSpec& first, std::span<const ChainLink> links) {
    std::optional<ConvChain> chain = ConvChain::of(first, links);
    if (!chain) return std::nullopt;
    const std::optional<BlockRoles> roles = cuda::block_roles(chain->shape, cuda::kUnitChannels);
    if (!roles) return std::nullopt;
    const auto planned = cuda::plan_block(chain->shape, *roles);
    const auto* plan = std::get_if<BlockPlan>(&planned);
    if (plan == nullptr) return std::nullopt;
    Block block{std::move(*chain), *roles, *plan};
    if (plan->element_bytes == 1) {
      for (int n = 0; n < static_cast<int>(block.chain.nodes.size()); ++n) {
        if (!cuda::has_sums_below(block.node(n), n != block.added(), cuda::kSmallSum)) return std::nullopt;
      }
    }
    return block;
  }
};

class ResidentBlock final : public Kernel {
 public:
  explicit ResidentBlock(const NodeSpec& spec)
      : ResidentBlock(Block::of(spec, spec.fusion.chain).value(), spec.gpu) {}

  bool orders_prior_writes() const override { return true; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return weights_.bytes() + constants_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    ResidentBlockArgs args = args_;
    args.x = x_map(inputs[0].data);
    args.residual = static_cast<const std::byte*>(inputs[0].data);
    args.y = static_cast<std::byte*>(outputs[0].data);
    PIPIT_CUDA(cuda::launch_resident_block(args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  ResidentBlock(const Block& block, int gpu) {
    const BlockPlan& plan = block.plan;
    args_.plan = plan;
    args_.in_chunks = plan.in_chunks();
    args_.head = cuda::unit_bounds(block.node(block.roles.head));
    args_.window = cuda::unit_bounds(block.node(block.roles.window));
    args_.tail = cuda::unit_bounds(block.node(block.roles.tail));
    args_.residual_scale = cuda::bounds_of(*block.chain.nodes.back()).residual_scale;
    if (plan.projects()) args_.projection = cuda::unit_bounds(block.node(block.roles.projection));
    args_.workers = std::min(cuda::hopper_processors(gpu), plan.tiles);
    args_.least_tiles = plan.tiles / args_.workers;
    args_.more_tiles = plan.tiles % args_.workers;
    args_.grid = {cuda::Divisor(plan.width * plan.height), cuda::Divisor(plan.width), plan.height,
                  plan.positions};
    args_.ring = cuda::Divisor(plan.ring);
    pack(block);
    PIPIT_CUDA(cuda::prepare_resident_block(plan));
    x_map(weights_.data());  // throws what is wrong with the geometry, if anything, before the first run
  }

  CUtensorMap x_map(const void* x) const {
    const BlockPlan& plan = args_.plan;
    return cuda::matrix_map(x, std::int64_t{plan.in_units} * plan.row_bytes(), plan.positions,
                            cuda::kBlockChunkBytes, cuda::kUnitRows);
  }

  // The convolutions in their order, as the kernel counts their units.
  void pack(const Block& block) {
    std::vector<std::byte> weights, constants;
    const auto append = [&](int role, bool stored) {
      if (role >= 0) cuda::append_units(block.node(role), stored, weights, constants);
    };
    append(block.roles.head, true);
    append(block.roles.window, false);
    append(block.roles.tail, true);
    append(block.roles.projection, true);
    weights_ = cuda::DeviceBuffer(weights.data(), weights.size());
    constants_ = cuda::DeviceBuffer(constants.data(), constants.size());
    args_.weights = weights_.as<const std::byte>();
    args_.constants = constants_.as<const std::byte>();
  }

  cuda::DeviceBuffer weights_;
  cuda::DeviceBuffer constants_;
  ResidentBlockArgs args_;
};

bool takes_chain(const NodeSpec& first, std::span<const ChainLink> links) {
  if (links.empty()) return !cuda::refuse_link(first) && cuda::has_hopper_kernels();
  return Block::of(first, links).has_value();
}

std::optional<Estimate> estimate(const NodeSpec& first, std::span<const ChainLink> links) {
  const std::optional<Block> block = Block::of(first, links);
  if (!block) return std::nullopt;
  const BlockPlan& plan = block->plan;
  const int processors = cuda::hopper_processors(first.gpu);
  cuda::LaunchTerms terms;
  terms.steps = plan.weight_units();
  terms.rounds = static_cast<double>(ceil_div(plan.tiles, processors));
  terms.blocks = static_cast<double>(plan.tiles) / processors;
  terms.megabytes = cuda::chain_megabytes(first, links);
  return cuda::estimate_of("resident_block" + cuda::chain_type(plan.element_bytes), terms);
}

}  // namespace

void register_cuda_resident_block(Registry& registry) {
  cuda::register_chain<ResidentBlock>(registry, "resident_block", takes_chain, estimate);
}

}  // namespace pipit::internal
