// The fp16 kernel for few channels against the CPU reference.
#include <limits>
#include <set>

#include "tests/cuda/conv/conv_cases.h"
#include "tests/cuda/conv/qconv_cases.h"
#include "tests/cuda/conv/stem_cases.h"

namespace pipit::internal::test {
namespace {

// Every count of channels, both element types and layouts of the image, tiles beyond the edges, one and more groups of
// output channels.
TEST(ConvStem, RandomGeometries) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 8);
  const auto check = [&](Geometry g, bool keep_f32, Layout layout) {
    if (keep_f32) g.residual = false;
    GpuCase test = make_case(g, Precision::fp16, random, layout);
    test.keep_input_f32 = keep_f32;
    expect_gpu(Conv(ConvAttributes{g.window, 1, g.activation}), "stem", test);
  };
  for (int i = 0; i < 64 && !HasFailure(); ++i) {
    Geometry g = random_geometry(random);
    g.channels = 1 + i % 4;
    check(g, i / 4 % 2 == 0, i / 8 % 2 == 0 ? Layout::row_major : Layout::channels_last);
  }
  for (const std::int64_t outputs : {64, 32, 96, 20}) {
    check(geometry(2, 3, 77, outputs, 7, 2, 3), true, Layout::row_major);
    if (HasFailure()) return;
  }
  check(geometry(1, 3, 63, 64, 11, 4, 2), true, Layout::row_major);
  // More tiles than the GPU holds blocks: every block takes several.
  check(geometry(40, 3, 96, 16, 3, 1, 1), true, Layout::row_major);
}

// Channels that fill their units and channels that do not, one tile of every width and number of rows, residuals.
TEST(ConvStem, EveryCountOfChannelsInEveryWay) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 12);
  std::set<std::string> ways;
  for (std::int64_t channels = 1; channels <= 32; ++channels) {
    for (const std::int64_t outputs : {3, 8, 13, 16, 24, 32, 33, 64, 72}) {
      if ((channels + outputs) % 3 != 0 && channels % 8 != 0) continue;
      Geometry g = random_geometry(random);
      g.channels = channels, g.outputs = outputs;
      const Conv layer(ConvAttributes{g.window, 1, g.activation});
      GpuCase test = make_case(g, Precision::fp16, random,
                               channels % 5 == 0 ? Layout::row_major : Layout::channels_last);
      for (const std::string& way : gpu_variants(layer, "stem", test)) {
        test.variant = way;
        ways.insert(way.substr(0, way.find('+')));
        expect_gpu(layer, "stem", test);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_EQ(ways, kStemTiles);
}

TEST(ConvStem, WindowsAndStrides) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 13);
  for (const auto& [batch, channels, size, outputs, kernel, stride] : stem_sizes(5)) {
    const Geometry g = geometry(batch, channels, size, outputs, kernel, stride, kernel / 2);
    expect_gpu(Conv(ConvAttributes{g.window, 1, Clamp::relu()}), "stem",
               make_case(g, Precision::fp16, random));
    if (HasFailure()) return;
  }
}

// An infinite pixel beyond a window, or in a unit that the window only shares, must not become a NaN.
TEST(ConvStem, OnePixelReachesOnlyItsWindow) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 9);
  for (const std::int64_t channels : {1, 2, 3, 6, 8}) {
    const Geometry g = geometry(1, channels, 21, 32, 5, 1, 2);
    GpuCase test = make_case(g, Precision::fp16, random, Layout::row_major);
    Tensor image = test.inputs[0].tensor->clone();
    image.values<float>()[10 * 21 + 7] = std::numeric_limits<float>::infinity();
    test.inputs[0].tensor = std::make_shared<const Tensor>(std::move(image));
    test.keep_input_f32 = channels < 5;
    expect_gpu(Conv(ConvAttributes{g.window, 1, {}}), "stem", test);
    if (HasFailure()) return;
  }
}

TEST(ConvStem, Refuses) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 10);
  const auto refusal = [&](const Geometry& g, Precision precision) {
    return gpu_refusal(Conv(ConvAttributes{g.window, 1, {}}), "stem", make_case(g, precision, random));
  };
  EXPECT_EQ(refusal(geometry(1, 3, 9, 16, 3, 1, 1), Precision::fp16), std::nullopt);
  expect_refused(refusal(geometry(1, 3, 9, 16, 3, 1, 1), Precision::fp32), "fp16");
  expect_refused(refusal(geometry(1, 33, 9, 16, 3, 1, 1), Precision::fp16), "33 channels");
  expect_refused(refusal(geometry(1, 3, 300, 64, 131, 1, 65), Precision::fp16), "shared memory");
  GpuCase image = make_case(geometry(1, 5, 9, 16, 3, 1, 1), Precision::fp16, random);
  image.keep_input_f32 = true;
  expect_refused(
      gpu_refusal(Conv(ConvAttributes{geometry(1, 5, 9, 16, 3, 1, 1).window, 1, {}}), "stem", image),
      "5 channels of f32");
}

// The INT8 kernel for few channels against the CPU's scalar specification, bit for bit.

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
