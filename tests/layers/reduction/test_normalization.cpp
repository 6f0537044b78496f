#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>

#include "layers/ops/normalization.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::Operand;
using test::Random;

Operand operand(const Shape& shape, std::vector<float> values) {
  return {std::make_shared<const Tensor>(Tensor::from<float>(shape, std::span<const float>(values)))};
}

testing::Matcher<std::span<const float>> near(const std::vector<float>& expected) {
  return testing::ResultOf([](std::span<const float> v) { return std::vector<float>(v.begin(), v.end()); },
                           testing::Pointwise(testing::FloatNear(1e-6F), expected));
}

Shape random_shape(Random& random, int rank) {
  std::vector<std::int64_t> dims;
  for (int d = 0; d < rank; ++d) dims.push_back(random.integer(1, d == 1 ? 40 : 9));
  return Shape(dims);
}

TEST(BatchNorm, ReferenceOfAHandWorkedExample) {
  const auto y =
      test::run_reference(BatchNorm({0.0F}), {operand(Shape{1, 2, 2}, {1, 2, 3, 4}),
                                              operand(Shape{2}, {1, 2}), operand(Shape{2}, {0, 10}),
                                              operand(Shape{2}, {1, 3}), operand(Shape{2}, {4, 0.25F})});
  EXPECT_THAT(y[0].values<float>(), near({0, 0.5F, 10, 14}));
}

TEST(BatchNorm, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const Shape shape = random_shape(random, static_cast<int>(random.integer(2, 5)));
    const Shape c{shape[1]};
    const bool constant = random.coin();
    Conformance conformance{{{random.tensor(shape)},
                             {random.tensor(c), constant},
                             {random.tensor(c), constant},
                             {random.tensor(c), constant},
                             {random.tensor(c, 0.1, 2), constant}},
                            {constant ? "folded" : "reference"}};
    // |scale| < 1 / sqrt(0.1) < 3.2: x * scale, mean * scale and bias add up to less than 7.4. Scale, shift and the
    // two operations round once each.
    conformance.absolute = 4 * 7.4 * FLT_EPSILON;
    expect_conformance(BatchNorm({}), conformance);
  }
}

TEST(LayerNorm, ReferenceOfAHandWorkedExample) {
  const auto y = test::run_reference(LayerNorm({1, 0.0F, 3}),
                                     {operand(Shape{2, 2}, {1, 3, -4, -8}), operand(Shape{2}, {1, 10}), {}});
  EXPECT_THAT(y[0].values<float>(), near({-1, 10, 1, -10}));
  EXPECT_EQ(y[1].shape(), (Shape{2, 1}));
  EXPECT_THAT(y[1].values<float>(), near({2, -6}));
  EXPECT_THAT(y[2].values<float>(), near({1, 0.5F}));
}

TEST(LayerNorm, ByTheRootMeanSquare) {
  const auto y = test::run_reference(LayerNorm({.axis = 1, .epsilon = 1, .rms = true}),
                                     {operand(Shape{2, 2}, {1, std::sqrt(5.0F), 7, -7}),
                                      operand(Shape{2}, {2, 10}), operand(Shape{2}, {0, 1})});
  const float root = std::sqrt(50.0F);
  EXPECT_THAT(y[0].values<float>(), near({1, std::sqrt(5.0F) * 5 + 1, 14 / root, 1 - 70 / root}));
  EXPECT_THROW(LayerNorm({.outputs = 3, .rms = true}), Error);
}

// Mean and variance over n values of magnitude m and a deviation of at least s: the mean is off by less than
// n * m * epsilon, the result by (that / s + n + a few) epsilon, times its size (at most sqrt(n)) and the scale.
double moments_tolerance(std::int64_t n, double magnitude, double deviation) {
  const auto count = static_cast<double>(n);
  return (count * magnitude / deviation + count + 8) * FLT_EPSILON * std::sqrt(count);
}

