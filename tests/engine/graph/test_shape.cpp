#include "engine/graph/shape.h"

#include <gmock/gmock.h>

#include "engine/base/error.h"

namespace pipit::internal {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Shape, CountsElementsAndPrints) {
  EXPECT_EQ(Shape({2, 3, 5}).elements(), 30);
  EXPECT_EQ(Shape({2, 3, 5}).str(), "2x3x5");
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(Shape().str(), "scalar");
  EXPECT_EQ(Shape({4, 0, 3}).elements(), 0);
}

TEST(Shape, RefusesWhatCannotBe) {
  EXPECT_THAT(([] { Shape({2, -1}); }), ThrowsMessage<Error>(HasSubstr("[2x-1] has a negative extent")));
  EXPECT_THAT(([] { Shape({1, 1, 1, 1, 1, 1, 1}); }), ThrowsMessage<Error>(HasSubstr("7 dimensions")));
  EXPECT_THAT(([] {
                Shape({std::int64_t{1} << 40, std::int64_t{1} << 40});
              }),
              ThrowsMessage<Error>(HasSubstr("overflows")));
  // An extent of zero does not hide an overflow of the strides.
  EXPECT_THROW(Shape({std::int64_t{1} << 40, 0, std::int64_t{1} << 40}), Error);
}

TEST(Shape, EqualityIgnoresUnusedCapacity) {
  EXPECT_EQ(Shape({2, 3}), Shape({2, 1}).with(1, 3));
  EXPECT_FALSE(Shape({2, 3}) == Shape({2, 3, 1}));
}

TEST(Shape, NormalizesAxes) {
  EXPECT_EQ(normalize_axis(-1, 4, "t"), 3);
  EXPECT_EQ(normalize_axis(0, 4, "t"), 0);
  EXPECT_THAT([] { normalize_axis(4, 4, "Concat"); }, ThrowsMessage<Error>(HasSubstr("Concat: axis 4")));
  EXPECT_THROW(normalize_axis(-5, 4, "t"), Error);
}

TEST(Shape, Broadcasts) {
  EXPECT_EQ(broadcast_shapes(Shape({2, 1, 4}), Shape({3, 1})), Shape({2, 3, 4}));
  EXPECT_EQ(broadcast_shapes(Shape(), Shape({5})), Shape({5}));
  EXPECT_EQ(broadcast_shapes(Shape({0}), Shape({1})), Shape({0}));
  EXPECT_THAT(
      [] {
        broadcast_shapes(Shape({2, 3}), Shape({2, 4}));
      },
      ThrowsMessage<Error>(HasSubstr("2x3 and 2x4 do not broadcast")));
}

}  // namespace
}  // namespace pipit::internal
