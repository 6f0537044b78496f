#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "engine/platform/float_mode.h"
#include "layers/cpu/elementwise/elementwise_loops.h"
#include "layers/cpu/vector/vector_math.h"
#include "layers/evaluate.h"
#include "layers/ops/unary.h"
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

constexpr double kUnit = 0x1p-24;  // unit roundoff of f32
constexpr double kRange = 10;      // |x| of random inputs

// What the fast kernel may differ by from the exact value on [-kRange, kRange].
struct Bound {
  UnaryAttributes attributes;
  double relative;  // in unit roundoffs
  double absolute;  // in unit roundoffs
};

// Exact functions and single correctly rounded operations have no error. The others: twice the ulps of
// vector_math plus one per further operation; where a sum may cancel, its operands' size times that.
const Bound kBounds[] = {
    {{UnaryKind::relu}, 0, 0},
    {{UnaryKind::leaky_relu, 0.01}, 2, 0},
    {{UnaryKind::elu, 1.5}, 6, 0},
    {{UnaryKind::selu, 1.67326319, 1.05070102}, 8, 0},
    {{UnaryKind::celu, 0.7}, 8, 0},
    {{UnaryKind::thresholded_relu, 0.5}, 0, 0},
    {{UnaryKind::clip, -2.5, 3}, 0, 0},
    {{UnaryKind::sigmoid}, 6, 0},
    {{UnaryKind::tanh}, 6, 0},
    {{UnaryKind::hard_sigmoid, 0.2, 0.5}, 0, 4 * (0.2 * kRange + 0.5)},
    {{UnaryKind::hard_swish}, 1, kRange * 4 * (kRange / 6 + 0.5)},
    {{UnaryKind::silu}, 7, 0},
    // What the argument of e^x is off by is a relative error of the result: alpha and the product are rounded.
    {{UnaryKind::swish, 1.702}, 7 + 2 * 1.702 * kRange, 0},
    {{UnaryKind::mish}, 12, 0},
    {{UnaryKind::gelu}, 2, kRange * 3},
    {{UnaryKind::gelu_tanh}, 2, kRange * 4},
    {{UnaryKind::erf}, 6, 0},
    {{UnaryKind::exp}, 3, 0},
    {{UnaryKind::sqrt}, 0, 0},
    {{UnaryKind::reciprocal}, 0, 0},
    {{UnaryKind::log}, 2, 0},
    {{UnaryKind::softplus}, 6, 0},
    {{UnaryKind::softsign}, 2, 0},
    {{UnaryKind::neg}, 0, 0},
    {{UnaryKind::abs}, 0, 0},
    {{UnaryKind::sign}, 0, 0},
    {{UnaryKind::floor}, 0, 0},
    {{UnaryKind::ceil}, 0, 0},
    {{UnaryKind::round}, 0, 0},
    {{UnaryKind::sin}, 2, 0},
    {{UnaryKind::cos}, 2, 0},
    {{UnaryKind::tan}, 0, 0},
    {{UnaryKind::asin}, 0, 0},
    {{UnaryKind::acos}, 0, 0},
    {{UnaryKind::atan}, 0, 0},
    {{UnaryKind::sinh}, 0, 0},
    {{UnaryKind::cosh}, 0, 0},
    {{UnaryKind::asinh}, 0, 0},
    {{UnaryKind::acosh}, 0, 0},
    {{UnaryKind::atanh}, 0, 0},
    {{UnaryKind::shrink, 0.5, 0.25}, 0, 0},
    {{UnaryKind::pow, 2}, 0, 0},
};

// Powers by themselves: every loop, and what the general one tells apart.
const Bound kPowers[] = {
    {{UnaryKind::pow, 0}, 0, 0},          {{UnaryKind::pow, 1}, 2, 0},     {{UnaryKind::pow, 2}, 1, 0},
    {{UnaryKind::pow, 3}, 2, 0},          {{UnaryKind::pow, 4}, 2, 0},     {{UnaryKind::pow, 7}, 2, 0},
    {{UnaryKind::pow, -1}, 1, 0},         {{UnaryKind::pow, -2}, 2, 0},    {{UnaryKind::pow, -3}, 2, 0},
    {{UnaryKind::pow, 0.5}, 1, 0},        {{UnaryKind::pow, -0.5}, 3, 0},  {{UnaryKind::pow, 1.0F / 3}, 4, 0},
    {{UnaryKind::pow, 0x1p24 + 2}, 2, 0}, {{UnaryKind::pow, 1.5}, 2, 0},   {{UnaryKind::pow, -2.75}, 2, 0},
    {{UnaryKind::pow, kInf}, 0, 0},       {{UnaryKind::pow, -kInf}, 0, 0}, {{UnaryKind::pow, kNaN}, 0, 0},
};

