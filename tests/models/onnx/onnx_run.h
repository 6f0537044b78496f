// Runs imported ONNX models node by node with the reference kernels.
#pragma once

#include <initializer_list>

#include "layers/evaluate.h"
#include "tests/models/onnx/onnx_writer.h"

namespace pipit::internal::test {

using TensorPtr = std::shared_ptr<const Tensor>;

template <typename T = float>
TensorPtr tensor(const Shape& shape, const std::vector<T>& values) {
  return std::make_shared<const Tensor>(Tensor::from<T>(shape, values));
}

/// Outputs in the graph's order; `inputs` in the graph's order too.
inline std::vector<TensorPtr> run(const Graph& graph, const std::vector<TensorPtr>& inputs) {
  std::vector<TensorPtr> values;
  for (const Value& value : graph.values()) values.push_back(value.constant);
  const auto at = [&values](ValueId id) -> TensorPtr& { return values.at(static_cast<std::size_t>(id)); };
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) at(graph.inputs()[i]) = inputs.at(i);
  for (const Node& node : graph.nodes()) {
    std::vector<TensorPtr> operands;
    for (const ValueId id : node.inputs) operands.push_back(id == kNoValue ? nullptr : at(id));
    std::vector<Tensor> results = evaluate(*node.layer, operands);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const TensorDesc& promised = graph.value(node.outputs.at(i)).desc;
      if (!(results[i].desc() == promised)) {
        fail("{} is {} but the graph says {}", node.name, results[i].desc().str(), promised.str());
      }
      at(node.outputs[i]) = std::make_shared<const Tensor>(std::move(results[i]));
    }
  }
  std::vector<TensorPtr> outputs;
  for (const ValueId id : graph.outputs()) outputs.push_back(at(id));
  return outputs;
}

/// A result as shape and numbers, for comparison.
struct Result {
  Shape shape;
  std::vector<double> values;
};

inline Result result_of(const Tensor& tensor) {
  Result result{tensor.shape(), {}};
  const auto copy = [&]<typename T>(T /*type*/) {
    for (const T value : tensor.values<T>()) result.values.push_back(static_cast<double>(value));
  };
  switch (tensor.desc().dtype) {
    case DType::f32:
      copy(float{});
      break;
    case DType::f64:
      copy(double{});
      break;
    case DType::i8:
      copy(std::int8_t{});
      break;
    case DType::u8:
      copy(std::uint8_t{});
      break;
    case DType::i32:
      copy(std::int32_t{});
      break;
    case DType::i64:
      copy(std::int64_t{});
      break;
    case DType::boolean:
      copy(bool{});
      break;
    case DType::f16:
    case DType::bf16:
      fail("the reader makes no {}", dtype_name(tensor.desc().dtype));
  }
  return result;
}

/// Output 0 of a model.
inline Result run(const OnnxWriter& model, const std::vector<TensorPtr>& inputs = {}) {
  return result_of(*run(model.read().graph, inputs).at(0));
}

/// 0, 1, 2...
inline TensorPtr iota(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return tensor(shape, values);
}

}  // namespace pipit::internal::test
