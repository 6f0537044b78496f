#include "sparsity/branches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "layers/ops/unary.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"
#include "layers/registry.h"
#include "sparsity/replace_weights.h"
#include "tests/sparsity/small_network.h"

namespace pipit::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// Convolutions of 3x3 and what lies between them.
struct Builder {
  explicit Builder(std::mt19937& r) : random(r) {}

  ValueId conv(const std::string& name, ValueId x, Clamp activation, ValueId residual = kNoValue,
               std::int64_t channels = 8) {
    ConvAttributes a;
    a.window.kernel = {3, 3, 1};
    a.window.pad_begin = a.window.pad_end = {1, 1, 0};
    a.activation = activation;
    const ValueId w = graph.add_constant(
        name + ".w",
        test::random_tensor(Shape{channels, graph.value(x).desc.shape[1], 3, 3}, random, -0.3F, 0.3F));
    const ValueId b =
        graph.add_constant(name + ".b", test::random_tensor(Shape{channels}, random, -0.3F, 0.3F));
    return graph.add1(name, std::make_shared<Conv>(a), {x, w, b, residual}, name);
  }

  std::mt19937& random;
  GraphBuilder graph;
};

std::vector<std::string> names_of(const Graph& graph, const std::vector<Branch>& branches) {
  std::vector<std::string> names;
  for (const Branch& branch : branches)
    names.push_back(graph.nodes()[static_cast<std::size_t>(branch.last)].name);
  return names;
}

std::vector<std::string> nodes_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.push_back(node.name);
  return names;
}

// The reference twin: the same graph with zeros where removals_of() marks.
Graph zeroed(const Graph& graph, const std::vector<Branch>& branches) {
  std::map<std::string, NewWeights> replaced;
  for (const auto& [name, removal] : removals_of(graph, branches)) {
    NewWeights weights = weights_of(graph, weighted_node(graph, name));
    const std::span<float> values = weights.weights.values<float>();
    EXPECT_EQ(removal.weights.size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (removal.weights[i] != 0) values[i] = 0;
    }
    for (std::size_t o = 0; o < weights.bias.size(); ++o) {
      if (removal.outputs[o] != 0) weights.bias[o] = 0;
    }
    replaced.emplace(name, std::move(weights));
  }
  return replace_weights(graph, std::move(replaced));
}

void expect_same(const Graph& a, const Graph& b, std::mt19937& random) {
  for (int i = 0; i < 3; ++i) {
    std::vector<Tensor> inputs;
    inputs.push_back(test::random_tensor(a.value(a.inputs()[0]).desc.shape, random));
    const std::vector<Tensor> x = test::run_graph(a, default_registry(), inputs);
    const std::vector<Tensor> y = test::run_graph(b, default_registry(), inputs);
    ASSERT_EQ(x.size(), y.size());
    for (std::size_t o = 0; o < x.size(); ++o) {
      const std::span<const float> u = x[o].values<float>(), v = y[o].values<float>();
      ASSERT_EQ(u.size(), v.size());
      // Layers may run on other kernels where fewer of them are left: sums of at most 16 * 9 products below 1.
      for (std::size_t j = 0; j < u.size(); ++j)
        ASSERT_NEAR(u[j], v[j], 1e-4F * (1 + std::abs(u[j]))) << "output " << o << ", value " << j;
    }
  }
}

TEST(Branches, TheBranchOfAResidualBlockIsFoundWithAllOfItsNodes) {
  std::mt19937 random(test::test_seed());
  const Graph graph = test::small_network(random);
  const std::vector<Branch> branches = find_branches(graph);
  ASSERT_THAT(names_of(graph, branches), ElementsAre("outer"));
  EXPECT_THAT(branches[0].nodes, ElementsAre(1, 2));
}

TEST(Branches, WithoutABranchAModelComputesWhatItDoesWithZeros) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const Graph graph = test::small_network(random);
  const Graph without = remove_branches(graph, {"outer"});
  EXPECT_THAT(nodes_of(without), ElementsAre("stem", "depthwise", "last", "gap", "flat", "fc"));
  expect_same(without, zeroed(graph, find_branches(graph)), random);
}

