// INT8: the specification on worked examples, and every kernel against the reference bit for bit.
#include <gmock/gmock.h>

#include <cmath>

#include "layers/cpu/quantized/winograd_int8.h"
#include "layers/ops/qconv.h"
#include "layers/ops/quantize.h"
#include "tests/layers/qconv_case.h"
#include "tests/support/window_cases.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::integers;
using test::kI8;
using test::kOdd;
using test::kReal;
using test::kU8;
using test::operand;
using test::Operand;
using test::QConvCase;
using test::Random;

TEST(Requantize, RoundsTiesToEvenAndSaturates) {
  const StepBounds bounds = step_bounds(kI8, -INFINITY, INFINITY);
  for (const auto& [value, expected] : std::vector<std::pair<float, int>>{{0.5F, 0},
                                                                          {1.5F, 2},
                                                                          {2.5F, 2},
                                                                          {-0.5F, 0},
                                                                          {-1.5F, -2},
                                                                          {126.5F, 126},
                                                                          {126.6F, 127},
                                                                          {1e30F, 127},
                                                                          {-1e30F, -127},
                                                                          {-INFINITY, -127},
                                                                          {NAN, -127}}) {
    EXPECT_EQ(requantize(value, bounds, 0), expected) << value;
    EXPECT_EQ(requantize(value, step_bounds(kU8, -INFINITY, INFINITY), 128), expected + 128) << value;
  }
  // An activation cuts in steps of the scale; 0.06 is 1.2 steps.
  EXPECT_EQ(requantize(7, step_bounds(kI8, 0, 0.06F), 0), 1);
  EXPECT_EQ(requantize(-7, step_bounds(kI8, 0, 0.06F), 0), 0);
}

TEST(Quantize, OfAHandWorkedExample) {
  const Operand x = operand<float>(Shape{6}, {0, 0.05F, -0.125F, 100, -100, 0.074F});
  const auto q = test::run_reference(Quantize(kI8), {x});
  EXPECT_THAT(q[0].values<std::int8_t>(), testing::ElementsAre(0, 1, -2, 127, -127, 1));
  const auto back = test::run_reference(Dequantize(kI8), {{std::make_shared<const Tensor>(q[0].clone())}});
  EXPECT_THAT(back[0].values<float>(),
              testing::ElementsAre(0, 0.05F, -2 * 0.05F, 127 * 0.05F, -127 * 0.05F, 0.05F));
}

TEST(Quantize, EveryKernelGivesTheReferencesBits) {
  Random random;
  for (const Quantization& q : {kI8, kU8, kOdd}) {
    for (int i = 0; i < 6 && !testing::Test::HasFailure(); ++i) {
      const Shape shape{random.integer(1, 3), random.integer(1, 40), random.integer(1, 9),
                        random.integer(1, 9)};
      expect_conformance(Quantize(q), {{{random.tensor(shape, -8, 8)}}, {"vector", "reference"}});
      expect_conformance(Dequantize(q), {{integers(random, shape, q)}, {"vector", "reference"}});
    }
  }
}

QConvCase random_case(Random& random) {
  QConvCase c;
  Window& window = c.attributes.conv.window;
  const auto pick = [&](std::int64_t low, std::int64_t high) { return random.integer(low, high); };
  auto extent = test::random_window(window, pick, 17);
  test::maybe_one_column(window, extent, pick);
  const std::int64_t groups = random.coin() ? 1 : random.integer(1, 4);
  const std::int64_t channels = random.integer(1, 21);
  const std::int64_t filters = random.integer(1, 40);
  c.attributes.conv.groups = groups;
  c.x = Shape{random.integer(1, 2), channels * groups, extent[0], extent[1]};
  c.w = Shape{filters * groups, channels, window.kernel[0], window.kernel[1]};
  const Quantization types[] = {kI8, kU8, kOdd};
  c.attributes.x = types[random.integer(0, 2)];
  c.attributes.residual = types[random.integer(0, 2)];
  const float depth = static_cast<float>(channels * window.taps());
  c.attributes.y = random.integer(0, 3) == 0 ? kReal : types[random.integer(0, 2)];
  // So that some outputs saturate and most do not.
  if (c.attributes.y.quantized()) c.attributes.y.scale = 0.05F * std::sqrt(depth) * c.attributes.x.scale * 70;
  for (std::int64_t o = 0; o < c.w[0]; ++o)
    c.attributes.weight_scales.push_back(static_cast<float>(random.real(0.01, 1)));
  c.bias = random.coin();
  c.residual = random.coin();
  if (random.coin()) c.attributes.conv.activation = random.coin() ? Clamp::relu() : Clamp{-1.5F, 2.25F};
  return c;
}

