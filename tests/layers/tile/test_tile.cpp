// The register-tile kernel below the layers, on every instruction set that this machine has.
#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>
#include <numeric>

#include "engine/base/error.h"
#include "layers/cpu/tile/kept_steps.h"
#include "layers/cpu/tile/peak_probe.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/tile/tile_pack.h"
#include "layers/ops/clamp.h"
#include "layers/ops/quantization.h"
#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using test::Random;

std::vector<Isa> instruction_sets() {
  std::vector<Isa> result;
  for (const Isa isa : all_isas()) {
    if (isa_available(isa)) result.push_back(isa);
  }
  return result;
}

TEST(Isa, NamesThatDoNotExistAreRefused) {
  EXPECT_EQ(find_isa("baseline"), Isa::baseline);
  EXPECT_TRUE(isa_available(find_isa("")));
  for (const char* name : {"AVX2", "sse", "avx512 ", "vnni"}) EXPECT_THROW(find_isa(name), Error) << name;
  for (const Isa isa : all_isas()) {
    if (isa_available(isa)) {
      EXPECT_EQ(find_isa(isa_name(isa)), isa);
    } else {
      EXPECT_THROW(find_isa(isa_name(isa)), Error);
    }
  }
}

// A random product: `pixels` rows of A with gaps, K in segments anywhere after a pixel, one panel.
struct Product {
  std::int64_t pixels, steps, columns, a_stride, c_stride;
  std::int32_t run;
  std::vector<std::int32_t> segments;
  std::vector<float> a, weights, bias, residual;
  Clamp clamp;

  Product(Random& random, int panel) {
    pixels = random.integer(1, 40);
    columns = random.integer(1, panel);
    run = static_cast<std::int32_t>(random.integer(1, 9));
    segments.resize(static_cast<std::size_t>(random.integer(0, 7)));
    steps = run * static_cast<std::int64_t>(segments.size());
    a_stride = random.integer(1, 50);
    c_stride = columns + random.integer(0, 5);
    const std::int64_t reach = 100;
    for (std::int32_t& s : segments) s = static_cast<std::int32_t>(4 * random.integer(0, reach - run));
    a = values(random, pixels * a_stride + reach);
    weights = values(random, steps * columns);
    if (random.coin()) bias = values(random, columns);
    if (random.coin()) residual = values(random, pixels * c_stride);
    if (random.coin()) clamp = {-0.5F, 0.75F};
  }

  static std::vector<float> values(Random& random, std::int64_t count) {
    std::vector<float> result(static_cast<std::size_t>(count));
    for (float& x : result) x = static_cast<float>(random.real(-1, 1));
    return result;
  }

  // C with poison in the gaps and everywhere before the run.
  std::vector<float> run_on(const TileKernels& kernels) const {
    const TilePanels panels(kernels, steps, columns);
    const HostBuffer packed(static_cast<std::size_t>(panels.bytes()));
    for (std::int64_t p = 0; p < panels.count(); ++p) {
      pack_f32_panel(panels, p, {weights.data(), steps, 1, 0, steps, 1}, packed.data());
    }
    std::vector<float> c(static_cast<std::size_t>(pixels * c_stride + 64), std::nanf(""));
    for (std::int64_t p = 0; p < panels.count(); ++p) {
      TileCall call;
      call.a[0] = reinterpret_cast<const std::byte*>(a.data());
      call.a_stride = a_stride * 4;
      call.segments = segments.data();
      call.segment_count = static_cast<std::int32_t>(segments.size());
      call.run = run;
      call.weights = packed.data() + panels.offset(p);
      call.prefetch = call.weights;
      call.c[0] = reinterpret_cast<std::byte*>(c.data() + p * panels.panel);
      call.c_stride = c_stride * 4;
      call.columns = panels.columns(p);
      call.bias = bias.empty() ? nullptr : bias.data() + p * panels.panel;
      if (!residual.empty()) {
        call.residual[0] = reinterpret_cast<const std::byte*>(residual.data() + p * panels.panel);
      }
      call.residual_stride = c_stride * 4;
      call.low = clamp.low;
      call.high = clamp.high;
      run_tile_row(kernels, call, pixels);
    }
    return c;
  }

