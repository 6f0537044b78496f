// Which blocks of k the GPU's convolutions multiply, and what is packed for them: on the CPU, needs no GPU.
#include <gtest/gtest.h>

#include <random>

#include "layers/cuda/conv/conv_tile.h"
#include "tests/cuda/seed.h"
#include "tests/support/random.h"

namespace pipit::internal::cuda {
namespace {

using Integers = std::vector<int>;

using test::draw;

// in_c in channels of x.
ConvShape random_shape(std::mt19937& random, bool int8) {
  const auto pick = [&](int low, int high) { return draw(random, low, high); };
  ConvShape s;
  s.batch = pick(1, 2), s.in_h = pick(1, 7), s.in_w = pick(1, 7), s.int8 = int8;
  s.in_c = int8 || pick(0, 3) > 0 ? 8 * pick(1, 4) : 4;
  s.unstored = s.in_c > 4 && pick(0, 2) == 0 ? 4 : 0;
  s.out_c = pick(1, 150);
  s.kernel_h = pick(1, 4), s.kernel_w = pick(1, 4), s.stride_h = pick(1, 2), s.stride_w = pick(1, 3);
  s.dilation_h = pick(1, 2), s.dilation_w = pick(1, 3), s.pad_h = pick(0, 3), s.pad_w = pick(0, 3);
  s.out_h = pick(1, 4), s.out_w = pick(1, 4);
  return s;
}

// Weights [out_c, channels, taps]. Panels of 32 outputs keep all, about half of the blocks, one weight, or nothing.
Integers random_weights(const ConvShape& s, int channels, int block, std::mt19937& random) {
  const int taps = s.kernel_h * s.kernel_w;
  Integers weights(static_cast<std::size_t>(s.out_c * channels * taps), 0);
  for (int first = 0; first < s.out_c; first += 32) {
    const int way = draw(random, 0, 3);
    const int last = std::min(first + 32, s.out_c);
    if (way == 3) continue;
    if (way == 2) {
      weights[static_cast<std::size_t>(draw(random, first * channels * taps, last * channels * taps - 1))] =
          3;
      continue;
    }
    std::vector<bool> kept(static_cast<std::size_t>(taps * channels), true);
    for (std::size_t b = 0; way == 1 && b < kept.size(); ++b) kept[b] = random() % 2 == 0;
    for (int o = first; o < last; ++o) {
      for (int c = 0; c < channels; ++c) {
        for (int t = 0; t < taps; ++t) {
          const bool live = kept[static_cast<std::size_t>(t * channels + c / block)];
          weights[static_cast<std::size_t>((o * channels + c) * taps + t)] = live ? draw(random, -9, 9) : 0;
        }
      }
    }
  }
  return weights;
}

// A sum as the kernel computes it: along the blocks of the output's tile and the packed row, which holds `block` values
// of each. x(image, h, w, c) is 0 in the padding.
template <typename T, typename X>
int sum_of(const ConvShape& s, const KeptDepth& depth, const std::vector<DepthBlock>& list,
           const std::vector<T>& packed, int columns, int block, int o, const PixelOrigin& at, X x) {
  const int units = block_units(s);
  const int per_value = block / units;
  const int tile = o / columns;
  const int row_blocks = depth.most_steps(columns) * kTileDepth / units;
  int row = o;
  if (s.int8) {
    row = o & ~31;
    while (packed_channel(row) != o) ++row;
  }
  int sum = 0;
  for (int b = 0; b < depth.steps(tile, columns) * kTileDepth / units; ++b) {
    const DepthBlock& from = list[static_cast<std::size_t>(tile * row_blocks + b)];
    const int c = (from.offset & ~1) - (from.down * s.in_w + from.right) * s.pixel_units();
    const bool ends_unstored = from.down != 0x7FFF && c + units > s.pixel_units();
    EXPECT_EQ(from.offset & 1, ends_unstored ? 1 : 0);
    for (int i = 0; i < block; ++i) {
      const T w = packed[static_cast<std::size_t>((std::int64_t{row} * row_blocks + b) * block + i)];
      int weight = 0;
      if constexpr (sizeof(T) == 1) {
        weight = w;
      } else {
        weight = static_cast<int>(to_float(Half{w}));
      }
      if (from.down == 0x7FFF) {
        EXPECT_EQ(weight, 0) << "a weight after the last block";
      } else {
        sum += weight * x(at.image, at.h + from.down, at.w + from.right, c * per_value + i);
      }
    }
  }
  return sum;
}

void check_sums(bool int8, std::mt19937& random) {
  ConvShape s = random_shape(random, int8);
  const int values = s.pixel_units() * (int8 ? 2 : 1);  // channels as they lie in memory
  const int block = block_units(s) * (int8 ? 2 : 1);
  const int channels = s.unstored > 0 ? values : values - draw(random, 0, std::min(values, block) - 1);
  s.groups = draw(random, 1, 4);
  if (channels % s.groups != 0 || s.out_c % s.groups != 0) s.groups = 1;
  const int of_group = channels / s.groups;
  const Integers weights = random_weights(s, of_group, block, random);
  Integers image(static_cast<std::size_t>(s.batch * s.in_h * s.in_w * values));
  for (int& v : image) v = draw(random, -9, 9);
  const auto x = [&](int n, int h, int w, int c) {
    if (h < 0 || h >= s.in_h || w < 0 || w >= s.in_w || c >= values) return 0;
    return image[static_cast<std::size_t>(((n * s.in_h + h) * s.in_w + w) * values + c)];
  };
  const std::vector<float> floats(weights.begin(), weights.end());
  const std::vector<std::int8_t> bytes(weights.begin(), weights.end());
  const KeptDepth depth =
      int8 ? KeptDepth(s, channels, std::span(bytes)) : KeptDepth(s, channels, std::span(floats));
  const int taps = s.kernel_h * s.kernel_w;
  for (const int columns : kTileColumns) {
    const std::vector<DepthBlock> list = depth_blocks(s, depth, columns);
    const auto tiles = static_cast<std::size_t>(ceil_div(s.out_c, columns));
    ASSERT_EQ(list.size(),
              tiles * static_cast<std::size_t>(depth.most_steps(columns) * kTileDepth / block_units(s)));
    const std::vector<std::uint16_t> halves = pack_conv_weights(s, depth, channels, floats.data(), columns);
    const std::vector<std::int8_t> packed = pack_qconv_weights(s, depth, channels, bytes.data(), columns);
    for (int row = 0; row < s.rows(); ++row) {
      const PixelOrigin at = pixel_origin(s, Divisor(s.out_h * s.out_w), Divisor(s.out_w), row);
      for (int o = 0; o < s.out_c; o += draw(random, 1, 20)) {
        int expected = 0;
        for (int t = 0; t < taps; ++t) {
          for (int c = 0; c < of_group; ++c)
            expected += weights[static_cast<std::size_t>((o * of_group + c) * taps + t)] *
                        x(at.image, at.h + t / s.kernel_w * s.dilation_h,
                          at.w + t % s.kernel_w * s.dilation_w, o / (s.out_c / s.groups) * of_group + c);
        }
        const int sum = int8 ? sum_of(s, depth, list, packed, columns, block, o, at, x)
                             : sum_of(s, depth, list, halves, columns, block, o, at, x);
        ASSERT_EQ(sum, expected) << "output " << o << ", tiles of " << columns << ", int8 " << int8 << ", "
                                 << s.in_c << " units, " << s.groups << " groups, seed " << test::gpu_seed();
      }
    }
  }
}

TEST(ConvDepth, SumsOfKeptBlocksAreThoseOfAll) {
  std::mt19937 random(test::gpu_seed() + 31);
  for (int round = 0; round < 60 && !::testing::Test::HasFatalFailure(); ++round)
    check_sums(round % 2 == 0, random);
}

TEST(ConvDepth, FindsZerosPerTile) {
  ConvShape s;
  s.in_c = 64, s.out_c = 160, s.kernel_h = s.kernel_w = 3;
  std::vector<float> weights(static_cast<std::size_t>(s.out_c * s.depth()), 1);
  const auto depth = [&] { return KeptDepth(s, 64, std::span<const float>(weights)); };
  EXPECT_EQ(depth().share(32), 1);
  EXPECT_EQ(depth().most_steps(128), 9);
  ConvShape described = s;
  depth().describe(described);
  EXPECT_EQ(described.steps({64, 64, 1}), 9);
  EXPECT_FALSE(described.lists({64, 64, 1}));
  // Outputs 32 to 63 keep channels 8 to 15 of tap 4 and, by a single weight, 63 of the last.
  const auto at = [](int o, int c, int tap) { return static_cast<std::size_t>((o * 64 + c) * 9 + tap); };
  std::fill(weights.begin() + static_cast<std::ptrdiff_t>(at(32, 0, 0)),
            weights.begin() + static_cast<std::ptrdiff_t>(at(64, 0, 0)), 0.0F);
  weights[at(40, 9, 4)] = -1e-30F;
  weights[at(63, 63, 8)] = 2;
  EXPECT_EQ(depth().blocks(1, 32), (std::vector<int>{4 * 8 + 1, 8 * 8 + 7}));
  EXPECT_NEAR(depth().share(64), (64 * 72 + 64 * 72 + 32 * 72) / (160 * 72.0), 1e-9);
  EXPECT_EQ(depth().steps(1, 32), 1);
  EXPECT_EQ(depth().steps(0, 64), 9) << "outputs 0 to 31 keep everything";
  EXPECT_NEAR(depth().share(32), (4 * 72 + 2) / (5 * 72.0), 1e-9);
  depth().describe(described);
  EXPECT_EQ(described.kept_steps[2], ceil_div(4 * 9 + 1, 5));
  EXPECT_EQ(described.most_kept_steps[2], 9);
  for (const ConvTile& tile : kConvTiles) {
    EXPECT_FALSE(described.lists(tile)) << "one tile has all steps: " << tile.rows << "x" << tile.columns;
    EXPECT_EQ(described.steps(tile), 9);
  }
  // -0 is a zero. A tile without any weight keeps one step, of zeros.
  std::fill(weights.begin(), weights.end(), -0.0F);
  EXPECT_EQ(depth().share(32), 0);
  EXPECT_EQ(depth().most_steps(128), 1);
  for (const DepthBlock& block : depth_blocks(s, depth(), 128)) EXPECT_EQ(block.down, 0x7FFF);
}

// Tiles keep nothing of other groups' channels.
TEST(ConvDepth, GroupsAreZeros) {
  ConvShape s;
  s.in_c = 128, s.out_c = 128, s.kernel_h = s.kernel_w = 3, s.groups = 16;
  std::vector<float> weights(static_cast<std::size_t>(s.out_c * s.depth() / s.groups), 1);
  const KeptDepth depth(s, 128, std::span<const float>(weights));
  EXPECT_FALSE(depth.all());
  EXPECT_EQ(depth.blocks(1, 32).size(), 9U * 4);
  EXPECT_EQ(depth.most_steps(32), 5);
  EXPECT_EQ(depth.most_steps(64), 9);
  EXPECT_EQ(depth.share(32), 1) << "of what its groups have";
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = i % 9 < 5 ? 0.0F : 1.0F;  // five of nine taps
  const KeptDepth pruned(s, 128, std::span<const float>(weights));
  for (const int columns : kTileColumns) EXPECT_NEAR(pruned.share(columns), 4 / 9.0, 1e-9);
  // Groups that begin and end within a block of k, and a last tile that is not full.
  s.in_c = 96, s.out_c = 72, s.groups = 8;
  const KeptDepth odd(s, 96, std::span<const float>(weights).first(std::size_t{72} * 12 * 9));
  EXPECT_NEAR(odd.share(32), 4 / 9.0, 1e-9);
}

// Every tile by itself: only those with kernels for lists use them, and only where their steps take less time so.
TEST(ConvDepth, TilesListBlocksWhereThatTakesLessTime) {
  ConvShape s;
  s.batch = 1, s.in_h = s.in_w = s.out_h = s.out_w = 56, s.in_c = 64, s.out_c = 128;
  s.kernel_h = s.kernel_w = 3, s.pad_h = s.pad_w = 1;
  std::ranges::fill(s.kept_steps, 1);
  std::ranges::fill(s.most_kept_steps, 1);
  for (const ConvVariant& v : conv_variants(s, 132, true, [](const ConvVariant&) { return 0; })) {
    EXPECT_EQ(s.lists(v.tile), has_listed_kernel(v.tile)) << v.name();
    EXPECT_EQ(s.most_steps(v.tile), has_listed_kernel(v.tile) ? 1 : 9) << v.name();
    EXPECT_LE(v.tile.splits, s.steps(v.tile)) << v.name();
    EXPECT_EQ(step_factor(s, v.tile) > 1, has_listed_kernel(v.tile)) << "a list of all blocks brings nothing";
  }
  // 32 groups of 4 channels: a tile of 128 columns needs all of them, one of 64 half.
  s.in_c = 128, s.out_c = 128, s.groups = 32;
  const std::vector<float> weights(static_cast<std::size_t>(s.out_c * s.depth() / s.groups), 1);
  KeptDepth(s, 128, std::span<const float>(weights)).describe(s);
  EXPECT_FALSE(s.lists({128, 128, 1}));
  EXPECT_EQ(s.most_steps({128, 128, 1}), 18);
  EXPECT_TRUE(s.lists({64, 64, 1}));
  EXPECT_EQ(s.most_steps({64, 64, 1}), 9);
  EXPECT_EQ(s.most_steps({128, 64, 1}), 18) << "it has no kernel for lists";
}

}  // namespace
}  // namespace pipit::internal::cuda
