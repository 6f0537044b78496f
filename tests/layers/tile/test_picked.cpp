// Scattered zeros: picked steps, in which every output meets an input of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "layers/cpu/tile/picked_steps.h"
#include "layers/cpu/tile/tile_convolution.h"
#include "layers/ops/conv.h"
#include "layers/registry.h"
#include "tests/layers/conformance.h"
#include "tests/support/window_cases.h"

namespace pipit::internal {
namespace {

using test::Conformance;
using test::Operand;
using test::Random;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kIndexError = 0x1p-20;  // what an index in the last four bits moves a weight by

// All but `most` random ones of every `neighbours` channels of a tap become zero, for each output on its own; exactly
// `most` are left, or at most that many. Weights [O, C, taps].
void keep_of_neighbours(Random& random, Tensor& weights, std::int64_t neighbours, std::int64_t most,
                        bool exactly) {
  const std::int64_t channels = weights.shape()[1];
  const std::int64_t taps = weights.desc().elements() / (weights.shape()[0] * channels);
  const auto values = weights.values<float>();
  for (std::int64_t o = 0; o < weights.shape()[0]; ++o) {
    for (std::int64_t t = 0; t < taps; ++t) {
      for (std::int64_t first = 0; first < channels; first += neighbours) {
        std::int64_t left = std::min(neighbours, channels - first);
        std::int64_t keep = std::min(left, exactly ? most : random.integer(0, most));
        for (std::int64_t c = first; c < std::min(first + neighbours, channels); ++c, --left) {
          float& value = values[static_cast<std::size_t>((o * channels + c) * taps + t)];
          if (random.integer(1, left) <= keep) {
            --keep;
            if (value == 0) value = 0.5F;
          } else {
            value = random.coin() ? 0.0F : -0.0F;
          }
        }
      }
    }
  }
}

double share_of_nonzeros(const Tensor& weights) {
  const auto values = weights.values<float>();
  return static_cast<double>(std::count_if(values.begin(), values.end(), [](float w) { return w != 0; })) /
         static_cast<double>(values.size());
}

TEST(PickedSteps, AnIndexMakesTheNearestFloatThatEndsWithIt) {
  Random random;
  const auto expect_nearest = [&](float weight, std::uint32_t index, std::uint32_t lanes) {
    const float with = with_index(weight, index, lanes);
    const auto bits = std::bit_cast<std::uint32_t>(with);
    ASSERT_EQ(bits % lanes, index);
    ASSERT_TRUE(std::isfinite(with));
    ASSERT_EQ(std::signbit(with), std::signbit(weight));
    const auto units_off = [&](std::uint32_t other) {  // floats of a sign follow each other as their bits do
      return std::abs(static_cast<std::int64_t>(other) - std::int64_t{std::bit_cast<std::uint32_t>(weight)});
    };
    for (const std::uint32_t other : {bits - lanes, bits + lanes}) {
      const auto value = std::bit_cast<float>(other);
      if (!std::isfinite(value) || std::signbit(value) != std::signbit(weight)) continue;
      ASSERT_GE(units_off(other), units_off(bits)) << weight << ' ' << index;
    }
    const double off = std::abs(static_cast<double>(with) - weight);
    if (std::abs(weight) >= FLT_MIN && std::abs(weight) < FLT_MAX / 2) {
      ASSERT_LE(off, kIndexError * std::abs(static_cast<double>(weight))) << weight << ' ' << index;
    }
  };
  for (const std::uint32_t lanes : {8U, 16U}) {
    for (std::uint32_t index = 0; index < lanes; ++index) {
      for (const float weight :
           {0.0F, -0.0F, FLT_TRUE_MIN, -FLT_TRUE_MIN, FLT_MIN, 1.0F, -1.0F, FLT_MAX, -FLT_MAX})
        expect_nearest(weight, index, lanes);
      for (int i = 0; i < 200; ++i)
        expect_nearest(
            static_cast<float>(std::ldexp(random.real(-1, 1), static_cast<int>(random.integer(-140, 120)))),
            index, lanes);
    }
  }
}

TEST(PickedSteps, BlocksLieInOnePieceOfMemory) {
  const auto blocks = [](std::vector<std::int32_t> segments, std::int64_t run) {
    return pick_blocks(segments, run, 16);
  };
  EXPECT_THAT(blocks({0, 96, 192}, 24), ElementsAre(0, 16, 32, 48, 56));  // they follow each other
  EXPECT_THAT(blocks({0, 400, 800}, 24), ElementsAre(0, 8, 24, 32, 48, 56));
  EXPECT_THAT(blocks({0, 96, 800}, 24), ElementsAre(0, 16, 32, 48, 56));
  EXPECT_THAT(blocks({0, 64, 400}, 16), ElementsAre(0, 16, 32));
  std::vector<std::int32_t> lone(32);
  for (std::size_t i = 0; i < lone.size(); ++i) lone[i] = static_cast<std::int32_t>(4 * i);
  EXPECT_THAT(blocks(lone, 1), ElementsAre(0, 16));
  EXPECT_THAT(blocks({0, 400}, 15), IsEmpty());
  EXPECT_THAT(blocks({0, 64, 400}, 15), IsEmpty());
  EXPECT_THAT(blocks({}, 16), IsEmpty());
}

TEST(PickedSteps, ABlockTakesAsManyStepsAsItsFullestOutput) {
  TilePanels panels;
  panels.steps = 24;
  panels.outputs = 5;
  panels.lanes = panels.panel = 16;
  panels.step = 1;
  std::vector<float> weights(5 * 24, 0.0F);
  const auto at = [&](int output, int k) -> float& {
    return weights[static_cast<std::size_t>(output * 24 + k)];
  };
  at(0, 3) = at(0, 9) = at(0, 15) = 1;
  at(1, 8) = at(1, 3) = -2;
  at(4, 17) = at(3, 23) = 3;
  const WeightView view{weights.data(), 24, 1, 0, 24, 1};
  const std::vector<std::int32_t> blocks{0, 8};
  // 8 to 15 are the first block's.
  EXPECT_THAT(picked_steps(panels, 0, view, blocks).value(), ElementsAre(0, 0, 0, 8));
  at(2, 20) = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(picked_steps(panels, 0, view, blocks).has_value());
  at(2, 20) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(picked_steps(panels, 0, view, blocks).has_value());
}

// The definition: a step adds, for every output, its weight times the element of the block that the weight names.
TEST(PickedSteps, PackedPanelsMakeTheProduct) {
  Random random;
  for (int i = 0; i < 50 && !HasFailure(); ++i) {
    constexpr std::int64_t kLanes = 16;
    const std::int64_t taps = random.integer(1, 9);
    const std::int64_t channels = random.integer(kLanes, 45);
    const std::int64_t outputs = random.integer(1, 70);
    TilePanels panels;
    panels.steps = taps * channels;
    panels.outputs = outputs;
    panels.lanes = kLanes;
    panels.panel = random.coin() ? 16 : 32;
    panels.step = 1;
    Tensor weights = random.tensor(Shape{outputs, channels, taps})->clone();
    keep_of_neighbours(random, weights, kLanes, random.integer(0, kLanes), random.coin());
    const WeightView view{weights.values<float>().data(), channels * taps, taps, 1, channels, taps};
    std::vector<std::int32_t> segments;
    for (std::int64_t t = 0; t < taps; ++t) {
      const auto hole = static_cast<std::int32_t>(random.coin() ? 0 : 8);
      segments.push_back(segments.empty() ? 0
                                          : segments.back() + static_cast<std::int32_t>(channels) * 4 + hole);
    }
    const std::vector<std::int32_t> blocks = pick_blocks(segments, channels, kLanes);
    ASSERT_FALSE(blocks.empty());
    const auto a = random.tensor(Shape{taps * channels});
    const auto inputs = a->values<float>();
    for (std::int64_t p = 0; p < panels.count(); ++p) {
      const std::vector<std::int32_t> steps = picked_steps(panels, p, view, blocks).value();
      const std::int64_t width = panels.step_bytes(p) / 4;
      std::vector<float> packed(steps.size() * static_cast<std::size_t>(width),
                                std::numeric_limits<float>::quiet_NaN());
      pack_picked_panel(panels, p, view, steps, reinterpret_cast<std::byte*>(packed.data()));
      for (std::int64_t o = 0; o < width; ++o) {
        double got = 0;
        for (std::size_t s = 0; s < steps.size(); ++s) {
          const float w = packed[s * static_cast<std::size_t>(width) + static_cast<std::size_t>(o)];
          const std::uint32_t index = std::bit_cast<std::uint32_t>(w) % kLanes;
          got += static_cast<double>(w) * inputs[static_cast<std::size_t>(steps[s]) + index];
        }
        double expected = 0;
        double magnitude = 0;
        if (o < panels.columns(p)) {
          for (std::int64_t k = 0; k < panels.steps; ++k) {
            const std::int64_t at = ((p * panels.panel + o) * channels + k % channels) * taps + k / channels;
            const double product =
                static_cast<double>(weights.values<float>()[static_cast<std::size_t>(at)]) *
                inputs[static_cast<std::size_t>(k)];
            expected += product;
            magnitude += std::abs(product);
          }
        }
        ASSERT_NEAR(got, expected, 1.001 * kIndexError * magnitude + 1e-12) << "seed " << test::test_seed();
      }
    }
  }
}

struct ScatteredCase {
  ConvAttributes attributes;
  Shape x, w;
};

ScatteredCase random_case(Random& random) {
  ScatteredCase c;
  Window& window = c.attributes.window;
  const auto extent = test::random_window(
      window, [&](std::int64_t low, std::int64_t high) { return random.integer(low, high); }, 17);
  const std::int64_t groups = random.coin() ? 1 : random.integer(2, 3);
  const std::int64_t channels = random.coin() ? 16 * random.integer(1, 3) : random.integer(8, 40);
  const std::int64_t filters = random.integer(16, 75);
  c.attributes.groups = groups;
  if (random.coin()) c.attributes.activation = random.coin() ? Clamp::relu() : Clamp{-0.5F, 0.5F};
  c.x = Shape{random.integer(1, 2), channels * groups, extent[0], extent[1]};
  c.w = Shape{filters * groups, channels, window.kernel[0], window.kernel[1]};
  return c;
}

TileConvolution::Geometry geometry_of(const ScatteredCase& c) {
  TileConvolution::Geometry geometry;
  geometry.input = {c.x, DType::f32, Layout::channels_last};
  geometry.output = window_output_shape(c.attributes.window, c.x, c.w[0]);
  geometry.window = c.attributes.window;
  geometry.groups = c.attributes.groups;
  return geometry;
}

TEST(PickedSteps, ConvolutionsMatchTheReference) {
  Random random;
  int picked = 0;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const ScatteredCase c = random_case(random);
    const bool exactly = random.coin();
    const std::int64_t most = random.integer(exactly ? 1 : 0, 7);
    Tensor weights = random.tensor(c.w)->clone();
    keep_of_neighbours(random, weights, 16, most, exactly);
    const auto w = std::make_shared<const Tensor>(std::move(weights));
    std::vector<Operand> inputs{{random.tensor(c.x)}, {w, true}, {}, {}};
    if (random.coin()) inputs[2] = {random.tensor(Shape{c.w[0]}), true};
    if (random.coin()) inputs[3] = {random.tensor(window_output_shape(c.attributes.window, c.x, c.w[0]))};
    ConvAttributes linear = c.attributes;
    linear.activation = Clamp{};
    std::vector<Operand> magnitudes = inputs;
    for (Operand& operand : magnitudes) {
      if (operand.tensor) operand.tensor = test::absolute_values(*operand.tensor);
    }
    Conformance conformance{inputs, {"tile", "reference"}};
    // As for dense convolutions, and weights that were moved.
    conformance.scale =
        static_cast<double>(c.w[1] * c.attributes.window.taps() + 3) * FLT_EPSILON + kIndexError;
    conformance.magnitude = test::doubles(test::run_reference(Conv(linear), magnitudes)[0]);
    expect_conformance(Conv(c.attributes), conformance);

    const KeptSteps kept = TileConvolution::kept_steps(geometry_of(c), w->values<float>().data());
    EXPECT_GE(kept.share(), share_of_nonzeros(*w) - 1e-9);
    if (kept.picked()) {
      ++picked;
      EXPECT_TRUE(f32_tiles().picks);
      if (exactly && c.w[1] % 16 == 0) {
        EXPECT_NEAR(kept.share(), static_cast<double>(most) / 16, 1e-9);
      }
    } else {
      EXPECT_FALSE(f32_tiles().picks && exactly && c.w[1] % 16 == 0 && c.w[0] / c.attributes.groups >= 32)
          << c.w[0] << " outputs of " << c.w[1] << " channels keep " << most << " of 16";
    }
  }
  EXPECT_TRUE(HasFailure() || !f32_tiles().picks || picked >= 8) << picked;
}

// An infinity with other last bits is a NaN: such weights are multiplied where they are.
TEST(PickedSteps, InfiniteWeightsStay) {
  Random random;
  ScatteredCase c;
  test::set_window(c.attributes.window, 3, 1, 1, 1);
  c.x = Shape{1, 32, 7, 9};
  c.w = Shape{48, 32, 3, 3};
  Tensor weights = random.tensor(c.w)->clone();
  keep_of_neighbours(random, weights, 16, 3, true);
  EXPECT_EQ(TileConvolution::kept_steps(geometry_of(c), weights.values<float>().data()).picked(),
            f32_tiles().picks);
  for (const float value :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    weights.values<float>()[1234] = value;
    EXPECT_FALSE(TileConvolution::kept_steps(geometry_of(c), weights.values<float>().data()).picked());
  }
}

// What is dense stays as it was, to the bit; so does what too few zeros are scattered over.
TEST(PickedSteps, ManyWeightsAreNotPicked) {
  Random random;
  ScatteredCase c;
  test::set_window(c.attributes.window, 3, 1, 1, 1);
  c.x = Shape{1, 32, 7, 9};
  c.w = Shape{48, 32, 3, 3};
  for (const std::int64_t most : {16, 14, 12}) {
    Tensor weights = random.tensor(c.w)->clone();
    keep_of_neighbours(random, weights, 16, most, true);
    EXPECT_FALSE(TileConvolution::kept_steps(geometry_of(c), weights.values<float>().data()).picked())
        << most;
  }
}

}  // namespace
}  // namespace pipit::internal
