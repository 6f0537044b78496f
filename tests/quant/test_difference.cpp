// What diff and tune measure: differences of tensors, of layers, and models in mixed precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compile/mixed_model.h"
#include "engine/base/error.h"
#include "layers/ops/qconv.h"
#include "quant/layer_difference.h"
#include "tests/quant/small_resnet.h"

namespace pipit::internal {
namespace {

using test::calibrated;
using test::random_tensor;
using test::small_resnet;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(TensorDifference, OfValuesByHand) {
  TensorDifference d;
  // Channels (1, 2), (3, 4) of image 0, (5, 6), (-7, 8) of image 1; differences 0, 1, 0, 0, 0, 0, -2, 0.
  d.add(Shape{2, 2, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, -7, 8},
        std::vector<float>{1, 3, 3, 4, 5, 6, -9, 8}, 6);
  EXPECT_EQ(d.count(), 8U);
  EXPECT_EQ(d.signal(), 204);
  EXPECT_EQ(d.noise(), 5);
  EXPECT_EQ(d.max_error(), 2);
  EXPECT_DOUBLE_EQ(d.clipped(), 0.25);  // -7 and 8
  EXPECT_DOUBLE_EQ(d.sqnr_db(), 10 * std::log10(204.0 / 5));
  EXPECT_DOUBLE_EQ(d.cosine(), 220 / std::sqrt(204.0 * 241));
  EXPECT_EQ(d.worst_channel().index, 1);
  EXPECT_DOUBLE_EQ(d.worst_channel().noise_share, 0.8);
  EXPECT_DOUBLE_EQ(d.worst_channel().sqnr_db, 10 * std::log10(138.0 / 4));
  d.add(Shape{1, 2, 1}, std::vector<float>{0, 0}, std::vector<float>{3, 0}, kInfinity);
  EXPECT_EQ(d.noise(), 14);
  EXPECT_EQ(d.worst_channel().index, 0);
}

TEST(TensorDifference, EqualZeroAndEmptyTensors) {
  TensorDifference d;
  EXPECT_EQ(d.worst_channel().noise_share, 0);
  d.add(Shape{3}, std::vector<float>(3, 0.0F), std::vector<float>(3, 0.0F), kInfinity);
  EXPECT_EQ(d.cosine(), 1);
  EXPECT_EQ(d.sqnr_db(), std::numeric_limits<double>::infinity());
  d.add(Shape{3}, std::vector<float>(3, 0.0F), std::vector<float>(3, 1.0F), kInfinity);
  EXPECT_EQ(d.cosine(), 0);
  EXPECT_EQ(d.sqnr_db(), -std::numeric_limits<double>::infinity());
  d.add(Shape{0}, {}, {}, kInfinity);
  EXPECT_EQ(d.count(), 6U);
  EXPECT_THROW(d.add(Shape{2, 2}, std::vector<float>(4), std::vector<float>(4), 1), Error);
  EXPECT_THROW(d.add(Shape{3}, std::vector<float>(3), std::vector<float>(2), 1), Error);
}

struct Mixed {
  explicit Mixed(unsigned seed) : random(seed), graph(small_resnet(random)) {
    options.planning.threads = 1;
    model = std::make_unique<MixedModel>(graph, calibrated(graph, random, 8), options);
  }
  std::mt19937 random;
  Graph graph;
  CompileOptions options;
  std::unique_ptr<MixedModel> model;
};

std::vector<std::string> in_int8(const ExecutionPlan& plan) {
  std::vector<std::string> names;
  for (const Node& node : plan.graph().nodes()) {
    if (node.layer->type() == QConv::kType) names.push_back(node.name);
  }
  return names;
}

TEST(MixedModel, QuantizesWhatIsAskedFor) {
  const Mixed mixed(test::test_seed());
  const std::vector<std::string> all{"stem", "block1", "block2", "fc"};
  EXPECT_EQ(mixed.model->layers(), all);
  EXPECT_EQ(in_int8(*mixed.model->in_int8()), all);
  EXPECT_THAT(in_int8(*mixed.model->in_fp32()), testing::IsEmpty());
  EXPECT_THAT(in_int8(*mixed.model->in_int8({"stem", "fc"})), testing::ElementsAre("block1", "block2"));
  EXPECT_THAT(in_int8(*mixed.model->alone_in_int8("block2")), testing::ElementsAre("block2"));
}

TEST(MixedModel, RefusesAPlanThatLeavesNothing) {
  std::mt19937 random(test::test_seed());
  const Graph graph = small_resnet(random);
  QuantizationPlan plan = calibrated(graph, random, 2);
  for (const char* node : {"stem", "block1", "block2", "fc"}) plan.keep.push_back({node, "fp32"});
  EXPECT_THAT([&] { MixedModel(graph, plan, CompileOptions{}); },
              ThrowsMessage<Error>(HasSubstr("nothing would compute in INT8")));
}

TEST(MixedModel, KeepsLayersInBf16OnTheCpu) {
  std::mt19937 random(test::test_seed());
  const Graph graph = small_resnet(random);
  const QuantizationPlan plan = calibrated(graph, random, 2);
  CompileOptions options;
  options.planning.threads = 1;
  const MixedModel mixed(graph, plan, options, Precision::bf16);
  const auto count = [](const ExecutionPlan& made, DType type) {
    return std::ranges::count_if(made.graph().values(), [&](const Value& v) { return v.desc.dtype == type; });
  };
  EXPECT_FALSE(mixed.floating_point_is_fp32());
  EXPECT_GT(count(*mixed.in_int8({"block1"}), DType::bf16), 0);
  EXPECT_GT(count(*mixed.in_int8({"block1"}), DType::u8), 0);
  EXPECT_EQ(count(*mixed.alone_in_int8("block1"), DType::bf16), 0) << "no noise but that of the layer";
  const auto end = mixed.in_floating_point();
  EXPECT_EQ(count(*end, DType::u8), 0);
  const Tensor image = random_tensor(Shape{1, 3, 12, 12}, random);
  const ConstTensorView view = image.view();
  Session last(end), whole(mixed.in_bf16());
  const Tensor y = to_layout(last.run({&view, 1})[0], Layout::row_major);
  const Tensor expected = to_layout(whole.run({&view, 1})[0], Layout::row_major);
  EXPECT_THAT(y.values<float>(), testing::ElementsAreArray(expected.values<float>()));
}

TEST(MixedModel, WhatIsKeptInHalvesIsFp32OnTheCpu) {
  std::mt19937 random(test::test_seed());
  const Graph graph = small_resnet(random);
  const QuantizationPlan plan = calibrated(graph, random, 2);
  CompileOptions options;
  options.planning.threads = 1;
  const MixedModel halves(graph, plan, options, Precision::fp16);
  EXPECT_TRUE(halves.floating_point_is_fp32());
  EXPECT_EQ(halves.in_floating_point()->options().precision, Precision::fp32);
  const auto mixed = halves.in_int8({"stem"});
  for (const Value& value : mixed->graph().values()) EXPECT_NE(value.desc.dtype, DType::f16) << value.name;
  EXPECT_THAT([&] { MixedModel(graph, plan, options, Precision::w8); },
              ThrowsMessage<Error>(HasSubstr("fp32, fp16 or bf16, not w8")));
  options.planning.device = DeviceKind::cuda;  // what is kept where: no plan is built
  EXPECT_FALSE(MixedModel(graph, plan, options, Precision::fp16).floating_point_is_fp32());
  EXPECT_TRUE(MixedModel(graph, plan, options).floating_point_is_fp32());
}

// What layers() says of `graph`, whose values are bytes or halves.
std::vector<LayerDifference> differences(const Mixed& mixed, Graph graph, Precision precision,
                                         const std::vector<Tensor>& images) {
  PlanOptions planning = mixed.options.planning;
  planning.keep_every_value = true;
  planning.precision = precision;
  const auto fp32 = mixed.model->in_fp32(true);
  const auto coarse = ExecutionPlan::build(std::move(graph), default_registry(), planning);
  LayerComparison comparison(*fp32, *coarse);
  Session reference(fp32), other(coarse);
  reference.set_observer(&comparison.reference());
  other.set_observer(&comparison.quantized());
  for (const Tensor& image : images) {
    const ConstTensorView view = image.view();
    comparison.begin(1);
    reference.run({&view, 1});
    other.run({&view, 1});
  }
  return comparison.layers();
}

// A GPU stores what the CPU has in unsigned bytes in signed ones, and some of the rest in halves.
TEST(LayerComparison, ReadsWhatAGpuStores) {
  Mixed mixed(test::test_seed());
  std::vector<Tensor> images;
  for (int i = 0; i < 3; ++i) images.push_back(random_tensor(Shape{1, 3, 12, 12}, mixed.random));
  const auto in_bytes = [&](DType activations) {
    return differences(
        mixed,
        assign_layouts(quantize_graph(mixed.graph, mixed.model->plan(), {.activations = activations}).graph)
            .graph,
        Precision::int8, images);
  };
  const std::vector<LayerDifference> u8 = in_bytes(DType::u8);
  const std::vector<LayerDifference> i8 = in_bytes(DType::i8);
  ASSERT_EQ(u8.size(), i8.size());
  for (std::size_t l = 0; l < u8.size(); ++l) {
    SCOPED_TRACE(u8[l].node);
    EXPECT_GT(u8[l].difference.noise(), 0);
    EXPECT_EQ(u8[l].difference.noise(), i8[l].difference.noise());
    EXPECT_EQ(u8[l].difference.clipped(), i8[l].difference.clipped());
    EXPECT_EQ(u8[l].precision, Precision::int8);
    EXPECT_EQ(i8[l].precision, Precision::int8);
  }
  // As compile() does it for a GPU.
  QuantizationPlan scales = mixed.model->plan();
  scales.keep = {{"block1", "fp16"}};
  const Graph quantized =
      assign_layouts(quantize_graph(mixed.graph, scales, {.activations = DType::i8}).graph).graph;
  for (const LayerDifference& layer :
       differences(mixed, assign_precision(quantized, Precision::int8, DeviceKind::cuda, {}).graph,
                   Precision::int8, images)) {
    SCOPED_TRACE(layer.node);
    EXPECT_EQ(layer.precision, layer.node == "block1" ? Precision::fp16 : Precision::int8);
    EXPECT_EQ(layer.output8, layer.node != "block1" && layer.node != "fc");
    EXPECT_GT(layer.difference.noise(), 0);
    EXPECT_GT(layer.difference.cosine(), 0.98);
  }
  const Graph layouts = assign_layouts(mixed.graph).graph;
  for (const LayerDifference& layer :
       differences(mixed, assign_precision(layouts, Precision::fp16, DeviceKind::cpu, {}).graph,
                   Precision::fp16, images)) {
    SCOPED_TRACE(layer.node);
    EXPECT_EQ(layer.precision, Precision::fp16);
    EXPECT_FALSE(layer.output8);
    EXPECT_GT(layer.difference.noise(), 0);
    // 11 bits: 2^-12 of a value and of a weight, 72 dB each, in six layers.
    EXPECT_GT(layer.difference.sqnr_db(), 50);
  }
}

TEST(LayerComparison, AgreesWithTheOutputsThemselves) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  Mixed mixed(seed);
  for (const std::set<std::string>& floating : {std::set<std::string>{}, {"block1"}, {"stem", "fc"}}) {
    const auto fp32 = mixed.model->in_fp32(true);
    const auto int8 = mixed.model->in_int8(floating, true);
    LayerComparison comparison(*fp32, *int8);
    Session reference(fp32), quantized(int8);
    reference.set_observer(&comparison.reference());
    quantized.set_observer(&comparison.quantized());
    TensorDifference scores;
    for (int i = 0; i < 3; ++i) {
      const Tensor image = random_tensor(Shape{1, 3, 12, 12}, mixed.random);
      const ConstTensorView view = image.view();
      comparison.begin(1);
      const Tensor real = to_layout(reference.run({&view, 1})[0], Layout::row_major);
      const Tensor coarse = to_layout(quantized.run({&view, 1})[0], Layout::row_major);
      scores.add(real.shape(), real.values<float>(), coarse.values<float>(), kInfinity);
    }
    std::vector<std::string> names;
    for (const LayerDifference& layer : comparison.layers()) {
      SCOPED_TRACE(layer.node);
      names.push_back(layer.node);
      EXPECT_EQ(layer.difference.count(), static_cast<std::uint64_t>(3 * layer.shape.elements()));
      const bool integers = layer.precision == Precision::int8;
      const bool last_in_int8 = layer.node == "fc" || (layer.node == "gap" && floating.contains("fc"));
      EXPECT_EQ(layer.output8, integers && !last_in_int8);
      // 7 bits and a sign a tensor, five layers.
      EXPECT_GT(layer.difference.cosine(), 0.98);
      // One in twenty, and three standard deviations for that many values.
      EXPECT_LT(layer.difference.clipped(),
                0.05 + 3 * std::sqrt(0.05 / static_cast<double>(layer.difference.count())));
    }
    EXPECT_EQ(names, (std::vector<std::string>{"stem", "max", "block1", "block2", "gap", "fc"}));
    const LayerDifference& last = comparison.layers().back();
    EXPECT_EQ(last.difference.noise(), scores.noise());
    EXPECT_EQ(last.difference.max_error(), scores.max_error());
    EXPECT_EQ(comparison.layers()[0].precision == Precision::int8, !floating.contains("stem"));
    EXPECT_EQ(last.precision == Precision::int8, !floating.contains("fc"));
    // What is computed in fp32 from the same input is the same.
    if (floating.contains("stem")) {
      EXPECT_EQ(comparison.layers()[0].difference.noise(), 0);
    }
  }
}

TEST(LayerComparison, CountsOnlyTheImagesOfABatch) {
  const Mixed mixed(test::test_seed());
  const auto fp32 = mixed.model->in_fp32(true);
  LayerComparison comparison(*fp32, *mixed.model->in_int8({}, true));
  EXPECT_THROW(comparison.begin(0), Error);
  EXPECT_THROW(comparison.begin(2), Error);
  EXPECT_THROW(LayerComparison(*mixed.model->in_fp32(), *fp32), Error);
}

}  // namespace
}  // namespace pipit::internal
