// Second-order rounding: never worse than the nearest integers, exact where that can be known, and safe.
#include "sparsity/round_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "engine/base/error.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct RoundingProblem {
  std::vector<Gram> sums;
  NewWeights dense;
  IntegerWeights nearest;
  RoundingGrid grid;
};

// What is nearest, with the largest magnitude of a group at `high`.
IntegerWeights nearest_integers(const NewWeights& dense, const RoundingGrid& grid) {
  const std::span<const float> w = dense.weights.values<float>();
  const auto outputs = static_cast<std::size_t>(dense.weights.shape()[0]);
  const std::size_t depth = w.size() / outputs;
  IntegerWeights nearest{{}, {}, dense.bias};
  for (std::size_t o = 0; o < outputs; ++o) {
    for (std::size_t first = 0; first < depth; first += grid.group) {
      const std::span<const float> group = w.subspan(o * depth + first, std::min(grid.group, depth - first));
      float largest = 0;
      for (const float x : group) largest = std::max(largest, std::abs(x));
      const float scale = largest > 0 ? largest / static_cast<float>(grid.high) : 1.0F;
      nearest.scales.push_back(scale);
      for (const float x : group)
        nearest.integers.push_back(static_cast<std::int8_t>(std::nearbyint(x / scale)));
    }
  }
  return nearest;
}

// A layer whose columns are mixtures of fewer sources, so that they are correlated as activations are.
RoundingProblem rounding_problem(std::mt19937& random, std::size_t groups, std::size_t outputs,
                                 std::size_t depth, std::size_t columns, const RoundingGrid& grid) {
  std::normal_distribution<float> normal;
  const auto rows = static_cast<std::int64_t>(groups * outputs);
  RoundingProblem p{
      {}, {test::random_tensor(Shape{rows, static_cast<std::int64_t>(depth), 1, 1}, random), {}}, {}, grid};
  for (std::size_t o = 0; o < groups * outputs; ++o) p.dense.bias.push_back(normal(random));
  for (std::size_t g = 0; g < groups; ++g) {
    Gram gram(depth, outputs);
    gram.count = static_cast<double>(columns);
    const std::size_t size = depth + 1;
    std::vector<float> mix(depth * (depth / 2 + 1));
    for (float& m : mix) m = normal(random);
    for (std::size_t c = 0; c < columns; ++c) {
      std::vector<float> source(depth / 2 + 1), x(size, 0.3F);
      for (float& s : source) s = normal(random);
      for (std::size_t k = 0; k < depth; ++k) {
        for (std::size_t s = 0; s < source.size(); ++s) x[k] += mix[k * source.size() + s] * source[s];
        x[k] = std::max(0.0F, x[k]) + 0.05F * normal(random);
      }
      x[depth] = 1;
      for (std::size_t i = 0; i < size; ++i) {
        for (std::size_t j = 0; j < size; ++j) gram.xx[i * size + j] += static_cast<double>(x[i]) * x[j];
      }
    }
    gram.set_outputs(p.dense.weights.values<float>().subspan(g * outputs * depth, outputs * depth),
                     std::span(p.dense.bias).subspan(g * outputs, outputs));
    p.sums.push_back(std::move(gram));
  }
  p.nearest = nearest_integers(p.dense, grid);
  return p;
}

// The squared error of output `o` of group `g` with the best bias for it, damped as `options` say: what is minimized.
double rounding_error(const RoundingProblem& p, const IntegerWeights& made, std::size_t g, std::size_t o,
                      const RoundingOptions& options, bool adjust_bias = true) {
  const Gram& gram = p.sums[g];
  const std::size_t n = gram.depth, size = n + 1, row = g * gram.outputs + o;
  const std::size_t scales = (n + p.grid.group - 1) / p.grid.group;
  std::vector<double> e(n);
  for (std::size_t k = 0; k < n; ++k)
    e[k] = static_cast<double>(made.integers[row * n + k]) * made.scales[row * scales + k / p.grid.group] -
           p.dense.weights.values<float>()[row * n + k];
  double sum = 0, trace = 0, squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      const double mean = adjust_bias ? gram.xx[i * size + n] * gram.xx[j * size + n] / gram.count : 0;
      const double h = gram.xx[i * size + j] - mean;
      sum += e[i] * h * e[j];
      if (i == j) trace += h;
    }
    squares += e[i] * e[i];
  }
  const auto depth = static_cast<double>(n);
  return sum + (options.damping + options.scarcity * depth / gram.count) * trace / depth * squares;
}

