// How convolutions on the tile kernel are cut: every output once, in memory that was booked, whatever tiles compute.
#include "layers/cpu/tile/tile_schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

#include "layers/cpu/tile/tile_loop.h"
#include "tests/support/seed.h"

namespace pipit::internal {
namespace {

struct Cut {
  TileWork work;
  ConvInput input;
  TileSchedule schedule;
  std::string text;
};

Cut random_cut(std::mt19937& random) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  TileWork work;
  const std::int64_t batch = pick(1, 5);
  const std::int64_t depth = pick(0, 1) == 0 ? 1 : pick(2, 4);
  work.images = batch * depth;
  work.height = pick(1, 40);
  work.width = pick(1, 40);
  work.channels = pick(1, 300);
  work.panels = (work.channels + 31) / 32;
  work.weight_bytes = std::int64_t{1} << pick(0, 20);
  work.cache_bytes = std::int64_t{1} << pick(9, 21);
  work.threads = static_cast<int>(pick(1, 9));
  Window window;
  window.rank = 3;
  const bool plain = pick(0, 1) == 0;
  for (std::size_t d = depth == 1 ? 1 : 0; d < 3; ++d) {
    window.kernel[d] = plain ? 1 : pick(1, 4);
    window.stride[d] = plain ? 1 : pick(1, 2);
    window.pad_begin[d] = pick(0, window.kernel[d] - 1);
  }
  const std::int64_t channels = pick(1, 9);
  // As many inputs as the outputs read after the padding.
  const auto extent = [&](std::size_t d, std::int64_t outputs) {
    return std::max<std::int64_t>(
        1, (outputs - 1) * window.stride[d] + window.kernel[d] - window.pad_begin[d] - pick(0, 1));
  };
  const TensorDesc x{Shape{batch, channels, extent(0, depth), extent(1, work.height), extent(2, work.width)},
                     DType::f32, pick(0, 1) == 0 ? Layout::row_major : Layout::channels_last};
  work.input_bytes = static_cast<std::int64_t>(x.bytes()) / work.images;
  const ConvInput input(x, Shape{batch, work.channels, depth, work.height, work.width}, window, 1, 14, 4, 0);
  return {work, input, TileSchedule(work, input),
          fmt::format("{} images {}x{}x{} from {}, weights of {} bytes, cache of {}, {} threads", work.images,
                      work.channels, work.height, work.width, x.str(), work.weight_bytes, work.cache_bytes,
                      work.threads)};
}

TEST(TileSchedule, BandsHoldEveryPixelOnce) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  int of_bands = 0;
  int of_panels = 0;
  int copied = 0;
  for (int i = 0; i < 500; ++i) {
    const Cut cut = random_cut(random);
    SCOPED_TRACE(cut.text);
    std::int64_t next = 0;  // pixel
    std::int64_t most = 0;
    for (std::int64_t b = 0; b < cut.schedule.bands(); ++b) {
      const ImageBand band = cut.schedule.band(b);
      ASSERT_EQ(cut.schedule.first_pixel(band), next);
      ASSERT_GE(band.rows, 1);
      ASSERT_LE(band.row + band.rows, cut.work.height);
      ASSERT_TRUE(band.images == 1 || band.rows == cut.work.height);
      next += cut.schedule.pixels(band);
      most = std::max(most, cut.schedule.pixels(band));
      if (!cut.input.copied()) continue;
      ASSERT_GE(
          cut.schedule.copy_bytes(),
          band.images * cut.input.copied_rows(band.rows) * cut.input.copied_row_bytes() + ConvInput::kSlack);
    }
    EXPECT_EQ(next, cut.work.images * cut.work.height * cut.work.width);
    EXPECT_EQ(most, cut.schedule.most_pixels());
    EXPECT_EQ(cut.schedule.copy_bytes() > 0, cut.input.copied());
    EXPECT_EQ(cut.schedule.bands_at_work(), cut.schedule.shares_bands() ? cut.work.threads : 1);
    // Every tile reads all weights of a band, which have to stay where it finds them.
    if (cut.schedule.shares_bands()) {
      EXPECT_LE(cut.work.weight_bytes, cut.work.cache_bytes * 5 / 8);
    }
    ++(cut.schedule.shares_bands() ? of_bands : of_panels);
    copied += cut.input.copied() ? 1 : 0;
  }
  // The cases are of all kinds.
  EXPECT_GT(of_bands, 50);
  EXPECT_GT(of_panels, 50);
  EXPECT_GT(copied, 50);
  EXPECT_LT(copied, 450);
}

