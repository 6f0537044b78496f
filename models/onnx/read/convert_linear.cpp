// Gemm and MatMul.
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "models/onnx/read/operators.h"

namespace pipit::internal::onnx {

namespace {

std::vector<ValueId> convert_gemm(NodeContext& node) {
  GemmAttributes attributes;
  attributes.alpha = node.attributes().number("alpha", 1);
  attributes.beta = node.attributes().number("beta", 1);
  attributes.transpose_a = node.attributes().flag("transA", false);
  attributes.transpose_b = node.attributes().flag("transB", false);
  if (node.opset() < 7) node.attributes().ignore({"broadcast"});  // C broadcasts in any case
  std::vector<ValueId> inputs = {node.input(0), node.input(1)};
  // As in BLAS, beta = 0 means that C is not read: its NaNs do not count.
  if (node.has_input(2) && attributes.beta != 0) inputs.push_back(node.input(2));
  return {node.emit<Gemm>(std::move(inputs), attributes)};
}

std::vector<ValueId> convert_matmul(NodeContext& node) {
  return {node.emit<MatMul>({node.input(0), node.input(1)})};
}

constexpr Operator kLinearOperators[] = {
    {"Gemm", 6, 10, 3, 3, convert_gemm},
    {"Gemm", 11, kLastOpset, 2, 3, convert_gemm},
    {"MatMul", 1, kLastOpset, 2, 2, convert_matmul},
};

}  // namespace

std::span<const Operator> linear_operators() {
  return kLinearOperators;
}

}  // namespace pipit::internal::onnx