TEST(LayerNorm, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const int rank = static_cast<int>(random.integer(1, 4));
    const Shape shape = random_shape(random, rank);
    LayerNormAttributes a;
    a.axis = random.integer(-rank, rank - 1);
    a.rms = i % 3 == 0;
    a.outputs = a.rms ? 1 : static_cast<int>(random.integer(1, 3));
    a.epsilon = 0.01F;  // bounds the deviation from below, also for groups of one element
    const int axis = normalize_axis(a.axis, rank, "");
    const Shape normalized(shape.dims().subspan(static_cast<std::size_t>(axis)));
    const bool broadcast = random.integer(0, 4) == 0;
    Conformance conformance{{{random.tensor(shape)}, {}, {}}, {broadcast ? "reference" : "contiguous"}};
    const bool constants = random.coin();
    if (broadcast || random.coin())
      conformance.inputs[1] = {random.tensor(broadcast ? Shape{1} : normalized), constants};
    if (random.coin()) conformance.inputs[2] = {random.tensor(normalized), constants};
    const bool given = conformance.inputs[1].tensor != nullptr || conformance.inputs[2].tensor != nullptr;
    if (a.outputs > 1 || (given && !constants) || normalized.elements() > 4096)
      conformance.widened = {"contiguous"};
    if (broadcast && normalized.elements() == 1) conformance.expected = {"contiguous"};
    conformance.absolute = moments_tolerance(normalized.elements(), 1, 0.1);
    conformance.relative = moments_tolerance(normalized.elements(), 1, 0.1);
    expect_conformance(LayerNorm(a), conformance);
  }
}

TEST(LayerNorm, LongRowsOf16BitsAreWidened) {
  Random random;
  for (const std::int64_t count : {4096, 4097}) {
    Conformance conformance{{{random.tensor({2, count})}}, {"contiguous"}};
    if (count > 4096) conformance.widened = {"contiguous"};
    conformance.absolute = moments_tolerance(count, 1, 0.1);
    conformance.relative = moments_tolerance(count, 1, 0.1);
    expect_conformance(LayerNorm({.axis = 1, .epsilon = 0.01F}), conformance);
  }
}

TEST(InstanceNorm, ReferenceOfAHandWorkedExample) {
  const auto y = test::run_reference(
      InstanceNorm({0.0F}),
      {operand(Shape{1, 2, 2}, {1, 3, -4, -8}), operand(Shape{2}, {1, 10}), operand(Shape{2}, {0, 1})});
  EXPECT_THAT(y[0].values<float>(), near({-1, 1, 11, -9}));
}

TEST(InstanceNorm, OfGroups) {
  const auto y = test::run_reference(
      InstanceNorm({0.0F, 1}),
      {operand(Shape{2, 2, 1}, {1, 3, -4, -8}), operand(Shape{2}, {1, 10}), operand(Shape{2}, {0, 1})});
  EXPECT_THAT(y[0].values<float>(), near({-1, 11, 1, -9}));
}

TEST(InstanceNorm, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    Shape shape = random_shape(random, static_cast<int>(random.integer(3, 5)));
    if (i % 8 == 0) shape = shape.with(2, 40);
    InstanceNormAttributes a{0.01F};
    if (random.coin()) {
      a.groups = random.integer(1, 4);
      shape = shape.with(1, a.groups * random.integer(1, i % 8 == 1 ? 40 : 5));
    }
    const Shape c{shape[1]};
    Conformance conformance{{{random.tensor(shape)}, {random.tensor(c)}, {random.tensor(c)}},
                            {"rows", "planes"}};
    const std::int64_t n = shape.elements() / shape[0] / shape[1] * channels_of_group(a, shape);
    conformance.absolute = moments_tolerance(n, 1, 0.1);
    expect_conformance(InstanceNorm(a), conformance);
  }
}

// Many chunks of rows; values far from zero.
TEST(InstanceNorm, LargeImagesAndMeans) {
  Random random;
  for (const std::int64_t groups : {0, 8, 1}) {
    const Shape shape{2, 72, 47, 41}, c{72};
    Conformance conformance{{{random.tensor(shape, 9, 11)}, {random.tensor(c)}, {random.tensor(c)}},
                            {"rows", "planes"}};
    // 17 deviations from zero: what each value and its mean lack of their last digits.
    conformance.absolute = 17 * 6 * FLT_EPSILON;
    expect_conformance(InstanceNorm({1e-5F, groups}), conformance);
  }
}

