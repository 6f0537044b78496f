// Weights of 8 and 4 bits: the format on worked examples, and every kernel against the reference.
#include "layers/ops/weight_only.h"

#include <gmock/gmock.h>

#include <cfloat>

#include "layers/ops/gemm.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::Operand;
using test::Random;

template <typename T>
Operand constant(const Shape& shape, std::vector<T> values) {
  return {std::make_shared<const Tensor>(Tensor::from<T>(shape, values)), true};
}

Operand real(const Shape& shape, std::vector<float> values) {
  return {std::make_shared<const Tensor>(Tensor::from<float>(shape, values))};
}

TEST(WLinear, ReferenceOfAHandWorkedExample) {
  const Operand x = real(Shape{2, 3}, {1, 10, 100, -1, 0, 0.5F});
  // Rows [1 -2 3] and [-128 127 0], scales 0.5 and 2.
  const Operand bytes = constant<std::int8_t>(Shape{2, 3}, {1, -2, 3, -128, 127, 0});
  auto y = test::run_reference(WLinear({{8, 0}, {}}), {x, bytes, constant<float>(Shape{2, 1}, {0.5F, 2})});
  EXPECT_THAT(y[0].values<float>(), testing::ElementsAre(140.5F, 2284, 0.25F, 256));
  // The low half of a byte comes first: [1 -2 3] and [-8 7 0].
  const Operand halves = constant<std::uint8_t>(Shape{2, 2}, {0xE1, 0x03, 0x78, 0x00});
  y = test::run_reference(
      WLinear({{4, 0}, Clamp{0, 500}}),
      {x, halves, constant<float>(Shape{2, 1}, {0.5F, 2}), constant<float>(Shape{2}, {1, 1})});
  EXPECT_THAT(y[0].values<float>(), testing::ElementsAre(141.5F, 125, 1.25F, 17));
}

TEST(WLinear, GroupsOfARowHaveScalesOfTheirOwn) {
  std::vector<std::int8_t> ones(10, 1);
  std::vector<float> x(10, 1);
  const auto y = test::run_reference(WLinear({{8, 8}, {}}),
                                     {real(Shape{1, 10}, x), constant<std::int8_t>(Shape{1, 10}, ones),
                                      constant<float>(Shape{1, 2}, {1, 100})});
  EXPECT_THAT(y[0].values<float>(), testing::ElementsAre(8 + 200));
}

struct Weights {
  WeightFormat format;
  Operand integers, scales;
  std::vector<float> values;  // [O, K]
};

Weights random_weights(Random& random, std::int64_t outputs, std::int64_t depth) {
  Weights w;
  w.format.bits = random.coin() ? 4 : 8;
  w.format.group_size = 8 * random.integer(0, 16);
  w.integers = {
      random.tensor(Shape{outputs, w.format.row_bytes(depth)}, w.format.bits == 8 ? -128 : 0,
                    w.format.bits == 8 ? 127.999 : 255.999, w.format.bits == 8 ? DType::i8 : DType::u8),
      true};
  w.scales = {random.tensor(Shape{outputs, w.format.groups(depth)}, -0.1, 0.1), true};
  const std::byte* data = w.integers.tensor->view().data;
  for (std::int64_t o = 0; o < outputs; ++o) {
    for (std::int64_t k = 0; k < depth; ++k) {
      const auto scale = static_cast<std::size_t>(o * w.format.groups(depth) + k / w.format.group(depth));
      w.values.push_back(static_cast<float>(w.format.at(data + o * w.format.row_bytes(depth), k)) *
                         w.scales.tensor->values<float>()[scale]);
    }
  }
  return w;
}

Operand absolute(const Operand& operand) {
  return operand.tensor ? Operand{test::absolute_values(*operand.tensor), operand.constant} : operand;
}

Clamp random_activation(Random& random) {
  return random.coin() ? Clamp{} : random.coin() ? Clamp::relu() : Clamp{-1.5F, 2};
}

// Sums of K products in any order, weights rounded to f32 once, sums of groups scaled once, bias and residual added.
double roundings(std::int64_t depth) {
  return static_cast<double>(depth + 6) * FLT_EPSILON;
}

void check_linear(Random& random, const Shape& x, std::int64_t outputs, std::vector<std::string> expected) {
  const std::int64_t depth = x[x.rank() - 1];
  const Weights w = random_weights(random, outputs, depth);
  const Operand bias = random.coin() ? Operand{random.tensor(Shape{outputs}), true} : Operand{};
  Conformance conformance{{{random.tensor(x)}, w.integers, w.scales, bias}, std::move(expected)};
  // The same product with the real weights.
  GemmAttributes gemm;
  gemm.transpose_b = true;
  const Operand rows{std::make_shared<const Tensor>(Tensor::from<float>(
      Shape{x.elements() / depth, depth}, conformance.inputs[0].tensor->values<float>()))};
  const std::vector<Operand> float_inputs{rows, real(Shape{outputs, depth}, w.values), bias};
  std::vector<Operand> magnitudes;
  for (const Operand& operand : float_inputs) magnitudes.push_back(absolute(operand));
  conformance.magnitude = test::doubles(test::run_reference(Gemm(gemm), magnitudes)[0]);
  conformance.scale = roundings(depth);
  const WLinearAttributes attributes{w.format, random_activation(random)};
  gemm.activation = attributes.activation;
  const auto expected_y = test::run_reference(Gemm(gemm), float_inputs);
  const auto y = test::run_reference(WLinear(attributes), conformance.inputs);
  for (std::size_t i = 0; i < conformance.magnitude.size(); ++i) {
    ASSERT_NEAR(y[0].values<float>()[i], expected_y[0].values<float>()[i],
                2 * FLT_EPSILON * conformance.magnitude[i]);
  }
  expect_conformance(WLinear(attributes), conformance);
}

