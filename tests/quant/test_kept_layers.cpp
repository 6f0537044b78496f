#include "quant/kept_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/pool.h"
#include "layers/ops/reduce.h"
#include "layers/ops/unary.h"
#include "layers/passes/passes.h"
#include "quant/weighted_layer.h"

namespace pipit::internal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Sigmoid, then three convolutions and a Sigmoid.
Graph small_graph(const std::string& second = "layer1.conv") {
  GraphBuilder graph;
  ValueId x = graph.add_input("x", TensorDesc{Shape{1, 2, 4, 4}});
  x = graph.add1("before", std::make_shared<Unary>(UnaryAttributes{UnaryKind::sigmoid}), {x});
  for (const std::string& name : {std::string("stem"), second, std::string("layer2.conv")}) {
    const ValueId w = graph.add_constant(name + ".w", Tensor(TensorDesc{Shape{2, 2, 1, 1}}));
    x = graph.add1(name, std::make_shared<Conv>(ConvAttributes{}), {x, w});
  }
  graph.mark_output(graph.add1("after", std::make_shared<Unary>(UnaryAttributes{UnaryKind::sigmoid}), {x}));
  return graph.build();
}

using Kept = QuantizationPlan::Kept;

TEST(Keep, ParsesNameAndPrecision) {
  EXPECT_EQ(parse_keep("fc=fp32"), (Kept{"fc", "fp32"}));
  EXPECT_EQ(parse_keep("a=b/c=fp16"), (Kept{"a=b/c", "fp16"}));
  EXPECT_EQ(parse_keep("fc=bf16"), (Kept{"fc", "bf16"}));
  EXPECT_EQ(parse_keep("fc=int8"), (Kept{"fc", "int8"}));
  for (const char* text : {"", "fc", "fc=", "fc=int4", "=fp32", "fp32"})
    EXPECT_THAT([&] { parse_keep(text); }, ThrowsMessage<Error>(HasSubstr("NAME=fp32"))) << text;
}

TEST(Keep, FirstAndLastAreLayersWithWeights) {
  for (const Graph& graph : {small_graph(), assign_layouts(small_graph()).graph}) {
    EXPECT_THAT(weighted_layers(graph), ElementsAre("stem", "layer1.conv", "layer2.conv"));
    QuantizationPlan plan;
    keep_nodes(plan, graph, std::vector<Kept>{{"first", "fp16"}, {"last", "fp32"}});
    EXPECT_THAT(plan.keep, ElementsAre(Kept{"stem", "fp16"}, Kept{"layer2.conv", "fp32"}));
  }
}

TEST(Keep, ANodeOfThatNameGoesBeforeTheWord) {
  QuantizationPlan plan;
  const std::vector<Kept> last = {{"last", "fp32"}};
  EXPECT_THAT(keep_nodes(plan, small_graph("last"), last),
              ElementsAre(AllOf(HasSubstr("'last' is the node"), HasSubstr("is 'layer2.conv'"))));
  EXPECT_EQ(plan.keep[0].node, "last");
  EXPECT_THAT(keep_nodes(plan, small_graph(), last), ElementsAre());
  EXPECT_THAT(keep_nodes(plan, small_graph("first"), std::vector<Kept>{{"stem", "fp32"}}), ElementsAre());
}

TEST(Keep, Int8TakesOutWhatThePlanKeeps) {
  QuantizationPlan plan;
  plan.keep = {{"stem", "fp16"}, {"layer2.conv", "fp32", "a reason"}};
  keep_nodes(plan, small_graph(), std::vector<Kept>{{"last", "int8"}, {"layer1.conv", "int8"}});
  EXPECT_THAT(plan.keep, ElementsAre(Kept{"stem", "fp16"}));
}

// A gate over channels, whose average is multiplied into the image again, and one last average. As `name` has it: a
// pool over the whole image, or a mean.
Graph gated_classifier(bool as_mean, bool scores_are_maps = false) {
  GraphBuilder graph;
  const auto average = [&](const char* name, ValueId x) {
    if (as_mean) {
      ReduceAttributes mean{ReduceKind::mean, {2, 3}};
      mean.keep_dims = true;
      return graph.add1(name, std::make_shared<Reduce>(mean), {x});
    }
    PoolAttributes pool{.kind = PoolKind::average};
    pool.window.kernel = {4, 4, 1};
    return graph.add1(name, std::make_shared<Pool>(pool), {x});
  };
  const ValueId x = graph.add_input("x", TensorDesc{Shape{2, 3, 4, 4}});
  const ValueId gate = average("squeeze", x);
  ValueId y = graph.add1("gated", std::make_shared<Binary>(BinaryAttributes{BinaryKind::mul}), {x, gate});
  if (!scores_are_maps) y = average("last", y);
  graph.mark_output(graph.add1("after", std::make_shared<Unary>(UnaryAttributes{UnaryKind::sigmoid}), {y}));
  return graph.build();
}

