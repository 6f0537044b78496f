// Graphs written as ONNX and read again compute the same.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "layers/ops/normalization.h"
#include "layers/ops/pool.h"
#include "layers/passes/pipeline.h"
#include "layers/registry.h"
#include "tests/models/onnx/round_trip.h"

namespace pipit::internal {
namespace {

using test::Dims;
using test::expect_round_trip;
using test::OnnxWriter;
using test::pattern;
using test::read;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(OnnxWrite, AConvolutionWithAllThatIsFusedIntoIt) {
  OnnxWriter model(13);
  model.input("x", {2, 4, 7, 6})
      .input("r", {2, 6, 4, 7})
      .constant<float>("w", {6, 2, 3, 2}, pattern(72, 0.1F))
      .constant<float>("b", {6}, pattern(6, 0.2F))
      .constant<float>("low", {}, {-0.5F})
      .constant<float>("high", {}, {1})
      .node("Conv", {"x", "w", "b"}, {"c"},
            {{"group", std::int64_t{2}},
             {"strides", Dims{2, 1}},
             {"pads", Dims{1, 2, 1, 0}},
             {"dilations", Dims{1, 1}}})
      .node("Add", {"c", "r"}, {"s"})
      .node("Clip", {"s", "low", "high"}, {"y"})
      .output("y");
  const Graph graph = fuse(model.read().graph);
  ASSERT_EQ(graph.nodes().size(), 1U);
  const Graph again = expect_round_trip(model);
  EXPECT_EQ(again.nodes()[0].name, "the_Conv");
  EXPECT_EQ(fuse(again).nodes().size(), 1U);
}

TEST(OnnxWrite, MatrixProductsAndPools) {
  OnnxWriter gemm(13);
  gemm.input("x", {2, 5})
      .constant<float>("w", {3, 5}, pattern(15, 0.1F))
      .constant<float>("c", {3}, {1, 2, 3})
      .node("Gemm", {"x", "w", "c"}, {"g"}, {{"transB", std::int64_t{1}}, {"alpha", 0.5F}, {"beta", 2.0F}})
      .node("Relu", {"g"}, {"r"})
      .constant<float>("m", {3, 2}, pattern(6, 1))
      .node("MatMul", {"r", "m"}, {"y"})
      .output("y");
  expect_round_trip(gemm);
  for (const char* op : {"MaxPool", "AveragePool"}) {
    OnnxWriter pool(13);
    pool.input("x", {1, 3, 8, 9})
        .node(op, {"x"}, {"p"},
              {{"kernel_shape", Dims{3, 2}},
               {"strides", Dims{2, 2}},
               {"pads", Dims{1, 0, 1, 1}},
               {"ceil_mode", std::int64_t{1}}})
        .node(std::string("Global") + op, {"p"}, {"y"})
        .output("y");
    expect_round_trip(pool);
  }
}

// ONNX Runtime refuses pads that reach the kernel's extent, which a dilated window's may.
TEST(OnnxWrite, PadsOfDilatedPoolsAreANode) {
  OnnxWriter model(13);
  model.input("x", {1, 2, 9, 9})
      .node(
          "MaxPool", {"x"}, {"y"},
          {{"kernel_shape", Dims{2, 3}}, {"dilations", Dims{4, 2}}, {"auto_pad", std::string("SAME_UPPER")}})
      .output("y");
  const Graph again = expect_round_trip(model);
  ASSERT_EQ(again.nodes().size(), 2U);
  EXPECT_EQ(again.nodes()[0].layer->type(), "Pad");
  const Window& window = layer_as<Pool>(*again.nodes()[1].layer).attributes().window;
  EXPECT_THAT(window.pad_begin, testing::Each(0));
  EXPECT_THAT(window.pad_end, testing::Each(0));
}

TEST(OnnxWrite, ElementwiseFunctions) {
  for (const char* op : {"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "HardSwish",
                         "Mish", "Softplus", "Softmax", "LogSoftmax", "Exp", "Abs", "ReduceMean", "Gelu"}) {
    OnnxWriter model(20);
    model.input("x", {2, 3, 4, 5}).node(op, {"x"}, {"y"}).output("y");
    SCOPED_TRACE(op);
    expect_round_trip(model);
  }
  OnnxWriter quick_gelu(13);
  quick_gelu.input("x", {2, 3})
      .constant<float>("c", {}, {1.702F})
      .node("Mul", {"x", "c"}, {"a"})
      .node("Sigmoid", {"a"}, {"s"})
      .node("Mul", {"x", "s"}, {"y"})
      .output("y");
  expect_round_trip(quick_gelu);
  OnnxWriter swish(13);
  swish.input("x", {2, 3}).node("Sigmoid", {"x"}, {"s"}).node("Mul", {"x", "s"}, {"y"}).output("y");
  expect_round_trip(swish);
  OnnxWriter chain(13);
  chain.input("x", {1, 3, 2, 2})
      .constant<float>("c", {1, 3, 1, 1}, {1, 2, 4})
      .node("Mul", {"x", "c"}, {"a"})
      .node("Sub", {"a", "c"}, {"b"})
      .node("Div", {"b", "c"}, {"d"})
      .node("Max", {"d", "x"}, {"e"})
      .node("PRelu", {"e", "c"}, {"y"})
      .output("y");
  expect_round_trip(chain);
  OnnxWriter norms(13);
  norms.input("x", {2, 3, 4, 4})
      .constant<float>("c", {3}, {1, 2, 4})
      .node("LRN", {"x"}, {"l"}, {{"size", std::int64_t{3}}})
      .node("BatchNormalization", {"l", "c", "c", "c", "c"}, {"y"}, {{"epsilon", 0.25F}})
      .output("y");
  expect_round_trip(norms);
}

// Written out as opset 13 has them, and recognized again.
TEST(OnnxWrite, NormalizationsAndFunctionsOfLaterOpsets) {
  for (const std::int64_t axis : {-1, 2, 1}) {
    OnnxWriter model(17);
    const std::vector<std::int64_t> dims = axis == -1 ? Dims{5} : axis == 2 ? Dims{4, 5} : Dims{3, 4, 5};
    std::size_t count = 1;
    for (const std::int64_t extent : dims) count *= static_cast<std::size_t>(extent);
    model.input("x", {2, 3, 4, 5})
        .constant<float>("s", dims, pattern(count, 0.1F))
        .constant<float>("b", dims, pattern(count, 0.2F))
        .node("LayerNormalization", {"x", "s", "b"}, {"y"}, {{"axis", axis}, {"epsilon", 0.25F}})
        .output("y");
    const Graph again = fuse(expect_round_trip(model));
    ASSERT_EQ(again.nodes().size(), 1U);
    EXPECT_EQ(again.nodes()[0].layer->type(), "LayerNorm");
    OnnxWriter rms(23);
    rms.input("x", {2, 3, 4, 5})
        .constant<float>("s", dims, pattern(count, 0.1F))
        .node("RMSNormalization", {"x", "s"}, {"y"}, {{"axis", axis}, {"epsilon", 0.25F}})
        .output("y");
    const Graph rms_again = fuse(expect_round_trip(rms));
    ASSERT_EQ(rms_again.nodes().size(), 1U);
    EXPECT_TRUE(layer_as<LayerNorm>(*rms_again.nodes()[0].layer).attributes().rms);
  }
  OnnxWriter model(20);
  model.input("x", {2, 3, 4, 5})
      .constant<float>("s", {3}, {1, 2, -1})
      .constant<float>("e", {}, {1.5F})
      .node("InstanceNormalization", {"x", "s", "s"}, {"a"}, {{"epsilon", 0.25F}})
      .node("Gelu", {"a"}, {"g"}, {{"approximate", std::string("tanh")}})
      .node("Abs", {"g"}, {"h"})
      .node("Pow", {"h", "e"}, {"y"})
      .output("y");
  EXPECT_EQ(fuse(expect_round_trip(model)).nodes().size(), 4U);
}

TEST(OnnxWrite, LayersThatMoveElements) {
  OnnxWriter model(13);
  model.input("x", {1, 4, 6, 6})
      .integers("starts", {1, -1})
      .integers("ends", {5, -100})
      .integers("axes", {2, 3})
      .integers("steps", {1, -2})
      .integers("pads", {0, 1, 0, 0, 0, 0, 2, 0})
      .constant<float>("fill", {}, {3})
      .integers("shape", {1, -1})
      .integers("sizes", {1, 3})
      .node("Split", {"x", "sizes"}, {"a", "b"}, {{"axis", std::int64_t{1}}})
      .node("Concat", {"b", "a", "x"}, {"c"}, {{"axis", std::int64_t{1}}})
      .node("Slice", {"c", "starts", "ends", "axes", "steps"}, {"s"})
      .node("Pad", {"s", "pads", "fill"}, {"p"})
      .node("Transpose", {"p"}, {"t"}, {{"perm", Dims{0, 2, 3, 1}}})
      .node("SpaceToDepth", {"x"}, {"d"}, {{"blocksize", std::int64_t{2}}})
      .node("Reshape", {"t", "shape"}, {"y"})
      .output("y")
      .output("d");
  expect_round_trip(model);
}

TEST(OnnxWrite, OutputsThatShareAValueOrAreInputs) {
  OnnxWriter model(13);
  model.input("x", {2})
      .node("Relu", {"x"}, {"y"})
      .node("Identity", {"y"}, {"z"})
      .node("Identity", {"x"}, {"w"});
  expect_round_trip(model.output("y").output("z").output("w"));
}

TEST(OnnxWrite, TheBatchIsOpenWhereAllLayersKeepIt) {
  const auto batch_of = [](const std::string& op, const std::vector<test::Attribute>& attributes) {
    OnnxWriter model(13);
    model.input("x", {1, 4, 3, 3}).node(op, {"x"}, {"y"}, attributes).output("y");
    OnnxWriteOptions options;
    options.symbolic_batch = true;
    const OnnxModel again = read(write_onnx(fuse(model.read().graph), options), 5);
    EXPECT_EQ(again.symbolic_batch, again.graph.value(again.graph.inputs()[0]).desc.shape[0] == 5);
    return again.graph.value(again.graph.outputs()[0]).desc.shape;
  };
  EXPECT_EQ(batch_of("Flatten", {}), (Shape{5, 36}));
  EXPECT_EQ(batch_of("Flatten", {{"axis", std::int64_t{2}}}), (Shape{4, 9}));
  EXPECT_EQ(batch_of("Transpose", {{"perm", Dims{1, 0, 2, 3}}}), (Shape{4, 1, 3, 3}));
}

TEST(OnnxWrite, MetadataAndWhatIsRefused) {
  OnnxWriter model(17);
  model.input("x", {1, 4, 3, 3}).node("Relu", {"x"}, {"y"}).output("y");
  OnnxWriteOptions options;
  options.metadata = {{"pipit.labels", "cat\ndog"}};
  EXPECT_EQ(read(write_onnx(model.read().graph, options)).metadata, options.metadata);

  OnnxWriter refused(19);
  refused.input("x", {1, 4, 3, 3})
      .constant<float>("scales", {4}, {0.5F, 0.25F, 1, 2})
      .constant<std::int8_t>("zeros", {4}, {0, 1, 2, 3})
      .node("QuantizeLinear", {"x", "scales", "zeros"}, {"q"})
      .node("DequantizeLinear", {"q", "scales", "zeros"}, {"a"})
      .node("Relu", {"a"}, {"y"})
      .output("y");
  try {
    write_onnx(refused.read().graph);
    FAIL();
  } catch (const UnsupportedError& e) {
    EXPECT_THAT(e.what(), HasSubstr("node 'the_QuantizeLinear': layer QuantizeAxis has no form here\n  node "
                                    "'the_DequantizeLinear'"));
    EXPECT_THAT(e.what(), testing::Not(HasSubstr("Relu")));
  }
}

TEST(OnnxWrite, LayersThatChooseAmongElements) {
  OnnxWriter model(18);
  model.input("x", {2, 4, 3, 5})
      .integers("repeats", {1, 1, 2, 1})
      .integers("shape", {3, 2, 4, 6, 5})
      .integers("picked", {3, 0, -1})
      .constant<float>("zero", {}, {0})
      .node("Tile", {"x", "repeats"}, {"t"})
      .node("Greater", {"t", "zero"}, {"g"})
      .node("Neg", {"t"}, {"n"})
      .node("Where", {"g", "t", "n"}, {"w"})
      .node("Gather", {"w", "picked"}, {"p"}, {{"axis", std::int64_t{1}}})
      .node("Cast", {"g"}, {"c"}, {{"to", std::int64_t{1}}})
      .node("ArgMin", {"p"}, {"a"}, {{"axis", std::int64_t{3}}, {"select_last_index", std::int64_t{1}}})
      .node("Cast", {"a"}, {"y"}, {{"to", std::int64_t{1}}})
      .node("Expand", {"c", "shape"}, {"e"})
      .output("y")
      .output("e")
      .output("p");
  expect_round_trip(model);
  for (const char* kind : {"Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"}) {
    OnnxWriter reduce(18);
    reduce.input("x", {2, 3, 4, 5})
        .integers("axes", {1, -1})
        .node(std::string("Reduce") + kind, {"x", "axes"}, {"y"}, {{"keepdims", std::int64_t{0}}})
        .output("y");
    SCOPED_TRACE(kind);
    expect_round_trip(reduce);
  }
}

TEST(OnnxWrite, LayersWhosePositionsAreDataOrAnOrder) {
  OnnxWriter model(13);
  model.input("x", {3, 4})
      .constant<std::int64_t>("i", {2, 4}, {0, 2, -1, 1, 1, 0, 2, -3})
      .constant<std::int64_t>("pairs", {2, 2}, {0, 3, 2, -4})
      .constant<std::int64_t>("rows", {2, 1}, {2, 0})
      .constant<float>("u", {2, 4}, pattern(8, 0.3F))
      .integers("k", {2})
      .constant<std::int64_t>("axis", {}, {1})
      .node("GatherElements", {"x", "i"}, {"a"})
      .node("GatherND", {"x", "pairs"}, {"b"})
      .node("ScatterElements", {"x", "i", "a"}, {"c"})
      .node("ScatterND", {"c", "rows", "u"}, {"d"})
      .node("TopK", {"x", "k"}, {"e", "at"}, {{"axis", std::int64_t{0}}, {"largest", std::int64_t{0}}})
      .node("Cast", {"at"}, {"f"}, {{"to", std::int64_t{1}}})
      .node("CumSum", {"x", "axis"}, {"g"}, {{"exclusive", std::int64_t{1}}, {"reverse", std::int64_t{1}}});
  for (const char* output : {"a", "b", "d", "e", "f", "g"}) model.output(output);
  expect_round_trip(model);
}

// What the operator computes of x alone is a product before the layer; the file has it there, and once only.
TEST(OnnxWrite, RecurrentLayers) {
  const std::pair<const char*, std::int64_t> kinds[] = {{"RNN", 1}, {"GRU", 3}, {"LSTM", 4}};
  for (const auto& [kind, gates] : kinds) {
    for (const bool both : {false, true}) {
      SCOPED_TRACE(testing::Message() << kind << (both ? " in both directions" : " reversed"));
      const std::int64_t directions = both ? 2 : 1, rows = gates * 3;
      const auto values = [](std::int64_t count) { return pattern(static_cast<std::size_t>(count), 0.02F); };
      OnnxWriter model(14);
      model.input("x", {5, 2, 4})
          .constant<float>("w", {directions, rows, 4}, values(directions * rows * 4))
          .constant<float>("r", {directions, rows, 3}, values(directions * rows * 3))
          .constant<float>("b", {directions, 2 * rows}, values(directions * rows * 2))
          .constant<float>("h", {directions, 2, 3}, values(directions * 6))
          .constant<std::int32_t>("lengths", {2}, {5, 3});
      std::vector<test::Attribute> attributes{{"hidden_size", std::int64_t{3}},
                                              {"direction", std::string(both ? "bidirectional" : "reverse")},
                                              {"clip", 0.5F}};
      if (gates == 3 && both) attributes.push_back({"linear_before_reset", std::int64_t{1}});
      model.node(kind, {"x", "w", "r", "b", "lengths", "h"}, {"y", "last"}, attributes)
          .output("y")
          .output("last");
      const Graph again = expect_round_trip(model);
      EXPECT_EQ(
          std::ranges::count_if(again.nodes(), [](const Node& n) { return n.layer->type() == "MatMul"; }), 1);
    }
  }
}

TEST(OnnxWrite, ResizedPaddedAndTransposedConvolutions) {
  for (const char* mode : {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"}) {
    for (const bool by_sizes : {false, true}) {
      OnnxWriter model(13);
      model.input("x", {1, 3, 4, 5})
          .constant<float>("scales", {4}, {1, 1, 1.5F, 2})
          .integers("sizes", {1, 3, 7, 3});
      const std::vector<test::Attribute> linear{{"coordinate_transformation_mode", mode}, {"mode", "linear"}};
      const std::vector<test::Attribute> nearest{{"coordinate_transformation_mode", mode},
                                                 {"nearest_mode", "ceil"}};
      const test::Names inputs =
          by_sizes ? test::Names{"x", "", "", "sizes"} : test::Names{"x", "", "scales"};
      model.node("Resize", inputs, {"y"}, linear)
          .node("Resize", inputs, {"z"}, nearest)
          .output("y")
          .output("z");
      SCOPED_TRACE(mode);
      expect_round_trip(model);
    }
  }
  OnnxWriter model(13);
  model.input("x", {2, 4, 4, 5})
      .integers("pads", {0, 0, 1, 2, 0, 0, 1, 0})
      .constant<float>("w", {4, 2, 3, 2}, pattern(48, 0.1F))
      .constant<float>("b", {4}, pattern(4, 0.2F))
      .node("Pad", {"x", "pads"}, {"r"}, {{"mode", "reflect"}})
      .node("Pad", {"r", "pads"}, {"e"}, {{"mode", "edge"}})
      .node("ConvTranspose", {"e", "w", "b"}, {"c"},
            {{"group", std::int64_t{2}},
             {"strides", Dims{2, 3}},
             {"pads", Dims{1, 0, 0, 1}},
             {"output_padding", Dims{1, 0}}})
      .node("Relu", {"c"}, {"d"})
      .node("DepthToSpace", {"d"}, {"y"}, {{"blocksize", std::int64_t{2}}, {"mode", "CRD"}})
      .output("y");
  expect_round_trip(model);
}

// As it was read: lower_conv_transpose makes convolutions of it otherwise.
TEST(OnnxWrite, ATransposedConvolutionItself) {
  OnnxWriter model(13);
  model.input("x", {1, 2, 3, 3})
      .constant<float>("w", {2, 3, 2, 2}, pattern(24, 0.1F))
      .node("ConvTranspose", {"x", "w"}, {"y"}, {{"strides", Dims{2, 2}}, {"output_padding", Dims{1, 0}}})
      .output("y");
  const Graph graph = model.read().graph;
  const Graph again = read(write_onnx(graph)).graph;
  EXPECT_EQ(again.nodes()[0].layer->identity(), graph.nodes()[0].layer->identity());
}

// A quantized model with every INT8 layer; `narrow` asks for ranges as plans have them.
OnnxWriter int8_model(bool narrow, bool u8) {
  OnnxWriter model(13);
  const auto conversion = [&](const std::string& from, const std::string& to, float scale) {
    model.constant<float>(to + "_s", {}, {scale});
    if (u8) {
      model.constant<std::uint8_t>(to + "_z", {}, {128});
    } else {
      model.constant<std::int8_t>(to + "_z", {}, {0});
    }
    model.node("QuantizeLinear", {from, to + "_s", to + "_z"}, {to + "_q"})
        .node("DequantizeLinear", {to + "_q", to + "_s", to + "_z"}, {to});
  };
  const auto weights = [&](const std::string& name, const Dims& dims, std::int64_t axis) {
    std::int64_t count = 1;
    for (const std::int64_t d : dims) count *= d;
    std::vector<std::int8_t> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::int8_t>((i * 7919) % 253 - 126);
    const std::int64_t channels = dims[static_cast<std::size_t>(axis)];
    model.constant(name + "_q", dims, values)
        .constant(name + "_s", {channels}, std::vector<float>(static_cast<std::size_t>(channels), 0.01F))
        .node("DequantizeLinear", {name + "_q", name + "_s"}, {name}, {{"axis", axis}});
  };
  model.input("image", {1, 4, 6, 6});
  conversion("image", "x", 0.01F);
  weights("w1", {4, 4, 3, 3}, 0);
  weights("w2", {4, 4, 1, 1}, 0);
  weights("w3", {8, 3}, 1);
  model.node("Conv", {"x", "w1"}, {"c1"}, {{"pads", Dims{1, 1, 1, 1}}}).node("Relu", {"c1"}, {"r1"});
  conversion("r1", "a", 0.02F);
  model.constant<std::int32_t>("b_q", {4}, {10, -200, 3000, 4})
      .constant<float>("b_s", {4}, std::vector<float>(4, 0.02F * 0.01F))
      .node("DequantizeLinear", {"b_q", "b_s"}, {"b"}, {{"axis", std::int64_t{0}}})
      .node("Conv", {"a", "w2", "b"}, {"c2"})
      .node("Add", {"c2", "x"}, {"s2"})
      .node("Relu", {"s2"}, {"r2"});
  conversion("r2", "d", 0.03F);
  model.node("Add", {"a", "d"}, {"s3"});
  conversion("s3", "e", 0.05F);
  model.node("MaxPool", {"e"}, {"m"}, {{"kernel_shape", Dims{2, 2}}, {"strides", Dims{2, 2}}});
  conversion("m", "f", 0.05F);
  model.node("Concat", {"f", "f"}, {"g"}, {{"axis", std::int64_t{1}}});
  conversion("g", "h", 0.05F);
  model.node("GlobalAveragePool", {"h"}, {"p"});
  conversion("p", "i", 0.02F);
  model.node("Flatten", {"i"}, {"j"}).node("MatMul", {"j", "w3"}, {"scores"}).output("scores");
  if (narrow) {
    auto* entry = model.proto().add_metadata_props();
    entry->set_key(std::string(kQuantizedRangeKey));
    entry->set_value(std::string(kNarrowRange));
  }
  return model;
}

std::vector<std::string> layer_types(const Graph& graph) {
  std::vector<std::string> all;
  for (const Node& node : graph.nodes()) all.emplace_back(node.layer->type());
  return all;
}

TEST(OnnxWrite, Int8LayersComeBackAsTheyWere) {
  for (const bool narrow : {false, true}) {
    for (const bool u8 : {false, true}) {
      const Graph graph = fuse(int8_model(narrow, u8).read().graph);
      const std::vector<std::string> expected{"Quantize", "QConv",  "QConv",        "QAdd",
                                              "Pool",     "Concat", "QAveragePool", "Reshape",
                                              "Reshape",  "QConv",  "Reshape"};
      EXPECT_EQ(layer_types(graph), expected);
      const OnnxModel again = read(write_onnx(graph));
      EXPECT_EQ(again.metadata.contains(std::string(kQuantizedRangeKey)), narrow);
      const Graph fused = fuse(again.graph);
      EXPECT_EQ(layer_types(fused), expected);
      std::mt19937 random(test::test_seed());
      std::vector<Tensor> inputs;
      inputs.push_back(test::random_tensor(Shape{1, 4, 6, 6}, random, -2, 2));
      const std::vector<Tensor> a = test::run_graph(optimize(graph), default_registry(), inputs);
      const std::vector<Tensor> b = test::run_graph(optimize(fused), default_registry(), inputs);
      EXPECT_EQ(std::memcmp(a[0].view().data, b[0].view().data, a[0].desc().bytes()), 0);
    }
  }
}

}  // namespace
}  // namespace pipit::internal
