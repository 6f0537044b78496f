// Dynamic INT8: the specification on worked examples, and every kernel against the reference bit for bit.
#include "layers/ops/dynamic_int8.h"

#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>

#include "layers/ops/conv.h"
#include "tests/layers/conformance.h"
#include "tests/support/window_cases.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::expect_conformance;
using test::Operand;
using test::Random;

Operand floats(const Shape& shape, std::vector<float> values, bool constant = false) {
  return {std::make_shared<const Tensor>(Tensor::from<float>(shape, values)), constant};
}

DynamicScale scale_of(float largest) {
  return dynamic_scale(magnitude_bits(largest));
}

TEST(DynamicScale, IsThatOfTheLargestMagnitude) {
  EXPECT_EQ(scale_of(-254).scale, 2);
  EXPECT_EQ(scale_of(254).inverse, 0.5F);
  EXPECT_EQ(scale_of(FLT_MAX).scale, FLT_MAX / 127);
  EXPECT_GT(scale_of(FLT_MAX).inverse, FLT_MIN);
  for (const float nothing : {0.0F, -0.0F, 1e-45F, 126 * FLT_MIN}) {
    EXPECT_EQ(scale_of(nothing).scale, 1) << nothing;
    EXPECT_EQ(scale_of(nothing).inverse, 1) << nothing;
  }
  EXPECT_GE(scale_of(127 * FLT_MIN).scale, FLT_MIN);
  for (const float bad : {INFINITY, -INFINITY, NAN, -NAN}) {
    EXPECT_TRUE(std::isnan(scale_of(bad).scale)) << bad;
    EXPECT_TRUE(std::isnan(scale_of(bad).inverse)) << bad;
  }
}

TEST(DynamicQuantize, OfAHandWorkedExample) {
  const Operand x = floats(Shape{4, 2}, {127, -1.5F, 0, 0, NAN, 3, -2.54F, 1.27F});
  auto y = test::run_reference(DynamicQuantize({true}), {x});
  EXPECT_THAT(y[0].values<std::uint8_t>(), testing::ElementsAre(255, 126, 128, 128, 1, 1, 1, 192));
  EXPECT_THAT(y[1].values<float>(), testing::ElementsAre(1, 1, testing::IsNan(), 0.02F));
  const Operand finite = floats(Shape{2, 2}, {127, -1.5F, 1, 0});
  y = test::run_reference(DynamicQuantize({false}), {finite});
  EXPECT_THAT(y[0].values<std::uint8_t>(), testing::ElementsAre(255, 126, 129, 128));
  EXPECT_THAT(y[1].values<float>(), testing::ElementsAre(1));
}

