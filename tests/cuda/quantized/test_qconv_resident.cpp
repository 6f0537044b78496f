// INT8 convolutions whose blocks keep their weights against the CPU's scalar specification, bit for bit.
#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/resident_gemm/plan.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/ops/qconv.h"
#include "tests/cuda/quantized/qconv_cases.h"

namespace pipit::internal::test {
namespace {

// Why "resident_gemm" cannot run here; empty where it can.
std::string resident_problem() {
  return cuda::has_hopper_kernels() ? "" : "not a Hopper GPU";
}

cuda::ConvShape shape_of(const ConvCase& c) {
  const Window& w = c.attributes.conv.window;
  const Shape y = output_of(c);
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  cuda::ConvShape s;
  s.batch = narrow(c.x[0]), s.in_h = narrow(c.x[2]), s.in_w = narrow(c.x[3]), s.in_c = narrow(c.x[1] / 2);
  s.out_h = narrow(y[2]), s.out_w = narrow(y[3]), s.out_c = narrow(y[1]);
  s.kernel_h = narrow(w.kernel[0]), s.kernel_w = narrow(w.kernel[1]);
  s.stride_h = narrow(w.stride[0]), s.stride_w = narrow(w.stride[1]);
  s.dilation_h = narrow(w.dilation[0]), s.dilation_w = narrow(w.dilation[1]);
  return s;
}

TEST(QConvResident, RandomGeometries) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = resident_problem(); !problem.empty()) GTEST_SKIP() << problem;
  Numbers numbers(230);
  int accepted = 0;
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    ConvCase c = random_case(numbers, 16 * numbers.pick(1, 10), 8 * numbers.pick(1, 18), 1);
    if (i % 2 == 1) c.pruned_block = i % 4 == 1 ? 16 : numbers.pick(1, 40);
    if (cuda::refuse_resident(shape_of(c), cuda::KeptDepth(shape_of(c)))) continue;  // beyond what fits
    c.largest_weight = numbers.coin() ? 20 : 127;  // sums below and beyond what floats hold
    maybe_follow(c, numbers);
    ++accepted;
    if (i % 5 > 0) {
      expect_conv("resident_gemm", c, numbers);
    } else {
      std::set<std::string> ways;
      expect_conv("resident_gemm", c, numbers, kLast, Precision::fp32, &ways);
      EXPECT_GE(ways.size(), 2U);
    }
  }
  EXPECT_GT(accepted, 15);
}

// Blocks with several tiles, whose rows go round the ring; images smaller than a tile; planes; two column tiles.
TEST(QConvResident, ManyTiles) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = resident_problem(); !problem.empty()) GTEST_SKIP() << problem;
  struct Size {
    std::int64_t batch, kernel, stride, channels, filters, size;
  };
  Numbers numbers(231);
  for (const Size& size : {Size{700, 3, 1, 16, 8, 8}, Size{16, 3, 1, 16, 8, 56}, Size{2, 3, 1, 32, 72, 56},
                           Size{600, 3, 1, 144, 8, 7}, Size{90, 3, 2, 144, 8, 29},
                           Size{20, 1, 1, 64, 136, 28}, Size{3000, 3, 1, 48, 8, 3}}) {
    ConvCase c;
    set_window(c.attributes.conv.window, size.kernel, size.stride, 1, size.kernel / 2);
    c.x = Shape{size.batch, size.channels, size.size, size.size};
    c.weights = Shape{size.filters, size.channels, size.kernel, size.kernel};
    c.attributes.x = c.attributes.y = c.attributes.residual = kI8;
    c.attributes.weight_scales = {0.02F};
    c.residual = size.channels > 16;
    fit_output_scale(c);
    c.attributes.conv.activation = Clamp::relu();
    expect_conv("resident_gemm", c, numbers);
    if (HasFailure()) return;
  }
}

TEST(QConvResident, Refuses) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = resident_problem(); !problem.empty()) GTEST_SKIP() << problem;
  Numbers numbers(232);
  const auto refusal = [&](const ConvCase& c) {
    GpuCase test = exact_case();
    test.inputs = {{numbers.quantized(c.x, c.attributes.x), kLast},
                   {numbers.integers<std::int8_t>(c.weights, -9, 9), Layout::row_major, true}};
    return gpu_refusal(QConv(c.attributes), "resident_gemm", test);
  };
  ConvCase c = random_case(numbers, 16, 16, 1);
  set_window(c.attributes.conv.window, 3, 1, 1, 1);
  c.x = Shape{1, 16, 9, 9}, c.weights = Shape{16, 16, 3, 3};
  EXPECT_EQ(refusal(c), std::nullopt);
  ConvCase real = c;
  real.attributes.y = kReal;
  EXPECT_TRUE(refusal(real).has_value());
  c.x = Shape{1, 24, 9, 9}, c.weights = Shape{16, 24, 3, 3};
  EXPECT_TRUE(refusal(c).has_value());
}

}  // namespace
}  // namespace pipit::internal::test
