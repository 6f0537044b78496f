// Import of operators that move, select and make elements, in the forms of all opsets.
#include <gmock/gmock.h>

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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Shape shape_of(const OnnxWriter& model) {
  const Graph graph = model.read().graph;
  return graph.value(graph.outputs().at(0)).desc.shape;
}

TEST(OnnxShapes, Reshape) {
  const auto reshaped = [](const Dims& input, const Dims& target,
                           const std::vector<test::Attribute>& more = {}) {
    return one_node(14, "Reshape", {"x", "shape"}, more).input("x", input).integers("shape", target);
  };
  EXPECT_EQ(shape_of(reshaped({2, 3, 4}, {4, 6})), (Shape{4, 6}));
  EXPECT_EQ(shape_of(reshaped({2, 3, 4}, {0, -1})), (Shape{2, 12}));
  EXPECT_EQ(shape_of(reshaped({2, 3, 4}, {-1, 0})), (Shape{8, 3}));
  EXPECT_EQ(shape_of(reshaped({1}, {})), Shape{});
  EXPECT_EQ(shape_of(reshaped({0, 3}, {3, 0}, {{"allowzero", kOne}})), (Shape{3, 0}));
  EXPECT_EQ(shape_of(reshaped({0, 3}, {0, 1, 3})), (Shape{0, 1, 3}));
  EXPECT_THAT(reshaped({2, 3}, {4, -1}).failure<Error>(), HasSubstr("input 2x3 does not fit shape [4,-1]"));
  EXPECT_THAT(reshaped({2, 3}, {-1, -1}).failure<Error>(), HasSubstr("more than one -1"));
  EXPECT_THAT(reshaped({2, 3}, {2, 3, 0}).failure<Error>(), HasSubstr("copies dimension 2 of input 2x3"));
  EXPECT_THAT(reshaped({2, 3}, {-2, -3}).failure<Error>(), HasSubstr("negative extent"));
  EXPECT_THAT(reshaped({2, 3}, {7}).failure<Error>(), HasSubstr("6 elements"));
  EXPECT_THAT(reshaped({1}, Dims(7, 1)).failure<UnsupportedError>(), HasSubstr("7 dimensions"));
  EXPECT_THAT(reshaped({0, 3}, {-1, 0}, {{"allowzero", kOne}}).failure<Error>(), HasSubstr("does not fit"));
  OnnxWriter floats =
      one_node(14, "Reshape", {"x", "shape"}).input("x", {2}).constant<float>("shape", {1}, {2});
  EXPECT_THAT(floats.failure<Error>(), HasSubstr("shape is f32 1, expected a list of i64"));
}

TEST(OnnxShapes, Flatten) {
  const auto flattened = [](const std::vector<test::Attribute>& attributes) {
    return one_node(13, "Flatten", {"x"}, attributes).input("x", {2, 3, 4});
  };
  EXPECT_EQ(shape_of(flattened({})), (Shape{2, 12}));
  EXPECT_EQ(shape_of(flattened({{"axis", kZero}})), (Shape{1, 24}));
  EXPECT_EQ(shape_of(flattened({{"axis", std::int64_t{3}}})), (Shape{24, 1}));
  EXPECT_EQ(shape_of(flattened({{"axis", std::int64_t{-1}}})), (Shape{6, 4}));
  EXPECT_THAT(flattened({{"axis", std::int64_t{4}}}).failure<Error>(),
              HasSubstr("'axis' is 4 for input 2x3x4"));
}

TEST(OnnxShapes, SqueezeAndUnsqueezeInBothForms) {
  const auto of_attribute = [](const char* op, const Dims& input, const Dims& axes) {
    return one_node(11, op, {"x"}, {{"axes", axes}}).input("x", input);
  };
  const auto of_input = [](const char* op, const Dims& input, const Dims& axes) {
    return one_node(13, op, {"x", "axes"}).input("x", input).integers("axes", axes);
  };
  for (const auto& make : {std::function(of_attribute), std::function(of_input)}) {
    EXPECT_EQ(shape_of(make("Squeeze", {1, 3, 1, 2}, {0, -2})), (Shape{3, 2}));
    EXPECT_EQ(shape_of(make("Unsqueeze", {3, 2}, {-1, 0})), (Shape{1, 3, 2, 1}));
    EXPECT_THAT(make("Squeeze", {1, 3}, {1}).failure<Error>(),
                HasSubstr("dimension 1 of 1x3 cannot be dropped"));
    EXPECT_THAT(make("Squeeze", {1, 3}, {2}).failure<Error>(), HasSubstr("axis 2"));
    EXPECT_THAT(make("Unsqueeze", {3}, {0, 0}).failure<Error>(), HasSubstr("axis 0 is given twice"));
    EXPECT_THAT(make("Unsqueeze", {3}, {0, 1, 2, 3, 4, 5}).failure<UnsupportedError>(),
                HasSubstr("7 dimensions"));
  }
  EXPECT_EQ(shape_of(one_node(11, "Squeeze", {"x"}).input("x", {1, 3, 1})), Shape{3});
  EXPECT_EQ(shape_of(one_node(13, "Squeeze", {"x"}).input("x", {1, 3, 1})), Shape{3});
  EXPECT_THAT(one_node(11, "Unsqueeze", {"x"}).input("x", {1}).failure<Error>(),
              HasSubstr("'axes' is missing"));
}

