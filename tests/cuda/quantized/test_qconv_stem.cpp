// The INT8 kernel for few channels against the CPU's scalar specification, bit for bit.
#include <set>

#include "tests/cuda/conv/stem_cases.h"
#include "tests/cuda/quantized/qconv_cases.h"

namespace pipit::internal::test {
namespace {

// Every count of channels, i8 and f32 images in both layouts, tiles beyond the edges, one and more groups of outputs.
TEST(QConv, Stem) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(217);
  const auto check = [&](ConvCase c, bool real, Layout layout) {
    if (real) c.residual = false;
    if (!real) return expect_conv("stem", c, numbers, layout);
    GpuCase test = exact_case();
    test.inputs = {
        {shared_random(c.x, numbers.random, -8, 8), layout},
        {numbers.integers<std::int8_t>(c.weights, -127, 127), Layout::row_major, true},
        {numbers.integers<std::int32_t>(Shape{c.weights[0]}, -3000, 3000), Layout::row_major, true}};
    expect_gpu(QConv(c.attributes), "stem", test);
    if (c.x[0] < 3) expect_gpu(QConv(c.attributes), "direct", test);
  };
  for (int i = 0; i < 64 && !HasFailure(); ++i) {
    const std::int64_t filters = numbers.coin() ? 16 * numbers.pick(1, 7) : numbers.pick(1, 70);
    check(random_case(numbers, 1 + i % 4, filters, 1), i / 4 % 2 == 0,
          i / 8 % 2 == 0 ? Layout::row_major : kLast);
  }
  struct Size {
    std::int64_t batch, size, filters, kernel, stride, pad;
  };
  // The last one: more tiles than the GPU holds blocks, so that every block takes several.
  for (const Size& size :
       {Size{2, 77, 64, 7, 2, 3}, {2, 61, 32, 3, 2, 1}, {1, 63, 96, 11, 4, 2}, {40, 96, 16, 3, 1, 1}}) {
    ConvCase c = random_case(numbers, 3, size.filters, 1);
    set_window(c.attributes.conv.window, size.kernel, size.stride, 1, size.pad);
    c.x = Shape{size.batch, 3, size.size, size.size};
    c.weights = Shape{size.filters, 3, size.kernel, size.kernel};
    fit_output_scale(c);
    for (const bool real : {false, true}) check(c, real, Layout::row_major);
    if (HasFailure()) return;
  }
}

// Channels that fill their units and channels that do not, one tile of every width and number of rows, every type of y,
// functions of its bytes, small and large sums.
TEST(QConv, StemWithEveryCountOfChannelsInEveryWay) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(220);
  std::set<std::string> ways;
  for (std::int64_t channels = 1; channels <= 32; ++channels) {
    for (const std::int64_t filters : {3, 8, 13, 16, 24, 32, 33, 64, 72}) {
      if ((channels + filters) % 3 != 0 && channels % 8 != 0) continue;
      ConvCase c = random_case(numbers, channels, filters, 1);
      c.largest_weight = numbers.coin() ? 127 : 5;
      const float scale = c.attributes.y.scale;
      if (numbers.pick(0, 2) == 0) c.attributes.y = kReal;
      c.attributes.y.scale = scale;
      if (c.attributes.y.quantized()) maybe_follow(c, numbers);
      const Precision precision = numbers.coin() ? Precision::fp32 : Precision::fp16;
      const Layout layout = channels % 5 == 0 ? Layout::row_major : kLast;
      expect_conv("stem", c, numbers, layout, precision, &ways);
      if (HasFailure()) return;
    }
  }
  EXPECT_EQ(ways, kStemTiles);
}

// Sums that need a conversion as well.
TEST(QConv, StemWindowsAndStrides) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(221);
  for (const auto& [batch, channels, size, filters, kernel, stride] : stem_sizes(9)) {
    ConvCase c = random_case(numbers, channels, filters, 1);
    set_window(c.attributes.conv.window, kernel, stride, 1, kernel / 2);
    c.x = Shape{batch, channels, size, size};
    c.weights = Shape{filters, channels, kernel, kernel};
    fit_output_scale(c);
    expect_conv("stem", c, numbers);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace pipit::internal::test
