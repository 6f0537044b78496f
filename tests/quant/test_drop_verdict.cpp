#include "quant/drop_verdict.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>
#include <tuple>

#include "engine/base/error.h"

namespace pipit::internal {
namespace {

using ::testing::HasSubstr;

TEST(DropVerdict, AnIntervalWithinTheLimitProves) {
  // 10 of 10000 lost: 0.1 points [0.04, 0.18].
  const JudgedDrop drop = judge_drop({10'000, 10, 0}, 0.005);
  EXPECT_EQ(drop.verdict, DropVerdict::proven);
  EXPECT_TRUE(drop.within);
  EXPECT_EQ(drop.images, 0);
  EXPECT_EQ(verdict_text(drop), "proven there");
}

TEST(DropVerdict, AnIntervalAboveTheLimitBreaks) {
  const JudgedDrop drop = judge_drop({1'000, 100, 0}, 0.01);
  EXPECT_EQ(drop.verdict, DropVerdict::broken);
  EXPECT_FALSE(drop.within);
  EXPECT_EQ(verdict_text(drop), "broken there");
}

TEST(DropVerdict, TheImagesThatItAsksForWouldProveIt) {
  // The same shares on a tenth more images than it says: proven. On a tenth fewer: not.
  for (const auto& [first, second, limit] :
       {std::tuple{0.02, 0.01, 0.02}, {0.05, 0.05, 0.01}, {0, 0.03, 0.0005}, {0.1, 0.1, 0.001}}) {
    const auto judged = [a = first, b = second, most = limit](std::int64_t images) {
      const auto of = [&](double share) { return std::llround(share * static_cast<double>(images)); };
      return judge_drop({images, of(a), of(b)}, most);
    };
    const JudgedDrop few = judged(100);
    ASSERT_EQ(few.verdict, DropVerdict::unproven) << limit;
    EXPECT_TRUE(few.within);
    ASSERT_GT(few.images, 100);
    EXPECT_EQ(judged(few.images * 11 / 10).verdict, DropVerdict::proven) << few.images;
    EXPECT_EQ(judged(few.images * 9 / 10).verdict, DropVerdict::unproven) << few.images;
    EXPECT_THAT(verdict_text(few), HasSubstr(std::to_string(few.images)));
  }
}

TEST(DropVerdict, NoNumberOfImagesProvesWhatWasNotMeasured) {
  const JudgedDrop above = judge_drop({100, 6, 2}, 0.03);
  EXPECT_EQ(above.verdict, DropVerdict::unproven);
  EXPECT_FALSE(above.within);
  EXPECT_EQ(above.images, 0);
  EXPECT_THAT(verdict_text(above), HasSubstr("measured above"));
  const JudgedDrop at = judge_drop({100, 0, 0}, 0);
  EXPECT_TRUE(at.within);
  EXPECT_EQ(at.images, 0);
  EXPECT_THAT(verdict_text(at), HasSubstr("at the limit"));
}

TEST(DropVerdict, Refuses) {
  EXPECT_THROW(judge_drop({0, 0, 0}, 0.1), Error);
  EXPECT_THROW(judge_drop({10, 0, 0}, -0.1), Error);
  EXPECT_THROW(judge_drop({10, 0, 0}, std::nan("")), Error);
}

}  // namespace
}  // namespace pipit::internal
