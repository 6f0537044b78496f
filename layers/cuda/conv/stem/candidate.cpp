#include <fmt/format.h>

#include <limits>
#include <string_view>

#include "engine/cuda/runtime.h"
#include "engine/plan/registry.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/stem/plan.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/families.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

using namespace cuda;

struct Way {
  StemTile tile;
  bool overlap = false;
  std::string name() const { return tile.name() + (overlap ? "+overlap" : ""); }
};

ConvShape shape_of(const NodeSpec& spec, const ConvAttributes& attributes) {
  ConvShape shape = conv_gemm_shape(spec, attributes, spec.inputs[0]->shape[1]);
  shape.int8 = spec.inputs[1]->dtype == DType::i8;
  return shape;
}

std::vector<Way> unsorted_ways(const ConvShape& shape, int gpu) {
  constexpr std::size_t kMaxTimed = 3;
  std::vector<Way> ways;
  for (const StemTile& tile : stem_tiles(shape, processors_of(gpu))) {
    ways.push_back(
        {tile, true});  // an early start was faster on an H200, but for a few launches of one round
    if (ways.size() == kMaxTimed) break;
  }
  if (!ways.empty()) ways.push_back({ways.front().tile, false});
  return ways;
}

// Bytes that are copied at once: x's channels must lie next to each other and fill their units.
int copied_bytes(const StemArgs& args, std::int64_t element) {
  const std::int64_t pixel = args.shape.in_c * element;
  if (args.x_f32 || args.units.group > 1 || (args.x_channel != 1 && args.shape.in_c > 1) ||
      pixel != std::int64_t{args.units.per_pixel} * args.units.unit_bytes)
    return 0;
  for (const int bytes : {16, 8, 4}) {
    const auto fits = [&](std::int64_t elements) { return elements * element % bytes == 0; };
    if (pixel % bytes == 0 && args.pitch * args.units.unit_bytes % bytes == 0 && fits(args.x_pixel) &&
        fits(args.x_row) && fits(args.x_image))
      return bytes;
  }
  return 0;
}

/// What no such kernel handles, but for its types.
Refusal refuse_stem_problem(const NodeSpec& spec, const ConvAttributes& attributes) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const Window& w = attributes.window;
  if (w.rank != 2) return "only two spatial dimensions are handled";
  if (attributes.groups != 1) return fmt::format("{} groups; only 1 is handled", attributes.groups);
  const int most = x.dtype == DType::f32 ? kStemNarrow : kStemMaxChannels;
  if (x.shape[1] > most)
    return fmt::format("{} channels{}; at most {} are handled", x.shape[1],
                       x.dtype == DType::f32 ? " of f32" : "", most);
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(y)) return "the output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  if (y.elements() == 0 || x.elements() == 0) return "empty tensors are not handled";
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 2;
  if (x.elements() > kLimit || y.elements() / y.shape[1] > kLimit || y.shape[1] > kLimit / 4096)
    return "the tensors are too large for 32-bit offsets";
  for (std::size_t i = 0; i < 2; ++i) {
    constexpr std::int64_t kWidest = 1024;  // beyond, no window fits the shared memory
    if (w.span(static_cast<int>(i)) > kWidest || w.stride[i] > kWidest || w.pad_begin[i] > kLimit / 4 ||
        w.pad_end[i] > kLimit / 4)
      return "the window is too large for the shared memory";
  }
  const ConvShape shape = shape_of(spec, attributes);
  const StemArgs least = stem_args(shape, {4, 8});
  if (least.shared_bytes > kStemMaxShared)
    return fmt::format("weights and pixels of a tile need {} bytes of shared memory; at most {} are taken",
                       least.shared_bytes, kStemMaxShared);
  return std::nullopt;
}

