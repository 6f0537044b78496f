// INT8 convolution and fully connected layer (ONNX QLinearConv, QLinearMatMul, QGemm of ONNX Runtime).
#pragma once

#include "engine/graph/layer.h"
#include "layers/ops/conv.h"
#include "layers/ops/quantization.h"

namespace pipit::internal {

struct QConvAttributes {
  ConvAttributes conv;
  Quantization x;
  Quantization residual;  ///< where there is one
  Quantization y;         ///< f32: the output is not quantized
  /// One per output channel, or one for all. Weights are symmetric.
  std::vector<float> weight_scales;
};

/// sum = conv(x - x.zero_point, w) + bias in int32, padding counts as the value 0;
/// value = float(sum) * m, with m = x.scale * weight_scale / y.scale in this order (y.scale = 1 for f32);
/// with a residual: value += float(r - residual.zero_point) * (residual.scale / y.scale);
/// y = requantize(value), the activation's bounds in it, or for f32 the clamped value. Every operation is rounded to
/// f32. Inputs: x [N, C, spatial...] (i8 or u8; f32 is quantized first, as Quantize does); weights
/// [O, C/groups, kernel...] (i8, in [-127, 127] or [-128, 127]); bias [O] (i32, in units of x.scale * weight_scale;
/// optional); residual (optional), shaped like y.
/// The sum wraps around like int32: depths beyond 2^31 / (255 * 128), about 65,000, are refused.
class QConv final : public LayerOf<QConv, QConvAttributes>, public QuantizedOutput {
 public:
  static constexpr std::string_view kType = "QConv";
  explicit QConv(QConvAttributes attributes);

  const Quantization& output_quantization() const override { return attributes_.y; }
  LayerTraits traits() const override {
    return {
        .family = LayerFamily::convolution, .arithmetic = Arithmetic::integers, .weights = 1, .residual = 3};
  }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::channels_last; }
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  std::string summary() const override;
};

/// The multiplier m of every output channel.
std::vector<float> requantization_multipliers(const QConvAttributes& attributes, std::int64_t outputs);

}  // namespace pipit::internal