TEST(QConv, EveryKernelGivesTheReferencesBits) {
  Random random;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const QConvCase c = random_case(random);
    expect_conformance(QConv(c.attributes), conformance_of(c, random));
  }
}

TEST(QConv, VolumesGiveTheReferencesBits) {
  Random random;
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    QConvCase c = random_case(random);
    const auto pick = [&](std::int64_t low, std::int64_t high) { return random.integer(low, high); };
    Window& window = c.attributes.conv.window;
    const auto extent = test::random_window_of<3>(window, pick, 5);
    const std::int64_t channels = i % 3 == 0 ? 3 : i % 3 == 1 ? c.w[1] : 4 * random.integer(4, 20);
    c.x = Shape{c.x[0], channels * c.attributes.conv.groups, extent[0], extent[1], extent[2]};
    c.w = Shape{c.w[0], channels, window.kernel[0], window.kernel[1], window.kernel[2]};
    expect_conformance(QConv(c.attributes), conformance_of(c, random));
  }
}

TEST(QConv, DepthwiseVolumesGiveTheReferencesBits) {
  Random random;
  for (int i = 0; i < 16 && !HasFailure(); ++i) {
    QConvCase c = random_case(random);
    const auto pick = [&](std::int64_t low, std::int64_t high) { return random.integer(low, high); };
    Window& window = c.attributes.conv.window;
    const auto extent = test::random_window_of<3>(window, pick, 8);
    const std::int64_t channels = random.integer(2, 70);
    c.attributes.conv.groups = channels;
    c.attributes.x = c.attributes.residual = kU8;
    c.attributes.weight_scales = {0.02F};
    c.x = Shape{c.x[0], channels, extent[0], extent[1], extent[2]};
    c.w = Shape{channels, 1, window.kernel[0], window.kernel[1], window.kernel[2]};
    Conformance conformance = conformance_of(c, random);
    conformance.expected = {"depthwise", "tile", "reference"};
    expect_conformance(QConv(c.attributes), conformance);
  }
}

// Channels that fill tile registers (AMX) once, several times and in part, with everything that a convolution may have.
TEST(QConv, ChannelsOfTileRegisters) {
  Random random;
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    QConvCase c = random_case(random);
    const std::int64_t groups = random.integer(1, 2);
    const std::int64_t channels = 4 * random.integer(4, 36);
    const std::int64_t filters = random.integer(1, 70);
    c.attributes.conv.groups = groups;
    c.x = Shape{random.integer(1, 3), channels * groups, c.x[2], c.x[3]};
    c.w = Shape{filters * groups, channels, c.w[2], c.w[3]};
    c.attributes.weight_scales = {0.02F};
    expect_conformance(QConv(c.attributes), conformance_of(c, random));
  }
}

