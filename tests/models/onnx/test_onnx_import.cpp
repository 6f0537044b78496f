// How ONNX graphs become pipit graphs: versions, inputs, names, order, folding, refusals.
#include <gmock/gmock.h>

#include "tests/models/onnx/onnx_writer.h"

namespace pipit::internal {
namespace {

using test::Dims;
using test::one_node;
using test::OnnxWriter;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

OnnxWriter relu_model(std::int64_t opset = 17) {
  return one_node(opset, "Relu", {"x"}).input("x", {2, 3});
}

std::vector<std::string> node_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.push_back(node.name);
  return names;
}

TEST(OnnxImport, KeepsNamesAndMetadata) {
  OnnxWriter model = relu_model(13);
  model.proto().set_producer_name("somebody");
  model.proto().set_producer_version("1.2");
  auto& entry = *model.proto().add_metadata_props();
  entry.set_key("labels");
  entry.set_value("cat\ndog");
  const OnnxModel read = model.read();
  EXPECT_EQ(read.opset, 13);
  EXPECT_EQ(read.ir_version, 8);
  EXPECT_EQ(read.producer, "somebody 1.2");
  EXPECT_EQ(read.metadata.at("labels"), "cat\ndog");
  EXPECT_FALSE(read.symbolic_batch);
  const Graph& graph = read.graph;
  EXPECT_THAT(node_names(graph), ElementsAre("the_Relu"));
  EXPECT_EQ(graph.value(graph.inputs().at(0)).name, "x");
  EXPECT_EQ(graph.output_names().at(0), "y");
}

TEST(OnnxImport, OpsetsAndIrVersions) {
  for (const std::int64_t opset : {6, 13, 21, 28}) EXPECT_EQ(relu_model(opset).read().opset, opset);
  for (const std::int64_t opset : {29, 0, -1}) {
    EXPECT_THAT(relu_model(opset).failure<UnsupportedError>(), HasSubstr(fmt::format("opset {};", opset)));
  }
  OnnxWriter model = relu_model();
  for (const std::int64_t version : {2, 15}) {
    model.proto().set_ir_version(version);
    EXPECT_THAT(model.failure<UnsupportedError>(), HasSubstr(fmt::format("IR version {};", version)));
  }
  model.proto().set_ir_version(8);
  model.proto().add_opset_import()->set_version(16);
  EXPECT_THAT(model.failure<Error>(), HasSubstr("imported as version 17 and 16"));
  model.proto().clear_opset_import();
  EXPECT_THAT(model.failure<Error>(), HasSubstr("does not say which opset"));
  model.proto().add_opset_import()->set_domain("com.microsoft");
  model.proto().mutable_opset_import(0)->set_version(1);
  EXPECT_THAT(model.failure<UnsupportedError>(), HasSubstr("only operators of domain 'com.microsoft'"));
  model.proto().add_opset_import()->set_domain("ai.onnx");
  model.proto().mutable_opset_import(1)->set_version(9);
  EXPECT_EQ(model.read().opset, 9);
}

TEST(OnnxImport, OperatorsOutsideTheirOpsets) {
  EXPECT_THAT(one_node(17, "Mish", {"x"}).input("x", {2}).failure<UnsupportedError>(),
              HasSubstr("operator Mish is supported in opsets 18 to 28, not 17"));
  EXPECT_THAT(one_node(10, "Upsample", {"x", "s"})
                  .input("x", {2})
                  .constant<float>("s", {1}, {2})
                  .failure<UnsupportedError>(),
              HasSubstr("operator Upsample is supported in opsets 7 to 9, not 10"));
}

TEST(OnnxImport, SymbolicDimensions) {
  OnnxWriter model = relu_model();
  model.symbol(0, "N");
  const auto shape = [&](const OnnxOptions& options) {
    const OnnxModel read = model.read(options);
    EXPECT_TRUE(read.symbolic_batch);
    return read.graph.value(read.graph.inputs().at(0)).desc.shape;
  };
  EXPECT_EQ(shape({}), (Shape{1, 3}));
  EXPECT_EQ(shape({.batch = 5}), (Shape{5, 3}));
  EXPECT_EQ(shape({.batch = 5, .dims = {{"N", 7}}}), (Shape{7, 3}));
  model.symbol(1, "width");
  EXPECT_THAT(model.failure<Error>(),
              HasSubstr("input 'x' is Nxwidth: dimension 1 is open; give --dim width=VALUE or "
                        "--shape x=Nxwidth with numbers"));
  EXPECT_EQ(shape({.dims = {{"width", 9}}}), (Shape{1, 9}));
  EXPECT_THAT(model.failure<Error>({.dims = {{"width", 9}, {"widht", 9}}}),
              HasSubstr("no graph input has a symbolic dimension 'widht' (given as 9); there are: N, width"));
  EXPECT_THAT(model.failure<Error>({.dims = {{"width", -9}}}), HasSubstr("negative"));
  EXPECT_THAT(model.failure<Error>({.batch = 0}), HasSubstr("batch 0"));
}

// Detectors of Ultralytics with open rows and columns say which they are for.
TEST(OnnxImport, OpenExtentsOfImagesThatTheMetadataHave) {
  OnnxWriter model = one_node(17, "Relu", {"x"}).input("x", {2, 3, 4, 5});
  model.symbol(0, "batch").symbol(2, "height").symbol(3, "width");
  auto& entry = *model.proto().add_metadata_props();
  entry.set_key("imgsz");
  const auto message = [&](const char* size) {
    entry.set_value(size);
    return model.failure<Error>({.batch = 4});
  };
  EXPECT_THAT(
      message("[320, 640]"),
      HasSubstr("--dim width=VALUE or --shape x=4x3x320x640, as the metadata say (imgsz), or others"));
  for (const char* other : {"", "[", "[]", "320", "[320]", "[320, 640, 3]", "[320, -1]", "[a, 640]",
                            "[320; 640]", "[320, 99999999999999999999]"}) {
    EXPECT_THAT(message(other), HasSubstr("--shape x=batchx3xheightxwidth with numbers")) << other;
  }
}

TEST(OnnxImport, OpenExtentsWithoutAName) {
  OnnxWriter model = one_node(17, "Add", {"a", "b"}).input("a", {1, 3, 4, 5}).input("b", {1, 3, 4, 5});
  const auto dim = [&](int input, int i) {
    auto& type = *model.graph().mutable_input(input)->mutable_type()->mutable_tensor_type();
    return type.mutable_shape()->mutable_dim(i);
  };
  dim(0, 0)->set_dim_value(-1);
  dim(0, 2)->set_dim_param("?");
  dim(0, 3)->set_dim_param("?");
  dim(1, 0)->clear_value();
  dim(1, 2)->clear_value();
  dim(1, 3)->set_dim_param("W");
  const std::string all = model.failure<Error>();
  EXPECT_THAT(
      all, AllOf(HasSubstr("2 inputs have open extents:\n  input 'a' is ?x3x?x?: dimensions 2, 3 are open; "
                           "give --shape a=?x3x?x? with numbers"),
                 HasSubstr("\n  input 'b' is ?x3x?xW: dimensions 2, 3 are open; give --shape b=")));
  const auto shapes = [&](const OnnxOptions& options) {
    const OnnxModel read = model.read(options);
    EXPECT_TRUE(read.symbolic_batch);
    EXPECT_EQ(read.graph.value(read.graph.inputs()[0]).desc, read.graph.value(read.graph.inputs()[1]).desc);
    return read.graph.value(read.graph.inputs()[0]).desc.shape;
  };
  EXPECT_EQ(shapes({.shapes = {{"a", Shape{2, 3, 48, 192}}, {"b", Shape{2, 3, 48, 192}}}}),
            (Shape{2, 3, 48, 192}));
  EXPECT_THAT(model.failure<Error>({.shapes = {{"a", Shape{1, 3, 8, 8}}}}),
              HasSubstr("input 'b' is ?x3x?xW"));
  dim(0, 3)->set_dim_param(
      "W");  // a name stands for one extent in all inputs, and is enough where it is all there is
  dim(1, 2)->set_dim_value(8);
  EXPECT_EQ(shapes({.shapes = {{"a", Shape{1, 3, 8, 9}}}}), (Shape{1, 3, 8, 9}));
  EXPECT_THAT(model.failure<Error>({.dims = {{"W", 7}}, .shapes = {{"a", Shape{1, 3, 8, 9}}}}),
              HasSubstr("dimension 'W' is given as 7, and as 9 by the shape 1x3x8x9 of input 'a'"));
  EXPECT_THAT(model.failure<Error>({.shapes = {{"a", Shape{1, 4, 8, 9}}}}),
              HasSubstr("input 'a' is ?x3x?xW in the file; its shape is given as 1x4x8x9"));
  EXPECT_THAT(model.failure<Error>({.shapes = {{"a", Shape{1, 3, 8}}}}),
              HasSubstr("its shape is given as 1x3x8"));
  EXPECT_THAT(model.failure<Error>({.shapes = {{"c", Shape{1}}}}),
              HasSubstr("no graph input has the name 'c' (its shape is given as 1); there are: a, b"));
  EXPECT_THAT(model.failure<Error>({.dims = {{"?", 7}}}),
              HasSubstr("no graph input has a symbolic dimension '?'"));
  // Values of inputs have shapes too.
  const Tensor x{TensorDesc{Shape{3, 3, 8, 2}}};
  EXPECT_EQ(shapes({.bind_input = [&](const std::string&) { return &x; }}), (Shape{3, 3, 8, 2}));
}

TEST(OnnxImport, OpenExtentsComeAfterWhatIsNotSupported) {
  OnnxWriter model(17);
  model.input("x", {1, 3}).node("Frobnicate", {"x"}, {"a"}).node("Relu", {"a"}, {"y"}).output("y");
  model.symbol(1, "W");
  EXPECT_THAT(model.failure<UnsupportedError>(), HasSubstr("operator Frobnicate is not supported"));
  EXPECT_THAT(model.failure<UnsupportedError>({.dims = {{"W", 3}}}), HasSubstr("operator Frobnicate"));
}

TEST(OnnxImport, EqualReasonsAreGrouped) {
  OnnxWriter model;
  model.input("x", {1});
  for (int i = 0; i < 6; ++i) {
    model.node("Frobnicate", {"x"}, {fmt::format("f{}", i)});
    model.graph().mutable_node(i)->set_name(fmt::format("n{}", i));
    model.output(fmt::format("f{}", i));
  }
  EXPECT_THAT(
      model.failure<UnsupportedError>(),
      HasSubstr("node 'n0' (Frobnicate, opset 17): operator Frobnicate is not supported (and 5 more: node "
                "'n1', node 'n2', node 'n3', ...)"));
  model.node("StringNormalizer", {"x"}, {"e"}).output("e");
  const std::string two = model.failure<UnsupportedError>();
  EXPECT_THAT(two, HasSubstr("7 parts of the model are not supported:\n"));
  EXPECT_EQ(std::count(two.begin(), two.end(), '\n'), 2);
}

TEST(OnnxImport, InputsThatAreNotTensorsOfAKnownShape) {
  OnnxWriter model = relu_model();
  auto& type = *model.graph().mutable_input(0)->mutable_type();
  type.mutable_tensor_type()->mutable_shape()->mutable_dim(1)->set_dim_value(-2);
  EXPECT_THAT(model.failure<Error>(), HasSubstr("input 'x': shape [2x-2] has a negative extent"));
  type.mutable_tensor_type()->mutable_shape()->mutable_dim(1)->set_dim_value(3);
  type.mutable_tensor_type()->set_elem_type(8);
  EXPECT_THAT(model.failure<UnsupportedError>(), HasSubstr("input 'x': element type string"));
  type.mutable_tensor_type()->set_elem_type(1);
  type.mutable_tensor_type()->clear_shape();
  EXPECT_THAT(model.failure<Error>(), HasSubstr("input 'x': the file does not give its shape; give --shape"));
  EXPECT_EQ(model.failure<Error>({.shapes = {{"x", Shape{5}}}}), "");
  type.clear_tensor_type();
  EXPECT_THAT(model.failure<UnsupportedError>(), HasSubstr("input 'x': not a tensor"));
}

TEST(OnnxImport, InitializersMayBeListedAsInputs) {
  OnnxWriter model = one_node(17, "Add", {"x", "w"}).input("x", {2}).input("w", {2});
  EXPECT_EQ(model.read().graph.inputs().size(), 2U);
  model.constant<float>("w", {2}, {1, 2});
  const OnnxModel read = model.read();
  ASSERT_EQ(read.graph.inputs().size(), 1U);
  EXPECT_EQ(read.graph.value(read.graph.inputs()[0]).name, "x");
}

TEST(OnnxImport, SortsNodesAndDropsWhatNoOutputNeeds) {
  OnnxWriter model;
  model.input("x", {2})
      .node("Abs", {"b"}, {"y"})
      .node("Exp", {"a"}, {"b"})
      .node("Neg", {"x"}, {"a"})
      .output("y");
  model.node("NoSuchOperator", {"x"}, {"unused"});
  EXPECT_THAT(node_names(model.read().graph), ElementsAre("the_Neg", "the_Exp", "the_Abs"));
}

TEST(OnnxImport, WhatNothingReadsMayBeOfAnyType) {
  OnnxWriter model = relu_model();
  model.input("text", {2}, 8).input("open", {1, 2}).symbol(1, "anything").constant<float>("w", {7}, {1});
  model.constant<float>("strings", {1}, {1});
  model.graph().mutable_initializer(1)->set_data_type(8);
  model.graph().add_sparse_initializer()->mutable_values()->set_name("sparse");
  const OnnxModel read = model.read();
  EXPECT_EQ(read.graph.inputs().size(), 1U);
  EXPECT_THAT(read.unread, ElementsAre("text", "open"));
  EXPECT_THAT(model.node("Identity", {"w"}, {"v"}).output("v").failure<Error>(),
              HasSubstr("initializer 'w': "));
}

TEST(OnnxImport, PlacesOfOneRefusalAreAllNamed) {
  OnnxWriter model = relu_model();
  for (const char* name : {"a", "b"}) {
    model.constant<float>(name, {1}, {1}).output(name);
    model.graph().mutable_initializer(model.graph().initializer_size() - 1)->set_data_type(8);
  }
  EXPECT_EQ(model.failure<UnsupportedError>(),
            "initializer 'a': element type string (and 1 more: initializer 'b')");
}

TEST(OnnxImport, ValuesMakeInputsConstants) {
  OnnxWriter model = one_node(17, "Reshape", {"x", "shape"});
  model.input("x", {6}).input("shape", {0}, test::onnx_type<std::int64_t>()).symbol(0, "rank");
  OnnxOptions options;
  options.values = {{"shape", {2, 3}}};
  const OnnxModel read = model.read(options);
  ASSERT_EQ(read.graph.inputs().size(), 1U);
  EXPECT_EQ(read.graph.value(read.graph.outputs()[0]).desc.shape, (Shape{2, 3}));
  options.values = {{"shape", {1.5}}};
  EXPECT_THAT(model.failure<Error>(options), HasSubstr("the value 1.5 is given for i64 1"));
  options.values = {{"x", {1, 2}}};
  EXPECT_THAT(model.failure<Error>(options), HasSubstr("2 values are given for f32 6"));
  options.values = {{"z", {1}}};
  EXPECT_THAT(model.failure<Error>(options),
              HasSubstr("no graph input has the name 'z' (its value is given); there are: x, shape"));
}

TEST(OnnxImport, OutputsCanBeChosenAndOrdered) {
  OnnxWriter model;
  model.input("x", {2}).node("Abs", {"x"}, {"a"}).node("Frobnicate", {"x"}, {"b"}).node("Neg", {"x"}, {"c"});
  model.output("a").output("b").output("c");
  OnnxOptions options;
  options.outputs = {"c"};
  EXPECT_THAT(node_names(model.read(options).graph), ElementsAre("the_Neg"));
  options.outputs = {"d"};
  EXPECT_THAT(model.failure<Error>(options),
              HasSubstr("no graph output has the name 'd'; there are: a, b, c"));
  OnnxWriter two;
  two.input("x", {2, 3}).node("Flatten", {"x"}, {"b"}).node("Shape", {"x"}, {"a"}).output("a").output("b");
  options = {};
  options.is_wanted_output = [](auto inputs, const TensorDesc& output) {
    return output.dtype == DType::f32 && inputs.size() == 1;
  };
  EXPECT_THAT(two.read(options).graph.output_names(), ElementsAre("b", "a"));
}

TEST(OnnxImport, NodesGetUniqueNames) {
  OnnxWriter model;
  model.input("x", {2})
      .node("Neg", {"x"}, {"a"})
      .node("Neg", {"a"}, {"b"})
      .node("Abs", {"b"}, {"y"})
      .output("y");
  model.graph().mutable_node(2)->clear_name();
  EXPECT_THAT(node_names(model.read().graph), ElementsAre("the_Neg", "the_Neg_1", "Abs_2"));
}

TEST(OnnxImport, BrokenGraphsNameNodeAndValue) {
  OnnxWriter missing;
  missing.input("x", {2}).node("Add", {"x", "w"}, {"y"}).output("y");
  EXPECT_THAT(missing.failure<Error>(), StartsWith("node 'the_Add' (Add): input 'w' is produced by no node"));

  OnnxWriter cycle;
  cycle.input("x", {2}).node("Add", {"x", "b"}, {"a"}).node("Neg", {"a"}, {"b"}).output("b");
  EXPECT_THAT(cycle.failure<Error>(), HasSubstr("depends on the node's own output"));
  OnnxWriter self;
  self.node("Neg", {"a"}, {"a"}).output("a");
  EXPECT_THAT(self.failure<Error>(), HasSubstr("node 'the_Neg' (Neg): input 'a' depends on"));

  EXPECT_THAT(relu_model().node("Exp", {"x"}, {"y"}).failure<Error>(),
              HasSubstr("node 'the_Exp' (Exp): output 'y' is also produced by node 'the_Relu' (Relu)"));
  EXPECT_THAT(relu_model().node("Exp", {"x"}, {"x"}).failure<Error>(),
              HasSubstr("output 'x' is also a graph input or initializer"));
  EXPECT_THAT(relu_model().output("z").failure<Error>(),
              HasSubstr("graph output 'z' is produced by no node"));
  EXPECT_THAT(relu_model().output("y").failure<Error>(), HasSubstr("graph output 'y' is listed twice"));
  EXPECT_THAT(relu_model().output("").failure<Error>(), HasSubstr("a graph output has no name"));
  EXPECT_THAT(relu_model().input("x", {2}).failure<Error>(), HasSubstr("graph input 'x' is defined twice"));
  EXPECT_THAT(relu_model().integers("w", {1}).integers("w", {1}).failure<Error>(),
              HasSubstr("initializer 'w' is defined twice"));
  EXPECT_THAT(OnnxWriter().input("x", {2}).failure<Error>(), HasSubstr("the graph has no outputs"));
  EXPECT_THAT(one_node(17, "Relu", {"x\ny"}).input("x\ny", {2}).failure<Error>(),
              HasSubstr("control characters"));
  EXPECT_THAT(one_node(17, "Relu", {""}).failure<Error>(),
              HasSubstr("node 'the_Relu' (Relu, opset 17): input 0"));
  EXPECT_THAT(one_node(17, "Relu", {"x", "x"}).input("x", {2}).failure<Error>(),
              HasSubstr("2 inputs, expected 1"));
  EXPECT_THAT(one_node(17, "Concat", {}, {{"axis", std::int64_t{0}}}).failure<Error>(),
              HasSubstr("0 inputs, expected at least 1"));
}

TEST(OnnxImport, ListsAllUnsupportedPartsAtOnce) {
  OnnxWriter model;
  model.input("x", {1, 2, 4, 4});
  model.node("Frobnicate", {"x"}, {"a"});
  model.node("Relu", {"a"}, {"b"});  // follows from the first; must not be listed
  model.node("StringNormalizer", {"b"}, {"c"});
  model.node("BeamSearch", {"x"}, {"d"}, {}, "com.microsoft");
  model.node("Elu", {"x"}, {"e"}, {{"frob", std::int64_t{1}}});
  model.constant<float>("w", {1}, {0});
  model.graph().mutable_initializer(0)->set_data_type(12);
  model.node("Sum", {"c", "d", "e", "w"}, {"y"}).output("y");
  const std::string message = model.failure<UnsupportedError>();
  EXPECT_THAT(message, HasSubstr("5 parts of the model are not supported:\n"));
  EXPECT_THAT(message, HasSubstr("\n  initializer 'w': element type uint32"));
  EXPECT_THAT(message,
              HasSubstr("\n  node 'the_Frobnicate' (Frobnicate, opset 17): operator Frobnicate is not"));
  EXPECT_THAT(message, HasSubstr("\n  node 'the_StringNormalizer' (StringNormalizer, opset 17): "));
  EXPECT_THAT(message,
              HasSubstr("(com.microsoft::BeamSearch, opset 17): operator com.microsoft::BeamSearch is"));
  EXPECT_THAT(message, HasSubstr("\n  node 'the_Elu' (Elu, opset 17): attribute 'frob' is not supported"));
  EXPECT_THAT(message, AllOf(Not(HasSubstr("Relu")), Not(HasSubstr("Sum"))));
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 5);
}

