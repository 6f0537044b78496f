#include "sparsity/refit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "layers/evaluate.h"
#include "layers/ops/conv.h"
#include "layers/passes/real_weights.h"
#include "layers/registry.h"
#include "sparsity/columns.h"
#include "sparsity/eliminate.h"
#include "sparsity/pruning_path.h"
#include "sparsity/removal.h"
#include "tests/sparsity/small_network.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using ::testing::Each;

// Sums of random columns whose channels are correlated, and what weights compute from them.
struct Problem {
  std::size_t depth, outputs, rows;
  std::vector<float> x, weights, bias;
  Gram gram;
};

Problem random_problem(std::mt19937& random, std::size_t depth, std::size_t outputs, std::size_t rows,
                       int threads = 1) {
  Problem p{depth, outputs, rows, {}, {}, {}, Gram(depth, outputs)};
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < outputs * depth; ++i) p.weights.push_back(normal(random));
  for (std::size_t o = 0; o < outputs; ++o) p.bias.push_back(normal(random));
  ThreadPool pool(threads);
  GramBuilder builder(p.gram, pool, GramBuilder::Sums::all);
  for (std::size_t r = 0; r < rows; ++r) {
    const GramBuilder::Rows row = builder.next(1);
    const float common = normal(random);
    for (std::size_t k = 0; k < depth; ++k) row.x[k] = normal(random) + common + 0.5F;
    p.x.insert(p.x.end(), row.x, row.x + depth);
    for (std::size_t o = 0; o < outputs; ++o) {
      row.y[o] = p.bias[o];
      for (std::size_t k = 0; k < depth; ++k) row.y[o] += p.weights[o * depth + k] * row.x[k];
    }
  }
  builder.finish();
  return p;
}

double squared_error(const Problem& p, std::span<const float> weights, std::span<const float> bias) {
  double error = 0;
  for (std::size_t r = 0; r < p.rows; ++r) {
    for (std::size_t o = 0; o < p.outputs; ++o) {
      double difference = static_cast<double>(p.bias[o]) - bias[o];
      for (std::size_t k = 0; k < p.depth; ++k)
        difference += (static_cast<double>(p.weights[o * p.depth + k]) - weights[o * p.depth + k]) *
                      p.x[r * p.depth + k];
      error += difference * difference;
    }
  }
  return error / static_cast<double>(p.rows);
}

NewWeights as_weights(const Problem& p) {
  return {
      Tensor::from<float>(
          Shape{static_cast<std::int64_t>(p.outputs), static_cast<std::int64_t>(p.depth), 1, 1}, p.weights),
      p.bias};
}

TEST(Refit, ColumnsThatDoNotVaryAreFittedToo) {
  std::mt19937 random(3);
  ThreadPool pool(1);
  Problem p = random_problem(random, 80, 10, 1);
  const NewWeights dense = as_weights(p);
  std::vector<std::uint8_t> removed(p.weights.size(), 0);
  for (std::size_t i = 0; i < removed.size(); i += 2) removed[i] = 1;
  const NewWeights fitted = refit({p.gram}, dense, removed, {}, true, {}, pool);
  double scale = 0;
  for (const float y : p.bias) scale += static_cast<double>(y) * y;
  for (std::size_t i = 0; i < p.weights.size(); ++i)
    scale += static_cast<double>(p.weights[i]) * p.weights[i];
  EXPECT_LT(squared_error(p, fitted.weights.values<float>(), fitted.bias), 1e-6 * scale);
  EXPECT_THAT(covariance_inverse(p.gram, {}, pool), Each(::testing::Lt(1e30)));
}

