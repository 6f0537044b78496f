// Fits for what an activation lets through, against convolutions in plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "sparsity/layer_walk.h"
#include "sparsity/refit.h"
#include "tests/sparsity/small_network.h"

namespace pipit::internal {
namespace {

constexpr std::int64_t kSide = 5, kIn = 4, kInner = 6, kOut = 4;
constexpr std::size_t kDepth = kInner * 9;

// [kSide, kSide] with a border of zeros, 3x3.
std::vector<double> convolve(std::span<const float> x, std::span<const float> w, std::span<const float> bias,
                             std::int64_t in, std::int64_t out) {
  std::vector<double> y;
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t at = 0; at < kSide * kSide; ++at) {
      double sum = bias.empty() ? 0 : static_cast<double>(bias[static_cast<std::size_t>(o)]);
      for (std::int64_t i = 0; i < in * 9; ++i) {
        const std::int64_t row = at / kSide + i % 9 / 3 - 1, column = at % kSide + i % 3 - 1;
        if (row < 0 || row >= kSide || column < 0 || column >= kSide) continue;
        sum += static_cast<double>(w[static_cast<std::size_t>(o * in * 9 + i)]) *
               x[static_cast<std::size_t>((i / 9 * kSide + row) * kSide + column)];
      }
      y.push_back(sum);
    }
  }
  return y;
}

std::vector<float> clamped(const std::vector<double>& x, const Clamp& clamp) {
  std::vector<float> y;
  for (const double value : x) y.push_back(clamp(static_cast<float>(value)));
  return y;
}

// first (ReLU), second (a clamp to [0, 1], with the image as residual where there is one), sum of all, for an output.
struct Case {
  unsigned seed = test::test_seed();
  std::mt19937 random{seed};
  bool residual;
  Clamp clamp{0, 1};
  Tensor w1 = test::random_tensor(Shape{kInner, kIn, 3, 3}, random, -0.5F, 0.5F);
  Tensor w2 = test::random_tensor(Shape{kOut, kInner, 3, 3}, random, -0.2F, 0.2F);
  std::vector<float> b1, b2;
  NewWeights changed;  // of first: what second reads is not what it was
  std::vector<Tensor> images;

  explicit Case(bool with_residual) : residual(with_residual) {
    std::uniform_real_distribution<float> uniform(-0.3F, 0.3F);
    for (std::int64_t i = 0; i < kInner; ++i) b1.push_back(uniform(random));
    for (std::int64_t i = 0; i < kOut; ++i) b2.push_back(uniform(random));
    changed = {w1.clone(), b1};
    for (float& w : changed.weights.values<float>()) w += uniform(random);
    for (int n = 0; n < 12; ++n)
      images.push_back(test::random_tensor(Shape{1, kIn, kSide, kSide}, random, -1, 1));
  }

  Graph graph() const {
    GraphBuilder builder;
    ValueId x = builder.add_input("image", TensorDesc{Shape{1, kIn, kSide, kSide}});
    const ValueId image = x;
    const auto conv = [&](const char* name, const Tensor& w, const std::vector<float>& b,
                          const Clamp& activation, ValueId added) {
      ConvAttributes a;
      a.window.kernel = {3, 3, 1};
      a.window.pad_begin = a.window.pad_end = {1, 1, 0};
      a.activation = activation;
      const ValueId weights = builder.add_constant(std::string(name) + "w", w.clone());
      const ValueId bias = builder.add_constant(
          std::string(name) + "b", Tensor::from<float>(Shape{static_cast<std::int64_t>(b.size())}, b));
      x = builder.add1(name, std::make_shared<Conv>(a), {x, weights, bias, added}, name);
    };
    conv("first", w1, b1, Clamp::relu(), kNoValue);
    conv("second", w2, b2, clamp, residual ? image : kNoValue);
    PoolAttributes average;
    average.kind = PoolKind::average;
    average.global = true;
    builder.mark_output(builder.add1("pool", std::make_shared<Pool>(average), {x}, "pool"));
    return builder.build();
  }

  // Per image the outputs of second before its activation, in a network with these first weights.
  std::vector<double> second(const Tensor& image, const NewWeights& one, const NewWeights& two) const {
    const std::vector<float> inner = clamped(
        convolve(image.values<float>(), one.weights.values<float>(), one.bias, kIn, kInner), Clamp::relu());
    std::vector<double> y = convolve(inner, two.weights.values<float>(), two.bias, kInner, kOut);
    if (residual) {
      for (std::size_t i = 0; i < y.size(); ++i) y[i] += image.values<float>()[i];
    }
    return y;
  }