TEST(Keep, TheAveragesThatScoresAreMadeOfAreKeptByDefault) {
  for (const bool as_mean : {false, true}) {
    const std::vector<Kept> kept = kept_by_default(gated_classifier(as_mean));
    ASSERT_EQ(kept.size(), 1U);
    EXPECT_EQ(kept[0].node, "last");
    EXPECT_EQ(kept[0].precision, "fp32");
    EXPECT_THAT(kept[0].why, HasSubstr("rounding what it averages costs accuracy"));
    EXPECT_TRUE(kept_by_default(gated_classifier(as_mean, true)).empty());
  }
  EXPECT_TRUE(kept_by_default(small_graph()).empty());
}

TEST(Keep, WhatIsKeptByDefaultMayBeKeptInHalves) {
  const Graph graph = gated_classifier(false);
  QuantizationPlan plan;
  plan.keep = kept_by_default(graph);
  keep_defaults_as(Precision::fp16, plan, graph);
  ASSERT_EQ(plan.keep.size(), 1U);
  EXPECT_EQ(plan.keep[0].precision, "fp16");
  EXPECT_EQ(plan.keep[0].why, kept_by_default(graph)[0].why);
  // A user's own choice is left alone, of the same layer too.
  const std::vector<Kept> wishes{{"squeeze", "fp32"}, {"last", "fp32"}};
  plan.keep = wishes;
  keep_defaults_as(Precision::fp16, plan, graph);
  EXPECT_EQ(plan.keep, wishes);
}

TEST(Keep, ReplacesWhatThePlanSays) {
  QuantizationPlan plan;
  plan.keep = {{"stem", "fp16"}};
  keep_nodes(plan, small_graph(), std::vector<Kept>{{"first", "fp32"}});
  EXPECT_THAT(plan.keep, ElementsAre(Kept{"stem", "fp32"}));
}

TEST(Keep, RefusesTwoPrecisionsForOneNode) {
  QuantizationPlan plan;
  EXPECT_THAT(
      [&] {
        keep_nodes(plan, small_graph(), std::vector<Kept>{{"stem", "fp32"}, {"first", "int8"}});
      },
      ThrowsMessage<Error>(HasSubstr("'stem' is asked for in fp32 and in int8")));
  keep_nodes(plan, small_graph(), std::vector<Kept>{{"stem", "fp32"}, {"first", "fp32"}});
  EXPECT_THAT(plan.keep, ElementsAre(Kept{"stem", "fp32"}));
}

TEST(Keep, UnknownNamesListTheNearest) {
  QuantizationPlan plan;
  const auto keep = [&](const char* name) {
    keep_nodes(plan, small_graph(), std::vector<Kept>{{name, "fp32"}});
  };
  EXPECT_THAT([&] { keep("layer1.con"); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("no node 'layer1.con'"), HasSubstr("did you mean 'layer1.conv'"))));
  EXPECT_THAT([&] { keep("layer3.conv"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("'layer1.conv', 'layer2.conv'?"))));
  EXPECT_THAT([&] { keep("conv"); }, ThrowsMessage<Error>(HasSubstr("'layer1.conv', 'layer2.conv'?")));
  EXPECT_THAT([&] { keep("zzzzzzzzzzzz"); },
              ThrowsMessage<Error>(testing::EndsWith("no node 'zzzzzzzzzzzz'")));
  EXPECT_TRUE(plan.keep.empty());
  plan.keep = {{"stam", "fp32"}};
  EXPECT_THAT([&] { check_kept_nodes(plan, small_graph()); },
              ThrowsMessage<Error>(HasSubstr("did you mean 'stem'")));
}

TEST(Keep, ModelsWithoutWeightsHaveNoFirstLayer) {
  GraphBuilder graph;
  const ValueId x = graph.add_input("x", TensorDesc{Shape{1, 2}});
  graph.mark_output(graph.add1("only", std::make_shared<Unary>(UnaryAttributes{UnaryKind::sigmoid}), {x}));
  QuantizationPlan plan;
  const Graph built = graph.build();
  EXPECT_THAT(
      [&] {
        keep_nodes(plan, built, std::vector<Kept>{{"first", "fp32"}});
      },
      ThrowsMessage<Error>(HasSubstr("no layer that could compute in INT8")));
}

}  // namespace
}  // namespace pipit::internal
