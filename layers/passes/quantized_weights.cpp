#include "layers/passes/quantized_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/evaluate.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/quantize.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

constexpr double kMaxSum = std::numeric_limits<std::int32_t>::max();
// What a bias becomes that is free to choose its unit.
constexpr double kFreeBias = 1U << 29;
// QConv's limit on products per output, whose sum must stay in int32.
constexpr std::int64_t kMaxProducts = 65'000;

// Weights as a matrix of outputs times depth, wherever the layer has them.
struct Matrix {
  std::int64_t outputs = 0;
  std::int64_t depth = 0;
  bool outputs_first = true;  // row-major [outputs, depth], else [depth, outputs]
  std::int64_t output_axis = 0;
  Shape shape;  // of the QConv's weights
  float factor = 1;
};

Matrix matrix_of(const Node& node, const Shape& shape) {
  Matrix m;
  if (layer_if<Conv>(node) != nullptr) {
    m.outputs = shape[0];
    m.depth = shape.elements() / std::max<std::int64_t>(1, m.outputs);
    m.shape = shape;
    return m;
  }
  const auto* gemm = layer_if<Gemm>(node);
  m.outputs_first = gemm != nullptr && gemm->attributes().transpose_b;
  m.output_axis = m.outputs_first ? 0 : 1;
  m.outputs = shape[m.outputs_first ? 0 : 1];
  m.depth = shape[m.outputs_first ? 1 : 0];
  m.shape = Shape{m.outputs, m.depth, 1, 1};
  m.factor = gemm != nullptr ? gemm->attributes().alpha : 1.0F;
  return m;
}

template <typename T>
std::optional<std::string> shift_weights(const Matrix& m, const Tensor& from,
                                         const std::vector<int>& zero_points, std::span<std::int8_t> to) {
  const std::span<const T> raw = from.values<T>();
  for (std::int64_t o = 0; o < m.outputs; ++o) {
    const int zero_point = zero_points[zero_points.size() == 1 ? 0 : static_cast<std::size_t>(o)];
    for (std::int64_t k = 0; k < m.depth; ++k) {
      const std::int64_t at = m.outputs_first ? o * m.depth + k : k * m.outputs + o;
      const int value = static_cast<int>(raw[static_cast<std::size_t>(at)]) - zero_point;
      if (value < -128 || value > 127)
        return fmt::format("a weight less the zero point {} is {}, which i8 does not hold", zero_point,
                           value);
      to[static_cast<std::size_t>(o * m.depth + k)] = static_cast<std::int8_t>(value);
    }
  }
  return std::nullopt;
}

// One value per output, or one for all; empty where the bias has another shape.
std::vector<double> real_bias(const BiasSource& bias, std::int64_t outputs) {
  const Tensor real = bias.real ? bias.real->clone() : dequantize(*bias.quantized);
  const Shape& shape = real.shape();
  const bool one = shape.elements() == 1;
  if (!one && (shape.elements() != outputs || shape[shape.rank() - 1] != outputs)) return {};
  std::vector<double> values;
  for (std::int64_t o = 0; o < outputs; ++o)
    values.push_back(static_cast<double>(bias.factor) *
                     real.values<float>()[static_cast<std::size_t>(one ? 0 : o)]);
  return values;
}

// How far from zero the bias of each output may be so that no input makes a sum leave int32.
std::vector<double> room_for_bias(const Tensor& weights, const Quantization& x) {
  const QuantizedRange range = quantized_range(x);
  const int largest = std::max(x.zero_point - range.low, range.high - x.zero_point);
  const auto outputs = static_cast<std::size_t>(weights.shape()[0]);
  const std::span<const std::int8_t> values = weights.values<std::int8_t>();
  const std::size_t depth = values.size() / outputs;
  std::vector<double> room;
  for (std::size_t o = 0; o < outputs; ++o) {
    std::int64_t sum = 0;
    for (const std::int8_t w : values.subspan(o * depth, depth)) sum += std::abs(w);
    room.push_back(kMaxSum - static_cast<double>(sum * largest));
  }
  return room;
}

// The integers of a bias that is stored in the units of the sums already.
bool exact_bias(const BiasSource& bias, float x_scale, const QConvConstants& constants,
                std::span<const double> room, std::span<std::int32_t> to) {
  if (!bias.quantized || bias.quantized->q.dtype != DType::i32 || bias.factor != 1) return false;
  const AxisQuantization& q = bias.quantized->q;
  const std::span<const std::int32_t> from = bias.quantized->integers->values<std::int32_t>();
  if (from.size() != to.size()) return false;
  for (std::size_t o = 0; o < to.size(); ++o) {
    const double unit = static_cast<double>(x_scale) * constants.scales[constants.scales.size() == 1 ? 0 : o];
    if (std::abs(q.scales[q.per_tensor() ? 0 : o] - unit) > 1e-6 * unit) return false;
    if (std::abs(static_cast<double>(from[o])) > room[o]) return false;
    to[o] = from[o];
  }
  return true;
}

