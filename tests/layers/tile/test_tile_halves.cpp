// The register tile of halves: its arithmetic bit for bit, its bounds, and values at the ends of the range.
#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>

#include "engine/graph/half.h"
#include "layers/cpu/tile/tile_convolution.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/tile/tile_pack.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Random;

std::vector<const TileKernels*> half_instruction_sets() {
  std::vector<const TileKernels*> result;
  for (const Isa isa : all_isas()) {
    if (isa_available(isa) && f16_tiles(isa) != nullptr) result.push_back(f16_tiles(isa));
  }
  return result;
}

// To nearest, ties to even, in one rounding: float(value) would be another.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), -14);
  const double unit = std::ldexp(1.0, exponent - 10);
  const double result = std::nearbyint(value / unit) * unit;
  return std::abs(result) > 65504 ? std::copysign(HUGE_VAL, result) : result;
}

// A random product of halves: `pixels` rows of A with gaps, K in segments anywhere after a pixel, one panel or more.
struct HalfProduct {
  std::int64_t pixels, channels, taps, columns, a_stride;
  std::int32_t run;  // steps of a segment
  std::vector<std::int32_t> segments;
  std::vector<Half> a;
  std::vector<float> weights;  // [columns][channels][taps]
  std::vector<float> bias;
  std::vector<Half> residual;
  bool f32_output;
  float low = -INFINITY;
  float high = INFINITY;

  explicit HalfProduct(Random& random, double input = 1, double weight = 1) {
    pixels = random.integer(1, 40);
    columns = random.integer(1, 70);
    channels = random.integer(1, 90);
    taps = random.integer(0, 9);
    run = static_cast<std::int32_t>((channels + 1) / 2);
    a_stride = random.integer(1, 200);
    const std::int64_t reach = 200;
    for (std::int64_t t = 0; t < taps; ++t) {
      segments.push_back(static_cast<std::int32_t>(2 * random.integer(0, reach - 2 * run)));
    }
    a.resize(static_cast<std::size_t>(pixels * a_stride + reach));
    for (Half& x : a) x = to_half(static_cast<float>(random.real(-input, input)));
    weights.resize(static_cast<std::size_t>(columns * channels * taps));
    for (float& w : weights) w = static_cast<float>(random.real(-weight, weight));
    if (random.coin()) {
      for (std::int64_t i = 0; i < columns; ++i) bias.push_back(static_cast<float>(random.real(-1, 1)));
    }
    if (random.coin()) {
      for (std::int64_t i = 0; i < pixels * columns; ++i)
        residual.push_back(to_half(static_cast<float>(random.real(-1, 1))));
    }
    f32_output = random.coin();
    if (random.coin()) {
      low = 0;
      high = 0.75F;
    }
  }

  std::int64_t steps() const { return taps * run; }
  double weight(std::int64_t column, std::int64_t tap, std::int64_t channel) const {
    return channel < channels ? weights[static_cast<std::size_t>((column * channels + channel) * taps + tap)]
                              : 0.0;
  }
  double input(std::int64_t pixel, std::int64_t tap, std::int64_t channel) const {
    return to_float(a[static_cast<std::size_t>(pixel * a_stride +
                                               segments[static_cast<std::size_t>(tap)] / 2 + channel)]);
  }

  struct Result {
    std::vector<float> c;            // [pixels][columns]
    std::vector<float> multipliers;  // [columns]
  };

