#include "layers/cuda/conv/gemm_problem.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <numbers>

#include "layers/common/layer_kernel.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"
#include "layers/ops/unary.h"

namespace pipit::internal::cuda {

Refusal refuse_groups(const ConvAttributes& attributes) {
  if (attributes.groups == 1) return std::nullopt;
  return fmt::format("{} groups; only 1 is handled", attributes.groups);
}

Refusal refuse_conv_gemm(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units) {
  if (Refusal reason = refuse_groups(attributes)) return reason;
  return refuse_grouped_conv_gemm(spec, attributes, units);
}

Refusal refuse_grouped_conv_gemm(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const Window& w = attributes.window;
  if (w.rank != 2) return "only two spatial dimensions are handled";
  if (attributes.groups > 1 && x.shape[1] == attributes.groups) return "a channel in each group is depthwise";
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(y)) return "the output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  if (y.elements() == 0 || x.elements() == 0) return "empty tensors are not handled";
  // Offsets into x are 32-bit, and taps reach one window beyond its borders.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max() / 2;
  if (x.elements() / x.shape[1] > kLimit / units || y.elements() / y.shape[1] > kLimit)
    return "the tensors are too large for 32-bit offsets";
  const std::int64_t high = x.shape[2] + w.span(0) + w.pad_begin[0] + w.pad_end[0];
  const std::int64_t wide = x.shape[3] + w.span(1) + w.pad_begin[1] + w.pad_end[1];
  if (high > 32768 || wide > 32768 || high * wide > kLimit / units || w.taps() > kLimit / units)
    return "the window is too large for 32-bit offsets";
  return std::nullopt;
}

ConvShape conv_gemm_shape(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units) {
  const Window& w = attributes.window;
  const Shape& x = spec.inputs[0]->shape;
  const Shape& y = spec.outputs[0].shape;
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  ConvShape s;
  s.batch = narrow(x[0]), s.in_h = narrow(x[2]), s.in_w = narrow(x[3]);
  s.in_c = narrow(units);
  s.out_h = narrow(y[2]), s.out_w = narrow(y[3]), s.out_c = narrow(y[1]);
  s.kernel_h = narrow(w.kernel[0]), s.kernel_w = narrow(w.kernel[1]);
  s.stride_h = narrow(w.stride[0]), s.stride_w = narrow(w.stride[1]);
  s.dilation_h = narrow(w.dilation[0]), s.dilation_w = narrow(w.dilation[1]);
  s.pad_h = narrow(w.pad_begin[0]), s.pad_w = narrow(w.pad_begin[1]);
  s.groups = narrow(attributes.groups);
  s.bf16 = spec.precision == Precision::bf16;
  return s;
}

ConvShape half_conv_shape(const NodeSpec& spec) {
  return conv_gemm_shape(spec, layer_as<Conv>(spec.layer).attributes(), spec.inputs[0]->shape[1]);
}

ConvShape pair_conv_shape(const NodeSpec& spec) {
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  ConvShape shape = conv_gemm_shape(spec, a.conv, spec.inputs[0]->shape[1] / 2);
  shape.int8 = true;
  shape.real_output = !a.y.quantized();
  return shape;
}

Refusal refuse_half_conv(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  if (Refusal reason = refuse_other_types(spec)) return reason;
  return refuse_conv_gemm(spec, layer_as<Conv>(spec.layer).attributes(), x.shape[1]);
}

Refusal refuse_other_types(const NodeSpec& spec, bool image) {
  const DType type = internal::stored_type(spec.precision), x = spec.inputs[0]->dtype;
  if (!stores_16_bits(spec.precision) || (x != type && !(image && x == DType::f32)) ||
      spec.outputs[0].dtype != type)
    return "only fp16 and bf16 are handled";
  if (spec.has_input(3) && spec.inputs[3]->dtype != type)
    return fmt::format("the residual must be {}", dtype_name(type));
  return std::nullopt;
}

