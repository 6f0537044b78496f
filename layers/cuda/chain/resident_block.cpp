// Candidate "resident_block" of Conv and QConv: the convolutions of a residual block of 64 channels inside, and its
// addition, in one launch at large batches.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <variant>

#include "engine/cuda/runtime.h"
#include "layers/cuda/chain/conv_chain.h"
#include "layers/cuda/chain/resident_block_launch.h"
#include "layers/cuda/conv/conv_gemm_launch.h"
#include "layers/cuda/conv/tensor_map.h"
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/qconv_common.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

using cuda::BlockBounds;
using cuda::BlockPlan;
using cuda::BlockRoles;
using cuda::ConvChain;
using cuda::ResidentBlockArgs;

bool has_kernels() {
  bool result = false;
  PIPIT_CUDA(cuda::has_resident_block(result));
  return result;
}

/// Whether the kernel's shorter arithmetic gives the specification's bits, whatever x is: sums stay below kSmallSum;
/// with ReLU, values do not reach so far below zero that they are none of a float's whole numbers.
bool is_exact(const NodeSpec& spec, bool relu) {
  const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
  const std::vector<std::byte> bias = cuda::biases_of(spec), multipliers = cuda::multipliers_of(spec);
  const std::span biases(reinterpret_cast<const std::int32_t*>(bias.data()), bias.size() / 4);
  if (!cuda::sums_stay_below(weights.values<std::int8_t>(), biases, cuda::kSmallSum)) return false;
  if (!relu) return true;
  const cuda::LinkBounds bounds = cuda::bounds_of(spec);
  if (bounds.low != 0) return false;
  double most = 128.0 * std::abs(bounds.residual_scale);
  for (std::size_t o = 0; o < biases.size(); ++o) {
    float multiplier = 0;
    std::memcpy(&multiplier, multipliers.data() + o * 4, 4);
    most = std::max(most, 128.0 * std::abs(bounds.residual_scale) + std::abs(multiplier) * 4194304.0);
  }
  return most < 8388608.0;
}

struct Block {
  ConvChain chain;
  BlockRoles roles;
  BlockPlan plan;

  const NodeSpec& node(int role) const { return *chain.nodes[static_cast<std::size_t>(role)]; }

  /// Nothing where the nodes are no such block or do not fit.
  static std::optional<Block> of(const NodeSpec& first, std::span<const ChainLink> links) {
    std::optional<ConvChain> chain = ConvChain::of(first, links);
    if (!chain) return std::nullopt;
    const std::optional<BlockRoles> roles = cuda::block_roles(chain->shape);
    if (!roles) return std::nullopt;
    const auto planned = cuda::plan_block(chain->shape, *roles);
    const auto* plan = std::get_if<BlockPlan>(&planned);
    if (plan == nullptr) return std::nullopt;
    Block block{std::move(*chain), *roles, *plan};
    if (plan->element_bytes == 1) {
      for (const int role : {roles->head, roles->window, roles->tail}) {
        if (!is_exact(block.node(role), true)) return std::nullopt;
      }
      if (plan->projects() && !is_exact(block.node(roles->projection), false)) return std::nullopt;
    }
    return block;
  }
};

BlockBounds bounds_of(const NodeSpec& spec) {
  const cuda::LinkBounds bounds = cuda::bounds_of(spec);
  // Whole, as the kernel wants the upper one: rounding keeps the order.
  if (cuda::is_int8_conv(spec)) return {bounds.low, std::nearbyint(bounds.high)};
  return {bounds.low, bounds.high};
}