  Result run_on(const TileKernels& kernels) const {
    const TilePanels panels(kernels, steps(), columns);
    const KeptSteps all(panels, 1, steps());
    const HostBuffer packed(static_cast<std::size_t>(panels.bytes()));
    const std::size_t element = f32_output ? sizeof(float) : sizeof(Half);
    std::vector<std::byte> c(static_cast<std::size_t>(pixels * columns) * element + 64, std::byte{0xA5});
    Result result;
    result.multipliers.resize(static_cast<std::size_t>(columns));
    const WeightView view{weights.data(), channels * taps, taps, 1, channels, taps};
    for (std::int64_t p = 0; p < panels.count(); ++p) {
      const std::int64_t first = p * panels.panel;
      pack_f16_panel(panels, p, view, all.steps(p), kernels.stretch, packed.data() + all.offset(p),
                     result.multipliers.data() + first);
      TileCall call;
      call.a[0] = reinterpret_cast<const std::byte*>(a.data());
      call.a_stride = 2 * a_stride;
      call.segments = segments.data();
      call.segment_count = static_cast<std::int32_t>(taps);
      call.run = run;
      call.weights = packed.data() + panels.offset(p);
      call.prefetch = call.weights;
      call.c[0] = c.data() + static_cast<std::size_t>(first) * element;
      call.c_stride = columns * static_cast<std::int64_t>(element);
      call.columns = panels.columns(p);
      call.multiplier = result.multipliers.data() + first;
      call.bias = bias.empty() ? nullptr : bias.data() + first;
      if (!residual.empty()) call.residual[0] = reinterpret_cast<const std::byte*>(residual.data() + first);
      call.residual_stride = 2 * columns;
      call.output_type = f32_output ? TileType::f32 : TileType::f16;
      call.low = low;
      call.high = high;
      run_tile_row(kernels, call, pixels);
    }
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(c[c.size() - 64 + i], std::byte{0xA5}) << "wrote beyond c";
    for (std::int64_t i = 0; i < pixels * columns; ++i) {
      if (f32_output) {
        result.c.push_back(reinterpret_cast<const float*>(c.data())[i]);
      } else {
        result.c.push_back(to_float(reinterpret_cast<const Half*>(c.data())[i]));
      }
    }
    return result;
  }

  // From the sum of products, in f32, on.
  float finish(float sum, std::int64_t pixel, std::int64_t column) const {
    float x = sum;
    if (!bias.empty()) x += bias[static_cast<std::size_t>(column)];
    if (!residual.empty()) x += to_float(residual[static_cast<std::size_t>(pixel * columns + column)]);
    x = std::min(std::max(x, low), high);
    return f32_output ? x : to_float(to_half(x));
  }

  // What tile_kernel.h says, one operation after the other.
  float expected(std::int64_t pixel, std::int64_t column, int stretch, float multiplier) const {
    float total = 0;
    double sums[2] = {};
    std::int64_t step = 0;
    const auto end_stretch = [&] {
      total += static_cast<float>(rounded(sums[0] + sums[1]));
      sums[0] = sums[1] = 0;
    };
    for (std::int64_t t = 0; t < taps; ++t) {
      for (std::int64_t k = 0; k < run; ++k) {
        for (std::int64_t j = 0; j < 2; ++j) {
          const auto scaled = static_cast<float>(weight(column, t, 2 * k + j)) / multiplier;
          sums[j] = rounded(sums[j] + input(pixel, t, 2 * k + j) * to_float(to_half(scaled)));
        }
        if (++step % stretch == 0) end_stretch();
      }
    }
    if (step % stretch != 0) end_stretch();
    return finish(total * multiplier, pixel, column);
  }

  // The sum in double, and how far off the tile may be: additions in halves, kHalfStretch + 1 of them one after the
  // other, each by 2^-11 of what it gives or by half of the smallest subnormal, in units of the scaled weights; the
  // weights' rounding, likewise; additions in f32; the result's rounding.
  struct Bounded {
    double value;
    double error;
  };
  Bounded bounded(std::int64_t pixel, std::int64_t column, int stretch, float multiplier) const {
    double sum = 0;
    double magnitude = 0;
    double inputs = 0;
    for (std::int64_t t = 0; t < taps; ++t) {
      for (std::int64_t k = 0; k < channels; ++k) {
        const double product = weight(column, t, k) * input(pixel, t, k);
        sum += product;
        magnitude += std::abs(product);
        inputs += std::abs(input(pixel, t, k));
      }
    }
    double error = (stretch + 2) * 0x1p-11 * 1.02 * magnitude;
    error += 0x1p-25 * multiplier * (inputs + static_cast<double>(3 * steps() + 1));
    error += static_cast<double>(steps() / stretch + 4) * FLT_EPSILON * (magnitude + 2);
    const double value = finish_exactly(sum, pixel, column);
    if (!f32_output) error += 0x1p-11 * (std::abs(value) + error) + 0x1p-25;
    return {value, error};
  }
  double finish_exactly(double sum, std::int64_t pixel, std::int64_t column) const {
    if (!bias.empty()) sum += bias[static_cast<std::size_t>(column)];
    if (!residual.empty()) sum += to_float(residual[static_cast<std::size_t>(pixel * columns + column)]);
    return std::min<double>(std::max<double>(sum, low), high);
  }