TEST(OnnxImport, AttributesAreChecked) {
  const auto elu = [](const std::vector<test::Attribute>& attributes) {
    return one_node(17, "Elu", {"x"}, attributes).input("x", {2}).failure<Error>();
  };
  EXPECT_EQ(elu({{"alpha", 2.0F}}), "");
  EXPECT_THAT(elu({{"alpha", std::int64_t{2}}}),
              HasSubstr("attribute 'alpha' is of type int, expected float"));
  EXPECT_THAT(elu({{"alpha", 2.0F}, {"alpha", 2.0F}}), HasSubstr("attribute 'alpha' is given twice"));
  OnnxWriter model = one_node(17, "Elu", {"x"}, {{"alpha", 2.0F}}).input("x", {2});
  auto& alpha = *model.graph().mutable_node(0)->mutable_attribute(0);
  alpha.clear_type();
  EXPECT_THAT(model.failure<Error>(), HasSubstr("of type none"));
  alpha.set_type(5);
  EXPECT_THAT(model.failure<Error>(), HasSubstr("of type graph"));
  alpha.set_type(99);
  EXPECT_THAT(model.failure<Error>(), HasSubstr("of type type 99"));
}

TEST(OnnxImport, SparseInitializersAreUnsupported) {
  OnnxWriter model = one_node(17, "Add", {"x", "w"}).input("x", {2});
  model.graph().add_sparse_initializer()->mutable_values()->set_name("w");
  EXPECT_THAT(model.failure<UnsupportedError>(), HasSubstr("sparse initializer 'w'"));
}

