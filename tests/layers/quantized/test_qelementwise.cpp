// INT8 layers without weights: worked examples, and every kernel against the reference bit for bit.
#include "layers/ops/qelementwise.h"

#include <gmock/gmock.h>

#include <cstring>
#include <numeric>

#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"
#include "tests/layers/quantized_operands.h"

namespace pipit::internal {
namespace {

using test::expect_conformance;
using test::integers;
using test::kI8;
using test::kOdd;
using test::kReal;
using test::kU8;
using test::operand;
using test::Operand;
using test::Random;

TEST(QAdd, EveryKernelGivesTheReferencesBits) {
  Random random;
  for (const Quantization& a : {kI8, kU8, kOdd}) {
    for (const Quantization& y : {kI8, kU8, kOdd}) {
      const Shape shape{1, random.integer(1, 70), random.integer(1, 6), random.integer(1, 6)};
      expect_conformance(
          QAdd({a, kU8, y, random.coin() ? Clamp::relu() : Clamp{}}),
          {{integers(random, shape, a), integers(random, shape, kU8)}, {"vector", "reference"}});
    }
  }
}

TEST(QMul, OfAHandWorkedExample) {
  // {-1, 0, 2} of steps 0.05 times 3 steps of 0.1, in steps of 0.02.
  const Operand a = operand<std::int8_t>(Shape{1, 3, 1, 1}, {-1, 0, 2});
  const Operand b = operand<std::uint8_t>(Shape{1, 1, 1, 1}, {131});
  const QMulAttributes attributes{kI8, {0.1F, 128, DType::u8}, {0.02F, 10, DType::u8}, {}};
  const auto y = test::run_reference(QMul(attributes), {a, b});
  EXPECT_THAT(y[0].values<std::uint8_t>(), testing::ElementsAre(9, 10, 12));  // -0.75, 0 and 1.5 steps
}

TEST(QMul, EveryKernelGivesTheReferencesBits) {
  Random random;
  for (const Quantization& a : {kI8, kU8, kOdd}) {
    for (const Quantization& y : {kI8, kU8, kOdd}) {
      const Shape shape{random.integer(1, 3), random.integer(1, 140), random.integer(1, 6),
                        random.integer(1, 6)};
      // A gate per image and channel, the same shape, a plane for all channels.
      for (const Shape& gate : {Shape{shape[0], shape[1], 1, 1}, shape, Shape{1, 1, shape[2], shape[3]}}) {
        const QMulAttributes attributes{a, kU8, y, random.coin() ? Clamp::relu() : Clamp{}};
        expect_conformance(QMul(attributes), {{integers(random, shape, a), integers(random, gate, kU8)},
                                              {"vector", "reference"}});
      }
    }
  }
}

TEST(QMul, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(QMul({kI8, kI8, kReal, {}}), Error);
  const Operand a = operand<std::int8_t>(Shape{1, 2}, {1, 2});
  const Operand b = operand<std::int8_t>(Shape{1, 3}, {1, 2, 3});
  EXPECT_THROW(test::run_reference(QMul({kI8, kI8, kI8, {}}), {a, b}), Error);
  EXPECT_THROW(test::run_reference(QMul({kU8, kI8, kI8, {}}), {a, a}), Error);
}

// Every function, of every byte: the layers that it stands for give the same.
TEST(QUnary, IsDequantizeTheFunctionAndQuantize) {
  std::vector<std::uint8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  for (int k = 0; k < static_cast<int>(UnaryKind::logical_not); ++k) {
    const UnaryAttributes function{static_cast<UnaryKind>(k), 0.3, 0.6};
    SCOPED_TRACE(unary_name(function.kind));
    for (const Quantization& x : {kU8, kOdd}) {
      for (const Quantization& y : {kI8, kU8, kOdd, Quantization{3e-38F, 0, DType::i8}}) {
        const Operand q = operand<std::uint8_t>(Shape{256}, bytes);
        const auto real = test::run_reference(Dequantize(x), {q});
        const auto value =
            test::run_reference(Unary(function), {{std::make_shared<const Tensor>(real[0].clone())}});
        const auto expected =
            test::run_reference(Quantize(y), {{std::make_shared<const Tensor>(value[0].clone())}});
        const auto got = test::run_reference(QUnary({function, x, y}), {q});
        ASSERT_EQ(std::memcmp(got[0].view().data, expected[0].view().data, 256), 0);
      }
    }
  }
}

TEST(QUnary, EveryKernelGivesTheReferencesBits) {
  Random random;
  for (const Quantization& x : {kI8, kU8, kOdd}) {
    for (const UnaryKind kind : {UnaryKind::silu, UnaryKind::hard_swish, UnaryKind::sqrt}) {
      const Shape shape{random.integer(1, 3), random.integer(1, 140), random.integer(1, 9),
                        random.integer(1, 9)};
      expect_conformance(QUnary({{kind}, x, random.coin() ? kI8 : kOdd}),
                         {{integers(random, shape, x)}, {"table", "reference"}});
    }
  }
  expect_conformance(QUnary({{UnaryKind::sigmoid}, kU8, kOdd}),
                     {{integers(random, Shape{1, 100'000}, kU8)}, {"table", "reference"}});
}

TEST(QUnary, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(QUnary({{UnaryKind::silu}, kI8, kReal}), Error);
  EXPECT_THROW(QUnary({{UnaryKind::silu}, kReal, kI8}), Error);
  EXPECT_THROW(QUnary({{UnaryKind::logical_not}, kI8, kI8}), Error);
}

TEST(QAveragePool, EveryKernelGivesTheReferencesBits) {
  Random random;
  for (const Quantization& y : {kI8, kU8, kOdd, kReal}) {
    for (const bool global : {true, false}) {
      QAveragePoolAttributes attributes;
      attributes.pool.kind = PoolKind::average;
      attributes.pool.global = global;
      attributes.pool.window.kernel = {3, 2, 1};
      attributes.pool.window.stride = {2, 2, 1};
      attributes.pool.window.pad_begin = {1, 1, 0};
      attributes.pool.count_include_pad = random.coin();
      attributes.x = random.coin() ? kU8 : kI8;
      attributes.y = y;
      const Shape shape{2, random.integer(1, 70), random.integer(3, 12), random.integer(3, 12)};
      expect_conformance(QAveragePool(attributes),
                         {{integers(random, shape, attributes.x)}, {"nhwc", "reference"}});
      attributes.pool.window.rank = 3;
      attributes.pool.window.kernel[2] = random.integer(1, 3);
      attributes.pool.window.pad_end[2] = attributes.pool.window.kernel[2] - 1;
      const Shape volume{2, random.integer(1, 70), random.integer(3, 6), random.integer(3, 9),
                         random.integer(3, 9)};
      expect_conformance(QAveragePool(attributes),
                         {{integers(random, volume, attributes.x)}, {"nhwc", "reference"}});
    }
  }
}

TEST(Pool, MaximumOfBytes) {
  Random random;
  for (int i = 0; i < 20 && !testing::Test::HasFailure(); ++i) {
    PoolAttributes attributes;
    attributes.global = random.integer(0, 3) == 0;
    attributes.window.rank = random.coin() ? 2 : 3;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(attributes.window.rank); ++axis) {
      attributes.window.kernel[axis] = random.integer(1, 3);
      attributes.window.stride[axis] = random.integer(1, 2);
      attributes.window.dilation[axis] = random.integer(1, 3);
      const std::int64_t most = std::min<std::int64_t>(2, attributes.window.span(static_cast<int>(axis)) - 1);
      attributes.window.pad_begin[axis] = random.integer(0, most);
      attributes.window.pad_end[axis] = random.integer(0, most);
    }
    attributes.window.ceil_mode = random.coin();
    const std::int64_t batch = random.integer(1, 2);
    const std::int64_t channels = random.integer(1, 300);
    const std::int64_t height = random.integer(7, 12);
    const std::int64_t width = random.integer(7, 12);
    const Shape shape = attributes.window.rank == 2
                            ? Shape{batch, channels, height, width}
                            : Shape{batch, channels, random.integer(7, 9), height, width};
    expect_conformance(Pool(attributes),
                       {{integers(random, shape, i % 2 == 0 ? kU8 : kI8)}, {"nhwc_int8", "reference"}});
  }
}

}  // namespace
}  // namespace pipit::internal