namespace {

struct Processors {
  int count = 0;
  bool clusters = false;
};

Processors gpu_of(int gpu) {
  Processors result;
  result.count = processors_of(gpu);
  PIPIT_CUDA(conv_gemm_has_clusters(result.clusters));
  return result;
}

template <typename T>
KeptDepth kept_by(const Tensor& weights, const ConvShape& shape) {
  const int channels = static_cast<int>(weights.shape()[1]) * shape.groups;
  if (weights.desc().layout == Layout::row_major) return {shape, channels, weights.values<T>()};
  const Tensor moved = to_layout(weights.view(), Layout::row_major);
  return {shape, channels, moved.values<T>()};
}

}  // namespace

KeptDepth blocks_with_weights(const NodeSpec& spec, const ConvShape& shape) {
  const Tensor& weights = *spec.constant(1);
  return weights.desc().dtype == DType::i8 ? kept_by<std::int8_t>(weights, shape)
                                           : kept_by<float>(weights, shape);
}

namespace {

// Of "implicit_gemm", without what brings x into another form.
Estimate variant_estimate(const NodeSpec& spec, const ConvShape& shape, const ConvVariant& variant,
                          double copied_megabytes) {
  const ConvTile& tile = variant.tile;
  const int processors = processors_of(spec.gpu);
  const std::int64_t blocks = blocks_of(shape, tile);
  LaunchTerms terms;
  terms.steps = static_cast<double>(ceil_div(shape.most_steps(tile), tile.splits)) * step_factor(shape, tile);
  terms.rounds = static_cast<double>(ceil_div(blocks, processors));
  terms.blocks = static_cast<double>(blocks) / processors;
  terms.megabytes = operand_megabytes(spec);
  terms.shared = tile.splits > 1 ? tile.splits : 0;
  terms.copies = copied_megabytes > 0 ? 1 : 0;
  terms.again = copied_megabytes;
  terms.waits = variant.overlap ? 0 : 1;
  if (shape.averaged)
    terms.megabytes -= 1e-6 * static_cast<double>(spec.outputs[0].bytes());  // only its means
  Estimate estimate = estimate_of(fmt::format("implicit_gemm {} {}x{}{}", shape.int8 ? "i8" : "f16",
                                              tile.rows, tile.columns, tile.splits > 1 ? " shared" : ""),
                                  terms);
  // Adding up a tile's rows: the median of recorded over estimated times of 103 layers.
  constexpr double kAveraging = 1.31;
  if (shape.averaged) estimate.time *= kAveraging;
  return estimate;
}

}  // namespace

KeptDepth kept_depth(const NodeSpec& spec, const ConvShape& shape) {
  KeptDepth depth = blocks_with_weights(spec, shape);
  if (depth.all() || block_units(shape) < 8 || shape.averaged)
    return KeptDepth(shape);  // narrow images and averages have no kernel for lists
  ConvShape described = shape;
  depth.describe(described);
  const bool lists = std::ranges::any_of(
      kConvTiles, [&](const ConvTile& tile) { return has_kernel(shape, tile) && described.lists(tile); });
  return lists ? depth : KeptDepth(shape);
}

KeptDepth kept_depth(const NodeSpec& spec, const ConvShape& shape, const ConvTile& tile) {
  return shape.lists(tile) ? kept_depth(spec, shape) : KeptDepth(shape);
}

double kept_share(const NodeSpec& spec, const ConvShape& shape) {
  const ConvTile tile = named_variant(conv_gemm_variants(spec, shape), spec.variant).tile;
  return kept_depth(spec, shape, tile).share(tile.columns);
}

