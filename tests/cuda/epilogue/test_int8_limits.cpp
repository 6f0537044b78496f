// When INT8 kernels may take their short arithmetic: needs no GPU.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "layers/cuda/conv/gemm_problem.h"

namespace pipit::internal::cuda {
namespace {

// Weights [2, 3, 1, 1] of a QConv with x's scale 0.5, weights' 0.25 and y's `y_scale`, and perhaps a residual.
MostOfInt8 most_of(const std::array<std::int8_t, 6>& weights, const std::array<std::int32_t, 2>& bias,
                   float y_scale, bool residual) {
  QConvAttributes a;
  a.x = Quantization{0.5F, 0, DType::i8}, a.y = Quantization{y_scale, 0, DType::i8};
  a.residual = Quantization{2, 0, DType::i8};
  a.weight_scales = {0.25F};
  const QConv layer(a);
  const TensorDesc x{Shape{1, 3, 4, 4}, DType::i8}, w{Shape{2, 3, 1, 1}, DType::i8}, b{Shape{2}, DType::i32},
      y{Shape{1, 2, 4, 4}, DType::i8};
  const std::array<const TensorDesc*, 4> inputs{&x, &w, &b, residual ? &y : nullptr};
  const std::array<std::shared_ptr<const Tensor>, 4> constants;
  return most_of_int8(NodeSpec{layer, inputs, {&y, 1}, constants, Precision::fp32}, weights, bias);
}

TEST(MostOfInt8, IsTheLargestThatAnInputMakes) {
  const MostOfInt8 most = most_of({1, -2, 3, 0, 0, 7}, {-10, 5}, 1, false);
  EXPECT_EQ(most.sum, 7 * 128 + 5);
  EXPECT_DOUBLE_EQ(most.steps, (7 * 128 + 5) * 0.125);
  const MostOfInt8 of_bias = most_of({1, -2, 3, 0, 0, 7}, {-200, 5}, 1, true);
  EXPECT_EQ(of_bias.sum, 6 * 128 + 200);
  EXPECT_DOUBLE_EQ(of_bias.steps, (6 * 128 + 200) * 0.125 + 128 * 2);
}

TEST(MostOfInt8, LargeSumsAndResultsAreNotSmall) {
  constexpr auto kSum = static_cast<std::int32_t>(kSmallSum);
  const std::array<std::int8_t, 6> none{};
  EXPECT_TRUE(most_of(none, {0, kSum - 1}, 1000, false).is_small());
  EXPECT_FALSE(most_of(none, {0, kSum}, 1000, false).is_small());
  EXPECT_FALSE(most_of(none, {-kSum, 0}, 1000, false).is_small());
  // A step of y of 0.125 makes of a sum as many steps: the largest that 16 bits hold is 32767.
  EXPECT_TRUE(most_of(none, {0, 32766}, 0.125F, false).is_small());
  EXPECT_FALSE(most_of(none, {0, 32767}, 0.125F, false).is_small());
  EXPECT_FALSE(most_of(none, {0, 32000}, 0.125F, true).is_small()) << "with what is added";
}

TEST(PairBounds, AreRoundedAndStandTwice) {
  const PairBounds bounds = PairBounds::of({-1.5F, 126.5F});
  EXPECT_EQ(bounds.low, 0xFFFEFFFEU);
  EXPECT_EQ(bounds.high, 0x007E007EU);
}

}  // namespace
}  // namespace pipit::internal::cuda