std::vector<Bound> all_bounds() {
  std::vector<Bound> all(std::begin(kBounds), std::end(kBounds));
  all.insert(all.end(), std::begin(kPowers), std::end(kPowers));
  return all;
}

TEST(Unary, BoundsCoverEveryFloatFunction) {
  EXPECT_EQ(std::size(kBounds), static_cast<std::size_t>(UnaryKind::logical_not));
}

TEST(Unary, FastKernelMatchesReference) {
  test::Random random;
  for (const Bound& bound : all_bounds()) {
    // Odd, one, several chunks of work, and empty.
    for (const Shape& shape : {Shape{2, 3, 5, 7}, Shape{1}, Shape{3, 17, 301}, Shape{2, 0, 3}, Shape{}}) {
      Conformance c{.inputs = {{random.tensor(shape, -kRange, kRange)}}, .expected = {"vector"}};
      c.relative = bound.relative * kUnit;
      c.absolute = bound.absolute * kUnit;
      test::expect_conformance(Unary(bound.attributes), c);
    }
  }
}

// Where blocks of angles are reduced, and where one of them is too large.
TEST(Unary, FastKernelOfLargeAngles) {
  std::vector<float> x;
  for (int i = 0; i < 400; ++i) x.push_back(static_cast<float>(i % 3 - 1) * std::ldexp(1.37F, i % 100));
  x.push_back(kInf);
  x.push_back(kNaN);
  for (const UnaryKind kind : {UnaryKind::sin, UnaryKind::cos}) {
    Conformance c{.inputs = {{make(x)}}, .expected = {"vector"}};
    c.relative = 2 * kUnit;
    test::expect_conformance(Unary({kind}), c);
  }
}

TEST(Unary, TypedKernelMatchesReference) {
  test::Random random;
  for (const UnaryKind kind : {UnaryKind::relu, UnaryKind::clip, UnaryKind::neg, UnaryKind::abs,
                               UnaryKind::sign, UnaryKind::floor, UnaryKind::ceil, UnaryKind::round}) {
    for (const DType type : {DType::i8, DType::u8, DType::i32, DType::i64}) {
      if (type == DType::u8 && kind == UnaryKind::neg) continue;
      test::expect_conformance(
          Unary({kind, 2, 50}),
          {.inputs = {{random.tensor(Shape{2, 3, 5, 300}, type == DType::u8 ? 0 : -99, 100, type)}},
           .expected = {"typed"}});
    }
  }
  test::expect_conformance(
      Unary({UnaryKind::logical_not}),
      {.inputs = {{random.tensor(Shape{2, 3, 5, 7}, -1, 1, DType::boolean)}}, .expected = {"typed"}});
}

TEST(Unary, FastKernelAgreesOnSpecialValues) {
  const std::vector<float> x = {0.0F,   -0.0F,  kInf,  -kInf,  kNaN,   1e-40F,  -1e-40F,
                                3e38F,  -3e38F, 88.0F, -88.0F, 104.0F, -104.0F, 20.5F,
                                -20.5F, 0.5F,   1.0F,  -1.0F,  -0.5F,  -2.0F};
  for (const Bound& bound : all_bounds()) {
    const Unary layer(bound.attributes);
    const std::vector<float> expected = results<float>(layer, {make(x)});
    std::vector<float> got = x;
    unary_span(bound.attributes, got.data(), got.data(), {static_cast<std::int64_t>(got.size())});
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isfinite(expected[i]) && std::isfinite(got[i])) {
        const double tolerance = kUnit * (bound.relative * std::abs(expected[i]) + bound.absolute +
                                          (std::isnan(x[i]) ? 0 : std::abs(x[i]) * 2)) +
                                 0x1p-125;
        EXPECT_NEAR(got[i], expected[i], tolerance) << layer.summary() << " of " << x[i];
      } else {
        const bool same = got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]));
        EXPECT_TRUE(same) << layer.summary() << " of " << x[i] << ": " << got[i] << ", expected "
                          << expected[i];
      }
    }
  }
}

