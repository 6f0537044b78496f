#include <gmock/gmock.h>

#include <cfloat>

#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/ops/conv.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::Operand;
using test::Random;

struct Case {
  ConvAttributes attributes;
  std::int64_t batch = 1;
  std::int64_t channels = 1;  // per group
  std::int64_t filters = 1;   // per group
  std::array<std::int64_t, 3> extent{1, 1, 1};
  bool bias = true;
  bool residual = false;
};

Shape image_shape(std::int64_t n, std::int64_t c, const std::array<std::int64_t, 3>& extent, int rank) {
  std::array<std::int64_t, 5> dims{n, c};
  std::copy_n(extent.begin(), rank, dims.begin() + 2);
  return Shape(std::span<const std::int64_t>(dims.data(), static_cast<std::size_t>(rank + 2)));
}

// Every output is a sum of K products, a bias and a residual, in any order: at most K + 3 roundings of partial
// sums that never exceed the sum of absolute values.
void check(const Case& c, Random& random, std::vector<std::string> expected) {
  const int rank = c.attributes.window.rank;
  const std::int64_t groups = c.attributes.groups;
  const auto x = random.tensor(image_shape(c.batch, c.channels * groups, c.extent, rank));
  const auto w = random.tensor(image_shape(c.filters * groups, c.channels, c.attributes.window.kernel, rank));
  std::vector<Operand> inputs{{x}, {w, true}, {}, {}};
  if (c.bias) inputs[2] = {random.tensor(Shape{c.filters * groups}), true};
  if (c.residual) {
    inputs[3] = {random.tensor(window_output_shape(c.attributes.window, x->shape(), c.filters * groups))};
  }
  ConvAttributes linear = c.attributes;
  linear.activation = Clamp{};
  std::vector<Operand> magnitudes = inputs;
  for (Operand& operand : magnitudes) {
    if (operand.tensor) operand.tensor = test::absolute_values(*operand.tensor);
  }
  Conformance conformance{inputs, std::move(expected)};
  conformance.magnitude = test::doubles(test::run_reference(Conv(linear), magnitudes)[0]);
  if (rank == 3 && c.channels == 1 && c.filters > 1) conformance.widened = {"depthwise"};
  const std::int64_t k = c.channels * c.attributes.window.taps();
  conformance.scale = static_cast<double>(k + 3) * FLT_EPSILON;
  expect_conformance(Conv(c.attributes), conformance);
}

Case random_case(Random& random, int rank) {
  Case c;
  c.attributes.window.rank = rank;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
    Window& w = c.attributes.window;
    w.kernel[axis] = random.integer(1, 4);
    w.stride[axis] = random.integer(1, 3);
    w.dilation[axis] = random.integer(1, 3);
    w.pad_begin[axis] = random.integer(0, 4);
    w.pad_end[axis] = random.integer(0, 4);
    const std::int64_t least =
        std::max<std::int64_t>(1, w.span(static_cast<int>(axis)) - w.pad_begin[axis] - w.pad_end[axis]);
    c.extent[axis] = random.integer(least, least + 9);
  }
  c.batch = random.integer(1, 3);
  c.attributes.groups = random.coin() ? 1 : random.integer(1, 4);
  c.channels = random.integer(1, 20);
  c.filters = random.integer(1, 20);
  c.bias = random.coin();
  c.residual = random.coin();
  if (random.coin()) c.attributes.activation = random.coin() ? Clamp::relu() : Clamp{-0.5F, 0.5F};
  return c;
}

Case image_case(std::int64_t kernel, std::int64_t stride, std::int64_t pad, std::int64_t channels,
                std::int64_t filters, std::int64_t extent) {
  Case c;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    c.attributes.window.kernel[axis] = kernel;
    c.attributes.window.stride[axis] = stride;
    c.attributes.window.pad_begin[axis] = c.attributes.window.pad_end[axis] = pad;
    c.extent[axis] = extent;
  }
  c.channels = channels;
  c.filters = filters;
  return c;
}

