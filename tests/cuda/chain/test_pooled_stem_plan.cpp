// How pooled_stem divides images. What its kernel computes: tests/cuda/emulation.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <string>

#include "layers/cuda/conv/pooled_stem/plan.h"
#include "tests/cuda/chain/random_chain.h"
#include "tests/cuda/seed.h"

namespace pipit::internal::cuda {
namespace {

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
