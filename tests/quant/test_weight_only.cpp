// Weights stored in 8 and 4 bits: what is stored, and what becomes of a graph.
#include "quant/weight_only.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/reshaping.h"
#include "layers/registry.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using test::random_tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<int> integers(const WeightFormat& format, const StoredWeights& stored, std::int64_t depth) {
  std::vector<int> all;
  const std::byte* data = stored.integers.view().data;
  for (std::int64_t o = 0; o < stored.integers.shape()[0]; ++o) {
    for (std::int64_t k = 0; k < depth; ++k) all.push_back(format.at(data + o * format.row_bytes(depth), k));
  }
  return all;
}

TEST(StoreWeights, EightBitsHaveOneScalePerOutput) {
  const WeightFormat format{8, 0};
  const std::vector<float> weights{1.27F, -0.635F, 0.004F, 0, 0, 0};
  const StoredWeights stored = store_weights(format, 2, weights, *shared_pool(2));
  EXPECT_THAT(integers(format, stored, 3), ElementsAre(127, -64, 0, 0, 0, 0));  // -63.5 is a tie: to even
  EXPECT_FLOAT_EQ(stored.scales.values<float>()[0], 0.01F);
  EXPECT_EQ(stored.scales.values<float>()[1], 1);
}

TEST(StoreWeights, FourBitsReachMinusEight) {
  const WeightFormat format{4, 8};
  // The second group: a scale of 1/8 represents all, one of 1/7 does not; so does -1/8 the third.
  std::vector<float> weights(24, 0.0F);
  weights[8] = -1;
  weights[9] = 0.875F;
  weights[10] = 0.125F;
  weights[16] = 1;
  weights[17] = -0.875F;
  weights[23] = 0.125F;
  const StoredWeights stored = store_weights(format, 1, weights, *shared_pool(2));
  EXPECT_THAT(stored.scales.values<float>(), ElementsAre(1, 0.125F, -0.125F));
  EXPECT_THAT(integers(format, stored, 24),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, -8, 7, 1, 0, 0, 0, 0, 0, -8, 7, 0, 0, 0, 0, 0, -1));
}

TEST(StoreWeights, ErrorsAreSmallAndIn4BitsCancelEachOther) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (const WeightFormat& format : {WeightFormat{8, 0}, WeightFormat{4, 32}, WeightFormat{4, 128}}) {
    const std::int64_t depth = 201;
    std::vector<float> weights(static_cast<std::size_t>(7 * depth));
    for (float& w : weights) w = normal(random);
    const StoredWeights stored = store_weights(format, 7, weights, *shared_pool(2));
    const std::vector<int> q = integers(format, stored, depth);
    for (std::int64_t o = 0; o < 7; ++o) {
      double error = 0, plain_error = 0, sum = 0, scale = 0;
      for (std::int64_t g = 0; g < format.groups(depth); ++g) {
        scale = stored.scales.values<float>()[static_cast<std::size_t>(o * format.groups(depth) + g)];
        const auto begin = static_cast<std::size_t>(o * depth + g * format.group(depth));
        const auto end = std::min(static_cast<std::size_t>((o + 1) * depth),
                                  begin + static_cast<std::size_t>(format.group(depth)));
        double most = 0;
        for (std::size_t i = begin; i < end; ++i) most = std::max<double>(most, std::abs(weights[i]));
        const double plain = most / (format.bits == 8 ? 127 : 7);
        for (std::size_t i = begin; i < end; ++i) {
          const double e = weights[i] - scale * q[i];
          error += e * e;
          sum += e;
          plain_error += std::pow(weights[i] - plain * std::nearbyint(weights[i] / plain), 2);
        }
      }
      // Cancelling moves a few weights that are nearly in the middle between two integers.
      EXPECT_LE(error, plain_error * (format.bits == 8 ? 1.001 : 1.3));
      // Half a step of the last group, unless that few weights cannot make up for the groups before.
      if (format.bits == 4) {
        EXPECT_LE(std::abs(sum), 2 * std::abs(scale));
      }
    }
  }
}

TEST(StoreWeights, RefusesWhatIsNotFinite) {
  for (const float bad : {NAN, std::numeric_limits<float>::infinity()}) {
    const std::vector<float> weights{1, bad};
    EXPECT_THAT(
        [&] {
          store_weights({8, 0}, 1, weights, *shared_pool(2));
        },
        ThrowsMessage<Error>(HasSubstr("a weight is")));
  }
  // What f32 cannot divide by becomes 0.
  const std::vector<float> tiny{1e-40F, -1e-38F};
  EXPECT_THAT(integers({4, 0}, store_weights({4, 0}, 1, tiny, *shared_pool(2)), 2), ElementsAre(0, 0));
}

