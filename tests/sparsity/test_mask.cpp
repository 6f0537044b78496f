#include "sparsity/mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/passes/real_weights.h"
#include "sparsity/replace_weights.h"

namespace pipit::internal {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

Tensor counting(const Shape& shape) {
  Tensor tensor(TensorDesc{shape});
  float next = 1;
  for (float& x : tensor.values<float>()) x = next++;
  return tensor;
}

// A convolution [O, I, 1, 2] of two taps.
Graph convolution(std::int64_t outputs, std::int64_t inputs, std::int64_t groups) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", {Shape{1, inputs * groups, 3, 4}});
  const ValueId w = builder.add_constant("w", counting(Shape{outputs, inputs, 1, 2}));
  const ValueId b = builder.add_constant("b", counting(Shape{outputs}));
  ConvAttributes attributes;
  attributes.window.kernel = {1, 2};
  attributes.groups = groups;
  builder.mark_output(builder.add1("conv", std::make_shared<Conv>(attributes), {x, w, b}));
  return builder.build();
}

TEST(Mask, KHasPanelsTapsAndGroupsOfChannels) {
  const Shape shape{3, 3, 1, 2};
  LayerMask mask{"conv", MaskMode::k, 2, 2, {}};
  ASSERT_EQ(mask_size(mask, shape, 1), 2U * 2 * 2);
  mask.removed.assign(8, 0);
  mask.removed[1] = 1;  // panel 0 (outputs 0 and 1), tap 0, channels 2..
  mask.removed[6] = 1;  // panel 1 (output 2), tap 1, channels 0 and 1
  EXPECT_THAT(removed_weights(mask, shape, 1), ElementsAre(0, 0, 0, 0, 1, 0,  //
                                                           0, 0, 0, 0, 1, 0,  //
                                                           0, 1, 0, 1, 0, 0));
  EXPECT_THAT(removed_outputs(mask, shape, 1), Each(0));
}

