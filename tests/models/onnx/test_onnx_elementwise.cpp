// Import of element-wise operators: which function, which defaults, which forms of their parameters.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/models/onnx/onnx_run.h"

namespace pipit::internal {
namespace {

using test::Dims;
using test::iota;
using test::one_node;
using test::OnnxWriter;
using test::Result;
using test::run;
using test::tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct UnaryCase {
  const char* op;
  std::int64_t opset;
  std::vector<test::Attribute> attributes;
  std::function<double(double)> f;
};

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST(OnnxElementwise, UnaryFunctionsAndTheirDefaults) {
  constexpr double kSeluAlpha = 1.67326319217681884765625;
  constexpr double kSeluGamma = 1.05070102214813232421875;
  const auto elu = [](double alpha) {
    return [alpha](double x) { return x < 0 ? alpha * std::expm1(x) : x; };
  };
  const std::vector<UnaryCase> cases = {
      {"Abs", 7, {}, [](double x) { return std::abs(x); }},
      {"Ceil", 7, {}, [](double x) { return std::ceil(x); }},
      {"Celu", 12, {}, elu(1)},
      {"Celu", 12, {{"alpha", 2.0F}}, [](double x) { return x < 0 ? 2 * std::expm1(x / 2) : x; }},
      {"Cos", 7, {}, [](double x) { return std::cos(x); }},
      {"Elu", 7, {}, elu(1)},
      {"Elu", 7, {{"alpha", 2.0F}}, elu(2)},
      {"Erf", 9, {}, [](double x) { return std::erf(x); }},
      {"Exp", 7, {}, [](double x) { return std::exp(x); }},
      {"Floor", 7, {}, [](double x) { return std::floor(x); }},
      {"Gelu", 20, {}, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {"Gelu",
       20,
       {{"approximate", std::string("tanh")}},
       [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }},
      {"HardSigmoid", 7, {}, [](double x) { return std::clamp(0.2 * x + 0.5, 0.0, 1.0); }},
      {"HardSigmoid",
       7,
       {{"alpha", 0.5F}, {"beta", 0.25F}},
       [](double x) { return std::clamp(0.5 * x + 0.25, 0.0, 1.0); }},
      {"HardSwish", 14, {}, [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }},
      {"LeakyRelu", 7, {}, [](double x) { return x < 0 ? 0.01 * x : x; }},
      {"LeakyRelu", 7, {{"alpha", 0.25F}}, [](double x) { return x < 0 ? 0.25 * x : x; }},
      {"Log", 7, {}, [](double x) { return std::log(x); }},
      {"Mish", 18, {}, [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
      {"Neg", 7, {}, [](double x) { return -x; }},
      {"Reciprocal", 7, {}, [](double x) { return 1 / x; }},
      {"Relu", 7, {}, [](double x) { return std::max(x, 0.0); }},
      {"Round", 11, {}, [](double x) { return std::nearbyint(x); }},
      {"Selu", 7, {}, [](double x) { return kSeluGamma * (x < 0 ? kSeluAlpha * std::expm1(x) : x); }},
      {"Selu",
       7,
       {{"alpha", 2.0F}, {"gamma", 3.0F}},
       [](double x) { return 3 * (x < 0 ? 2 * std::expm1(x) : x); }},
      {"Sigmoid", 7, {}, sigmoid},
      {"Sign", 9, {}, [](double x) { return x < 0 ? -1 : 1; }},
      {"Sin", 7, {}, [](double x) { return std::sin(x); }},
      {"Softplus", 7, {}, [](double x) { return std::log1p(std::exp(x)); }},
      {"Softsign", 7, {}, [](double x) { return x / (1 + std::abs(x)); }},
      {"Sqrt", 7, {}, [](double x) { return std::sqrt(x); }},
      {"Swish", 24, {}, [](double x) { return x * sigmoid(x); }},
      {"Swish", 24, {{"alpha", 2.0F}}, [](double x) { return x * sigmoid(2 * x); }},
      {"Tanh", 7, {}, [](double x) { return std::tanh(x); }},
      {"ThresholdedRelu", 10, {}, [](double x) { return x > 1 ? x : 0; }},
      {"ThresholdedRelu", 10, {{"alpha", 2.0F}}, [](double x) { return x > 2 ? x : 0; }},
  };
  const std::vector<float> x = {-4.25F, -1.5F, -0.5F, 0.3F, 1.5F, 2.5F, 7};
  for (const UnaryCase& c : cases) {
    SCOPED_TRACE(fmt::format("{} opset {} with {} attributes", c.op, c.opset, c.attributes.size()));
    const Result y = run(one_node(c.opset, c.op, {"x"}, c.attributes).input("x", {7}), {tensor({7}, x)});
    ASSERT_EQ(y.shape, Shape{7});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = c.f(x[i]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(y.values[i])) << "f(" << x[i] << ") is " << y.values[i];
      } else {
        // Attributes and results are rounded to float once each.
        EXPECT_NEAR(y.values[i], expected, 3e-7 * std::max(1.0, std::abs(expected))) << "f(" << x[i] << ")";
      }
    }
  }
  EXPECT_THAT(
      one_node(20, "Gelu", {"x"}, {{"approximate", std::string("sin")}}).input("x", {1}).failure<Error>(),
      HasSubstr("'approximate' is 'sin'"));
}

TEST(OnnxElementwise, BoundsOfClipMayBeComputed) {
  OnnxWriter model = one_node(13, "Clip", {"x", "low", "high"});
  model.input("x", {4}).input("low", {1}).input("high", {});
  const std::vector<test::TensorPtr> inputs{tensor(Shape{4}, {-3, -1, 1, 3}), tensor(Shape{1}, {-2}),
                                            tensor(Shape{}, {2})};
  EXPECT_THAT(run(model, inputs).values, ElementsAre(-2, -1, 1, 2));
  OnnxWriter one = one_node(13, "Clip", {"x", "", "high"});
  one.input("x", {4}).input("high", {});
  EXPECT_THAT(run(one, {inputs[0], inputs[2]}).values, ElementsAre(-3, -1, 1, 2));
}

TEST(OnnxElementwise, ClipInBothForms) {
  const auto x = tensor({4}, {-3, -1, 1, 3});
  const auto clip = [&](OnnxWriter model) { return run(model.input("x", {4}), {x}).values; };
  EXPECT_THAT(clip(one_node(7, "Clip", {"x"})), ElementsAre(-3, -1, 1, 3));
  EXPECT_THAT(clip(one_node(7, "Clip", {"x"}, {{"min", -2.0F}})), ElementsAre(-2, -1, 1, 3));
  EXPECT_THAT(clip(one_node(10, "Clip", {"x"}, {{"max", 2.0F}, {"min", 0.0F}})), ElementsAre(0, 0, 1, 2));
  const auto with_inputs = [&](const test::Names& inputs) {
    return clip(
        one_node(13, "Clip", inputs).constant<float>("low", {}, {-2}).constant<float>("high", {1}, {2}));
  };
  EXPECT_THAT(with_inputs({"x"}), ElementsAre(-3, -1, 1, 3));
  EXPECT_THAT(with_inputs({"x", "low"}), ElementsAre(-2, -1, 1, 3));
  EXPECT_THAT(with_inputs({"x", "", "high"}), ElementsAre(-3, -1, 1, 2));
  EXPECT_THAT(with_inputs({"x", "low", "high"}), ElementsAre(-2, -1, 1, 2));
  EXPECT_THAT(
      one_node(13, "Clip", {"x", "two"}).input("x", {4}).constant<float>("two", {2}, {1, 2}).failure<Error>(),
      HasSubstr("min is f32 2, expected one number"));
  EXPECT_THAT(one_node(13, "Clip", {"x"}, {{"min", -2.0F}}).input("x", {4}).failure<UnsupportedError>(),
              HasSubstr("attribute 'min' is not supported"));
}

TEST(OnnxElementwise, OneConstantExponentMakesPowAFunction) {
  const auto model = [](const Dims& exponent, const std::vector<float>& values) {
    return one_node(13, "Pow", {"x", "e"}).input("x", {2, 3}).constant<float>("e", exponent, values);
  };
  const auto x = tensor({2, 3}, {-2, -0.5F, 0, 1, 4, 9});
  for (const Dims& one : {Dims{}, Dims{1}, Dims{1, 1}}) {
    const OnnxModel read = model(one, {2}).read();
    ASSERT_EQ(read.graph.nodes().size(), 1U);
    EXPECT_EQ(read.graph.nodes()[0].layer->summary(), "pow 2");
    EXPECT_THAT(run(model(one, {2}), {x}).values, ElementsAre(4, 0.25, 0, 1, 16, 81));
  }
  // An exponent of another type counts with its value; of several, or of a higher rank, there is no one function.
  const OnnxModel integer =
      one_node(13, "Pow", {"x", "e"}).input("x", {2}).constant<std::int64_t>("e", {}, {3}).read();
  EXPECT_EQ(integer.graph.nodes()[0].layer->summary(), "pow 3");
  EXPECT_EQ(model({3}, {1, 2, 3}).read().graph.nodes()[0].layer->type(), "Binary");
  EXPECT_EQ(model({1, 1, 1}, {2}).read().graph.nodes()[0].layer->type(), "Binary");
  // Integers stay with the integer arithmetic.
  const OnnxModel whole = one_node(13, "Pow", {"x", "e"})
                              .input("x", {2}, test::onnx_type<std::int32_t>())
                              .constant<std::int32_t>("e", {}, {3})
                              .read();
  EXPECT_EQ(whole.graph.nodes()[0].layer->type(), "Binary");
}

TEST(OnnxElementwise, BinaryFunctionsBroadcast) {
  const auto a = tensor({2, 1}, {6, -4});
  const auto b = tensor({2}, {4, 6});
  const auto values = [&](const char* op, std::int64_t opset,
                          const std::vector<test::Attribute>& attributes = {}) {
    const Result y =
        run(one_node(opset, op, {"a", "b"}, attributes).input("a", {2, 1}).input("b", {2}), {a, b});
    EXPECT_EQ(y.shape, (Shape{2, 2})) << op;
    return y.values;
  };
  EXPECT_THAT(values("Add", 7), ElementsAre(10, 12, 0, 2));
  EXPECT_THAT(values("Sub", 7), ElementsAre(2, 0, -8, -10));
  EXPECT_THAT(values("Mul", 7), ElementsAre(24, 36, -16, -24));
  EXPECT_THAT(values("Div", 7), ElementsAre(1.5, 1, -1, static_cast<double>(-4.0F / 6)));
  EXPECT_THAT(values("Pow", 7), ElementsAre(1296, 46656, 256, 4096));
  EXPECT_THAT(values("Mod", 10, {{"fmod", std::int64_t{1}}}), ElementsAre(2, 0, 0, -4));
  EXPECT_THAT(values("Min", 8), ElementsAre(4, 6, -4, -4));
  EXPECT_THAT(values("Max", 8), ElementsAre(6, 6, 4, 6));
  EXPECT_THAT(values("Sum", 8), ElementsAre(10, 12, 0, 2));
  EXPECT_THAT(values("Mean", 8), ElementsAre(5, 6, 0, 1));
  EXPECT_THAT(values("Equal", 11), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(values("Less", 9), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(values("LessOrEqual", 12), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(values("Greater", 9), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(values("GreaterOrEqual", 12), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(one_node(10, "Mod", {"a", "a"}).input("a", {2}).failure<Error>(),
              HasSubstr("Mod of f32 without attribute 'fmod' = 1"));
  EXPECT_THAT(one_node(10, "Add", {"a", "b"}).input("a", {2}).input("b", {3}).failure<Error>(),
              HasSubstr("node 'the_Add' (Add, opset 10): shapes 2 and 3 do not broadcast"));
}

TEST(OnnxElementwise, IntegerMod) {
  OnnxWriter model = one_node(13, "Mod", {"a", "b"});
  model.integers("a", {-4, 7, 5}).integers("b", {3, 3, -3});
  EXPECT_THAT(run(model).values, ElementsAre(2, 1, -1));
  OnnxWriter fmod = one_node(13, "Mod", {"a", "b"}, {{"fmod", std::int64_t{1}}});
  fmod.integers("a", {-4, 7, 5}).integers("b", {3, 3, -3});
  EXPECT_THAT(run(fmod).values, ElementsAre(-1, 1, 2));
  OnnxWriter zero = one_node(13, "Div", {"a", "b"});
  zero.integers("a", {1}).integers("b", {0});
  EXPECT_THAT(zero.failure<Error>(), HasSubstr("node 'the_Div' (Div, opset 13): "));
}

TEST(OnnxElementwise, VariadicFunctionsTakeAnyNumberOfInputs) {
  const std::vector<test::TensorPtr> inputs = {tensor({2}, {1, 5}), tensor({2}, {3, 3}), tensor({1}, {8})};
  const auto values = [&](const char* op, int count) {
    OnnxWriter model;
    test::Names names;
    for (int i = 0; i < count; ++i) {
      names.push_back(fmt::format("x{}", i));
      model.input(names.back(), {i == 2 ? 1 : 2});
    }
    model.node(op, names, {"y"}).output("y");
    return run(model, {inputs.begin(), inputs.begin() + count}).values;
  };
  EXPECT_THAT(values("Sum", 1), ElementsAre(1, 5));
  EXPECT_THAT(values("Sum", 3), ElementsAre(12, 16));
  EXPECT_THAT(values("Mean", 1), ElementsAre(1, 5));
  EXPECT_THAT(values("Mean", 2), ElementsAre(2, 4));
  EXPECT_THAT(values("Mean", 3), ElementsAre(4, static_cast<double>(16.0F / 3)));
  EXPECT_THAT(values("Min", 3), ElementsAre(1, 3));
  EXPECT_THAT(values("Max", 3), ElementsAre(8, 8));
}

TEST(OnnxElementwise, PReluSlopeBroadcastsToX) {
  OnnxWriter model = one_node(9, "PRelu", {"x", "slope"}).input("x", {1, 2, 2});
  model.constant<float>("slope", {2, 1}, {0.5F, 2});
  EXPECT_THAT(run(model, {tensor({1, 2, 2}, {-1, 1, -1, 1})}).values, ElementsAre(-0.5, 1, -2, 1));
  OnnxWriter wide = one_node(9, "PRelu", {"x", "slope"}).input("x", {2});
  wide.constant<float>("slope", {3, 1}, {1, 2, 3});
  EXPECT_THAT(wide.failure<Error>(), HasSubstr("does not broadcast to x"));
}

TEST(OnnxElementwise, LogicAndWhere) {
  OnnxWriter model;
  model.input("x", {4}).constant<float>("two", {}, {2});
  model.node("Less", {"x", "two"}, {"small"}).node("Not", {"small"}, {"large"});
  model.node("And", {"small", "large"}, {"and"}).node("Or", {"small", "large"}, {"or"});
  model.node("Xor", {"small", "or"}, {"xor"}).node("Where", {"xor", "x", "two"}, {"where"});
  for (const char* name : {"small", "large", "and", "or", "xor", "where"}) model.output(name);
  const auto outputs = run(model.read().graph, {iota({4})});
  std::vector<std::vector<double>> values;
  for (const auto& output : outputs) values.push_back(test::result_of(*output).values);
  EXPECT_THAT(values[0], ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(values[1], ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(values[2], ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(values[3], ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(values[4], ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(values[5], ElementsAre(2, 2, 2, 3));
}

}  // namespace
}  // namespace pipit::internal
