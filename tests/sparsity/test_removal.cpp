#include "sparsity/removal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "engine/base/error.h"
#include "layers/passes/real_weights.h"
#include "layers/registry.h"
#include "sparsity/pruning_path.h"
#include "tests/sparsity/small_network.h"

namespace pipit::internal {
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
      // To half of the weights of a group: a tap of 4 channels for a panel of 16 outputs, or all 32.
      const Shape shape = real_weights(f.graph, weighted_node(f.graph, path.node)).shape;
      const std::vector<std::uint8_t> half = removed_weights(path.keep(0.5), shape, 1);
      const auto removed = static_cast<double>(std::count(half.begin(), half.end(), 1));
      EXPECT_NEAR(removed, 0.5 * static_cast<double>(half.size()), panel == 16 ? 4 * 16 / 2 : 4 * 32 / 2);
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

std::vector<std::uint8_t> zeros_of(const Graph& graph, const char* layer) {
  std::vector<std::uint8_t> zeros;
  for (const float w : real_weights(graph, weighted_node(graph, layer)).values())
    zeros.push_back(w == 0 ? 1 : 0);
  return zeros;
}

Graph pruned_to(const Graph& graph, const std::vector<Tensor>& images, const PathOptions& options,
                double share) {
  PruningMask mask;
  for (const PruningPath& path : find_paths(graph, copies(images), options).rows)
    mask.push_back(path.keep(share));
  RemovalOptions removal;
  removal.walk.threads = 2;
  return remove_and_refit(graph, copies(images), removals_of(graph, mask), removal).graph;
}

// 24 outputs in panels of 16 and 8: each panel has half of the groups, but not half of the weights.
TEST(PruningPath, CountsWeightsWhereTheLastPanelIsShort) {
  const Fixture f;
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << f.seed);
  const PruningPath path = find_paths(f.graph, copies(f.images), path_options(1, 16)).rows.at(0);
  EXPECT_EQ(path.node, "inner");
  const Shape shape{24, 16, 3, 3};
  for (const double share : {0.9, 0.75, 0.5, 0.3}) {
    const std::vector<std::uint8_t> removed = removed_weights(path.keep(share), shape, 1);
    const auto kept = static_cast<double>(std::count(removed.begin(), removed.end(), 0));
    EXPECT_NEAR(kept, share * static_cast<double>(removed.size()), 8);
    EXPECT_DOUBLE_EQ(path.kept[path.falling(share) - 1], kept / static_cast<double>(removed.size()));
  }
}

// Layers that Winograd computes lose whole channels, others (with stride 2, for example) rows.
TEST(PruningPath, WholeChannelsOfWhatWinogradComputes) {
  const Fixture f;
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << f.seed);
  PathOptions options = path_options(4, 16);
  const auto kinds = [&](RowTaps taps) {
    options.taps = taps;
    std::vector<std::pair<std::string, MaskMode>> list;
    for (const PruningPath& path : find_paths(f.graph, copies(f.images), options).rows)
      list.emplace_back(path.node, path.mask.mode);
    return list;
  };
  using Kind = std::pair<std::string, MaskMode>;
  EXPECT_THAT(kinds(RowTaps::all), ElementsAre(Kind("inner", MaskMode::input), Kind("outer", MaskMode::input),
                                               Kind("last", MaskMode::input)));
  EXPECT_THAT(kinds(RowTaps::both), ElementsAre(Kind("inner", MaskMode::k), Kind("inner", MaskMode::input),
                                                Kind("outer", MaskMode::k), Kind("outer", MaskMode::input),
                                                Kind("last", MaskMode::k), Kind("last", MaskMode::input)));
  options.taps = RowTaps::both;
  const std::vector<PruningPath> paths = find_paths(f.graph, copies(f.images), options).rows;
  for (std::size_t p = 1; p < paths.size(); p += 2) {
    const PruningPath& path = paths[p];
    const Shape shape = real_weights(f.graph, weighted_node(f.graph, path.node)).shape;
    const std::vector<std::uint8_t> removed = removed_weights(path.keep(0.5), shape, 1);
    const auto falls = static_cast<double>(std::count(removed.begin(), removed.end(), 1));
    EXPECT_NEAR(falls, 0.5 * static_cast<double>(removed.size()), 9 * 2 * 16);  // half a group
    // Four neighbouring channels with all nine taps, for each panel its own.
    for (std::size_t i = 0; i < removed.size(); i += 36) {
      for (std::size_t j = i; j < i + 36; ++j) ASSERT_EQ(removed[j], removed[i]) << path.node << " " << j;
    }
    const auto row = static_cast<std::size_t>(shape[1] * 9);
    for (std::size_t i = row; i < 16 * row; ++i) ASSERT_EQ(removed[i], removed[i % row]);
    // Taps one by one are never the worse choice of as many weights, but for what the greedy order misses.
    EXPECT_GT(path.loss_at(0.5), 0.9 * paths[p - 1].loss_at(0.5));
    EXPECT_LE(path.loss_at(0.75), path.loss_at(0.5));
  }
}