TEST(DynamicQuantize, EveryKernelGivesTheReferencesBits) {
  Random random;
  for (int i = 0; i < 24 && !testing::Test::HasFailure(); ++i) {
    const Shape shape{random.integer(1, 4), random.integer(1, i % 4 == 0 ? 400 : 40), random.integer(1, 12),
                      random.integer(1, 12)};
    Tensor x = random.tensor(shape, -3, 3)->clone();
    const float special[] = {0.0F, NAN, INFINITY, -INFINITY, 1e-42F};
    if (random.coin())
      x.values<float>()[static_cast<std::size_t>(random.integer(0, shape.elements() - 1))] =
          special[random.integer(0, 4)];
    const Operand operand{std::make_shared<const Tensor>(std::move(x))};
    const DType type = random.coin() ? DType::u8 : DType::i8;
    expect_conformance(DynamicQuantize({.per_sample = random.coin(), .type = type}),
                       {{operand}, {"vector", "reference"}});
  }
  expect_conformance(DynamicQuantize({true}), {{{random.tensor(Shape{5, 70'000})}}, {"vector", "reference"}});
}

TEST(AffineScale, IsTheRangeWithZero) {
  EXPECT_EQ(affine_scale(-255, 255).scale, 2);
  EXPECT_EQ(affine_scale(-255, 255).zero_point, 128);  // 127.5: a tie goes to the even number
  EXPECT_EQ(affine_scale(3, 510).scale, 2);
  EXPECT_EQ(affine_scale(3, 510).zero_point, 0);
  EXPECT_EQ(affine_scale(-510, -3).zero_point, 255);
  for (const float nothing : {0.0F, 1e-42F, 100 * FLT_MIN}) {
    EXPECT_EQ(affine_scale(0, nothing).scale, 1.0F / 255) << nothing;
    EXPECT_EQ(affine_scale(0, nothing).zero_point, 0) << nothing;
  }
  for (const auto& [low, high] : {std::pair{0.0F, INFINITY}, {-INFINITY, 0.0F}, {-FLT_MAX, FLT_MAX}})
    EXPECT_TRUE(std::isnan(affine_scale(low, high).scale)) << low << " " << high;
}

TEST(DynamicQuantize, WithAZeroPointOfAHandWorkedExample) {
  // Steps of 1: halves go to even numbers before the zero point is added.
  const Operand x = floats(Shape{7}, {-100, 155, 0.5F, 1.5F, -2.5F, 7.4F, 0});
  const auto y = test::run_reference(DynamicQuantize({false, true}), {x});
  EXPECT_THAT(y[0].values<std::uint8_t>(), testing::ElementsAre(0, 255, 100, 102, 98, 107, 100));
  EXPECT_EQ(y[1].values<float>()[0], 1);
  EXPECT_EQ(y[2].values<std::uint8_t>()[0], 100);
}

TEST(DynamicQuantize, WithAZeroPointEveryKernelGivesTheReferencesBits) {
  Random random;
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    const Shape shape{random.integer(1, 4), random.integer(1, i % 4 == 0 ? 400 : 40), random.integer(1, 12)};
    const double low = random.real(-3, 1);
    Tensor x = random.tensor(shape, low, low + random.real(0.1, 4))->clone();
    const float special[] = {0.0F, NAN, -NAN, INFINITY, -INFINITY, 1e-42F, -0.0F};
    if (random.coin())
      x.values<float>()[static_cast<std::size_t>(random.integer(0, shape.elements() - 1))] =
          special[random.integer(0, 6)];
    const Operand operand{std::make_shared<const Tensor>(std::move(x))};
    expect_conformance(DynamicQuantize({false, true}), {{operand}, {"vector", "reference"}});
  }
  expect_conformance(DynamicQuantize({false, true}),
                     {{{random.tensor(Shape{5, 70'000})}}, {"vector", "reference"}});
  expect_conformance(DynamicQuantize({false, true}),
                     {{floats(Shape{40}, std::vector<float>(40))}, {"vector", "reference"}});
}

struct DynamicCase {
  DynamicQConvAttributes attributes;
  Shape x;
  Shape w;
  bool bias = false;
  bool residual = false;
  std::int64_t scales = 1;
};

Conformance conformance_of(const DynamicCase& c, Random& random) {
  Conformance conformance;
  conformance.inputs = {{random.tensor(c.x, 1, 255.999, DType::u8)},
                        {random.tensor(c.w, -127, 127.999, DType::i8), true},
                        {},
                        {},
                        {random.tensor(Shape{c.scales}, 0.001, 0.1)}};
  if (c.bias) conformance.inputs[2] = {random.tensor(Shape{c.w[0]}, -3, 3), true};
  if (c.residual)
    conformance.inputs[3] = {
        random.tensor(window_output_shape(c.attributes.conv.window, c.x, c.w[0]), -3, 3)};
  conformance.expected = {"tile", "reference"};
  return conformance;
}

DynamicCase random_dynamic_case(Random& random) {
  DynamicCase c;
  Window& window = c.attributes.conv.window;
  const auto pick = [&](std::int64_t low, std::int64_t high) { return random.integer(low, high); };
  const bool volume = random.integer(0, 3) == 0;
  const auto extent = volume ? test::random_window_of<3>(window, pick, 5) : std::array<std::int64_t, 3>{};
  auto image = volume ? std::array<std::int64_t, 2>{} : test::random_window(window, pick, 17);
  if (!volume) test::maybe_one_column(window, image, pick);
  const std::int64_t groups = random.coin() ? 1 : random.integer(1, 4);
  const std::int64_t channels = random.integer(1, 21);
  const std::int64_t filters = random.integer(1, 40);
  c.attributes.conv.groups = groups;
  c.scales = random.integer(1, 3);
  const std::int64_t batch = c.scales * random.integer(1, 2);
  c.x = volume ? Shape{batch, channels * groups, extent[0], extent[1], extent[2]}
               : Shape{batch, channels * groups, image[0], image[1]};
  c.w = volume ? Shape{filters * groups, channels, window.kernel[0], window.kernel[1], window.kernel[2]}
               : Shape{filters * groups, channels, window.kernel[0], window.kernel[1]};
  for (std::int64_t o = 0; o < c.w[0]; ++o)
    c.attributes.weight_scales.push_back(static_cast<float>(random.real(0.001, 0.1)));
  if (random.integer(0, 3) == 0) c.attributes.weight_scales.resize(1);
  c.bias = random.coin();
  c.residual = random.coin();
  if (random.coin()) c.attributes.conv.activation = random.coin() ? Clamp::relu() : Clamp{-1.5F, 2.25F};
  return c;
}

TEST(DynamicQConv, EveryKernelGivesTheReferencesBits) {
  Random random;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const DynamicCase c = random_dynamic_case(random);
    expect_conformance(DynamicQConv(c.attributes), conformance_of(c, random));
  }
}

// Zero points of weights for which they take one part, two, and with 255 three; integers of both types.
TEST(DynamicQConv, WithZeroPointsEveryKernelGivesTheReferencesBits) {
  Random random;
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    DynamicCase c = random_dynamic_case(random);
    c.scales = 1;
    const DType x = random.coin() ? DType::u8 : DType::i8;
    const DType w = random.coin() ? DType::u8 : DType::i8;
    const auto low_of = [](DType type) { return type == DType::u8 ? 0.0 : -128.0; };
    const int kind = i % 4;  // none, in the middle, anywhere for all, anywhere for each
    const auto zero_point = [&] {
      const int any = static_cast<int>(random.integer(0, 255));
      return (kind == 1 ? 126 + any % 5 : any) + static_cast<int>(low_of(w));
    };
    if (kind > 0) {
      const std::int64_t count = kind == 3 ? c.w[0] : 1;
      for (std::int64_t o = 0; o < count; ++o) c.attributes.weight_zero_points.push_back(zero_point());
    }
    Conformance conformance = conformance_of(c, random);
    conformance.inputs[0] = {random.tensor(c.x, low_of(x), low_of(x) + 255.999, x)};
    conformance.inputs[1] = {random.tensor(c.w, low_of(w), low_of(w) + 255.999, w), true};
    if (random.coin()) conformance.inputs[4] = {random.tensor(Shape{}, 0.001, 0.1)};
    conformance.inputs.push_back({random.tensor(Shape{}, low_of(x), low_of(x) + 255.999, x)});
    if (random.coin()) conformance.inputs.push_back({random.tensor(Shape{c.w[0]}, -5000, 5000, DType::i32)});
    expect_conformance(DynamicQConv(c.attributes), conformance);
  }
}

// Rows of a fully connected layer, each with a scale of its own: a tile holds pixels of several.
TEST(DynamicQConv, ManyScalesInOneTile) {
  Random random;
  for (const std::int64_t rows : {1, 2, 7, 13, 40}) {
    DynamicCase c;
    c.x = Shape{rows, 300, 1, 1};
    c.w = Shape{70, 300, 1, 1};
    c.scales = rows;
    c.attributes.weight_scales = {0.01F};
    c.bias = true;
    expect_conformance(DynamicQConv(c.attributes), conformance_of(c, random));
  }
}

TEST(DynamicQConv, ASampleThatIsNotFiniteIsNanAndNoOtherIs) {
  Random random;
  DynamicCase c;
  c.x = Shape{3, 20, 5, 5};
  c.w = Shape{17, 20, 3, 3};
  c.attributes.conv.window.kernel = {3, 3, 1};
  c.attributes.conv.activation = Clamp::relu();
  c.attributes.weight_scales = {0.01F};
  c.scales = 3;
  Conformance conformance = conformance_of(c, random);
  conformance.inputs[4] = floats(Shape{3}, {0.1F, NAN, 0.2F});
  expect_conformance(DynamicQConv(c.attributes), conformance);
  const auto y = test::run_reference(DynamicQConv(c.attributes), conformance.inputs);
  const std::int64_t image = y[0].shape().elements() / 3;
  for (std::int64_t i = 0; i < y[0].shape().elements(); ++i) {
    EXPECT_EQ(std::isnan(y[0].values<float>()[static_cast<std::size_t>(i)]), i / image == 1) << i;
  }
}

// As GPUs have it: the same values with zero point 0.
TEST(DynamicQConv, OfI8IsThatOfU8) {
  Random random;
  for (int i = 0; i < 10; ++i) {
    const DynamicCase c = random_dynamic_case(random);
    Conformance conformance = conformance_of(c, random);
    const auto expected = test::run_reference(DynamicQConv(c.attributes), conformance.inputs);
    const auto bytes = conformance.inputs[0].tensor->values<std::uint8_t>();
    Tensor moved(TensorDesc{c.x, DType::i8});
    std::transform(bytes.begin(), bytes.end(), moved.values<std::int8_t>().begin(),
                   [](std::uint8_t q) { return static_cast<std::int8_t>(q - 128); });
    conformance.inputs[0] = {std::make_shared<const Tensor>(std::move(moved))};
    const auto y = test::run_reference(DynamicQConv(c.attributes), conformance.inputs);
    EXPECT_THAT(y[0].values<float>(), testing::ElementsAreArray(expected[0].values<float>()));
  }
}

TEST(DynamicQConv, IsNearTheConvolutionOfTheRealValues) {
  Random random;
  for (int i = 0; i < 10; ++i) {
    const DynamicCase c = random_dynamic_case(random);
    const Operand x{random.tensor(c.x, -2, 2)};
    const auto q = test::run_reference(DynamicQuantize({c.scales > 1}), {x});
    if (c.scales > 1 && c.scales != c.x[0]) continue;
    Conformance conformance = conformance_of(c, random);
    conformance.inputs[0] = {std::make_shared<const Tensor>(q[0].clone())};
    conformance.inputs[4] = {std::make_shared<const Tensor>(q[1].clone())};
    Tensor w(TensorDesc{c.w});
    const std::int64_t depth = c.w.elements() / c.w[0];
    double largest = 0;  // sum of |w| of an output
    for (std::int64_t o = 0; o < c.w[0]; ++o) {
      const auto& scales = c.attributes.weight_scales;
      double sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        const auto at = static_cast<std::size_t>(o * depth + k);
        w.values<float>()[at] = scales[scales.size() == 1 ? 0 : static_cast<std::size_t>(o)] *
                                conformance.inputs[1].tensor->values<std::int8_t>()[at];
        sum += std::abs(w.values<float>()[at]);
      }
      largest = std::max(largest, sum);
    }
    const auto expected = test::run_reference(
        Conv(c.attributes.conv),
        {x, {std::make_shared<const Tensor>(std::move(w))}, conformance.inputs[2], conformance.inputs[3]});
    const auto y = test::run_reference(DynamicQConv(c.attributes), conformance.inputs);
    // Every input is off by at most half a step of 2 / 127.
    for (std::size_t e = 0; e < expected[0].values<float>().size(); ++e)
      ASSERT_NEAR(y[0].values<float>()[e], expected[0].values<float>()[e], largest * 1.01 / 127 + 1e-4) << e;
  }
}

TEST(DynamicQConv, RefusesWhatHasNoMeaning) {
  Random random;
  DynamicCase c;
  c.x = Shape{4, 8, 2, 2};
  c.w = Shape{3, 8, 1, 1};
  c.attributes.weight_scales = {1, 1};
  EXPECT_THROW(test::run_reference(DynamicQConv(c.attributes), conformance_of(c, random).inputs), Error);
  c.attributes.weight_scales = {1};
  EXPECT_NO_THROW(test::run_reference(DynamicQConv(c.attributes), conformance_of(c, random).inputs));
  c.scales = 3;  // for four images
  EXPECT_THROW(test::run_reference(DynamicQConv(c.attributes), conformance_of(c, random).inputs), Error);
  c.attributes.weight_scales = {-1};
  EXPECT_THROW(DynamicQConv{c.attributes}, Error);
  EXPECT_THROW(test::run_reference(DynamicQuantize({true}), {floats(Shape{}, {1})}), Error);
}

}  // namespace
}  // namespace pipit::internal
