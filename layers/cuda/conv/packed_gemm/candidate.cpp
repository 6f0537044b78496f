// Candidate "packed_gemm" of WLinear and WConv: products with weights in 8 or 4 bits, which are decoded in registers.
// It takes any number of rows and never expands weights to 16 bits in memory.
#include <fmt/format.h>

#include <limits>

#include "layers/common/image.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/packed_gemm/plan.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"

namespace pipit::internal {

namespace {

using namespace cuda;

// The matrix product of either layer.
struct Product {
  WeightFormat format;
  Clamp activation;
  std::int64_t rows = 0, depth = 0, outputs = 0;
  std::optional<Window> window;  // where rows of y and of x do not correspond
};

Product product_of(const NodeSpec& spec, const WLinear& layer) {
  const Shape& x = spec.inputs[0]->shape;
  Product p{layer.attributes().format, layer.attributes().activation};
  p.depth = x[x.rank() - 1];
  p.outputs = spec.inputs[1]->shape[0];
  p.rows = spec.outputs[0].shape.elements() / p.outputs;
  return p;
}

Product product_of(const NodeSpec& spec, const WConv& layer) {
  const Shape& x = spec.inputs[0]->shape;
  const ConvAttributes& conv = layer.attributes().conv;
  Product p{layer.attributes().format, conv.activation};
  p.depth = x[1];
  p.outputs = spec.inputs[1]->shape[0];
  p.rows = spec.outputs[0].shape.elements() / p.outputs;
  Window plain;
  plain.rank = conv.window.rank;
  plain.dilation = conv.window.dilation;  // of one tap: without meaning
  plain.ceil_mode = conv.window.ceil_mode;
  if (!(conv.window == plain)) p.window = conv.window;
  return p;
}

template <typename L>
Product product_of(const NodeSpec& spec) {
  return product_of(spec, layer_as<L>(spec.layer));
}

constexpr std::size_t kBias = 3, kResidual = 4;  // inputs; WLinear has no residual

Refusal refuse_layouts(const NodeSpec& spec, const WLinear&) {
  return refuse_unless_row_major(spec);
}

Refusal refuse_layouts(const NodeSpec& spec, const WConv&) {
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0]))
    return "x and y must be channels_last";
  if (spec.has_input(kResidual) && !is_channels_last(*spec.inputs[kResidual]))
    return "the residual must be channels_last";
  return std::nullopt;
}

template <typename L>
Refusal refuse(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if (x.dtype != DType::f16 || (y.dtype != DType::f16 && y.dtype != DType::f32))
    return "only x of f16 and y of f16 or f32 are handled";
  if (spec.has_input(kResidual) && spec.inputs[kResidual]->dtype != DType::f16)
    return "the residual is not f16";
  if (spec.constant(1) == nullptr || spec.constant(2) == nullptr) return "weights are computed at run time";
  if (spec.has_input(kBias) && spec.constant(kBias) == nullptr) return "the bias is computed at run time";
  if (Refusal reason = refuse_layouts(spec, layer_as<L>(spec.layer))) return reason;
  if (x.elements() == 0 || y.elements() == 0) return "empty tensors are not handled";
  const Product p = product_of<L>(spec);
  // Offsets into x are 32-bit, and so are those into the weights, in units of 16 bytes; blocks of outputs are the
  // second dimension of a grid.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 2, kMaxOutputs = 65535 * 16;
  if (x.elements() > kLimit || p.rows > kLimit || p.outputs > kMaxOutputs || p.outputs * p.depth > kLimit * 8)
    return "the operands are too large for 32-bit offsets";
  if (PackedShape(p.format, p.outputs, p.depth).scales() == 0)
    return fmt::format(
        "groups of {} weights of {} bits are not handled; 4 bits: 32, 64 or a multiple of 128; 8 bits: whole "
        "rows",
        p.format.group_size, p.format.bits);
  return std::nullopt;
}

// What the launch takes in a variant. A chunk of k costs each tile of a warp one decoding, as long as four products, and
// its products. The blocks of a multiprocessor share its arithmetic (rounds), and one alone has too few warps to hide
// how long its steps take (steps). With two rows and more, reading x again costs more than that.
Estimate estimate_of_variant(const Product& p, const PackedVariant& variant, double megabytes,
                             int processors) {
  constexpr double kDecoding = 4;
  const PackedShape shape(p.format, p.outputs, p.depth);
  const auto row_blocks = static_cast<double>(ceil_div(p.rows, std::int64_t{variant.rows()}));
  const auto output_blocks = static_cast<double>(packed_parts(shape.outputs, variant.outputs()));
  const int of_warp = packed_parts(shape.spans(), variant.k_warps) * (kPackedSpan / kPackedChunk);
  LaunchTerms terms;
  terms.steps = std::min(of_warp, packed_parts(shape.depth, kPackedChunk)) * variant.out_tiles *
                (kDecoding + variant.row_tiles);
  terms.rounds = std::ceil(row_blocks * output_blocks / processors);
  terms.megabytes = megabytes;
  const double x = 2e-6 * static_cast<double>(p.rows) * shape.depth;
  const double weights = 1e-6 * shape.bits / 8 * shape.outputs * static_cast<double>(shape.depth);
  terms.again = x * (output_blocks - 1) + weights * (row_blocks - 1);
  return estimate_of("packed_gemm", terms);
}