TEST(OnnxShapes, SplitInAllForms) {
  const auto sizes = [](std::int64_t opset, int outputs, const std::vector<test::Attribute>& attributes,
                        const test::Names& inputs = {"x"}) {
    OnnxWriter model(opset);
    model.input("x", {7, 4}).integers("sizes", {1, 3});
    test::Names names;
    for (int i = 0; i < outputs; ++i) names.push_back(fmt::format("y{}", i));
    model.node("Split", inputs, names, attributes);
    for (const std::string& name : names) model.output(name);
    return model;
  };
  const auto shapes = [](const OnnxWriter& model) {
    const Graph graph = model.read().graph;
    std::vector<std::string> result;
    for (const ValueId id : graph.outputs()) result.push_back(graph.value(id).desc.shape.str());
    return result;
  };
  const test::Attribute axis{"axis", kOne};
  EXPECT_THAT(shapes(sizes(7, 2, {axis})), ElementsAre("7x2", "7x2"));
  EXPECT_THAT(shapes(sizes(11, 2, {axis, {"split", Dims{3, 1}}})), ElementsAre("7x3", "7x1"));
  EXPECT_THAT(shapes(sizes(13, 2, {axis}, {"x", "sizes"})), ElementsAre("7x1", "7x3"));
  EXPECT_THAT(shapes(sizes(13, 2, {axis})), ElementsAre("7x2", "7x2"));
  EXPECT_THAT(shapes(sizes(18, 2, {axis}, {"x", "sizes"})), ElementsAre("7x1", "7x3"));
  EXPECT_THAT(shapes(sizes(18, 3, {{"num_outputs", std::int64_t{3}}})), ElementsAre("3x4", "3x4", "1x4"));
  EXPECT_THAT(sizes(13, 2, {}).failure<Error>(),
              HasSubstr("an extent of 7 does not split into 2 equal parts"));
  EXPECT_THAT(sizes(18, 2, {{"num_outputs", kOne}}).failure<Error>(), HasSubstr("'num_outputs' is 1 for 2"));
  EXPECT_THAT(sizes(18, 6, {{"num_outputs", std::int64_t{6}}}).failure<Error>(), HasSubstr("6 parts of 2"));
  EXPECT_THAT(sizes(13, 3, {axis}, {"x", "sizes"}).failure<Error>(), HasSubstr("2 sizes for 3 outputs"));
  EXPECT_THAT(sizes(13, 2, {{"axis", kZero}}, {"x", "sizes"}).failure<Error>(), HasSubstr("sum"));
}

TEST(OnnxShapes, SliceInBothForms) {
  const auto x = iota({3, 4});
  OnnxWriter old = one_node(9, "Slice", {"x"}, {{"starts", Dims{1, 1}}, {"ends", Dims{3, 1 << 30}}});
  const Result a = run(old.input("x", {3, 4}), {x});
  EXPECT_EQ(a.shape, (Shape{2, 3}));
  EXPECT_THAT(a.values, ElementsAre(5, 6, 7, 9, 10, 11));
  OnnxWriter now = one_node(13, "Slice", {"x", "starts", "ends", "axes", "steps"}).input("x", {3, 4});
  now.integers("starts", {-1}).integers("ends", {std::numeric_limits<std::int64_t>::min()});
  now.integers("axes", {-1}).integers("steps", {-2});
  const Result b = run(now, {x});
  EXPECT_EQ(b.shape, (Shape{3, 2}));
  EXPECT_THAT(b.values, ElementsAre(3, 1, 7, 5, 11, 9));
  EXPECT_THAT(one_node(9, "Slice", {"x"}, {{"starts", Dims{1}}}).input("x", {3}).failure<Error>(),
              HasSubstr("'starts' and 'ends' are needed"));
}

