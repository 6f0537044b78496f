#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "layers/ops/reduce.h"
#include "tests/layers/conformance.h"
#include "tests/layers/values.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::kInf;
using test::kNaN;
using test::make;
using test::results;
using ::testing::ElementsAre;

constexpr ReduceKind kKinds[] = {
    ReduceKind::sum, ReduceKind::mean, ReduceKind::max,        ReduceKind::min,     ReduceKind::prod,
    ReduceKind::l1,  ReduceKind::l2,   ReduceKind::sum_square, ReduceKind::log_sum, ReduceKind::log_sum_exp};

// Both sides sum in double, in different orders: k terms of at most 1 differ by less than k^2 2^-53, far below the
// final rounding to float, which may then fall to either neighbour.
constexpr double kRelative = 0x1p-23;
constexpr double kAbsolute = 1e-9;

// In log_sum_exp each exponential is within 1.5 ulp, and its argument, a difference below 4, was rounded: a relative
// error of the sum, which the logarithm makes an absolute one.
double absolute_of(ReduceKind kind) {
  return kind == ReduceKind::log_sum_exp ? 1.5 * 0x1p-23 + 4 * 0x1p-24 : kAbsolute;
}

TEST(Reduce, KernelsMatchTheReferenceOnEverySetOfAxes) {
  test::Random random;
  const Shape shape{2, 5, 3, 7};
  for (const ReduceKind kind : kKinds) {
    for (unsigned set = 0; set < 16; ++set) {
      std::vector<std::int64_t> axes;
      for (int d = 0; d < 4; ++d) {
        if (((set >> d) & 1U) != 0) axes.push_back(random.coin() ? d : d - 4);
      }
      const double low = kind == ReduceKind::log_sum ? 0.1 : -1;
      Conformance c{.inputs = {{random.tensor(shape, low, 1)}}, .expected = {"vector"}};
      c.relative = kRelative;
      c.absolute = absolute_of(kind);
      for (const bool keep_dims : {true, false}) test::expect_conformance(Reduce({kind, axes, keep_dims}), c);
    }
  }
}

TEST(Reduce, FastKernelTakesSpatialMeansInBothLayouts) {
  test::Random random;
  for (const ReduceKind kind : kKinds) {
    // Fewer, as many and more channels than one block; one position; one channel; long rows.
    for (const Shape& shape : {Shape{1, 31, 7, 7}, Shape{2, 32, 5, 3}, Shape{1, 77, 9, 4}, Shape{3, 40, 1, 1},
                               Shape{2, 1, 13, 17}, Shape{1, 3, 67, 61}}) {
      const double low = kind == ReduceKind::log_sum ? 0.1 : -1;
      Conformance c{.inputs = {{random.tensor(shape, low, 1)}}, .expected = {"vector"}};
      c.relative = kRelative;
      c.absolute = absolute_of(kind);
      test::expect_conformance(Reduce({kind, {2, 3}, true}), c);
      test::expect_conformance(Reduce({kind, {}, false}), c);
      test::expect_conformance(Reduce({kind, {1}, true}), c);
    }
  }
}

TEST(Reduce, FastKernelOfInfinities) {
  for (const std::vector<float>& x :
       {std::vector<float>{kInf, 1, 2}, {-kInf, -kInf}, {-kInf, 3}, {kNaN, 1}, {kInf, -kInf}}) {
    for (const ReduceKind kind : kKinds) {
      Conformance c{.inputs = {{make(x)}}, .expected = {"vector"}};
      c.relative = kRelative;
      test::expect_conformance(Reduce({kind, {0}, false}), c);
    }
  }
}

TEST(Reduce, ExtremaPropagateNaN) {
  std::vector<float> values(200, 1.0F);
  for (const std::size_t position : {0U, 31U, 32U, 100U, 199U}) {
    std::vector<float> x = values;
    x[position] = kNaN;
    for (const ReduceKind kind : {ReduceKind::max, ReduceKind::min}) {
      EXPECT_TRUE(std::isnan(results<float>(Reduce({kind, {}, false}), {make(x)})[0]));
      for (const Shape& shape : {Shape{200}, Shape{4, 50}}) {
        test::expect_conformance(Reduce({kind, {0}, false}),
                                 {.inputs = {{make<float>(shape, x)}}, .expected = {"vector"}});
      }
    }
  }
}