// Sessions take denormals for zero: comparisons do, what has a step at 0 does not, in the reference neither.
TEST(Unary, StepsAtZeroKnowDenormals) {
  const float most = std::bit_cast<float>(0x7fffffU), least = std::bit_cast<float>(0x800000U);
  const std::vector<float> x = {1e-40F, -1e-40F, 1e-45F, -1e-45F, 0.0F,   -0.0F, 2.0F, -kInf, kInf,
                                kNaN,   most,    -most,  least,   -least, -0.5F, 0.5F, -1.0F, 1.5F};
  for (const UnaryKind kind : {UnaryKind::sign, UnaryKind::floor, UnaryKind::ceil}) {
    const Unary layer(UnaryAttributes{kind});
    const std::vector<std::shared_ptr<const Tensor>> inputs = {
        std::make_shared<Tensor>(Tensor::from<float>(Shape{static_cast<std::int64_t>(x.size())}, x))};
    std::vector<float> got(x.size(), 7.0F);
    std::vector<Tensor> reference;
    {
      const ScopedFloatMode mode(FloatMode().without_denormals());
      unary_span(layer.attributes(), x.data(), got.data(), {static_cast<std::int64_t>(x.size())});
      reference = evaluate(layer, inputs);
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = kind == UnaryKind::floor  ? std::floor(x[i])
                           : kind == UnaryKind::ceil ? std::ceil(x[i])
                           : x[i] > 0                ? 1.0
                           : x[i] < 0                ? -1.0
                                                     : x[i];
      for (const float value : {got[i], reference[0].values<float>()[i]}) {
        if (std::isnan(x[i])) {
          EXPECT_TRUE(std::isnan(value)) << unary_name(kind);
        } else {
          EXPECT_EQ(value, exact) << unary_name(kind) << " of " << x[i];
          EXPECT_EQ(std::signbit(value), std::signbit(exact)) << unary_name(kind) << " of " << x[i];
        }
      }
    }
  }
}

// Largest error of f in units in the last place of the exact result, over every 997th float of [low, high].
template <typename F, typename Exact>
double worst_ulps(float low, float high, F f, Exact exact) {
  double worst = 0;
  for (std::uint32_t bits = 0; bits < 0xFF800000U; bits += 997) {
    const auto x = std::bit_cast<float>(bits);
    if (!(x >= low && x <= high)) continue;
    const double want = exact(static_cast<double>(x));
    const int exponent = std::max(want == 0 ? -126 : std::ilogb(want), -126);
    worst = std::max(worst, std::abs(static_cast<double>(f(x)) - want) / std::ldexp(1.0, exponent - 23));
  }
  return worst;
}

TEST(VectorMath, ErrorsStayWithinTheDocumentedBounds) {
  EXPECT_LE(
      worst_ulps(
          -110, 88.7F, [](float x) { return vector_math::exp(x); }, [](double x) { return std::exp(x); }),
      1.5);
  EXPECT_LE(worst_ulps(
                -87.3F, 0, [](float x) { return vector_math::exp_of_negative(x); },
                [](double x) { return std::exp(x); }),
            1.5);
  EXPECT_LE(
      worst_ulps(
          -1e30F, 88, [](float x) { return vector_math::expm1(x); }, [](double x) { return std::expm1(x); }),
      2);
  EXPECT_LE(worst_ulps(
                -87, 1e30F, [](float x) { return vector_math::sigmoid(x); },
                [](double x) { return 1 / (1 + std::exp(-x)); }),
            3);
  EXPECT_LE(
      worst_ulps(
          -1e30F, 1e30F, [](float x) { return vector_math::tanh(x); }, [](double x) { return std::tanh(x); }),
      3);
  EXPECT_LE(
      worst_ulps(
          -1e30F, 1e30F, [](float x) { return vector_math::erf(x); }, [](double x) { return std::erf(x); }),
      3);
  for (const float power : {0.1F, 0.75F, 1.0F / 3, -0.3F, 1.9F, 2.5F, -4.2F, 11.0F}) {
    const float edge = std::pow(3e38F, 1 / power);  // of what does not overflow
    EXPECT_LE(worst_ulps(
                  power < 0 ? edge : 0, power < 0 ? 3e38F : edge,
                  [=](float x) { return vector_math::pow(x, power); },
                  [=](double x) { return std::pow(x, static_cast<double>(power)); }),
              1)
        << power;
  }
  EXPECT_LE(
      worst_ulps(
          1e-45F, 3.4e38F, [](float x) { return vector_math::log(x); }, [](double x) { return std::log(x); }),
      1);
  EXPECT_LE(worst_ulps(
                0, 1, [](float x) { return vector_math::log1p_of_fraction(x); },
                [](double x) { return std::log1p(x); }),
            1);
  for (const int quarter : {0, 1}) {
    EXPECT_LE(worst_ulps(
                  -vector_math::kLargestAngle, vector_math::kLargestAngle,
                  [=](float x) { return vector_math::sine(x, quarter); },
                  [=](double x) { return quarter == 0 ? std::sin(x) : std::cos(x); }),
              1);
  }
  EXPECT_EQ(vector_math::log(0.0F), -kInf);
  EXPECT_EQ(vector_math::log(-0.0F), -kInf);
  EXPECT_EQ(vector_math::log(kInf), kInf);
  EXPECT_TRUE(std::isnan(vector_math::log(-1.0F)));
  EXPECT_TRUE(std::isnan(vector_math::log(-kInf)));
  EXPECT_TRUE(std::isnan(vector_math::log(kNaN)));
  EXPECT_TRUE(std::isnan(vector_math::log1p_of_fraction(kNaN)));
  EXPECT_TRUE(std::isnan(vector_math::sine(kNaN, 0)));
  EXPECT_EQ(vector_math::exp(89.0F), kInf);
  EXPECT_EQ(vector_math::exp(-104.0F), 0.0F);
  EXPECT_EQ(vector_math::exp_of_negative(-87.4F), 0.0F);
  EXPECT_EQ(vector_math::exp_of_negative(-3e38F), 0.0F);
  EXPECT_EQ(vector_math::exp_of_negative(-kInf), 0.0F);
  EXPECT_EQ(vector_math::exp_of_negative(0.0F), 1.0F);
  EXPECT_TRUE(std::isnan(vector_math::exp_of_negative(NAN)));
  EXPECT_TRUE(std::isnan(vector_math::exp(kNaN)));
}

