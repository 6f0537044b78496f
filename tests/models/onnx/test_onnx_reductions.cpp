// Import of reductions, resizing, and operators whose results are known while reading.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/models/onnx/onnx_run.h"

namespace pipit::internal {
namespace {

using test::Dims;
using test::iota;
using test::kOne;
using test::kZero;
using test::one_node;
using test::OnnxWriter;
using test::Result;
using test::run;
using test::tensor;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OnnxReduce, AxesInBothForms) {
  struct Case {
    const char* op;
    std::function<double(double, double)> f;  // of the two elements of a row
  };
  const std::vector<Case> cases = {
      {"ReduceL1", [](double a, double b) { return std::abs(a) + std::abs(b); }},
      {"ReduceL2", [](double a, double b) { return std::hypot(a, b); }},
      {"ReduceLogSum", [](double a, double b) { return std::log(a + b); }},
      {"ReduceLogSumExp", [](double a, double b) { return std::log(std::exp(a) + std::exp(b)); }},
      {"ReduceMax", [](double a, double b) { return std::max(a, b); }},
      {"ReduceMean", [](double a, double b) { return (a + b) / 2; }},
      {"ReduceMin", [](double a, double b) { return std::min(a, b); }},
      {"ReduceProd", [](double a, double b) { return a * b; }},
      {"ReduceSum", [](double a, double b) { return a + b; }},
      {"ReduceSumSquare", [](double a, double b) { return a * a + b * b; }},
  };
  const auto x = tensor({2, 2}, {1, 3, 5, -2});
  for (const Case& c : cases) {
    SCOPED_TRACE(c.op);
    const bool sum = std::string(c.op) == "ReduceSum";
    OnnxWriter old = one_node(sum ? 12 : 17, c.op, {"x"}, {{"axes", Dims{-1}}});
    OnnxWriter now = one_node(sum ? 13 : 18, c.op, {"x", "axes"}, {{"keepdims", kZero}});
    const Result kept = run(old.input("x", {2, 2}), {x});
    const Result dropped = run(now.input("x", {2, 2}).integers("axes", {1}), {x});
    EXPECT_EQ(kept.shape, (Shape{2, 1}));
    EXPECT_EQ(dropped.shape, Shape{2});
    EXPECT_EQ(kept.values, dropped.values);
    EXPECT_THAT(kept.values, ElementsAre(DoubleNear(c.f(1, 3), 1e-5), DoubleNear(c.f(5, -2), 1e-5)));
    EXPECT_EQ(run(one_node(13, c.op, {"x"}).input("x", {2, 2}), {x}).shape, (Shape{1, 1}));
    EXPECT_THAT(one_node(sum ? 13 : 18, c.op, {"x"}, {{"axes", Dims{1}}}).input("x", {2, 2}).failure<Error>(),
                HasSubstr("attribute 'axes' is not supported"));
  }
}

TEST(OnnxReduce, NoAxesMayMeanNothingToReduce) {
  const test::Attribute noop{"noop_with_empty_axes", kOne};
  EXPECT_EQ(run(one_node(18, "ReduceMean", {"x"}, {noop}).input("x", {2, 2}), {iota({2, 2})}).shape,
            (Shape{2, 2}));
  EXPECT_EQ(run(one_node(18, "ReduceMean", {"x", "none"}, {noop}).input("x", {2, 2}).integers("none", {}),
                {iota({2, 2})})
                .shape,
            (Shape{2, 2}));
  EXPECT_EQ(
      run(one_node(18, "ReduceMean", {"x", "none"}).input("x", {2, 2}).integers("none", {}), {iota({2, 2})})
          .shape,
      (Shape{1, 1}));
  EXPECT_THAT(one_node(18, "ReduceL2", {"x"}, {noop}).input("x", {2}).failure<UnsupportedError>(),
              HasSubstr("'noop_with_empty_axes' on l2"));
}

TEST(OnnxReduce, ArgMaxAndArgMin) {
  const auto x = tensor({2, 3}, {1, 7, 7, -2, -2, 0});
  const auto found = [&](const char* op, std::int64_t opset, const std::vector<test::Attribute>& attributes) {
    return run(one_node(opset, op, {"x"}, attributes).input("x", {2, 3}), {x});
  };
  EXPECT_THAT(found("ArgMax", 7, {}).values, ElementsAre(0, 0, 0));
  EXPECT_THAT(found("ArgMax", 13, {{"axis", kOne}}).values, ElementsAre(1, 2));
  EXPECT_THAT(found("ArgMax", 13, {{"axis", kOne}, {"select_last_index", kOne}}).values, ElementsAre(2, 2));
  EXPECT_THAT(found("ArgMin", 13, {{"axis", std::int64_t{-1}}}).values, ElementsAre(0, 0));
  EXPECT_EQ(found("ArgMin", 13, {{"axis", kOne}, {"keepdims", kZero}}).shape, Shape{2});
}

TEST(OnnxResize, OldFormsScaleByPositionOverScale) {
  const std::vector<float> scales = {1, 1, 2};
  const auto x = iota({1, 1, 2});
  const auto nearest = ElementsAre(0, 0, 1, 1);
  EXPECT_THAT(run(one_node(7, "Upsample", {"x"}, {{"scales", scales}}).input("x", {1, 1, 2}), {x}).values,
              nearest);
  for (const auto& [opset, op] : {std::pair{9, "Upsample"}, std::pair{10, "Resize"}}) {
    OnnxWriter model =
        one_node(opset, op, {"x", "s"}).input("x", {1, 1, 2}).constant<float>("s", {3}, scales);
    EXPECT_THAT(run(model, {x}).values, nearest);
    OnnxWriter linear = one_node(opset, op, {"x", "s"}, {{"mode", std::string("linear")}});
    linear.input("x", {1, 1, 2}).constant<float>("s", {3}, scales);
    EXPECT_THAT(run(linear, {x}).values, ElementsAre(0, 0.5, 1, 1));
  }
  OnnxWriter mixed =
      one_node(10, "Resize", {"x", "s"}).input("x", {1, 2, 2}).constant<float>("s", {3}, {1, 2, 0.5F});
  EXPECT_THAT(mixed.failure<UnsupportedError>(), HasSubstr("enlarges one dimension and shrinks another"));
}

OnnxWriter resize(std::int64_t opset, const test::Names& inputs,
                  const std::vector<test::Attribute>& attributes = {}) {
  OnnxWriter model = one_node(opset, "Resize", inputs, attributes).input("x", {1, 1, 2, 4});
  model.constant<float>("roi", {0}, {}).constant<float>("none", {0}, {});
  model.constant<float>("scales", {4}, {1, 1, 2, 0.5F}).integers("sizes", {1, 1, 4, 2});
  return model.constant<float>("two", {2}, {2, 0.5F}).integers("three", {3, 3});
}

TEST(OnnxResize, ScalesOrSizes) {
  const auto x = iota({1, 1, 2, 4});
  const test::Attribute floor{"nearest_mode", std::string("floor")};
  const test::Attribute asymmetric{"coordinate_transformation_mode", std::string("asymmetric")};
  const auto expected = ElementsAre(0, 2, 0, 2, 4, 6, 4, 6);
  EXPECT_THAT(run(resize(11, {"x", "roi", "scales"}, {floor, asymmetric}), {x}).values, expected);
  EXPECT_THAT(run(resize(11, {"x", "roi", "none", "sizes"}, {floor, asymmetric}), {x}).values, expected);
  EXPECT_THAT(run(resize(13, {"x", "", "", "sizes"}, {floor, asymmetric}), {x}).values, expected);
  const test::Attribute axes{"axes", Dims{2, -1}};
  EXPECT_THAT(run(resize(18, {"x", "", "two"}, {floor, asymmetric, axes}), {x}).values, expected);
  const auto shape = [&](const char* policy) {
    return run(resize(18, {"x", "", "", "three"}, {axes, {"keep_aspect_ratio_policy", std::string(policy)}}),
               {x})
        .shape;
  };
  EXPECT_EQ(shape("stretch"), (Shape{1, 1, 3, 3}));
  EXPECT_EQ(shape("not_larger"), (Shape{1, 1, 2, 3}));   // 0.75 of 2 is 1.5, rounded up
  EXPECT_EQ(shape("not_smaller"), (Shape{1, 1, 3, 6}));  // 1.5 of 4
}

// The weights are those of the specification; 4 positions to 2, half_pixel: middles at 0.5 and 2.5.
TEST(OnnxResize, CubicAndAntialias) {
  const auto x = tensor<float>({1, 1, 1, 4}, {1, 2, 4, 8});
  const auto halved = [&](const std::vector<test::Attribute>& attributes) {
    OnnxWriter model = one_node(19, "Resize", {"x", "", "", "sizes"}, attributes);
    model.input("x", {1, 1, 1, 4}).integers("sizes", {1, 1, 1, 2});
    return run(model, {x}).values;
  };
  const auto near = [](double a, double b) { return ElementsAre(DoubleNear(a, 1e-6), DoubleNear(b, 1e-6)); };
  const test::Attribute cubic{"mode", std::string("cubic")};
  const test::Attribute linear{"mode", std::string("linear")};
  const test::Attribute smooth{"antialias", kOne};
  const test::Attribute inside{"exclude_outside", kOne};
  // At 0.5: -3/32 of x[-1] = x[0] and of x[2], 19/32 of x[0] and x[1]. At 2.5 the same of x[1] and x[4] = x[3].
  const double a = -3.0 / 32;
  const double b = 19.0 / 32;
  EXPECT_THAT(halved({cubic}), near(a * (1 + 4) + b * (1 + 2), a * (2 + 8) + b * (4 + 8)));
  EXPECT_THAT(halved({cubic, inside}),
              near((a * 4 + b * (1 + 2)) / (1 - a), (a * 2 + b * (4 + 8)) / (1 - a)));
  // A triangle of reach 2 around 0.5: 1/8, 3/8, 3/8, 1/8 of x[-1], x[0], x[1], x[2].
  EXPECT_THAT(halved({linear, smooth}), near((1 + 3 + 6 + 4) / 8.0, (2 + 12 + 24 + 8) / 8.0));
  EXPECT_THAT(halved({linear, smooth, inside}), near((3 + 6 + 4) / 7.0, (2 + 12 + 24) / 7.0));
}

TEST(OnnxResize, WhatIsNotSupported) {
  const auto refused = [](const test::Attribute& attribute) {
    return resize(19, {"x", "", "scales"}, {attribute}).failure<UnsupportedError>();
  };
  EXPECT_THAT(refused({"mode", std::string("lanczos")}), HasSubstr("'mode' is 'lanczos'"));
  EXPECT_THAT(refused({"coordinate_transformation_mode", std::string("tf_crop_and_resize")}),
              HasSubstr("'coordinate_transformation_mode' is 'tf_crop_and_resize'"));
  // Integers that are quantized values, as ONNX Runtime's QOperator form has them.
  for (const char* zero : {"u8", "s8"}) {
    OnnxWriter linear;
    linear.input("x", {1, 1, 2, 4})
        .constant<float>("s", {}, {1})
        .constant<float>("scales", {4}, {1, 1, 2, 2});
    linear.constant<std::uint8_t>("u8", {}, {3}).constant<std::int8_t>("s8", {}, {3});
    linear.node("QuantizeLinear", {"x", "s", zero}, {"q"});
    linear.node("Resize", {"q", "", "scales"}, {"r"}, {{"mode", std::string("linear")}});
    linear.node("DequantizeLinear", {"r", "s", zero}, {"y"}).output("y");
    EXPECT_THAT(linear.failure<UnsupportedError>(), HasSubstr("'mode' is 'linear' for")) << zero;
  }
  EXPECT_THAT(resize(13, {"x", "", "scales", "sizes"}).failure<Error>(), HasSubstr("exactly one of"));
  EXPECT_THAT(resize(13, {"x"}).failure<Error>(), HasSubstr("exactly one of"));
  EXPECT_THAT(resize(13, {"x", "", "two"}).failure<Error>(), HasSubstr("2 scales for 4 dimensions"));
}

TEST(OnnxConstants, EveryFormOfValue) {
  const auto value = [](const test::Attribute& attribute) {
    const Graph graph = one_node(13, "Constant", {}, {attribute}).read().graph;
    return test::result_of(*graph.value(graph.outputs().at(0)).constant);
  };
  EXPECT_THAT(value({"value", test::tensor_proto<std::int8_t>("", {2}, {1, -1})}).values, ElementsAre(1, -1));
  EXPECT_EQ(value({"value_float", 2.5F}).shape, Shape{});
  EXPECT_THAT(value({"value_float", 2.5F}).values, ElementsAre(2.5));
  EXPECT_THAT(value({"value_int", std::int64_t{7}}).values, ElementsAre(7));
  EXPECT_THAT(value({"value_floats", std::vector<float>{1, 2}}).values, ElementsAre(1, 2));
  EXPECT_THAT(value({"value_ints", Dims{3, 4}}).values, ElementsAre(3, 4));
  EXPECT_THAT(one_node(13, "Constant", {}, {{"value_string", std::string("x")}}).failure<UnsupportedError>(),
              HasSubstr("attribute 'value_string' is not supported"));
  EXPECT_THAT(one_node(13, "Constant", {}).failure<Error>(), HasSubstr("no value"));
}

TEST(OnnxConstants, ConstantOfShapeAndEyeLike) {
  OnnxWriter zeros = one_node(9, "ConstantOfShape", {"s"}).integers("s", {2, 1});
  EXPECT_THAT(run(zeros).values, ElementsAre(0, 0));
  OnnxWriter sevens =
      one_node(9, "ConstantOfShape", {"s"}, {{"value", test::tensor_proto<std::int32_t>("", {1}, {7})}});
  EXPECT_THAT(run(sevens.integers("s", {2})).values, ElementsAre(7, 7));
  EXPECT_EQ(run(one_node(9, "ConstantOfShape", {"s"}).integers("s", {})).shape, Shape{});
  OnnxWriter two =
      one_node(9, "ConstantOfShape", {"s"}, {{"value", test::tensor_proto<float>("", {2}, {7, 7})}});
  EXPECT_THAT(two.integers("s", {2}).failure<Error>(), HasSubstr("'value' is f32 2, expected one element"));

  const auto eye = [](std::int64_t k) {
    return run(one_node(9, "EyeLike", {"x"}, {{"k", k}, {"dtype", std::int64_t{7}}}).input("x", {2, 3}),
               {iota({2, 3})})
        .values;
  };
  EXPECT_THAT(eye(0), ElementsAre(1, 0, 0, 0, 1, 0));
  EXPECT_THAT(eye(1), ElementsAre(0, 1, 0, 0, 0, 1));
  EXPECT_THAT(eye(-1), ElementsAre(0, 0, 0, 1, 0, 0));
  for (const std::int64_t k : {std::int64_t{3}, std::int64_t{-2}, std::numeric_limits<std::int64_t>::min(),
                               std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_THAT(eye(k), ElementsAre(0, 0, 0, 0, 0, 0)) << k;
  }
}

TEST(OnnxConstants, ShapesAndSizes) {
  const auto shape = [](std::int64_t opset, const std::vector<test::Attribute>& attributes) {
    return run(one_node(opset, "Shape", {"x"}, attributes).input("x", {2, 3, 4}), {iota({2, 3, 4})}).values;
  };
  EXPECT_THAT(shape(7, {}), ElementsAre(2, 3, 4));
  EXPECT_THAT(shape(15, {{"start", kOne}}), ElementsAre(3, 4));
  EXPECT_THAT(shape(15, {{"start", std::int64_t{-2}}, {"end", std::int64_t{-1}}}), ElementsAre(3));
  EXPECT_THAT(shape(15, {{"start", std::int64_t{2}}, {"end", kOne}}), ElementsAre());
  EXPECT_THAT(shape(15, {{"end", std::int64_t{99}}}), ElementsAre(2, 3, 4));
  EXPECT_THAT(run(one_node(13, "Size", {"x"}).input("x", {2, 3, 4}), {iota({2, 3, 4})}).values,
              ElementsAre(24));
}

template <typename T>
std::vector<double> range(T start, T limit, T delta) {
  OnnxWriter model = one_node(11, "Range", {"start", "limit", "delta"});
  *model.graph().add_initializer() = test::tensor_proto<T>("start", {}, {start});
  *model.graph().add_initializer() = test::tensor_proto<T>("limit", {}, {limit});
  *model.graph().add_initializer() = test::tensor_proto<T>("delta", {}, {delta});
  return run(model).values;
}

TEST(OnnxConstants, Range) {
  EXPECT_THAT(range<std::int64_t>(1, 8, 3), ElementsAre(1, 4, 7));
  EXPECT_THAT(range<std::int32_t>(5, -1, -2), ElementsAre(5, 3, 1));
  EXPECT_THAT(range<float>(0, 1, 0.375F), ElementsAre(0, 0.375, 0.75));
  EXPECT_THAT(range<double>(1, 1, 1), ElementsAre());
  OnnxWriter stashed = one_node(27, "Range", {"a", "b", "c"}, {{"stash_type", std::int64_t{1}}});
  stashed.constant<float>("a", {}, {0}).constant<float>("b", {}, {2}).constant<float>("c", {}, {1});
  EXPECT_THAT(run(stashed).values, ElementsAre(0, 1));
  EXPECT_THAT(range<std::int64_t>(5, 1, 1), ElementsAre());
  EXPECT_THAT([] { range<float>(0, 1, 0); }, testing::ThrowsMessage<Error>(HasSubstr("delta is 0")));
  EXPECT_THAT([] { range<float>(0, HUGE_VALF, 1); },
              testing::ThrowsMessage<Error>(HasSubstr("a range from 0 to inf")));
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT([] { range<std::int64_t>(-kMax, kMax, 1); },
              testing::ThrowsMessage<Error>(HasSubstr("a range from")));
  EXPECT_THAT([] { range<std::int64_t>(0, std::int64_t{1} << 40, 1); },
              testing::ThrowsMessage<Error>(HasSubstr("takes 8796093022208 bytes")));
  EXPECT_THAT(range<std::int64_t>(kMax - 2, kMax, 1).size(), 2U);
}

TEST(OnnxConstants, Casts) {
  const auto x = tensor({3}, {-1.5F, 0, 2.75F});
  const auto cast = [&](std::int64_t to) {
    return run(one_node(13, "Cast", {"x"}, {{"to", to}}).input("x", {3}), {x}).values;
  };
  EXPECT_THAT(cast(6), ElementsAre(-1, 0, 2));
  EXPECT_THAT(cast(9), ElementsAre(1, 0, 1));
  EXPECT_THAT(cast(11), ElementsAre(-1.5, 0, 2.75));
  EXPECT_THAT(cast(10), ElementsAre(-1.5, 0, 2.75));  // widened
  EXPECT_THAT([&] { cast(8); }, testing::ThrowsMessage<Error>(HasSubstr("element type string")));
  EXPECT_THAT([&] { cast(std::int64_t{1} << 33); },
              testing::ThrowsMessage<Error>(HasSubstr("'to' is 8589934592")));
  OnnxWriter like =
      one_node(19, "CastLike", {"x", "i"}, {{"saturate", kOne}}).input("x", {3}).integers("i", {1});
  EXPECT_THAT(run(like, {x}).values, ElementsAre(-1, 0, 2));
}

TEST(OnnxDropout, IsTheIdentityAtInference) {
  const auto x = tensor({3}, {1, 2, 3});
  EXPECT_THAT(run(one_node(7, "Dropout", {"x"}, {{"ratio", 0.9F}}).input("x", {3}), {x}).values,
              ElementsAre(1, 2, 3));
  OnnxWriter model(13);
  model.input("x", {3}).constant<float>("ratio", {}, {0.9F});
  auto training = test::tensor_proto<std::uint8_t>("training", {}, {0});
  training.set_data_type(9);
  *model.graph().add_initializer() = training;
  model.node("Dropout", {"x", "ratio", "training"}, {"y", "mask"}, {{"seed", kOne}})
      .output("mask")
      .output("y");
  const auto outputs = run(model.read().graph, {x});
  EXPECT_THAT(test::result_of(*outputs[0]).values, ElementsAre(1, 1, 1));
  EXPECT_THAT(test::result_of(*outputs[1]).values, ElementsAre(1, 2, 3));
  model.graph().mutable_initializer(1)->mutable_raw_data()->front() = 1;
  EXPECT_THAT(model.failure<UnsupportedError>(), HasSubstr("training mode"));
}

}  // namespace
}  // namespace pipit::internal