TEST(RoundWeights, NoRowIsWorseThanNearest) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  double all_nearest = 0, all_made = 0;
  for (int round = 0; round < 30; ++round) {
    const std::size_t depth = 1 + random() % 70, outputs = 1 + random() % 19, groups = 1 + random() % 3;
    const RoundingGrid grid = round % 2 == 0 ? RoundingGrid{.low = -8, .high = 7, .group = 1 + random() % 40}
                                             : RoundingGrid{.group = depth, .keep_scales = round % 4 == 1};
    const RoundingProblem p = rounding_problem(random, groups, outputs, depth, 1 + random() % 200, grid);
    const IntegerWeights made = round_weights(p.sums, p.dense, p.nearest, grid, {}, *shared_pool(2));
    SCOPED_TRACE(testing::Message() << "round " << round << ", depth " << depth << ", outputs " << outputs
                                    << ", groups " << groups << ", a scale for " << grid.group);
    for (std::size_t g = 0; g < groups; ++g) {
      for (std::size_t o = 0; o < outputs; ++o) {
        const double nearest = rounding_error(p, p.nearest, g, o, {}),
                     now = rounding_error(p, made, g, o, {});
        // Inputs of a single column do not vary; what rounding leaves of their sums counts for 1e-6.
        ASSERT_LE(now, nearest * (1 + 1e-6) + 1e-5) << "output " << o << " of group " << g;
        all_nearest += nearest;
        all_made += now;
      }
    }
    for (const std::int8_t q : made.integers) ASSERT_TRUE(q >= grid.low && q <= grid.high) << int{q};
    if (grid.keep_scales) {
      ASSERT_EQ(made.scales, p.nearest.scales);
    }
  }
  EXPECT_LT(all_made, 0.6 * all_nearest);
}

TEST(RoundWeights, InputsThatAreAllAlikeAndUnrelatedKeepTheNearest) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const RoundingGrid grid{.low = -8, .high = 7, .group = 16, .keep_scales = true};
  RoundingProblem p = rounding_problem(random, 2, 9, 40, 50, grid);
  for (Gram& gram : p.sums) {
    std::fill(gram.xx.begin(), gram.xx.end(), 0.0);
    for (std::size_t k = 0; k < gram.depth; ++k) gram.xx[k * (gram.depth + 1) + k] = gram.count;
    gram.xx.back() = gram.count;
  }
  for (std::size_t g = 0; g < 2; ++g)
    p.sums[g].set_outputs(p.dense.weights.values<float>().subspan(g * 360, 360),
                          std::span(p.dense.bias).subspan(g * 9, 9));
  const IntegerWeights made = round_weights(p.sums, p.dense, p.nearest, grid, {}, *shared_pool(1));
  EXPECT_EQ(made.integers, p.nearest.integers);
  EXPECT_EQ(made.scales, p.nearest.scales);
  for (std::size_t o = 0; o < made.bias.size(); ++o) EXPECT_FLOAT_EQ(made.bias[o], p.dense.bias[o]);
}