// The loops of the instruction set at hand over every 997th float.
TEST(Unary, SpansStayWithinTheirBounds) {
  struct Function {
    UnaryKind kind;
    double low, high, ulps;
  };
  for (const Function& f : {Function{UnaryKind::exp, -87, 88, 1.5},
                            {UnaryKind::exp, 88, 88.7, 3},
                            {UnaryKind::tanh, -1e30, 1e30, 3},
                            {UnaryKind::erf, -1e30, 1e30, 3},
                            {UnaryKind::log, 1.2e-38, 3.4e38, 1},
                            {UnaryKind::softplus, -80, 1e30, 2},
                            {UnaryKind::sin, -1e30, 1e30, 1},
                            {UnaryKind::cos, -1e30, 1e30, 1}}) {
    std::vector<float> x;
    for (std::uint32_t bits = 0; bits < 0xFF800000U; bits += 997) {
      const auto v = std::bit_cast<float>(bits);
      if (v >= static_cast<float>(f.low) && v <= static_cast<float>(f.high) && std::abs(v) > 0x1p-120F)
        x.push_back(v);
    }
    std::vector<float> y(x.size());
    unary_span({f.kind}, x.data(), y.data(), {static_cast<std::int64_t>(x.size())});
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double want = unary_value({f.kind}, static_cast<double>(x[i]));
      const int exponent = std::max(want == 0 ? -126 : std::ilogb(want), -126);
      worst = std::max(worst, std::abs(static_cast<double>(y[i]) - want) / std::ldexp(1.0, exponent - 23));
    }
    EXPECT_LE(worst, f.ulps) << unary_name(f.kind);
  }
}

double reference(UnaryKind kind, double x, double alpha = 0, double beta = 0) {
  return results<double>(Unary({kind, alpha, beta}), {make<double>({x})})[0];
}