TEST(OnnxImport, OutputsKeepTheirNamesWhereNodesVanish) {
  OnnxWriter model;
  model.input("x", {2, 2});
  model.node("Identity", {"x"}, {"same"}).node("Dropout", {"x"}, {"dropped"}).node("Neg", {"x"}, {"n"});
  model.node("Identity", {"n"}, {"m"});
  model.output("same").output("dropped").output("n").output("m");
  const Graph graph = model.read().graph;
  EXPECT_THAT(graph.output_names(), ElementsAre("same", "dropped", "n", "m"));
  EXPECT_EQ(graph.value(graph.inputs().at(0)).name, "x");
}

TEST(OnnxImport, OutputsThatNobodyReadsMayBeUnsupported) {
  OnnxWriter model(13);
  model.input("x", {1, 2, 3, 3});
  for (const char* name : {"scale", "bias", "mean", "var"}) model.constant<float>(name, {2}, {1, 1});
  model.node("BatchNormalization", {"x", "scale", "bias", "mean", "var"}, {"y", "m", "v", "sm", "sv"})
      .output("y");
  EXPECT_EQ(model.failure<Error>(), "");
  model.output("sv");
  EXPECT_THAT(model.failure<UnsupportedError>(), HasSubstr("output 4 is not supported"));
}