TEST(TileSchedule, SplitsHoldEveryTileOnce) {
  std::mt19937 random(test::test_seed());
  for (int i = 0; i < 100; ++i) {
    const Cut cut = random_cut(random);
    SCOPED_TRACE(cut.text);
    for (const std::int64_t tiles : {1, 2, 3, 7, 100}) {
      const std::int64_t splits = cut.schedule.splits(tiles);
      ASSERT_GE(splits, 1);
      std::int64_t next = 0;
      for (std::int64_t s = 0; s < splits; ++s) {
        const TileRange part = TileRange{0, tiles}.part(s, splits);
        ASSERT_EQ(part.begin, next);
        ASSERT_GT(part.size(), 0);
        next = part.end;
      }
      EXPECT_EQ(next, tiles);
      // Enough tasks for all threads where there are tiles enough.
      if (!cut.schedule.shares_bands() && splits < tiles) {
        EXPECT_GE(splits * cut.work.panels, cut.work.threads);
      }
    }
  }
}

TEST(TileScratch, NothingLiesOnAnything) {
  for (const int bands : {1, 3}) {
    for (const int panels : {1, 5}) {
      const TileScratch scratch{4096, 320, 64, 128, 192, bands, panels};
      std::vector<std::pair<std::int64_t, std::int64_t>> pieces;  // begin, end
      for (int worker = 0; worker < bands; ++worker) {
        pieces.emplace_back(scratch.copy_at(worker), scratch.copy_at(worker) + 4096);
        pieces.emplace_back(scratch.results_at(worker), scratch.results_at(worker) + 320);
        pieces.emplace_back(scratch.residual_at(worker), scratch.residual_at(worker) + 64);
      }
      for (int worker = 0; worker < panels; ++worker)
        pieces.emplace_back(scratch.weights_at(worker), scratch.weights_at(worker) + 128);
      pieces.emplace_back(scratch.frame_at(), scratch.frame_at() + 2 * 192);
      std::sort(pieces.begin(), pieces.end());
      EXPECT_EQ(pieces.front().first, 0);
      for (std::size_t i = 1; i < pieces.size(); ++i) EXPECT_EQ(pieces[i].first, pieces[i - 1].second);
      EXPECT_EQ(static_cast<std::int64_t>(scratch.bytes()), pieces.back().second);
    }
  }
  EXPECT_EQ(TileScratch{}.bytes(), 0U);
}

// A tile kernel that counts what it is asked for. The first word of a panel's weights says how long its K is.
std::int64_t wrong_calls = 0;

template <int kGroups, int kPixels, int kVectors>
void count_tile(const TileCall& call) {
  if (*reinterpret_cast<const std::int32_t*>(call.weights) != call.segment_count) ++wrong_calls;
  if (call.columns > kVectors * 4) ++wrong_calls;
  for (int g = 0; g < kGroups; ++g) {
    for (int p = 0; p < kPixels; ++p) {
      // The input of a pixel is its number.
      const std::byte* a = call.a[g] + p * call.a_stride;
      auto* c = reinterpret_cast<std::int32_t*>(call.c[g] + p * call.c_stride);
      for (int i = 0; i < call.columns; ++i) c[i] += 1 << 20 | *reinterpret_cast<const std::int32_t*>(a);
    }
  }
}

template <int kGroups, std::size_t... kPixels>
void fill_row(TileKernels& kernels, std::index_sequence<kPixels...>) {
  ((kernels.tile[kGroups - 1][kPixels][0] = count_tile<kGroups, kPixels + 1, 1>,
    kernels.tile[kGroups - 1][kPixels][1] = count_tile<kGroups, kPixels + 1, 2>),
   ...);
}

TileKernels counting_kernels(int group) {
  TileKernels kernels{};
  kernels.lanes = 4;
  kernels.strip = group;
  kernels.step = 1;
  fill_row<1>(kernels, std::make_index_sequence<kMaxTileStrip>());
  fill_row<2>(kernels, std::make_index_sequence<kMaxTileStrip>());
  return kernels;
}

