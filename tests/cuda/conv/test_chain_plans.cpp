// What the plans of chains take and refuse, and that random ones fit. What their kernels compute: tests/cuda/emulation.
#include <gmock/gmock.h>
#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <variant>

#include "layers/cuda/conv/pooled_stem/plan.h"
#include "layers/cuda/conv/resident_block/plan.h"
#include "tests/cuda/conv/random_chain.h"
#include "tests/cuda/seed.h"

namespace pipit::internal::cuda {
namespace {

using test::draw;
using testing::HasSubstr;

ConvChainShape block_shape(int images, int height, int width, int element_bytes, bool adds) {
  constexpr int kC = kUnitChannels;
  return {images,        height, width,
          element_bytes, {kC},   {{0, -1, kC, kC, true}, {1, adds ? 0 : -1, kC, kC, true}}};
}

// Why a block has no plan; empty: it has one.
std::string reason_of(const ConvChainShape& shape) {
  const auto plan = plan_block(shape, block_roles(shape).value(), 132);
  const auto* reason = std::get_if<std::string>(&plan);
  return reason == nullptr ? "" : *reason;
}

// Each tile has one worker, and each worker a tile.
void expect_every_tile(const BlockPlan& plan) {
  const int most = plan.least_tiles + (plan.more_tiles > 0 ? 1 : 0);
  EXPECT_LT(plan.more_tiles, plan.workers);
  EXPECT_LT((plan.workers - 1) * plan.least_tiles + plan.more_tiles, plan.tiles);
  EXPECT_GE(plan.workers * plan.least_tiles + plan.more_tiles, plan.tiles);
  EXPECT_LT(plan.workers * plan.least_tiles + plan.more_tiles - plan.tiles, most);
}

TEST(BasicBlockPlan, RandomBlocksFit) {
  const unsigned seed = test::gpu_seed() + 430;
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    const int width = i % 4 == 0 ? draw(random, 60, 127) : draw(random, 1, 30);
    const ConvChainShape shape =
        block_shape(draw(random, 1, 99), draw(random, 1, 99), width, draw(random, 1, 2), i % 2 == 0);
    ASSERT_TRUE(is_basic_block(shape));
    const auto planned = plan_block(shape, block_roles(shape).value(), 132);
    if (const auto* reason = std::get_if<std::string>(&planned)) {
      EXPECT_TRUE(width == 127 && shape.element_bytes == 2)
          << *reason << ", width " << width << ", seed " << seed;
      continue;
    }
    const auto& plan = std::get<BlockPlan>(planned);
    EXPECT_LE(plan.shared_bytes(), kBlockMaxShared);
    expect_every_tile(plan);
    EXPECT_LE(plan.slots, kBlockTurns);
  }
}

// At 56x56 no group waits for a free tile: each has tiles of its own in both rings.
TEST(BasicBlockPlan, HasATileForEveryGroup) {
  for (const int element_bytes : {1, 2}) {
    const ConvChainShape shape = block_shape(1, 56, 56, element_bytes, true);
    const auto plan = std::get<BlockPlan>(plan_block(shape, block_roles(shape).value(), 132));
    EXPECT_EQ(plan.tiles, 49);
    EXPECT_EQ(plan.halo, 1);
    EXPECT_GE(plan.slots, plan.lag + block_groups(element_bytes));
    EXPECT_GE(plan.ring, plan.lag + block_groups(element_bytes));
  }
}

TEST(BasicBlockPlan, RefusesOtherChains) {
  const ConvChainShape block = block_shape(1, 8, 8, 1, true);
  const auto refuses = [&](auto change) {
    ConvChainShape other = block;
    change(other);
    return !is_basic_block(other);
  };
  EXPECT_FALSE(refuses([](ConvChainShape&) {}));
  EXPECT_FALSE(refuses([](ConvChainShape& s) { s.convs[1].residual = -1; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs.pop_back(); }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs.push_back({2, -1, 64, 64, true}); }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[0].window = false; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[1].window = false; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[0].in_c = 128; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[1].out_c = 128; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[0].residual = 0; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[1].residual = 1; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[1].x = 0; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.inputs.push_back(64); }));
}

TEST(BasicBlockPlan, RefusesLongRows) {
  const auto reason = [](int width, int element_bytes) {
    return reason_of(block_shape(1, 4, width, element_bytes, true));
  };
  EXPECT_EQ(reason(447, 1), "");
  EXPECT_THAT(reason(448, 1), HasSubstr("too long"));
  EXPECT_EQ(reason(127, 2), "");
  EXPECT_THAT(reason(128, 2), HasSubstr("no room"));
}