TEST(PruningPath, StridedConvolutionsLoseRows) {
  std::mt19937 random{test::test_seed()};
  GraphBuilder builder;
  const auto conv = [&](const std::string& name, ValueId x, std::int64_t stride, std::int64_t dilation) {
    ConvAttributes a;
    a.window.kernel = {3, 3, 1};
    a.window.stride = {stride, stride, 1};
    a.window.dilation = {dilation, dilation, 1};
    const ValueId w = builder.add_constant("w" + name, test::random_tensor(Shape{16, 16, 3, 3}, random));
    return builder.add1(name, std::make_shared<Conv>(a), {x, w}, name);
  };
  ValueId x = builder.add_input("x", TensorDesc{Shape{1, 16, 24, 24}});
  for (const auto& [name, stride, dilation] :
       {std::tuple{"plain", 1, 1}, {"strided", 2, 1}, {"dilated", 1, 2}}) {
    x = conv(name, x, stride, dilation);
  }
  builder.mark_output(x);
  const Graph graph = builder.build();
  EXPECT_TRUE(may_run_winograd(graph.nodes()[0]));
  EXPECT_FALSE(may_run_winograd(graph.nodes()[1]));
  EXPECT_FALSE(may_run_winograd(graph.nodes()[2]));
}

TEST(Removal, WhatWasRemovedStaysRemoved) {
  const Fixture f;
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << f.seed);
  const Graph first = pruned_to(f.graph, f.images, path_options(1, 16), 0.4);
  const auto ones = [](const std::vector<std::uint8_t>& list) {
    return std::count(list.begin(), list.end(), 1);
  };
  // To a larger share: the same zeros, no more and no fewer. To a smaller one: more. With other groups: at least.
  for (const auto& [channels, panel, share] :
       std::vector<std::tuple<int, int, double>>{{1, 16, 0.7}, {1, 16, 0.3}, {4, 0, 0.5}}) {
    const Graph again = pruned_to(first, f.images, path_options(channels, panel), share);
    for (const char* layer : {"inner", "outer", "last"}) {
      SCOPED_TRACE(testing::Message() << layer << " to " << share);
      const std::vector<std::uint8_t> before = zeros_of(first, layer), after = zeros_of(again, layer);
      ASSERT_GT(ones(before), 0.55 * static_cast<double>(before.size()));
      for (std::size_t i = 0; i < before.size(); ++i) ASSERT_LE(before[i], after[i]) << i;
      if (share == 0.7) {
        EXPECT_EQ(ones(before), ones(after));
      }
      if (share == 0.3) {
        EXPECT_NEAR(static_cast<double>(ones(after)), 0.7 * static_cast<double>(after.size()), 16);
      }
    }
  }
}

// Unchanged layers that read what was changed are fitted as well: their zeros stay too.
TEST(Removal, ZerosOfOtherLayersStay) {
  const Fixture f;
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << f.seed);
  LayerMask taps{"depthwise", MaskMode::k, 1, 1, std::vector<std::uint8_t>(16 * 9, 0)};
  for (std::size_t i = 0; i < taps.removed.size(); i += 3) taps.removed[i] = 1;
  LayerMask rows{"last", MaskMode::k, 1, 16, std::vector<std::uint8_t>(2 * 9 * 16, 0)};
  for (std::size_t i = 0; i < rows.removed.size(); i += 2) rows.removed[i] = 1;
  const Graph before = apply_mask(f.graph, {taps, rows});
  LayerMask outer{"outer", MaskMode::k, 1, 0, std::vector<std::uint8_t>(9 * 24, 0)};
  std::fill_n(outer.removed.begin(), 100, 1);
  RemovalOptions options;
  options.walk.threads = 2;
  const Remaining made = remove_and_refit(before, copies(f.images), removals_of(before, {outer}), options);
  for (const char* layer : {"depthwise", "last"}) {
    EXPECT_TRUE(made.errors.contains(layer));
    EXPECT_EQ(zeros_of(made.graph, layer), zeros_of(before, layer)) << layer;
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

TEST(Removal, MoreTurnsLeaveLessBehindTheActivation) {
  const Fixture f;
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << f.seed);
  LayerMask mask;
  for (const PruningPath& path : find_paths(f.graph, copies(f.images), path_options(1, 16)).rows) {
    if (path.node == "inner") mask = path.keep(0.4);
  }
  RemovalOptions options;
  options.walk.threads = 2;
  double before = 1;
  for (const int turns : {0, 1, 4}) {
    options.turns = turns;
    const double error =
        remove_and_refit(f.graph, copies(f.images), removals_of(f.graph, {mask}), options).errors.at("inner");
    EXPECT_LT(error, 0.98 * before) << turns;
    before = error;
  }
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
}  // namespace pipit::internal
