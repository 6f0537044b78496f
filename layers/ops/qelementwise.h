// INT8 layers without weights: the sum and the product of two tensors, and average pooling.
#pragma once

#include "engine/graph/layer.h"
#include "layers/ops/clamp.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantization.h"

namespace pipit::internal {

struct QAddAttributes {
  Quantization a, b, y;
  Clamp activation;
};

/// value = float(a - a.zero_point) * (a.scale / y.scale) + float(b - b.zero_point) * (b.scale / y.scale), every
/// operation rounded to f32; y = requantize(value) with the activation's bounds. Inputs: a, b of one shape.
class QAdd final : public LayerOf<QAdd, QAddAttributes>, public QuantizedOutput {
 public:
  static constexpr std::string_view kType = "QAdd";
  explicit QAdd(QAddAttributes attributes);

  const Quantization& output_quantization() const override { return attributes_.y; }
  LayerTraits traits() const override { return {.arithmetic = Arithmetic::integers, .channelwise = true}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  bool may_run_in_place(int /*index*/) const override { return true; }
  std::string summary() const override;
};

struct QMulAttributes {
  Quantization a, b, y;
  Clamp activation;
};

/// value = float((a - a.zero_point) * (b - b.zero_point)) * m with m = a.scale * b.scale / y.scale in this order, every
/// operation rounded to f32; y = requantize(value) with the activation's bounds. Inputs: a; b of the same rank, whose
/// extents are those of a or 1 (a gate per image and channel).
class QMul final : public LayerOf<QMul, QMulAttributes>, public QuantizedOutput {
 public:
  static constexpr std::string_view kType = "QMul";
  explicit QMul(QMulAttributes attributes);

  const Quantization& output_quantization() const override { return attributes_.y; }
  LayerTraits traits() const override { return {.arithmetic = Arithmetic::integers, .channelwise = true}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool may_run_in_place(int index) const override { return index == 0; }
  bool is_batch_independent(const SampledInputs& inputs) const override;
  std::string summary() const override;
};

/// Whether QMul takes these shapes, in this order.
bool qmul_fits(const Shape& a, const Shape& b);
/// Its m.
float qmul_multiplier(const QMulAttributes& attributes);

struct QAveragePoolAttributes {
  PoolAttributes pool;  ///< kind average
  Quantization x, y;    ///< y f32: the output is not quantized
};

/// sum over the window of (x - x.zero_point) in int32; value = float(sum) * (x.scale / (y.scale * float(n))) with n as
/// average_divisor() counts; y = requantize(value), or for f32 (y.scale = 1) the value itself.
class QAveragePool final : public LayerOf<QAveragePool, QAveragePoolAttributes>, public QuantizedOutput {
 public:
  static constexpr std::string_view kType = "QAveragePool";
  explicit QAveragePool(QAveragePoolAttributes attributes);

  const Quantization& output_quantization() const override { return attributes_.y; }
  LayerTraits traits() const override { return {.arithmetic = Arithmetic::integers, .channelwise = true}; }
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override;
  bool is_batch_independent(const SampledInputs& inputs) const override;
  Work work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> outputs) const override;
  LayoutPreference layout_preference() const override { return LayoutPreference::channels_last; }
  std::string summary() const override;
};

}  // namespace pipit::internal