// Rounds the bias to the units of the sums. The scale of a channel of zeros is free: it grows where the bias needs it.
std::optional<std::string> round_bias(const BiasSource& bias, float x_scale, std::span<const double> room,
                                      QConvConstants& constants) {
  const std::span<std::int32_t> to = constants.bias.values<std::int32_t>();
  const std::span<const std::int8_t> weights = constants.weights.values<std::int8_t>();
  const std::vector<double> real = real_bias(bias, static_cast<std::int64_t>(to.size()));
  if (real.empty()) return "its bias is not one value per output";
  const std::size_t depth = weights.size() / to.size();
  for (std::size_t o = 0; o < to.size(); ++o) {
    if (!std::isfinite(real[o])) return "its bias is not finite";
    float& scale = constants.scales[constants.scales.size() == 1 ? 0 : o];
    double steps = real[o] / (static_cast<double>(x_scale) * scale);
    const std::span<const std::int8_t> channel = weights.subspan(o * depth, depth);
    const bool zeros = std::all_of(channel.begin(), channel.end(), [](std::int8_t w) { return w == 0; });
    if (std::abs(steps) > room[o] && zeros && constants.scales.size() > 1) {
      scale = static_cast<float>(std::abs(real[o]) / (static_cast<double>(x_scale) * kFreeBias));
      steps = real[o] / (static_cast<double>(x_scale) * scale);
    }
    if (std::abs(steps) > room[o])
      return fmt::format("with its bias, {:.3g} products of the scales, sums may overflow int32", steps);
    to[o] = static_cast<std::int32_t>(std::nearbyint(steps));
  }
  return std::nullopt;
}

}  // namespace

std::optional<QuantizedConstant> quantized_constant(const Graph& graph, const Node& node) {
  if (node.inputs.empty() || node.inputs[0] == kNoValue || !graph.value(node.inputs[0]).constant)
    return std::nullopt;
  const std::shared_ptr<const Tensor>& integers = graph.value(node.inputs[0]).constant;
  if (const auto* layer = layer_if<Dequantize>(node)) {
    return QuantizedConstant{integers, {layer->x().dtype, {layer->x().scale}, {layer->x().zero_point}, 0}};
  }
  if (const auto* layer = layer_if<DequantizeAxis>(node)) return QuantizedConstant{integers, layer->x()};
  return std::nullopt;
}

Tensor dequantize(const QuantizedConstant& constant) {
  return std::move(evaluate(DequantizeAxis(constant.q), {&constant.integers, 1}).at(0));
}

std::optional<std::string> make_qconv_constants(const Node& node, const QuantizedConstant& weights,
                                                const BiasSource& bias, const Quantization& x,
                                                QConvConstants& result) {
  const Shape& shape = weights.integers->shape();
  if (layer_if<Conv>(node) == nullptr && shape.rank() != 2) return "its weights are no matrix";
  const Matrix m = matrix_of(node, shape);
  if (m.outputs == 0 || m.depth == 0) return "it has no weights";
  if (m.depth > kMaxProducts) return fmt::format("{} products per output may overflow int32", m.depth);
  if (!(m.factor > 0)) return fmt::format("alpha is {}", m.factor);
  if (!weights.q.per_tensor() && weights.q.axis != m.output_axis)
    return fmt::format("the scales of its weights lie along axis {}, not the outputs'", weights.q.axis);
  result.scales.clear();
  for (const float scale : weights.q.scales) {
    result.scales.push_back(m.factor * scale);
    if (!(result.scales.back() > 0) || !std::isfinite(result.scales.back()))
      return "alpha times a scale is no f32";
  }
  result.weights = Tensor(TensorDesc{m.shape, DType::i8});
  result.bias = Tensor(TensorDesc{Shape{m.outputs}, DType::i32});
  const std::span<std::int8_t> to = result.weights.values<std::int8_t>();
  std::optional<std::string> reason;
  if (weights.q.dtype == DType::i8) {
    reason = shift_weights<std::int8_t>(m, *weights.integers, weights.q.zero_points, to);
  } else if (weights.q.dtype == DType::u8) {
    reason = shift_weights<std::uint8_t>(m, *weights.integers, weights.q.zero_points, to);
  } else {
    reason = "its weights are i32";
  }
  if (reason) return reason;
  const std::span<std::int32_t> biases = result.bias.values<std::int32_t>();
  std::fill(biases.begin(), biases.end(), 0);
  const std::vector<double> room = room_for_bias(result.weights, x);
  if (*std::min_element(room.begin(), room.end()) < 0) return "its sums may overflow int32";
  if ((!bias.quantized && !bias.real) || exact_bias(bias, x.scale, result, room, biases)) return std::nullopt;
  return round_bias(bias, x.scale, room, result);
}

}  // namespace pipit::internal
