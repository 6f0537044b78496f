// Sequences of one graph: values are put together and taken apart while the file is read.
#include <gmock/gmock.h>

#include "tests/models/onnx/onnx_run.h"

namespace pipit::internal {
namespace {

using test::kOne;
using test::kZero;
using test::OnnxWriter;
using test::tensor;
using test::TensorPtr;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kInt64 = 7;

std::vector<float> first_of(OnnxWriter& model, const std::vector<TensorPtr>& inputs) {
  const TensorPtr output = test::run(model.read().graph, inputs).at(0);
  return {output->values<float>().begin(), output->values<float>().end()};
}

TEST(OnnxSequences, PartsOfOneSizeAndTheRest) {
  for (const auto& [position, expected] : std::vector<std::pair<std::int64_t, std::vector<float>>>{
           {0, {1, 2}}, {1, {3, 4}}, {2, {5}}, {-1, {5}}, {-3, {1, 2}}}) {
    OnnxWriter model;
    model.input("x", {5})
        .constant<std::int64_t>("size", {}, {2})
        .constant<std::int64_t>("position", {}, {position})
        .node("SplitToSequence", {"x", "size"}, {"parts"})
        .node("SequenceAt", {"parts", "position"}, {"y"})
        .output("y");
    EXPECT_EQ(first_of(model, {tensor(Shape{5}, {1, 2, 3, 4, 5})}), expected) << position;
  }
}

TEST(OnnxSequences, SizesAndSinglePartsWithoutTheirDimension) {
  OnnxWriter sizes;
  sizes.input("x", {2, 3})
      .integers("sizes", {1, 2})
      .node("SplitToSequence", {"x", "sizes"}, {"parts"}, {{"axis", -kOne}, {"keepdims", kZero}})
      .constant<std::int64_t>("last", {}, {1})
      .node("SequenceAt", {"parts", "last"}, {"y"})
      .output("y");
  EXPECT_THAT(first_of(sizes, {tensor(Shape{2, 3}, {1, 2, 3, 4, 5, 6})}), ElementsAre(2, 3, 5, 6));

  OnnxWriter ones;
  ones.input("x", {2, 3})
      .node("SplitToSequence", {"x"}, {"parts"}, {{"keepdims", kZero}})
      .node("ConcatFromSequence", {"parts"}, {"y"}, {{"axis", kOne}, {"new_axis", kOne}})
      .output("y");
  const OnnxModel read = ones.read();
  EXPECT_EQ(read.graph.value(read.graph.outputs()[0]).desc.shape, (Shape{3, 2}));
  EXPECT_THAT(first_of(ones, {tensor(Shape{2, 3}, {1, 2, 3, 4, 5, 6})}), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(OnnxSequences, InsertEraseLengthAndConcat) {
  OnnxWriter model;
  model.input("a", {1}).input("b", {1}).node("Neg", {"a"}, {"n"});
  model.constant<std::int64_t>("first", {}, {0}).constant<std::int64_t>("second", {}, {-1});
  model.node("SequenceEmpty", {}, {"empty"})
      .node("SequenceInsert", {"empty", "a"}, {"one"})
      .node("SequenceInsert", {"one", "b"}, {"two"})
      .node("SequenceInsert", {"two", "n", "first"}, {"three"})  // n a b
      .node("SequenceErase", {"three", "second"}, {"shorter"})   // n a
      .node("Identity", {"shorter"}, {"same"})
      .node("SequenceLength", {"same"}, {"length"})
      .node("Cast", {"length"}, {"count"}, {{"to", kOne}})
      .node("SequenceConstruct", {"b", "b"}, {"twice"})
      .node("ConcatFromSequence", {"same"}, {"left"}, {{"axis", kZero}})
      .node("ConcatFromSequence", {"twice"}, {"right"}, {{"axis", kZero}})
      .node("Add", {"left", "right"}, {"sum"})
      .node("Mul", {"sum", "count"}, {"y"})
      .output("y");
  EXPECT_THAT(first_of(model, {tensor(Shape{1}, {3}), tensor(Shape{1}, {10})}), ElementsAre(14, 26));
}

TEST(OnnxSequences, APositionOfRunTimeChoosesAmongEqualValues) {
  OnnxWriter model;
  model.input("x", {3, 2})
      .input("position", {}, kInt64)
      .node("SplitToSequence", {"x"}, {"parts"})
      .node("SequenceAt", {"parts", "position"}, {"y"})
      .output("y");
  const TensorPtr x = tensor(Shape{3, 2}, {1, 2, 3, 4, 5, 6});
  for (const auto& [position, expected] :
       std::vector<std::pair<std::int64_t, std::vector<float>>>{{0, {1, 2}}, {2, {5, 6}}, {-2, {3, 4}}})
    EXPECT_EQ(first_of(model, {x, tensor<std::int64_t>(Shape{}, {position})}), expected);
  EXPECT_THROW(first_of(model, {x, tensor<std::int64_t>(Shape{}, {3})}), Error);

  OnnxWriter unequal;
  unequal.input("x", {3})
      .input("position", {}, kInt64)
      .constant<std::int64_t>("size", {}, {2})
      .node("SplitToSequence", {"x", "size"}, {"parts"})
      .node("SequenceAt", {"parts", "position"}, {"y"})
      .output("y");
  EXPECT_THAT(unequal.failure<UnsupportedError>(), HasSubstr("the position is computed at run time"));
}

TEST(OnnxSequences, WhatCannotBeIsRefused) {
  const auto after_split = [](const std::string& op, const test::Names& inputs) {
    OnnxWriter model;
    model.input("x", {3})
        .constant<std::int64_t>("three", {}, {3})
        .constant<std::int64_t>("least", {}, {std::numeric_limits<std::int64_t>::min()})
        .integers("none", {})
        .node("SplitToSequence", {"x"}, {"parts"})
        .node(op, inputs, {"y"},
              op == "ConcatFromSequence" ? std::vector<test::Attribute>{{"axis", kZero}}
                                         : std::vector<test::Attribute>{})
        .output("y");
    return model;
  };
  EXPECT_THAT(after_split("Relu", {"parts"}).failure<UnsupportedError>(), HasSubstr("input 0 is a sequence"));
  EXPECT_THAT(after_split("SequenceInsert", {"parts", "parts"}).failure<UnsupportedError>(),
              HasSubstr("input 1 is a sequence"));
  EXPECT_THAT(after_split("SequenceAt", {"parts", "parts"}).failure<UnsupportedError>(),
              HasSubstr("input 1 is a sequence"));
  EXPECT_THAT(after_split("SequenceConstruct", {"x", "parts"}).failure<UnsupportedError>(),
              HasSubstr("input 1 is a sequence"));
  EXPECT_THAT(after_split("Identity", {"parts"}).failure<UnsupportedError>(),
              HasSubstr("output 'y' is a sequence"));
  EXPECT_THAT(after_split("ConcatFromSequence", {"x"}).failure<Error>(), HasSubstr("expected a sequence"));
  for (const char* position : {"three", "least"})
    EXPECT_THAT(after_split("SequenceAt", {"parts", position}).failure<Error>(),
                HasSubstr("in a sequence of 3 values"));
  EXPECT_THAT(after_split("SequenceAt", {"parts", "none"}).failure<Error>(), HasSubstr("has 0 elements"));
  OnnxWriter many;
  many.input("x", {1 << 20})
      .node("SplitToSequence", {"x"}, {"parts"})
      .node("SequenceLength", {"parts"}, {"y"})
      .output("y");
  EXPECT_THAT(many.failure<UnsupportedError>(), HasSubstr("at most 4096"));
  OnnxWriter backwards;
  backwards.input("x", {3})
      .constant<std::int64_t>("size", {}, {-1})
      .node("SplitToSequence", {"x", "size"}, {"parts"})
      .node("SequenceLength", {"parts"}, {"y"})
      .output("y");
  EXPECT_THAT(backwards.failure<Error>(), HasSubstr("parts of -1"));
}

}  // namespace
}  // namespace pipit::internal