DepthOnGpu::DepthOnGpu(const ConvShape& shape, const KeptDepth& depth, int columns) {
  if (depth.all()) return;
  std::vector<DepthBlock> blocks = depth_blocks(shape, depth, columns);
  const auto tiles = static_cast<std::size_t>(ceil_div(shape.out_c, columns));
  const std::size_t row = blocks.size() / tiles;
  // The blocks of the first tile serve all where they are the same.
  bool same = true;
  std::vector<int> steps;
  for (std::size_t tile = 0; tile < tiles; ++tile) {
    const auto begin = blocks.begin() + static_cast<std::ptrdiff_t>(tile * row);
    same = same && std::equal(begin, begin + static_cast<std::ptrdiff_t>(row), blocks.begin());
    steps.push_back(depth.steps(static_cast<int>(tile), columns));
  }
  if (same) blocks.resize(row);
  tile_blocks_ = same ? 0 : static_cast<int>(row);
  blocks_ = DeviceBuffer(blocks.data(), blocks.size() * sizeof(DepthBlock));
  if (std::any_of(steps.begin(), steps.end(), [&](int s) { return s != steps[0]; }))
    steps_ = DeviceBuffer(steps.data(), steps.size() * sizeof(int));
}

void DepthOnGpu::set(ConvGemmArgs& args) const {
  args.blocks = blocks_.as<const DepthBlock>();
  args.tile_blocks = tile_blocks_;
  args.tile_steps = steps_.as<const int>();
}

std::vector<ConvVariant> conv_gemm_variants(const NodeSpec& spec, const ConvShape& shape) {
  const auto [processors, clusters] = gpu_of(spec.gpu);
  if (shape.in_c != 4) {
    return conv_variants(shape, processors, clusters, [&](const ConvVariant& variant) {
      return variant_estimate(spec, shape, variant, 0).time;
    });
  }
  const ConvTile narrow{128, 64, 1};  // the one tile that reads narrow pixels
  return {{narrow, clusters && pays_to_overlap(shape, narrow, processors)}};
}

ConvVariant named_variant(const std::vector<ConvVariant>& variants, std::string_view name) {
  if (name.empty()) return variants.front();
  for (const ConvVariant& variant : variants) {
    if (variant.name() == name) return variant;
  }
  fail("there is no variant '{}'", name);
}

ConvVariant chosen_variant(const NodeSpec& spec, const ConvShape& shape) {
  const std::vector<ConvVariant> variants = conv_gemm_variants(spec, shape);
  const bool known =
      std::ranges::any_of(variants, [&](const ConvVariant& v) { return v.name() == spec.variant; });
  return named_variant(variants, shape.averaged && !known ? std::string_view() : spec.variant);
}

Estimate conv_gemm_estimate(const NodeSpec& spec, const ConvShape& shape, bool copies) {
  const double copied = copies ? 2e-6 * static_cast<double>(spec.inputs[0]->bytes()) : 0;
  return variant_estimate(spec, shape, chosen_variant(spec, shape), copied);
}

std::vector<std::string> names_of(const std::vector<ConvVariant>& variants) {
  constexpr std::size_t kMaxTimed = 5;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < variants.size() && i < kMaxTimed; ++i) names.push_back(variants[i].name());
  return names;
}

namespace {

Tensor row_major_weights(const NodeSpec& spec) {
  return to_layout(spec.constant(1)->view(), Layout::row_major);
}

std::span<const std::byte> bytes_of(const std::vector<std::int8_t>& packed) {
  return std::as_bytes(std::span(packed));
}

}  // namespace

Refusal refuse_qconv_gemm(const NodeSpec& spec) {
  if (Refusal reason = refuse_groups(layer_as<QConv>(spec.layer).attributes().conv)) return reason;
  return refuse_grouped_qconv_gemm(spec);
}

Refusal refuse_grouped_qconv_gemm(const NodeSpec& spec) {
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  if (!is_symmetric_i8(a.x) || spec.inputs[0]->dtype != DType::i8) return "x is not i8 with zero point 0";
  if (a.y.quantized() && !is_symmetric_i8(a.y)) return "y is not i8 with zero point 0";
  if (spec.has_input(3) && !is_symmetric_i8(a.residual)) return "the residual is not i8 with zero point 0";
  constexpr std::int64_t kDepth = 2 * kTileDepth;  // offsets are counted for channels padded to a whole step
  return refuse_grouped_conv_gemm(spec, a.conv, ceil_div(spec.inputs[0]->shape[1], kDepth) * kTileDepth);
}

