// The index mathematics of the GPU convolutions, on the CPU: needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>

#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/conv/stem/plan.h"
#include "tests/cuda/seed.h"

namespace pipit::internal::cuda {
namespace {

ConvShape random_shape(std::mt19937& random) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  ConvShape s;
  s.batch = pick(1, 3), s.in_h = pick(1, 11), s.in_w = pick(1, 11), s.in_c = 8 * pick(1, 12);
  s.out_c = pick(1, 150);
  s.kernel_h = pick(1, 5), s.kernel_w = pick(1, 5), s.stride_h = pick(1, 3), s.stride_w = pick(1, 3);
  s.dilation_h = pick(1, 2), s.dilation_w = pick(1, 3);
  s.pad_h = pick(0, 4), s.pad_w = pick(0, 4);
  s.out_h = pick(1, 6), s.out_w = pick(1, 6);
  s.int8 = random() % 2 == 0;
  return s;
}

TEST(ConvTile, DivisorDivides) {
  std::mt19937 random(test::gpu_seed() + 4);
  constexpr int kMax = 0x7FFFFFFF;
  std::vector<int> divisors{1, 2, 3, 4, 5, 7, 8, 49, 112 * 112, 65536, 65537, 1 << 30, kMax - 1, kMax};
  for (int i = 0; i < 2000; ++i) divisors.push_back(std::uniform_int_distribution(1, kMax >> i % 31)(random));
  for (const int d : divisors) {
    const Divisor divisor(d);
    std::vector<int> numbers{0, 1, d - 1, d, kMax, kMax - 1, kMax / d * d, kMax / d * d - 1};
    for (int i = 0; i < 50; ++i) numbers.push_back(std::uniform_int_distribution(0, kMax)(random));
    for (const int n : numbers) ASSERT_EQ(divisor.divide(n), n / d) << n << " / " << d;
  }
}

TEST(ConvTile, OriginsFollowTheOutputInOrder) {
  std::mt19937 random(test::gpu_seed());
  for (int round = 0; round < 30; ++round) {
    const ConvShape s = random_shape(random);
    int row = 0;
    for (int n = 0; n < s.batch; ++n) {
      for (int h = 0; h < s.out_h; ++h) {
        for (int w = 0; w < s.out_w; ++w, ++row) {
          const PixelOrigin origin = pixel_origin(s, Divisor(s.out_h * s.out_w), Divisor(s.out_w), row);
          ASSERT_EQ(origin.image, n);
          ASSERT_EQ(origin.h, h * s.stride_h - s.pad_h);
          ASSERT_EQ(origin.w, w * s.stride_w - s.pad_w);
        }
      }
    }
    EXPECT_EQ(row, s.rows());
  }
}

TEST(ConvTile, CursorVisitsTapsThenChannels) {
  std::mt19937 random(test::gpu_seed() + 1);
  for (int round = 0; round < 30; ++round) {
    const ConvShape s = random_shape(random);
    for (const int step : {8, kTileDepth, 3 * kTileDepth}) {
      DepthCursor cursor;
      for (int k = 0; k < s.depth() + 2 * step; k += step) {
        const int tap = k / s.in_c;
        ASSERT_EQ(cursor.r, tap / s.kernel_w) << k;
        ASSERT_EQ(cursor.s, tap % s.kernel_w) << k;
        ASSERT_EQ(cursor.c, k % s.in_c) << k;
        const DepthCursor direct = depth_cursor(s, Divisor(s.in_c), Divisor(s.kernel_w), k);
        ASSERT_EQ(direct.r, cursor.r);
        ASSERT_EQ(direct.s, cursor.s);
        ASSERT_EQ(direct.c, cursor.c);
        ASSERT_EQ(cursor.r >= s.kernel_h, k >= s.depth());
        cursor.advance(s, step);
      }
    }
  }
}

// Eight rows at one logical chunk, as ldmatrix reads them, must lie in eight different 16-byte bank groups.
template <int Chunks>
void expect_conflict_free() {
  for (int first = 0; first < 64; first += 8) {
    for (int chunk = 0; chunk < Chunks; ++chunk) {
      std::set<int> banks;
      for (int row = first; row < first + 8; ++row) {
        banks.insert((row * Chunks + swizzled_chunk<Chunks>(row, chunk)) % 8);
      }
      EXPECT_EQ(banks.size(), 8U) << Chunks << " chunks, rows from " << first << ", chunk " << chunk;
    }
  }
  for (int row = 0; row < 16; ++row) {
    std::set<int> places;
    for (int chunk = 0; chunk < Chunks; ++chunk) places.insert(swizzled_chunk<Chunks>(row, chunk));
    EXPECT_EQ(places.size(), static_cast<std::size_t>(Chunks));
    EXPECT_LT(*places.rbegin(), Chunks);
  }
}

TEST(ConvTile, SwizzledRowsHaveNoBankConflicts) {
  expect_conflict_free<4>();
  expect_conflict_free<8>();
}

void expect_packed(bool bf16) {
  std::mt19937 random(test::gpu_seed() + 2);
  ConvShape s;
  s.bf16 = bf16;
  s.in_c = 8, s.out_c = 5, s.kernel_h = 3, s.kernel_w = 2;
  const int channels = 7;  // one channel of padding
  std::vector<float> weights(static_cast<std::size_t>(s.out_c * channels * 6));
  for (float& w : weights) w = std::uniform_real_distribution<float>(1, 2)(random);
  const std::vector<std::uint16_t> packed = pack_conv_weights(s, KeptDepth(s), channels, weights.data(), 32);
  ASSERT_EQ(packed.size(), static_cast<std::size_t>(32 * kTileDepth));
  for (int o = 0; o < 32; ++o) {
    for (int k = 0; k < kTileDepth; ++k) {
      const int tap = k / s.in_c;
      const int c = k % s.in_c;
      float expected = 0;
      if (o < s.out_c && tap < 6 && c < channels)
        expected = weights[static_cast<std::size_t>((o * channels + c) * 6 + tap)];
      ASSERT_EQ(packed[static_cast<std::size_t>(o * kTileDepth + k)],
                bf16 ? to_bfloat16(expected).bits : to_half(expected).bits)
          << o << " " << k;
    }
  }
}

TEST(ConvTile, PackedWeightsAreTapMajorAndZeroBeyond) {
  expect_packed(false);
  expect_packed(true);
}

TEST(ConvStem, ALaneHasWholeUnits) {
  for (const int unit_bytes : {4, 8}) {
    std::set<int> taken;
    for (int unit = 0; unit < 64; ++unit) {
      for (int byte = 0; byte < unit_bytes; ++byte) {
        const int k = stem_depth(unit_bytes, unit, byte);
        EXPECT_TRUE(taken.insert(k).second) << unit << " " << byte;
        // A lane t of an m16k32 fragment of bytes holds columns 4 t to 4 t + 3, and the same 16 further on.
        EXPECT_EQ(k % 16 / 4, unit % 4) << unit << " " << byte;
        EXPECT_EQ(k % 4, byte % 4);
      }
    }
    EXPECT_EQ(*taken.rbegin(), 64 * unit_bytes - 1) << "a hole along k";
  }
}

TEST(ConvStem, ALaneHasNeighbouringChannels) {
  for (const int width : {8, 16, 32, 64}) {
    const int run = std::min(width, 32) / 4;
    std::set<int> channels;
    for (int row = 0; row < width; ++row) channels.insert(stem_channel(width, row));
    EXPECT_EQ(channels.size(), static_cast<std::size_t>(width));
    for (int lane = 0; lane < 4; ++lane) {
      for (int c = 0; c < width / 4; ++c) {
        const int row = c / 2 * 8 + lane * 2 + c % 2;
        EXPECT_EQ(stem_channel(width, row), c / run * 32 + lane * run + c % run);
      }
    }
  }
}

TEST(ConvStem, UnitsPadChannelsAndTapsTogether) {
  ConvShape s;
  s.int8 = true, s.kernel_h = s.kernel_w = 3, s.out_h = s.out_w = 64, s.out_c = 16;
  const auto steps = [&](int channels, int kernel) {
    s.in_c = channels, s.kernel_h = s.kernel_w = kernel;
    return stem_args(s, {8, 16}).steps;
  };
  EXPECT_EQ(steps(8, 3), 3);   // 72 bytes of k
  EXPECT_EQ(steps(16, 3), 5);  // 144
  EXPECT_EQ(steps(32, 3), 9);  // 288
  EXPECT_EQ(steps(1, 3), 1);   // 3 units, of four taps of a row each
  EXPECT_EQ(steps(1, 11), 5);  // 33 units
  EXPECT_EQ(steps(3, 7), 7);   // 49 pixels of four bytes
  EXPECT_EQ(steps(12, 3), 4);  // 108
}

// Every weight where its unit, byte and channel say, and nothing else.
TEST(ConvStem, PackedWeightsAreWhereTheDepthSays) {
  std::mt19937 random(test::gpu_seed() + 5);
  for (const bool int8 : {false, true}) {
    for (int channels = 1; channels <= 32; ++channels) {
      ConvShape s;
      s.in_c = channels, s.out_c = 1 + channels * 37 % 70, s.kernel_h = 3, s.kernel_w = 1 + channels % 7;
      s.out_h = 20, s.out_w = 33, s.batch = 2, s.int8 = int8;
      const StemTile tile{4, 8 << channels % 4};
      const StemArgs args = stem_args(s, tile);
      EXPECT_EQ(args.tiles, 2 * 5 * 3);
      const StemUnits units = stem_units(s);
      const int taps = s.kernel_h * s.kernel_w;
      std::vector<std::int8_t> weights(static_cast<std::size_t>(s.out_c * channels * taps));
      for (std::int8_t& w : weights)
        w = static_cast<std::int8_t>(std::uniform_int_distribution<int>(1, 127)(random));
      std::vector<int> packed;
      if (int8) {
        for (const std::int8_t v : pack_qstem_weights(args, weights.data())) packed.push_back(v);
      } else {
        const std::vector<float> real(weights.begin(), weights.end());
        for (const std::uint16_t v : pack_stem_weights(args, real.data()))
          packed.push_back(static_cast<int>(to_float(Half{v})));
      }
      const int element = int8 ? 1 : 2;
      const int block = args.weight_bytes / element;
      ASSERT_EQ(packed.size(), static_cast<std::size_t>(block * ceil_div(s.out_c, tile.width)));
      std::size_t zeros = packed.size();
      for (std::size_t i = 0; i < weights.size(); ++i, --zeros) {
        const int index = static_cast<int>(i);
        const int o = index / (channels * taps), c = index / taps % channels;
        const int r = index % taps / s.kernel_w, w = index % s.kernel_w;
        int row = 0;
        while (stem_channel(tile.width, row) != o % tile.width) ++row;
        const int in_pixel = (w % units.group * channels + c) * element;
        const int unit =
            (r * units.window_w + w / units.group) * units.per_pixel + in_pixel / units.unit_bytes;
        const int k = stem_depth(units.unit_bytes, unit, in_pixel % units.unit_bytes);
        const int at =
            (o / tile.width * args.weight_bytes + (k / 128 * tile.width + row) * 128 + k % 128) / element;
        ASSERT_EQ(packed[static_cast<std::size_t>(at)], weights[i]) << channels << " channels, weight " << i;
      }
      EXPECT_EQ(static_cast<std::size_t>(std::count(packed.begin(), packed.end(), 0)), zeros);
    }
  }
}

TEST(ConvStem, TilesFitTheSharedMemory) {
  ConvShape s;
  s.in_c = 16, s.out_c = 64, s.kernel_h = s.kernel_w = 3, s.pad_h = s.pad_w = 1, s.int8 = true;
  s.in_h = s.in_w = s.out_h = s.out_w = 256, s.batch = 8;
  EXPECT_EQ(stem_tiles(s, 132).front(), (StemTile{8, 64}));
  s.in_h = s.in_w = s.out_h = s.out_w = 32, s.batch = 1;
  EXPECT_EQ(stem_tiles(s, 132).front(), (StemTile{4, 16})) << "more blocks for a small image";
  ConvShape apart = s;
  apart.batch = 128, apart.kernel_h = apart.kernel_w = 1, apart.pad_h = apart.pad_w = 0;
  EXPECT_EQ(stem_tiles(apart, 132).front(), (StemTile{4, 64})) << "tiles have no pixels in common";
  apart.kernel_h = apart.kernel_w = 3, apart.stride_h = apart.stride_w = 2, apart.in_h = apart.in_w = 65;
  EXPECT_EQ(stem_tiles(apart, 132).front(), (StemTile{4, 64})) << "hardly any";
  apart.kernel_h = apart.kernel_w = 7, apart.in_c = 3;
  EXPECT_EQ(stem_tiles(apart, 132).front(), (StemTile{8, 64})) << "many";
  s.in_c = 32, s.kernel_h = s.kernel_w = 11;
  for (const StemTile& tile : stem_tiles(s, 132))
    EXPECT_LE(stem_args(s, tile).shared_bytes, kStemMaxShared) << tile.name();
  // Sizes that overflow 32 bits are no small sizes.
  for (const int kernel : {31, 256, 512, 1000, 1024}) {
    for (const int stride : {1, 2, 1024}) {
      for (const bool int8 : {true, false}) {
        s.kernel_h = s.kernel_w = kernel, s.stride_h = s.stride_w = stride, s.int8 = int8;
        EXPECT_TRUE(stem_tiles(s, 132).empty()) << kernel << " " << stride;
        EXPECT_GT(stem_args(s, {8, 64}).weight_bytes, 0);
      }
    }
  }
}

// Against divisions: everything that lies near the middle between two integers, where a quotient that is off by one bit
// would be another integer, and random numbers; what is not finite.
TEST(ImageScale, QuotientsRoundToTheIntegersOfDivisions) {
  std::mt19937 random(test::gpu_seed() + 5);
  const auto integer = [](float q) { return std::nearbyint(std::min(std::max(q, -127.0F), 127.0F)); };
  const auto bounded = [](const ImageScale& s, float x) { return std::min(std::max(x, -s.bound), s.bound); };
  for (int round = 0; round < 3000; ++round) {
    const int exponent = round % 3 == 0 ? std::uniform_int_distribution(-60, 59)(random)
                                        : std::uniform_int_distribution(-9, -3)(random);
    float mantissa = std::uniform_real_distribution(1.0F, 2.0F)(random);
    if (round < 4)
      mantissa = std::array{1.0F, 0x1.fffffep0F, 0x1.000002p0F, 0x1.8p0F}[static_cast<std::size_t>(round)];
    const ImageScale scale(std::ldexp(mantissa, exponent));
    ASSERT_TRUE(ImageScale::takes(scale.scale));
    const auto expect_equal = [&](float x) {
      const float in = bounded(scale, x);
      const float q = scale.quotient(in);
      if (std::fabs(in / scale.scale) >= 0x1p-20F) {
        ASSERT_EQ(q, in / scale.scale) << std::hexfloat << x << " / " << scale.scale;
      }
      ASSERT_EQ(integer(q), integer(x / scale.scale)) << std::hexfloat << x << " / " << scale.scale;
    };
    for (int k = -129; k < 129; ++k) {
      float x = (static_cast<float>(k) + 0.5F) * scale.scale;
      for (int i = 0; i < 4; ++i) x = std::nextafter(x, -INFINITY);
      for (int i = 0; i < 9; ++i, x = std::nextafter(x, INFINITY)) expect_equal(x);
    }
    std::uniform_real_distribution value(-130.0F, 130.0F);
    for (int i = 0; i < 100; ++i) expect_equal(value(random) * scale.scale);
    for (const float x : {0.0F, -0.0F, 1e-45F, -1e-38F, 3e38F, -3e38F, INFINITY, -INFINITY}) expect_equal(x);
  }
  EXPECT_FALSE(ImageScale::takes(0x1p-61F) || ImageScale::takes(0x1p61F) || ImageScale::takes(NAN));
}

// Of tiles in their order, or the reverse.
double first_tiles(const ConvVariant& /*variant*/) {
  return 0;
}
double small_tiles(const ConvVariant& variant) {
  return variant.tile.rows * variant.tile.columns + variant.tile.splits;
}

TEST(ConvTile, VariantsAreThoseThatCostLeast) {
  std::mt19937 random(test::gpu_seed() + 4);
  for (int round = 0; round < 200; ++round) {
    const ConvShape s = random_shape(random);
    for (const bool clusters : {false, true}) {
      const std::vector<ConvVariant> variants = conv_variants(s, 132, clusters, first_tiles);
      ASSERT_FALSE(variants.empty());
      for (const ConvVariant& small : conv_variants(s, 132, clusters, small_tiles))
        EXPECT_TRUE(has_kernel(s, small.tile));
      const auto sorted = conv_variants(s, 132, clusters, small_tiles);
      EXPECT_TRUE(std::ranges::is_sorted(sorted, {}, small_tiles));
      EXPECT_LE(small_tiles(sorted[0]), small_tiles(variants[0]));
      std::set<std::string> names;
      for (const ConvVariant& v : variants) {
        EXPECT_TRUE(names.insert(v.name()).second) << v.name();
        EXPECT_TRUE(clusters || (v.tile.splits == 1 && !v.overlap)) << v.name();
        EXPECT_LE(v.tile.splits, ceil_div(s.depth(), kTileDepth));
        EXPECT_EQ(v.overlap, clusters && pays_to_overlap(s, v.tile, 132)) << v.name();
      }
    }
  }
  EXPECT_EQ((ConvVariant{{128, 64, 1}, false}).name(), "128x64");
  EXPECT_EQ((ConvVariant{{64, 64, 4}, true}).name(), "64x64/4+overlap");
}

TEST(ConvTile, TilesOfAveragesHaveWholeImages) {
  std::mt19937 random(test::gpu_seed() + 6);
  for (int positions = 1; positions <= 128; ++positions) {
    ConvShape s = random_shape(random);
    s.out_h = 1, s.out_w = positions, s.averaged = true;
    for (const bool clusters : {false, true}) {
      const std::vector<ConvVariant> variants = conv_variants(s, 132, clusters, first_tiles);
      ASSERT_FALSE(variants.empty());
      for (const auto& [tile, overlap] : variants) {
        EXPECT_GE(images_of(s, tile), 1);
        EXPECT_EQ(used_rows(s, tile) % positions, 0);
        EXPECT_LE(used_rows(s, tile), tile.rows);
        EXPECT_GT(used_rows(s, tile) + positions, tile.rows);
        EXPECT_EQ(tile.columns / 8 % tile.splits, 0) << "blocks that finish whole groups of channels";
      }
    }
  }
}

}  // namespace
}  // namespace pipit::internal::cuda
