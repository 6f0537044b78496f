// Model-local functions: what calls become, and functions that cannot be.
#include <gmock/gmock.h>

#include "tests/models/onnx/onnx_writer.h"

namespace pipit::internal {
namespace {

using test::OnnxWriter;
using test::set_node;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

onnx_pb::FunctionProto& add_function(OnnxWriter& model, const std::string& name, const test::Names& inputs,
                                     const test::Names& outputs) {
  auto& function = *model.proto().add_functions();
  function.set_domain("local");
  function.set_name(name);
  for (const std::string& input : inputs) function.add_input(input);
  for (const std::string& output : outputs) function.add_output(output);
  return function;
}

void refer(onnx_pb::NodeProto& node, const std::string& attribute, int type, const std::string& source) {
  auto& proto = *node.add_attribute();
  proto.set_name(attribute);
  proto.set_type(type);
  proto.set_ref_attr_name(source);
}

OnnxWriter& call(OnnxWriter& model, const std::string& function, const test::Names& inputs,
                 const test::Names& outputs, const std::vector<test::Attribute>& attributes = {}) {
  return model.node(function, inputs, outputs, attributes, "local");
}

// "name: summary" of every node.
std::vector<std::string> nodes_of(const OnnxWriter& model) {
  std::vector<std::string> result;
  const OnnxModel read = model.read();
  for (const Node& node : read.graph.nodes()) {
    result.push_back(fmt::format("{}: {}", node.name, node.layer->summary()));
  }
  return result;
}

TEST(OnnxFunctions, AreInlinedWithTheirAttributes) {
  OnnxWriter model;
  auto& function = add_function(model, "EluOfNeg", {"a"}, {"b"});
  function.add_attribute("alpha");
  set_node(*function.add_node(), "Neg", {"a"}, {"inner"});
  set_node(*function.add_node(), "Elu", {"inner"}, {"b"});
  refer(*function.mutable_node(1), "alpha", 1, "alpha");
  model.input("x", {3});
  call(model, "EluOfNeg", {"x"}, {"h"}, {{"alpha", 3.0F}});
  call(model, "EluOfNeg", {"h"}, {"y"}).output("y");  // without: the operator's own default
  EXPECT_THAT(nodes_of(model), ElementsAre("the_EluOfNeg::the_Neg: neg", "the_EluOfNeg::the_Elu: elu 3",
                                           "the_EluOfNeg_2::the_Neg: neg", "the_EluOfNeg_2::the_Elu: elu 1"));
  test::set_attribute(*function.add_attribute_proto(), {"slope", 0.5F});
  function.mutable_node(1)->mutable_attribute(0)->set_ref_attr_name("slope");
  EXPECT_THAT(nodes_of(model)[1], HasSubstr("elu 0.5"));
}

TEST(OnnxFunctions, NestAndSkipOptionalInputsAndOutputs) {
  OnnxWriter model;
  auto& inner = add_function(model, "ClipAbove", {"a", "low", "high"}, {"b"});
  set_node(*inner.add_node(), "Clip", {"a", "low", "high"}, {"b"});
  auto& outer = add_function(model, "Both", {"a", "high"}, {"b", "c"});
  set_node(*outer.add_node(), "ClipAbove", {"a", "", "high"}, {"b"}, {}, "local");
  set_node(*outer.add_node(), "Neg", {"a"}, {"c"});
  model.input("x", {3}).constant<float>("top", {}, {6});
  call(model, "Both", {"x", "top"}, {"y"}).output("y");
  EXPECT_THAT(nodes_of(model), ElementsAre("the_Both::the_ClipAbove::the_Clip: clip [-inf, 6]"));
}

TEST(OnnxFunctions, MayPassInputsThrough) {
  OnnxWriter model;
  auto& function = add_function(model, "Pass", {"a"}, {"a", "b"});
  set_node(*function.add_node(), "Neg", {"a"}, {"b"});
  model.input("x", {3});
  call(model, "Pass", {"x"}, {"p", "n"}).node("Add", {"p", "n"}, {"y"}).output("y");
  EXPECT_THAT(nodes_of(model), ElementsAre("the_Pass::the_Neg: neg", "the_Add: add"));
}

TEST(OnnxFunctions, UseTheirOwnOpset) {
  OnnxWriter model(17);
  auto& function = add_function(model, "OldSqueeze", {"a"}, {"b"});
  auto& opset = *function.add_opset_import();
  opset.set_version(11);
  set_node(*function.add_node(), "Squeeze", {"a"}, {"b"}, {{"axes", test::Dims{0}}});
  model.input("x", {1, 3});
  call(model, "OldSqueeze", {"x"}, {"y"}).output("y");
  EXPECT_EQ(model.failure<Error>(), "");
  opset.set_version(13);
  EXPECT_THAT(model.failure<UnsupportedError>(), HasSubstr("attribute 'axes' is not supported"));
}

TEST(OnnxFunctions, BrokenOnes) {
  OnnxWriter model;
  model.input("x", {3});
  auto& function = add_function(model, "F", {"a"}, {"b"});
  set_node(*function.add_node(), "Neg", {"a"}, {"b"});
  call(model, "F", {"x"}, {"y"}).output("y");
  ASSERT_EQ(model.failure<Error>(), "");

  OnnxWriter attribute = model;
  test::set_attribute(*attribute.graph().mutable_node(0)->add_attribute(), {"z", std::int64_t{1}});
  EXPECT_THAT(attribute.failure<Error>(), HasSubstr("calls function 'F' with attribute 'z'"));
  OnnxWriter inputs = model;
  inputs.graph().mutable_node(0)->add_input("x");
  EXPECT_THAT(inputs.failure<Error>(), HasSubstr("calls function 'F' with 2 inputs and 1 outputs"));
  OnnxWriter twice = model;
  *twice.proto().add_functions() = twice.proto().functions(0);
  EXPECT_THAT(twice.failure<Error>(), HasSubstr("function 'F' of domain 'local' is defined twice"));
  OnnxWriter recursive = model;
  auto& body = *recursive.proto().mutable_functions(0)->mutable_node(0);
  body.set_op_type("F");
  body.set_domain("local");
  EXPECT_THAT(recursive.failure<Error>(), HasSubstr("does it call itself?"));
}

TEST(OnnxFunctions, CannotGrowWithoutBound) {
  // Every function calls the next one ten times: 10^20 nodes from a file of a few kilobytes.
  OnnxWriter model;
  for (int level = 0; level < 20; ++level) {
    auto& function = add_function(model, fmt::format("F{}", level), {"a"}, {"b"});
    for (int i = 0; i < 10; ++i) {
      auto& node = *function.add_node();
      set_node(node, level == 19 ? "Neg" : fmt::format("F{}", level + 1),
               {i == 0 ? "a" : fmt::format("v{}", i)}, {i == 9 ? "b" : fmt::format("v{}", i + 1)});
      if (level < 19) node.set_domain("local");
    }
  }
  model.input("x", {1});
  call(model, "F0", {"x"}, {"y"}).output("y");
  EXPECT_THAT(model.failure<Error>(), HasSubstr("inlining functions adds more than 100000 nodes"));
}

}  // namespace
}  // namespace pipit::internal