TEST(OnnxImport, FoldsConstants) {
  OnnxWriter model;
  model.input("x", {4, 2, 3}).node("Shape", {"x"}, {"shape"}).integers("one", {1}).integers("minus", {-1});
  model.constant<std::int64_t>("first", {}, {0});
  model.node("Gather", {"shape", "first"}, {"batch"}, {{"axis", std::int64_t{0}}});
  model.node("Unsqueeze", {"batch", "axis0"}, {"batch1"}).integers("axis0", {0});
  model.node("Concat", {"batch1", "minus"}, {"target"}, {{"axis", std::int64_t{0}}});
  model.node("Reshape", {"x", "target"}, {"y"}).output("y");
  const Graph graph = model.read().graph;
  EXPECT_THAT(node_names(graph), ElementsAre("the_Reshape"));
  EXPECT_EQ(graph.value(graph.outputs().at(0)).desc.shape, (Shape{4, 6}));
  EXPECT_EQ(graph.values().size(), 2U);
}

TEST(OnnxImport, ConstantsComputedAtRunTimeAreUnsupportedUnlessBound) {
  OnnxWriter model = one_node(17, "Reshape", {"x", "shape"}).input("x", {2, 3}).input("shape", {2}, 7);
  EXPECT_THAT(model.failure<UnsupportedError>(), HasSubstr("shape 'shape' is computed at run time"));
  const std::int64_t dims[] = {3, 2};
  Tensor shape = Tensor::from<std::int64_t>(Shape{2}, dims);
  OnnxOptions options;
  options.bind_input = [&](const std::string& name) { return name == "shape" ? &shape : nullptr; };
  const Graph graph = model.read(options).graph;
  EXPECT_EQ(graph.value(graph.outputs().at(0)).desc.shape, (Shape{3, 2}));
  EXPECT_EQ(graph.inputs().size(), 2U);
  shape = Tensor::scalar(3.0F);
  EXPECT_THAT(model.failure<Error>(options), HasSubstr("input 'shape' was given as f32 scalar"));
}

