// The register-tile kernel below the layers, on every instruction set that this machine has.
#include <gmock/gmock.h>

#include <cfloat>
#include <cmath>
#include <numeric>

#include "engine/error.h"
#include "layers/clamp.h"
#include "layers/cpu/tile_kernel.h"
#include "layers/cpu/tile_pack.h"
#include "tests/layers/conformance.h"

namespace pipit {
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

// A random product: `pixels` rows of A with gaps, K in segments anywhere behind a pixel, one panel.
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
                               test::conformance_seed()));
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

TEST(TileGroups, CoverEveryPixelWithGroupsOfOneSize) {
  for (const Isa isa : instruction_sets()) {
    const TileKernels& kernels = f32_tiles(isa);
    for (std::int64_t pixels = 1; pixels < 100; ++pixels) {
      const TileGroups groups(kernels, pixels);
      ASSERT_LE(groups.size, kernels.group);
      std::vector<bool> seen(static_cast<std::size_t>(pixels));
      for (std::int64_t g = 0; g < groups.count; ++g) {
        for (std::int64_t i = 0; i < groups.size; ++i)
          seen.at(static_cast<std::size_t>(groups.start(g) + i)) = true;
      }
      ASSERT_THAT(seen, testing::Each(true)) << pixels << " pixels, " << isa_name(isa);
    }
  }
}

}  // namespace
}  // namespace pipit
