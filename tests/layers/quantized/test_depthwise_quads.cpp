// INT8 depthwise convolutions by tiles that take four rows of taps at a time, against the reference bit for bit.
#include <gtest/gtest.h>

#include "layers/cpu/quantized/depthwise_quads.h"
#include "tests/layers/qconv_case.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::kOdd;
using test::kU8;
using test::QConvCase;
using test::Random;

// Every instance of the tiles that take four rows of taps at a time, with rows that end anywhere in a tile, borders on
// all sides, channels that end anywhere in a register, and results beyond every integer.
TEST(QConv, DepthwiseQuads) {
  if (quad_kernels() == nullptr) GTEST_SKIP() << "this CPU, or PIPIT_ISA, is without AVX-512 VNNI";
  Random random;
  for (const std::int64_t kernel : {3, 5, 7}) {
    for (const std::int64_t stride : {1, 2}) {
      for (const std::int64_t channels : {2, 32, 33, 64, 200}) {
        QConvCase c;
        Window& window = c.attributes.conv.window;
        window.kernel = {random.integer(1, kernel), kernel, 1};
        window.stride = {random.integer(1, 3), stride, 1};
        window.dilation = {random.integer(1, 2), 1, 1};
        for (std::size_t axis = 0; axis < 2; ++axis) {
          window.pad_begin[axis] = random.integer(0, kernel - 1);
          window.pad_end[axis] = random.integer(0, kernel);
        }
        c.attributes.conv.groups = channels;
        c.attributes.conv.activation = random.coin() ? Clamp{-1.5F, 2.25F} : Clamp{};
        c.x = Shape{random.integer(1, 2), channels, window.span(0) + random.integer(0, 9),
                    kernel + random.integer(0, 40)};
        c.w = Shape{channels, 1, window.kernel[0], kernel};
        c.attributes.x = random.coin() ? kU8 : kOdd;
        c.attributes.x.dtype = DType::u8;
        c.attributes.y = {random.integer(0, 4) == 0 ? 1e-9F : 3.0F, static_cast<int>(random.integer(0, 255)),
                          DType::u8};
        if (random.coin()) {
          c.attributes.y.zero_point -= 128;
          c.attributes.y.dtype = DType::i8;
        }
        for (std::int64_t o = 0; o < channels; ++o)
          c.attributes.weight_scales.push_back(static_cast<float>(random.real(0.01, 1)));
        c.bias = random.coin();
        Conformance conformance = conformance_of(c, random);
        conformance.expected = {"depthwise_quads", "depthwise", "tile", "reference"};
        expect_conformance(QConv(c.attributes), conformance);
      }
    }
  }
}

// Two pixels of 32 channels at a time: rows from one pixel on, padding on either side from none to all of a window.
TEST(QConv, DepthwiseQuadsOfTwoPixels) {
  if (quad_kernels() == nullptr) GTEST_SKIP() << "this CPU, or PIPIT_ISA, is without AVX-512 VNNI";
  Random random;
  for (const std::int64_t kernel : {3, 5, 7}) {
    for (std::int64_t width = 1; width <= 31 && !HasFailure(); ++width) {
      QConvCase c;
      Window& window = c.attributes.conv.window;
      window.kernel = {3, kernel, 1};
      window.pad_begin = {random.integer(0, 2), random.integer(0, kernel - 1), 0};
      window.pad_end = {random.integer(0, 2), kernel - 1, 0};
      c.attributes.conv.groups = 32;
      c.x = Shape{random.integer(1, 2), 32, random.integer(3, 5), width};
      c.w = Shape{32, 1, 3, kernel};
      c.attributes.x = {0.02F, static_cast<int>(random.integer(0, 255)), DType::u8};
      c.attributes.y = {1.0F, static_cast<int>(random.integer(0, 255)), DType::u8};
      for (int o = 0; o < 32; ++o)
        c.attributes.weight_scales.push_back(static_cast<float>(random.real(0.01, 1)));
      Conformance conformance = conformance_of(c, random);
      conformance.expected = {"depthwise_quads", "depthwise", "tile", "reference"};
      expect_conformance(QConv(c.attributes), conformance);
    }
  }
}

// Small groups and any window, in one and two dimensions; sums of too many products for floats.
TEST(QConv, SmallGroupsOfBytes) {
  Random random;
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    QConvCase c;
    Window& window = c.attributes.conv.window;
    const bool standing = i % 4 == 3;  // chains of taps go down the image
    window.rank = standing || random.coin() ? 2 : 1;
    std::int64_t extents[2];
    for (int axis = 0; axis < window.rank; ++axis) {
      const auto at = static_cast<std::size_t>(axis);
      window.kernel[at] = i % 3 == 0 ? 31 : random.integer(1, 9);
      if (standing && axis == 1) window.kernel[at] = random.integer(1, 2);
      window.stride[at] = random.integer(1, 2);
      window.dilation[at] = i % 3 == 0 ? 1 : random.integer(1, 3);
      const std::int64_t most = std::min<std::int64_t>(window.span(axis) - 1, 8);
      window.pad_begin[at] = random.integer(0, most);
      window.pad_end[at] = random.integer(0, most);
      extents[axis] = window.span(axis) + random.integer(0, 9);
    }
    const std::int64_t groups = random.integer(standing ? 20 : 2, 40);
    const std::int64_t channels = random.integer(0, 1) == 0 ? 1 : random.integer(2, 4);
    c.attributes.conv.groups = groups;
    c.attributes.conv.activation = random.coin() ? Clamp{-1.5F, 2.25F} : Clamp{};
    if (window.rank == 1) {
      c.x = Shape{2, groups * channels, extents[0]};
      c.w = Shape{groups * channels, channels, window.kernel[0]};
    } else {
      c.x = Shape{2, groups * channels, extents[0], extents[1]};
      c.w = Shape{groups * channels, channels, window.kernel[0], window.kernel[1]};
    }
    c.attributes.x = {0.02F, static_cast<int>(random.integer(0, 255)), DType::u8};
    c.attributes.residual = kU8;
    c.attributes.y = {random.integer(0, 4) == 0 ? 1e-9F : 3.0F, static_cast<int>(random.integer(0, 255)),
                      DType::u8};
    for (std::int64_t o = 0; o < groups * channels; ++o)
      c.attributes.weight_scales.push_back(static_cast<float>(random.real(0.01, 1)));
    c.bias = random.coin();
    c.residual = random.coin();
    Conformance conformance = conformance_of(c, random);
    conformance.expected = {groups >= 4 || channels == 1 ? "small_groups" : "tile", "reference"};
    expect_conformance(QConv(c.attributes), conformance);
  }
}

}  // namespace
}  // namespace pipit::internal