  void check(const std::vector<float>& c) const {
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(c.size()); ++i) {
      const std::int64_t pixel = i / c_stride;
      const std::int64_t column = i % c_stride;
      const float got = c[static_cast<std::size_t>(i)];
      if (pixel >= pixels || column >= columns) {
        ASSERT_TRUE(std::isnan(got)) << "wrote beyond the outputs at " << pixel << ", " << column;
        continue;
      }
      double sum = bias.empty() ? 0.0 : bias[static_cast<std::size_t>(column)];
      if (!residual.empty()) sum += residual[static_cast<std::size_t>(i)];
      double magnitude = std::abs(sum) + 2;
      for (std::int64_t k = 0; k < steps; ++k) {
        const std::int64_t at = pixel * a_stride + segments[static_cast<std::size_t>(k / run)] / 4 + k % run;
        const double product = static_cast<double>(a[static_cast<std::size_t>(at)]) *
                               weights[static_cast<std::size_t>(column * steps + k)];
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(got, clamp(sum), static_cast<double>(steps + 4) * FLT_EPSILON * magnitude)
          << "pixel " << pixel << ", column " << column;
    }
  }
};

TEST(TileF32, EveryInstructionSetMatchesDoubleArithmetic) {
  Random random;
  for (int i = 0; i < 300; ++i) {
    const Product product(random, 70);
    std::vector<float> fused;
    for (const Isa isa : instruction_sets()) {
      SCOPED_TRACE(fmt::format("{}: {} pixels, {} columns, {} segments of {}, seed {}", isa_name(isa),
                               product.pixels, product.columns, product.segments.size(), product.run,
                               test::test_seed()));
      const std::vector<float> c = product.run_on(f32_tiles(isa));
      product.check(c);
      if (testing::Test::HasFatalFailure()) return;
      if (isa == Isa::baseline) continue;  // rounds products, the others do not
      if (fused.empty()) fused = c;
      ASSERT_EQ(std::memcmp(fused.data(), c.data(), c.size() * sizeof(float)), 0)
          << "instruction sets with FMA sum up in the same order";
    }
  }
}

TEST(TileF32, NanPassesTheClamp) {
  for (const Isa isa : instruction_sets()) {
    const TileKernels& kernels = f32_tiles(isa);
    const std::vector<float> bias(static_cast<std::size_t>(kernels.panel()), std::nanf(""));
    std::vector<float> c(static_cast<std::size_t>(kernels.panel()));
    TileCall call;
    call.c[0] = reinterpret_cast<std::byte*>(c.data());
    call.columns = kernels.panel();
    call.bias = bias.data();
    call.high = 6;
    run_tile_row(kernels, call, 1);
    for (const float x : c) ASSERT_TRUE(std::isnan(x)) << isa_name(isa);
  }
}

// A random product of u8 and s8 whose channels are padded to whole steps, with every epilogue.
struct Int8Product {
  std::int64_t pixels, channels, taps, steps, columns, a_stride;
  std::vector<std::uint8_t> a;
  std::vector<std::int8_t> weights;
  std::vector<std::int32_t> bias;
  std::vector<float> multiplier;
  std::vector<std::uint8_t> residual;
  bool residual_signed, f32_output;
  int residual_zero_point;
  float residual_scale;
  Quantization y;
  StepBounds bounds;
  std::vector<float> scales, float_bias;