template <typename T>
T reduce(ReduceKind kind, const std::vector<T>& x) {
  return results<T>(Reduce({kind, {}, false}), {make(x)}).at(0);
}

TEST(Reduce, ReferenceFollowsOnnx) {
  const std::vector<double> x = {3, -4, 2};
  EXPECT_EQ(reduce(ReduceKind::sum, x), 1);
  EXPECT_DOUBLE_EQ(reduce(ReduceKind::mean, x), 1.0 / 3);
  EXPECT_EQ(reduce(ReduceKind::max, x), 3);
  EXPECT_EQ(reduce(ReduceKind::min, x), -4);
  EXPECT_EQ(reduce(ReduceKind::prod, x), -24);
  EXPECT_EQ(reduce(ReduceKind::l1, x), 9);
  EXPECT_DOUBLE_EQ(reduce(ReduceKind::l2, x), std::sqrt(29.0));
  EXPECT_EQ(reduce(ReduceKind::sum_square, x), 29);
  EXPECT_EQ(reduce<double>(ReduceKind::log_sum, {1, 2, 5}), std::log(8.0));
  EXPECT_DOUBLE_EQ(reduce(ReduceKind::log_sum_exp, x), std::log(std::exp(3) + std::exp(-4) + std::exp(2)));
  EXPECT_EQ(reduce<float>(ReduceKind::log_sum_exp, {1000, -kInf}), 1000) << "must not overflow";
  const auto axes = Reduce({ReduceKind::sum, {-1, 0}, true});
  EXPECT_THAT(results<float>(axes, {test::iota(Shape{2, 2, 3})}), ElementsAre(3 + 21, 12 + 30));
  // 1 is lost beside 2^25 in float, not in double.
  EXPECT_EQ(reduce<float>(ReduceKind::sum, {0x1p25F, 1, 1, 1, 1}), 0x1p25F + 4);
}

TEST(Reduce, OfNothing) {
  EXPECT_EQ(reduce<float>(ReduceKind::sum, {}), 0);
  EXPECT_EQ(reduce<float>(ReduceKind::prod, {}), 1);
  EXPECT_EQ(reduce<float>(ReduceKind::max, {}), -kInf);
  EXPECT_EQ(reduce<float>(ReduceKind::min, {}), kInf);
  EXPECT_EQ(reduce<float>(ReduceKind::log_sum_exp, {}), -kInf);
  EXPECT_TRUE(std::isnan(reduce<float>(ReduceKind::mean, {})));
  EXPECT_EQ(reduce<std::int64_t>(ReduceKind::prod, {}), 1);
  EXPECT_THROW(reduce<std::int64_t>(ReduceKind::max, {}), Error);
  EXPECT_THROW(reduce<std::int64_t>(ReduceKind::mean, {}), Error);
  EXPECT_TRUE(
      results<std::int64_t>(Reduce({ReduceKind::max, {0}, true}), {test::iota<std::int64_t>(Shape{2, 0})})
          .empty());
}

TEST(Reduce, Integers) {
  using I = std::int64_t;
  EXPECT_EQ(reduce<I>(ReduceKind::prod, {2, 3, -7}), -42);
  EXPECT_EQ(reduce<I>(ReduceKind::mean, {-3, -4}), -3) << "truncates";
  EXPECT_EQ(reduce<I>(ReduceKind::sum, {INT64_MAX, 1}), INT64_MIN) << "wraps";
  EXPECT_EQ(reduce<I>(ReduceKind::l1, {INT64_MIN, 0}), INT64_MIN) << "wraps";
  EXPECT_EQ(reduce<std::int8_t>(ReduceKind::sum, {100, 100}), -56) << "wraps";
  EXPECT_EQ(reduce<std::uint8_t>(ReduceKind::max, {3, 200}), 200);
  EXPECT_EQ(reduce<std::int8_t>(ReduceKind::min, {3, -100}), -100);
  EXPECT_EQ(results<bool>(Reduce({ReduceKind::max, {}, false}), {make<bool>({false, true})})[0], true);
  EXPECT_THROW(reduce<I>(ReduceKind::l2, {1}), UnsupportedError);
}