TEST(RoundWeights, IsNearTheBestOfAllIntegers) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  constexpr std::size_t kDepth = 4;
  double all_best = 0, all_made = 0, all_nearest = 0;
  for (int round = 0; round < 20; ++round) {
    const RoundingGrid grid{.low = -3, .high = 3, .group = kDepth, .keep_scales = true};
    const RoundingProblem p = rounding_problem(random, 1, 2, kDepth, 60, grid);
    const IntegerWeights made = round_weights(p.sums, p.dense, p.nearest, grid, {}, *shared_pool(1));
    for (std::size_t o = 0; o < 2; ++o) {
      double best = INFINITY;
      IntegerWeights any = p.nearest;
      for (int code = 0; code < 7 * 7 * 7 * 7; ++code) {
        for (int k = 0, rest = code; k < 4; ++k, rest /= 7)
          any.integers[o * kDepth + static_cast<std::size_t>(k)] = static_cast<std::int8_t>(rest % 7 - 3);
        best = std::min(best, rounding_error(p, any, 0, o, {}));
      }
      const double now = rounding_error(p, made, 0, o, {});
      ASSERT_GE(now, best * (1 - 1e-9));
      all_best += best;
      all_made += now;
      all_nearest += rounding_error(p, p.nearest, 0, o, {});
    }
  }
  EXPECT_LT(all_made - all_best, 0.25 * (all_nearest - all_best));
}

TEST(RoundWeights, TheBiasTakesWhatWeightsChangeOfTheMean) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  RoundingGrid grid{.low = -8, .high = 7, .group = 8};
  const RoundingProblem p = rounding_problem(random, 1, 5, 24, 100, grid);
  const IntegerWeights made = round_weights(p.sums, p.dense, p.nearest, grid, {}, *shared_pool(1));
  const NewWeights real = real_values(made, p.dense.weights.shape(), grid.group);
  const Gram& gram = p.sums[0];
  for (std::size_t o = 0; o < 5; ++o) {
    double mean = made.bias[o];
    for (std::size_t k = 0; k < 24; ++k)
      mean += real.weights.values<float>()[o * 24 + k] * gram.xx[24 * 25 + k] / gram.count;
    EXPECT_NEAR(mean, gram.xy[24 * 5 + o] / gram.count, 1e-5 * (1 + std::abs(mean)));
  }
  grid.adjust_bias = false;
  EXPECT_EQ(round_weights(p.sums, p.dense, p.nearest, grid, {}, *shared_pool(1)).bias, p.dense.bias);
}

TEST(RoundWeights, TargetsOfAnotherNetworkAreFitted) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const RoundingGrid grid{.group = 12};
  RoundingProblem p = rounding_problem(random, 1, 3, 12, 4000, grid);
  // Layers before this one halve its inputs: twice the weights compute the same.
  NewWeights twice{p.dense.weights.clone(), p.dense.bias};
  for (float& w : twice.weights.values<float>()) w *= 2;
  p.sums[0].set_outputs(twice.weights.values<float>(), twice.bias);
  const double before = p.sums[0].relative_error(
      real_values(p.nearest, twice.weights.shape(), 12).weights.values<float>(), p.dense.bias);
  const IntegerWeights made =
      round_weights(p.sums, p.dense, nearest_integers(p.dense, grid), grid, {1e-6, 0}, *shared_pool(1));
  const NewWeights real = real_values(made, twice.weights.shape(), 12);
  EXPECT_LT(p.sums[0].relative_error(real.weights.values<float>(), real.bias), 0.05 * before);
}

