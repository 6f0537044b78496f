#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "layers/ops/cast.h"
#include "tests/layers/conformance.h"
#include "tests/layers/values.h"

namespace pipit::internal {
namespace {

using test::make;
using test::results;
using ::testing::ElementsAre;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

TEST(Cast, FloatToIntegerTruncatesAndSaturates) {
  const auto x = make<double>({1.9, -1.9, 1e30, -kInfinite, kNotANumber, 127.9, -128.9});
  EXPECT_THAT(results<std::int8_t>(Cast({DType::i8}), {x}), ElementsAre(1, -1, 127, -128, 0, 127, -128));
  EXPECT_THAT(results<std::uint8_t>(Cast({DType::u8}), {x}), ElementsAre(1, 0, 255, 0, 0, 127, 0));
  EXPECT_THAT(results<std::int64_t>(Cast({DType::i64}), {x}),
              ElementsAre(1, -1, INT64_MAX, INT64_MIN, 0, 127, -128));
  EXPECT_THAT(results<std::int64_t>(Cast({DType::i64}), {make<float>({0x1p63F, -0x1p63F})}),
              ElementsAre(INT64_MAX, INT64_MIN));
}

TEST(Cast, OtherPairs) {
  EXPECT_THAT(results<bool>(Cast({DType::boolean}), {make<double>({0, -0.0, 0.25, kNotANumber})}),
              ElementsAre(false, false, true, true));
  EXPECT_THAT(results<std::int64_t>(Cast({DType::i64}), {make<bool>({true, false})}), ElementsAre(1, 0));
  EXPECT_THAT(results<std::int8_t>(Cast({DType::i8}), {make<std::int32_t>({257, -129, 200})}),
              ElementsAre(1, 127, -56))
      << "keeps the low bits";
  EXPECT_THAT(results<float>(Cast({DType::f32}), {make<std::int64_t>({-3, 16777217})}),
              ElementsAre(-3, 16777216));
  EXPECT_THAT(results<float>(Cast({DType::f32}), {make<double>({1e300})}), ElementsAre(kInfinite));
}

TEST(Cast, FastKernelSaturates) {
  for (const DType to : {DType::i8, DType::u8, DType::i32, DType::i64, DType::boolean}) {
    const auto x =
        make<float>({1.9F,    -1.9F,    0.5F,           -0.5F,  1e30F, -1e30F,  INFINITY, -INFINITY,
                     NAN,     127.9F,   -128.9F,        255.5F, -0.0F, 0x1p31F, -0x1p31F, 0x1.fffffep30F,
                     0x1p63F, -0x1p63F, 0x1.fffffep62F, 1e-40F});
    test::expect_conformance(Cast({to}), {.inputs = {{x}}, .expected = {"typed"}});
    test::expect_conformance(
        Cast({to}),
        {.inputs = {{make<double>({1e300, -1e300, 0x1p63, 2147483648.5, 255.99, -kInfinite, kNotANumber})}},
         .expected = {"typed"}});
  }
}

TEST(Cast, EveryPairInEveryLayout) {
  constexpr DType kTypes[] = {DType::f32, DType::f64, DType::i8,     DType::u8,
                              DType::i32, DType::i64, DType::boolean};
  test::Random random;
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      test::expect_conformance(
          Cast({to}), {.inputs = {{random.tensor(Shape{2, 3, 5, 2}, 0, 100, from)}}, .expected = {"typed"}});
    }
  }
}

}  // namespace
}  // namespace pipit::internal
