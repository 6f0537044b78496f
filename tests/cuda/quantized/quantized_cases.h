// What the tests of INT8 on a GPU share: quantizations, random integers, cases that must agree bit for bit.
#pragma once

#include <cmath>

#include "layers/ops/quantization.h"
#include "tests/cuda/conformance.h"
#include "tests/support/window_cases.h"

namespace pipit::test {

inline constexpr Quantization kI8{0.05F, 0, DType::i8};
inline constexpr Quantization kU8{0.05F, 128, DType::u8};
inline constexpr Quantization kOdd{0.013F, 77, DType::u8};
inline constexpr Quantization kOddI8{0.021F, -13, DType::i8};
inline constexpr Quantization kReal{};
inline constexpr Quantization kTypes[] = {kI8, kU8, kOdd, kOddI8};
inline constexpr Layout kLast = Layout::channels_last;

class Numbers {
 public:
  explicit Numbers(unsigned offset) : random(gpu_seed() + offset) {}
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  }
  bool coin() { return pick(0, 1) == 1; }

  // Whole numbers in [low, high].
  template <typename T>
  std::shared_ptr<const Tensor> integers(const Shape& shape, std::int64_t low, std::int64_t high) {
    Tensor tensor(TensorDesc{shape, DTypeOf<T>::value});
    for (T& value : tensor.values<T>()) value = static_cast<T>(pick(low, high));
    return std::make_shared<const Tensor>(std::move(tensor));
  }
  std::shared_ptr<const Tensor> quantized(const Shape& shape, const Quantization& q) {
    const QuantizedRange range = quantized_range(q);
    return q.dtype == DType::i8 ? integers<std::int8_t>(shape, range.low, range.high)
                                : integers<std::uint8_t>(shape, range.low, range.high);
  }
  // The lowest and the highest integer.
  std::shared_ptr<const Tensor> extreme(const Shape& shape, const Quantization& q) {
    const QuantizedRange range = quantized_range(q);
    Tensor tensor(TensorDesc{shape, q.dtype});
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      tensor.view().data[i] = static_cast<std::byte>(coin() ? range.low : range.high);
    return std::make_shared<const Tensor>(std::move(tensor));
  }

  std::mt19937 random;
};

inline GpuCase exact_case(Layout output = kLast) {
  GpuCase test;
  test.exact = true;
  test.output_layout = output;
  return test;
}

}  // namespace pipit::test
