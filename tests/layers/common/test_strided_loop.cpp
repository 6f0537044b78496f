#include "layers/common/strided_loop.h"

#include <gmock/gmock.h>

#include "tests/layers/conformance.h"

namespace pipit::internal {
namespace {

using Loop = StridedLoop<2>;

std::vector<Loop::Offsets> points(const Loop& loop) {
  std::vector<Loop::Offsets> result;
  loop.for_each([&](const Loop::Offsets& at) { result.push_back(at); });
  return result;
}

TEST(StridedLoop, VisitsInOrder) {
  Loop loop;
  loop.add(2, {10, 1});
  loop.add(3, {-1, 0});
  const std::vector<Loop::Offsets> expected = {{0, 0}, {-1, 0}, {-2, 0}, {10, 1}, {9, 1}, {8, 1}};
  EXPECT_EQ(points(loop), expected);
  EXPECT_EQ(loop.size(), 6);
}

TEST(StridedLoop, WithoutDimensionsHasOnePoint) {
  EXPECT_EQ(points(Loop()), std::vector<Loop::Offsets>(1));
}

TEST(StridedLoop, WithAnEmptyDimensionHasNone) {
  Loop loop;
  loop.add(3, {1, 1});
  loop.add(0, {1, 1});
  EXPECT_TRUE(points(loop).empty());
  loop.collapse();
  EXPECT_TRUE(points(loop).empty());
}

TEST(StridedLoop, CollapsesToOneRowWhereNothingBreaksIt) {
  const TensorDesc desc{Shape{2, 3, 1, 5}, DType::f32, Layout::channels_last};
  const Loop dense = broadcast_loop<2>({&desc, &desc});
  EXPECT_EQ(dense.rank(), 1);
  EXPECT_EQ(dense.row(), 30);
  // Per-channel operand of a channels_last image: [n h w][c].
  const TensorDesc channel{Shape{3, 1, 1}};
  const Loop per_channel = broadcast_loop<2>({&desc, &channel});
  ASSERT_EQ(per_channel.rank(), 2);
  EXPECT_EQ(per_channel.extent(0), 10);
  EXPECT_EQ(per_channel.strides(0), (Loop::Offsets{3, 0}));
  EXPECT_EQ(per_channel.strides(1), (Loop::Offsets{1, 1}));
}

// Collapsing keeps the set of points, sorted by the first operand; runs cut it anywhere without loss.
TEST(StridedLoop, CollapsingAndCuttingKeepThePoints) {
  test::Random random;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> a(static_cast<std::size_t>(random.integer(0, kMaxRank)));
    for (std::int64_t& d : a) d = random.integer(1, 4);
    std::vector<std::int64_t> b = a;
    for (std::int64_t& d : b) d = random.coin() ? 1 : d;
    const TensorDesc out{Shape(a), DType::f32, random.coin() ? Layout::row_major : Layout::channels_last};
    const TensorDesc in{Shape(b), DType::f32, random.coin() ? Layout::row_major : Layout::channels_last};
    Loop plain;
    const Strides so = out.strides();
    const Strides si = broadcast_strides(in, out.shape);
    for (std::size_t d = 0; d < a.size(); ++d) plain.add(a[d], {so[d], si[d]});
    std::vector<Loop::Offsets> expected = points(plain);
    std::sort(expected.begin(), expected.end());

    const Loop loop = broadcast_loop<2>({&out, &in});
    EXPECT_EQ(points(loop), expected) << "seed " << test::test_seed();

    std::vector<Loop::Offsets> pieces;
    for (std::int64_t begin = 0; begin < loop.size();) {
      const std::int64_t end = std::min(loop.size(), begin + random.integer(1, 9));
      loop.for_each_run(begin, end, [&](Loop::Offsets at, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          pieces.push_back(at);
          for (std::size_t k = 0; k < 2; ++k) at[k] += loop.row_strides()[k];
        }
      });
      begin = end;
    }
    EXPECT_EQ(pieces, expected) << "seed " << test::test_seed();
  }
}

}  // namespace
}  // namespace pipit::internal