// Kernel, stride, channels, filters, groups and image of what networks are made of, and edges of the tiles: few
// columns, few outputs, channels that fill no step.
TEST(QConv, LayersOfNetworks) {
  struct Layer {
    std::int64_t kernel, stride, dilation, channels, filters, groups, height, width;
  };
  const Layer layers[] = {
      {7, 2, 1, 3, 64, 1, 23, 31},     // stem
      {3, 2, 1, 3, 32, 1, 15, 15},     //
      {3, 1, 1, 64, 33, 1, 5, 6},      //
      {3, 1, 1, 16, 1, 1, 4, 3},       //
      {3, 1, 1, 5, 3, 1, 9, 1},        //
      {1, 1, 1, 40, 64, 1, 7, 7},      //
      {1, 2, 1, 64, 96, 1, 9, 9},      //
      {1, 1, 1, 512, 1000, 1, 1, 1},   // classifier
      {3, 1, 1, 96, 96, 96, 9, 9},     // depthwise
      {3, 2, 1, 300, 300, 300, 7, 8},  //
      {5, 1, 1, 24, 24, 24, 6, 7},     //
      {7, 1, 2, 17, 17, 17, 14, 15},   //
      {3, 1, 1, 8, 16, 8, 6, 5},       // two filters per channel
      {3, 1, 1, 64, 64, 32, 8, 8},     // groups of 2, of 8, of 10 channels
      {3, 1, 2, 32, 64, 4, 11, 9},     //
      {3, 2, 1, 40, 48, 4, 9, 9},      //
  };
  Random random;
  const Quantization types[] = {kU8, kI8, kOdd};
  for (const Layer& layer : layers) {
    if (HasFailure()) break;
    QConvCase c;
    test::set_window(c.attributes.conv.window, layer.kernel, layer.stride, layer.dilation,
                     layer.kernel / 2 * layer.dilation);
    c.attributes.conv.groups = layer.groups;
    c.attributes.conv.activation = random.coin() ? Clamp::relu() : Clamp{};
    c.x = Shape{2, layer.channels, layer.height, layer.width};
    c.w = Shape{layer.filters, layer.channels / layer.groups, layer.kernel, layer.kernel};
    c.attributes.x = types[random.integer(0, 2)];
    c.attributes.residual = types[random.integer(0, 2)];
    c.attributes.y = types[random.integer(0, 2)];
    c.attributes.y.scale = 2;
    c.attributes.weight_scales = {0.02F};
    c.residual = random.coin();
    Conformance conformance = conformance_of(c, random);
    const bool bytes =
        c.attributes.x.dtype == DType::u8 && (!c.residual || c.attributes.residual.dtype == DType::u8);
    if (bytes && layer.groups == layer.channels && layer.filters == layer.channels)
      conformance.expected.emplace_back(layer.dilation == 1 ? "depthwise" : "small_groups");
    expect_conformance(QConv(c.attributes), conformance);
  }
}

// Filters of one tap with pads: most of these outputs are one pixel, of which the zero points are all that is read.
TEST(QConv, OutputsInThePadding) {
  Random random;
  for (int i = 0; i < 16 && !HasFailure(); ++i) {
    QConvCase c = random_case(random);
    Window& window = c.attributes.conv.window;
    test::set_window(window, 1, 1, 1, 0);
    window.pad_begin = {random.integer(0, 3), random.integer(0, 3), 0};
    window.pad_end = {random.integer(0, 3), random.integer(1, 3), 0};
    const std::int64_t groups = c.attributes.conv.groups;
    // Weights that stay in a worker's cache, and others.
    const bool many = i % 8 == 0;
    const std::int64_t channels = many ? 768 / groups : random.integer(1, 70);
    const std::int64_t filters = many ? 1024 / groups : random.integer(1, 70);
    c.x = Shape{random.integer(1, 3), channels * groups, many ? 2 : c.x[2], many ? 1 : c.x[3]};
    c.w = Shape{filters * groups, channels, 1, 1};
    c.attributes.weight_scales = {0.02F};
    c.residual = i % 8 == 7;
    expect_conformance(QConv(c.attributes), conformance_of(c, random));
  }
}

