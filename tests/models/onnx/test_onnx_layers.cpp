// Import of windows, linear layers, normalization, reductions and resizing.
#include <gmock/gmock.h>

#include <cmath>

#include "layers/ops/conv.h"
#include "layers/ops/conv_transpose.h"
#include "layers/ops/pool.h"
#include "tests/models/onnx/onnx_run.h"

namespace pipit::internal {
namespace {

using test::Dims;
using test::iota;
using test::kOne;
using test::one_node;
using test::OnnxWriter;
using test::Result;
using test::run;
using test::tensor;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr std::int64_t kTwo = 2;

template <typename L>
const L& only_layer(const Graph& graph) {
  if (graph.nodes().size() != 1) fail("{} nodes", graph.nodes().size());
  return layer_as<L>(*graph.nodes()[0].layer);
}

TEST(OnnxConv, ReadsEveryAttribute) {
  OnnxWriter model = one_node(11, "Conv", {"x", "w", "b"},
                              {{"kernel_shape", Dims{3, 2}},
                               {"strides", Dims{2, 3}},
                               {"dilations", Dims{1, 2}},
                               {"pads", Dims{1, 0, 2, 1}},
                               {"group", kTwo}});
  model.input("x", {1, 4, 9, 9}).constant<float>("w", {6, 2, 3, 2}, std::vector<float>(72));
  model.constant<float>("b", {6}, std::vector<float>(6));
  const Graph graph = model.read().graph;
  const ConvAttributes& conv = only_layer<Conv>(graph).attributes();
  Window expected;
  expected.kernel = {3, 2, 1};
  expected.stride = {2, 3, 1};
  expected.dilation = {1, 2, 1};
  expected.pad_begin = {1, 0, 0};
  expected.pad_end = {2, 1, 0};
  EXPECT_EQ(conv.window, expected);
  EXPECT_EQ(conv.groups, 2);
  EXPECT_EQ(graph.nodes()[0].inputs.size(), 3U);
  EXPECT_EQ(graph.value(graph.outputs()[0]).desc.shape, (Shape{1, 6, 5, 3}));
}

OnnxWriter conv(const Dims& input, const Dims& weights, const std::vector<test::Attribute>& attributes) {
  std::int64_t count = 1;
  for (const std::int64_t extent : weights) count *= extent;
  OnnxWriter model = one_node(11, "Conv", {"x", "w"}, attributes).input("x", input);
  return model.constant<float>("w", weights, std::vector<float>(static_cast<std::size_t>(count), 1));
}

Window conv_window(const Dims& input, const Dims& weights, const std::vector<test::Attribute>& attributes) {
  return only_layer<Conv>(conv(input, weights, attributes).read().graph).attributes().window;
}

// Weights of ones.
OnnxWriter conv_transpose(const Dims& input, const Dims& weights,
                          const std::vector<test::Attribute>& attributes) {
  std::int64_t count = 1;
  for (const std::int64_t extent : weights) count *= extent;
  OnnxWriter model = one_node(11, "ConvTranspose", {"x", "w"}, attributes).input("x", input);
  return model.constant<float>("w", weights, std::vector<float>(static_cast<std::size_t>(count), 1));
}

TEST(OnnxConvTranspose, ReadsEveryAttribute) {
  const Graph graph = conv_transpose({1, 4, 5, 4}, {4, 3, 3, 2},
                                     {{"kernel_shape", Dims{3, 2}},
                                      {"strides", Dims{2, 3}},
                                      {"dilations", Dims{1, 2}},
                                      {"pads", Dims{1, 0, 2, 1}},
                                      {"output_padding", Dims{1, 2}},
                                      {"group", kTwo}})
                          .read()
                          .graph;
  const ConvTransposeAttributes& conv = only_layer<ConvTranspose>(graph).attributes();
  EXPECT_EQ(conv.window.str(), "3x2 s2,3 d1,2 p1,0,2,1");
  EXPECT_THAT(conv.output_padding, ElementsAre(1, 2, 0));
  EXPECT_EQ(conv.groups, 2);
  // (5 - 1) * 2 + 3 + 1 - 3 and (4 - 1) * 3 + 3 + 2 - 1.
  EXPECT_EQ(graph.value(graph.outputs()[0]).desc.shape, (Shape{1, 6, 9, 13}));
}

// The pads that the outputs' extents leave, the odd one at the end for SAME_UPPER and at the beginning otherwise.
TEST(OnnxConvTranspose, PadsFollowFromTheOutput) {
  const auto pads = [](const std::vector<test::Attribute>& attributes, const Shape& expected) {
    std::vector<test::Attribute> all = attributes;
    all.push_back({"strides", Dims{2, 2}});
    const Graph graph = conv_transpose({1, 1, 4, 4}, {1, 1, 5, 3}, all).read().graph;
    EXPECT_EQ(graph.value(graph.outputs()[0]).desc.shape, expected);
    const ConvTransposeAttributes& conv = only_layer<ConvTranspose>(graph).attributes();
    return std::vector<std::int64_t>{conv.window.pad_begin[0], conv.window.pad_begin[1],
                                     conv.window.pad_end[0], conv.window.pad_end[1], conv.output_padding[0]};
  };
  const auto mode = [](const char* name) { return test::Attribute{"auto_pad", std::string(name)}; };
  EXPECT_THAT(pads({}, Shape{1, 1, 11, 9}), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(pads({mode("VALID")}, Shape{1, 1, 11, 9}), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_THAT(pads({mode("SAME_UPPER")}, Shape{1, 1, 8, 8}), ElementsAre(1, 0, 2, 1, 0));
  EXPECT_THAT(pads({mode("SAME_LOWER")}, Shape{1, 1, 8, 8}), ElementsAre(2, 1, 1, 0, 0));
  EXPECT_THAT(pads({{"output_shape", Dims{8, 8}}}, Shape{1, 1, 8, 8}), ElementsAre(2, 1, 1, 0, 0));
  EXPECT_THAT(pads({{"output_shape", Dims{8, 8}}, mode("SAME_UPPER")}, Shape{1, 1, 8, 8}),
              ElementsAre(1, 0, 2, 1, 0));
  // With batch and channels; more than all taps reach: only the bias is there.
  EXPECT_THAT(pads({{"output_shape", Dims{1, 1, 13, 9}}}, Shape{1, 1, 13, 9}), ElementsAre(0, 0, 0, 0, 2));
  EXPECT_THAT(conv_transpose({1, 1, 4, 4}, {1, 1, 5, 3}, {{"output_shape", Dims{8, 8, 8}}}).failure<Error>(),
              HasSubstr("'output_shape' has 3 numbers, expected 2"));
  EXPECT_THAT(conv_transpose({1, 1, 4, 4}, {1, 1, 5, 3}, {{"output_shape", Dims{8, 0}}}).failure<Error>(),
              HasSubstr("0 positions"));
}

TEST(OnnxConv, AutoPad) {
  const auto pads = [](const char* mode) {
    const Window window =
        conv_window({1, 1, 6, 5}, {1, 1, 4, 3}, {{"auto_pad", std::string(mode)}, {"strides", Dims{1, 2}}});
    return std::vector<std::int64_t>{window.pad_begin[0], window.pad_begin[1], window.pad_end[0],
                                     window.pad_end[1]};
  };
  EXPECT_THAT(pads("NOTSET"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(pads("VALID"), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(pads("SAME_UPPER"), ElementsAre(1, 1, 2, 1));
  EXPECT_THAT(pads("SAME_LOWER"), ElementsAre(2, 1, 1, 1));
  // Strides beyond the window: of 9 rows the third window needs one more, of 8 the second has two to spare.
  const auto apart = [](const char* mode) {
    const Window window =
        conv_window({1, 1, 9, 8}, {1, 1, 2, 2}, {{"auto_pad", std::string(mode)}, {"strides", Dims{4, 4}}});
    return std::vector<std::int64_t>{window.pad_begin[0], window.pad_begin[1], window.pad_end[0],
                                     window.pad_end[1]};
  };
  EXPECT_THAT(apart("SAME_UPPER"), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(apart("SAME_LOWER"), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(conv({1, 1, 6, 5}, {1, 1, 3, 3}, {{"auto_pad", std::string("SAME")}}).failure<Error>(),
              HasSubstr("'auto_pad' is 'SAME'"));
  EXPECT_THAT(
      conv({1, 1, 6, 5}, {1, 1, 3, 3}, {{"auto_pad", std::string("VALID")}, {"pads", Dims{1, 1, 1, 1}}})
          .failure<Error>(),
      HasSubstr("'auto_pad' and 'pads' (1,1,1,1) contradict"));
}

TEST(OnnxConv, OneAndThreeDimensions) {
  EXPECT_EQ(conv_window({1, 1, 6}, {1, 1, 3}, {{"pads", Dims{1, 1}}}).str(), "3 p1");
  EXPECT_EQ(conv_window({1, 1, 6, 6, 6}, {1, 1, 3, 2, 1}, {{"strides", Dims{2, 2, 2}}}).str(), "3x2x1 s2");
  EXPECT_THAT(conv({1, 1, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 1}, {}).failure<UnsupportedError>(),
              HasSubstr("1 to 3 spatial dimensions"));
}

TEST(OnnxConv, ContradictionsAreRefused) {
  EXPECT_THAT(conv({1, 1, 6, 6}, {1, 1, 3, 3}, {{"kernel_shape", Dims{3, 2}}}).failure<Error>(),
              HasSubstr("'kernel_shape' is 3x2, but the weights' kernel is 3x3"));
  EXPECT_THAT(conv({1, 1, 6, 6}, {1, 1, 3, 3}, {{"pads", Dims{1, 1}}}).failure<Error>(),
              HasSubstr("'pads' has 2 numbers, expected 4 for input 1x1x6x6"));
  EXPECT_THAT(conv({1, 1, 6, 6}, {1, 1, 3}, {}).failure<Error>(), HasSubstr("a kernel of 1 dimensions"));
  EXPECT_THAT(conv({1, 1, 6, 6}, {1, 1}, {}).failure<Error>(), HasSubstr("weights 1x1"));
  EXPECT_THAT(conv({1, 3, 6, 6}, {1, 2, 3, 3}, {}).failure<Error>(),
              HasSubstr("node 'the_Conv' (Conv, opset 11)"));
}

TEST(OnnxPool, Kinds) {
  const auto x = iota({1, 1, 3, 3});
  const test::Attribute kernel{"kernel_shape", Dims{2, 2}};
  const auto pooled = [&](const char* op, std::int64_t opset,
                          const std::vector<test::Attribute>& attributes) {
    return run(one_node(opset, op, {"x"}, attributes).input("x", {1, 1, 3, 3}), {x}).values;
  };
  EXPECT_THAT(pooled("MaxPool", 7, {kernel}), ElementsAre(4, 5, 7, 8));
  EXPECT_THAT(pooled("MaxPool", 10, {kernel, {"strides", Dims{2, 2}}}), ElementsAre(4));
  EXPECT_THAT(pooled("MaxPool", 10, {kernel, {"strides", Dims{2, 2}}, {"ceil_mode", kOne}}),
              ElementsAre(4, 5, 7, 8));
  EXPECT_THAT(pooled("MaxPool", 10, {kernel, {"dilations", Dims{2, 2}}}), ElementsAre(8));
  EXPECT_THAT(pooled("AveragePool", 7, {kernel}), ElementsAre(2, 3, 5, 6));
  const test::Attribute pads{"pads", Dims{1, 1, 0, 0}};
  const test::Attribute strides{"strides", Dims{3, 3}};
  EXPECT_THAT(pooled("AveragePool", 7, {kernel, pads, strides}), ElementsAre(0));
  EXPECT_THAT(pooled("AveragePool", 19, {kernel, {"dilations", Dims{2, 2}}}), ElementsAre(4));
  EXPECT_THAT(pooled("LpPool", 11, {kernel, {"p", kOne}}), ElementsAre(8, 12, 20, 24));
  EXPECT_THAT(pooled("LpPool", 18, {kernel, strides}), ElementsAre(DoubleNear(std::sqrt(26.0), 1e-6)));
  EXPECT_THAT(pooled("GlobalAveragePool", 7, {}), ElementsAre(4));
  EXPECT_THAT(pooled("GlobalMaxPool", 7, {}), ElementsAre(8));
  EXPECT_THAT(pooled("GlobalLpPool", 7, {{"p", kOne}}), ElementsAre(36));
  EXPECT_THAT(pooled("GlobalLpPool", 7, {}), ElementsAre(DoubleNear(std::sqrt(204.0), 1e-6)));
  EXPECT_THAT(one_node(11, "MaxPool", {"x"}).input("x", {1, 1, 3, 3}).failure<Error>(),
              HasSubstr("'kernel_shape' is missing"));
}

// The extent of the input over the stride, rounded up; ONNX Runtime leaves the dilation out and answers 1 x 1.
TEST(OnnxPool, DilatedWindowsWithAutoPad) {
  const auto pooled = [](const char* mode) {
    OnnxWriter model = one_node(12, "MaxPool", {"x"},
                                {{"kernel_shape", Dims{2, 2}},
                                 {"dilations", Dims{2, 2}},
                                 {"strides", Dims{2, 2}},
                                 {"auto_pad", std::string(mode)}});
    return run(model.input("x", {1, 1, 3, 3}), {iota({1, 1, 3, 3})});
  };
  EXPECT_EQ(pooled("SAME_UPPER").shape, (Shape{1, 1, 2, 2}));
  // A window of 3 with a hole, and 2 more pixels than there are: one on each side.
  EXPECT_THAT(pooled("SAME_UPPER").values, ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(pooled("SAME_LOWER").values, ElementsAre(4, 4, 4, 4));
}

TEST(OnnxPool, PaddingInTheDivisor) {
  const auto corner = [](const std::vector<test::Attribute>& more) {
    std::vector<test::Attribute> attributes = {{"kernel_shape", Dims{2, 2}}, {"pads", Dims{1, 1, 0, 0}}};
    attributes.insert(attributes.end(), more.begin(), more.end());
    return run(one_node(11, "AveragePool", {"x"}, attributes).input("x", {1, 1, 1, 1}),
               {tensor({1, 1, 1, 1}, {8})})
        .values;
  };
  EXPECT_THAT(corner({}), ElementsAre(8));
  EXPECT_THAT(corner({{"count_include_pad", kOne}}), ElementsAre(2));
}

TEST(OnnxPool, IndicesOfMaxima) {
  const auto indices = [](std::int64_t order) {
    OnnxWriter model(12);
    model.input("x", {1, 1, 2, 3});
    model.node("MaxPool", {"x"}, {"y", "i"}, {{"kernel_shape", Dims{2, 2}}, {"storage_order", order}});
    model.output("i");
    return run(model, {iota({1, 1, 2, 3})}).values;
  };
  EXPECT_THAT(indices(0), ElementsAre(4, 5));
  EXPECT_THAT(indices(1), ElementsAre(3, 5));
}

TEST(OnnxLinear, GemmAndMatMul) {
  OnnxWriter gemm = one_node(11, "Gemm", {"a", "b", "c"},
                             {{"alpha", 2.0F}, {"beta", 3.0F}, {"transA", kOne}, {"transB", kOne}});
  gemm.input("a", {2, 1})
      .constant<float>("b", {3, 2}, {1, 2, 3, 4, 5, 6})
      .constant<float>("c", {3}, {1, 0, -1});
  EXPECT_THAT(run(gemm, {tensor({2, 1}, {1, 10})}).values, ElementsAre(45, 86, 127));
  OnnxWriter plain = one_node(11, "Gemm", {"a", "b"}).input("a", {1, 2}).constant<float>("b", {2, 1}, {3, 4});
  EXPECT_THAT(run(plain, {tensor({1, 2}, {1, 10})}).values, ElementsAre(43));
  EXPECT_THAT(one_node(9, "Gemm", {"a", "a"}).input("a", {1, 1}).failure<Error>(),
              HasSubstr("2 inputs, expected 3"));
  OnnxWriter product = one_node(9, "MatMul", {"a", "b"}).input("a", {1, 2}).constant<float>("b", {2}, {3, 4});
  EXPECT_THAT(run(product, {tensor({1, 2}, {1, 10})}).values, ElementsAre(43));
}

TEST(OnnxNormalization, BatchNormalization) {
  for (const std::int64_t opset : {7, 9, 14, 15}) {
    OnnxWriter model = one_node(opset, "BatchNormalization", {"x", "s", "b", "m", "v"},
                                {{"epsilon", 3.0F}, {"momentum", 0.5F}});
    model.input("x", {1, 2, 2}).constant<float>("s", {2}, {2, 3}).constant<float>("b", {2}, {1, -1});
    model.constant<float>("m", {2}, {4, 0}).constant<float>("v", {2}, {1, 6});
    EXPECT_THAT(run(model, {tensor({1, 2, 2}, {4, 6, 1, 2})}).values, ElementsAre(1, 3, 0, 1));
  }
  const auto refused = [](std::int64_t opset, const test::Attribute& attribute) {
    OnnxWriter model = one_node(opset, "BatchNormalization", {"x", "v", "v", "v", "v"}, {attribute});
    return model.input("x", {1, 1, 2}).constant<float>("v", {1}, {1}).failure<UnsupportedError>();
  };
  EXPECT_THAT(refused(15, {"training_mode", kOne}), HasSubstr("training mode"));
  EXPECT_THAT(refused(7, {"spatial", std::int64_t{0}}), HasSubstr("'spatial' = 0"));
}

TEST(OnnxNormalization, BatchNormalizationStandardizesWeights) {
  const auto standardized = [](const Dims& dims) {
    OnnxWriter model = one_node(15, "BatchNormalization", {"w", "s", "b", "unused", "unused"},
                                {{"epsilon", 0.0F}, {"training_mode", kOne}});
    model.constant<float>("w", dims, {1, 3, -2, 2}).constant<float>("s", {2}, {1, 10});
    return model.constant<float>("b", {2}, {0, 1}).constant<float>("unused", {2}, {7, 7});
  };
  EXPECT_THAT(run(standardized({1, 2, 2})).values, ElementsAre(DoubleNear(-1, 1e-6), DoubleNear(1, 1e-6),
                                                               DoubleNear(-9, 1e-5), DoubleNear(11, 1e-5)));
  EXPECT_THAT(standardized({2, 2, 1}).failure<UnsupportedError>(), HasSubstr("training mode"));
  // Nothing is computed of the running statistics, which are other nodes' results.
  OnnxWriter model(15);
  model.node("NoSuchOperator", {"w"}, {"statistics"});
  model.node("BatchNormalization", {"w", "s", "b", "statistics", "statistics"}, {"y"},
             {{"epsilon", 0.0F}, {"training_mode", kOne}});
  model.constant<float>("w", {1, 2, 2}, {1, 3, -2, 2}).constant<float>("s", {2}, {1, 10});
  model.constant<float>("b", {2}, {0, 1}).output("y");
  EXPECT_THAT(run(model).values, ElementsAre(DoubleNear(-1, 1e-6), DoubleNear(1, 1e-6), DoubleNear(-9, 1e-5),
                                             DoubleNear(11, 1e-5)));
}

// (x - mean) / sqrt(variance + epsilon) of consecutive runs of `group` numbers.
std::vector<double> normalized(const Tensor& x, std::size_t group, double epsilon) {
  std::vector<double> y;
  const auto values = x.values<float>();
  for (std::size_t begin = 0; begin < values.size(); begin += group) {
    double mean = 0;
    double variance = 0;
    for (std::size_t i = begin; i < begin + group; ++i) mean += values[i] / static_cast<double>(group);
    for (std::size_t i = begin; i < begin + group; ++i) {
      variance += (values[i] - mean) * (values[i] - mean) / static_cast<double>(group);
    }
    for (std::size_t i = begin; i < begin + group; ++i)
      y.push_back((values[i] - mean) / std::sqrt(variance + epsilon));
  }
  return y;
}

TEST(OnnxNormalization, LayerInstanceAndGroup) {
  const auto x = tensor({1, 4, 2}, {1, 2, 4, 8, -1, 5, 0, 3});
  const double tolerance = 1e-6;
  OnnxWriter layer = one_node(17, "LayerNormalization", {"x", "s", "b"}, {{"epsilon", 0.5F}, {"axis", kOne}});
  layer.input("x", {1, 4, 2}).constant<float>("s", {4, 2}, std::vector<float>(8, 1));
  layer.constant<float>("b", {4, 2}, std::vector<float>(8, 0));
  EXPECT_THAT(run(layer, {x}).values, Pointwise(DoubleNear(tolerance), normalized(*x, 8, 0.5)));

  OnnxWriter instance = one_node(17, "InstanceNormalization", {"x", "s", "b"}, {{"epsilon", 0.5F}});
  instance.input("x", {1, 4, 2})
      .constant<float>("s", {4}, {1, 2, 3, 4})
      .constant<float>("b", {4}, {0, 1, 2, 3});
  std::vector<double> expected = normalized(*x, 2, 0.5);
  for (std::size_t i = 0; i < 8; ++i) {
    const std::size_t channel = i / 2;
    expected[i] = expected[i] * static_cast<double>(channel + 1) + static_cast<double>(channel);
  }
  EXPECT_THAT(run(instance, {x}).values, Pointwise(DoubleNear(tolerance * 10), expected));

  const auto group = [&](std::int64_t opset, const std::vector<float>& scale,
                         const std::vector<float>& bias) {
    OnnxWriter model =
        one_node(opset, "GroupNormalization", {"x", "s", "b"}, {{"num_groups", kTwo}, {"epsilon", 0.5F}});
    const Dims dims = {static_cast<std::int64_t>(scale.size())};
    return model.input("x", {1, 4, 2}).constant("s", dims, scale).constant("b", dims, bias);
  };
  expected = normalized(*x, 4, 0.5);
  std::vector<double> per_group = expected;
  std::vector<double> per_channel = expected;
  for (std::size_t i = 0; i < 8; ++i) {
    per_group[i] = expected[i] * (i < 4 ? 2 : 3) + (i < 4 ? 1 : -1);
    const std::size_t channel = i / 2;
    per_channel[i] = expected[i] * static_cast<double>(channel + 1) + static_cast<double>(channel);
  }
  EXPECT_THAT(run(group(18, {2, 3}, {1, -1}), {x}).values, Pointwise(DoubleNear(tolerance * 10), per_group));
  EXPECT_THAT(run(group(21, {1, 2, 3, 4}, {0, 1, 2, 3}), {x}).values,
              Pointwise(DoubleNear(tolerance * 10), per_channel));
  EXPECT_THAT(group(21, {1, 2}, {0, 1}).failure<Error>(), HasSubstr("scale is 2, expected 4"));
}

TEST(OnnxNormalization, Lrn) {
  OnnxWriter model =
      one_node(13, "LRN", {"x"}, {{"size", kTwo}, {"alpha", 4.0F}, {"beta", 1.0F}, {"bias", 2.0F}});
  // Windows of two channels: itself and the next one.
  EXPECT_THAT(run(model.input("x", {1, 2, 1}), {tensor({1, 2, 1}, {1, 2})}).values,
              ElementsAre(DoubleNear(1.0 / 12, 1e-7), DoubleNear(0.2, 1e-7)));
  EXPECT_THAT(one_node(13, "LRN", {"x"}).input("x", {1, 2, 1}).failure<Error>(),
              HasSubstr("'size' is missing"));
}

TEST(OnnxNormalization, SoftmaxChangedInOpset13) {
  const auto x = tensor({2, 2, 2}, std::vector<float>(8, 0));
  const auto first = [&](std::int64_t opset, const char* op, const std::vector<test::Attribute>& attributes) {
    return run(one_node(opset, op, {"x"}, attributes).input("x", {2, 2, 2}), {x}).values[0];
  };
  EXPECT_DOUBLE_EQ(first(12, "Softmax", {}), 0.25);  // axis 1 and all after it
  EXPECT_DOUBLE_EQ(first(12, "Softmax", {{"axis", std::int64_t{0}}}), 0.125);
  EXPECT_DOUBLE_EQ(first(13, "Softmax", {}), 0.5);  // the last axis
  EXPECT_NEAR(first(12, "LogSoftmax", {}), std::log(0.25), 1e-6);
  EXPECT_NEAR(first(13, "LogSoftmax", {{"axis", kOne}}), std::log(0.5), 1e-6);
}

}  // namespace
}  // namespace pipit::internal