  std::string description(std::int64_t pixel, std::int64_t column) const {
    return fmt::format("pixel {} of {}, column {} of {}, {} channels, {} taps, seed {}", pixel, pixels,
                       column, columns, channels, taps, test::test_seed());
  }
};

TEST(TileF16, EveryInstructionSetHasTheBitsOfItsDescription) {
  Random random;
  for (int i = 0; i < 100; ++i) {
    const HalfProduct product(random);
    for (const TileKernels* kernels : half_instruction_sets()) {
      const HalfProduct::Result result = product.run_on(*kernels);
      for (std::int64_t n = 0; n < product.pixels * product.columns; ++n) {
        const std::int64_t column = n % product.columns;
        ASSERT_EQ(result.c[static_cast<std::size_t>(n)],
                  product.expected(n / product.columns, column, kernels->stretch,
                                   result.multipliers[static_cast<std::size_t>(column)]))
            << product.description(n / product.columns, column);
      }
    }
  }
}

// Also far from 1, where scaled weights keep sums from overflowing and small inputs become subnormal sums.
TEST(TileF16, ErrorsStayWithinTheBound) {
  Random random;
  for (const double input : {65504.0, 100.0, 1e-3, 1e-6}) {
    for (const double weight : {1e6, 1e3, 1.0, 1e-9}) {
      for (int i = 0; i < 5; ++i) {
        HalfProduct product(random, input, weight);
        product.f32_output = true;  // halves would overflow
        for (const TileKernels* kernels : half_instruction_sets()) {
          const HalfProduct::Result result = product.run_on(*kernels);
          for (std::int64_t n = 0; n < product.pixels * product.columns; ++n) {
            const std::int64_t column = n % product.columns;
            const auto [value, error] = product.bounded(n / product.columns, column, kernels->stretch,
                                                        result.multipliers[static_cast<std::size_t>(column)]);
            ASSERT_NEAR(result.c[static_cast<std::size_t>(n)], value, error)
                << product.description(n / product.columns, column) << ", inputs up to " << input
                << ", weights up to " << weight;
          }
        }
      }
    }
  }
}

// Sums whose parts are as large as they can be: every stretch at once 65504 times all weights of one sign.
TEST(TileF16, NoStretchOverflows) {
  Random random;
  for (const TileKernels* kernels : half_instruction_sets()) {
    for (int i = 0; i < 20; ++i) {
      HalfProduct product(random);
      product.f32_output = true;
      product.low = -INFINITY;
      product.high = INFINITY;
      for (Half& x : product.a) x = to_half(65504);
      for (float& w : product.weights) w = std::abs(w);
      const HalfProduct::Result result = product.run_on(*kernels);
      for (const float c : result.c) ASSERT_TRUE(std::isfinite(c)) << product.description(0, 0);
    }
  }
}

