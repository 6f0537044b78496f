// INT8 with scales that are found at run time: ONNX DynamicQuantizeLinear, ConvInteger and MatMulInteger, and pipit's
// own, which is symmetric.
#pragma once

#include <vector>

#include "engine/graph/layer.h"
#include "layers/ops/conv.h"
#include "layers/ops/quantization.h"

namespace pipit::internal {

/// The type of dynamic activations: u8 with zero point 128, in [1, 255], or i8 with zero point 0, in [-127, 127].
constexpr Quantization dynamic_bytes(DType type) {
  return {1, type == DType::u8 ? 128 : 0, type};
}
inline constexpr Quantization kDynamicBytes = dynamic_bytes(DType::u8);

struct DynamicQuantizeAttributes {
  /// One scale for every entry of dimension 0, so that an image's result does not depend on the other images of its
  /// batch; else one for all.
  bool per_sample = true;
  /// As ONNX DynamicQuantizeLinear: one scale for all, and a zero point.
  bool affine = false;
  /// u8 or i8, where it is not affine.
  DType type = DType::u8;
};

/// Inputs: x (f32, at least one dimension). Outputs: q, shaped like x, as dynamic_bytes(type); scales f32 [S], S = the
/// extent of dimension 0 or 1, of neighbouring parts of x of equal size. scale and q are those of dynamic_scale() and
/// its reciprocal (layers/ops/quantization.h). Where it is affine: q, u8 as AffineScale::quantization(); a scale f32 []
/// and a zero point u8 [], those of affine_scale().
class DynamicQuantize final : public LayerOf<DynamicQuantize, DynamicQuantizeAttributes> {
 public:
  static constexpr std::string_view kType = "DynamicQuantize";
  using LayerOf::LayerOf;

  LayerTraits traits() const override { return {.arithmetic = Arithmetic::between}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

struct DynamicQConvAttributes {
  ConvAttributes conv;
  /// One per output channel, or one for all.
  std::vector<float> weight_scales;
  /// Likewise; or none: 0.
  std::vector<int> weight_zero_points = {};
};

/// sum = conv(q - zero point, w - weight_zero_point) + sum bias in int32, padding counts as the value 0; with s the
/// scale of the image that n belongs to (entry n / (N / S)): value = float(sum) * weight_scale * s, then value += bias,
/// value += residual, in this order, each operation rounded to f32; y = the activation of it, NaN stays. With a zero
/// point, value = float(sum) * (s * weight_scale), as ONNX graphs have it, and S is 1. An image with
/// a NaN or an infinity has the scale NaN, and so every y of it is NaN.
/// Inputs: q [N, C, spatial...] (u8 or i8); weights [O, C/groups, kernel...] (i8 or u8); bias [O] (f32, optional);
/// residual (f32, shaped like y, optional); scales [S] or [] (f32), S divides N; zero point of q (one element of its
/// type; absent: that of dynamic_bytes()); sum bias [O] (i32, optional). Output f32. Depths whose sums may leave int32
/// are refused: about 33,000 with weight_zero_points, 65,000 without.
class DynamicQConv final : public LayerOf<DynamicQConv, DynamicQConvAttributes> {
 public:
  static constexpr std::string_view kType = "DynamicQConv";
  static constexpr std::size_t kResidual = 3;
  static constexpr std::size_t kScales = 4;
  static constexpr std::size_t kZeroPoint = 5;
  static constexpr std::size_t kSumBias = 6;
  explicit DynamicQConv(DynamicQConvAttributes attributes);

  LayerTraits traits() const override {
    return {.family = LayerFamily::convolution,
            .arithmetic = Arithmetic::integers,
            .weights = 1,
            .residual = kResidual};
  }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::channels_last; }
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  std::string summary() const override;

 private:
  void check_zero_points(const Shape& weights) const;
};

/// weight_scales, one for every output.
std::vector<float> scales_of_outputs(const DynamicQConvAttributes& attributes, std::int64_t outputs);
/// weight_zero_points, one for every output.
std::vector<int> zero_points_of_outputs(const DynamicQConvAttributes& attributes, std::int64_t outputs);
/// Element i of bytes that are i8 or u8.
inline int byte_at(const std::byte* data, DType type, std::int64_t i) {
  const auto byte = static_cast<std::uint8_t>(data[i]);
  return type == DType::i8 ? int{static_cast<std::int8_t>(byte)} : int{byte};
}
inline int byte_at(const ConstTensorView& view, std::int64_t i) {
  return byte_at(view.data, view.desc.dtype, i);
}
/// The depth from which on a DynamicQConv with weights that have zero points may leave int32.
inline constexpr std::int64_t kMaxAffineDepth = (std::int64_t{1} << 31) / (255 * 255);

}  // namespace pipit::internal