StemArgs args_of(const NodeSpec& spec, const ConvShape& shape, const Way& way) {
  StemArgs args = stem_args(shape, way.tile);
  args.overlap = way.overlap;
  const TensorDesc& x = *spec.inputs[0];
  const Strides strides = x.strides();
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  args.x_image = narrow(strides[0]), args.x_channel = narrow(strides[1]);
  args.x_row = narrow(strides[2]), args.x_pixel = narrow(strides[3]);
  args.x_f32 = x.dtype == DType::f32;
  const int element = shape.int8 ? 1 : 2;
  args.copied_bytes = copied_bytes(args, element);
  args.parts = args.units.per_pixel * args.units.unit_bytes /
               (args.copied_bytes > 0 ? args.copied_bytes : 4 * element);
  args.parts_factor = small_factor(args.parts);
  constexpr std::size_t kPrefetchShared = std::size_t{56} << 10;  // four blocks of a multiprocessor
  const std::size_t more = args.shared_bytes + static_cast<std::size_t>(args.halo_bytes);
  args.prefetches = args.copied_bytes > 0 && more <= kPrefetchShared;
  if (args.prefetches) args.shared_bytes = more;
  return args;
}

Estimate args_estimate(const NodeSpec& spec, const StemArgs& args) {
  const std::int64_t column_tiles = ceil_div(args.shape.out_c, args.tile.width);
  const std::int64_t blocks = args.tiles * column_tiles;
  const int processors = processors_of(spec.gpu);
  LaunchTerms terms;
  terms.steps = args.steps;
  terms.rounds = static_cast<double>(ceil_div(blocks, processors));
  terms.blocks = static_cast<double>(blocks) / processors;
  terms.megabytes = operand_megabytes(spec);
  terms.again = 1e-6 * static_cast<double>(spec.inputs[0]->bytes()) * static_cast<double>(column_tiles - 1);
  terms.waits = args.overlap ? 0 : 1;
  return estimate_of(
      fmt::format("stem {} {}{}", args.shape.int8 ? "i8" : "f16", args.tile.name(), args.x_f32 ? " f32" : ""),
      terms);
}

/// The one with the least estimate first.
std::vector<Way> ways_of(const NodeSpec& spec, const ConvShape& shape) {
  return least_first(unsorted_ways(shape, spec.gpu),
                     [&](const Way& way) { return args_estimate(spec, args_of(spec, shape, way)); });
}

/// The variants of a node (Candidate::variants): a tile, with "+overlap" where the launch overlaps with the previous
/// kernel.
std::vector<std::string> stem_variants(const NodeSpec& spec, const ConvAttributes& attributes) {
  return variant_names_of(ways_of(spec, shape_of(spec, attributes)));
}

/// Arguments for the variant that the node names, or for the one with the least estimate: geometry, where the elements
/// of x lie, type of x, overlap. Throws Error when there is no such variant.
StemArgs node_stem_args(const NodeSpec& spec, const ConvAttributes& attributes) {
  const ConvShape shape = shape_of(spec, attributes);
  return args_of(spec, shape, find_variant(ways_of(spec, shape), spec.variant));
}

/// The estimate of "stem" in the spec's variant, or the one that it chooses.
Estimate stem_estimate(const NodeSpec& spec, const ConvAttributes& attributes) {
  return args_estimate(spec, node_stem_args(spec, attributes));
}

/// What the kernels of all precisions share.
class StemConv : public PackedKernel {
 public:
  StemConv(const NodeSpec& spec, const ConvAttributes& attributes)
      : args_(node_stem_args(spec, attributes)) {}

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    StemArgs args = args_;
    args.x = inputs[0].data;
    args.residual = inputs.size() > 3 ? inputs[3].data : nullptr;
    args.y = outputs[0].data;
    PIPIT_CUDA(launch_stem(args, resident_blocks_, static_cast<cudaStream_t>(context.stream)));
  }

 protected:
  /// Once everything else is set.
  void prepare() {
    bool can_overlap = false;
    PIPIT_CUDA(prepare_stem(args_, resident_blocks_, can_overlap));
    args_.overlap = args_.overlap && can_overlap;
  }

  StemArgs args_;

 private:
  int resident_blocks_ = 1;
};

