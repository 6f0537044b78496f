// INT8 convolutions of few channels against the CPU's scalar specification, bit for bit.
#include <gmock/gmock.h>

#include "layers/cuda/conv/narrow_gemm/plan.h"
#include "layers/ops/qconv.h"
#include "tests/cuda/conv/qconv_cases.h"

namespace pipit::internal::test {
namespace {

ConvCase pointwise(Numbers& numbers, std::int64_t channels, std::int64_t filters) {
  ConvCase c = random_case(numbers, channels, filters, 1);
  set_window(c.attributes.conv.window, 1, 1, 1, 0);
  c.weights = Shape{filters, channels, 1, 1};
  fit_output_scale(c);
  c.largest_weight = 60;
  return c;
}

TEST(QConvNarrow, RandomChannels) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(260);
  for (int i = 0; i < 120 && !HasFailure(); ++i) {
    ConvCase c = pointwise(numbers, 8 * numbers.pick(1, i % 2 == 0 ? 12 : 24), 8 * numbers.pick(1, 22));
    if (!c.residual) maybe_follow(c, numbers);
    const cuda::NarrowShape shape{static_cast<int>(c.x[1]), static_cast<int>(c.weights[0])};
    if (shape.shared_bytes() <= cuda::kNarrowMaxShared) expect_conv("narrow_gemm", c, numbers);
  }
}

// Windows of a user's image in both layouts, with padding, and with a function after them.
TEST(QConvNarrow, Images) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(263);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    ConvCase c = random_case(numbers, numbers.pick(1, 4), 8 * numbers.pick(1, 12), 1);
    const std::int64_t kernel = numbers.pick(1, 3);
    const bool large = i % 12 == 0;  // more tiles than a GPU holds warps
    set_window(c.attributes.conv.window, kernel, numbers.pick(1, 3), 1, numbers.pick(0, 2));
    c.x = Shape{numbers.pick(1, 3), c.x[1], large ? 224 : numbers.pick(3, 40),
                large ? 224 : numbers.pick(3, 40)};
    c.weights = Shape{c.weights[0], c.x[1], kernel, kernel};
    fit_output_scale(c);
    c.residual = false;
    maybe_follow(c, numbers);
    GpuCase test = exact_case();
    if (c.follower) test.followers = {&*c.follower};
    test.inputs = {
        {shared_random(c.x, numbers.random, -8, 8), i % 2 == 0 ? Layout::row_major : kLast},
        {numbers.integers<std::int8_t>(c.weights, -127, 127), Layout::row_major, true},
        {numbers.integers<std::int32_t>(Shape{c.weights[0]}, -3000, 3000), Layout::row_major, true}};
    expect_gpu(QConv(c.attributes), "narrow_gemm", test);
  }
}

TEST(QConvNarrow, LayersOfNetworks) {
  PIPIT_NEEDS_GPU();
  struct Size {
    std::int64_t batch, channels, filters, size;
  };
  Numbers numbers(261);
  for (const Size& size :
       {Size{1, 16, 96, 112}, Size{9, 32, 16, 112}, Size{8, 24, 144, 56}, Size{3, 144, 24, 56},
        Size{5, 192, 32, 28}, Size{2, 40, 240, 28}, Size{2, 64, 256, 56}}) {
    ConvCase c = pointwise(numbers, size.channels, size.filters);
    c.x = Shape{size.batch, size.channels, size.size, size.size};
    c.residual = size.channels > size.filters;
    c.attributes.conv.activation = c.residual ? Clamp{} : Clamp::relu();
    expect_conv("narrow_gemm", c, numbers);
    if (HasFailure()) return;
  }
}

TEST(QConvNarrow, SaysWhatItCannotDo) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(262);
  const auto reason_of = [&](const ConvCase& c, Layout input = kLast) {
    return gpu_refusal(QConv(c.attributes), "narrow_gemm", make_case(c, numbers, input)).value_or("");
  };
  ConvCase c = pointwise(numbers, 24, 40);
  EXPECT_EQ(reason_of(c), "");
  EXPECT_THAT(reason_of(c, Layout::row_major), testing::HasSubstr("channels_last"));
  EXPECT_THAT(reason_of(pointwise(numbers, 20, 40)), testing::HasSubstr("multiple of 8"));
  EXPECT_THAT(reason_of(pointwise(numbers, 200, 40)), testing::HasSubstr("at most 192"));
  EXPECT_THAT(reason_of(pointwise(numbers, 192, 400)), testing::HasSubstr("of weights"));
  c.attributes.conv.window.stride[1] = 2;
  EXPECT_THAT(reason_of(c), testing::HasSubstr("stride"));
}

}  // namespace
}  // namespace pipit::internal::test
