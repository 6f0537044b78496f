// Scales at the edge of 32-bit numbers: refused by name, or computed as the operators say.
#include <gmock/gmock.h>

#include <limits>

#include "layers/passes/pipeline.h"
#include "layers/registry.h"
#include "tests/models/onnx/onnx_run.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using test::Dims;
using test::one_node;
using test::OnnxWriter;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr float kDenormal = 1e-42F;

TEST(OnnxScales, DenormalOnesOfActivationsAreRefused) {
  OnnxWriter quantize = one_node(13, "QuantizeLinear", {"x", "s"});
  quantize.input("x", {2}).constant<float>("s", {}, {kDenormal});
  EXPECT_THAT(quantize.failure<UnsupportedError>(),
              AllOf(HasSubstr("'the_QuantizeLinear'"), HasSubstr("the scale of 'x' is 1e-42, below")));
  OnnxWriter dequantize = one_node(13, "DequantizeLinear", {"x", "s"}, {{"axis", std::int64_t{0}}});
  dequantize.input("x", {2}, test::onnx_type<std::uint8_t>()).constant<float>("s", {2}, {1, kDenormal});
  EXPECT_THAT(dequantize.failure<UnsupportedError>(),
              AllOf(HasSubstr("'the_DequantizeLinear'"), HasSubstr("1e-42")));
  OnnxWriter zero = one_node(13, "QuantizeLinear", {"x", "s"});
  zero.input("x", {2}).constant<float>("s", {}, {0});
  EXPECT_THAT(zero.failure<Error>(), HasSubstr("the scale of 'x' is 0, below"));
}

TEST(OnnxScales, DenormalOnesOfConstantsAreExact) {
  OnnxWriter model = one_node(13, "DequantizeLinear", {"w", "s"});
  model.constant<std::int8_t>("w", {2}, {5, -3}).constant<float>("s", {}, {kDenormal});
  EXPECT_THAT(test::run(model).values,
              ElementsAre(static_cast<double>(5 * kDenormal), static_cast<double>(-3 * kDenormal)));
}

TEST(OnnxScales, BiasesInUnitsThatVanishAreRefused) {
  OnnxWriter model = one_node(13, "QLinearConv", {"x", "tiny", "z", "w", "tiny", "zw", "one", "z", "b"});
  model.input("x", {1, 1, 1, 1}, test::onnx_type<std::uint8_t>())
      .constant<float>("tiny", {}, {1e-30F})
      .constant<float>("one", {}, {1})
      .constant<std::uint8_t>("z", {}, {0})
      .constant<std::int8_t>("zw", {}, {0})
      .constant<std::int8_t>("w", {1, 1, 1, 1}, {1})
      .constant<std::int32_t>("b", {1}, {1});
  EXPECT_THAT(model.failure<UnsupportedError>(),
              AllOf(HasSubstr("'the_QLinearConv'"), HasSubstr("1e-30 * 1e-30")));
}

struct Scales {
  float x = 1;
  float w = 1;
  float y = 1;
};

// u8 with zero point 1 from end to end: {0, 1, 2, 255} less 1, times x, through `op`.
OnnxWriter quantized(const std::string& op, const Scales& scales) {
  OnnxWriter model(13);
  model.input("x", {1, 1, 2, 2}, test::onnx_type<std::uint8_t>())
      .constant<float>("xs", {}, {scales.x})
      .constant<float>("ws", {}, {scales.w})
      .constant<float>("ys", {}, {scales.y})
      .constant<std::uint8_t>("z", {}, {1})
      .constant<std::int8_t>("w", {1, 1, 1, 1}, {1})
      .node("DequantizeLinear", {"x", "xs", "z"}, {"x_d"})
      .node("DequantizeLinear", {"w", "ws"}, {"w_d"});
  if (op == "Conv") model.node(op, {"x_d", "w_d"}, {"y"});
  if (op == "Add") model.node(op, {"x_d", "x_d"}, {"y"});
  if (op == "AveragePool") model.node(op, {"x_d"}, {"y"}, {{"kernel_shape", Dims{1, 1}}});
  return model.node("QuantizeLinear", {"y", "ys", "z"}, {"y_q"}).output("y_q");
}

// The integers that a session gives, and the layers and notes of its graph.
struct Answer {
  std::vector<std::uint8_t> y;
  std::vector<std::string> types;
  std::vector<std::string> notes;
};

Answer run_quantized(const OnnxWriter& model) {
  Answer answer;
  std::vector<PassReport> passes;
  const Graph graph = optimize(model.read().graph, {}, &passes);
  for (const PassReport& pass : passes)
    answer.notes.insert(answer.notes.end(), pass.notes.begin(), pass.notes.end());
  for (const Node& node : graph.nodes()) answer.types.emplace_back(node.layer->type());
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::from<std::uint8_t>(Shape{1, 1, 2, 2}, std::vector<std::uint8_t>{0, 1, 2, 255}));
  const Tensor y = std::move(test::run_graph(graph, default_registry(), inputs).at(0));
  answer.y.assign(y.values<std::uint8_t>().begin(), y.values<std::uint8_t>().end());
  return answer;
}