// What does not vary is exactly the bias, however far from zero.
TEST(InstanceNorm, OfOneValue) {
  Random random;
  for (const std::int64_t positions : {1, 40}) {
    const Shape shape{2, 5, positions, 1}, c{5};
    std::vector<float> values;
    for (int plane = 0; plane < 10; ++plane)
      values.insert(values.end(), static_cast<std::size_t>(positions), 1000 + static_cast<float>(plane));
    Conformance conformance{{operand(shape, values), {random.tensor(c)}, {random.tensor(c)}},
                            {"rows", "planes"}};
    conformance.absolute = positions == 1 ? 0 : 4 * FLT_EPSILON;
    expect_conformance(InstanceNorm({1e-5F}), conformance);
  }
}

TEST(Lrn, ReferenceOfAHandWorkedExample) {
  // size 2: the channel itself and the one after it (floor(1/2) = 0 before, ceil(1/2) = 1 after).
  const auto y = test::run_reference(Lrn({2, 1, 1, 2}), {operand(Shape{1, 3, 1}, {1, 2, 3})});
  EXPECT_THAT(y[0].values<float>(), near({1.0F / 6, 2.0F / 14, 3.0F / 10}));
}

TEST(Lrn, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const Shape shape = random_shape(random, static_cast<int>(random.integer(3, 4)));
    LrnAttributes a;
    a.size = i == 0 ? INT64_MAX : random.integer(1, 9);
    a.alpha = static_cast<float>(random.real(0, 2));
    a.beta = random.coin() ? 0.75F : static_cast<float>(random.real(0, 2));
    a.bias = static_cast<float>(random.real(0.5, 2));
    Conformance conformance{{{random.tensor(shape, -3, 3)}}, {"nhwc", "reference"}};
    // A sum of at most `channels` squares, scaled and shifted; the power multiplies its relative error by beta <= 2
    // and adds a few roundings.
    conformance.relative = (2 * static_cast<double>(shape[1] + 4) + 6) * FLT_EPSILON;
    conformance.absolute = FLT_MIN;
    expect_conformance(Lrn(a), conformance);
  }
}

TEST(Normalization, RefusesOperandsThatDoNotFit) {
  const auto infer = [](const Layer& layer, const std::vector<TensorDesc>& descs) {
    std::vector<const TensorDesc*> inputs;
    for (const TensorDesc& d : descs) inputs.push_back(&d);
    return layer.infer(inputs);
  };
  const TensorDesc x{Shape{2, 3, 4}};
  const TensorDesc c{Shape{3}};
  const TensorDesc bad{Shape{4}};
  EXPECT_NO_THROW(infer(BatchNorm({}), {x, c, c, c, c}));
  EXPECT_THROW(infer(BatchNorm({}), {x, c, c, c}), Error);
  EXPECT_THROW(infer(BatchNorm({}), {x, c, c, bad, c}), Error);
  EXPECT_THROW(infer(BatchNorm({}), {{Shape{3}}, c, c, c, c}), Error);
  EXPECT_THROW(infer(InstanceNorm({}), {x, c, bad}), Error);
  EXPECT_THROW(infer(InstanceNorm({}), {{Shape{2, 3}}, c, c}), Error);
  EXPECT_NO_THROW(infer(LayerNorm({}), {x, bad}));
  EXPECT_THROW(infer(LayerNorm({}), {x, c}), Error);
  EXPECT_THROW(infer(LayerNorm({3, 0, 1}), {x}), Error);
  EXPECT_THROW(infer(Lrn({}), {{Shape{3}}}), Error);
  EXPECT_THROW(infer(Lrn({}), {{Shape{1, 3, 4}, DType::i32}}), Error);
  EXPECT_THROW(BatchNorm({-1}), Error);
  EXPECT_THROW(InstanceNorm({NAN}), Error);
  EXPECT_THROW(InstanceNorm({0, -1}), Error);
  EXPECT_THROW(infer(InstanceNorm({0, 2}), {x, c, c}), Error) << "3 channels";
  EXPECT_THROW(LayerNorm({-1, 0, 4}), Error);
  EXPECT_THROW(Lrn({1, 1, 1, 0}), Error);
  EXPECT_THROW(Lrn({INFINITY, 1, 1, 1}), Error);
}

}  // namespace
}  // namespace pipit::internal
