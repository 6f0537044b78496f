// QLinearConv and QLinearMatMul, written out as Dequantize -> Conv or MatMul -> Quantize. The pass that recognizes
// these (layers/passes/fuse_quantized.cpp) makes INT8 kernels of them again.
#include "layers/ops/conv.h"
#include "layers/ops/matmul.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/quantized_operand.h"
#include "models/onnx/read/window_attributes.h"

namespace pipit::internal::onnx {

namespace {

// Inputs: x, its scale and zero point; w likewise; scale and zero point of y; bias (i32, in units of the products).
std::vector<ValueId> convert_qlinear_conv(NodeContext& node) {
  const Shape& weights = node.input_shape(3);
  if (weights.rank() < 3) fail("weights {}: expected [output, input / group, kernel...]", weights.str());
  ConvAttributes attributes;
  attributes.window = read_window(node, weights.dims().subspan(2), "QLinearConv");
  attributes.groups = node.attributes().integer("group", 1);
  std::vector<ValueId> inputs = {dequantized_input(node, 0, "x"), dequantized_input(node, 3, "w")};
  if (node.has_input(8)) {
    const AxisQuantization x = read_quantization(node, 1, 2, DType::u8, node.input_shape(0));
    const AxisQuantization w = read_quantization(node, 4, 5, DType::u8, weights);
    if (!x.per_tensor()) fail("{} scales of x; expected one", x.scales.size());
    inputs.push_back(dequantized(node, node.input(8), bias_quantization(w, x.scales[0]), "bias"));
  }
  return {quantized_output(node, node.emit<Conv>(std::move(inputs), attributes), 6)};
}

// Inputs: a, its scale and zero point; b likewise; scale and zero point of y. Lists of scales are per row of a and per
// column of b.
std::vector<ValueId> convert_qlinear_matmul(NodeContext& node) {
  const ValueId a = dequantized_input(node, 0, "a", node.input_shape(0).rank() < 2 ? 0 : -2);
  const ValueId b = dequantized_input(node, 3, "b", -1);
  return {quantized_output(node, node.emit<MatMul>({a, b}), 6)};
}

constexpr Operator kQlinearOperators[] = {
    {"QLinearConv", 10, kLastOpset, 8, 9, convert_qlinear_conv},
    {"QLinearMatMul", 10, kLastOpset, 8, 8, convert_qlinear_matmul},
};

}  // namespace

std::span<const Operator> qlinear_operators() {
  return kQlinearOperators;
}

}  // namespace pipit::internal::onnx
