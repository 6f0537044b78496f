// Quantized operators of ONNX and ONNX Runtime: their meaning, by the reference kernels.
#include <gmock/gmock.h>

#include <cmath>

#include "layers/ops/quantize.h"
#include "layers/ops/quantize_axis.h"
#include "tests/models/onnx/onnx_run.h"

namespace pipit::internal {
namespace {

using test::Dims;
using test::one_node;
using test::OnnxWriter;
using test::run;
using test::tensor;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
std::vector<T> values(const OnnxModel& model, const std::vector<test::TensorPtr>& inputs = {},
                      std::size_t output = 0) {
  const auto out = run(model.graph, inputs).at(output);
  return {out->values<T>().begin(), out->values<T>().end()};
}

// A model of one node from domain com.microsoft.
OnnxWriter microsoft_node(const std::string& op, const test::Names& inputs,
                          const std::vector<test::Attribute>& attributes = {}) {
  OnnxWriter model(17);
  model.node(op, inputs, {"y"}, attributes, "com.microsoft").output("y");
  return model;
}

// Quantized to u8 with scale 0.5 and zero point 10: {0, 1, -1, 5}.
OnnxWriter& add_operand(OnnxWriter& model, const std::string& name, const Dims& dims,
                        const std::vector<std::uint8_t>& integers) {
  return model.constant<std::uint8_t>(name, dims, integers)
      .constant<float>(name + "_scale", {}, {0.5F})
      .constant<std::uint8_t>(name + "_zero", {}, {10});
}

// Integers of which a kernel would compute are folded as well where all of them are known.
TEST(OnnxQuantized, ProductsOfConstantsAreConstants) {
  OnnxWriter model(13);
  model.constant<std::uint8_t>("a", {1, 2}, {3, 5})
      .constant<std::uint8_t>("a0", {}, {1})
      .constant<std::int8_t>("b", {2, 2}, {1, -2, 4, 7})
      .node("MatMulInteger", {"a", "b", "a0"}, {"y"})
      .output("y");
  const Graph graph = model.read().graph;
  EXPECT_TRUE(graph.nodes().empty());
  EXPECT_THAT(graph.value(graph.outputs()[0]).constant->values<std::int32_t>(), ElementsAre(18, 24));
}

TEST(OnnxMicrosoft, QuickGelu) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<float> x = {-3, -0.5F, 0, 2};
  for (const float alpha : {0.0F, 1.0F, 2.5F}) {  // 0: the default
    const std::vector<test::Attribute> attributes{{"alpha", alpha}};
    OnnxWriter model =
        microsoft_node("QuickGelu", {"x"}, alpha == 0 ? std::vector<test::Attribute>{} : attributes);
    const std::vector<float> y = values<float>(model.input("x", {4}).read(), {tensor(Shape{4}, x)});
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(y[i], x[i] * sigmoid((alpha == 0 ? 1.702 : alpha) * x[i]), 1e-6);
  }
}

TEST(OnnxQuantized, QuantizeLinearRoundsTiesToEvenAndSaturatesAtTheEndsOfTheType) {
  OnnxWriter model = one_node(13, "QuantizeLinear", {"x", "s", "z"});
  model.input("x", {7}).constant<float>("s", {}, {2}).constant<std::int8_t>("z", {}, {0});
  EXPECT_THAT(values<std::int8_t>(model.read(), {tensor(Shape{7}, {1, 3, -1, -3, 1000, -1000, -255})}),
              ElementsAre(0, 2, 0, -2, 127, -128, -128));
}

TEST(OnnxQuantized, NarrowRangeIsAskedForByMetadata) {
  OnnxWriter model = one_node(13, "QuantizeLinear", {"x", "s", "z"});
  model.input("x", {2}).constant<float>("s", {}, {1}).constant<std::uint8_t>("z", {}, {128});
  EXPECT_THAT(values<std::uint8_t>(model.read(), {tensor(Shape{2}, {-1000, 1000})}), ElementsAre(0, 255));
  auto* entry = model.proto().add_metadata_props();
  entry->set_key(std::string(kQuantizedRangeKey));
  entry->set_value(std::string(kNarrowRange));
  EXPECT_THAT(values<std::uint8_t>(model.read(), {tensor(Shape{2}, {-1000, 1000})}), ElementsAre(1, 255));
  entry->set_key("pipit.quantised_range");  // as files before 0.1.0 have it
  EXPECT_THAT(values<std::uint8_t>(model.read(), {tensor(Shape{2}, {-1000, 1000})}), ElementsAre(1, 255));
  entry->set_value("wide");
  EXPECT_THAT(model.failure<Error>(),
              HasSubstr("metadata pipit.quantized_range is 'wide', expected 'narrow'"));
}

TEST(OnnxQuantized, PerAxisAndWithoutZeroPoint) {
  OnnxWriter quantize = one_node(13, "QuantizeLinear", {"x", "s"}, {{"axis", std::int64_t{-2}}});
  quantize.input("x", {2, 2}).constant<float>("s", {2}, {1, 0.5F});
  EXPECT_THAT(values<std::uint8_t>(quantize.read(), {tensor(Shape{2, 2}, {1, 2, 1, 2})}),
              ElementsAre(1, 2, 2, 4));

  OnnxWriter dequantize = one_node(13, "DequantizeLinear", {"x", "s", "z"}, {{"axis", std::int64_t{1}}});
  dequantize.constant<std::int8_t>("x", {2, 2}, {1, 2, -128, 4})
      .constant<float>("s", {2}, {1, 0.5F})
      .constant<std::int8_t>("z", {2}, {1, 2});
  const OnnxModel model = dequantize.read();
  ASSERT_EQ(model.graph.nodes().size(), 1U);  // not folded: an INT8 kernel may want the integers
  EXPECT_THAT(values<float>(model), ElementsAre(0, 0, -129, 1));
}

TEST(OnnxQuantized, DequantizeLinearOfInt32HasNoZeroPoint) {
  OnnxWriter model = one_node(13, "DequantizeLinear", {"x", "s"}, {{"axis", std::int64_t{0}}});
  model.constant<std::int32_t>("x", {2}, {1 << 20, -3}).constant<float>("s", {2}, {0.25F, 2});
  EXPECT_THAT(values<float>(model.read()), ElementsAre(262144, -6));
  OnnxWriter shifted = one_node(13, "DequantizeLinear", {"x", "s", "z"});
  shifted.constant<std::int32_t>("x", {1}, {1})
      .constant<float>("s", {}, {1})
      .constant<std::int32_t>("z", {}, {1});
  EXPECT_THAT(shifted.failure<Error>(), HasSubstr("the zero point of i32 is 1, not 0"));
}

TEST(OnnxQuantized, ADequantizedConstantServesWhereAConstantIsNeeded) {
  OnnxWriter model(13);
  model.input("x", {3})
      .constant<std::int8_t>("q", {}, {4})
      .constant<float>("s", {}, {0.5F})
      .node("DequantizeLinear", {"q", "s"}, {"low"})
      .node("Clip", {"x", "low"}, {"y"})
      .output("y");
  EXPECT_THAT(values<float>(model.read(), {tensor(Shape{3}, {1, 2, 3})}), ElementsAre(2, 2, 3));
}

TEST(OnnxQuantized, ScaleAndZeroPointMayBeComputed) {
  OnnxWriter model(13);
  model.input("x", {4})
      .input("s", {})
      .input("z", {}, test::onnx_type<std::int8_t>())
      .node("QuantizeLinear", {"x", "s", "z"}, {"q"})
      .node("DequantizeLinear", {"q", "s", "z"}, {"d"})
      .output("q")
      .output("d");
  const std::vector<test::TensorPtr> inputs{tensor(Shape{4}, {0, 1, 3, 1000}), tensor(Shape{}, {2}),
                                            tensor<std::int8_t>(Shape{}, {-5})};
  EXPECT_THAT(values<std::int8_t>(model.read(), inputs), ElementsAre(-5, -5, -3, 127));
  EXPECT_THAT(values<float>(model.read(), inputs, 1), ElementsAre(0, 0, 4, 264));
}

TEST(OnnxQuantized, WhatIsRefused) {
  const auto quantize = [](std::int64_t opset, const Dims& dims, const std::vector<float>& scales,
                           const std::vector<test::Attribute>& attributes = {}) {
    OnnxWriter model = one_node(opset, "QuantizeLinear", {"x", "s"}, attributes);
    return model.input("x", {2, 4}).constant<float>("s", dims, scales);
  };
  EXPECT_THAT(quantize(21, {2, 2}, {1, 1, 1, 1}, {{"block_size", std::int64_t{4}}}).failure<Error>(),
              HasSubstr("2 blocks of 4 for 4 elements"));
  EXPECT_THAT(quantize(21, {3, 2}, {1, 1, 1, 1, 1, 1}).failure<Error>(),
              HasSubstr("scales of shape 3x2 for blocks along axis 1 of 2x4"));
  EXPECT_THAT(quantize(13, {3}, {1, 1, 1}).failure<Error>(), HasSubstr("3 scales for axis 1 of 2x4"));
  EXPECT_THAT(quantize(13, {}, {-1}).failure<Error>(), HasSubstr("the scale of 'x' is -1 ('s')"));
  EXPECT_THAT(quantize(13, {}, {0}).failure<Error>(), HasSubstr("the scale of 'x' is 0, below"));
  EXPECT_THAT(quantize(13, {4}, {1, 1, 1e-40F, 1}).failure<Error>(),
              HasSubstr("the scale of channel 2 of 'x' is 1e-40"));
  EXPECT_THAT(quantize(13, {0}, {}).failure<Error>(), HasSubstr("0 scales and 0 zero points"));
  EXPECT_THAT(quantize(13, {2}, {1, 1}, {{"axis", std::int64_t{2}}}).failure<Error>(),
              HasSubstr("axis 2 of a tensor"));
}

TEST(OnnxQuantized, ScalesOfChannelsMayBeComputed) {
  OnnxWriter model = one_node(13, "QuantizeLinear", {"x", "s"}, {{"axis", std::int64_t{0}}});
  model.input("x", {2, 2}).input("s", {2});
  EXPECT_THAT(
      values<std::uint8_t>(model.read(), {tensor(Shape{2, 2}, {1, 2, 3, 999}), tensor(Shape{2}, {1, 2})}),
      ElementsAre(1, 2, 2, 255));
}

OnnxWriter& add_narrow(OnnxWriter& model, const std::string& name, const Dims& dims, int type,
                       const std::string& bytes) {
  auto& tensor = *model.graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(type);
  tensor.mutable_dims()->Add(dims.begin(), dims.end());
  tensor.set_raw_data(bytes);
  return model;
}

constexpr int kUint16 = 4, kInt16 = 5, kUint4 = 21, kInt4 = 22;

TEST(OnnxQuantized, ActivationsIn16Bits) {
  for (const bool is_signed : {false, true}) {
    OnnxWriter model(21);
    add_narrow(model, "z", {}, is_signed ? kInt16 : kUint16, std::string("\x02\x01", 2));  // 258
    model.input("x", {2, 2})
        .constant<float>("s", {}, {0.5F})
        .node("QuantizeLinear", {"x", "s", "z"}, {"q"})
        .node("Transpose", {"q"}, {"t"})
        .node("DequantizeLinear", {"t", "s", "z"}, {"d"})
        .output("d")
        .output("q");
    const std::vector<test::TensorPtr> inputs{tensor(Shape{2, 2}, {1.25F, -2, 1e6F, -1e6F})};
    const float most = 0.5F * static_cast<float>((is_signed ? 32767 : 65535) - 258);
    const float least = 0.5F * static_cast<float>((is_signed ? -32768 : 0) - 258);
    EXPECT_THAT(values<float>(model.read(), inputs), ElementsAre(1, most, -2, least));
    EXPECT_THAT(values<std::int32_t>(model.read(), inputs, 1),
                ElementsAre(260, 254, is_signed ? 32767 : 65535, is_signed ? -32768 : 0));
  }
}

TEST(OnnxQuantized, WhatWouldOverflowDifferentlyIsRefused) {
  OnnxWriter model(21);
  add_narrow(model, "a", {1}, kUint16, std::string("\xFF\xFF", 2)).node("Add", {"a", "a"}, {"y"}).output("y");
  EXPECT_THAT(model.failure<UnsupportedError>(), HasSubstr("input 0 is uint16; such integers are taken by"));
  OnnxWriter cast = one_node(21, "Cast", {"x"}, {{"to", std::int64_t{kUint16}}}).input("x", {1});
  EXPECT_THAT(cast.failure<UnsupportedError>(), HasSubstr("element type uint16"));
}

TEST(OnnxQuantized, WeightsIn4Bits) {
  for (const bool is_signed : {false, true}) {
    OnnxWriter model(21);
    // 1, 15 or -1, 7, 8 or -8, 3; the last half byte is empty.
    add_narrow(model, "w", {1, 5}, is_signed ? kInt4 : kUint4, "\xF1\x87\x03");
    model.constant<float>("s", {5}, {1, 2, 3, 4, 5})
        .input("x", {1, 5})
        .node("DequantizeLinear", {"w", "s"}, {"d"})
        .node("Add", {"x", "d"}, {"y"})
        .output("y");
    const std::vector<test::TensorPtr> inputs{tensor(Shape{1, 5}, {0, 0, 0, 0, 0})};
    EXPECT_THAT(values<float>(model.read(), inputs),
                ElementsAre(1, is_signed ? -2 : 30, 21, is_signed ? -32 : 32, 15));
  }
}

TEST(OnnxQuantized, ScalesOfBlocks) {
  // 5 rows in blocks of 2 along axis 0, the last one of one row.
  OnnxWriter model(21);
  model.constant<std::int8_t>("w", {5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
      .constant<float>("s", {3, 2}, {1, 2, 10, 20, 100, 200})
      .constant<std::int8_t>("z", {3, 2}, {0, 0, 1, 1, 0, 0})
      .input("x", {5, 2})
      .node("DequantizeLinear", {"w", "s", "z"}, {"d"},
            {{"axis", std::int64_t{0}}, {"block_size", std::int64_t{2}}})
      .node("Add", {"x", "d"}, {"y"})
      .output("y");
  const std::vector<test::TensorPtr> inputs{tensor(Shape{5, 2}, std::vector<float>(10, 0))};
  EXPECT_THAT(values<float>(model.read(), inputs), ElementsAre(1, 4, 3, 8, 40, 100, 60, 140, 900, 2000));
}

// TensorRT's exporter gives channels of zeros such scales.
TEST(OnnxQuantized, AWeightWithAScaleOfZeroIsNothing) {
  OnnxWriter model(13);
  model.constant<float>("w", {3, 1}, {5, 0, 1e-41F})
      .constant<float>("s", {3}, {0.5F, 0, 1e-42F})
      .constant<std::int8_t>("z", {3}, {0, 0, 0})
      .input("x", {3, 1})
      .node("QuantizeLinear", {"w", "s", "z"}, {"q"}, {{"axis", test::kZero}})
      .node("DequantizeLinear", {"q", "s", "z"}, {"d"}, {{"axis", test::kZero}})
      .node("Add", {"x", "d"}, {"y"})
      .output("y");
  EXPECT_THAT(values<float>(model.read(), {tensor(Shape{3, 1}, {1, 2, 3})}), ElementsAre(6, 2, 3));
}

TEST(OnnxQuantized, QLinearConvOfOneTap) {
  // x = {0, 1, -1, 5}; w = 2; bias 3 units of 0.5 * 1 = 1.5; y = 2x + 1.5 in steps of 0.25 from 100.
  OnnxWriter model =
      one_node(13, "QLinearConv", {"x", "x_scale", "x_zero", "w", "ws", "wz", "ys", "yz", "b"});
  add_operand(model, "x", {1, 1, 2, 2}, {10, 12, 8, 20})
      .constant<std::int8_t>("w", {1, 1, 1, 1}, {3})
      .constant<float>("ws", {1}, {1})
      .constant<std::int8_t>("wz", {1}, {1})
      .constant<float>("ys", {}, {0.25F})
      .constant<std::uint8_t>("yz", {}, {100})
      .constant<std::int32_t>("b", {1}, {3});
  EXPECT_THAT(values<std::uint8_t>(model.read()), ElementsAre(106, 114, 98, 146));
}

TEST(OnnxQuantized, IntegerProducts) {
  OnnxWriter model = one_node(13, "MatMulInteger", {"a", "b", "az", "bz"});
  model.constant<std::uint8_t>("a", {2, 2}, {1, 2, 3, 4})
      .constant<std::int8_t>("b", {2, 2}, {1, -1, 0, 5})
      .constant<std::uint8_t>("az", {2}, {1, 3})
      .constant<std::int8_t>("bz", {2}, {1, 0});
  // a less its rows' zero points {{0, 1}, {0, 1}}, b less its columns' {{0, -1}, {-1, 5}}.
  EXPECT_THAT(values<std::int32_t>(model.read()), ElementsAre(-1, 5, -1, 5));
  // A zero point that is computed: here a graph input.
  OnnxWriter running = one_node(13, "MatMulInteger", {"a", "b", "az"});
  running.input("a", {1, 2}, test::onnx_type<std::uint8_t>())
      .input("az", {}, test::onnx_type<std::uint8_t>())
      .constant<std::int8_t>("b", {2, 1}, {1, 10});
  EXPECT_THAT(values<std::int32_t>(running.read(), {tensor<std::uint8_t>(Shape{1, 2}, {7, 9}),
                                                    tensor<std::uint8_t>(Shape{}, {4})}),
              ElementsAre(53));
}

TEST(OnnxQuantized, DynamicQuantizeLinear) {
  OnnxWriter model(13);
  model.input("x", {3})
      .node("DynamicQuantizeLinear", {"x"}, {"y", "s", "z"})
      .output("y")
      .output("s")
      .output("z");
  const OnnxModel read = model.read();
  const auto x = tensor(Shape{3}, {-1, 0, 1.55F});
  EXPECT_THAT(values<std::uint8_t>(read, {x}), ElementsAre(0, 100, 255));
  EXPECT_FLOAT_EQ(values<float>(read, {x}, 1)[0], 0.01F);
  EXPECT_THAT(values<std::uint8_t>(read, {x}, 2), ElementsAre(100));
  const auto zeros = tensor(Shape{3}, {0, 0, 0});
  EXPECT_THAT(values<std::uint8_t>(read, {zeros}), ElementsAre(0, 0, 0));
  EXPECT_THAT(values<std::uint8_t>(read, {zeros}, 2), ElementsAre(0));
}

TEST(OnnxQuantized, OnnxRuntimesSumAndProduct) {
  for (const auto& [op, expected] : std::vector<std::pair<std::string, std::vector<int>>>{
           {"QLinearAdd", {0, 2, -2, 10}}, {"QLinearMul", {0, 1, 1, 25}}}) {
    OnnxWriter model = microsoft_node(
        op, {"a", "a_scale", "a_zero", "b", "b_scale", "b_zero", "ys"});  // no zero point: 0 of u8
    add_operand(model, "a", {4}, {10, 12, 8, 20});
    add_operand(model, "b", {4}, {10, 12, 8, 20}).constant<float>("ys", {}, {1});
    std::vector<std::uint8_t> saturated;
    for (const int v : expected) saturated.push_back(static_cast<std::uint8_t>(std::max(v, 0)));
    EXPECT_EQ(values<std::uint8_t>(model.read()), saturated) << op;
  }
}

TEST(OnnxQuantized, OnnxRuntimesPools) {
  OnnxWriter global = microsoft_node("QLinearGlobalAveragePool", {"x", "x_scale", "x_zero", "ys", "yz"});
  add_operand(global, "x", {1, 1, 2, 2}, {10, 12, 8, 20}).constant<float>("ys", {}, {0.25F});
  global.constant<std::uint8_t>("yz", {}, {7});
  EXPECT_THAT(values<std::uint8_t>(global.read()), ElementsAre(12));  // 1.25 / 0.25 + 7
  OnnxWriter last =
      microsoft_node("QLinearGlobalAveragePool", {"x", "x_scale", "x_zero", "x_scale", "x_zero"},
                     {{"channels_last", std::int64_t{1}}});
  add_operand(last, "x", {1, 2, 2, 1}, {10, 12, 8, 20});
  EXPECT_THAT(last.failure<UnsupportedError>(), HasSubstr("channels_last"));
  OnnxWriter window = microsoft_node("QLinearAveragePool", {"x", "x_scale", "x_zero", "x_scale", "x_zero"},
                                     {{"kernel_shape", Dims{1, 2}}});
  add_operand(window, "x", {1, 1, 2, 2}, {10, 12, 8, 20});
  EXPECT_THAT(values<std::uint8_t>(window.read()), ElementsAre(11, 14));
  // The last window holds one value, and the padding where it counts, but nothing beyond it, as in AveragePool.
  for (const std::int64_t counts : {0, 1}) {
    OnnxWriter ceiled = microsoft_node("QLinearAveragePool", {"x", "x_scale", "x_zero", "x_scale", "x_zero"},
                                       {{"kernel_shape", Dims{1, 3}},
                                        {"strides", Dims{1, 2}},
                                        {"pads", Dims{0, 1, 0, 1}},
                                        {"ceil_mode", std::int64_t{1}},
                                        {"count_include_pad", counts}});
    add_operand(ceiled, "x", {1, 1, 1, 4}, {12, 16, 18, 40});
    EXPECT_THAT(values<std::uint8_t>(ceiled.read()),
                counts == 0 ? ElementsAre(14, 25, 40) : ElementsAre(13, 25, 25));
  }
}

TEST(OnnxQuantized, OnnxRuntimesConcat) {
  OnnxWriter model =
      microsoft_node("QLinearConcat", {"ys", "yz", "a", "a_scale", "a_zero", "b", "b_scale", "b_zero"},
                     {{"axis", std::int64_t{0}}});
  add_operand(model, "a", {2}, {10, 12});
  add_operand(model, "b", {1}, {20}).constant<float>("ys", {}, {1}).constant<std::uint8_t>("yz", {}, {100});
  EXPECT_THAT(values<std::uint8_t>(model.read()), ElementsAre(100, 101, 105));
  OnnxWriter cut = microsoft_node("QLinearConcat", {"ys", "yz", "a", "a_scale"}, {{"axis", std::int64_t{0}}});
  add_operand(cut, "a", {2}, {10, 12}).constant<float>("ys", {}, {1}).constant<std::uint8_t>("yz", {}, {100});
  EXPECT_THAT(cut.failure<Error>(), HasSubstr("4 inputs; expected two and three for every operand"));
}

TEST(OnnxQuantized, OnnxRuntimesGemm) {
  const auto gemm = [](const test::Names& inputs) {
    OnnxWriter model = microsoft_node("QGemm", inputs, {{"transB", std::int64_t{1}}, {"alpha", 2.0F}});
    return add_operand(model, "a", {1, 2}, {12, 8})  // {1, -1}
        .constant<std::int8_t>("b", {2, 2}, {3, 1, 0, 4})
        .constant<float>("bs", {2}, {1, 0.5F})
        .constant<std::int8_t>("bz", {2}, {0, 0})
        .constant<std::int32_t>("c", {2}, {1, 2})
        .constant<float>("ys", {}, {1})
        .constant<std::uint8_t>("yz", {}, {50});
  };
  // b = {{3, 1}, {0, 2}}; 2 * {2, -2} + {1 * 2 * 0.5 * 1, 2 * 2 * 0.5 * 0.5} = {5, -3}
  EXPECT_THAT(values<float>(gemm({"a", "a_scale", "a_zero", "b", "bs", "bz", "c"}).read()),
              ElementsAre(5, -3));
  EXPECT_THAT(values<std::uint8_t>(gemm({"a", "a_scale", "a_zero", "b", "bs", "bz", "c", "ys", "yz"}).read()),
              ElementsAre(55, 47));
}

TEST(OnnxQuantized, OnnxRuntimesFunctions) {
  OnnxWriter leaky =
      microsoft_node("QLinearLeakyRelu", {"x", "x_scale", "x_zero", "x_scale", "x_zero"}, {{"alpha", 0.5F}});
  add_operand(leaky, "x", {3}, {10, 20, 6});
  EXPECT_THAT(values<std::uint8_t>(leaky.read()), ElementsAre(10, 20, 8));
  OnnxWriter sigmoid = microsoft_node("QLinearSigmoid", {"x", "x_scale", "x_zero", "ys"});
  add_operand(sigmoid, "x", {2}, {10, 255}).constant<float>("ys", {}, {1.0F / 256});
  EXPECT_THAT(values<std::uint8_t>(sigmoid.read()), ElementsAre(128, 255));
  OnnxWriter softmax = microsoft_node("QLinearSoftmax", {"x", "x_scale", "x_zero", "ys", ""},
                                      {{"axis", std::int64_t{-1}}, {"opset", std::int64_t{13}}});
  add_operand(softmax, "x", {1, 2}, {10, 10}).constant<float>("ys", {}, {1.0F / 256});
  EXPECT_THAT(values<std::uint8_t>(softmax.read()), ElementsAre(128, 128));
}

TEST(OnnxQuantized, OnnxRuntimesFusedConv) {
  OnnxWriter model =
      microsoft_node("FusedConv", {"x", "w", "b", "z"},
                     {{"activation", std::string("Clip")}, {"activation_params", std::vector<float>{0, 6}}});
  model.input("x", {1, 1, 1, 3})
      .constant<float>("w", {1, 1, 1, 1}, {2})
      .constant<float>("b", {1}, {1})
      .constant<float>("z", {1, 1, 1, 3}, {0, 10, -10});
  EXPECT_THAT(values<float>(model.read(), {tensor(Shape{1, 1, 1, 3}, {1, 1, 1})}), ElementsAre(3, 6, 0));
  OnnxWriter unknown = microsoft_node("FusedConv", {"x", "w"}, {{"activation", std::string("Elu")}});
  unknown.input("x", {1, 1, 1, 3}).constant<float>("w", {1, 1, 1, 1}, {2});
  EXPECT_THAT(unknown.failure<UnsupportedError>(), HasSubstr("activation 'Elu'"));
}

}  // namespace
}  // namespace pipit::internal