// Tiles of 1 to 4 outputs along each axis, channels that end anywhere in a register, every zero point; the largest sums
// that are taken, and those that are not.
TEST(QConv, WinogradGivesTheBitsOfDirectSums) {
  if (byte_winograd() == nullptr) GTEST_SKIP() << "this CPU, or PIPIT_ISA, is without AVX2";
  Random random;
  for (int i = 0; i < 16 && !HasFailure(); ++i) {
    QConvCase c = test::random_winograd_case(random);
    if (i == 0) c.attributes.y.scale = 1e-9F;
    Conformance conformance = conformance_of(c, random);
    conformance.expected = {"winograd_f4x4", "tile", "reference"};
    expect_conformance(QConv(c.attributes), conformance);
  }
  // 255 * 127 * 9 * channels, below and above 2^25.
  for (const std::int64_t channels : {112, 120}) {
    QConvCase c;
    c.x = Shape{1, channels, 12, 12};
    c.w = Shape{17, channels, 3, 3};
    c.attributes.conv.window.kernel = {3, 3, 1};
    c.attributes.conv.window.pad_begin = c.attributes.conv.window.pad_end = {1, 1, 0};
    c.attributes.x = {0.02F, 0, DType::u8};
    c.attributes.y = {1000, 3, DType::u8};
    c.attributes.weight_scales = {0.02F};
    std::vector<std::int8_t> weights(static_cast<std::size_t>(c.w.elements()));
    for (auto& w : weights) w = static_cast<std::int8_t>(random.coin() ? 127 : -127);
    std::fill_n(weights.begin(), 2 * 9 * channels, std::int8_t{127});
    std::fill_n(weights.begin(), 9 * channels, std::int8_t{-127});
    Conformance conformance;
    conformance.inputs = {
        operand<std::uint8_t>(c.x, std::vector<std::uint8_t>(static_cast<std::size_t>(c.x.elements()), 255)),
        operand<std::int8_t>(c.w, weights, true)};
    conformance.expected = {"tile", "reference"};
    if (channels == 112) conformance.expected.emplace_back("winograd_f4x4");
    expect_conformance(QConv(c.attributes), conformance);
  }
}

// Sums at both ends of what u8 times s8 can reach, where instructions with 16-bit sums saturate.
TEST(QConv, ExtremeOperands) {
  for (const int x : {0, 1, 255}) {
    for (const int w : {-127, 127}) {
      QConvCase c;
      c.x = Shape{1, 64, 7, 9};
      c.w = Shape{33, 64, 3, 3};
      c.attributes.conv.window.kernel = {3, 3, 1};
      c.attributes.conv.window.pad_begin = c.attributes.conv.window.pad_end = {1, 1, 0};
      c.attributes.x = kU8;
      c.attributes.weight_scales = {0.02F};
      Conformance conformance;
      conformance.inputs = {
          operand<std::uint8_t>(c.x, std::vector<std::uint8_t>(static_cast<std::size_t>(c.x.elements()),
                                                               static_cast<std::uint8_t>(x))),
          operand<std::int8_t>(
              c.w,
              std::vector<std::int8_t>(static_cast<std::size_t>(c.w.elements()), static_cast<std::int8_t>(w)),
              true)};
      conformance.expected = {"tile", "reference"};
      expect_conformance(QConv(c.attributes), conformance);
      // In the middle 576 products count, in f32 exactly.
      const auto y = test::run_reference(QConv(c.attributes), conformance.inputs);
      const float m = kU8.scale * 0.02F;
      EXPECT_EQ(y[0].values<float>()[4 * 9 + 4], static_cast<float>((x - 128) * w * 576) * m);
    }
  }
}

TEST(QConv, SignedAndUnsignedHoldTheSameValues) {
  Random random;
  for (int i = 0; i < 10; ++i) {
    QConvCase c = random_case(random);
    c.attributes.x = kI8;
    c.attributes.residual = kI8;
    c.attributes.y = {0.9F, 0, DType::i8};
    Conformance conformance = conformance_of(c, random);
    const auto expected = test::run_reference(QConv(c.attributes), conformance.inputs);
    for (Quantization* q : {&c.attributes.x, &c.attributes.residual, &c.attributes.y}) {
      q->dtype = DType::u8;
      q->zero_point = 128;
    }
    for (const std::size_t operand : {0, 3}) {
      if (!conformance.inputs[operand].tensor) continue;
      Tensor moved(TensorDesc{conformance.inputs[operand].tensor->shape(), DType::u8});
      std::transform(conformance.inputs[operand].tensor->values<std::int8_t>().begin(),
                     conformance.inputs[operand].tensor->values<std::int8_t>().end(),
                     moved.values<std::uint8_t>().begin(),
                     [](std::int8_t v) { return static_cast<std::uint8_t>(v + 128); });
      conformance.inputs[operand].tensor = std::make_shared<const Tensor>(std::move(moved));
    }
    const auto moved = test::run_reference(QConv(c.attributes), conformance.inputs);
    for (std::int64_t e = 0; e < expected[0].shape().elements(); ++e) {
      const auto at = static_cast<std::size_t>(e);
      ASSERT_EQ(expected[0].values<std::int8_t>()[at] + 128, moved[0].values<std::uint8_t>()[at]);
    }
  }
}