  // What bound_targets() lowers, from its definition.
  double error(const NewWeights& weights) const {
    const NewWeights dense1{w1.clone(), b1}, dense2{w2.clone(), b2};
    double sum = 0;
    for (const Tensor& image : images) {
      const std::vector<double> y = second(image, dense1, dense2), p = second(image, changed, weights);
      for (std::size_t i = 0; i < y.size(); ++i) {
        double off = p[i] - y[i];
        if (y[i] <= clamp.low) off = std::max(p[i] - clamp.low, 0.0);
        if (y[i] >= clamp.high) off = std::min(p[i] - clamp.high, 0.0);
        sum += off * off;
      }
    }
    return sum;
  }

  void at_second(const std::function<void(const WalkedLayer&)>& look) const {
    std::vector<Tensor> inputs;
    for (const Tensor& image : images) inputs.push_back(image.clone());
    WalkOptions options;
    options.threads = 2;
    walk_layers(graph(), std::move(inputs), options,
                [&](const WalkedLayer& layer) -> std::optional<NewWeights> {
                  if (layer.node().name == "first") return NewWeights{changed.weights.clone(), changed.bias};
                  look(layer);
                  return std::nullopt;
                });
  }
};

double distance(const Gram& sums, const NewWeights& weights) {
  return sums.error(weights.weights.values<float>(), weights.bias) * sums.count;
}

class BoundTargets : public ::testing::TestWithParam<bool> {};

TEST_P(BoundTargets, AreFromAboveWhatTheActivationLetsThrough) {
  const Case c(GetParam());
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << c.seed);
  int looks = 0;
  c.at_second([&](const WalkedLayer& layer) {
    ++looks;
    EXPECT_EQ(layer.activation(), c.clamp);
    std::vector<Gram> sums = layer.sums();
    const std::vector<double> xx = sums[0].xx;
    std::mt19937 random = c.random;
    const auto near = [&](float by) {
      NewWeights some{c.w2.clone(), c.b2};
      std::uniform_real_distribution<float> uniform(-by, by);
      for (float& w : some.weights.values<float>()) w += uniform(random);
      return some;
    };
    for (int i = 0; i < 5; ++i) {
      const NewWeights now = near(0.3F);
      layer.bound_targets(sums, now);
      const double error = c.error(now);
      ASSERT_GT(error, 0);
      EXPECT_NEAR(distance(sums[0], now), error, 1e-4 * error);
      for (int other = 0; other < 5; ++other) {
        const NewWeights elsewhere = near(0.5F);
        EXPECT_GE(distance(sums[0], elsewhere), c.error(elsewhere) * (1 - 1e-4));
      }
    }
    EXPECT_EQ(sums[0].xx, xx);
    EXPECT_EQ(sums[0].count, 12 * kSide * kSide);
  });
  EXPECT_EQ(looks, 1);
}

TEST_P(BoundTargets, FitsInTurnsEndAtTheLeastError) {
  const Case c(GetParam());
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << c.seed);
  std::vector<std::uint8_t> removed(c.w2.values<float>().size(), 0);
  for (std::size_t i = 0; i < removed.size(); ++i) removed[i] = i % kDepth < kDepth / 2 ? 1 : 0;
  c.at_second([&](const WalkedLayer& layer) {
    std::vector<Gram> sums = layer.sums();
    ThreadPool pool(2);
    const NewWeights dense{c.w2.clone(), c.b2};
    const RefitOptions exact{1e-9, 0};
    NewWeights now = refit(sums, dense, removed, {}, true, exact, pool);
    double before = c.error(now);
    const double first = before;
    for (int turn = 0; turn < 300; ++turn) {
      layer.bound_targets(sums, now);
      now = refit(sums, dense, removed, {}, true, exact, pool);
      const double error = c.error(now);
      ASSERT_LE(error, before * (1 + 1e-5)) << turn;
      before = error;
    }
    EXPECT_LT(before, 0.97 * first);
    // Convex: no step from a minimum leads down, however long.
    std::mt19937 random = c.random;
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (const float step : {1e-3F, 1e-2F, 1e-1F}) {
      for (int i = 0; i < 20; ++i) {
        NewWeights other{now.weights.clone(), now.bias};
        for (std::size_t w = 0; w < removed.size(); ++w) {
          if (removed[w] == 0) other.weights.values<float>()[w] += step * uniform(random);
        }
        for (float& b : other.bias) b += step * uniform(random);
        EXPECT_GE(c.error(other), before * (1 - 1e-4));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Residual, BoundTargets, ::testing::Bool());

}  // namespace
}  // namespace pipit::internal