// Panels with K of their own each, of any order and any size.
TEST(TileLoop, ComputesEveryOutputWithItsOwnPanel) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const std::vector<std::int32_t> segments(64, 0);
  for (int i = 0; i < 200; ++i) {
    const TileKernels kernels = counting_kernels(static_cast<int>(pick(1, kMaxTileStrip)));
    TileLoop loop;
    loop.kernels = &kernels;
    const std::int64_t outputs = pick(1, 40);
    std::int64_t words = 0;
    for (std::int64_t first = 0; first < outputs; first += kernels.panel()) {
      TilePanel& panel = loop.panels.emplace_back();
      panel.output = first;
      panel.columns = static_cast<std::int32_t>(std::min<std::int64_t>(kernels.panel(), outputs - first));
      panel.segments = segments.data();
      panel.segment_count = static_cast<std::int32_t>(pick(1, 60));
      panel.run = 1;
      panel.result = first * 4;
      panel.weights = words * 4;
      panel.weight_bytes = std::int64_t{panel.segment_count} * kernels.panel() * 4;
      words += panel.weight_bytes / 4;
    }
    std::vector<std::int32_t> weights(static_cast<std::size_t>(words));
    for (const TilePanel& panel : loop.panels)
      weights[static_cast<std::size_t>(panel.weights / 4)] = panel.segment_count;
    TileBand band;
    band.width = pick(1, 30);
    band.rows_per_image = pick(1, 4);
    band.rows = band.rows_per_image * pick(1, 3);
    band.once = pick(0, 1) == 1;
    const std::int64_t apart = pick(0, 3);  // another owner's outputs after every pixel
    band.c_pixel = (outputs + apart) * 4;
    const std::int64_t pixels = band.width * band.rows;
    std::vector<std::int32_t> input(static_cast<std::size_t>(pixels));
    for (std::size_t p = 0; p < input.size(); ++p) input[p] = static_cast<std::int32_t>(p);
    band.a = reinterpret_cast<const std::byte*>(input.data());
    band.a_pixel = 4;
    band.a_row = band.width * 4;
    band.a_image = band.a_row * band.rows_per_image;
    std::vector<std::int32_t> y(static_cast<std::size_t>(pixels * (outputs + apart)));
    band.c = reinterpret_cast<std::byte*>(y.data());
    SCOPED_TRACE(fmt::format("{} rows of {} pixels in groups of {}, {} outputs{}", band.rows, band.width,
                             kernels.strip, outputs, band.once ? ", once" : ""));
    wrong_calls = 0;
    const TileRange tiles{0, loop.tiles(band)};
    const std::int64_t splits = pick(1, tiles.end);
    const bool together = pick(0, 1) == 1;  // all panels in one call
    std::vector<std::int32_t> before;
    std::vector<bool> written(y.size());
    for (std::int64_t s = 0; s < splits; ++s) {
      before = y;
      for (std::int64_t p = 0; p < (together ? 1 : loop.panel_count()); ++p) {
        const TileRange panels = together ? TileRange{0, loop.panel_count()} : TileRange{p, p + 1};
        loop.run_tiles(band, tiles.part(s, splits), panels,
                       reinterpret_cast<const std::byte*>(weights.data()) + loop.panel(panels.begin).weights,
                       nullptr);
      }
      // Another split is another worker's.
      for (std::size_t at = 0; at < y.size(); ++at) {
        if (y[at] == before[at]) continue;
        ASSERT_FALSE(written[at]) << "output " << at << " is written by split " << s << " and one before it";
        written[at] = true;
      }
    }
    EXPECT_EQ(wrong_calls, 0);
    for (std::int64_t p = 0; p < pixels; ++p) {
      for (std::int64_t o = 0; o < outputs + apart; ++o) {
        const std::int32_t got = y[static_cast<std::size_t>(p * (outputs + apart) + o)];
        if (o >= outputs) {
          ASSERT_EQ(got, 0) << "pixel " << p << ", output " << o;
          continue;
        }
        // A group may overlap its neighbour, and computes the same then.
        const std::int64_t times = got >> 20;
        ASSERT_GE(times, 1) << "pixel " << p << ", output " << o;
        ASSERT_LE(times, band.once ? 1 : 2) << "pixel " << p << ", output " << o;
        ASSERT_EQ(got, times * ((1 << 20) + p)) << "pixel " << p << ", output " << o;
      }
    }
  }
}

// Results that lie elsewhere than a panel's outputs do, as for a DepthToSpace, and alone.
TEST(TileLoop, WritesAPanelWhereItIsTold) {
  const TileKernels kernels = counting_kernels(3);
  const std::vector<std::int32_t> segments(1, 0);
  TileLoop loop;
  loop.kernels = &kernels;
  loop.panels = {{0, 8, segments.data(), 1, 1, 0, 40, 0, 32}, {8, 5, segments.data(), 1, 1, 0, 0, 32, 32}};
  const std::vector<std::int32_t> weights(16, 1);
  const std::vector<std::int32_t> input(2, 0);
  TileBand band;
  band.width = 2;
  band.rows = 1;
  band.a = reinterpret_cast<const std::byte*>(input.data());
  band.a_pixel = 4;
  band.c_pixel = 80;
  std::vector<std::int32_t> y(40);
  band.c = reinterpret_cast<std::byte*>(y.data());
  const auto* const first = reinterpret_cast<const std::byte*>(weights.data());
  loop.run_tiles(band, {0, 1}, {0, 2}, first, nullptr);
  for (std::size_t i = 0; i < y.size(); ++i)
    EXPECT_EQ(y[i], i % 20 < 5 || (i % 20 >= 10 && i % 20 < 18) ? 1 << 20 : 0) << i;
  std::fill(y.begin(), y.end(), 0);
  band.c_begin = 40;
  loop.run_tiles(band, {0, 1}, {0, 1}, first, nullptr);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], i % 20 < 8 ? 1 << 20 : 0) << i;
}

}  // namespace
}  // namespace pipit::internal
