// What layers read and should compute while a value is changed on its way through the changed network.
#include "sparsity/layer_walk.h"

#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "layers/ops/conv.h"
#include "layers/ops/pool.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

constexpr std::int64_t kWalkChannels = 5, kWalkSide = 6, kWalkRuns = 3;

// Three convolutions with ReLU, the second of which adds the image, and an average. Without biases, so that a network
// whose values are all doubled computes multiples of what it computed.
Graph walked_network(std::mt19937& random) {
  GraphBuilder graph;
  const ValueId image = graph.add_input("image", TensorDesc{Shape{1, kWalkChannels, kWalkSide, kWalkSide}});
  const auto conv = [&](const std::string& name, ValueId x, ValueId residual) {
    ConvAttributes a;
    a.window.kernel = {3, 3, 1};
    a.window.pad_begin = a.window.pad_end = {1, 1, 0};
    a.activation = Clamp::relu();
    const ValueId weights = graph.add_constant(
        name + "w", test::random_tensor(Shape{kWalkChannels, kWalkChannels, 3, 3}, random, -0.5F, 0.5F));
    return graph.add1(name, std::make_shared<Conv>(a), {x, weights, kNoValue, residual}, name);
  };
  const ValueId first = conv("first", image, kNoValue);
  const ValueId second = conv("second", first, image);
  const ValueId third = conv("third", second, kNoValue);
  PoolAttributes average;
  average.kind = PoolKind::average;
  average.global = true;
  graph.mark_output(graph.add1("pool", std::make_shared<Pool>(average), {third}, "pool"));
  return graph.build();
}

struct SeenLayer {
  std::vector<Gram> sums;
  bool untouched = false;
};

std::map<std::string, SeenLayer> walk_with(const Graph& graph, const std::vector<Tensor>& images,
                                           const ChangeValue& change) {
  std::vector<Tensor> inputs;
  for (const Tensor& image : images) inputs.push_back(image.clone());
  WalkOptions options;
  options.threads = 2;
  std::map<std::string, SeenLayer> seen;
  walk_layers(
      graph, std::move(inputs), options,
      [&](const WalkedLayer& layer) -> std::optional<NewWeights> {
        seen[layer.node().name] = {layer.sums(), layer.untouched()};
        return std::nullopt;
      },
      {}, change);
  return seen;
}

double inner_product_of(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

class LayerWalk : public ::testing::Test {
 protected:
  LayerWalk() {
    for (std::int64_t i = 0; i < kWalkRuns; ++i)
      images.push_back(test::random_tensor(Shape{1, kWalkChannels, kWalkSide, kWalkSide}, random, -1, 1));
  }

  unsigned seed = test::test_seed();
  std::mt19937 random{seed};
  Graph graph = walked_network(random);
  std::vector<Tensor> images;
};

TEST_F(LayerWalk, ChangesEveryValueOfEveryRunOnce) {
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mutex mutex;
  std::map<std::string, int> times;
  walk_with(graph, images, [&](ValueId id, Tensor& value) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(value.shape(), graph.value(id).desc.shape);
    ++times[graph.value(id).name];
  });
  for (const char* name : {"image", "first", "second", "third"}) EXPECT_EQ(times[name], kWalkRuns) << name;
  EXPECT_EQ(times["pool"], 0);  // nothing reads it
}

TEST_F(LayerWalk, LayersReadChangedValuesAndShouldComputeTheDenseOnes) {
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  const auto dense = walk_with(graph, images, [](ValueId, Tensor&) {});
  const auto doubled = walk_with(graph, images, [](ValueId, Tensor& value) {
    for (float& v : value.values<float>()) v *= 2;
  });
  // Powers of two are exact: "first" reads twice the image, "second" four times what it read (the doubled image makes
  // doubled sums, which are doubled again).
  for (const auto& [name, factor] : {std::pair{"first", 2.0}, std::pair{"second", 4.0}}) {
    SCOPED_TRACE(name);
    const Gram &before = dense.at(name).sums.at(0), &after = doubled.at(name).sums.at(0);
    ASSERT_EQ(before.depth, after.depth);
    const std::size_t k = before.depth;
    for (std::size_t i = 0; i <= k; ++i) {
      const double scale_i = i < k ? factor : 1;  // the last row is that of the bias
      for (std::size_t j = 0; j <= k; ++j)
        ASSERT_EQ(after.xx[i * (k + 1) + j], before.xx[i * (k + 1) + j] * scale_i * (j < k ? factor : 1))
            << i << ", " << j;
    }
    EXPECT_FALSE(doubled.at(name).untouched);
  }
  // The targets of "first" are those of the dense network.
  const Gram &before = dense.at("first").sums.at(0), &after = doubled.at("first").sums.at(0);
  EXPECT_EQ(after.yy, before.yy);
  // Those of "second" lack what its residual, the doubled image, has more than the image.
  EXPECT_NE(doubled.at("second").sums.at(0).yy, dense.at("second").sums.at(0).yy);
}

TEST_F(LayerWalk, LayersAreUntouchedWithoutAChange) {
  for (const auto& [name, seen] : walk_with(graph, images, {})) EXPECT_TRUE(seen.untouched) << name;
}

TEST_F(LayerWalk, LeavesTheDenseNetworkAlone) {
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  // A changed network of zeros: what layers should compute stays.
  const auto dense = walk_with(graph, images, [](ValueId, Tensor&) {});
  const auto zeros = walk_with(graph, images, [](ValueId, Tensor& value) {
    for (float& v : value.values<float>()) v = 0;
  });
  for (const char* name : {"first", "third"}) {
    SCOPED_TRACE(name);
    const Gram &before = dense.at(name).sums.at(0), &after = zeros.at(name).sums.at(0);
    EXPECT_EQ(after.yy, before.yy);
    std::vector<double> x = after.xx;
    x.back() = 0;  // columns that the bias is counted in
    EXPECT_EQ(inner_product_of(x, x), 0);
    EXPECT_GT(inner_product_of(before.xx, before.xx), 0);
  }
}

}  // namespace
}  // namespace pipit::internal
