#include "quant/threshold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/base/error.h"

namespace pipit {
namespace {

Histogram histogram_of(const std::vector<float>& values) {
  ThreadPool pool(1);
  Histogram h;
  h.add(values, pool);
  return h;
}

// Half-normal values as after a Relu, and a few far outliers.
std::vector<float> activations(unsigned seed, std::size_t count, std::size_t outliers, float far) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& x : values) x = std::max(0.0F, normal(random));
  for (std::size_t i = 0; i < outliers; ++i) values[i * 97] = far + static_cast<float>(i);
  return values;
}

double squared_error(const std::vector<float>& values, double threshold) {
  const double scale = threshold / 127;
  double sum = 0;
  for (const float x : values) {
    const double q = std::clamp(std::nearbyint(x / scale), -127.0, 127.0);
    sum += (x - q * scale) * (x - q * scale);
  }
  return sum;
}

TEST(Threshold, MinmaxIsTheLargestMagnitude) {
  EXPECT_EQ(find_threshold(histogram_of({-3, 1, 2}), {ThresholdMethod::minmax}), 3);
}

TEST(Threshold, PercentileLeavesThatShareBeyond) {
  std::vector<float> values(100'000);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i) * (i % 2 == 0 ? 1.0F : -1.0F);
  const Histogram h = histogram_of(values);
  for (const double percent : {50.0, 90.0, 99.0, 99.9, 100.0}) {
    const double threshold = find_threshold(h, {ThresholdMethod::percentile, percent});
    EXPECT_NEAR(threshold, percent / 100 * 99'999, h.width()) << percent;
    EXPECT_NEAR(clipped_share(h, threshold), 1 - percent / 100, h.width() / 1e5) << percent;
  }
}

TEST(Threshold, MseIsNearTheBestOfAllThresholds) {
  const std::vector<float> values = activations(3, 50'000, 2, 12.0F);
  const double found = squared_error(values, find_threshold(histogram_of(values), {ThresholdMethod::mse}));
  double best = squared_error(values, 13);
  EXPECT_LT(found, best);  // minmax
  for (double t = 0.5; t < 13; t += 0.01) best = std::min(best, squared_error(values, t));
  EXPECT_LT(found, 1.05 * best);
}

TEST(Threshold, EntropyCutsOutliersOffAndKeepsAnEvenSpread) {
  const double cut =
      find_threshold(histogram_of(activations(4, 200'000, 3, 100.0F)), {ThresholdMethod::entropy});
  EXPECT_GT(cut, 2.0);
  EXPECT_LT(cut, 10.0);
  std::vector<float> uniform(100'000);
  for (std::size_t i = 0; i < uniform.size(); ++i) uniform[i] = static_cast<float>(i) / 1e5F;
  EXPECT_GT(find_threshold(histogram_of(uniform), {ThresholdMethod::entropy}), 0.98);
}

TEST(Threshold, EveryMethodTakesConstantTinyAndZeroTensors) {
  for (const auto method : {ThresholdMethod::minmax, ThresholdMethod::percentile, ThresholdMethod::entropy,
                            ThresholdMethod::mse}) {
    SCOPED_TRACE(threshold_method_name(method));
    EXPECT_EQ(find_threshold(histogram_of(std::vector<float>(100, 0.0F)), {method}), 0);
    // A constant is kept to within one step of 127.
    EXPECT_NEAR(find_threshold(histogram_of(std::vector<float>(100, -5.0F)), {method}), 5, 5.0 / 127);
    const double tiny = find_threshold(histogram_of({1e-42F, 1e-43F}), {method});
    EXPECT_GT(tiny, 0);
    EXPECT_LE(tiny, 1e-41);
    EXPECT_THROW(find_threshold(Histogram(), {method}), Error);
  }
  EXPECT_THROW(find_threshold(histogram_of({1}), {ThresholdMethod::percentile, 0}), Error);
  EXPECT_THROW(find_threshold(histogram_of({1}), {ThresholdMethod::percentile, 100.5}), Error);
}

}  // namespace
}  // namespace pipit