TEST(Gram, SumsWhatIsAdded) {
  std::mt19937 random(test::test_seed());
  const Problem p = random_problem(random, 5, 3, 1100);  // three chunks
  EXPECT_EQ(p.gram.count, 1100);
  double xx = 0, xy = 0;
  for (std::size_t r = 0; r < p.rows; ++r) {
    xx += static_cast<double>(p.x[r * 5 + 4]) * p.x[r * 5 + 1];
    double y = p.bias[2];
    for (std::size_t k = 0; k < 5; ++k) y += static_cast<double>(p.weights[2 * 5 + k]) * p.x[r * 5 + k];
    xy += y * p.x[r * 5 + 1];
  }
  EXPECT_NEAR(p.gram.xx[1 * 6 + 4], xx, 1e-4 * 1100);
  EXPECT_EQ(p.gram.xx[1 * 6 + 4], p.gram.xx[4 * 6 + 1]);
  EXPECT_EQ(p.gram.xx[5 * 6 + 5], 1100);
  EXPECT_NEAR(p.gram.xy[1 * 3 + 2], xy, 1e-4 * 1100);
  EXPECT_NEAR(p.gram.relative_error(p.weights, p.bias), 0, 1e-6);
}

TEST(Gram, SameBitsForAnyNumberOfThreads) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 one(seed), three(seed);
  const Gram a = random_problem(one, 300, 7, 1000, 1).gram;
  const Gram b = random_problem(three, 300, 7, 1000, 3).gram;
  EXPECT_EQ(a.xx, b.xx);
  EXPECT_EQ(a.xy, b.xy);
  EXPECT_EQ(a.yy, b.yy);
}

TEST(Gram, MergesAndKnowsItsOutputs) {
  std::mt19937 random(test::test_seed());
  Problem p = random_problem(random, 6, 2, 400);
  Gram twice = p.gram;
  twice.merge(p.gram);
  EXPECT_EQ(twice.count, 800);
  EXPECT_EQ(twice.xx[3], 2 * p.gram.xx[3]);
  EXPECT_THROW(twice.merge(Gram(5, 2)), Error);
  Gram made = p.gram;
  made.set_outputs(p.weights, p.bias);
  for (std::size_t i = 0; i < made.xy.size(); ++i) EXPECT_NEAR(made.xy[i], p.gram.xy[i], 0.02);
  for (std::size_t i = 0; i < made.yy.size(); ++i) EXPECT_NEAR(made.yy[i], p.gram.yy[i], 0.05);
}

TEST(Refit, IsTheLeastSquaresSolution) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const Problem p = random_problem(random, 9, 4, 3000);
  std::vector<std::uint8_t> removed(9 * 4, 0);
  for (std::size_t i = 0; i < removed.size(); ++i) removed[i] = random() % 2;
  const std::vector<std::uint8_t> dead{0, 0, 1, 0};
  ThreadPool pool(2);
  const NewWeights made = refit({p.gram}, as_weights(p), removed, dead, true, {0, 0}, pool);
  const std::span<const float> w = made.weights.values<float>();
  for (std::size_t i = 0; i < removed.size(); ++i) {
    EXPECT_TRUE(removed[i] == 0 || w[i] == 0) << i;
  }
  EXPECT_THAT(w.subspan(18, 9), Each(0));
  EXPECT_EQ(made.bias[2], 0);
  // No step from the solution in any direction that is free makes the error smaller.
  const double best = squared_error(p, w, made.bias);
  std::vector<float> masked = p.weights;
  for (std::size_t i = 0; i < masked.size(); ++i) masked[i] = removed[i] != 0 || i / 9 == 2 ? 0 : masked[i];
  EXPECT_LT(best, squared_error(p, masked, made.bias));
  for (const float step : {-0.02F, 0.02F}) {
    for (std::size_t i = 0; i < removed.size(); ++i) {
      if (removed[i] != 0 || i / 9 == 2) continue;
      std::vector<float> moved(w.begin(), w.end());
      moved[i] += step;
      EXPECT_GT(squared_error(p, moved, made.bias), best);
    }
    std::vector<float> moved = made.bias;
    moved[1] += step;
    EXPECT_GT(squared_error(p, w, moved), best);
  }
}

TEST(Refit, LeavesDenseWeightsAndStaysNearThemWithoutColumns) {
  std::mt19937 random(test::test_seed());
  ThreadPool pool(1);
  const Problem many = random_problem(random, 6, 2, 2000);
  const NewWeights same = refit({many.gram}, as_weights(many), {}, {}, true, {}, pool);
  for (std::size_t i = 0; i < many.weights.size(); ++i)
    EXPECT_NEAR(same.weights.values<float>()[i], many.weights[i], 2e-3);
  const Problem few = random_problem(random, 40, 2, 10);  // singular without the ridge
  const NewWeights near = refit({few.gram}, as_weights(few), {}, {}, true, {}, pool);
  for (std::size_t i = 0; i < few.weights.size(); ++i)
    EXPECT_NEAR(near.weights.values<float>()[i], few.weights[i], 1e-2);
}

