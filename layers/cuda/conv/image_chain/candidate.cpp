// Candidate "image_chain" of QConv: residual blocks of 256 channels inside, one after the other, in one launch whose
// clusters keep images in shared memory.
#include <algorithm>
#include <optional>
#include <variant>

#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/chain/conv_chain.h"
#include "layers/cuda/conv/image_chain/plan.h"
#include "layers/cuda/conv/tensor_map.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"

namespace pipit {

namespace {

using cuda::ConvChain;
using cuda::ImageChainArgs;
using cuda::ImageChainPlan;

struct Blocks {
  ConvChain chain;
  ImageChainArgs args;  // but for what lies in memory

  /// Nothing where the nodes are no such blocks or do not fit.
  static std::optional<Blocks> of(const NodeSpec& first, std::span<const ChainLink> links) {
    if (cuda::hopper_processors(first.gpu) == 0 || !cuda::is_int8_conv(first)) return std::nullopt;
    std::optional<ConvChain> chain = ConvChain::of(first, links);
    if (!chain) return std::nullopt;
    // What is known of shapes comes first: sums are known from all weights.
    const auto planned = cuda::plan_image_chain(chain->shape, [](const ImageChainPlan& plan) {
      int clusters = 0;
      PIPIT_CUDA(cuda::image_chain_clusters(plan, clusters));
      return clusters;
    });
    const auto* plan = std::get_if<ImageChainPlan>(&planned);
    if (plan == nullptr) return std::nullopt;
    const auto all_below = [&](std::int64_t limit) {
      return std::all_of(chain->nodes.begin(), chain->nodes.end(),
                         [&](const NodeSpec* node) { return cuda::has_sums_below(*node, true, limit); });
    };
    if (!all_below(cuda::kLargeSum)) return std::nullopt;
    ImageChainArgs args;
    args.plan = *plan;
    args.clusters = std::min(plan->clusters, plan->images);
    args.small_sums = all_below(cuda::kSmallSum);
    return Blocks{std::move(*chain), args};
  }
};

class ImageChain final : public Kernel {
 public:
  explicit ImageChain(const NodeSpec& spec) : ImageChain(Blocks::of(spec, spec.fusion.chain).value()) {}

  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override { return weights_.bytes() + constants_.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    ImageChainArgs args = args_;
    args.x = x_map(inputs[0].data);
    args.y = static_cast<std::byte*>(outputs[0].data);
    PIPIT_CUDA(cuda::launch_image_chain(args, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  explicit ImageChain(const Blocks& blocks) : args_(blocks.args) {
    const ImageChainPlan& plan = args_.plan;
    args_.image = cuda::Divisor(plan.width * plan.height), args_.row = cuda::Divisor(plan.width);
    std::vector<std::byte> weights, constants;
    for (int b = 0; b < plan.blocks; ++b) {
      const auto node = [&](int conv) -> const NodeSpec& {
        return *blocks.chain.nodes[static_cast<std::size_t>(b * 3 + conv)];
      };
      args_.bounds[b] = {cuda::unit_bounds(node(0)), cuda::unit_bounds(node(1)), cuda::unit_bounds(node(2)),
                         cuda::bounds_of(node(2)).residual_scale};
      const std::vector<std::byte> ordered[] = {
          cuda::ordered_weights(node(0)), cuda::ordered_weights(node(1)), cuda::ordered_weights(node(2))};
      cuda::append_image_weights(plan, ordered[0].data(), ordered[1].data(), ordered[2].data(), weights);
      for (int conv = 0; conv < 3; ++conv) cuda::append_unit_constants(node(conv), true, constants);
    }
    if (args_.small_sums) cuda::begin_with_magic(constants);
    weights_ = cuda::DeviceBuffer(weights.data(), weights.size());
    constants_ = cuda::DeviceBuffer(constants.data(), constants.size());
    args_.weights = weights_.as<const std::byte>();
    args_.constants = constants_.as<const std::byte>();
    x_map(weights_.data());  // throws what is wrong with the geometry, if anything, before the first run
  }

  CUtensorMap x_map(const void* x) const {
    const ImageChainPlan& plan = args_.plan;
    return cuda::matrix_map(x, plan.channels, std::int64_t{plan.images} * plan.height * plan.width,
                            cuda::kImageStageDepth, plan.positions());
  }

  cuda::DeviceBuffer weights_;
  cuda::DeviceBuffer constants_;
  ImageChainArgs args_;
};

bool takes_chain(const NodeSpec& first, std::span<const ChainLink> links) {
  if (links.empty())
    return cuda::is_int8_conv(first) && !cuda::refuse_link(first) && cuda::hopper_processors(first.gpu) > 0;
  return links.size() % 3 == 2 && Blocks::of(first, links).has_value();
}

bool chain_pays(const NodeSpec& first, std::span<const ChainLink> links) {
  const std::optional<Blocks> blocks = Blocks::of(first, links);
  return blocks && cuda::image_chain_pays(blocks->args.plan) &&
         std::none_of(blocks->chain.nodes.begin(), blocks->chain.nodes.end(),
                      [](const NodeSpec* node) { return cuda::is_pruned(*node); });
}

}  // namespace

void register_cuda_image_chain(Registry& registry) {
  cuda::register_chain<ImageChain>(registry, QConv::kType, "image_chain", takes_chain, chain_pays);
}

}  // namespace pipit