// Every kind of node that is taken, and two that are not.
Graph small_network(std::mt19937& random, std::weak_ptr<const Tensor>* watched = nullptr) {
  GraphBuilder graph;
  int constants = 0;
  const auto constant = [&](const Shape& shape) {
    auto tensor = std::make_shared<const Tensor>(random_tensor(shape, random, -0.3F, 0.3F));
    if (watched != nullptr) *watched = tensor;
    return graph.add_constant("c" + std::to_string(++constants), std::move(tensor));
  };
  const auto conv = [&](const std::string& name, ValueId x, const Shape& weights, std::int64_t stride,
                        std::int64_t groups, ValueId residual) {
    ConvAttributes a;
    a.groups = groups;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      a.window.kernel[axis] = weights[2];
      a.window.stride[axis] = stride;
      a.window.pad_begin[axis] = a.window.pad_end[axis] = weights[2] / 2;
    }
    a.activation = Clamp::relu();
    return graph.add1(name, std::make_shared<Conv>(a),
                      {x, constant(weights), constant(Shape{weights[0]}), residual}, name);
  };
  ValueId x = graph.add_input("image", TensorDesc{Shape{2, 8, 6, 6}});
  x = conv("three", x, Shape{16, 8, 3, 3}, 1, 1, kNoValue);
  x = conv("grouped", x, Shape{16, 4, 1, 1}, 1, 4, kNoValue);
  const ValueId y = conv("one", x, Shape{16, 16, 1, 1}, 1, 1, kNoValue);
  x = conv("added", y, Shape{16, 16, 1, 1}, 1, 1, x);
  x = conv("strided", x, Shape{40, 16, 1, 1}, 3, 1, kNoValue);
  x = graph.add1("rows", std::make_shared<Reshape>(ReshapeAttributes{Shape{2, 160}}), {x}, "rows");
  GemmAttributes gemm;
  gemm.transpose_b = true;
  gemm.alpha = 0.5F;
  gemm.beta = 2;
  x = graph.add1("gemm", std::make_shared<Gemm>(gemm), {x, constant(Shape{30, 160}), constant(Shape{1, 30})},
                 "gemm");
  x = graph.add1("matmul", std::make_shared<MatMul>(), {x, constant(Shape{30, 10})}, "matmul");
  graph.mark_output(x);
  return graph.build();
}

TEST(StoreWeightsOnly, StoresFewInputsInEightBitsAndConvolutionsInSmallGroups) {
  const auto format = [](const WeightOnlyOptions& options, bool convolution, std::int64_t inputs) {
    const WeightFormat f = weight_format(options, convolution, inputs);
    return std::pair{f.bits, f.group_size};
  };
  EXPECT_EQ(format({8}, true, 1000), (std::pair{8, std::int64_t{0}}));
  EXPECT_EQ(format({4}, true, 64), (std::pair{8, std::int64_t{0}}));
  EXPECT_EQ(format({4}, true, 65), (std::pair{4, std::int64_t{32}}));
  EXPECT_EQ(format({4}, false, 65), (std::pair{4, std::int64_t{128}}));
  EXPECT_EQ(format({4, 64}, false, 1000), (std::pair{4, std::int64_t{64}}));
  EXPECT_EQ(format({4, 64}, true, 1000), (std::pair{4, std::int64_t{64}}));
}

TEST(StoreWeightsOnly, AnswersLikeTheFloatGraph) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const Graph graph = small_network(random);
  const auto inputs = test::random_inputs(graph, random);
  const auto real = test::run_graph(assign_layouts(graph).graph, default_registry(), inputs);
  // Rounding of 2^-7 and 2^-3 of the largest weight, uniform, averages out over sums and adds up over seven layers.
  for (const auto& [options, most] :
       {std::pair{WeightOnlyOptions{8}, 0.02}, std::pair{WeightOnlyOptions{4, 32}, 0.4}}) {
    const Rewritten stored = store_weights_only(graph, options, *shared_pool(2));
    EXPECT_EQ(stored.changes, 5);
    std::vector<std::string> types;
    for (const Node& node : stored.graph.nodes()) types.emplace_back(node.layer->type());
    EXPECT_THAT(types,
                ElementsAre("Conv", "Conv", "WConv", "WConv", "WConv", "Reshape", "WLinear", "WLinear"));
    // Only the Gemm has more than 64 inputs.
    const auto bits = [&](std::size_t node) {
      return dynamic_cast<const WLinear&>(*stored.graph.nodes()[node].layer).attributes().format.bits;
    };
    EXPECT_EQ(bits(6), options.bits);
    EXPECT_EQ(bits(7), 8);
    const auto y = test::run_graph(assign_layouts(stored.graph).graph, default_registry(), inputs);
    const double error = test::relative_error(y[0].values<float>(), real[0].values<float>());
    EXPECT_LT(error, most);
    EXPECT_GT(error, 0);
  }
}

TEST(StoreWeightsOnly, FreesTheWeightsOfAGraphHandedOver) {
  std::mt19937 random(1);
  std::weak_ptr<const Tensor> last;
  Graph graph = small_network(random, &last);
  ASSERT_FALSE(last.expired());
  const Rewritten stored = store_weights_only(std::move(graph), {8, 0}, *shared_pool(2));
  EXPECT_TRUE(last.expired());
}

}  // namespace
}  // namespace pipit::internal