class ResidentBlock final : public Kernel {
 public:
  explicit ResidentBlock(const NodeSpec& spec)
      : ResidentBlock(Block::of(spec, spec.fusion.chain).value(), spec.gpu) {}

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
    args_.head = bounds_of(block.node(block.roles.head));
    args_.window = bounds_of(block.node(block.roles.window));
    const NodeSpec& tail = block.node(block.roles.tail);
    args_.tail = bounds_of(tail);
    args_.residual_scale = cuda::bounds_of(tail).residual_scale;
    if (plan.projects()) args_.projection = bounds_of(block.node(block.roles.projection));
    args_.workers = std::min(cuda::hopper_processors(gpu), plan.tiles);
    args_.least_tiles = plan.tiles / args_.workers;
    args_.more_tiles = plan.tiles % args_.workers;
    args_.image = cuda::Divisor(plan.width * plan.height);
    args_.row = cuda::Divisor(plan.width);
    args_.ring = cuda::Divisor(plan.ring);
    pack(block);
    PIPIT_CUDA(cuda::prepare_resident_block(plan));
    x_map(weights_.data());  // throws what is wrong with the geometry, if anything, before the first run
  }

  CUtensorMap x_map(const void* x) const {
    const BlockPlan& plan = args_.plan;
    return cuda::matrix_map(x, std::int64_t{plan.in_units} * plan.row_bytes(), plan.positions,
                            cuda::kBlockChunkBytes, cuda::kBlockRows);
  }

  // The convolutions one behind the other, as the kernel counts their units.
  void pack(const Block& block) {
    std::vector<std::byte> weights, constants;
    const auto append = [&](int role, bool stored) {
      if (role >= 0) pack_convolution(block.node(role), stored, block.plan, weights, constants);
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

  static void pack_convolution(const NodeSpec& spec, bool stored, const BlockPlan& plan,
                               std::vector<std::byte>& weights, std::vector<std::byte>& constants) {
    const auto more = [](std::vector<std::byte>& to, int bytes) {
      to.resize(to.size() + static_cast<std::size_t>(bytes));
      return to.data() + to.size() - bytes;
    };
    const std::vector<std::byte> ordered = cuda::ordered_weights(spec);
    const auto in_c = static_cast<int>(spec.inputs[0]->shape[1]);
    const auto out_c = static_cast<int>(spec.outputs[0].shape[1]);
    const auto taps = static_cast<int>(cuda::conv_attributes(spec).window.taps());
    for (int output = 0; output < out_c; output += cuda::kBlockChannels) {
      for (int tap = 0; tap < taps; ++tap) {
        for (int channel = 0; channel < in_c; channel += cuda::kBlockChannels) {
          cuda::pack_block_unit(ordered.data(), in_c, taps, tap, channel, output, stored, plan.element_bytes,
                                more(weights, plan.unit_bytes()));
        }
      }
    }
    const std::vector<std::byte> biases = cuda::biases_of(spec);
    const std::vector<std::byte> multipliers =
        plan.element_bytes == 1 ? cuda::multipliers_of(spec) : std::vector<std::byte>();
    for (int output = 0; output < out_c; output += cuda::kBlockChannels) {
      for (const std::vector<std::byte>* values : {&biases, &multipliers}) {
        if (values->empty()) continue;
        cuda::pack_block_constants(values->data() + std::ptrdiff_t{output} * 4, stored, plan.element_bytes,
                                   more(constants, cuda::kBlockChannels * 4));
      }
    }
  }

  cuda::DeviceBuffer weights_;
  cuda::DeviceBuffer constants_;
  ResidentBlockArgs args_;
};

bool takes_chain(const NodeSpec& first, std::span<const ChainLink> links) {
  if (links.empty()) return !cuda::refuse_link(first) && has_kernels();
  return Block::of(first, links).has_value();
}

/// Whether one launch is faster than one for each, as measured on an H200 (docs/benchmarks/gpu.md).
bool chain_pays(const NodeSpec& first, std::span<const ChainLink> links) {
  constexpr int kLeastTiles = 4;  // of a worker: at its edges it computes some of its neighbours'
  const Block block = Block::of(first, links).value();
  return block.plan.tiles >= kLeastTiles * cuda::hopper_processors(first.gpu) &&
         std::none_of(block.chain.nodes.begin(), block.chain.nodes.end(),
                      [](const NodeSpec* node) { return cuda::is_pruned(*node); });
}

}  // namespace

void register_cuda_resident_block(Registry& registry) {
  for (const std::string_view type : {Conv::kType, QConv::kType}) {
    Candidate candidate{"resident_block",
                        [](const NodeSpec&) { return Refusal("runs several convolutions together only"); },
                        [](const NodeSpec& spec) { return std::make_unique<ResidentBlock>(spec); }};
    candidate.fuses_chain = takes_chain;
    candidate.chain_pays = chain_pays;
    registry.add(type, DeviceKind::cuda, std::move(candidate));
  }
}

}  // namespace pipit