TEST(OnnxScales, FactorsThatAreNoNormalNumbersStayInFloatingPoint) {
  for (const char* op : {"Conv", "Add", "AveragePool"}) {
    SCOPED_TRACE(op);
    const char* integer = op[0] == 'C' ? "QConv" : op[1] == 'd' ? "QAdd" : "QAveragePool";
    EXPECT_THAT(run_quantized(quantized(op, {})).types, Contains(integer));
    // Everything but 0 saturates, and 0 times infinity is no number.
    const Answer large = run_quantized(quantized(op, {1e25F, 1, 1e-25F}));
    EXPECT_THAT(large.y, ElementsAre(0, 1, 255, 255));
    EXPECT_THAT(large.types, Not(Contains(integer)));
    EXPECT_THAT(large.notes, Contains(AllOf(HasSubstr("computes in floating point"), HasSubstr("1e-25"))));
  }
}

TEST(OnnxScales, ProductsThatVanishMatterOnlyWhereAStepIsAsSmall) {
  // No sum reaches half a step of y: zero whether or not the product is.
  const Answer far = run_quantized(quantized("Conv", {1e-30F, 1e-15F, 1}));
  EXPECT_THAT(far.types, Contains("QConv"));
  EXPECT_THAT(far.y, ElementsAre(1, 1, 1, 1));
  const Answer near = run_quantized(quantized("Conv", {1e-20F, 1e-20F, 1e-37F}));
  EXPECT_THAT(near.types, Not(Contains("QConv")));
  EXPECT_THAT(near.notes, Contains(HasSubstr("leaves the normal numbers")));
}

// One weight of 1 on u8 with zero point 1, whose integers are at most 254 from it, and a bias in units of the sums.
Answer run_with_bias(std::int32_t bias) {
  const Scales scales{1, 1, 0x1p24F};
  OnnxWriter model = quantized("Conv", scales);
  auto& nodes = *model.graph().mutable_node();
  onnx_pb::NodeProto& conv =
      *std::find_if(nodes.begin(), nodes.end(), [](const auto& node) { return node.op_type() == "Conv"; });
  conv.add_input("b_d");
  nodes.Add()->CopyFrom(nodes[0]);  // nodes may stand in any order
  auto& dequantize = *nodes.rbegin();
  dequantize.clear_input();
  for (const char* input : {"b", "xs"}) dequantize.add_input(input);
  dequantize.set_output(0, "b_d");
  return run_quantized(model.constant<std::int32_t>("b", {1}, {bias}));
}

TEST(OnnxScales, BiasesMayBeAsLargeAsTheSumsLeaveRoomFor) {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  constexpr std::int32_t kRoom = kMax - 254;
  // A little above 2^30 is what earlier versions wrote for channels of almost no weight.
  for (const std::int32_t bias : {(1 << 30) + 51, -(1 << 30) - 51, kRoom, -kRoom}) {
    SCOPED_TRACE(bias);
    const Answer answer = run_with_bias(bias);
    EXPECT_THAT(answer.types, Contains("QConv"));
    EXPECT_THAT(answer.notes, testing::IsEmpty());
    const double steps = std::nearbyint(bias * 0x1p-24) + 1;
    EXPECT_THAT(answer.y, testing::Each(steps < 0 ? 0 : steps));
  }
  for (const std::int32_t bias : {kMax, -kMax, -kMax - 1}) {
    SCOPED_TRACE(bias);
    const Answer answer = run_with_bias(bias);
    EXPECT_THAT(answer.types, Not(Contains("QConv")));
    EXPECT_THAT(answer.notes, ElementsAre(HasSubstr("sums may overflow int32")));
    EXPECT_THAT(answer.y, testing::Each(bias < 0 ? 0 : 129));
  }
}

TEST(OnnxScales, BiasesThatAreComputedStayInFloatingPoint) {
  OnnxWriter model = quantized("Conv", {1, 1, 1});
  auto& nodes = *model.graph().mutable_node();
  std::find_if(nodes.begin(), nodes.end(), [](const auto& node) {
    return node.op_type() == "Conv";
  })->add_input("b");
  std::vector<PassReport> passes;
  const Graph graph = optimize(model.input("b", {1}).read().graph, {}, &passes);
  std::vector<std::string> notes;
  for (const PassReport& pass : passes) notes.insert(notes.end(), pass.notes.begin(), pass.notes.end());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("its bias is no constant")));
  std::vector<Tensor> inputs;
  inputs.push_back(Tensor::from<std::uint8_t>(Shape{1, 1, 2, 2}, std::vector<std::uint8_t>{0, 1, 2, 200}));
  inputs.push_back(Tensor::from<float>(Shape{1}, std::vector<float>{7}));
  EXPECT_THAT(test::run_graph(graph, default_registry(), inputs).at(0).values<std::uint8_t>(),
              ElementsAre(7, 8, 9, 207));
}

}  // namespace
}  // namespace pipit::internal