// What the bound of the worst case does not show: errors of random terms grow with the root of their number.
TEST(TileF16, ErrorsOfRandomTermsAreSmall) {
  Random random;
  for (const TileKernels* kernels : half_instruction_sets()) {
    double squares = 0;
    double errors = 0;
    for (int i = 0; i < 30; ++i) {
      HalfProduct product(random);
      product.f32_output = true;
      product.low = -INFINITY;
      product.high = INFINITY;
      product.bias.clear();
      product.residual.clear();
      const HalfProduct::Result result = product.run_on(*kernels);
      for (std::int64_t n = 0; n < product.pixels * product.columns; ++n) {
        const auto [value, error] = product.bounded(n / product.columns, n % product.columns, 1, 1);
        squares += value * value;
        errors +=
            (value - result.c[static_cast<std::size_t>(n)]) * (value - result.c[static_cast<std::size_t>(n)]);
      }
    }
    // sqrt(kHalfStretch / 6) * 2^-11, and half as much again for weights, pairs and chance.
    EXPECT_LT(std::sqrt(errors / squares), 1.5 * std::sqrt(kHalfStretch / 6.0) * 0x1p-11)
        << "seed " << test::test_seed();
  }
}

TEST(TileF16, NanAndInfinityPass) {
  for (const TileKernels* kernels : half_instruction_sets()) {
    for (const float value : {INFINITY, -INFINITY, std::nanf("")}) {
      const TilePanels panels(*kernels, 1, kernels->panel());
      const std::vector<float> weights(static_cast<std::size_t>(2 * kernels->panel()), 1.0F);
      const HostBuffer packed(static_cast<std::size_t>(panels.bytes()));
      std::vector<float> multipliers(static_cast<std::size_t>(kernels->panel()));
      pack_f16_panel(panels, 0, {weights.data(), 2, 1, 0, 2, 1}, KeptSteps(panels, 1, 1).steps(0),
                     kernels->stretch, packed.data(), multipliers.data());
      const Half a[2] = {to_half(value), to_half(1)};
      const std::int32_t segment = 0;
      std::vector<float> c(static_cast<std::size_t>(kernels->panel()));
      TileCall call;
      call.a[0] = reinterpret_cast<const std::byte*>(a);
      call.segments = &segment;
      call.segment_count = 1;
      call.run = 1;
      call.weights = packed.data();
      call.prefetch = packed.data();
      call.c[0] = reinterpret_cast<std::byte*>(c.data());
      call.columns = kernels->panel();
      call.multiplier = multipliers.data();
      call.output_type = TileType::f32;
      call.low = -INFINITY;
      call.high = INFINITY;
      run_tile_row(*kernels, call, 1);
      for (const float x : c) {
        if (std::isnan(value)) {
          ASSERT_TRUE(std::isnan(x));
        } else {
          ASSERT_EQ(x, value);
        }
      }
    }
  }
}

// Three channels are two steps of K: what the second one reads besides must not come from the next pixel.
TEST(TileF16, AnInfinityStaysInItsPixel) {
  for (const Layout layout : {Layout::channels_last, Layout::row_major}) {
    TileConvolution::Geometry geometry;
    geometry.input = {Shape{1, 3, 2, 5}, DType::f16, layout};
    geometry.output = Shape{1, 4, 2, 5};
    geometry.window.rank = 2;
    const std::vector<float> weights(12, 1.0F);
    const TileConvolution convolution(geometry, weights.data(), 1);
    std::vector<Half> x(30, to_half(1));
    // Channel 0 of pixel 3, then in row_major order of the same.
    x[layout == Layout::channels_last ? 9 : 3] = to_half(INFINITY);
    std::vector<Half> y(40, Half{0xFFFF});
    const HostBuffer scratch(convolution.scratch_bytes());
    ThreadPool pool(1);
    convolution.run(reinterpret_cast<const std::byte*>(x.data()), nullptr, nullptr,
                    reinterpret_cast<std::byte*>(y.data()), RunContext{pool, scratch.data()});
    for (std::size_t i = 0; i < y.size(); ++i)
      ASSERT_EQ(to_float(y[i]), i / 4 == 3 ? INFINITY : 3.0F) << i << ", " << layout_name(layout);
  }
}

}  // namespace
}  // namespace pipit::internal
