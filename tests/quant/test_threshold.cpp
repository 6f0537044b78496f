#include "quant/threshold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "engine/base/error.h"
#include "tests/support/seed.h"

namespace pipit::internal {
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

double magnitude(const Histogram& histogram, const ThresholdOptions& options) {
  return find_threshold(histogram, options).magnitude;
}

// Signal to quantization noise. What 8 bits give evenly spread values is as good as anything above.
double sqnr_db(const std::vector<float>& values, double threshold) {
  double signal = 0;
  for (const float x : values) signal += static_cast<double>(x) * x;
  constexpr double kEnough = 48;
  return std::min(10 * std::log10(signal / std::max(squared_error(values, threshold), 1e-30 * signal)),
                  kEnough);
}

TEST(Threshold, MinmaxIsTheLargestMagnitude) {
  EXPECT_EQ(magnitude(histogram_of({-3, 1, 2}), {ThresholdMethod::minmax}), 3);
}

TEST(Threshold, PercentileLeavesThatShareBeyond) {
  std::vector<float> values(100'000);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i) * (i % 2 == 0 ? 1.0F : -1.0F);
  const Histogram h = histogram_of(values);
  for (const double percent : {99.0, 99.5, 99.9, 100.0}) {
    const Threshold found = find_threshold(h, {ThresholdMethod::percentile, percent});
    EXPECT_FALSE(found.moved);
    EXPECT_NEAR(found.magnitude, percent / 100 * 99'999, h.width()) << percent;
    // Half a step beyond it is rounded, not clipped.
    EXPECT_NEAR(clipped_share(h, found.magnitude), std::max(0.0, 1 - percent / 100 * 127.5 / 127),
                2 * h.width() / 1e5)
        << percent;
  }
  // Half of the values clipped would be 40 dB of noise more.
  const Threshold moved = find_threshold(h, {ThresholdMethod::percentile, 50});
  EXPECT_TRUE(moved.moved);
  EXPECT_GT(moved.magnitude, 0.95 * 99'999);
}

TEST(Threshold, MseIsNearTheBestOfAllThresholds) {
  const std::vector<float> values = activations(3, 50'000, 2, 12.0F);
  const double found = squared_error(values, magnitude(histogram_of(values), {ThresholdMethod::mse}));
  double best = squared_error(values, 13);
  EXPECT_LT(found, best);  // minmax
  for (double t = 0.5; t < 13; t += 0.01) best = std::min(best, squared_error(values, t));
  EXPECT_LT(found, 1.05 * best);
}

TEST(Threshold, EntropyCutsOutliersOffAndKeepsAnEvenSpread) {
  const double cut = magnitude(histogram_of(activations(4, 200'000, 3, 20.0F)), {ThresholdMethod::entropy});
  EXPECT_GT(cut, 2.0);
  EXPECT_LT(cut, 10.0);
  std::vector<float> uniform(100'000);
  for (std::size_t i = 0; i < uniform.size(); ++i) uniform[i] = static_cast<float>(i) / 1e5F;
  EXPECT_GT(magnitude(histogram_of(uniform), {ThresholdMethod::entropy}), 0.98);
}

TEST(Threshold, EveryMethodTakesConstantTinyAndZeroTensors) {
  for (const auto method : {ThresholdMethod::minmax, ThresholdMethod::percentile, ThresholdMethod::entropy,
                            ThresholdMethod::mse}) {
    SCOPED_TRACE(threshold_method_name(method));
    EXPECT_EQ(magnitude(histogram_of(std::vector<float>(100, 0.0F)), {method}), 0);
    // A constant is kept to within one step of 127.
    EXPECT_NEAR(magnitude(histogram_of(std::vector<float>(100, -5.0F)), {method}), 5, 5.0 / 127);
    const double tiny = magnitude(histogram_of({1e-42F, 1e-43F}), {method});
    EXPECT_GT(tiny, 0);
    EXPECT_LE(tiny, 1e-41);
    EXPECT_THROW(find_threshold(Histogram(), {method}), Error);
  }
  EXPECT_THROW(find_threshold(histogram_of({1}), {ThresholdMethod::percentile, 0}), Error);
  EXPECT_THROW(find_threshold(histogram_of({1}), {ThresholdMethod::percentile, 100.5}), Error);
}

// What one level holds looks the same to a divergence whether the rest is there or not.
TEST(Threshold, EntropyDoesNotCutGatesOff) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0.0F, 0.6F);
  std::vector<float> gates(50'000);
  for (float& x : gates) x = 0.13F + 0.69F / (1 + std::exp(-normal(random)));
  const Histogram h = histogram_of(gates);
  const Threshold entropy = find_threshold(h, {ThresholdMethod::entropy});
  EXPECT_GT(entropy.magnitude, 0.5);
  EXPECT_LT(clipped_share(h, entropy.magnitude), 0.01);
  EXPECT_GT(sqnr_db(gates, entropy.magnitude), 30);
}

TEST(Threshold, AlmostAllZerosLeaveAPercentileNothingToCut) {
  std::vector<float> values = activations(7, 100'000, 0, 0);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 20'000 == 0 ? 1 + values[i] : 0;
  const Histogram h = histogram_of(values);
  const Threshold found = find_threshold(h, {ThresholdMethod::percentile, 99.9});
  EXPECT_TRUE(found.moved);
  EXPECT_GT(sqnr_db(values, found.magnitude), 20);
}

TEST(Threshold, ALoneValueDoesNotTakeTheLevelsOfAllOthers) {
  std::vector<float> values = activations(8, 2'000'000, 1, 100);
  const Threshold found = find_threshold(histogram_of(values), {ThresholdMethod::minmax});
  EXPECT_TRUE(found.moved);
  EXPECT_LT(found.magnitude, 100);
}

// ---- no method may cost a tensor much more than another ----

using Random = std::mt19937_64;
using Draw = std::function<double(Random&)>;

double from(Random& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

double normal(Random& random) {
  return std::normal_distribution<double>()(random);
}

struct Distribution {
  const char* name;
  /// Parameters at random, and what draws a value with them.
  Draw (*make)(Random&);
};

const Distribution kDistributions[] = {
    {"normal",
     [](Random& r) -> Draw {
       const double mean = from(r, -1, 1), scale = std::exp(from(r, -6, 6));
       return [=](Random& v) { return scale * (mean + normal(v)); };
     }},
    {"laplace",
     [](Random& r) -> Draw {
       const double scale = std::exp(from(r, -6, 6));
       return [=](Random& v) {
         return scale * std::exponential_distribution<double>()(v) * (from(v, -1, 1) < 0 ? -1 : 1);
       };
     }},
    {"uniform",
     [](Random& r) -> Draw {
       const double low = from(r, -3, 1), high = low + from(r, 0.01, 4);
       return [=](Random& v) { return from(v, low, high); };
     }},
    {"bimodal",
     [](Random& r) -> Draw {
       const double far = from(r, 1, 50), share = from(r, 0.001, 0.999), width = from(r, 0.1, 3);
       return [=](Random& v) { return from(v, 0, 1) < share ? far + width * normal(v) : normal(v); };
     }},
    {"gates",
     [](Random& r) -> Draw {
       const double low = from(r, 0.01, 0.9), range = from(r, 0.001, 1 - low);
       const double mean = from(r, -4, 4), width = from(r, 0.05, 2);
       return [=](Random& v) { return low + range / (1 + std::exp(-mean - width * normal(v))); };
     }},
    {"spikes",
     [](Random& r) -> Draw {
       const double far = std::exp(from(r, 1, 8)), share = std::exp(from(r, -10, -3));
       return [=](Random& v) { return from(v, 0, 1) < share ? far * (1 + 0.1 * normal(v)) : normal(v); };
     }},
    {"mostly zero",
     [](Random& r) -> Draw {
       const double share = std::exp(from(r, -9, 0));
       return [=](Random& v) { return from(v, 0, 1) < share ? std::abs(normal(v)) : 0; };
     }},
    {"relu6",
     [](Random& r) -> Draw {
       const double mean = from(r, -3, 8), width = from(r, 0.5, 5);
       return [=](Random& v) { return std::clamp(mean + width * normal(v), 0.0, 6.0); };
     }},
    {"heavy tails",
     [](Random& r) -> Draw {
       const double degrees = from(r, 1, 6);
       return [=](Random& v) { return std::student_t_distribution<double>(degrees)(v); };
     }},
    {"lognormal",
     [](Random& r) -> Draw {
       const double width = from(r, 0.2, 3);
       return [=](Random& v) { return std::exp(width * normal(v)); };
     }},
    {"few values",
     [](Random& r) -> Draw {
       std::vector<double> levels(1 + r() % 12);
       const bool round = r() % 2 == 0;
       for (double& level : levels) level = round ? std::round(from(r, -16, 16)) / 4 : from(r, -4, 4);
       return [=](Random& v) { return levels[v() % levels.size()]; };
     }},
};

TEST(Threshold, NoMethodCostsMuchMoreThanAnother) {
  const std::uint64_t seed = test::test_seed();
  for (const Distribution& distribution : kDistributions) {
    for (int round = 0; round < 6; ++round) {
      Random random(seed + static_cast<std::uint64_t>(round));
      const Draw draw = distribution.make(random);
      std::vector<float> values(static_cast<std::size_t>(std::exp(from(random, 4, 10))));
      for (float& x : values) x = static_cast<float>(draw(random));
      const Histogram h = histogram_of(values);
      if (h.max_magnitude() == 0) continue;
      std::vector<std::pair<double, std::string>> reached;
      for (const ThresholdOptions& how :
           {ThresholdOptions{ThresholdMethod::minmax}, ThresholdOptions{ThresholdMethod::percentile},
            ThresholdOptions{ThresholdMethod::percentile, 99}, ThresholdOptions{ThresholdMethod::entropy},
            ThresholdOptions{ThresholdMethod::mse}}) {
        reached.emplace_back(sqnr_db(values, magnitude(h, how)), threshold_method_name(how.method));
      }
      const auto [worst, best] = std::minmax_element(reached.begin(), reached.end());
      EXPECT_LT(best->first - worst->first, 6)
          << distribution.name << ", " << values.size() << " values, round " << round
          << ", PIPIT_TEST_SEED=" << seed << ": " << worst->second << " reaches " << worst->first << " dB, "
          << best->second << " " << best->first;
    }
  }
}

}  // namespace
}  // namespace pipit::internal