TEST(Reduce, RefusesBadAxes) {
  const auto infer = [](std::vector<std::int64_t> axes) {
    return test::infer(Reduce({ReduceKind::sum, std::move(axes), true}), {{Shape{2, 3}}});
  };
  EXPECT_THROW(infer({2}), Error);
  EXPECT_THROW(infer({-3}), Error);
  EXPECT_THROW(infer({INT64_MIN}), Error);
  EXPECT_THROW(infer({1, -1}), Error);
  EXPECT_EQ(infer({-1})[0].shape, (Shape{2, 1}));
}

TEST(ArgMax, PositionsTiesAndNaN) {
  const auto run = [](ArgMaxAttributes a, const std::vector<float>& x) {
    return results<std::int64_t>(ArgMax(a), {make(x)}).at(0);
  };
  EXPECT_EQ(run({}, {1, 5, 5, 2}), 1);
  EXPECT_EQ(run({.select_last = true}, {1, 5, 5, 2}), 2);
  EXPECT_EQ(run({.minimum = true}, {3, 1, 1, 2}), 1);
  EXPECT_EQ(run({.select_last = true, .minimum = true}, {3, 1, 1, 2}), 2);
  EXPECT_EQ(run({}, {1, kNaN, kInf, kNaN}), 1);
  EXPECT_EQ(run({.select_last = true}, {1, kNaN, kInf, kNaN}), 3);
  EXPECT_EQ(run({.minimum = true}, {1, kNaN, -kInf}), 1);
  EXPECT_EQ(run({}, {-kInf, -kInf}), 0);
  EXPECT_THAT(
      results<std::int64_t>(ArgMax({.axis = -2}), {make<std::int8_t>(Shape{2, 3}, {1, 9, 3, 4, 5, 3})}),
      ElementsAre(1, 0, 0));
}

TEST(ArgMax, EveryLayout) {
  test::Random random;
  for (int axis = 0; axis < 4; ++axis) {
    for (const bool keep_dims : {true, false}) {
      test::expect_conformance(ArgMax({.axis = axis, .keep_dims = keep_dims}),
                               {.inputs = {{random.tensor(Shape{3, 4, 5, 2})}}, .expected = {"vector"}});
    }
  }
}

// Ties, NaN, zeros of both signs and infinities, in long rows, short rows and columns.
TEST(ArgMax, FastKernelMatchesTheReference) {
  test::Random random;
  const float choices[] = {0.0F, -0.0F, 1, 1, -1, 2, kInf, -kInf, kNaN};
  for (const Shape& shape :
       {Shape{2, 200}, Shape{1, 19, 6, 7}, Shape{1, 2, 70, 1}, Shape{3, 64, 3, 40}, Shape{1, 1, 1, 1}}) {
    for (const std::int64_t kinds : {4, 6, 8, 9}) {
      std::vector<float> values(static_cast<std::size_t>(shape.elements()));
      for (float& v : values) v = choices[random.integer(0, kinds - 1)];
      for (int axis = 0; axis < shape.rank(); ++axis) {
        test::expect_conformance(ArgMax({.axis = axis,
                                         .keep_dims = random.coin(),
                                         .select_last = random.coin(),
                                         .minimum = random.coin()}),
                                 {.inputs = {{make<float>(shape, values)}}, .expected = {"vector"}});
      }
    }
  }
}

TEST(ArgMax, RefusesEmptyAndBool) {
  EXPECT_THROW(test::infer(ArgMax(ArgMaxAttributes{}), {{Shape{0, 2}}}), Error);
  EXPECT_THROW(test::infer(ArgMax(ArgMaxAttributes{}), {{Shape{}}}), Error);
  EXPECT_THROW(test::infer(ArgMax(ArgMaxAttributes{}), {{Shape{2}, DType::boolean}}), Error);
}

}  // namespace
}  // namespace pipit::internal