// Candidate "stem": convolutions of few channels in fp16 and bf16, such as the first of a network, which reads the
// user's f32 image itself.

const ConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<Conv>(spec.layer).attributes();
}

Refusal refuse_stem(const NodeSpec& spec) {
  if (Refusal reason = refuse_other_types(spec, true)) return reason;
  return refuse_stem_problem(spec, attributes_of(spec));
}

class Stem final : public StemConv {
 public:
  explicit Stem(const NodeSpec& spec) : StemConv(spec, attributes_of(spec)) {
    const Clamp& clamp = attributes_of(spec).activation;
    args_.low = clamp.low;
    args_.high = clamp.high;
    args_.function = follower_function(spec);
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    args_.weights = keep(pack_stem_weights(args_, weights.values<float>().data()));
    args_.bias = keep(in_stem_order(args_, conv_biases(spec)));
    prepare();
  }
};

// Candidate "stem" of QConv: convolutions of few channels, such as the first of a network, which reads the user's f32
// image itself where the graph says so.

const QConvAttributes& attributes_of_int8(const NodeSpec& spec) {
  return layer_as<QConv>(spec.layer).attributes();
}

Refusal refuse_stem_int8(const NodeSpec& spec) {
  if (spec.outputs[0].dtype == DType::bf16) return "results in bf16 would make registers spill";
  const QConvAttributes& a = attributes_of_int8(spec);
  if (!is_symmetric_i8(a.x)) return "x is not i8 with zero point 0";
  if (a.y.quantized() && !is_symmetric_i8(a.y)) return "y is not i8 with zero point 0";
  if (spec.has_input(3) && !is_symmetric_i8(a.residual)) return "the residual is not i8 with zero point 0";
  if (spec.inputs[0]->dtype == DType::f32 && !ImageScale::takes(a.x.scale))
    return fmt::format("the image's scale is {:g}; 2^-60 to 2^60 are handled", a.x.scale);
  return refuse_stem_problem(spec, a.conv);
}

class QStem final : public StemConv {
 public:
  explicit QStem(const NodeSpec& spec) : StemConv(spec, attributes_of_int8(spec).conv) {
    const QConvAttributes& a = attributes_of_int8(spec);
    const StepBounds bounds = output_bounds(a.y, a.conv.activation);
    args_.low = bounds.low;
    args_.high = bounds.high;
    if (a.y.quantized()) args_.whole_bounds = PairBounds::of(bounds);
    args_.x_scale = ImageScale(a.x.scale);
    args_.residual_scale = residual_factor(a);
    args_.stored = stored_type(spec.outputs[0].dtype);
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    args_.weights = keep(pack_qstem_weights(args_, weights.values<std::int8_t>().data()));
    const std::vector<std::int32_t> bias = qconv_biases(spec);
    args_.small = most_of_int8(spec, weights.values<std::int8_t>(), bias).is_small();
    args_.bias = keep(in_stem_order(args_, bias));
    args_.multipliers = keep(in_stem_order(args_, requantization_multipliers(a, args_.shape.out_c)));
    args_.table = keep(follower_table(spec));
    prepare();
  }
};

}  // namespace

void register_cuda_stem(Registry& registry) {
  const auto estimate = [](const NodeSpec& spec) { return stem_estimate(spec, attributes_of(spec)); };
  const auto variants = [](const NodeSpec& spec) { return stem_variants(spec, attributes_of(spec)); };
  registry.add(Conv::kType, DeviceKind::cuda,
               conv_candidate<Stem>("stem", refuse_stem, estimate, fuses_function, variants));
  const auto estimate_int8 = [](const NodeSpec& spec) {
    return stem_estimate(spec, attributes_of_int8(spec).conv);
  };
  const auto variants_int8 = [](const NodeSpec& spec) {
    return stem_variants(spec, attributes_of_int8(spec).conv);
  };
  registry.add(QConv::kType, DeviceKind::cuda,
               conv_candidate<QStem>("stem", refuse_stem_int8, estimate_int8, fuses_table, variants_int8));
}

}  // namespace pipit::internal