TEST(ResidentBlockPlan, RandomBlocksFit) {
  const unsigned seed = test::gpu_seed() + 420;
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    ConvChainShape shape = test::random_block(random, draw(random, 1, 2), draw(random, 0, 3));
    shape.images = draw(random, 1, 99), shape.height = draw(random, 1, 99);
    shape.width = draw(random, 0, 3) == 0 ? draw(random, 60, 90) : draw(random, 1, 30);
    const std::optional<BlockRoles> roles = block_roles(shape);
    ASSERT_TRUE(roles) << "case " << i << ", seed " << seed;
    const auto planned = plan_block(shape, *roles, 132);
    if (const auto* reason = std::get_if<std::string>(&planned)) {
      // Wide images in fp16, where weights leave room for few tiles.
      EXPECT_THAT(*reason, HasSubstr("no room"));
      EXPECT_TRUE(shape.width > 63 && shape.element_bytes == 2) << "case " << i << ", seed " << seed;
      continue;
    }
    const auto& plan = std::get<BlockPlan>(planned);
    EXPECT_LE(plan.shared_bytes(), kBlockMaxShared);
    expect_every_tile(plan);
    // The window of an iteration reads tiles whose room no later head has taken.
    EXPECT_LT(2 * plan.halo, plan.ring) << "case " << i << ", seed " << seed;
  }
}

TEST(ResidentBlockPlan, RefusesOtherChains) {
  const ConvChainShape block{
      1, 8, 8, 1, {256}, {{0, -1, 256, 64, false}, {1, -1, 64, 64, true}, {2, 0, 64, 256, false}}};
  EXPECT_TRUE(block_roles(block));
  const auto refuses = [&](auto change) {
    ConvChainShape other = block;
    change(other);
    return !block_roles(other);
  };
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs.pop_back(); }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[0].window = true; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[1].window = false; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[2].window = true; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[0].out_c = 128; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[2].residual = 1; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[1].residual = 1; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.convs[2].x = 1; }));
  EXPECT_TRUE(refuses([](ConvChainShape& s) { s.inputs.push_back(64); }));
  ConvChainShape wide = block;
  wide.inputs = {320}, wide.convs[0].in_c = 320, wide.convs[2].out_c = 320;
  EXPECT_THAT(reason_of(wide), HasSubstr("more channels"));
}

TEST(StreamedBlockPlan, RandomBlocksFit) {
  const unsigned seed = test::gpu_seed() + 520;
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    ConvChainShape shape;
    do {
      shape = test::random_block(random, 1, i % 2, kStreamedInner);
    } while (shape.inputs[0] + shape.convs.back().out_c < 3 * kStreamedInner);
    shape.images = draw(random, 1, 99), shape.height = draw(random, 1, 99);
    shape.width = draw(random, 0, 3) == 0 ? draw(random, 60, 127) : draw(random, 1, 30);
    const std::optional<BlockRoles> roles = block_roles(shape);
    ASSERT_TRUE(roles && roles->form == BlockForm::streamed) << "case " << i << ", seed " << seed;
    const auto planned = plan_block(shape, *roles, draw(random, 1, 132));
    ASSERT_TRUE(std::holds_alternative<BlockPlan>(planned))
        << std::get<std::string>(planned) << ", seed " << seed;
    EXPECT_LE(std::get<BlockPlan>(planned).shared_bytes(), kBlockMaxShared);
    expect_every_tile(std::get<BlockPlan>(planned));
  }
}

TEST(StreamedBlockPlan, RefusesWhatItHasNoRoomFor) {
  const ConvChainShape block{
      1, 8, 8, 1, {512}, {{0, -1, 512, 128, false}, {1, -1, 128, 128, true}, {2, 0, 128, 512, false}}};
  const auto reason = [&](auto change) {
    ConvChainShape other = block;
    change(other);
    return reason_of(other);
  };
  EXPECT_EQ(reason([](ConvChainShape&) {}), "");
  EXPECT_THAT(reason([](ConvChainShape& s) { s.element_bytes = 2; }), testing::HasSubstr("int8"));
  EXPECT_THAT(reason([](ConvChainShape& s) { s.width = 128; }), testing::HasSubstr("longer"));
  EXPECT_THAT(
      reason([](ConvChainShape& s) { s.inputs = {128}, s.convs[0].in_c = 128, s.convs[2].out_c = 128; }),
      testing::HasSubstr("too few"));
  EXPECT_THAT(reason([](ConvChainShape& s) {
                s.inputs = {64 * 9}, s.convs[0].in_c = 64 * 9, s.convs[2].out_c = 64 * 9;
              }),
              testing::HasSubstr("128"));
  EXPECT_THAT(
      reason([](ConvChainShape& s) { s.inputs = {4096}, s.convs[0].in_c = 4096, s.convs[2].out_c = 4096; }),
      testing::HasSubstr("do not fit"));
}

// How pooled_stem divides images. What its kernel computes: tests/cuda/emulation.

using test::draw;