TEST(OnnxImport, OperandsBecomeConstantsOnRequest) {
  OnnxWriter model = one_node(17, "Conv", {"x", "w", "b"});
  model.input("x", {1, 1, 4, 4}).input("w", {2, 1, 3, 3}).input("b", {2});
  const Tensor w(TensorDesc{Shape{2, 1, 3, 3}}), b(TensorDesc{Shape{2}}), x(TensorDesc{Shape{1, 1, 4, 4}});
  OnnxOptions options;
  options.bind_input = [&](const std::string& name) { return name == "x" ? &x : name == "w" ? &w : &b; };
  EXPECT_EQ(model.read(options).graph.inputs().size(), 3U);
  options.freeze_operands = true;
  const OnnxModel frozen = model.read(options);
  EXPECT_THAT(frozen.frozen, ElementsAre("w", "b"));
  ASSERT_EQ(frozen.graph.inputs().size(), 1U);
  EXPECT_EQ(frozen.graph.value(frozen.graph.inputs()[0]).name, "x");
  // What there is no value for, and what is of another shape, stays an input.
  options.bind_input = [&](const std::string& name) { return name == "w" ? &b : nullptr; };
  EXPECT_THAT(model.read(options).frozen, ElementsAre());
}

TEST(OnnxImport, FoldingIsBounded) {
  OnnxWriter model = one_node(17, "ConstantOfShape", {"shape"});
  model.integers("shape", {1 << 20, 1 << 20});
  EXPECT_THAT(model.failure<Error>(), HasSubstr("takes 4398046511104 bytes"));
  // Bytes add up over nodes, and so do work and growth.
  OnnxWriter chain = one_node(17, "Neg", {"a"});
  chain.constant<float>("w", {200}, std::vector<float>(200, 1)).node("Neg", {"w"}, {"a"});
  EXPECT_EQ(chain.failure<Error>({.max_folded_bytes = 1600}), "");
  EXPECT_THAT(chain.failure<Error>({.max_folded_bytes = 1500}),
              HasSubstr("node 'the_Neg' (Neg, opset 17): the constant result"));
  OnnxWriter growing = one_node(17, "Tile", {"a", "twice"});
  growing.integers("shape", {200}).integers("twice", {2}).node("ConstantOfShape", {"shape"}, {"a"});
  EXPECT_EQ(growing.failure<Error>({.max_folded_bytes = 6400}), "");
  EXPECT_THAT(growing.failure<Error>({.max_folded_bytes = 6000}),
              AllOf(HasSubstr("node 'the_Tile' (Tile, opset 17): the"), HasSubstr("is made of much less")));
  // A byte each, dequantized: 200 bytes of file for gigabytes.
  OnnxWriter bytes = one_node(17, "DequantizeLinear", {"a", "scale"});
  bytes.integers("shape", {900'000'000}).constant<float>("scale", {}, {1});
  bytes.node("ConstantOfShape", {"shape"}, {"a"},
             {{"value", test::tensor_proto<std::int8_t>("one", {1}, {1})}});
  EXPECT_THAT(bytes.failure<Error>(), HasSubstr("ConstantOfShape, opset 17"));
  OnnxWriter product = one_node(17, "MatMul", {"a", "a"});
  product.integers("shape", {500, 500}).node("ConstantOfShape", {"shape"}, {"a"});
  EXPECT_THAT(product.failure<Error>({.max_folded_bytes = 10 << 20}), HasSubstr("visits 1.26e+08 elements"));
  // Nine taps, each to a power: 9 * 8 * 10'000 besides the operand.
  OnnxWriter power = one_node(17, "LpPool", {"a"},
                              {{"kernel_shape", std::vector<std::int64_t>{3, 3}},
                               {"pads", std::vector<std::int64_t>{1, 1, 1, 1}},
                               {"p", std::int64_t{7}}});
  power.integers("shape", {1, 1, 100, 100}).node("ConstantOfShape", {"shape"}, {"a"});
  EXPECT_THAT(power.failure<Error>({.max_folded_bytes = 160'000}), HasSubstr("visits 7.3e+05 elements"));
}

}  // namespace
}  // namespace pipit::internal
