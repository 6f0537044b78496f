// Short spellings for tests that state operands and results as numbers.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "layers/evaluate.h"

namespace pipit::internal::test {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

using TensorPtr = std::shared_ptr<const Tensor>;

/// A row-major tensor of these elements.
template <typename T>
TensorPtr make(const Shape& shape, const std::vector<T>& values) {
  if constexpr (std::is_same_v<T, bool>) {
    Tensor tensor(TensorDesc{shape, DType::boolean});
    if (static_cast<std::int64_t>(values.size()) != shape.elements()) fail("{} values", values.size());
    std::copy(values.begin(), values.end(), tensor.values<bool>().begin());
    return std::make_shared<const Tensor>(std::move(tensor));
  } else {
    return std::make_shared<const Tensor>(Tensor::from<T>(shape, values));
  }
}

/// A rank-1 tensor of these elements.
template <typename T>
TensorPtr make(const std::vector<T>& values) {
  return make<T>(Shape{static_cast<std::int64_t>(values.size())}, values);
}

/// 0, 1, 2, ... as T.
template <typename T = float>
TensorPtr iota(const Shape& shape) {
  std::vector<T> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(i);
  return make<T>(shape, values);
}

/// The elements of output `index` of the layer, row-major, as the reference computes them.
template <typename T>
std::vector<T> results(const Layer& layer, const std::vector<TensorPtr>& inputs, std::size_t index = 0) {
  const std::vector<Tensor> outputs = evaluate(layer, inputs);
  const auto values = outputs.at(index).values<T>();
  return {values.begin(), values.end()};
}

/// The descs that inference gives for these inputs.
inline std::vector<TensorDesc> infer(const Layer& layer, const std::vector<TensorDesc>& inputs) {
  std::vector<const TensorDesc*> pointers;
  for (const TensorDesc& input : inputs) pointers.push_back(&input);
  return layer.infer(pointers);
}

}  // namespace pipit::internal::test
