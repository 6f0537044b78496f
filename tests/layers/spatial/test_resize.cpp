#include <fmt/core.h>
#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>
#include <cstdlib>

#include "layers/ops/resize.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::Random;
using testing::ElementsAre;

ResizeAttributes resize_1d(ResizeMode mode, ResizeCoordinates coordinates, float scale,
                           std::int64_t size = 0) {
  ResizeAttributes a;
  a.mode = mode;
  a.coordinates = coordinates;
  a.rank = 1;
  a.scales[0] = scale;
  a.sizes[0] = size;
  return a;
}

std::vector<float> resized(const ResizeAttributes& a, std::vector<float> x) {
  const Shape shape{static_cast<std::int64_t>(x.size())};
  const auto y = test::run_reference(
      Resize(a), {{std::make_shared<const Tensor>(Tensor::from<float>(shape, std::span<const float>(x)))}});
  return {y[0].values<float>().begin(), y[0].values<float>().end()};
}

// Values from the definitions in the ONNX operator documentation, worked by hand.
TEST(Resize, CoordinateModes) {
  using C = ResizeCoordinates;
  const std::vector<float> x{0, 10, 20, 30};
  EXPECT_THAT(resized(resize_1d(ResizeMode::linear, C::half_pixel, 2), x),
              ElementsAre(0, 2.5F, 7.5F, 12.5F, 17.5F, 22.5F, 27.5F, 30));
  EXPECT_THAT(resized(resize_1d(ResizeMode::linear, C::asymmetric, 2), x),
              ElementsAre(0, 5, 10, 15, 20, 25, 30, 30));
  EXPECT_THAT(resized(resize_1d(ResizeMode::linear, C::align_corners, 1.75F), x),
              ElementsAre(0, 5, 10, 15, 20, 25, 30));
  EXPECT_THAT(resized(resize_1d(ResizeMode::linear, C::half_pixel, 0.5F), x), ElementsAre(5, 25));
  // One output: the first input, the centre, and the first input.
  EXPECT_THAT(resized(resize_1d(ResizeMode::linear, C::pytorch_half_pixel, 0.25F, 1), x), ElementsAre(0));
  EXPECT_THAT(resized(resize_1d(ResizeMode::linear, C::half_pixel, 0.25F, 1), x), ElementsAre(15));
  EXPECT_THAT(resized(resize_1d(ResizeMode::linear, C::align_corners, 0.25F, 1), x), ElementsAre(0));
  // 4 * 0.6 = 2.4 gives 2 outputs; adjustment 2 / 2.4, offset 2 * (1 - 2 / 2.4) = 1 / 3.
  EXPECT_THAT(resized(resize_1d(ResizeMode::linear, C::half_pixel_symmetric, 0.6F), x),
              testing::Pointwise(testing::FloatNear(1e-4F), {20.0F / 3, 70.0F / 3}));
}

TEST(Resize, NearestModes) {
  const auto with = [](ResizeNearest nearest) {
    // Coordinates x / 2: 0, 0.5, 1, 1.5, 2, 2.5.
    ResizeAttributes a = resize_1d(ResizeMode::nearest, ResizeCoordinates::asymmetric, 2);
    a.nearest = nearest;
    return resized(a, {1, 2, 3});
  };
  EXPECT_THAT(with(ResizeNearest::round_prefer_floor), ElementsAre(1, 1, 2, 2, 3, 3));
  EXPECT_THAT(with(ResizeNearest::round_prefer_ceil), ElementsAre(1, 2, 2, 3, 3, 3));
  EXPECT_THAT(with(ResizeNearest::floor), ElementsAre(1, 1, 2, 2, 3, 3));
  EXPECT_THAT(with(ResizeNearest::ceil), ElementsAre(1, 2, 2, 3, 3, 3));
}

TEST(Resize, ScalesThatAreNotExactStillHitWholePositions) {
  // 1 / (1/3 as float) is just below 3 when computed exactly, and 10 * 0.7 just below 7.
  ResizeAttributes a = resize_1d(ResizeMode::nearest, ResizeCoordinates::asymmetric, 1.0F / 3);
  a.nearest = ResizeNearest::floor;
  EXPECT_THAT(resized(a, {0, 1, 2, 3, 4, 5, 6, 7, 8}), ElementsAre(0, 3, 6));
  EXPECT_EQ(
      resized(resize_1d(ResizeMode::nearest, ResizeCoordinates::asymmetric, 0.7F), std::vector<float>(10))
          .size(),
      7U);
}

