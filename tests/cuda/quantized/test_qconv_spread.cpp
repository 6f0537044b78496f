// INT8 convolutions of few positions against the CPU's scalar specification, bit for bit.
#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/spread_gemm/plan.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/ops/qconv.h"
#include "tests/cuda/quantized/qconv_cases.h"

namespace pipit::internal::test {
namespace {

// Why "spread_gemm" cannot run here; empty where it can.
std::string spread_problem() {
  return cuda::has_hopper_kernels() ? "" : "not a Hopper GPU";
}

TEST(QConvSpread, RandomGeometries) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = spread_problem(); !problem.empty()) GTEST_SKIP() << problem;
  Numbers numbers(240);
  std::set<std::string> ways;
  for (int i = 0; i < 80 && !HasFailure(); ++i) {
    ConvCase c = random_case(numbers, 16 * numbers.pick(1, i % 3 == 0 ? 40 : 10), numbers.pick(1, 140), 1);
    c.largest_weight = numbers.coin() ? 20 : 127;  // sums below and beyond what floats hold
    if (i % 4 == 3) {
      c.attributes.y = kReal;
    } else {
      maybe_follow(c, numbers);
    }
    expect_conv("spread_gemm", c, numbers, kLast, Precision::fp32, &ways);
  }
  EXPECT_EQ(ways.size(), 4U);
}

TEST(QConvSpread, LayersOfNetworks) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = spread_problem(); !problem.empty()) GTEST_SKIP() << problem;
  struct Size {
    std::int64_t batch, kernel, stride, channels, filters, size;
  };
  Numbers numbers(241);
  for (const Size& size :
       {Size{1, 3, 1, 512, 512, 7}, Size{2, 3, 2, 256, 256, 14}, Size{3, 1, 2, 1024, 2048, 14},
        Size{1, 3, 1, 64, 64, 56}, Size{1, 1, 1, 2048, 1000, 1}, Size{9, 3, 1, 320, 100, 5}}) {
    ConvCase c;
    set_window(c.attributes.conv.window, size.kernel, size.stride, 1, size.kernel / 2);
    c.x = Shape{size.batch, size.channels, size.size, size.size};
    c.weights = Shape{size.filters, size.channels, size.kernel, size.kernel};
    c.attributes.x = c.attributes.y = c.attributes.residual = kI8;
    c.attributes.weight_scales = {0.02F};
    c.residual = size.channels != 320;
    fit_output_scale(c);
    c.attributes.conv.activation = Clamp::relu();
    std::set<std::string> ways;
    expect_conv("spread_gemm", c, numbers, kLast, Precision::fp32, &ways);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace pipit::internal::test