ConvShape qconv_gemm_shape(const NodeSpec& spec) {
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  const TensorDesc& x = *spec.inputs[0];
  ConvShape shape = conv_gemm_shape(spec, a.conv, ceil_div(x.shape[1], 16) * 8);
  if (x.shape[1] % 16 == 8 && is_channels_last(x)) shape.unstored = 4;
  shape.int8 = true;
  shape.real_output = !a.y.quantized();
  shape.averaged = averages(spec);
  kept_depth(spec, shape).describe(shape);
  return shape;
}

QConvGemmOperands::QConvGemmOperands(const NodeSpec& spec, const ConvShape& shape, const KeptDepth& depth,
                                     int channels, int columns)
    : QConvGemmOperands(
          spec, shape,
          bytes_of(pack_qconv_weights(shape, depth, channels,
                                      row_major_weights(spec).values<std::int8_t>().data(), columns)),
          columns) {}

QConvGemmOperands::QConvGemmOperands(const NodeSpec& spec, const ConvShape& shape,
                                     std::span<const std::byte> packed, int columns)
    : weights_(packed.data(), packed.size()) {
  const QConvAttributes& a = layer_as<QConv>(spec.layer).attributes();
  const Tensor weights = row_major_weights(spec);
  std::vector<std::int32_t> bias = qconv_biases(spec);
  epilogue_.small = most_of_int8(spec, weights.values<std::int8_t>(), bias).is_small();
  const auto rows = static_cast<std::size_t>(ceil_div(shape.out_c, columns) * columns);
  bias = in_packed_order(std::move(bias), rows);
  bias_ = DeviceBuffer(bias.data(), bias.size() * sizeof(std::int32_t));
  const std::vector<float> multipliers = in_packed_order(requantization_multipliers(a, shape.out_c), rows);
  multipliers_ = DeviceBuffer(multipliers.data(), multipliers.size() * sizeof(float));

  const StepBounds bounds = output_bounds(a.y, a.conv.activation);
  epilogue_.low = bounds.low;
  epilogue_.high = bounds.high;
  if (a.y.quantized()) epilogue_.whole_bounds = PairBounds::of(bounds);
  epilogue_.residual_scale = residual_factor(a);
  epilogue_.stored = a.y.quantized() ? StoredType::i8 : stored_type(spec.outputs[0].dtype);
  table_ = upload_table(follower_table(spec));
}

void QConvGemmOperands::set(ConvGemmArgs& args) const {
  args.weights = weights_.data();
  args.bias = bias_.data();
  args.multipliers = multipliers_.as<const float>();
  args.small = epilogue_.small;
  args.low = epilogue_.low;
  args.high = epilogue_.high;
  args.whole_bounds = epilogue_.whole_bounds;
  args.residual_scale = epilogue_.residual_scale;
  args.stored = epilogue_.stored;
  args.table = table_.as<const std::uint8_t>();
}

namespace {

// Nothing where HalfFunction does not describe it, or its parameters are beyond what halves can be: with an infinite
// slope 0 would become NaN.
std::optional<HalfFunction> function_of(const UnaryAttributes& a) {
  constexpr double kMax = 65504;
  for (const double parameter : {a.alpha, a.beta}) {
    if (!(std::abs(parameter) <= kMax)) return std::nullopt;
  }
  const auto logistic = [](bool times_x, double alpha) {
    return HalfFunction{HalfGate::logistic, times_x, static_cast<float>(-alpha * std::numbers::log2e)};
  };
  switch (a.kind) {
    case UnaryKind::sigmoid:
      return logistic(false, 1);
    case UnaryKind::silu:
      return logistic(true, 1);
    case UnaryKind::swish:
      return logistic(true, a.alpha);
    case UnaryKind::hard_sigmoid:
      return HalfFunction{HalfGate::linear, false, static_cast<float>(a.alpha), static_cast<float>(a.beta)};
    case UnaryKind::hard_swish:
      return HalfFunction{HalfGate::linear, true, 1.0F / 6, 0.5F};
    case UnaryKind::leaky_relu:
      return HalfFunction{HalfGate::sign, true, static_cast<float>(a.alpha)};
    default:
      return std::nullopt;
  }
}

}  // namespace