// ONNX Runtime rounds the quotient first and answers 6 and 14.
TEST(Resize, TiesAreExact) {
  ResizeAttributes a = resize_1d(ResizeMode::nearest, ResizeCoordinates::asymmetric, 26.0F / 11, 26);
  EXPECT_EQ(nearest_position(a, 0, 13, 11, 26), 5);  // 13 * 11 / 26 = 5.5
  a = resize_1d(ResizeMode::nearest, ResizeCoordinates::half_pixel_symmetric, 6.0F / 20, 6);
  a.nearest = ResizeNearest::round_prefer_ceil;
  EXPECT_EQ(nearest_position(a, 0, 4, 20, 6), 15);  // 4.5 * 20 / 6 - 0.5 = 14.5
}

// Every pair of extents, against a search among all positions by their distances in whole numbers.
TEST(Resize, NearestByDistance) {
  using C = ResizeCoordinates;
  using N = ResizeNearest;
  for (const C coordinates : {C::half_pixel, C::align_corners, C::asymmetric}) {
    for (std::int64_t in = 1; in <= 24; ++in) {
      for (std::int64_t out = 1; out <= 24; ++out) {
        ResizeAttributes a = resize_1d(ResizeMode::nearest, coordinates,
                                       static_cast<float>(out) / static_cast<float>(in), out);
        for (std::int64_t x = 0; x < out; ++x) {
          // The coordinate times `unit`.
          const std::int64_t unit =
              coordinates == C::align_corners ? std::max<std::int64_t>(out - 1, 1) : 2 * out;
          const std::int64_t at = coordinates == C::half_pixel      ? (2 * x + 1) * in - out
                                  : coordinates == C::align_corners ? x * (in - 1)
                                                                    : 2 * x * in;
          std::int64_t below = 0, above = in - 1, early = 0, late = 0;
          for (std::int64_t i = 0; i < in; ++i) {
            if (i * unit <= at) below = i;
            if ((in - 1 - i) * unit >= at) above = in - 1 - i;
            if (std::abs(i * unit - at) < std::abs(early * unit - at)) early = i;
            if (std::abs(i * unit - at) <= std::abs(late * unit - at)) late = i;
          }
          const auto nearest = [&](N mode) {
            a.nearest = mode;
            return nearest_position(a, 0, x, in, out);
          };
          const std::string where = fmt::format("{} of {} from {}", x, out, in);
          EXPECT_EQ(nearest(N::floor), below) << where;
          EXPECT_EQ(nearest(N::ceil), above) << where;
          EXPECT_EQ(nearest(N::round_prefer_floor), early) << where;
          EXPECT_EQ(nearest(N::round_prefer_ceil), late) << where;
        }
      }
    }
  }
}

ResizeAttributes random_attributes(Random& random, const Shape& shape) {
  ResizeAttributes a;
  a.rank = shape.rank();
  a.mode = random.coin() ? ResizeMode::nearest : ResizeMode::linear;
  a.coordinates = static_cast<ResizeCoordinates>(random.integer(0, 4));
  a.nearest = static_cast<ResizeNearest>(random.integer(0, 3));
  for (int axis = 2; axis < a.rank; ++axis) {
    if (random.integer(0, 4) == 0) continue;
    const auto i = static_cast<std::size_t>(axis);
    const auto in = static_cast<double>(shape[axis]);
    if (random.coin()) {
      a.sizes[i] = random.integer(1, 20);
      a.scales[i] = static_cast<float>(static_cast<double>(a.sizes[i]) / in);
    } else {
      a.scales[i] = static_cast<float>(random.real(1 / in + 0.01, 3));
    }
  }
  return a;
}

TEST(Resize, RandomCasesMatchTheReference) {
  Random random;
  for (int i = 0; i < 80 && !HasFailure(); ++i) {
    const Shape shape{random.integer(1, 3), random.integer(1, 40), random.integer(1, 9),
                      random.integer(1, 9)};
    const ResizeAttributes a = random_attributes(random, shape);
    Conformance conformance{{{random.tensor(shape)}},
                            {a.mode == ResizeMode::linear ? "linear" : "table_copy", "reference"}};
    // Two mixes of values of at most 1: two products, 1 - weight and a sum each.
    conformance.absolute = a.mode == ResizeMode::linear ? 8 * FLT_EPSILON : 0;
    expect_conformance(Resize(a), conformance);
  }
}

