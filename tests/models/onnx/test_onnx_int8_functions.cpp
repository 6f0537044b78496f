// Functions and products of quantized models: what becomes of DequantizeLinear, Sigmoid, QuantizeLinear and the like,
// and that files say the same when they are written and read again.
#include <gmock/gmock.h>

#include <cstring>

#include "layers/passes/pipeline.h"
#include "layers/registry.h"
#include "models/onnx/write/writer.h"
#include "tests/models/onnx/onnx_run.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using test::OnnxWriter;
using testing::ElementsAre;

std::vector<std::string> types(const Graph& graph) {
  std::vector<std::string> all;
  for (const Node& node : graph.nodes()) all.emplace_back(node.layer->type());
  return all;
}

// "to": the value quantized with this scale and zero point 100, and dequantized again.
void round_trip(OnnxWriter& model, const std::string& from, const std::string& to, float scale) {
  model.constant<float>(to + "_s", {}, {scale})
      .constant<std::uint8_t>(to + "_z", {}, {100})
      .node("QuantizeLinear", {from, to + "_s", to + "_z"}, {to + "_q"})
      .node("DequantizeLinear", {to + "_q", to + "_s", to + "_z"}, {to});
}

// sigmoid(gate) * hard_swish(x), every result rounded.
OnnxWriter gated() {
  OnnxWriter model(13);
  model.input("x", {2, 3, 4, 5}).input("gate", {2, 3, 1, 1});
  round_trip(model, "x", "a", 0.05F);
  round_trip(model, "gate", "g", 0.03F);
  model.node("HardSigmoid", {"a"}, {"h"}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}})
      .node("Mul", {"h", "a"}, {"s"});
  round_trip(model, "s", "b", 0.04F);
  model.node("Sigmoid", {"g"}, {"t"});
  round_trip(model, "t", "c", 1.0F / 256);
  model.node("Mul", {"c", "b"}, {"m"});
  round_trip(model, "m", "y", 0.04F);
  return model.output("y");
}

std::vector<Tensor> random_inputs() {
  std::mt19937 random(test::test_seed());
  std::vector<Tensor> inputs;
  inputs.push_back(test::random_tensor(Shape{2, 3, 4, 5}, random, -4, 6));
  inputs.push_back(test::random_tensor(Shape{2, 3, 1, 1}, random, -4, 4));
  return inputs;
}

TEST(OnnxInt8Functions, BecomeTablesAndProductsOfIntegers) {
  const Graph graph = fuse(gated().read().graph);
  const Graph fused = adapt_quantized(graph, DeviceKind::cpu).graph;
  EXPECT_THAT(types(fused), ElementsAre("Quantize", "Quantize", "QUnary", "QUnary", "QMul", "Dequantize"));
  const std::vector<Tensor> inputs = random_inputs();
  const auto expected = test::run_graph(assign_layouts(graph).graph, default_registry(), inputs);
  const auto got = test::run_graph(assign_layouts(fused).graph, default_registry(), inputs);
  // One step of y beside it where the product lies near the middle of two.
  for (std::size_t i = 0; i < got[0].values<float>().size(); ++i)
    EXPECT_NEAR(got[0].values<float>()[i], expected[0].values<float>()[i], 0.0401F) << i;
  EXPECT_LT(test::relative_error(got[0].values<float>(), expected[0].values<float>()), 0.01);
}

TEST(OnnxInt8Functions, ComeBackAsTheyWere) {
  const Graph fused = adapt_quantized(fuse(gated().read().graph), DeviceKind::cpu).graph;
  const std::string bytes = write_onnx(fused);
  const Graph again =
      adapt_quantized(fuse(parse_onnx(std::as_bytes(std::span(bytes)), {}).graph), DeviceKind::cpu).graph;
  EXPECT_EQ(types(again), types(fused));
  const std::vector<Tensor> inputs = random_inputs();
  const auto a = test::run_graph(assign_layouts(fused).graph, default_registry(), inputs);
  const auto b = test::run_graph(assign_layouts(again).graph, default_registry(), inputs);
  EXPECT_EQ(std::memcmp(a[0].view().data, b[0].view().data, a[0].desc().bytes()), 0);
}

TEST(OnnxInt8Functions, StayAsTheyAreWhereSomethingElseReadsThem) {
  OnnxWriter model(13);
  model.input("x", {2, 3});
  round_trip(model, "x", "a", 0.05F);
  model.node("Sigmoid", {"a"}, {"s"});
  round_trip(model, "s", "y", 1.0F / 256);
  const Graph fused =
      adapt_quantized(fuse(model.output("y").output("s").read().graph), DeviceKind::cpu).graph;
  EXPECT_THAT(types(fused), ElementsAre("Quantize", "Dequantize", "Unary", "Quantize", "Dequantize"));
}

}  // namespace
}  // namespace pipit::internal
