// What the form of a layer in a file depends on: the opset, the type, the number of dimensions.
#include <gtest/gtest.h>

#include <utility>

#include "tests/models/onnx/round_trip.h"

namespace pipit::internal {
namespace {

using test::Dims;
using test::expect_round_trip;
using test::OnnxWriter;
using test::pattern;
using test::read;

// The file is in the first opset that has the layer. Reductions, which opset 18 changed, are beside it.
TEST(OnnxWrite, LayersThatOpset13DoesNotHave) {
  const auto expect = [](int opset, OnnxWriter model) {
    SCOPED_TRACE(opset);
    model.node("ReduceMax", {"y", "last"}, {"maxima"}).output("maxima").output("y");
    expect_round_trip(model, 1e-6, opset);
  };
  const auto of = [](const Shape& x) {
    OnnxWriter model(20);
    return std::move(model.input("x", {x.dims().begin(), x.dims().end()}).integers("last", {-1}));
  };
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      const std::vector<test::Attribute> attributes{{"mode", std::string(mode)},
                                                    {"padding_mode", std::string(padding)},
                                                    {"align_corners", std::int64_t{1}}};
      expect(
          16,
          of({2, 3, 4, 5}).input("grid", {2, 3, 2, 2}).node("GridSample", {"x", "grid"}, {"y"}, attributes));
      expect(20, of({1, 2, 3, 4, 5})
                     .input("grid", {1, 2, 3, 2, 3})
                     .node("GridSample", {"x", "grid"}, {"y"}, attributes));
    }
  }
  for (const auto& [reduction, opset] : {std::pair{"add", 16}, {"mul", 16}, {"min", 18}, {"max", 18}}) {
    expect(opset,
           of({3, 4})
               .constant<std::int64_t>("i", {1, 4}, {0, 2, -1, 1})
               .constant<float>("u", {1, 4}, {1, 2, 3, 4})
               .node("ScatterElements", {"x", "i", "u"}, {"y"}, {{"reduction", std::string(reduction)}}));
    expect(opset, of({3, 4})
                      .constant<std::int64_t>("i", {2, 1}, {0, 2})
                      .constant<float>("u", {2, 4}, pattern(8, 1))
                      .node("ScatterND", {"x", "i", "u"}, {"y"}, {{"reduction", std::string(reduction)}}));
  }
  expect(18, of({1, 2, 6, 7})
                 .constant<float>("scales", {4}, {1, 1, 0.5F, 0.7F})
                 .node("Resize", {"x", "", "scales"}, {"y"},
                       {{"mode", std::string("linear")}, {"antialias", std::int64_t{1}}}));
  expect(19, of({1, 2, 6, 7})
                 .constant<float>("scales", {4}, {1, 1, 0.5F, 0.7F})
                 .node("Resize", {"x", "", "scales"}, {"y"},
                       {{"mode", std::string("linear")},
                        {"coordinate_transformation_mode", std::string("half_pixel_symmetric")}}));
  expect(19, of({2, 3})
                 .integers("pads", {0, 2, 1, 0})
                 .node("Pad", {"x", "pads"}, {"y"}, {{"mode", std::string("wrap")}}));
  expect(19,
         of({1, 2, 6, 7})
             .node("AveragePool", {"x"}, {"y"}, {{"kernel_shape", Dims{2, 2}}, {"dilations", Dims{2, 3}}}));
  expect(18, of({1, 2, 6, 7})
                 .node("LpPool", {"x"}, {"y"},
                       {{"kernel_shape", Dims{2, 2}}, {"dilations", Dims{2, 3}}, {"p", std::int64_t{3}}}));
  expect(17, of({2, 3, 4})
                 .constant<float>("scale", {3, 4}, pattern(12, 0.1F))
                 .node("LayerNormalization", {"x", "scale"}, {"y", "mean", "deviation"},
                       {{"axis", std::int64_t{1}}})
                 .output("deviation"));
}

TEST(OnnxWrite, PoolsOfAnyKindAndFiltersOfResize) {
  OnnxWriter pools(13);
  pools.input("x", {1, 2, 6, 7})
      .node("LpPool", {"x"}, {"a"},
            {{"kernel_shape", Dims{2, 3}}, {"pads", Dims{1, 1, 0, 1}}, {"p", std::int64_t{1}}})
      .node("GlobalLpPool", {"a"}, {"b"}, {{"p", std::int64_t{3}}})
      .node("MaxPool", {"a"}, {"c", "at"}, {{"kernel_shape", Dims{2, 2}}, {"storage_order", std::int64_t{1}}})
      .node("Cast", {"at"}, {"d"}, {{"to", std::int64_t{1}}});
  for (const char* output : {"b", "c", "d"}) pools.output(output);
  expect_round_trip(pools);
  OnnxWriter resize(13);
  resize.input("x", {1, 2, 4, 5})
      .constant<float>("scales", {4}, {1, 1, 2, 1.5F})
      .node("Resize", {"x", "", "scales"}, {"y"},
            {{"mode", std::string("cubic")}, {"cubic_coeff_a", -0.5F}, {"exclude_outside", std::int64_t{1}}})
      .output("y");
  expect_round_trip(resize);
}