  explicit Int8Product(Random& random, std::int64_t most_channels = 21) {
    pixels = random.integer(1, 70);
    channels = random.integer(1, most_channels);
    taps = random.integer(1, 5);
    columns = random.integer(1, 70);
    const std::int64_t channel_steps = (channels + 3) / 4;
    steps = taps * channel_steps;
    a_stride = 4 * (steps + random.integer(0, 3));
    // Every third case saturates whatever keeps sums of products in 16 bits.
    const bool extreme = random.integer(0, 2) == 0;
    a.resize(static_cast<std::size_t>(pixels * a_stride));
    for (auto& x : a) x = static_cast<std::uint8_t>(extreme ? 255 : random.integer(0, 255));
    weights.resize(static_cast<std::size_t>(columns * channels * taps));
    for (auto& x : weights)
      x = static_cast<std::int8_t>(extreme ? (random.coin() ? 127 : -128) : random.integer(-128, 127));
    const bool huge = random.coin();
    for (std::int64_t i = 0; i < columns; ++i) {
      bias.push_back(static_cast<std::int32_t>(random.integer(-100000, 100000)));
      // Some so large that results lie beyond every integer.
      const bool beyond = huge && random.integer(0, 9) == 0;
      multiplier.push_back(static_cast<float>(beyond ? 1e6 : random.real(1e-5, 2e-3)));
    }
    if (random.coin()) {
      residual.resize(static_cast<std::size_t>(pixels * columns));
      for (auto& x : residual) x = static_cast<std::uint8_t>(random.integer(0, 255));
    }
    residual_signed = random.coin();
    residual_zero_point = static_cast<int>(random.integer(-128, 127));
    residual_scale = static_cast<float>(random.real(0.1, 2));
    f32_output = random.integer(0, 3) == 0;
    y = {1, static_cast<int>(random.coin() ? 0 : random.integer(1, 127)),
         random.coin() ? DType::i8 : DType::u8};
    if (y.dtype == DType::u8 && random.coin()) y.zero_point = 128;  // as calibrated plans have it
    bounds = f32_output ? StepBounds{-90, 70} : step_bounds(y, random.coin() ? 0.0F : -INFINITY, INFINITY);
  }

  // With results in f32, as convolutions with scales found at run time have them.
  void pixel_scales(Random& random) {
    f32_output = true;
    bounds = {-90, 70};
    scales.resize(static_cast<std::size_t>(pixels));
    for (float& s : scales) s = static_cast<float>(random.real(0.1, 2));
    float_bias.resize(static_cast<std::size_t>(columns));
    for (float& b : float_bias) b = static_cast<float>(random.real(-20, 20));
    residual.clear();
  }

  std::size_t output_bytes() const { return f32_output ? 4 : 1; }

  std::vector<std::byte> run_on(const TileKernels& kernels) const {
    const std::int64_t run = (channels + kernels.step - 1) / kernels.step;
    const TilePanels panels(kernels, taps * run, columns);
    const KeptSteps all(panels, 1, run);
    const HostBuffer packed(static_cast<std::size_t>(panels.bytes()));
    const std::vector<std::uint16_t> wide(a.begin(), a.end());
    const bool widened = kernels.step == 2;
    // [columns][channels][taps], as weights come; K is (tap, channel).
    WeightsOf<std::int8_t> view{weights.data(), channels * taps, taps, 1, channels, taps};
    std::vector<std::int32_t> segments;
    for (std::int64_t t = 0; t < taps; ++t)
      segments.push_back(static_cast<std::int32_t>(4 * (steps / taps) * t * kernels.element()));
    std::vector<std::byte> c(static_cast<std::size_t>(pixels * columns) * output_bytes() + 64,
                             std::byte{0xA5});
    for (std::int64_t p = 0; p < panels.count(); ++p) {
      view.data = weights.data() + p * panels.panel * view.output_stride;
      pack_s8_panel(panels, p, view, all.steps(p), packed.data() + all.offset(p));
      TileCall call;
      call.a[0] = widened ? reinterpret_cast<const std::byte*>(wide.data())
                          : reinterpret_cast<const std::byte*>(a.data());
      call.a_stride = a_stride * kernels.element();
      call.segments = segments.data();
      call.segment_count = static_cast<std::int32_t>(taps);
      call.run = static_cast<std::int32_t>(run);
      call.weights = packed.data() + panels.offset(p);
      call.prefetch = call.weights;
      const std::int64_t first = p * panels.panel;
      call.c[0] = c.data() + first * static_cast<std::int64_t>(output_bytes());
      call.c_stride = columns * static_cast<std::int64_t>(output_bytes());
      call.columns = panels.columns(p);
      call.sum_bias = bias.data() + first;
      call.multiplier = multiplier.data() + first;
      if (!residual.empty()) call.residual[0] = reinterpret_cast<const std::byte*>(residual.data() + first);
      if (!scales.empty()) {
        call.pixel_scale[0] = scales.data();
        call.pixel_scale_step = 1;
        call.bias = float_bias.data() + first;
      }
      call.residual_stride = columns;
      call.residual_scale = residual_scale;
      call.residual_zero_point = residual_zero_point;
      call.residual_type = residual_signed ? TileType::s8 : TileType::u8;
      call.output_type = f32_output ? TileType::f32 : y.dtype == DType::i8 ? TileType::s8 : TileType::u8;
      call.zero_point = y.zero_point;
      call.small = *std::max_element(multiplier.begin(), multiplier.end()) <= 0.25F;
      call.low = bounds.low;
      call.high = bounds.high;
      run_tile_row(kernels, call, pixels);
    }
    return c;
  }

