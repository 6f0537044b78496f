// Candidate "resident_block" of Conv and QConv: the convolutions of a residual block and its addition, in one launch.
#include <algorithm>
#include <optional>
#include <variant>

#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/chain/conv_chain.h"
#include "layers/cuda/conv/resident_block/plan.h"
#include "layers/cuda/conv/tensor_map.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"

namespace pipit::internal {

namespace {

using cuda::BlockAdds;
using cuda::BlockForm;
using cuda::BlockPlan;
using cuda::BlockRoles;
using cuda::ConvChain;
using cuda::ResidentBlockArgs;

struct Block {
  ConvChain chain;
  BlockRoles roles;
  BlockPlan plan;
  bool small_sums = true;

  const NodeSpec& node(int role) const { return *chain.nodes[static_cast<std::size_t>(role)]; }
  /// Whether all INT8 sums are below `limit`, and none but the first computed of two convolutions that are added has
  /// negative results.
  bool has_sums_below(std::int64_t limit) const {
    const int added = plan.adds == BlockAdds::projection ? roles.projection
                      : plan.adds == BlockAdds::tail     ? roles.tail
                                                         : -1;
    for (int n = 0; n < static_cast<int>(chain.nodes.size()); ++n) {
      if (!cuda::has_sums_below(node(n), n != added, limit)) return false;
    }
    return true;
  }

  /// Nothing where the nodes are no such block or do not fit.
  static std::optional<Block> of(const NodeSpec& first, std::span<const ChainLink> links) {
    std::optional<ConvChain> chain = ConvChain::of(first, links);
    if (!chain) return std::nullopt;
    const std::optional<BlockRoles> roles = cuda::block_roles(chain->shape);
    if (!roles) return std::nullopt;
    const auto planned = cuda::plan_block(chain->shape, *roles, cuda::hopper_processors(first.gpu));
    const auto* plan = std::get_if<BlockPlan>(&planned);
    if (plan == nullptr) return std::nullopt;
    Block block{std::move(*chain), *roles, *plan};
    if (plan->element_bytes == 1) {
      block.small_sums = block.has_sums_below(cuda::kSmallSum);
      const bool converts = plan->form == BlockForm::streamed;
      if (!block.small_sums && !(converts && block.has_sums_below(cuda::kLargeSum))) return std::nullopt;
    }
    return block;
  }
};

class ResidentBlock final : public Kernel {
 public:
  explicit ResidentBlock(const NodeSpec& spec) : ResidentBlock(Block::of(spec, spec.fusion.chain).value()) {}

  bool orders_prior_writes() const override { return args_.plan.form != BlockForm::streamed; }
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
  explicit ResidentBlock(const Block& block) : args_(block.plan) {
    const BlockRoles& roles = block.roles;
    args_.small_sums = block.small_sums;
    args_.residual_scale = cuda::bounds_of(*block.chain.nodes.back()).residual_scale;
    std::vector<std::byte> weights, constants;
    const auto take = [&](int role, bool stored, cuda::PairBounds& bounds) {
      if (role < 0) return;
      bounds = cuda::unit_bounds(block.node(role));
      cuda::append_units(block.node(role), stored, weights, constants, block.plan.inner());
    };
    take(roles.head, true, args_.head);
    take(roles.window, false, args_.window);
    take(roles.tail, true, args_.tail);
    take(roles.projection, true, args_.projection);
    weights_ = cuda::DeviceBuffer(weights.data(), weights.size());
    constants_ = cuda::DeviceBuffer(constants.data(), constants.size());
    args_.weights = weights_.as<const std::byte>();
    args_.constants = constants_.as<const std::byte>();
    PIPIT_CUDA(cuda::prepare_resident_block(args_));
    x_map(weights_.data());  // throws what is wrong with the geometry, if anything, before the first run
  }

  CUtensorMap x_map(const void* x) const {
    const BlockPlan& plan = args_.plan;
    return cuda::matrix_map(x, std::int64_t{plan.in_units} * plan.row_bytes(), plan.positions,
                            plan.copy_bytes(), cuda::kUnitRows);
  }

  cuda::DeviceBuffer weights_;
  cuda::DeviceBuffer constants_;
  ResidentBlockArgs args_;
};

bool takes_chain(const NodeSpec& first, std::span<const ChainLink> links) {
  if (links.empty()) return !cuda::refuse_link(first) && cuda::has_hopper_kernels();
  return Block::of(first, links).has_value();
}

// A round is what weights are multiplied by once: a tile, in a streamed block one for every group.
std::optional<Estimate> estimate(const NodeSpec& first, std::span<const ChainLink> links) {
  constexpr const char* kForms[] = {"", " basic", " streamed"};
  const std::optional<Block> block = Block::of(first, links);
  if (!block) return std::nullopt;
  const BlockPlan& plan = block->plan;
  const double tiles = plan.form == BlockForm::streamed ? cuda::kStreamedGroups : 1;
  cuda::LaunchTerms terms;
  terms.steps = plan.weight_units;
  terms.rounds = (plan.least_tiles + (plan.more_tiles > 0 ? 1 : 0)) / tiles;
  terms.blocks = plan.tiles / (tiles * cuda::hopper_processors(first.gpu));
  terms.megabytes = cuda::chain_megabytes(first, links);
  return cuda::estimate_of(
      "resident_block" + cuda::chain_type(plan.element_bytes) + kForms[static_cast<std::size_t>(plan.form)],
      terms);
}

}  // namespace

void register_cuda_resident_block(Registry& registry) {
  cuda::register_chain<ResidentBlock>(registry, "resident_block", takes_chain, estimate);
}

}  // namespace pipit::internal