// Values from the formulas in the ONNX operator specifications.
TEST(Unary, ReferenceFollowsOnnx) {
  EXPECT_EQ(reference(UnaryKind::relu, -3), 0);
  EXPECT_EQ(reference(UnaryKind::leaky_relu, -3, 0.5), -1.5);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::elu, -1, 2), 2 * (std::exp(-1.0) - 1));
  EXPECT_DOUBLE_EQ(reference(UnaryKind::selu, -1, 2, 3), 3 * (2 * std::exp(-1.0) - 2));
  EXPECT_EQ(reference(UnaryKind::selu, 1.5, 2, 3), 4.5);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::celu, -1, 2), 2 * (std::exp(-0.5) - 1));
  EXPECT_EQ(reference(UnaryKind::celu, 1, 2), 1);
  EXPECT_EQ(reference(UnaryKind::thresholded_relu, 1, 1), 0);
  EXPECT_EQ(reference(UnaryKind::thresholded_relu, 1.5, 1), 1.5);
  EXPECT_EQ(reference(UnaryKind::clip, 5, -1, 2), 2);
  EXPECT_EQ(reference(UnaryKind::clip, 5, 3, 2), 2) << "the upper bound wins";
  EXPECT_DOUBLE_EQ(reference(UnaryKind::sigmoid, 0.75), 0.679178699175393);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::hard_sigmoid, 1, 0.2, 0.5), 0.7);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::hard_swish, 1), 2.0 / 3);
  EXPECT_EQ(reference(UnaryKind::hard_swish, -3), 0);
  EXPECT_EQ(reference(UnaryKind::hard_swish, 4), 4);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::silu, 0.75), 0.75 * 0.679178699175393);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::swish, 0.5, 1.5), 0.5 * 0.679178699175393);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::mish, 1), std::tanh(std::log(1 + std::exp(1.0))));
  EXPECT_DOUBLE_EQ(reference(UnaryKind::gelu, 1), 0.841344746068543);
  EXPECT_NEAR(reference(UnaryKind::gelu_tanh, 1), 0.8411919906082768, 1e-15);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::softplus, 1), std::log(1 + std::exp(1.0)));
  EXPECT_EQ(reference(UnaryKind::softplus, 1000), 1000);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::softplus, -700), std::exp(-700.0));
  EXPECT_EQ(reference(UnaryKind::softsign, -3), -0.75);
  EXPECT_EQ(reference(UnaryKind::sign, -3), -1);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::tan, 0.5), 0.5463024898437905);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::asin, 0.5), 0.5235987755982989);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::acos, 0.5), 1.0471975511965979);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::atan, 0.5), 0.4636476090008061);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::sinh, 0.5), 0.5210953054937474);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::cosh, 0.5), 1.1276259652063807);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::asinh, 0.5), 0.48121182505960347);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::acosh, 1.5), 0.9624236501192069);
  EXPECT_DOUBLE_EQ(reference(UnaryKind::atanh, 0.5), 0.5493061443340548);
  EXPECT_TRUE(std::isnan(reference(UnaryKind::asin, 1.5)));
  EXPECT_EQ(reference(UnaryKind::shrink, -2, 0.5, 0.25), -1.75);
  EXPECT_EQ(reference(UnaryKind::shrink, 2, 0.5, 0.25), 1.75);
  EXPECT_EQ(reference(UnaryKind::shrink, 0.5, 0.5, 0.25), 0);
  EXPECT_EQ(reference(UnaryKind::round, 2.5), 2) << "half to even";
  EXPECT_EQ(reference(UnaryKind::round, -3.5), -4);
  EXPECT_EQ(reference(UnaryKind::reciprocal, -4), -0.25);
}

TEST(Unary, Integers) {
  const auto run = [](UnaryKind kind, const std::vector<std::int8_t>& x, double alpha = 0, double beta = 0) {
    return results<std::int8_t>(Unary({kind, alpha, beta}), {make(x)});
  };
  EXPECT_THAT(run(UnaryKind::relu, {-5, 0, 7}), ElementsAre(0, 0, 7));
  EXPECT_THAT(run(UnaryKind::clip, {-128, 0, 127}, -1e9, 5.9), ElementsAre(-128, 0, 5));
  EXPECT_THAT(run(UnaryKind::neg, {-128, 1}), ElementsAre(-128, -1)) << "wraps";
  EXPECT_THAT(run(UnaryKind::abs, {-128, -3}), ElementsAre(-128, 3)) << "wraps";
  EXPECT_THAT(run(UnaryKind::sign, {-128, 0, 3}), ElementsAre(-1, 0, 1));
  EXPECT_THAT(run(UnaryKind::round, {-3, 3}), ElementsAre(-3, 3));
  EXPECT_THAT(results<std::int64_t>(Unary({UnaryKind::neg}), {make<std::int64_t>({INT64_MIN, 5})}),
              ElementsAre(INT64_MIN, -5));
  EXPECT_THAT(results<bool>(Unary({UnaryKind::logical_not}), {make<bool>({true, false})}),
              ElementsAre(false, true));
}

TEST(Unary, RefusesWhatIsNotDefined) {
  EXPECT_THROW(test::infer(Unary({UnaryKind::exp}), {{Shape{2}, DType::i32}}), Error);
  EXPECT_THROW(test::infer(Unary({UnaryKind::relu}), {{Shape{2}, DType::boolean}}), Error);
  EXPECT_THROW(test::infer(Unary({UnaryKind::logical_not}), {{Shape{2}, DType::f32}}), Error);
  EXPECT_THROW(test::infer(Unary({UnaryKind::relu}), {}), Error);
  EXPECT_THROW(test::infer(Unary({UnaryKind::relu}), {{Shape{2}}, {Shape{2}}}), Error);
  EXPECT_THROW(Unary({UnaryKind::celu, 0}), Error);
}

}  // namespace
}  // namespace pipit::internal