  // The specification in layers/ops/quantization.h and layers/ops/qconv.h.
  std::vector<std::byte> expected() const {
    std::vector<std::byte> c(static_cast<std::size_t>(pixels * columns) * output_bytes() + 64,
                             std::byte{0xA5});
    for (std::int64_t i = 0; i < pixels * columns; ++i) {
      const std::int64_t column = i % columns;
      std::int32_t sum = bias[static_cast<std::size_t>(column)];
      for (std::int64_t t = 0; t < taps; ++t) {
        for (std::int64_t k = 0; k < channels; ++k) {
          sum += a[static_cast<std::size_t>(i / columns * a_stride + 4 * (steps / taps) * t + k)] *
                 weights[static_cast<std::size_t>((column * channels + k) * taps + t)];
        }
      }
      float value = static_cast<float>(sum) * multiplier[static_cast<std::size_t>(column)];
      if (!residual.empty()) {
        const std::uint8_t raw = residual[static_cast<std::size_t>(i)];
        const int r = residual_signed ? static_cast<std::int8_t>(raw) : raw;
        value += static_cast<float>(r - residual_zero_point) * residual_scale;
      }
      std::byte* to = c.data() + static_cast<std::size_t>(i) * output_bytes();
      if (f32_output) {
        value = std::min(std::max(value, bounds.low), bounds.high);
        std::memcpy(to, &value, sizeof value);
      } else {
        *to = static_cast<std::byte>(requantize(value, bounds, y.zero_point));
      }
    }
    return c;
  }
};

TEST(TileInt8, EveryInstructionSetMatchesTheSpecificationBitForBit) {
  Random random;
  for (int i = 0; i < 400; ++i) {
    const Int8Product product(random);
    const std::vector<std::byte> expected = product.expected();
    for (const Isa isa : instruction_sets()) {
      ASSERT_EQ(product.run_on(u8s8_tiles(isa)), expected)
          << fmt::format("{}: {} pixels, {} columns, {} channels, {} taps, seed {}", isa_name(isa),
                         product.pixels, product.columns, product.channels, product.taps, test::test_seed());
    }
  }
}

// Steps of K that a tile register holds, fewer, multiples of that, and prime numbers of them.
TEST(TileInt8, AmxGivesTheBitsOfVnni) {
  if (!isa_available(Isa::amx)) GTEST_SKIP() << "this CPU, build or operating system is without AMX";
  Random random;
  for (int i = 0; i < 300; ++i) {
    Int8Product product(random, 300);
    if (random.coin()) product.pixel_scales(random);
    const std::vector<std::byte> expected = product.run_on(u8s8_tiles(Isa::avx512vnni));
    ASSERT_EQ(product.run_on(u8s8_tiles(Isa::amx)), expected)
        << fmt::format("{} pixels, {} columns, {} channels, {} taps, seed {}", product.pixels,
                       product.columns, product.channels, product.taps, test::test_seed());
  }
}

