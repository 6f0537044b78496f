// What the tests of INT8 on a GPU share: quantizations, random integers, cases that must agree bit for bit.
#pragma once

#include "layers/ops/quantization.h"
#include "tests/cuda/conformance.h"
#include "tests/support/random.h"
#include "tests/support/window_cases.h"

namespace pipit::internal::test {

inline constexpr Quantization kI8{0.05F, 0, DType::i8};
inline constexpr Quantization kU8{0.05F, 128, DType::u8};
inline constexpr Quantization kOdd{0.013F, 77, DType::u8};
inline constexpr Quantization kOddI8{0.021F, -13, DType::i8};
inline constexpr Quantization kReal{};
inline constexpr Quantization kTypes[] = {kI8, kU8, kOdd, kOddI8};
inline constexpr Layout kLast = Layout::channels_last;

class Numbers : public RandomValues<std::mt19937> {
 public:
  explicit Numbers(unsigned offset) : RandomValues(gpu_seed() + offset) {}
  std::int64_t pick(std::int64_t low, std::int64_t high) { return integer(low, high); }
};

inline GpuCase exact_case(Layout output = kLast) {
  GpuCase test;
  test.exact = true;
  test.output_layout = output;
  return test;
}

}  // namespace pipit::internal::test
