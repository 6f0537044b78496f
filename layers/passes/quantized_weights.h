// The integers of a quantized layer's weights and bias, as QConv takes them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "layers/ops/quantization.h"
#include "layers/ops/quantize_axis.h"

namespace pipit::internal {

/// A constant that a graph holds as integers: what Dequantize or DequantizeAxis reads.
struct QuantizedConstant {
  std::shared_ptr<const Tensor> integers;
  AxisQuantization q;
};

/// What `node` dequantizes, where it is a Dequantize or DequantizeAxis of a constant.
std::optional<QuantizedConstant> quantized_constant(const Graph& graph, const Node& node);
/// Its value in f32.
Tensor dequantize(const QuantizedConstant& constant);

/// A layer's bias as the graph has it; without either there is none.
struct BiasSource {
  std::optional<QuantizedConstant> quantized;
  std::shared_ptr<const Tensor> real;  ///< f32
  float factor = 1;
};

struct QConvConstants {
  Tensor weights;             ///< i8, [O, I, kernel...]
  Tensor bias;                ///< i32, [O]
  std::vector<float> scales;  ///< one or O
};

/// Weights of a Conv, Gemm or MatMul (`node`), less their zero points, and the bias in units of x.scale * weight scale.
/// A bias that is not stored in these units is rounded to them. Returns the reason where that is not possible: weights
/// that leave i8, scales that are not per output, weights and a bias with which some input would take a sum out of
/// int32.
std::optional<std::string> make_qconv_constants(const Node& node, const QuantizedConstant& weights,
                                                const BiasSource& bias, const Quantization& x,
                                                QConvConstants& result);

}  // namespace pipit::internal