PooledStemShape random_stem(std::mt19937& random, int element_bytes, int kernel_w) {
  PooledStemShape s;
  s.element_bytes = element_bytes;
  s.images = draw(random, 1, 3), s.channels = draw(random, 1, 4);
  s.in_h = draw(random, 9, 60), s.in_w = draw(random, 9, 60);
  s.stride_h = draw(random, 1, 4), s.stride_w = draw(random, 1, 4);
  s.pad_h = draw(random, 0, 3), s.pad_w = draw(random, 0, 3);
  s.mid_h = (s.in_h + 2 * s.pad_h - kPooledStemTaps) / s.stride_h + 1;
  s.mid_w = (s.in_w + 2 * s.pad_w - kernel_w) / s.stride_w + 1;
  s.pool_pad_h = draw(random, 0, 1), s.pool_pad_w = draw(random, 0, 1);
  const auto pooled = [&](int mid, int pad) { return std::max((mid + 2 * pad - 3) / 2 + 1, 1); };
  s.out_h = pooled(s.mid_h, s.pool_pad_h), s.out_w = pooled(s.mid_w, s.pool_pad_w);
  return s;
}

// A part's windows lie in its own columns of the convolution, and what is read of the image's rows holds its pixels.
void expect_part(const PooledStemPlan& plan, const StemPart& part) {
  const PooledStemShape& s = plan.shape;
  EXPECT_GE(part.mid_begin, 0);
  EXPECT_LE(part.mid_begin + plan.mid_columns, s.mid_w);
  const int first_mid = 2 * part.out_begin - s.pool_pad_w - part.mid_begin;
  for (int column = 0; column < part.out_columns; ++column) {
    for (int x = 0; x < 3; ++x) {
      const int wanted = std::clamp(2 * (part.out_begin + column) - s.pool_pad_w + x, 0, s.mid_w - 1);
      EXPECT_EQ(part.mid_begin + std::clamp(2 * column + first_mid + x, 0, plan.mid_columns - 1), wanted);
    }
  }
  EXPECT_EQ(part.pixel % 4, 0);
  EXPECT_EQ(part.pixel + part.lead, part.mid_begin * s.stride_w - s.pad_w);
  EXPECT_LE(part.lead + (plan.mid_columns - 1) * s.stride_w + kPooledStemPixels, plan.pitch);
  for (const int count : {1, 4}) {
    if (s.in_w % count != 0) continue;
    const int first = plan.first_read(part, count), end = first + plan.runs_of(count) * count;
    EXPECT_EQ(first % count, 0);
    EXPECT_GE(first, 0);
    EXPECT_LE(first, std::max(part.pixel, 0));
    EXPECT_LE(end, s.in_w);
    EXPECT_GE(end, std::min(part.pixel + plan.pitch, s.in_w));
  }
}

TEST(PooledStemPlan, PartsOfRandomPlansCoverTheImage) {
  const unsigned seed = test::gpu_seed() + 430;
  std::mt19937 random(seed);
  int plans = 0, in_parts = 0;
  for (int i = 0; i < 400; ++i) {
    SCOPED_TRACE("case " + std::to_string(i) + ", seed " + std::to_string(seed));
    const PooledStemShape s = random_stem(random, draw(random, 1, 2), draw(random, 3, kPooledStemPixels));
    const int workers =
        draw(random, 0, 2) > 0 ? draw(random, 1, 40) : s.images * s.out_h * draw(random, 1, 5);
    const auto planned = plan_pooled_stem(s, workers);
    if (!std::holds_alternative<PooledStemPlan>(planned)) continue;
    const PooledStemPlan& plan = std::get<PooledStemPlan>(planned);
    ++plans, in_parts += plan.parts > 1 ? 1 : 0;
    ASSERT_TRUE(plan.parts == 1 || plan.step_rows == 1);
    EXPECT_TRUE(plan.parts == 1 || plan.parts * plan.steps * s.images <= workers);
    int columns = 0;
    for (int k = 0; k < plan.parts; ++k) {
      const StemPart part = plan.part_of(k);
      EXPECT_EQ(part.out_begin, columns);
      EXPECT_GT(part.out_columns, 0);
      columns += part.out_columns;
      expect_part(plan, part);
    }
    EXPECT_EQ(columns, s.out_w);
  }
  EXPECT_GT(plans, 100);
  EXPECT_GT(in_parts, 10);
}

TEST(PooledStemPlan, SaysWhatItCannotDo) {
  PooledStemShape s{2, 1, 3, 224, 224, 2, 2, 3, 3, 112, 112, 1, 1, 56, 56};
  ASSERT_TRUE(std::holds_alternative<PooledStemPlan>(plan_pooled_stem(s, 132)));
  EXPECT_EQ(std::get<PooledStemPlan>(plan_pooled_stem(s, 132)).step_rows, 1);
  EXPECT_EQ(std::get<PooledStemPlan>(plan_pooled_stem(s, 132)).parts, 2);
  EXPECT_EQ(std::get<PooledStemPlan>(plan_pooled_stem(s, 132)).mid_columns, 57);
  s.images = 2;
  EXPECT_EQ(std::get<PooledStemPlan>(plan_pooled_stem(s, 132)).parts, 1);
  s.images = 32;
  EXPECT_EQ(std::get<PooledStemPlan>(plan_pooled_stem(s, 132)).step_rows, 2);
  s.out_w = 500, s.mid_w = 1000, s.in_w = 2000;
  EXPECT_THAT(std::get<std::string>(plan_pooled_stem(s, 132)), testing::HasSubstr("no room"));
}

}  // namespace
}  // namespace pipit::internal::cuda