TEST(Conv, ReferenceOfAHandWorkedExample) {
  const float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const float w[] = {1, 10, 100, 1000};
  const float bias[] = {0.5F};
  ConvAttributes a;
  a.window.kernel = {2, 2, 1};
  a.window.pad_begin = {1, 0, 0};
  const auto y = test::run_reference(
      Conv(a), {{std::make_shared<const Tensor>(Tensor::from<float>(Shape{1, 1, 3, 3}, x))},
                {std::make_shared<const Tensor>(Tensor::from<float>(Shape{1, 1, 2, 2}, w))},
                {std::make_shared<const Tensor>(Tensor::from<float>(Shape{1}, bias))}});
  EXPECT_EQ(y[0].shape(), (Shape{1, 1, 3, 2}));
  EXPECT_THAT(y[0].values<float>(),
              testing::ElementsAre(2100.5F, 3200.5F, 5421.5F, 6532.5F, 8754.5F, 9865.5F));
}

TEST(Conv, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 60 && !HasFailure(); ++i)
    check(random_case(random, 2), random, {"im2col_gemm", "reference"});
}

TEST(Conv, OneAndThreeDimensions) {
  Random random;
  for (const int rank : {1, 3}) {
    for (int i = 0; i < 25 && !HasFailure(); ++i) {
      const Case c = random_case(random, rank);
      std::vector<std::string> expected{"reference"};
      if (c.attributes.groups == 1) expected.emplace_back("tile");
      check(c, random, expected);
    }
  }
}

// One-dimensional convolutions that a file writes as 2-D ones; also with a stride along the other dimension, which then
// means nothing, and with pads there, which make more columns.
TEST(Conv, OneColumn) {
  Random random;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    Case c = random_case(random, 2);
    Window& window = c.attributes.window;
    window.kernel[1] = 1;
    window.pad_begin[1] = i % 5 == 0 ? 1 : 0;
    window.pad_end[1] = 0;
    c.extent[1] = 1;
    c.channels = random.integer(8, 40);
    c.filters = random.integer(8, 80);
    c.extent[0] += random.integer(0, 40);
    check(c, random, {"tile", "reference"});
  }
}