TEST(OnnxWrite, SoftmaxOverSeveralDimensionsAndBlocksByColumns) {
  OnnxWriter softmax(11);
  softmax.input("x", {1, 3, 4, 5})
      .node("Softmax", {"x"}, {"y"}, {{"axis", std::int64_t{2}}})
      .node("LogSoftmax", {"x"}, {"z"}, {{"axis", std::int64_t{1}}})
      .output("y")
      .output("z");
  expect_round_trip(softmax);
  OnnxWriteOptions options;
  options.symbolic_batch = true;
  const OnnxModel again = read(write_onnx(fuse(softmax.read().graph), options), 5);
  EXPECT_EQ(again.graph.value(again.graph.outputs()[0]).desc.shape, (Shape{5, 3, 4, 5}));
  OnnxWriter blocks(28);
  blocks.input("x", {1, 3, 4, 6})
      .node("SpaceToDepth", {"x"}, {"y"}, {{"blocksize", std::int64_t{2}}, {"mode", std::string("CRD")}})
      .output("y");
  expect_round_trip(blocks);
}

// Of integers and empty: bounds and paddings have the type of what they are for.
TEST(OnnxWrite, OtherTypesThanFloat) {
  OnnxWriter integers(13);
  integers.input("x", {2, 3})
      .integers("pads", {0, 1, 0, 0})
      .constant<std::int32_t>("low", {}, {-1})
      .node("Cast", {"x"}, {"i"}, {{"to", std::int64_t{6}}})
      .node("Pad", {"i", "pads"}, {"p"}, {{"mode", std::string("edge")}})
      .node("Clip", {"p", "low"}, {"c"})
      .node("Cast", {"c"}, {"y"}, {{"to", std::int64_t{1}}})
      .output("y");
  expect_round_trip(integers);
  OnnxWriter later(14);
  later.input("x", {2, 3})
      .constant<std::int8_t>("one", {}, {1})
      .node("Cast", {"x"}, {"i"}, {{"to", std::int64_t{3}}})
      .node("Add", {"i", "one"}, {"a"})
      .node("Relu", {"a"}, {"r"})
      .node("Cast", {"r"}, {"y"}, {{"to", std::int64_t{1}}})
      .output("y");
  expect_round_trip(later, 0, 14);
  OnnxWriter doubles(13);
  doubles.input("x", {2, 3}, test::onnx_type<double>())
      .constant<double>("low", {}, {-0.1})
      .node("Clip", {"x", "low"}, {"y"})
      .output("y");
  const OnnxModel again = read(write_onnx(fuse(doubles.read().graph)));
  EXPECT_EQ(again.graph.value(again.graph.outputs()[0]).desc.dtype, DType::f64);
  OnnxWriter empty(14);
  empty.input("x", {0, 3, 2})
      .integers("shape", {3, 0, 1})
      .node("Reshape", {"x", "shape"}, {"y"}, {{"allowzero", std::int64_t{1}}})
      .output("y");
  const OnnxModel reshaped = read(write_onnx(fuse(empty.read().graph)));
  EXPECT_EQ(reshaped.graph.value(reshaped.graph.outputs()[0]).desc.shape, (Shape{3, 0, 1}));
}

TEST(OnnxWrite, ActivationsOfRecurrentLayers) {
  OnnxWriter model(14);
  model.input("x", {3, 2, 4})
      .constant<float>("w", {1, 9, 4}, pattern(36, 0.02F))
      .constant<float>("r", {1, 9, 3}, pattern(27, 0.02F))
      .node("GRU", {"x", "w", "r"}, {"y"},
            {{"hidden_size", std::int64_t{3}},
             {"activations", std::string()},
             {"activation_alpha", std::vector<float>{0.3F, 0.7F}},
             {"activation_beta", std::vector<float>{0.4F}}})
      .output("y");
  auto& activations = *model.graph().mutable_node(0)->mutable_attribute(1);
  activations.set_type(8);
  activations.add_strings("HardSigmoid");
  activations.add_strings("Elu");
  expect_round_trip(model);
}

}  // namespace
}  // namespace pipit::internal