TEST(RoundWeights, SingularSumsAndInputsThatAreAlwaysZero) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const RoundingGrid grid{.low = -8, .high = 7, .group = 32};
  // One column, and two that are alike: ranks of 1 and 2 for a depth of 64.
  for (const std::size_t columns : {1, 2}) {
    const RoundingProblem p = rounding_problem(random, 1, 4, 64, columns, grid);
    const IntegerWeights made = round_weights(p.sums, p.dense, p.nearest, grid, {}, *shared_pool(1));
    for (const float s : made.scales) EXPECT_TRUE(std::isnormal(s));
    for (const float b : made.bias) EXPECT_TRUE(std::isfinite(b));
  }
  // One column whose sums are those of f32, and one input that is far larger than the others.
  RoundingProblem one = rounding_problem(random, 1, 4, 64, 1, grid);
  Gram& gram = one.sums[0];
  std::vector<float> x(65, 1);
  for (std::size_t k = 0; k < 64; ++k) x[k] = static_cast<float>(k % 7) / 7 + (k == 9 ? 1000.3F : 0);
  for (std::size_t i = 0; i < 65; ++i) {
    for (std::size_t j = 0; j < 65; ++j) gram.xx[i * 65 + j] = x[i] * x[j];
  }
  gram.set_outputs(one.dense.weights.values<float>(), one.dense.bias);
  const IntegerWeights once = round_weights(one.sums, one.dense, one.nearest, grid, {}, *shared_pool(1));
  const NewWeights real = real_values(once, one.dense.weights.shape(), grid.group);
  for (std::size_t i = 0; i < once.integers.size(); ++i)
    ASSERT_NEAR(real.weights.values<float>()[i], one.dense.weights.values<float>()[i], 0.5);
  RoundingProblem zero = rounding_problem(random, 2, 4, 64, 10, grid);
  std::fill(zero.sums[1].xx.begin(), zero.sums[1].xx.end() - 1, 0.0);
  const IntegerWeights made = round_weights(zero.sums, zero.dense, zero.nearest, grid, {}, *shared_pool(1));
  const auto second = [](const auto& all) {
    return std::vector(all.begin() + std::ssize(all) / 2, all.end());
  };
  EXPECT_EQ(second(made.integers), second(zero.nearest.integers));
  EXPECT_EQ(second(made.scales), second(zero.nearest.scales));
  EXPECT_EQ(second(made.bias), second(zero.dense.bias));
  RoundingProblem nothing = rounding_problem(random, 1, 4, 8, 10, {.group = 8});
  nothing.sums[0].count = 0;
  EXPECT_EQ(
      round_weights(nothing.sums, nothing.dense, nothing.nearest, nothing.grid, {}, *shared_pool(1)).integers,
      nothing.nearest.integers);
}

TEST(RoundWeights, ZerosStayZero) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const RoundingGrid grid{.low = -8, .high = 7, .group = 16};
  RoundingProblem p = rounding_problem(random, 1, 6, 48, 300, grid);
  const std::span<float> w = p.dense.weights.values<float>();
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (i % 3 == 0) w[i] = 0;
  }
  p.sums[0].set_outputs(w, p.dense.bias);
  p.nearest = nearest_integers(p.dense, grid);
  const IntegerWeights made = round_weights(p.sums, p.dense, p.nearest, grid, {}, *shared_pool(2));
  std::vector<int> at_zeros;
  for (std::size_t i = 0; i < w.size(); i += 3) at_zeros.push_back(made.integers[i]);
  EXPECT_THAT(at_zeros, Each(0));
}

TEST(RoundWeights, SameBitsForAnyNumberOfThreads) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const RoundingGrid grid{.low = -8, .high = 7, .group = 32};
  const RoundingProblem p = rounding_problem(random, 2, 37, 65, 200, grid);
  const IntegerWeights one = round_weights(p.sums, p.dense, p.nearest, grid, {}, *shared_pool(1));
  for (const int threads : {2, 5}) {
    const IntegerWeights more = round_weights(p.sums, p.dense, p.nearest, grid, {}, *shared_pool(threads));
    EXPECT_EQ(more.integers, one.integers);
    EXPECT_EQ(more.scales, one.scales);
    EXPECT_EQ(more.bias, one.bias);
  }
}

TEST(RoundWeights, RefusesWhatIsNotFiniteOrDoesNotFit) {
  std::mt19937 random(1);
  const RoundingGrid grid{.group = 8};
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const std::size_t at : {0, 1}) {
      RoundingProblem p = rounding_problem(random, 1, 2, 8, 20, grid);
      p.sums[0].xx[at] = bad;
      EXPECT_THAT([&] { round_weights(p.sums, p.dense, p.nearest, grid, {}, *shared_pool(1)); },
                  ThrowsMessage<Error>(HasSubstr("the columns of a layer of depth 8 are not finite")));
    }
  }
  const RoundingProblem p = rounding_problem(random, 1, 2, 8, 20, grid);
  IntegerWeights few = p.nearest;
  few.scales.pop_back();
  EXPECT_THAT([&] { round_weights(p.sums, p.dense, few, grid, {}, *shared_pool(1)); },
              ThrowsMessage<Error>(HasSubstr("16 integers and 1 scales in groups of 8 for weights")));
}

}  // namespace
}  // namespace pipit::internal