// Removing one group by second order costs what refitting the others without a ridge leaves.
TEST(Eliminate, LossIsThatOfTheRefit) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const Problem p = random_problem(random, 8, 3, 4000);
  const std::vector<std::vector<int>> groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  EliminationOptions options;
  options.least = 0.25;
  options.ridge = 1e-9;
  ThreadPool pool(2);
  const std::vector<double> inverse = covariance_inverse(p.gram, options, pool);
  const std::vector<double> weights(p.weights.begin(), p.weights.end());
  const Elimination path = eliminate(p.gram, inverse, weights, groups, options);
  ASSERT_EQ(path.order.size(), 3U);
  std::vector<std::uint8_t> removed(24, 0);
  double loss = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    for (const int k : groups[static_cast<std::size_t>(path.order[i])]) {
      for (std::size_t o = 0; o < 3; ++o) removed[o * 8 + static_cast<std::size_t>(k)] = 1;
    }
    loss += path.loss[i];
    const NewWeights made = refit({p.gram}, as_weights(p), removed, {}, true, {0, 0}, pool);
    EXPECT_NEAR(squared_error(p, made.weights.values<float>(), made.bias), loss, 1e-3 * loss);
  }
  // The first to fall is the best one to fall.
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<std::uint8_t> one(24, 0);
    for (const int k : groups[g]) {
      for (std::size_t o = 0; o < 3; ++o) one[o * 8 + static_cast<std::size_t>(k)] = 1;
    }
    const NewWeights made = refit({p.gram}, as_weights(p), one, {}, true, {0, 0}, pool);
    EXPECT_GE(squared_error(p, made.weights.values<float>(), made.bias), path.loss[0] * 0.999);
  }
}

// What two layers read falls from both: losses are those of both refits, one of them counted three times.
TEST(Eliminate, LayersThatShareGroupsLoseTogether) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const Problem a = random_problem(random, 8, 3, 4000), b = random_problem(random, 4, 2, 4000);
  const std::vector<std::vector<int>> in_a{{0, 1}, {2, 3}, {4, 5}, {6, 7}}, in_b{{3}, {2}, {1}, {0}};
  EliminationOptions options;
  options.least = 0.25;
  options.ridge = 1e-9;
  ThreadPool pool(2);
  const auto part = [&](const Problem& p, const std::vector<std::vector<int>>& groups, double scale) {
    return EliminationPart{covariance_inverse(p.gram, options, pool),
                           mean_squares(p.gram),
                           {p.weights.begin(), p.weights.end()},
                           groups,
                           scale};
  };
  const auto refitted = [&](const Problem& p, const std::vector<std::vector<int>>& groups,
                            std::span<const int> fallen) {
    std::vector<std::uint8_t> removed(p.weights.size(), 0);
    for (const int g : fallen) {
      for (const int k : groups[static_cast<std::size_t>(g)]) {
        for (auto i = static_cast<std::size_t>(k); i < removed.size(); i += p.gram.depth) removed[i] = 1;
      }
    }
    const NewWeights made = refit({p.gram}, as_weights(p), removed, {}, true, {0, 0}, pool);
    return squared_error(p, made.weights.values<float>(), made.bias);
  };
  const auto both = [&](std::span<const int> fallen) {
    return refitted(a, in_a, fallen) + 3 * refitted(b, in_b, fallen);
  };
  const Elimination path = eliminate({part(a, in_a, 1), part(b, in_b, 3)}, options);
  ASSERT_EQ(path.order.size(), 3U);
  double loss = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    loss += path.loss[i];
    EXPECT_NEAR(both(std::span(path.order).first(i + 1)), loss, 1e-3 * loss);
  }
  for (int g = 0; g < 4; ++g) EXPECT_GE(both(std::span(&g, 1)), path.loss[0] * 0.999);
  EXPECT_THROW(eliminate({part(a, in_a, 1), part(b, {{0}}, 1)}, options), Error);
}