TEST(Resize, NearestMovesEveryType) {
  Random random;
  const Shape shape{2, 3, 4, 5};
  ResizeAttributes a = random_attributes(random, shape);
  a.mode = ResizeMode::nearest;
  for (const DType type : {DType::u8, DType::i64, DType::f64}) {
    expect_conformance(Resize(a), {{{random.tensor(shape, 0, 100, type)}}, {"table_copy", "reference"}});
  }
}

// One to five dimensions, any of them resized.
TEST(Resize, OtherRanksAndAxesMatchTheReference) {
  Random random;
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    std::vector<std::int64_t> dims(static_cast<std::size_t>(random.integer(1, 5)));
    for (std::int64_t& d : dims) d = random.integer(1, 6);
    if (random.coin()) dims.back() = random.integer(1, 40);
    const Shape shape(dims);
    ResizeAttributes a = random_attributes(random, shape);
    for (std::size_t d = 0; d < std::min<std::size_t>(2, dims.size()); ++d) {
      if (random.coin())
        a.scales[d] = static_cast<float>(random.real(1.01 / static_cast<double>(dims[d]), 2));
    }
    Conformance conformance{{{random.tensor(shape)}},
                            {a.mode == ResizeMode::linear ? "linear" : "table_copy", "reference"}};
    // Five mixes, and the products of their weights.
    conformance.absolute = a.mode == ResizeMode::linear ? 24 * FLT_EPSILON : 0;
    expect_conformance(Resize(a), conformance);
  }
}

// Cubic and antialiased, any scale, both layouts.
TEST(Resize, FilteredCasesMatchTheReference) {
  test::Random random;
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    ResizeAttributes a;
    a.mode = i % 2 == 0 ? ResizeMode::cubic : ResizeMode::linear;
    a.coordinates = static_cast<ResizeCoordinates>(random.integer(0, 4));
    a.filter = {random.coin() ? -0.75F : -0.5F, i % 2 == 1 || random.coin(), random.coin()};
    a.rank = static_cast<int>(random.integer(3, 5));
    std::vector<std::int64_t> dims{random.integer(1, 2), random.integer(1, 5)};
    for (int d = 2; d < a.rank; ++d) {
      dims.push_back(random.integer(1, 12));
      const std::int64_t size = random.integer(1, 20);
      a.sizes[static_cast<std::size_t>(d)] = size;
      a.scales[static_cast<std::size_t>(d)] = static_cast<float>(size) / static_cast<float>(dims.back());
    }
    test::Conformance conformance{.inputs = {{random.tensor(Shape(dims), -1, 1)}}, .expected = {"filtered"}};
    // Weights of cubic add up to less than 2 in size along an axis, and 4 with what is left out; each axis adds at most
    // 52 numbers.
    conformance.absolute = (a.rank - 2) * 56 * std::pow(4.0, a.rank - 2) * FLT_EPSILON;
    test::expect_conformance(Resize(a), conformance);
  }
}

TEST(Resize, RefusesHostileNumbers) {
  const auto infer = [](float scale, std::int64_t size, std::int64_t extent) {
    const TensorDesc x{Shape{extent}};
    const TensorDesc* inputs[] = {&x};
    return Resize(resize_1d(ResizeMode::nearest, ResizeCoordinates::half_pixel, scale, size)).infer(inputs);
  };
  EXPECT_NO_THROW(infer(2, 0, 5));
  for (const float scale : {0.0F, -1.0F, NAN, INFINITY}) EXPECT_THROW(infer(scale, 0, 5), Error);
  EXPECT_THROW(infer(2, -1, 5), Error);
  EXPECT_THROW(infer(0.1F, 0, 5), Error);
  EXPECT_THROW(infer(1e30F, 0, 5), Error);
  EXPECT_THROW(infer(1, INT64_MAX, 5), Error);
  EXPECT_THROW(infer(2, 0, 0), Error);
  EXPECT_THROW(infer(0.5F, 0, std::int64_t{1} << 40), Error);
  ResizeAttributes a;
  a.rank = 7;
  EXPECT_THROW(Resize{a}, Error);
  const TensorDesc x{Shape{1, 2, 3}};
  const TensorDesc* inputs[] = {&x};
  EXPECT_THROW(Resize(ResizeAttributes{}).infer(inputs), Error);
}

}  // namespace
}  // namespace pipit::internal
