#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>

#include "layers/ops/softmax.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::Random;

std::shared_ptr<const Tensor> tensor(const Shape& shape, std::vector<float> values) {
  return std::make_shared<const Tensor>(Tensor::from<float>(shape, std::span<const float>(values)));
}

TEST(Softmax, ReferenceOfHandWorkedExamples) {
  const auto x = tensor(Shape{2, 2}, {0, std::log(3.0F), 1000, 1000});
  auto y = test::run_reference(Softmax(SoftmaxAttributes{}), {{x}});
  EXPECT_THAT(y[0].values<float>(),
              testing::Pointwise(testing::FloatNear(1e-7F), {0.25F, 0.75F, 0.5F, 0.5F}));
  y = test::run_reference(Softmax({0, false, false}), {{tensor(Shape{2, 1}, {0, std::log(3.0F)})}});
  EXPECT_THAT(y[0].values<float>(), testing::Pointwise(testing::FloatNear(1e-7F), {0.25F, 0.75F}));
  y = test::run_reference(Softmax({-1, true, false}), {{tensor(Shape{2}, {-5000, 0})}});
  EXPECT_THAT(y[0].values<float>(), testing::ElementsAre(-5000, 0));
  // From axis 0 on, all four elements are one group.
  y = test::run_reference(Softmax({0, false, true}), {{tensor(Shape{2, 2}, {7, 7, 7, 7})}});
  EXPECT_THAT(y[0].values<float>(), testing::ElementsAre(0.25F, 0.25F, 0.25F, 0.25F));
  y = test::run_reference(Softmax({2, false, true}), {{tensor(Shape{2, 2}, {7, 8, 9, -1})}});
  EXPECT_THAT(y[0].values<float>(), testing::ElementsAre(1, 1, 1, 1));
}

TEST(Softmax, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 80 && !HasFailure(); ++i) {
    std::vector<std::int64_t> dims;
    for (std::int64_t rank = random.integer(1, 4); rank > 0; --rank) dims.push_back(random.integer(1, 19));
    const Shape shape(dims);
    SoftmaxAttributes a;
    a.axis = random.integer(-shape.rank(), shape.rank() - 1);
    a.log = random.coin();
    a.flatten_from_axis = random.coin();
    const SoftmaxGroups groups = softmax_groups(a, shape);
    Conformance conformance{{{random.tensor(shape, -20, 20)}}, {"reference", "strided"}};
    const bool channels = shape.rank() >= 3 && groups.begin == 1 && groups.end == 2;
    if (groups.end == shape.rank() || channels) conformance.expected.emplace_back("contiguous");
    std::int64_t count = 1;
    for (int d = groups.begin; d < groups.end; ++d) count *= shape[d];
    // x - max rounds once, an absolute error of |x - max| / 2 epsilon <= 20 epsilon that exp turns into a relative
    // one; exp is good to 2 ulp; the sum of positive terms adds count roundings, its reciprocal and the product two.
    // The logarithm keeps the relative error of the sum as an absolute one and rounds twice more at a magnitude of
    // 40 + ln count.
    const double roundings = static_cast<double>(count) + 47;
    conformance.relative = a.log ? 0 : roundings * FLT_EPSILON;
    conformance.absolute = a.log ? (roundings + 50) * FLT_EPSILON : FLT_MIN;
    expect_conformance(Softmax(a), conformance);
  }
}

// Many rows of a few registers and what is left of one.
TEST(Softmax, ShortRowsMatchTheReference) {
  Random random;
  for (const std::int64_t count : {1, 2, 7, 15, 16, 17, 31, 32, 33, 56, 100}) {
    for (const bool log : {false, true}) {
      Conformance conformance{{{random.tensor(Shape{3, 5, 11, count}, -20, 20)}}, {"contiguous"}};
      const double roundings = static_cast<double>(count) + 47;  // as above
      conformance.relative = log ? 0 : roundings * FLT_EPSILON;
      conformance.absolute = log ? (roundings + 50) * FLT_EPSILON : FLT_MIN;
      expect_conformance(Softmax({.axis = 3, .log = log}), conformance);
    }
  }
}

TEST(Softmax, LongRows) {
  Random random;
  Conformance conformance{{{random.tensor(Shape{3, 100003}, -3, 3)}}, {"contiguous"}};
  // 16 partial sums of positive terms: at most count / 16 + 4 roundings each.
  conformance.relative = (100003.0 / 16 + 4 + 12) * FLT_EPSILON;
  expect_conformance(Softmax(SoftmaxAttributes{}), conformance);
}

// More neighbours than are normalized together, more rows than are summed up together, in every layout.
TEST(Softmax, AnyAxisOfAnImageInBothLayouts) {
  Random random;
  for (const bool log : {false, true}) {
    for (std::int64_t axis = 0; axis < 4; ++axis) {
      std::array<std::int64_t, 4> dims{2, 3, 5, 29};
      dims[static_cast<std::size_t>(axis)] = 71;
      Conformance conformance{{{random.tensor(Shape(dims), -20, 20)}}, {"strided"}};
      // As above; sums of 64 terms and then of two.
      constexpr double kRoundings = 65 + 46;
      conformance.relative = log ? 0 : kRoundings * FLT_EPSILON;
      conformance.absolute = log ? (kRoundings + 50) * FLT_EPSILON : FLT_MIN;
      expect_conformance(Softmax({axis, log, false}), conformance);
    }
  }
}

TEST(Softmax, NanFillsItsGroupOnly) {
  const auto x = tensor(Shape{2, 3}, {1, NAN, 2, 1, 1, 1});
  expect_conformance(Softmax(SoftmaxAttributes{}), {{{x}}, {"contiguous"}, 0, 2 * FLT_EPSILON});
  const auto y = test::run_reference(Softmax(SoftmaxAttributes{}), {{x}});
  EXPECT_TRUE(std::isnan(y[0].values<float>()[0]));
  EXPECT_FLOAT_EQ(y[0].values<float>()[3], 1.0F / 3);
  expect_conformance(Softmax({0, false, false}),
                     {{{tensor(Shape{3, 2}, {1, 1, 2, NAN, 3, 1})}}, {"strided"}, 0, 2 * FLT_EPSILON});
}

TEST(Softmax, EmptyTensorsAndBadAxes) {
  expect_conformance(Softmax(SoftmaxAttributes{}), {{{tensor(Shape{2, 0}, {})}}, {"contiguous"}});
  expect_conformance(Softmax({0, false, false}), {{{tensor(Shape{2, 0}, {})}}, {"reference"}});
  const TensorDesc x{Shape{2, 3}};
  const TensorDesc* inputs[] = {&x};
  EXPECT_THROW(Softmax({2, false, false}).infer(inputs), Error);
  EXPECT_THROW(Softmax({-3, false, false}).infer(inputs), Error);
  EXPECT_THROW(Softmax({3, false, true}).infer(inputs), Error);
  const TensorDesc scalar{Shape{}};
  const TensorDesc* none[] = {&scalar};
  EXPECT_THROW(Softmax(SoftmaxAttributes{}).infer(none), Error);
}

TEST(Softmax, FlatteningSeveralDimensionsNeedsRowMajor) {
  EXPECT_EQ(Softmax({1, false, true}).layout_preference(), LayoutPreference::row_major);
  EXPECT_EQ(Softmax({1, false, false}).layout_preference(), LayoutPreference::any);
}

}  // namespace
}  // namespace pipit::internal
