// Quantizations and operands for the tests of INT8 layers.
#pragma once

#include <memory>
#include <vector>

#include "layers/ops/quantization.h"
#include "tests/layers/conformance.h"

namespace pipit::internal::test {

inline constexpr Quantization kI8{0.05F, 0, DType::i8};
inline constexpr Quantization kU8{0.05F, 128, DType::u8};
inline constexpr Quantization kOdd{0.013F, 77, DType::u8};  // no symmetric range
inline constexpr Quantization kReal{};

template <typename T>
Operand operand(const Shape& shape, std::vector<T> values, bool constant = false) {
  return {std::make_shared<const Tensor>(Tensor::from<T>(shape, values)), constant};
}

inline Operand integers(Random& random, const Shape& shape, const Quantization& q) {
  return {q.dtype == DType::i8 ? random.tensor(shape, -127, 127.999, DType::i8)
                               : random.tensor(shape, q.zero_point == 128 ? 1 : 0, 255.999, DType::u8)};
}

}  // namespace pipit::internal::test