// What networks over video and medical volumes are made of: windows over all three dimensions, over one slice, over
// one pixel of several slices, and of one tap; first layers; strides along any dimension; volumes of one slice; more
// slices than a band holds, and weights that do not stay in the cache.
TEST(Conv, TilesOfVolumes) {
  Random random;
  using Extents = std::array<std::int64_t, 3>;
  struct Volume {
    Extents kernel, stride, pad, extent;
    std::int64_t channels, filters, groups = 1;
  };
  for (const Volume& v : std::vector<Volume>{{{3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {6, 9, 9}, 16, 33},
                                             {{3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {5, 11, 8}, 24, 40},
                                             {{3, 7, 7}, {1, 2, 2}, {1, 3, 3}, {3, 17, 20}, 3, 20},
                                             {{1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {5, 10, 7}, 20, 17},
                                             {{3, 1, 1}, {1, 1, 1}, {1, 0, 0}, {7, 6, 5}, 20, 17},
                                             {{3, 1, 1}, {2, 1, 1}, {0, 0, 0}, {8, 6, 5}, 9, 64},
                                             {{1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {5, 7, 6}, 30, 35},
                                             {{1, 1, 1}, {2, 2, 2}, {0, 0, 0}, {5, 7, 6}, 30, 35},
                                             {{1, 1, 1}, {3, 1, 1}, {0, 0, 0}, {8, 7, 6}, 30, 35},
                                             {{3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 7, 6}, 8, 8},
                                             {{3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {2, 3, 3}, 96, 160},
                                             {{2, 2, 2}, {1, 1, 1}, {0, 0, 0}, {40, 4, 5}, 40, 9},
                                             {{3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {4, 6, 6}, 8, 16, 3},
                                             {{2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {6, 8, 6}, 4, 4, 5},
                                             {{3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {4, 6, 6}, 2, 3, 7}}) {
    Case c;
    Window& window = c.attributes.window;
    window.rank = 3;
    window.kernel = v.kernel;
    window.stride = v.stride;
    window.pad_begin = window.pad_end = v.pad;
    c.extent = v.extent;
    c.channels = v.channels;
    c.filters = v.filters;
    c.attributes.groups = v.groups;
    c.batch = random.integer(1, 3);
    c.residual = random.coin();
    if (random.coin()) c.attributes.activation = Clamp::relu();
    check(c, random, {"tile"});
    if (HasFailure()) return;
  }
}

TEST(Conv, Pointwise) {
  Random random;
  for (const std::int64_t groups : {1, 3}) {
    for (const std::int64_t channels : {1, 17, 200}) {
      Case c = image_case(1, 1, 0, channels, random.integer(1, 120), random.integer(1, 14));
      c.batch = 2;
      c.attributes.groups = groups;
      c.residual = true;
      c.attributes.activation = Clamp::relu();
      check(c, random, {"im2col_gemm"});
    }
  }
}

// More than one depth block, several column blocks, several tiles, and the tails of each.
TEST(Conv, BlocksAndTails) {
  Random random;
  for (const auto& [kernel, stride, pad, channels, filters, extent] :
       {std::array<std::int64_t, 6>{3, 1, 1, 67, 211, 7},
        {1, 2, 0, 130, 49, 9},
        {7, 2, 3, 3, 64, 30},
        {5, 1, 2, 48, 7, 23},
        {1, 1, 0, 391, 301, 5}}) {
    Case c = image_case(kernel, stride, pad, channels, filters, extent);
    c.batch = random.integer(1, 2);
    c.residual = random.coin();
    check(c, random, {"im2col_gemm"});
  }
}

// Every path of the tile kernel: filters around the panel's width, rows narrower than a group of pixels and just
// wider, bands of rows and of images, weights too large for the cache, pixels that would share a cache set, groups.
TEST(Conv, TilesOfAllShapes) {
  Random random;
  for (const std::int64_t filters : {1, 3, 16, 17, 33, 64, 70}) {
    Case c = image_case(3, random.integer(1, 2), 1, random.integer(1, 40), filters, random.integer(3, 17));
    c.attributes.window.pad_end[1] = 2;
    c.attributes.window.dilation[0] = random.integer(1, 2);
    c.extent[1] += random.integer(0, 5);
    c.residual = random.coin();
    check(c, random, {"tile"});
  }
  for (const std::int64_t extent : {1, 2, 3, 6, 8}) {
    Case c = image_case(random.coin() ? 1 : 3, 1, 1, 9, 20, extent);
    c.batch = random.integer(1, 6);
    check(c, random, {"tile"});
  }
  for (const auto& [kernel, stride, pad, channels, filters, extent] :
       {std::array<std::int64_t, 6>{3, 1, 1, 300, 320, 5},  // 3.5 MB of weights
        {1, 1, 0, 1024, 40, 6},                             // 4096 bytes from pixel to pixel
        {1, 2, 0, 512, 40, 9},
        {1, 1, 0, 16, 16, 60},
        {3, 1, 1, 8, 8, 60},
        {1, 3, 0, 12, 8, 10},  // the stride is wider than the kernel
        {2, 3, 2, 12, 40, 11}}) {
    Case c = image_case(kernel, stride, pad, channels, filters, extent);
    c.batch = random.integer(1, 3);
    c.residual = random.coin();
    check(c, random, {"tile"});
  }
  for (const std::int64_t width : {8, 16, 24, 40}) {
    Case c = image_case(3, random.integer(1, 2), 1, width, random.integer(8, 40), 10);
    c.attributes.groups = random.integer(2, 4);
    c.attributes.activation = Clamp::relu();
    check(c, random, {"tile"});
  }
  Case row;
  row.attributes.window.rank = 1;
  row.attributes.window.kernel[0] = 5;
  row.attributes.window.pad_begin[0] = 3;
  row.extent[0] = 50;
  row.channels = 10;
  row.filters = 35;
  row.batch = 2;
  check(row, random, {"tile"});
}

// Filters of one tap with pads: most of these outputs are one pixel.
TEST(Conv, OutputsInThePadding) {
  Random random;
  const auto pads = [&](Window& window) {
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(window.rank); ++axis) {
      window.pad_begin[axis] = random.integer(0, 3);
      window.pad_end[axis] = random.integer(axis == 0 && window.pad_begin[0] == 0 ? 1 : 0, 3);
    }
  };
  for (const auto& [channels, filters, extent, batch] : {std::array<std::int64_t, 4>{9, 20, 5, 3},
                                                         {16, 64, 14, 2},
                                                         {1024, 40, 2, 2},  // 4096 bytes from pixel to pixel
                                                         {512, 700, 1, 3},  // weights larger than the cache
                                                         {24, 33, 30, 1}}) {
    Case c = image_case(1, 1, 0, channels, filters, extent);
    pads(c.attributes.window);
    c.extent[1] += random.integer(0, 5);
    c.batch = batch;
    c.bias = random.coin();
    c.attributes.activation = random.coin() ? Clamp::relu() : Clamp{-0.25F, 0.75F};
    check(c, random, {"tile"});
  }
  Case grouped = image_case(1, 1, 0, 12, 17, 7);
  pads(grouped.attributes.window);
  grouped.attributes.groups = 3;
  check(grouped, random, {"tile"});
  Case row;
  row.attributes.window.rank = 1;
  pads(row.attributes.window);
  row.extent[0] = 20;
  row.channels = 11;
  row.filters = 35;
  row.batch = 2;
  check(row, random, {"tile"});
  row.residual = true;
  check(row, random, {"tile"});
}

TEST(Conv, DepthwiseWithMultipliers) {
  Random random;
  for (const std::int64_t multiplier : {1, 2, 3}) {
    for (const std::int64_t channels : {2, 16, 35, 150}) {
      Case c = random_case(random, 2);
      c.attributes.groups = channels;
      c.channels = 1;
      c.filters = multiplier;
      check(c, random, {"small_groups", "im2col_gemm"});
    }
  }
}

// Wide and narrow tiles, rows narrower than a tile, overlapping last tiles; borders on every side and none; kernels
// with and without code of their own.
TEST(Conv, DepthwiseTiles) {
  Random random;
  for (const std::int64_t kernel : {1, 2, 3, 5, 7, 9}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (const std::int64_t width : {1, 3, 6, 8, 14, 23, 29}) {
        Case c;
        Window& window = c.attributes.window;
        window.kernel = {random.integer(1, 5), kernel, 1};
        window.stride = {random.integer(1, 2), stride, 1};
        window.dilation = {1, random.integer(0, 4) == 0 ? 2 : 1, 1};
        const std::int64_t span = (kernel - 1) * window.dilation[1] + 1;
        window.pad_begin = {random.integer(0, 2), random.integer(0, span), 0};
        window.pad_end = {random.integer(0, 2), random.integer(0, span), 0};
        c.extent = {random.integer(5, 9), std::max(width, span), 1};
        c.attributes.groups = random.integer(2, 70);
        c.bias = random.coin();
        c.residual = random.coin();
        if (random.coin()) c.attributes.activation = Clamp{-0.5F, 0.75F};
        const bool own =
            kernel >= 3 && kernel <= 7 && kernel % 2 == 1 && stride <= 2 && window.dilation[1] == 1;
        check(c, random, {own ? "depthwise" : "small_groups", "small_groups"});
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// Kernels with and without code of their own, in volumes: rows and slices of taps outside of them, alone and together.
TEST(Conv, DepthwiseVolumes) {
  Random random;
  for (const std::int64_t kernel : {1, 2, 3, 5, 7}) {
    for (const std::int64_t stride : {1, 2}) {
      for (int i = 0; i < 3; ++i) {
        Case c;
        Window& window = c.attributes.window;
        window.rank = 3;
        window.kernel = {random.integer(1, 4), random.integer(1, 4), kernel};
        window.stride = {random.integer(1, 2), random.integer(1, 2), stride};
        window.dilation = {random.integer(1, 2), random.integer(1, 2), random.integer(0, 4) == 0 ? 2 : 1};
        for (std::size_t axis = 0; axis < 3; ++axis) {
          const std::int64_t span = window.span(static_cast<int>(axis));
          window.pad_begin[axis] = random.integer(0, span);
          window.pad_end[axis] = random.integer(0, span);
          c.extent[axis] =
              random.integer(std::max<std::int64_t>(1, span - 1 - window.pad_begin[axis]), span + 12);
          c.extent[axis] = std::max(c.extent[axis], span - window.pad_begin[axis] - window.pad_end[axis]);
        }
        c.batch = random.integer(1, 2);
        c.attributes.groups = random.integer(2, 40);
        c.filters = i == 0 ? 2 : 1;
        c.bias = random.coin();
        c.residual = random.coin();
        if (random.coin()) c.attributes.activation = Clamp{-0.5F, 0.75F};
        check(c, random, {"depthwise"});
        if (HasFailure()) return;
      }
    }
  }
}

// Windows of any size, dilation and stride; groups of one to seven channels, with as many outputs or others.
TEST(Conv, SmallGroups) {
  Random random;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const int rank = random.coin() ? 1 : 2;
    Case c = random_case(random, rank);
    c.channels = random.integer(0, 2) == 0 ? 1 : random.integer(2, 7);
    c.filters = random.integer(0, 2) == 0 ? random.integer(1, 40) : c.channels;
    c.attributes.groups = random.integer(2, random.coin() ? 4 : 60);
    Window& window = c.attributes.window;
    for (int axis = 0; axis < rank; ++axis) {
      const auto at = static_cast<std::size_t>(axis);
      if (random.coin()) window.kernel[at] = random.integer(1, 17);
      if (random.integer(0, 3) == 0) window.dilation[at] = random.integer(1, 5);
      window.pad_begin[at] = random.integer(0, window.span(axis));
      window.pad_end[at] = random.integer(0, window.span(axis));
      const std::int64_t least = window.span(axis) - window.pad_begin[at] - window.pad_end[at];
      c.extent[at] = std::max(least, random.integer(1, rank == 1 ? 150 : 20));
    }
    const bool groups =
        c.channels == c.filters && c.attributes.groups >= 4 && c.channels <= row_kernels().lanes;
    check(c, random, {c.channels == 1 || groups ? "small_groups" : "reference"});
  }
}

// Windows of more rows than columns and more channels than a register holds of several pixels: chains of taps go down
// the image.
TEST(Conv, StandingWindows) {
  Random random;
  for (int i = 0; i < 16 && !HasFailure(); ++i) {
    Case c;
    Window& window = c.attributes.window;
    window.kernel = {random.integer(3, 31), random.integer(1, 2), 1};
    c.channels = i % 3 == 0 ? random.integer(2, 4) : 1;
    c.filters = i % 4 == 0 ? random.integer(1, 20) : c.channels;
    c.attributes.groups = random.integer(18, 70);
    c.batch = random.integer(1, 2);
    for (std::size_t axis = 0; axis < 2; ++axis) {
      window.stride[axis] = random.integer(1, 2);
      window.dilation[axis] = random.integer(0, 3) == 0 ? random.integer(2, 3) : 1;
      const std::int64_t span = window.span(static_cast<int>(axis));
      window.pad_begin[axis] = random.integer(0, span);
      window.pad_end[axis] = random.integer(0, span);
      const std::int64_t least = span - window.pad_begin[axis] - window.pad_end[axis];
      c.extent[axis] = std::max(least, random.integer(1, axis == 0 ? 40 : 9));
    }
    c.bias = random.coin();
    c.residual = random.coin();
    if (random.coin()) c.attributes.activation = Clamp{-0.5F, 0.75F};
    check(c, random, {c.channels <= row_kernels().lanes ? "small_groups" : "reference"});
  }
}

TEST(Conv, FewOutputs) {
  Random random;
  for (int i = 0; i < 30 && !HasFailure(); ++i) {
    const int rank = random.coin() ? 1 : 2;
    Case c = random_case(random, rank);
    c.attributes.groups = 1;
    c.channels = random.integer(30, 130);
    c.filters = random.integer(1, 6);
    c.attributes.window.kernel = {random.integer(2, 5), rank == 1 ? 1 : random.integer(2, 5), 1};
    for (int axis = 0; axis < rank; ++axis)
      c.extent[static_cast<std::size_t>(axis)] = c.attributes.window.span(axis) + random.integer(0, 20);
    check(c, random, {c.filters == 1 ? "few_outputs" : "reference"});
  }
}

TEST(Conv, FewPixelsIn16Bits) {
  Random random;
  Conformance conformance{{{random.tensor(Shape{1, 96, 2, 5})}, {random.tensor(Shape{40, 96, 1, 1}), true}},
                          {"tile", "im2col_gemm"}};
  conformance.expected_fp16 = {"gemv"};
  if (bf16_tiles() == nullptr) conformance.expected_bf16 = {"gemv"};
  conformance.absolute = 1;  // the norm decides
  conformance.norm_relative = 1e-5;
  expect_conformance(Conv({}), conformance);
}

TEST(Conv, StaysWithinTheNormOfTheReference) {
  Random random;
  const auto x = random.tensor(Shape{1, 96, 14, 14});
  const auto w = random.tensor(Shape{100, 96, 3, 3});
  ConvAttributes a;
  a.window.kernel = {3, 3, 1};
  Conformance conformance{{{x}, {w, true}}, {"tile", "im2col_gemm"}};
  conformance.absolute = 1;  // the norm decides
  conformance.norm_relative = 1e-5;
  expect_conformance(Conv(a), conformance);
}

TEST(Conv, EmptyBatch) {
  Random random;
  Case c = image_case(3, 1, 1, 4, 5, 6);
  c.batch = 0;
  check(c, random, {"im2col_gemm", "reference"});
}

TEST(Conv, DoublesRunOnTheReference) {
  Random random;
  const std::vector<Operand> inputs{{random.tensor(Shape{1, 3, 5, 5}, -1, 1, DType::f64)},
                                    {random.tensor(Shape{2, 3, 1, 1}, -1, 1, DType::f64), true}};
  const Tensor y = std::move(test::run_reference(Conv(ConvAttributes{}), inputs)[0]);
  const auto x = inputs[0].tensor->values<double>();
  const auto w = inputs[1].tensor->values<double>();
  for (std::size_t i = 0; i < 25; ++i) {
    EXPECT_EQ(y.values<double>()[25 + i], x[i] * w[3] + x[25 + i] * w[4] + x[50 + i] * w[5]);
  }
  EXPECT_THAT(test::refusal(Conv(ConvAttributes{}), inputs, "im2col_gemm").value_or(""),
              testing::HasSubstr("f64"));
}

TEST(Conv, ComputedWeightsRunOnTheReferenceOnly) {
  Random random;
  const std::vector<Operand> inputs{{random.tensor(Shape{1, 4, 5, 5})}, {random.tensor(Shape{4, 1, 1, 1})}};
  ConvAttributes a;
  a.groups = 4;
  for (const char* name : {"depthwise", "small_groups", "im2col_gemm"}) {
    EXPECT_EQ(test::refusal(Conv(a), inputs, name), "weights are computed at run time");
  }
  EXPECT_EQ(test::refusal(Conv(a), inputs, "reference"), std::nullopt);
}

TEST(Conv, RefusesOperandsThatDoNotFit) {
  const auto infer = [](const ConvAttributes& a, const std::vector<TensorDesc>& descs) {
    std::vector<const TensorDesc*> inputs;
    for (const TensorDesc& d : descs) inputs.push_back(&d);
    return Conv(a).infer(inputs);
  };
  ConvAttributes a;
  const TensorDesc x{Shape{1, 4, 5, 5}};
  EXPECT_NO_THROW(infer(a, {x, {Shape{2, 4, 1, 1}}}));
  EXPECT_THROW(infer(a, {x}), Error);
  EXPECT_THROW(infer(a, {x, {Shape{2, 3, 1, 1}}}), Error);
  EXPECT_THROW(infer(a, {x, {Shape{2, 4, 3, 1}}}), Error);
  EXPECT_THROW(infer(a, {x, {Shape{2, 4, 1}}}), Error);
  EXPECT_THROW(infer(a, {x, {Shape{}}}), Error);
  EXPECT_THROW(infer(a, {x, {Shape{0, 4, 1, 1}}}), Error);
  EXPECT_THROW(infer(a, {x, {Shape{2, 4, 1, 1}, DType::f64}}), Error);
  EXPECT_THROW(infer(a, {{Shape{1, 4, 5, 5}, DType::i32}, {Shape{2, 4, 1, 1}, DType::i32}}), Error);
  EXPECT_THROW(infer(a, {x, {Shape{2, 4, 1, 1}}, {Shape{3}}}), Error);
  EXPECT_THROW(infer(a, {x, {Shape{2, 4, 1, 1}}, {Shape{2}}, {Shape{1, 2, 5, 4}}}), Error);
  EXPECT_THROW(infer(a, {{Shape{1, 4, 5}}, {Shape{2, 4, 1}}}), Error);
  a.groups = 3;
  EXPECT_THROW(infer(a, {x, {Shape{3, 1, 1, 1}}}), Error);
  a.groups = 0;
  EXPECT_THROW(Conv{a}, Error);
  a.groups = 1;
  a.window.kernel = {6, 1, 1};
  EXPECT_THROW(infer(a, {x, {Shape{2, 4, 6, 1}}}), Error);
}

TEST(Conv, WorkAndSummary) {
  ConvAttributes a;
  a.window.kernel = {3, 3, 1};
  a.window.pad_begin = a.window.pad_end = {1, 1, 0};
  a.groups = 2;
  a.activation = Clamp::relu();
  const TensorDesc x{Shape{2, 4, 5, 5}};
  const TensorDesc w{Shape{6, 2, 3, 3}};
  const TensorDesc* inputs[] = {&x, &w};
  const Conv conv(a);
  EXPECT_EQ(conv.work(inputs, conv.infer(inputs)).macs, 2 * 6 * 25 * 2 * 9);
  EXPECT_EQ(conv.summary(), "3x3 p1 g2 +relu");
}

}  // namespace
}  // namespace pipit::internal