TEST(Eliminate, OtherImportancesAndMergedPanels) {
  Gram gram(3, 1);
  gram.count = 1;
  gram.xx = {1, 0, 0, 0, 0, 100, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
  const std::vector<std::vector<int>> groups{{0}, {1}, {2}};
  EliminationOptions options;
  options.importance = Importance::l2;
  EXPECT_THAT(eliminate(gram, {}, {2, 1, 3}, groups, options).order, testing::ElementsAre(1, 0));
  options.importance = Importance::activation;
  EXPECT_THAT(eliminate(gram, {}, {2, 1, 3}, groups, options).order, testing::ElementsAre(0, 2));
  const std::vector<PanelStep> merged = merge_paths({{{4, 2}, {1, 5}}, {{0, 1}, {2, 3}}});
  std::vector<int> order;
  for (const PanelStep& step : merged) order.push_back(10 * step.panel + step.group);
  EXPECT_THAT(order, testing::ElementsAre(4, 10, 11, 2));
}

// The product of weights and columns is the convolution: strides, dilation, padding, groups.
TEST(Columns, AreThoseOfTheConvolution) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", {Shape{2, 6, 9, 7}});
  ConvAttributes a;
  a.groups = 2;
  a.window.kernel = {3, 2, 1};
  a.window.stride = {2, 1, 1};
  a.window.dilation = {1, 2, 1};
  a.window.pad_begin = {1, 0, 0};
  a.window.pad_end = {0, 2, 0};
  const ValueId w = builder.add_constant("w", test::random_tensor(Shape{4, 3, 3, 2}, random));
  builder.mark_output(builder.add1("conv", std::make_shared<Conv>(a), {x, w}));
  const Graph graph = builder.build();
  const std::vector<Tensor> inputs = test::random_inputs(graph, random);
  const std::vector<Tensor> outputs = test::run_graph(graph, default_registry(), inputs, kReference);
  const Columns columns(graph, graph.nodes()[0]);
  const std::span<const float> weights = graph.value(graph.nodes()[0].inputs[1]).constant->values<float>();
  ASSERT_EQ(columns.positions() * 4, outputs[0].desc().elements());
  std::vector<float> column(columns.depth());
  for (std::int64_t p = 0; p < columns.positions(); ++p) {
    for (std::size_t o = 0; o < 4; ++o) {
      columns.read(inputs[0].values<float>().data(), p, o / columns.outputs(), column.data());
      double sum = 0;
      for (std::size_t k = 0; k < column.size(); ++k)
        sum += static_cast<double>(column[k]) * weights[o * column.size() + k];
      ASSERT_NEAR(sum, outputs[0].values<float>()[columns.offset(p, o)], 1e-4);
    }
  }
}

TEST(Columns, Samples) {
  const std::vector<std::int64_t> some = sample_positions(100, 10, 7, 3);
  EXPECT_EQ(some, sample_positions(100, 10, 7, 3));
  EXPECT_NE(some, sample_positions(100, 10, 7, 4));
  EXPECT_NE(some, sample_positions(100, 10, 8, 3));
  ASSERT_EQ(some.size(), 10U);
  EXPECT_TRUE(std::is_sorted(some.begin(), some.end()));
  EXPECT_EQ(std::adjacent_find(some.begin(), some.end()), some.end());
  EXPECT_EQ(sample_positions(5, 9, 1, 1).size(), 5U);
}

// Images are sampled alike in whatever batches they come.
TEST(Sampling, IsTheSameForEveryBatch) {
  std::vector<std::int64_t> all;
  for (const std::int64_t batch : {1, 2, 4}) {
    std::vector<std::int64_t> positions;
    for (std::int64_t run = 0; run < 8 / batch; ++run) {
      for (const std::int64_t p :
           sample_positions_of_each(50 * batch, batch, 6, 3, static_cast<std::uint64_t>(run)))
        positions.push_back(run * batch * 50 + p);
    }
    if (batch == 1) all = positions;
    EXPECT_EQ(positions, all) << "batch " << batch;
    EXPECT_EQ(positions.size(), 8U * 6U);
  }
}

}  // namespace
}  // namespace pipit::internal
