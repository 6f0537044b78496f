#include "quant/observed_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "engine/base/error.h"
#include "tests/support/random.h"

namespace pipit::internal {
namespace {

using test::test_seed;
using testing::IsEmpty;
using testing::SizeIs;

TEST(OutgrownTensors, NeedTheLargestMagnitudesInLaterImagesAndABitMore) {
  // One tensor, as many later images: 0.5^7 is below 1 %, 0.5^6 is not.
  const auto found = [](std::vector<float> peaks) {
    const std::vector<TensorPeaks> tensors = {{"t", peaks}};
    return outgrown_tensors(tensors, peaks.size() / 2);
  };
  std::vector<float> peaks(16, 1.0F);
  std::fill(peaks.begin() + 8, peaks.end(), 2.0F);
  ASSERT_THAT(found(peaks), SizeIs(1));
  EXPECT_EQ(found(peaks)[0].name, "t");
  EXPECT_EQ(found(peaks)[0].earlier, 1);
  EXPECT_EQ(found(peaks)[0].later, 2);
  peaks[9] = 1;  // seven larger ones are left
  EXPECT_THAT(found(peaks), SizeIs(1));
  peaks[10] = 1;
  EXPECT_THAT(found(peaks), IsEmpty());
  std::fill(peaks.begin() + 8, peaks.end(), 1.9F);  // less than a bit
  EXPECT_THAT(found(peaks), IsEmpty());
  EXPECT_THAT(found(std::vector<float>(12, 1.0F)), IsEmpty());  // too few images for 1 %
  EXPECT_THAT(outgrown_tensors({}, 1), IsEmpty());
}

TEST(OutgrownTensors, MoreTensorsNeedMoreImages) {
  std::vector<float> peaks(16, 1.0F);
  std::fill(peaks.begin() + 8, peaks.end(), 4.0F);
  // 0.5^8 of 2 tensors is below 1 %, of 3 it is not.
  EXPECT_THAT(outgrown_tensors(std::vector<TensorPeaks>(2, {"t", peaks}), 8), SizeIs(2));
  EXPECT_THAT(outgrown_tensors(std::vector<TensorPeaks>(3, {"t", peaks}), 8), IsEmpty());
}

TEST(OutgrownTensors, ImagesDrawnAlikeDoNotGrow) {
  std::mt19937 random(test_seed());
  std::normal_distribution<float> normal;
  int wrong = 0;
  for (int run = 0; run < 200; ++run) {
    std::vector<TensorPeaks> tensors(20, {"t", std::vector<float>(60)});
    // Heavy tails, in which the largest value is often far from the others.
    for (TensorPeaks& tensor : tensors)
      for (float& peak : tensor.peaks) peak = std::exp(2 * normal(random));
    wrong += outgrown_tensors(tensors, 30).empty() ? 0 : 1;
  }
  EXPECT_LE(wrong, 3);
}

TEST(InputLikeness, IsTheShareOfVarianceThatImagesHaveInCommon) {
  std::mt19937 random(test_seed());
  std::normal_distribution<float> normal;
  std::vector<float> scene(3000);
  for (float& x : scene) x = normal(random);
  for (const float common : {0.0F, 1.0F, 3.0F}) {
    InputLikeness likeness;
    for (int i = 0; i < 40; ++i) {
      std::vector<float> image(scene);
      for (float& x : image) x = common * x + normal(random);
      likeness.add(image, 3);
    }
    const double expected = common * common / (common * common + 1);
    EXPECT_NEAR(likeness.common_share(), expected, 0.05) << common;
    EXPECT_NEAR(likeness.effective_images(), 40 / (1 + 39 * likeness.common_share()), 1e-9);
  }
}

TEST(InputLikeness, OfPlainColoursCopiesAndSingleImages) {
  InputLikeness one, plain, copies;
  one.add(std::vector<float>{1, 2, 3, 4}, 1);
  EXPECT_EQ(one.common_share(), 0);
  EXPECT_EQ(one.effective_images(), 1);
  for (int i = 0; i < 5; ++i) {
    const auto x = static_cast<float>(i);
    plain.add(std::vector<float>{x, x, x, -x, -x, -x}, 2);
    copies.add(std::vector<float>{1, 2, 3, 4, 5, 6}, 2);
  }
  EXPECT_EQ(plain.common_share(), 0);
  EXPECT_EQ(copies.common_share(), 1);
  EXPECT_EQ(copies.effective_images(), 1);
  EXPECT_THROW(copies.add(std::vector<float>{1}, 1), Error);
}

TEST(ExceedingProbability, OfImagesDrawnAlike) {
  EXPECT_EQ(exceeding_probability(1), 0.5);
  EXPECT_EQ(exceeding_probability(31), 1.0 / 32);
}

}  // namespace
}  // namespace pipit::internal