TEST(QConv, IsNearTheConvolutionOfTheRealValues) {
  Random random;
  for (int i = 0; i < 10; ++i) {
    QConvCase c = random_case(random);
    c.attributes.y = kReal;
    const Conformance conformance = conformance_of(c, random);
    const auto real = [&](std::size_t operand, const Quantization& q) {
      return operand >= conformance.inputs.size() || !conformance.inputs[operand].tensor
                 ? Operand{}
                 : Operand{std::make_shared<const Tensor>(
                       std::move(test::run_reference(Dequantize(q), {conformance.inputs[operand]})[0]))};
    };
    // Weights and bias have a scale per channel.
    Tensor w(TensorDesc{c.w});
    Tensor bias(TensorDesc{Shape{c.w[0]}});
    const std::int64_t depth = c.w.elements() / c.w[0];
    for (std::int64_t o = 0; o < c.w[0]; ++o) {
      const float scale = c.attributes.weight_scales[static_cast<std::size_t>(o)];
      for (std::int64_t k = 0; k < depth; ++k) {
        const auto at = static_cast<std::size_t>(o * depth + k);
        w.values<float>()[at] = scale * conformance.inputs[1].tensor->values<std::int8_t>()[at];
      }
      bias.values<float>()[static_cast<std::size_t>(o)] =
          c.bias ? scale * c.attributes.x.scale *
                       static_cast<float>(
                           conformance.inputs[2].tensor->values<std::int32_t>()[static_cast<std::size_t>(o)])
                 : 0.0F;
    }
    const auto expected =
        test::run_reference(Conv(c.attributes.conv), {real(0, c.attributes.x),
                                                      {std::make_shared<const Tensor>(std::move(w))},
                                                      {std::make_shared<const Tensor>(std::move(bias))},
                                                      real(3, c.attributes.residual)});
    const auto y = test::run_reference(QConv(c.attributes), conformance.inputs);
    for (std::size_t e = 0; e < expected[0].values<float>().size(); ++e) {
      const float value = expected[0].values<float>()[e];
      ASSERT_NEAR(y[0].values<float>()[e], value, 1e-5 * (std::abs(value) + 1000)) << e;
    }
  }
}

TEST(Quantized, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(Quantize({0, 0, DType::i8}), Error);
  EXPECT_THROW(Quantize({INFINITY, 0, DType::i8}), Error);
  EXPECT_THROW(Quantize({1, 128, DType::i8}), Error);
  EXPECT_THROW(Quantize({1, -1, DType::u8}), Error);
  EXPECT_THROW(Quantize({1, 0, DType::i32}), Error);
  EXPECT_THROW(Dequantize{kReal}, Error);
  QConvAttributes attributes;
  EXPECT_THROW(QConv{attributes}, Error);  // x is not quantized
  attributes.x = kU8;
  attributes.weight_scales = {1, 1};
  const Operand x = operand<std::uint8_t>(Shape{1, 1, 1, 1}, {1});
  const Operand w = operand<std::int8_t>(Shape{3, 1, 1, 1}, {1, 2, 3}, true);
  EXPECT_THROW(test::run_reference(QConv(attributes), {x, w}), Error);  // 2 scales for 3 channels
  attributes.weight_scales = {1};
  EXPECT_NO_THROW(test::run_reference(QConv(attributes), {x, w}));
  EXPECT_THROW(test::run_reference(QConv(attributes), {w, w}), Error);
}

}  // namespace
}  // namespace pipit::internal