TEST(Branches, ChainsOfThemCanGoAndActivationsThatTheyApplyStay) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Builder b(random);
  ValueId x = b.graph.add_input("image", TensorDesc{Shape{1, 3, 7, 5}});
  x = b.conv("stem", x, {});  // no activation: a relu after it has to stay
  for (int i = 1; i <= 3; ++i) {
    const std::string n = std::to_string(i);
    const ValueId inner = b.conv("a" + n, x, {0, 6}, kNoValue, 16);
    x = b.conv("b" + n, inner, i == 3 ? Clamp{-0.5F, 0.5F} : Clamp::relu(), x);
  }
  x = b.conv("end", x, {});
  b.graph.mark_output(x);
  const Graph graph = b.graph.build();
  const std::vector<Branch> all = find_branches(graph);
  ASSERT_THAT(names_of(graph, all), ElementsAre("b1", "b2", "b3"));
  for (int set = 1; set < 8; ++set) {
    SCOPED_TRACE("branches " + std::to_string(set));
    std::set<std::string> last;
    std::vector<Branch> some;
    for (int i = 0; i < 3; ++i) {
      if ((set >> i & 1) == 0) continue;
      last.insert("b" + std::to_string(i + 1));
      some.push_back(all[static_cast<std::size_t>(i)]);
    }
    const Graph without = remove_branches(graph, last);
    EXPECT_THAT(nodes_of(without), Not(::testing::Contains("a" + last.begin()->substr(1))));
    expect_same(without, zeroed(graph, some), random);
  }
}

TEST(Branches, WhatOthersReadStays) {
  std::mt19937 random(test::test_seed());
  Builder b(random);
  ValueId x = b.graph.add_input("image", TensorDesc{Shape{1, 8, 6, 6}});
  x = b.conv("stem", x, Clamp::relu());
  const ValueId inner = b.conv("a", x, Clamp::relu());
  const ValueId sum = b.conv("b", inner, Clamp::relu(), x);
  const ValueId side = b.conv("side", inner, {});  // reads the branch
  const ValueId shortcut = b.conv("shortcut", side, {}, sum);
  const ValueId next = b.conv("c", shortcut, {});
  b.graph.mark_output(b.conv("d", next, {}, shortcut));  // is an output
  const Graph graph = b.graph.build();
  EXPECT_THAT(find_branches(graph), IsEmpty());
  EXPECT_THROW(remove_branches(graph, {"b"}), Error);
  EXPECT_THROW(remove_branches(graph, {"nothing"}), Error);
}

TEST(Branches, ABranchWithinABranchGoesWithIt) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Builder b(random);
  ValueId x = b.graph.add_input("image", TensorDesc{Shape{1, 8, 6, 6}});
  const ValueId stem = b.conv("stem", x, Clamp::relu());
  x = b.conv("a", stem, Clamp::relu());
  x = b.conv("c", b.conv("b", x, Clamp::relu()), Clamp::relu(), x);
  x = b.conv("d", x, {}, stem);
  b.graph.mark_output(b.conv("end", x, {}));
  const Graph graph = b.graph.build();
  const std::vector<Branch> all = find_branches(graph);
  ASSERT_THAT(names_of(graph, all), ElementsAre("c", "d"));
  expect_same(remove_branches(graph, {"c"}), zeroed(graph, {all[0]}), random);
  const Graph without = remove_branches(graph, {"c", "d"});
  EXPECT_THAT(nodes_of(without), ElementsAre("stem", "end"));
  expect_same(without, zeroed(graph, all), random);
}

TEST(Branches, LayersBehindMakeUpForOne) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const Graph graph = test::small_network(random);
  const std::vector<Tensor> images = test::smooth_images(random, 60),
                            unseen = test::smooth_images(random, 20);
  const auto without = [&](bool refits) {
    std::vector<Tensor> inputs;
    for (const Tensor& image : images) inputs.push_back(image.clone());
    RemovalOptions options;
    options.walk.threads = 2;
    options.refits = refits;
    Remaining remaining =
        remove_and_refit(graph, std::move(inputs), removals_of(graph, find_branches(graph)), options);
    EXPECT_FALSE(remaining.errors.contains("outer"));
    EXPECT_TRUE(remaining.errors.contains("fc"));
    return remove_branches(remaining.graph, {"outer"});
  };
  const Graph fitted = without(true), left = without(false);
  expect_same(left, remove_branches(graph, {"outer"}), random);
  double error = 0, unfitted = 0;
  for (const Tensor& image : unseen) {
    std::vector<Tensor> one;
    one.push_back(image.clone());
    const std::vector<Tensor> dense = test::run_graph(graph, default_registry(), one);
    const std::vector<Tensor> x = test::run_graph(fitted, default_registry(), one);
    const std::vector<Tensor> y = test::run_graph(left, default_registry(), one);
    error += test::relative_error(x[0].values<float>(), dense[0].values<float>());
    unfitted += test::relative_error(y[0].values<float>(), dense[0].values<float>());
  }
  EXPECT_LT(error, 0.5 * unfitted);
}

}  // namespace
}  // namespace pipit::internal
