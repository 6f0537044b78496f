// Random products with weights in 8 and 4 bits.
#pragma once

#include <cmath>
#include <memory>
#include <random>

#include "layers/ops/weight_only.h"
#include "tests/cuda/conformance.h"

namespace pipit::internal::test {

class PackedCases {
 public:
  explicit PackedCases(unsigned seed) : random_(seed) {}
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  WeightFormat format() {
    constexpr std::int64_t kGroups[] = {0, 32, 64, 128, 256};
    return pick(0, 2) == 0 ? WeightFormat{8, 0} : WeightFormat{4, kGroups[pick(0, 4)]};
  }
  Clamp clamp() { return pick(0, 1) == 0 ? Clamp{} : pick(0, 1) == 0 ? Clamp::relu() : Clamp{-0.5F, 0.75F}; }

  /// Operands of a product whose results are about as large as x.
  GpuCase product(const WeightFormat& format, const Shape& x, std::int64_t depth, std::int64_t outputs) {
    Tensor integers(
        TensorDesc{Shape{outputs, format.row_bytes(depth)}, format.bits == 8 ? DType::i8 : DType::u8});
    std::byte* const bytes = integers.view().data;
    for (std::size_t i = 0; i < integers.desc().bytes(); ++i) bytes[i] = static_cast<std::byte>(pick(0, 255));
    if (format.bits == 4 && depth % 2 != 0) {
      for (std::int64_t o = 1; o <= outputs; ++o) bytes[o * format.row_bytes(depth) - 1] &= std::byte{15};
    }
    const float scale = 2 / ((format.bits == 8 ? 74.0F : 4.6F) * std::sqrt(static_cast<float>(depth)));
    GpuCase test;
    test.precision = Precision::fp16;
    test.output_layout = Layout::channels_last;
    test.inputs = {{shared_random(x, random_), Layout::channels_last},
                   {std::make_shared<const Tensor>(std::move(integers)), Layout::row_major, true},
                   {shared_random(Shape{outputs, format.groups(depth)}, random_, -scale, scale),
                    Layout::row_major, true},
                   {}};
    if (pick(0, 1) == 1) test.inputs[3] = {shared_random(Shape{outputs}, random_), Layout::row_major, true};
    test.keep_output_f32 = pick(0, 2) == 0;
    return test;
  }
  std::mt19937& engine() { return random_; }

 private:
  std::mt19937 random_;
};

}  // namespace pipit::internal::test
