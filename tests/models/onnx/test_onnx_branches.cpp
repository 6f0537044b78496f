// If: branches that are chosen while reading, nested ones, and conditions that are computed at run time.
#include <gmock/gmock.h>

#include "tests/models/onnx/onnx_run.h"

namespace pipit::internal {
namespace {

using test::OnnxWriter;
using test::set_node;
using test::tensor;
using test::TensorPtr;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kBool = 9;
constexpr int kGraphAttribute = 5;

onnx_pb::GraphProto& add_branch(onnx_pb::NodeProto& node, const std::string& name) {
  auto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(kGraphAttribute);
  return *attribute.mutable_g();
}

// A branch of one node that reads `input` from around it.
void add_branch(onnx_pb::NodeProto& node, const std::string& name, const std::string& op,
                const std::string& input) {
  auto& graph = add_branch(node, name);
  set_node(*graph.add_node(), op, {input}, {"result"});
  graph.add_output()->set_name("result");
}

onnx_pb::NodeProto& last_node(OnnxWriter& model) {
  return *model.graph().mutable_node(model.graph().node_size() - 1);
}

OnnxWriter rank_is_two(const std::string& then_op, const std::string& else_op) {
  OnnxWriter model;
  model.input("x", {2, 2})
      .node("Shape", {"x"}, {"shape"})
      .node("Size", {"shape"}, {"rank"})
      .constant<std::int64_t>("two", {}, {2})
      .node("Equal", {"rank", "two"}, {"is_matrix"})
      .node("Neg", {"x"}, {"minus"})
      .node("If", {"is_matrix"}, {"y"})
      .output("y");
  add_branch(last_node(model), "then_branch", then_op, "minus");
  add_branch(last_node(model), "else_branch", else_op, "x");
  return model;
}

TensorPtr condition(bool value) {
  Tensor tensor{TensorDesc{Shape{}, DType::boolean}};
  tensor.values<bool>()[0] = value;
  return std::make_shared<const Tensor>(std::move(tensor));
}

std::vector<float> result(const OnnxModel& model, const std::vector<TensorPtr>& inputs) {
  const TensorPtr output = test::run(model.graph, inputs).at(0);
  return {output->values<float>().begin(), output->values<float>().end()};
}

std::vector<std::string> types_of(const Graph& graph) {
  std::vector<std::string> types;
  for (const Node& node : graph.nodes()) types.emplace_back(node.layer->summary());
  return types;
}

TEST(OnnxBranches, AKnownConditionLeavesItsBranch) {
  const OnnxModel read = rank_is_two("Relu", "NoSuchOperator").read();  // the other is never looked at
  EXPECT_THAT(types_of(read.graph), ElementsAre("neg", "relu"));
  EXPECT_THAT(read.graph.output_names(), ElementsAre("y"));
  EXPECT_THAT(result(read, {tensor(Shape{2, 2}, {1, -2, 3, -4})}), ElementsAre(0, 2, 0, 4));
  EXPECT_THAT(rank_is_two("NoSuchOperator", "Relu").failure<UnsupportedError>(),
              HasSubstr("operator NoSuchOperator is not supported"));
}

TEST(OnnxBranches, MayBeNestedAndHaveConstantsOfTheirOwn) {
  OnnxWriter model;
  model.input("x", {2})
      .input("fast", {}, kBool)
      .input("high", {}, kBool)
      .node("If", {"fast"}, {"y"})
      .output("y");
  auto& outer = add_branch(last_node(model), "then_branch");
  // Names that occur outside, too, are the branch's own where it defines them.
  *outer.add_initializer() = test::tensor_proto<float>("c", {}, {10});
  set_node(*outer.add_node(), "Add", {"x", "c"}, {"sum"});
  set_node(*outer.add_node(), "If", {"high"}, {"inner"});
  auto& inner = *outer.mutable_node(1);
  for (const bool high : {true, false}) {
    auto& graph = add_branch(inner, high ? "then_branch" : "else_branch");
    *graph.add_initializer() = test::tensor_proto<float>("c", {}, {high ? 100.0F : 1.0F});
    set_node(*graph.add_node(), "Mul", {"sum", "c"}, {"product"});
    graph.add_output()->set_name("product");
  }
  outer.add_output()->set_name("inner");
  add_branch(last_node(model), "else_branch", "Neg", "x");

  const TensorPtr x = tensor(Shape{2}, {1, 2});
  OnnxOptions options;
  options.values = {{"fast", {1}}, {"high", {1}}};
  EXPECT_THAT(result(model.read(options), {x}), ElementsAre(1100, 1200));
  options.values = {{"fast", {1}}, {"high", {0}}};
  EXPECT_THAT(result(model.read(options), {x}), ElementsAre(11, 12));
  options.values = {{"fast", {0}}};
  const OnnxModel slow = model.read(options);
  EXPECT_THAT(result(slow, {x, condition(true)}), ElementsAre(-1, -2));
  // At run time both conditions choose among results.
  for (const bool fast : {true, false}) {
    EXPECT_THAT(result(model.read(), {x, condition(fast), condition(false)}),
                fast ? ElementsAre(11, 12) : ElementsAre(-1, -2));
  }
}

TEST(OnnxBranches, AtRunTimeBothHaveToGiveOneShape) {
  OnnxWriter model;
  model.input("x", {1, 2}).input("c", {1}, kBool).node("If", {"c"}, {"y"}).output("y");
  add_branch(last_node(model), "then_branch", "Flatten", "x");
  add_branch(last_node(model), "else_branch", "Squeeze", "x");
  EXPECT_THAT(model.failure<UnsupportedError>(),
              HasSubstr("output 0 is f32 1x2 in one branch and f32 2 in the other"));
}

TEST(OnnxBranches, WhatDoesNotFitInABranchIsRefusedWithWhatDecides) {
  OnnxWriter model;
  model.input("x", {1, 2})
      .input("rate", {}, test::onnx_type<std::int64_t>())
      .constant<std::int64_t>("low", {}, {8000})
      .node("Equal", {"rate", "low"}, {"is_low"});
  model.node("If", {"is_low"}, {"y"}).output("y");
  auto& outer = add_branch(last_node(model), "then_branch");
  set_node(*outer.add_node(), "Not", {"is_low"}, {"other"});
  set_node(*outer.add_node(), "If", {"other"}, {"inner"});
  outer.add_output()->set_name("inner");
  add_branch(*outer.mutable_node(1), "then_branch", "GlobalAveragePool", "x");  // needs three dimensions
  add_branch(*outer.mutable_node(1), "else_branch", "Neg", "x");
  add_branch(last_node(model), "else_branch", "Abs", "x");
  EXPECT_THAT(model.failure<UnsupportedError>(),
              AllOf(HasSubstr("global pooling of 1x2"),
                    HasSubstr("condition is computed at run time; with --value")));
  OnnxOptions options;
  options.values = {{"rate", {16000}}};
  EXPECT_THAT(types_of(model.read(options).graph), ElementsAre("abs"));
  // A test's value decides, too.
  const Tensor rate = Tensor::scalar(std::int64_t{16000});
  options = {};
  const Tensor x(TensorDesc{Shape{1, 2}});  // stays an input: nodes of branches read it first
  options.bind_input = [&](const std::string& name) { return name == "rate" ? &rate : &x; };
  options.freeze_operands = true;
  const OnnxModel frozen = model.read(options);
  EXPECT_THAT(frozen.frozen, ElementsAre("rate"));
  EXPECT_THAT(types_of(frozen.graph), ElementsAre("abs"));
}

TEST(OnnxBranches, BrokenOnesAreErrors) {
  OnnxWriter model;
  model.input("x", {2}).node("If", {"x"}, {"y"}).output("y");
  EXPECT_THAT(model.failure<Error>(), HasSubstr("the condition is f32 2, expected one bool"));
  OnnxWriter half;
  half.input("c", {}, kBool).input("x", {2}).node("If", {"c"}, {"y"}).output("y");
  add_branch(last_node(half), "then_branch", "Neg", "x");
  EXPECT_THAT(half.failure<Error>(), HasSubstr("attribute 'else_branch' is missing"));
  add_branch(last_node(half), "else_branch", "Neg", "nowhere");
  EXPECT_THAT(half.failure<Error>(), HasSubstr("input 'nowhere' is produced by no node"));
  OnnxWriter cycle;
  cycle.input("c", {}, kBool).input("x", {2}).node("If", {"c"}, {"y"}).output("y");
  add_branch(last_node(cycle), "then_branch", "Neg", "y");
  add_branch(last_node(cycle), "else_branch", "Neg", "x");
  EXPECT_THAT(cycle.failure<Error>(), HasSubstr("depends on its own output"));
}

TEST(OnnxBranches, OfAFunctionSeeItsValues) {
  OnnxWriter model;
  auto& function = *model.proto().add_functions();
  function.set_domain("local");
  function.set_name("Choose");
  function.add_input("condition");
  function.add_input("a");
  function.add_output("b");
  set_node(*function.add_node(), "Neg", {"a"}, {"minus"});
  set_node(*function.add_node(), "If", {"condition"}, {"b"});
  add_branch(*function.mutable_node(1), "then_branch", "Abs", "minus");
  add_branch(*function.mutable_node(1), "else_branch", "Exp", "a");
  model.input("x", {2}).input("c", {}, kBool).node("Choose", {"c", "x"}, {"y"}, {}, "local").output("y");
  OnnxOptions options;
  options.values = {{"c", {1}}};
  EXPECT_THAT(types_of(model.read(options).graph), ElementsAre("neg", "abs"));
}

}  // namespace
}  // namespace pipit::internal