TEST(WLinear, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const std::int64_t rows = random.integer(1, i % 2 == 0 ? 16 : 60);
    const std::int64_t depth = random.integer(1, i % 4 == 0 ? 900 : 150);
    check_linear(random, Shape{rows, depth}, random.integer(1, i % 4 == 1 ? 200 : 70),
                 {rows <= 16 ? "gemv" : "tile", "tile", "reference"});
  }
}

TEST(WLinear, TakesTensorsOfAnyRank) {
  Random random;
  check_linear(random, Shape{37}, 33, {"gemv", "reference"});
  check_linear(random, Shape{2, 3, 40}, 17, {"gemv", "reference"});
  check_linear(random, Shape{2, 9, 3, 24}, 50, {"tile", "reference"});
}

// A panel that leaves the cache is not made f32, however many rows there are.
TEST(WLinear, DeepProducts) {
  Random random;
  check_linear(random, Shape{1, 25088}, 40, {"gemv", "reference"});
  check_linear(random, Shape{19, 70'000}, 9, {"gemv", "reference"});
}

void check_conv(Random& random, const Shape& x, std::int64_t outputs, const Window& window,
                std::vector<std::string> expected) {
  const std::int64_t depth = x[1];
  const Weights w = random_weights(random, outputs, depth);
  WConvAttributes attributes{w.format, {window, 1, random_activation(random)}};
  Conformance conformance{{{random.tensor(x)}, w.integers, w.scales, {}, {}}, std::move(expected)};
  if (random.coin()) conformance.inputs[3] = {random.tensor(Shape{outputs}), true};
  if (random.coin()) conformance.inputs[4] = {random.tensor(window_output_shape(window, x, outputs))};
  const std::vector<Operand> float_inputs{conformance.inputs[0], real(Shape{outputs, depth, 1, 1}, w.values),
                                          conformance.inputs[3], conformance.inputs[4]};
  std::vector<Operand> magnitudes;
  for (const Operand& operand : float_inputs) magnitudes.push_back(absolute(operand));
  ConvAttributes plain = attributes.conv;
  plain.activation = {};
  conformance.magnitude = test::doubles(test::run_reference(Conv(plain), magnitudes)[0]);
  conformance.scale = roundings(depth);
  const auto expected_y = test::run_reference(Conv(attributes.conv), float_inputs);
  const auto y = test::run_reference(WConv(attributes), conformance.inputs);
  for (std::size_t i = 0; i < conformance.magnitude.size(); ++i) {
    ASSERT_NEAR(y[0].values<float>()[i], expected_y[0].values<float>()[i],
                2 * FLT_EPSILON * conformance.magnitude[i]);
  }
  expect_conformance(WConv(attributes), conformance);
}

TEST(WConv, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 30 && !HasFailure(); ++i) {
    const Shape x{random.integer(1, 3), random.integer(1, 150), random.integer(1, i % 2 == 0 ? 3 : 14),
                  random.integer(1, i % 2 == 0 ? 2 : 14)};
    const bool few = x[0] * x[2] * x[3] <= 16;
    check_conv(random, x, random.integer(1, 100), Window{}, {few ? "gemv" : "tile", "tile", "reference"});
  }
}

TEST(WConv, StridesAndPadding) {
  Random random;
  for (int i = 0; i < 12 && !HasFailure(); ++i) {
    Window window;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      window.stride[axis] = random.integer(1, 3);
      window.pad_begin[axis] = random.integer(0, 2);
      window.pad_end[axis] = random.integer(0, 2);
    }
    check_conv(
        random,
        Shape{random.integer(1, 2), random.integer(1, 70), random.integer(1, 12), random.integer(1, 12)},
        random.integer(1, 70), window, {"tile", "reference"});
  }
}

TEST(WeightOnly, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(WLinear({{5, 0}, {}}), Error);
  EXPECT_THROW(WLinear({{4, 12}, {}}), Error);
  EXPECT_THROW(WLinear({{4, -8}, {}}), Error);
  WConvAttributes wide;
  wide.conv.window.kernel = {3, 1, 1};
  EXPECT_THROW(WConv{wide}, Error);
  const Operand x = real(Shape{1, 3}, {1, 2, 3});
  const Operand w = constant<std::int8_t>(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  const Operand scales = constant<float>(Shape{2, 1}, {1, 1});
  EXPECT_NO_THROW(test::run_reference(WLinear({{8, 0}, {}}), {x, w, scales}));
  EXPECT_THROW(test::run_reference(WLinear({{4, 0}, {}}), {x, w, scales}), Error);  // i8 for u8
  EXPECT_THROW(test::run_reference(WLinear({{8, 0}, {}}), {x, w, constant<float>(Shape{2}, {1, 1})}), Error);
  EXPECT_THROW(test::run_reference(WLinear({{8, 0}, {}}), {real(Shape{1, 2}, {1, 2}), w, scales}), Error);
}

}  // namespace
}  // namespace pipit::internal
