// What a GPU's graphs go through in INT8: the image that the first convolution quantizes itself, and which values
// become halves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/unary.h"
#include "layers/passes/pipeline.h"
#include "layers/passes/rewriter.h"
#include "layers/registry.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

constexpr Quantization kQ{0.05F, 0, DType::i8};
constexpr Quantization kReals{};

Tensor bytes(const Shape& shape, std::mt19937& random) {
  Tensor tensor(TensorDesc{shape, DType::i8});
  for (std::int8_t& v : tensor.values<std::int8_t>())
    v = static_cast<std::int8_t>(std::uniform_int_distribution<int>(-127, 127)(random));
  return tensor;
}

LayerPtr pointwise_qconv(const Quantization& y) {
  QConvAttributes a;
  a.x = kQ, a.y = y;
  a.weight_scales = {0.01F};
  return std::make_shared<QConv>(a);
}

// image -> quantized convolution -> [f32] a convolution in floating point -> quantized -> quantized convolution whose
// f32 result a Relu turns into the output.
Graph mixed(bool image_is_output, unsigned seed) {
  std::mt19937 random(seed);
  GraphBuilder b;
  const ValueId image = b.add_input("image", TensorDesc{{2, 3, 6, 5}});
  const ValueId q = b.add1("quantize", std::make_shared<Quantize>(kQ), {image});
  const ValueId w1 = b.add_constant("w1", bytes({8, 3, 1, 1}, random));
  const ValueId real = b.add1("first", pointwise_qconv(kReals), {q, w1});
  const ValueId w2 = b.add_constant("w2", test::random_tensor({8, 8, 1, 1}, random));
  const ValueId conv = b.add1("kept", std::make_shared<Conv>(ConvAttributes{}), {real, w2});
  const ValueId again = b.add1("again", std::make_shared<Quantize>(kQ), {conv});
  const ValueId w3 = b.add_constant("w3", bytes({4, 8, 1, 1}, random));
  const ValueId last = b.add1("last", pointwise_qconv(kReals), {again, w3});
  b.mark_output(b.add1("relu", std::make_shared<Unary>(UnaryAttributes{UnaryKind::relu}), {last}), "y");
  if (image_is_output) b.mark_output(q, "integers");
  return b.build();
}

int count(const Graph& graph, std::string_view type) {
  int found = 0;
  for (const Node& node : graph.nodes()) found += node.layer->type() == type ? 1 : 0;
  return found;
}

DType type_of(const Graph& graph, std::string_view node_name) {
  for (const Node& node : graph.nodes()) {
    if (node.name == node_name) return graph.value(node.outputs[0]).desc.dtype;
  }
  throw Error("no such node");
}

TEST(FuseQuantizedImage, GivesTheSameBits) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE("PIPIT_TEST_SEED=" + std::to_string(seed));
  const Graph before = mixed(false, seed);
  const Rewritten after = assign_precision(before, Precision::fp32, DeviceKind::cuda);
  EXPECT_EQ(after.changes, 1);
  EXPECT_EQ(count(after.graph, "Quantize"), 1);
  std::mt19937 random(seed + 1);
  const std::vector<Tensor> inputs = test::random_inputs(before, random);
  const auto expected = test::run_graph(before, default_registry(), inputs, kReference);
  const auto got = test::run_graph(after.graph, default_registry(), inputs, kReference);
  EXPECT_EQ(std::memcmp(got[0].view().data, expected[0].view().data, expected[0].desc().bytes()), 0);
  // Kernels that do not read f32 leave it to the reference.
  const auto chosen = test::run_graph(after.graph, default_registry(), inputs);
  EXPECT_LT(test::relative_error(chosen[0].values<float>(), expected[0].values<float>()), 1e-5);
}

TEST(FuseQuantizedImage, LeavesIntegersThatOthersRead) {
  const Rewritten after = assign_precision(mixed(true, 1), Precision::fp32, DeviceKind::cuda);
  EXPECT_EQ(after.changes, 0);
  EXPECT_EQ(count(after.graph, "Quantize"), 2);
}

TEST(AssignPrecisionInInt8, HalvesAreWhereFloatingPointProductsAre) {
  const Graph graph = mixed(false, 1);
  const Rewritten cpu = assign_precision(graph, Precision::int8, DeviceKind::cpu);
  EXPECT_EQ(type_of(cpu.graph, "kept"), DType::f32);
  const Rewritten gpu = assign_precision(graph, Precision::int8, DeviceKind::cuda);
  EXPECT_EQ(type_of(gpu.graph, "first"), DType::f16);
  EXPECT_EQ(type_of(gpu.graph, "kept"), DType::f16);
  EXPECT_EQ(type_of(gpu.graph, "last"), DType::f32) << "no product in floating point follows";
  EXPECT_EQ(type_of(gpu.graph, "relu"), DType::f32);
  EXPECT_EQ(count(gpu.graph, "Cast"), 0) << "Quantize reads the f32 image itself";
  const Rewritten wide = assign_precision(graph, Precision::int8, DeviceKind::cuda, {.f32 = {"kept"}});
  EXPECT_EQ(type_of(wide.graph, "first"), DType::f32);
  EXPECT_EQ(type_of(wide.graph, "kept"), DType::f32);
}