TEST(TileInt8, FewStepsAreNotForAmx) {
  for (const Isa isa : instruction_sets()) {
    SCOPED_TRACE(isa_name(isa));
    const TileKernels* const own = &u8s8_tiles(isa);
    const TileKernels* const below = &u8s8_tiles(isa == Isa::amx ? Isa::avx512vnni : isa);
    for (const auto& [segments, run] : {std::pair{1, 64}, {3, 48}, {1, 16}, {7, 6}, {1, 8}})
      EXPECT_EQ(&u8s8_tiles_for(segments, run, isa), own) << segments << " of " << run;
    for (const auto& [segments, run] : {std::pair{0, 16}, {1, 4}, {1, 6}, {1, 17}, {9, 1}, {9, 3}, {1, 251}})
      EXPECT_EQ(&u8s8_tiles_for(segments, run, isa), below) << segments << " of " << run;
  }
}

TEST(PeakProbe, MeasuresSomethingPossible) {
  ThreadPool pool(1);
  for (const Isa isa : instruction_sets()) {
    for (const TileKernels* kernels : {&f32_tiles(isa), &u8s8_tiles(isa), f16_tiles(isa)}) {
      if (kernels == nullptr) continue;
      const double rate = measure_peak(pool, *kernels).best;
      EXPECT_GT(rate, 1e8) << isa_name(isa);
      // At most two vector instructions a cycle, or 16 rows of a tile register in 16, at less than 7 GHz, whatever the
      // compiler made of the loop.
      const int instructions = kernels->isa == Isa::amx ? 16 : 2;
      const double most = 7e9 * 2 * instructions * kernels->lanes * kernels->step;
      EXPECT_LT(rate, most) << isa_name(isa);
      const double tile = measure_tile_rate(pool, *kernels).best;
      EXPECT_GT(tile, 1e8) << isa_name(isa);
      EXPECT_LT(tile, most) << isa_name(isa);
    }
  }
}

TEST(TilePairs, CoverEveryPixelAndAtMostOneTwice) {
  for (const Isa isa : instruction_sets()) {
    const TileKernels& kernels = f32_tiles(isa);
    for (std::int64_t pixels = 1; pixels < 100; ++pixels) {
      const TilePairs pairs(kernels, pixels);
      std::vector<int> times(static_cast<std::size_t>(pixels));
      for (std::int64_t i = 0; i < pairs.count; ++i) {
        const TilePairs::Pair pair = pairs.pair(i);
        ASSERT_LE(pair.size, kernels.strip);
        for (int strip = 0; strip < pair.strips; ++strip) {
          for (std::int64_t at = 0; at < pair.size; ++at)
            ++times.at(static_cast<std::size_t>(pair.start[strip] + at));
        }
      }
      ASSERT_THAT(times, testing::Each(testing::Ge(1))) << pixels << " pixels, " << isa_name(isa);
      const int computed = std::accumulate(times.begin(), times.end(), 0);
      ASSERT_EQ(computed, pairs.computed());
      ASSERT_LE(computed, pixels + 1) << isa_name(isa);
    }
  }
}

TEST(TileStrips, CoverEveryPixelWithStripsOfOneSize) {
  for (const Isa isa : instruction_sets()) {
    const TileKernels& kernels = f32_tiles(isa);
    for (std::int64_t pixels = 1; pixels < 100; ++pixels) {
      const TileStrips strips(kernels, pixels);
      ASSERT_LE(strips.size, kernels.strip);
      std::vector<bool> seen(static_cast<std::size_t>(pixels));
      for (std::int64_t g = 0; g < strips.count; ++g) {
        for (std::int64_t i = 0; i < strips.size; ++i)
          seen.at(static_cast<std::size_t>(strips.start(g) + i)) = true;
      }
      ASSERT_THAT(seen, testing::Each(true)) << pixels << " pixels, " << isa_name(isa);
    }
  }
}

}  // namespace
}  // namespace pipit::internal