bool fuses_function(const NodeSpec& spec, const NodeSpec& next) {
  return spec.fusion.followers.empty() && next.layer.type() == Unary::kType &&
         is_stored_float(spec.outputs[0].dtype) && next.outputs[0].dtype == spec.outputs[0].dtype &&
         half_function_of(next).has_value();
}

std::optional<HalfFunction> half_function_of(const NodeSpec& unary) {
  return function_of(layer_as<Unary>(unary.layer).attributes());
}

HalfFunction follower_function(const NodeSpec& spec) {
  // An average may follow as well.
  if (spec.fusion.followers.empty() || spec.fusion.followers[0]->layer.type() != Unary::kType) return {};
  return half_function_of(*spec.fusion.followers[0]).value();
}

bool fuses_table(const NodeSpec& spec, const NodeSpec& next) {
  const DType type = spec.outputs[0].dtype;
  return spec.fusion.followers.empty() && next.layer.type() == QUnary::kType &&
         (type == DType::i8 || type == DType::u8) && next.outputs[0].dtype == type;
}

std::optional<ByteTable> follower_table(const NodeSpec& spec) {
  // An average may follow instead of it.
  if (spec.fusion.followers.empty() || spec.fusion.followers[0]->layer.type() != QUnary::kType)
    return std::nullopt;
  return unary_table(layer_as<QUnary>(spec.fusion.followers[0]->layer).attributes());
}

DeviceBuffer upload_table(const std::optional<ByteTable>& table) {
  return table ? DeviceBuffer(table->data(), table->size()) : DeviceBuffer();
}

namespace {

bool is_real(DType type) {
  return is_stored_float(type) || type == DType::f32;
}

}  // namespace

bool is_average(const NodeSpec& node) {
  if (node.layer.type() != Pool::kType) return false;
  const PoolAttributes& a = layer_as<Pool>(node.layer).attributes();
  return a.global && a.kind == PoolKind::average && is_real(node.inputs[0]->dtype) &&
         is_real(node.outputs[0].dtype);
}

bool averages(const NodeSpec& spec) {
  return std::ranges::any_of(spec.fusion.followers, [](const NodeSpec* node) { return is_average(*node); });
}

// Narrow images and lists of blocks have no such kernel.
bool fuses_average(const NodeSpec& spec, const ConvShape& shape) {
  constexpr int kNarrow = 4;
  return !averages(spec) && shape.in_c != kNarrow && shape.positions() <= kConvTiles[0].rows &&
         kept_depth(spec, shape).all();
}

bool quantizes_average(const NodeSpec& spec, const NodeSpec& next) {
  return !spec.fusion.followers.empty() && is_average(*spec.fusion.followers.back()) &&
         next.layer.type() == Quantize::kType;
}

ConvAverage average_args(const NodeSpec& spec, const ConvShape& shape, const ConvTile& tile) {
  ConvAverage average;
  if (!averages(spec)) return average;
  const std::span<const NodeSpec* const> followers = spec.fusion.followers;
  const NodeSpec& last = *followers.back();
  const bool quantizes = !is_average(last);
  const NodeSpec& mean = quantizes ? *followers[followers.size() - 2] : last;
  average.images = images_of(shape, tile);
  average.positions = static_cast<int>(shape.positions());
  average.rows = average.images * average.positions;
  average.factor = 1 / static_cast<float>(average.positions);
  average.result =
      AverageResult(mean.outputs[0].dtype, quantizes ? &layer_as<Quantize>(last.layer).y() : nullptr);
  return average;
}

}  // namespace pipit::internal::cuda