TEST(AssignPrecisionInInt8, TheCpuStoresBfloat16WhereThePlanKeepsIt) {
  const Graph graph = mixed(false, 1);
  const Rewritten cpu = assign_precision(graph, Precision::int8, DeviceKind::cpu, {.bf16 = {"kept"}});
  EXPECT_EQ(type_of(cpu.graph, "first"), DType::bf16) << "connected with it";
  EXPECT_EQ(type_of(cpu.graph, "kept"), DType::bf16);
  EXPECT_EQ(type_of(cpu.graph, "last"), DType::f32) << "no product in floating point follows";
  const Rewritten other = assign_precision(graph, Precision::int8, DeviceKind::cpu, {.bf16 = {"last"}});
  EXPECT_EQ(type_of(other.graph, "kept"), DType::f32);
  EXPECT_EQ(type_of(other.graph, "last"), DType::f32);
  const Rewritten both =
      assign_precision(graph, Precision::int8, DeviceKind::cpu, {.f32 = {"kept"}, .bf16 = {"kept"}});
  EXPECT_EQ(type_of(both.graph, "kept"), DType::f32) << "f32 has its whole region";
}

TEST(AssignPrecisionInInt8, AGpuStoresBfloat16WhereThePlanKeepsIt) {
  const Graph graph = mixed(false, 1);
  const Rewritten gpu = assign_precision(graph, Precision::int8, DeviceKind::cuda, {.bf16 = {"kept"}});
  EXPECT_EQ(type_of(gpu.graph, "first"), DType::bf16) << "connected with it";
  EXPECT_EQ(type_of(gpu.graph, "kept"), DType::bf16);
  EXPECT_EQ(type_of(gpu.graph, "last"), DType::f32) << "no product in floating point follows";
  // Without a product there is nothing to gain, whatever is asked for.
  const Rewritten other = assign_precision(graph, Precision::int8, DeviceKind::cuda, {.bf16 = {"last"}});
  EXPECT_EQ(type_of(other.graph, "kept"), DType::f16);
  EXPECT_EQ(type_of(other.graph, "last"), DType::f32);
  const Rewritten both =
      assign_precision(graph, Precision::int8, DeviceKind::cuda, {.f32 = {"kept"}, .bf16 = {"kept"}});
  EXPECT_EQ(type_of(both.graph, "kept"), DType::f32) << "f32 has its whole region";
}

// A Relu whose values are reshaped and quantized.
Graph reshaped(bool read_twice) {
  GraphBuilder b;
  const ValueId x = b.add_input("x", TensorDesc{{2, 3, 4, 5}});
  const ValueId relu = b.add1("relu", std::make_shared<Unary>(UnaryAttributes{UnaryKind::relu}), {x});
  const ValueId rows = b.add1("rows", std::make_shared<Reshape>(ReshapeAttributes{Shape{6, 20}}), {relu});
  b.mark_output(b.add1("quantize", std::make_shared<Quantize>(kQ), {rows}), "y");
  if (read_twice) b.mark_output(rows, "rows");
  return b.build();
}

TEST(RaiseQuantize, GoesInFrontOfAReshape) {
  const Graph before = reshaped(false);
  const Rewritten after = adapt_quantized(before, DeviceKind::cuda);
  EXPECT_EQ(after.changes, 1);
  ASSERT_EQ(after.graph.nodes().size(), 3U);
  EXPECT_EQ(after.graph.nodes()[1].name, "quantize");
  EXPECT_EQ(after.graph.nodes()[2].name, "rows");
  EXPECT_EQ(type_of(after.graph, "rows"), DType::i8);
  std::mt19937 random(test::test_seed());
  const std::vector<Tensor> inputs = test::random_inputs(before, random);
  const auto expected = test::run_graph(before, default_registry(), inputs);
  const auto got = test::run_graph(after.graph, default_registry(), inputs);
  ASSERT_EQ(got[0].desc().str(), expected[0].desc().str());
  EXPECT_EQ(std::memcmp(got[0].view().data, expected[0].view().data, expected[0].desc().bytes()), 0);
}

// Convolution, average, Flatten, and Quantize where the graph is quantized.
Graph averaged(bool quantized) {
  GraphBuilder b;
  std::mt19937 random(test::test_seed());
  const ValueId x = b.add_input("x", TensorDesc{{2, 3, 4, 5}});
  const ValueId w = b.add_constant("w", test::random_tensor({8, 3, 1, 1}, random));
  const ValueId conv = b.add1("conv", std::make_shared<Conv>(ConvAttributes{}), {x, w});
  const ValueId average =
      b.add1("average", std::make_shared<Pool>(PoolAttributes{PoolKind::average, {}, true}), {conv});
  const ValueId rows =
      b.add1("flatten", std::make_shared<Reshape>(ReshapeAttributes{Shape{2, 8}}), {average});
  b.mark_output(quantized ? b.add1("quantize", std::make_shared<Quantize>(kQ), {rows}) : rows, "y");
  return b.build();
}

void expect_average_in_front_of_quantize(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (layer_if<Quantize>(node) == nullptr) continue;
    const auto producer =
        std::ranges::find_if(graph.nodes(), [&](const Node& n) { return n.outputs[0] == node.inputs[0]; });
    ASSERT_NE(producer, graph.nodes().end());
    EXPECT_EQ(producer->name, "average");
  }
  EXPECT_EQ(count(graph, "Quantize"), 1);
}

// In a file that is quantized, and by a plan.
TEST(RaiseQuantize, StandsRightBehindAnAverageOnAGpu) {
  expect_average_in_front_of_quantize(optimize(averaged(true), {.device = DeviceKind::cuda}));
  const auto quantize = [](const Graph&, PassTarget&) { return Rewritten{averaged(true), 1}; };
  expect_average_in_front_of_quantize(
      optimize(averaged(false), {.device = DeviceKind::cuda, .quantize = quantize}));
}

TEST(RaiseQuantize, LeavesWhatOthersRead) {
  EXPECT_EQ(adapt_quantized(reshaped(true), DeviceKind::cuda).changes, 0);
}

}  // namespace
}  // namespace pipit::internal
