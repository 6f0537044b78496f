#include "quant/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/base/error.h"
#include "tests/support/seed.h"

namespace pipit::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<float> random_values(std::mt19937& random, std::size_t count, float scale) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& x : values) x = std::max(normal(random), -scale / 2);  // many equal values, few zeros
  for (std::size_t i = 0; i < count; i += 7) values[i] = 0;
  return values;
}

void expect_equal(const Histogram& a, const Histogram& b) {
  EXPECT_EQ(a.count(), b.count());
  EXPECT_EQ(a.zeros(), b.zeros());
  EXPECT_EQ(a.min(), b.min());
  EXPECT_EQ(a.max(), b.max());
  ASSERT_EQ(a.width(), b.width());
  for (int i = -Histogram::kSide; i < Histogram::kSide; ++i) ASSERT_EQ(a.bin(i), b.bin(i)) << "bin " << i;
}

TEST(Histogram, CountsEveryValueInItsBin) {
  std::mt19937 random(1);
  ThreadPool pool(2);
  const std::vector<float> values = random_values(random, 200'003, 3.0F);
  Histogram h;
  h.add(values, pool);
  std::vector<std::uint64_t> expected(2 * Histogram::kSide);
  for (const float x : values)
    ++expected[static_cast<std::size_t>(std::floor(x / h.width()) + Histogram::kSide)];
  std::uint64_t sum = 0;
  for (int i = -Histogram::kSide; i < Histogram::kSide; ++i) {
    ASSERT_EQ(h.bin(i), expected[static_cast<std::size_t>(i + Histogram::kSide)]) << "bin " << i;
    sum += h.bin(i);
  }
  EXPECT_EQ(sum, values.size());
  EXPECT_EQ(h.count(), values.size());
  EXPECT_EQ(h.max(), *std::max_element(values.begin(), values.end()));
  EXPECT_EQ(h.min(), *std::min_element(values.begin(), values.end()));
  EXPECT_LT(h.max_magnitude(), h.width() * Histogram::kSide);
  EXPECT_GE(h.max_magnitude(), h.width() * Histogram::kSide / 2);
}

TEST(Histogram, DoesNotDependOnOrderPiecesThreadsOrMerging) {
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << test::test_seed());
  std::mt19937 random(test::test_seed());
  // Magnitudes over many powers of two, so that pieces start with bins of very different widths.
  std::vector<std::vector<float>> pieces;
  for (const float scale : {1e-6F, 0.0F, 40.0F, 0.3F, 1e4F, 1e-20F})
    pieces.push_back(random_values(random, 1000 + random() % 3000, scale));
  std::vector<float> all;
  for (const auto& piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
  ThreadPool one(1), three(3);
  Histogram whole;
  whole.add(all, one);
  for (int round = 0; round < 5; ++round) {
    std::shuffle(pieces.begin(), pieces.end(), random);
    Histogram streamed, left, right;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      streamed.add(pieces[p], three);
      (p % 2 == 0 ? left : right).add(pieces[p], one);
    }
    expect_equal(streamed, whole);
    left.merge(right);
    expect_equal(left, whole);
    Histogram empty;
    empty.merge(left);
    expect_equal(empty, whole);
    expect_equal(Histogram::from_state(streamed.state()), whole);
  }
}

TEST(Histogram, AllZerosHaveNoWidth) {
  ThreadPool pool(1);
  Histogram h;
  h.add(std::vector<float>(10, 0.0F), pool);
  EXPECT_EQ(h.width(), 0);
  EXPECT_EQ(h.zeros(), 10U);
  expect_equal(Histogram::from_state(h.state()), h);
  Histogram other;
  other.add(std::vector<float>{0, 2, -1}, pool);
  h.merge(other);
  EXPECT_EQ(h.count(), 13U);
  EXPECT_EQ(h.zeros(), 11U);
  EXPECT_EQ(h.bin(0), 11U);
}

TEST(Histogram, RefusesWhatIsNoNumber) {
  ThreadPool pool(1);
  Histogram h;
  h.add(std::vector<float>{1}, pool);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(
        [&] {
          h.add(std::vector<float>{0, bad, 1}, pool);
        },
        ThrowsMessage<Error>(HasSubstr("3 values")));
  }
  EXPECT_EQ(h.count(), 1U);
}

TEST(Histogram, RefusesStatesThatNoDataMakes) {
  ThreadPool pool(1);
  Histogram h;
  h.add(std::vector<float>{0, 1, 2, 3}, pool);
  const auto refused = [](Histogram::State s) { EXPECT_THROW(Histogram::from_state(s), Error); };
  Histogram::State state = h.state();
  EXPECT_NO_THROW(Histogram::from_state(state));
  state.exponent += 1;
  refused(state);
  state = h.state();
  state.runs[0].first = Histogram::kSide;
  refused(state);
  state = h.state();
  state.runs.push_back(state.runs[0]);
  refused(state);
  state = h.state();
  state.zeros = 5;
  refused(state);
  state = h.state();
  state.min = 4;
  refused(state);
  state = h.state();
  state.runs.clear();
  refused(state);
}

}  // namespace
}  // namespace pipit::internal