// The variants, the fastest first, with their estimates.
template <typename L>
std::vector<std::pair<PackedVariant, Estimate>> ordered_variants(const NodeSpec& spec) {
  const Product p = product_of<L>(spec);
  // Weights, scales and bias are what they are stored as, not halves.
  double bytes = static_cast<double>(spec.outputs[0].bytes());
  for (const TensorDesc* input : spec.inputs)
    bytes += input != nullptr ? static_cast<double>(input->bytes()) : 0;
  std::vector<std::pair<PackedVariant, Estimate>> variants;
  for (const PackedVariant& variant : packed_variants(PackedShape(p.format, p.outputs, p.depth), p.rows))
    variants.emplace_back(variant, estimate_of_variant(p, variant, 1e-6 * bytes, processors_of(spec.gpu)));
  std::ranges::stable_sort(variants, {}, [](const auto& variant) { return variant.second.time; });
  return variants;
}

// The one that the spec names, or the fastest. Throws Error when there is none of that name.
template <typename L>
std::pair<PackedVariant, Estimate> chosen_variant(const NodeSpec& spec) {
  for (const auto& variant : ordered_variants<L>(spec)) {
    if (spec.variant.empty() || variant.first.name() == spec.variant) return variant;
  }
  fail("there is no variant '{}'", spec.variant);
}

template <typename L>
std::vector<std::string> variant_names(const NodeSpec& spec) {
  constexpr std::size_t kTimed = 5;  // the others are estimated to be slower
  std::vector<std::string> names;
  for (const auto& variant : ordered_variants<L>(spec)) {
    if (names.size() < kTimed) names.push_back(variant.first.name());
  }
  return names;
}

// PackedGemmArgs::pixels.
std::vector<int> pixels_of(const NodeSpec& spec, const Window& given) {
  const Window window = as_3d(given);
  const Image x(*spec.inputs[0]);
  const Image y(spec.outputs[0]);
  std::vector<int> pixels;
  pixels.reserve(static_cast<std::size_t>(y.positions()));
  for_each_position(y, [&](std::int64_t d, std::int64_t h, std::int64_t w) {
    const std::array<std::int64_t, 3> at{d, h, w};
    std::int64_t pixel = 0;
    for (int axis = 0; axis < 3; ++axis) {
      const auto a = static_cast<std::size_t>(axis);
      const TapRange taps = taps_inside(window, axis, at[a], x.extent[a]);
      pixel = taps.count() > 0 && pixel >= 0 ? pixel + taps.start * x.stride[a] : -1;
    }
    pixels.push_back(static_cast<int>(pixel));
  });
  return pixels;
}

template <typename L>
class PackedGemm final : public PackedKernel {
 public:
  explicit PackedGemm(const NodeSpec& spec) {
    const Product p = product_of<L>(spec);
    const PackedShape shape(p.format, p.outputs, p.depth);
    args_ = packed_args(shape, chosen_variant<L>(spec).first, static_cast<int>(p.rows));
    args_.wide = spec.outputs[0].dtype == DType::f32;
    args_.low = p.activation.low, args_.high = p.activation.high;
    args_.function = follower_function(spec);
    args_.weights = keep(pack_weights(shape, p.format, spec.constant(1)->view().data));
    args_.scales = keep(pack_scales(shape, spec.constant(2)->values<float>().data()));
    std::vector<float> bias(static_cast<std::size_t>(shape.tiles()) * kPackedOutputs);
    if (const Tensor* given = spec.constant(kBias)) std::ranges::copy(given->values<float>(), bias.begin());
    args_.bias = keep(bias);
    if (p.window) {
      args_.pixels = keep(pixels_of(spec, *p.window));
      args_.positions = Divisor(spec.outputs[0].elements() / (spec.outputs[0].shape[0] * p.outputs));
      args_.image = static_cast<int>(spec.inputs[0]->elements() / spec.inputs[0]->shape[0]);
    }
    PIPIT_CUDA(prepare_packed_gemm(args_, overlap_));
  }

  bool reads_constant(std::size_t index) const override { return index == 0 || index == kResidual; }
  bool orders_prior_writes() const override { return true; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    PackedGemmArgs args = args_;
    args.x = inputs[0].data;
    args.residual = inputs.size() > kResidual ? inputs[kResidual].data : nullptr;
    args.y = outputs[0].data;
    PIPIT_CUDA(launch_packed_gemm(args, overlap_, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  PackedGemmArgs args_;
  bool overlap_ = false;
};

template <typename L>
void add(Registry& registry) {
  registry.add(
      L::kType, DeviceKind::cuda,
      conv_candidate<PackedGemm<L>>(
          "packed_gemm", refuse<L>, [](const NodeSpec& spec) { return chosen_variant<L>(spec).second; },
          fuses_function, variant_names<L>));
}

}  // namespace

void register_cuda_packed_gemm(Registry& registry) {
  add<WLinear>(registry);
  add<WConv>(registry);
}

}  // namespace pipit::internal