TEST(OnnxShapes, PadInAllForms) {
  const auto x = iota({3});
  const auto constant = [&](OnnxWriter model) {
    return run(model.input("x", {3}).integers("pads", {1, 2}).constant<float>("nine", {}, {9}), {x}).values;
  };
  const auto mode = [](const char* name) {
    return std::vector<test::Attribute>{{"mode", std::string(name)}};
  };
  EXPECT_THAT(constant(one_node(7, "Pad", {"x"}, {{"pads", Dims{1, 2}}, {"value", 9.0F}})),
              ElementsAre(9, 0, 1, 2, 9, 9));
  EXPECT_THAT(constant(one_node(7, "Pad", {"x"}, {{"pads", Dims{1, -1}}})), ElementsAre(0, 0, 1));
  EXPECT_THAT(constant(one_node(11, "Pad", {"x", "pads", "nine"})), ElementsAre(9, 0, 1, 2, 9, 9));
  EXPECT_THAT(constant(one_node(11, "Pad", {"x", "pads"}, mode("edge"))), ElementsAre(0, 0, 1, 2, 2, 2));
  EXPECT_THAT(constant(one_node(11, "Pad", {"x", "pads"}, mode("reflect"))), ElementsAre(1, 0, 1, 2, 1, 0));
  EXPECT_THAT(constant(one_node(19, "Pad", {"x", "pads"}, mode("wrap"))), ElementsAre(2, 0, 1, 2, 0, 1));
  OnnxWriter axes = one_node(18, "Pad", {"x", "pads", "", "axes"}).input("x", {2, 3});
  axes.integers("pads", {0, 1}).integers("axes", {-1});
  EXPECT_THAT(run(axes, {iota({2, 3})}).values, ElementsAre(0, 1, 2, 0, 3, 4, 5, 0));
  OnnxWriter wrong = one_node(18, "Pad", {"x", "pads"}).input("x", {2, 3}).integers("pads", {0, 1});
  EXPECT_THAT(wrong.failure<Error>(), HasSubstr("2 pads for 2 dimensions"));
}

TEST(OnnxShapes, Rearranging) {
  const auto x = iota({2, 3});
  EXPECT_THAT(run(one_node(13, "Transpose", {"x"}).input("x", {2, 3}), {x}).values,
              ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(shape_of(one_node(13, "Transpose", {"x"}, {{"perm", Dims{2, 0, 1}}}).input("x", {2, 3, 4})),
            (Shape{4, 2, 3}));
  OnnxWriter expand = one_node(13, "Expand", {"x", "shape"}).input("x", {2, 1}).integers("shape", {3, 1, 2});
  EXPECT_EQ(shape_of(expand), (Shape{3, 2, 2}));
  OnnxWriter tile = one_node(13, "Tile", {"x", "repeats"}).input("x", {2, 1}).integers("repeats", {1, 3});
  EXPECT_THAT(run(tile, {iota({2, 1})}).values, ElementsAre(0, 0, 0, 1, 1, 1));
  OnnxWriter gather = one_node(13, "Gather", {"x", "indices"}, {{"axis", kOne}}).input("x", {2, 3});
  EXPECT_THAT(run(gather.integers("indices", {-1, 0}), {x}).values, ElementsAre(2, 0, 5, 3));
  OnnxWriter concat = one_node(13, "Concat", {"x", "x"}, {{"axis", kOne}}).input("x", {2, 3});
  EXPECT_THAT(run(concat, {x}).values, ElementsAre(0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5));
  EXPECT_THAT(one_node(13, "Concat", {"x", "x"}).input("x", {2}).failure<Error>(),
              HasSubstr("'axis' is missing"));
}

TEST(OnnxShapes, DepthAndSpace) {
  const auto x = iota({1, 4, 1, 2});
  const test::Attribute block{"blocksize", std::int64_t{2}};
  const auto spread = [&](const std::vector<test::Attribute>& attributes) {
    return run(one_node(13, "DepthToSpace", {"x"}, attributes).input("x", {1, 4, 1, 2}), {x});
  };
  EXPECT_THAT(spread({block}).values, ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_EQ(spread({block}).shape, (Shape{1, 1, 2, 4}));
  const auto wide = iota({1, 8, 1, 1});
  const auto crd = one_node(13, "DepthToSpace", {"x"}, {block, {"mode", std::string("CRD")}});
  const auto dcr = one_node(13, "DepthToSpace", {"x"}, {block, {"mode", std::string("DCR")}});
  EXPECT_THAT(run(OnnxWriter(crd).input("x", {1, 8, 1, 1}), {wide}).values,
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(run(OnnxWriter(dcr).input("x", {1, 8, 1, 1}), {wide}).values,
              ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  const Result back = run(one_node(13, "SpaceToDepth", {"x"}, {block}).input("x", {1, 1, 2, 4}),
                          {tensor({1, 1, 2, 4}, {0, 2, 1, 3, 4, 6, 5, 7})});
  EXPECT_EQ(back.shape, (Shape{1, 4, 1, 2}));
  EXPECT_THAT(back.values, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  // Since opset 28 in either order; the first twelve values that ONNX's own reference gives.
  const auto gathered = [&](const char* mode) {
    auto values = run(one_node(28, "SpaceToDepth", {"x"}, {block, {"mode", std::string(mode)}})
                          .input("x", {1, 2, 4, 4}),
                      {iota({1, 2, 4, 4})})
                      .values;
    values.resize(12);
    return values;
  };
  EXPECT_THAT(gathered("DCR"), ElementsAre(0, 2, 8, 10, 16, 18, 24, 26, 1, 3, 9, 11));
  EXPECT_THAT(gathered("CRD"), ElementsAre(0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14));
}

}  // namespace
}  // namespace pipit::internal