TEST(Mask, BlocksInputsAndGroups) {
  const Shape shape{4, 1, 1, 1};  // depthwise: 2 groups of 2 outputs
  EXPECT_THAT(removed_weights({"", MaskMode::input, 1, 0, {0, 1}}, shape, 2), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(removed_weights({"", MaskMode::block, 3, 0, {1, 0}}, shape, 1), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(removed_outputs({"", MaskMode::block, 3, 0, {1, 0}}, shape, 1), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(removed_outputs({"", MaskMode::channel, 1, 0, {0, 0, 1, 0}}, shape, 1),
              ElementsAre(0, 0, 1, 0));
}

TEST(Mask, InputsHavePanelsAndGroupsOfChannelsWithAllTaps) {
  const Shape shape{3, 3, 1, 2};
  LayerMask mask{"conv", MaskMode::input, 2, 2, {0, 1, 1, 0}};
  ASSERT_EQ(mask_size(mask, shape, 1), 4U);
  EXPECT_THAT(removed_weights(mask, shape, 1), ElementsAre(0, 0, 0, 0, 1, 1,  //
                                                           0, 0, 0, 0, 1, 1,  //
                                                           1, 1, 1, 1, 0, 0));
  EXPECT_THAT(removed_outputs(mask, shape, 1), Each(0));
  EXPECT_EQ(mark_of(mask, shape, 1, 2, 0, 1), 2U);
  mask.panel = 0;
  EXPECT_EQ(mask_size(mask, shape, 1), 2U);
}

TEST(Mask, AppliedToAGraph) {
  const Graph graph = convolution(2, 2, 1);
  const Graph masked = apply_mask(
      graph, {{"conv", MaskMode::k, 1, 0, {1, 0, 0, 0}}, {"conv", MaskMode::channel, 1, 0, {0, 1}}});
  const RealWeights weights = real_weights(masked, masked.nodes()[0]);
  EXPECT_THAT(weights.values(), ElementsAre(0, 2, 3, 4, 0, 0, 0, 0));
  EXPECT_THAT(weights.bias, ElementsAre(1, 0));
  EXPECT_EQ(real_weights(graph, graph.nodes()[0]).values()[0], 1) << "the graph itself is as it was";
}

TEST(Mask, OfAGemm) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", {Shape{1, 3}});
  const ValueId w = builder.add_constant("w", counting(Shape{3, 2}));
  GemmAttributes attributes;
  attributes.alpha = 2;
  builder.mark_output(builder.add1("fc", std::make_shared<Gemm>(attributes), {x, w}));
  const Graph masked = apply_mask(builder.build(), {{"fc", MaskMode::input, 1, 0, {0, 1, 0}}});
  EXPECT_THAT(real_weights(masked, masked.nodes()[0]).values(), ElementsAre(2, 0, 10, 4, 0, 12));
}

TEST(Mask, ZeroRowsAreThoseOfWholePanelsAndOutputs) {
  // 18 outputs, panels of 16 and 2; depth 3.
  std::vector<float> w(std::size_t{18} * 3, 1);
  for (std::size_t o = 0; o < 16; ++o) w[o * 3 + 1] = 0;   // a row of the first panel
  for (std::size_t o = 1; o < 16; ++o) w[o * 3 + 2] = 0;   // all but one of another
  for (std::size_t o = 16; o < 18; ++o) w[o * 3 + 2] = 0;  // a row of the second
  for (std::size_t k = 0; k < 3; ++k) w[4 * 3 + k] = 0;    // an output
  const std::vector<std::uint8_t> zeros = zero_rows(w, Shape{18, 3, 1, 1}, 1);
  for (std::size_t o = 0; o < 18; ++o) {
    EXPECT_EQ(zeros[o * 3], o == 4) << o;
    EXPECT_EQ(zeros[o * 3 + 1], o < 16) << o;
    EXPECT_EQ(zeros[o * 3 + 2], o >= 16 || o == 4) << o;
  }
  // Two groups of 9 outputs: neither has output 8 and 9 in one panel.
  const std::vector<std::uint8_t> grouped = zero_rows(w, Shape{18, 3, 1, 1}, 2);
  EXPECT_EQ(grouped[8 * 3 + 1], 1);
  EXPECT_EQ(grouped[9 * 3 + 1], 0) << "16 and 17 of its group are not zero there";
}

TEST(Mask, RefusesWhatDoesNotFit) {
  const Graph graph = convolution(2, 2, 1);
  EXPECT_THROW(apply_mask(graph, {{"other", MaskMode::channel, 1, 0, {0, 1}}}), Error);
  EXPECT_THROW(apply_mask(graph, {{"conv", MaskMode::channel, 1, 0, {0, 1, 1}}}), Error);
  EXPECT_THROW(apply_mask(graph, {{"conv", MaskMode::channel, 2, 0, {0}}}), Error);
  EXPECT_THROW(apply_mask(graph, {{"conv", MaskMode::k, 0, 0, {0}}}), Error);
  EXPECT_THROW(apply_mask(graph, {{"conv", MaskMode::block, 1, 4, {0, 0}}}), Error);
  EXPECT_THROW(apply_mask(graph, {{"conv", MaskMode::input, 0, 1, {0, 0, 0, 0}}}), Error);
  EXPECT_THROW(apply_mask(graph, {{"conv", MaskMode::input, 1, 1, {0, 0}}}), Error);
}

TEST(ReplaceWeights, AddsABias) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", {Shape{1, 3}});
  const ValueId w = builder.add_constant("w", counting(Shape{2, 3}));
  GemmAttributes attributes;
  attributes.transpose_b = true;
  builder.mark_output(builder.add1("fc", std::make_shared<Gemm>(attributes), {x, w}));
  const Graph graph = builder.build();
  NewWeights made = weights_of(graph, graph.nodes()[0]);
  made.bias = {5, 6};
  std::map<std::string, NewWeights> layers;
  layers.emplace("fc", std::move(made));
  const Graph changed = replace_weights(graph, std::move(layers));
  EXPECT_THAT(real_weights(changed, changed.nodes()[0]).bias, ElementsAre(5, 6));
  EXPECT_THAT(real_weights(changed, changed.nodes()[0]).values(), ElementsAre(1, 2, 3, 4, 5, 6));
}

}  // namespace
}  // namespace pipit::internal
