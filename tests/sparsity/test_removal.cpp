#include "sparsity/removal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "layers/passes/real_weights.h"
#include "layers/registry.h"
#include "sparsity/pruning_path.h"
#include "tests/sparsity/small_network.h"

namespace pipit {
namespace {

using ::testing::ElementsAre;

std::vector<Tensor> copies(const std::vector<Tensor>& images) {
  std::vector<Tensor> copy;
  for (const Tensor& image : images) copy.push_back(image.clone());
  return copy;
}

// Mean squared difference of the outputs over the mean square of the dense ones.
double output_error(const Graph& graph, const Graph& dense, const std::vector<Tensor>& images) {
  double difference = 0, square = 0;
  for (const Tensor& image : images) {
    std::vector<Tensor> one;
    one.push_back(image.clone());
    const std::vector<Tensor> a = test::run_graph(graph, default_registry(), one);
    const std::vector<Tensor> b = test::run_graph(dense, default_registry(), one);
    for (std::size_t i = 0; i < a[0].values<float>().size(); ++i) {
      const double d = static_cast<double>(a[0].values<float>()[i]) - b[0].values<float>()[i];
      difference += d * d;
      square += static_cast<double>(b[0].values<float>()[i]) * b[0].values<float>()[i];
    }
  }
  return difference / square;
}

PathOptions path_options(std::int64_t channels, std::int64_t panel) {
  PathOptions options;
  options.walk.threads = 2;
  options.channels = channels;
  options.panel = panel;
  return options;
}

struct Fixture {
  unsigned seed = test::test_seed();
  std::mt19937 random{seed};
  Graph graph = test::small_network(random);
  std::vector<Tensor> images = test::smooth_images(random, 40);
  std::vector<Tensor> unseen = test::smooth_images(random, 20);
};

TEST(PruningPath, LeavesFirstLastAndDepthwiseLayersAlone) {
  const Fixture f;
  EXPECT_THAT(prunable_layers(f.graph), ElementsAre("inner", "outer", "last"));
}

TEST(PruningPath, KeepsTheShareThatIsAsked) {
  const Fixture f;
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << f.seed);
  for (const std::int64_t panel : {0, 16}) {
    const std::vector<PruningPath> paths = find_paths(f.graph, copies(f.images), path_options(4, panel)).rows;
    ASSERT_EQ(paths.size(), 3U);
    for (const PruningPath& path : paths) {
      const LayerMask half = path.keep(0.5);
      const auto removed = std::count(half.removed.begin(), half.removed.end(), 1);
      EXPECT_NEAR(static_cast<double>(removed), 0.5 * static_cast<double>(half.removed.size()), 0.5);
      EXPECT_EQ(path.loss_at(1), 0);
      EXPECT_LE(path.loss_at(0.75), path.loss_at(0.5));
      EXPECT_LE(path.loss_at(0.5), path.loss_at(0.25));
      EXPECT_THROW(path.keep(0), Error);
      EXPECT_THROW(path.keep(1.5), Error);
      std::vector<int> order = path.order;
      std::sort(order.begin(), order.end());
      EXPECT_EQ(std::adjacent_find(order.begin(), order.end()), order.end());
    }
    EXPECT_EQ(paths[0].mask.panel, panel);  // 24 outputs
    EXPECT_EQ(paths[1].mask.panel, 0);      // 16 outputs are one panel
  }
}

TEST(Removal, RefitRecoversMostOfTheError) {
  const Fixture f;
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << f.seed);
  PruningMask mask;
  for (const PruningPath& path : find_paths(f.graph, copies(f.images), path_options(1, 16)).rows)
    mask.push_back(path.keep(0.6));
  RemovalOptions options;
  options.walk.threads = 2;
  const Removals removals = removals_of(f.graph, mask);
  const Remaining with = remove_and_refit(f.graph, copies(f.images), removals, options);
  options.refits = false;
  const Remaining without = remove_and_refit(f.graph, copies(f.images), removals, options);
  EXPECT_LT(output_error(with.graph, f.graph, f.unseen),
            0.5 * output_error(without.graph, f.graph, f.unseen));
  EXPECT_LT(output_error(apply_mask(f.graph, mask), without.graph, f.unseen), 1e-10);
  for (const char* layer : {"inner", "outer", "last"}) {
    EXPECT_LT(with.errors.at(layer), without.errors.at(layer)) << layer;
    const RealWeights weights = real_weights(with.graph, weighted_node(with.graph, layer));
    const std::vector<std::uint8_t>& removed = removals.at(layer).weights;
    for (std::size_t i = 0; i < removed.size(); ++i) {
      ASSERT_TRUE(removed[i] == 0 || weights.values()[i] == 0) << i;
    }
  }
  EXPECT_TRUE(with.errors.contains("depthwise")) << "refitted: it reads what was changed";
  EXPECT_FALSE(with.errors.contains("stem"));
}

TEST(Removal, SameBitsForAnyNumberOfThreads) {
  const Fixture f;
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << f.seed);
  std::vector<std::vector<float>> weights;
  for (const int threads : {1, 2}) {
    PathOptions options = path_options(2, 16);
    options.walk.threads = threads;
    PruningMask mask;
    for (const PruningPath& path : find_paths(f.graph, copies(f.images), options).rows)
      mask.push_back(path.keep(0.5));
    RemovalOptions removal;
    removal.walk.threads = threads;
    const Remaining made = remove_and_refit(f.graph, copies(f.images), removals_of(f.graph, mask), removal);
    const RealWeights last = real_weights(made.graph, weighted_node(made.graph, "last"));
    weights.emplace_back(last.values().begin(), last.values().end());
  }
  EXPECT_EQ(weights[0], weights[1]);
}

// A residual block whose inner layer is gone: what reads the sum is fitted, and dead outputs stay dead.
TEST(Removal, OfChannels) {
  const Fixture f;
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << f.seed);
  LayerMask outputs{"inner", MaskMode::block, 8, 0, {0, 1, 0}};
  LayerMask inputs{"outer", MaskMode::input, 1, 0, std::vector<std::uint8_t>(24, 0)};
  std::fill_n(inputs.removed.begin() + 8, 8, 1);
  RemovalOptions options;
  options.walk.threads = 2;
  const Remaining made =
      remove_and_refit(f.graph, copies(f.images), removals_of(f.graph, {outputs, inputs}), options);
  const RealWeights inner = real_weights(made.graph, weighted_node(made.graph, "inner"));
  for (std::size_t i = 8 * 16 * 9; i < 16 * 16 * 9; ++i) ASSERT_EQ(inner.values()[i], 0);
  for (std::size_t o = 8; o < 16; ++o) EXPECT_EQ(inner.bias[o], 0);
  EXPECT_LT(output_error(made.graph, f.graph, f.unseen),
            output_error(apply_mask(f.graph, {outputs, inputs}), f.graph, f.unseen));
}

TEST(Removal, RefusesWhatIsNotThere) {
  const Fixture f;
  EXPECT_THROW(remove_and_refit(f.graph, {}, {}, {}), Error);
  EXPECT_THROW(remove_and_refit(f.graph, copies(f.images), {{"other", {}}}, {}), Error);
}

}  // namespace
}  // namespace pipit
