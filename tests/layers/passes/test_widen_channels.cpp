// Channels of zeros up to a multiple of 8.
#include <gtest/gtest.h>

#include <functional>

#include "layers/ops/channel_shuffle.h"
#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/resize.h"
#include "layers/ops/slicing.h"
#include "layers/passes/pipeline.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::count_type;
using test::expect_same_outputs;
using test::TestGraph;

// The channels of what a node makes.
std::int64_t channels(const Graph& graph, const std::string& name) {
  for (const Node& node : graph.nodes()) {
    if (node.name == name) return graph.value(node.outputs[0]).desc.shape[1];
  }
  ADD_FAILURE() << "no node " << name;
  return 0;
}

ValueId depthwise(TestGraph& b, const std::string& name, ValueId x) {
  ConvAttributes a;
  a.groups = b.graph.value(x).desc.shape[1];
  a.window.kernel = {3, 3, 1};
  a.window.pad_begin = a.window.pad_end = {1, 1, 0};
  return b.add(name, Conv(a), {x, b.constant(Shape{a.groups, 1, 3, 3}), b.constant(Shape{a.groups})});
}

TEST(WidenChannels, OfConvolutionsAndWhatKeepsThem) {
  TestGraph b;
  const ValueId x = b.conv("first", b.input(Shape{2, 3, 6, 5}), 18, 3, true);
  const ValueId deep = depthwise(b, "depthwise", b.unary("relu", UnaryKind::relu, x));
  const ValueId sum = b.binary("sum", BinaryKind::add, b.conv("second", deep, 18), x);
  const ValueId half =
      b.binary("half", BinaryKind::mul, sum, b.graph.add_constant("0.5", Tensor::scalar(0.5F)));
  ResizeAttributes twice;
  twice.scales = {1, 1, 2, 2, 1, 1};
  twice.sizes = {2, 18, 12, 10};
  const ValueId large = b.add("resize", Resize(twice), {half});
  PoolAttributes average{.kind = PoolKind::average, .global = true};
  const ValueId mean = b.add("mean", Pool(average), {large});
  const ValueId gate = b.unary("gate", UnaryKind::sigmoid, b.conv("of mean", mean, 18, 1));
  const ValueId gated = b.binary("gated", BinaryKind::mul, large, gate);
  const Graph before = b.build({b.conv("last", gated, 19, 1, true)});
  const Rewritten after = widen_channels(before);
  EXPECT_EQ(after.changes, 5);
  for (const char* name : {"first", "relu", "depthwise", "second", "sum", "half", "resize", "mean", "gated"})
    EXPECT_EQ(channels(after.graph, name), 24) << name;
  EXPECT_EQ(channels(after.graph, "last"), 19) << "an output of the graph";
  expect_same_outputs(before, after.graph);
}

TEST(WidenChannels, OfResiduals) {
  TestGraph b;
  const ValueId x = b.conv("first", b.input(Shape{1, 3, 5, 4}), 20);
  const ValueId y =
      b.add("second", Conv(ConvAttributes{}), {x, b.constant(Shape{20, 20, 1, 1}), kNoValue, x});
  const Graph before = b.build({b.conv("last", y, 4)});
  const Rewritten after = widen_channels(before);
  EXPECT_EQ(channels(after.graph, "second"), 24);
  expect_same_outputs(before, after.graph);
}

// ShuffleNet v2's units: halves that are shuffled and parted again.
TEST(WidenChannels, OfWhatIsJoinedShuffledAndParted) {
  for (const std::int64_t groups : {1, 2}) {
    TestGraph b;
    const ValueId image = b.input(Shape{2, 3, 5, 4});
    const ValueId first = b.conv("a", image, 29), second = b.conv("b", image, 29);
    const std::vector<ValueId> halves =
        b.graph.add("shuffle", std::make_shared<ChannelShuffle>(ChannelShuffleAttributes{groups, {29, 29}}),
                    {first, second});
    const ValueId branch = b.conv("d", depthwise(b, "c", halves[1]), 30);
    const ValueId joined = b.add("concat", Concat({1}), {halves[0], branch});
    const std::vector<ValueId> parts =
        b.graph.add("split", std::make_shared<Split>(SplitAttributes{-3, {17, 40, 2}}), {joined});
    const Graph before =
        b.build({b.conv("e", parts[0], 4), b.conv("f", parts[1], 4), b.conv("g", parts[2], 4)});
    const Rewritten after = widen_channels(before);
    for (const char* name : {"a", "b", "c"}) EXPECT_EQ(channels(after.graph, name), 32) << name;
    EXPECT_EQ(channels(after.graph, "shuffle"), 29) << "no convolution reads the first half";
    EXPECT_EQ(channels(after.graph, "d"), 30) << "or this one";
    EXPECT_EQ(count_type(after.graph, "Concat"), 1);
    EXPECT_EQ(channels(after.graph, "split"), 24);
    EXPECT_EQ(count_type(after.graph, "Split"), 0);
    EXPECT_EQ(count_type(after.graph, "ChannelShuffle"), 2);
    expect_same_outputs(before, after.graph);
  }
}

TEST(WidenChannels, OfWhatConcatMakes) {
  TestGraph b;
  const ValueId image = b.input(Shape{2, 3, 5, 4});
  const ValueId joined = b.add("concat", Concat({1}), {b.conv("a", image, 17), b.conv("b", image, 18)});
  const Graph before = b.build({b.conv("c", joined, 4)});
  const Rewritten after = widen_channels(before);
  EXPECT_EQ(channels(after.graph, "concat"), 40);
  EXPECT_EQ(count_type(after.graph, "ChannelShuffle"), 1);
  expect_same_outputs(before, after.graph);
}

// Res2Net: what one part is averaged for makes a ChannelShuffle of the Concat, and the others come along.
TEST(WidenChannels, OfWhatIsJoinedWithAWidenedImage) {
  TestGraph b;
  const ValueId image = b.input(Shape{2, 3, 5, 4});
  PoolAttributes average{.kind = PoolKind::average};
  average.window.kernel = {3, 3, 1};
  average.window.pad_begin = average.window.pad_end = {1, 1, 0};
  const ValueId smooth = b.add("average", Pool(average), {b.conv("a", image, 18)});
  const ValueId joined = b.add("concat", Concat({1}), {smooth, b.conv("b", image, 22)});
  const Graph before = b.build({b.conv("c", joined, 4)});
  const Rewritten after = widen_channels(before);
  for (const char* name : {"a", "b", "average"}) EXPECT_EQ(channels(after.graph, name), 24) << name;
  EXPECT_EQ(channels(after.graph, "concat"), 40);
  EXPECT_EQ(count_type(after.graph, "ChannelShuffle"), 1);
  expect_same_outputs(before, after.graph);
}

TEST(WidenChannels, NotOfTheGraphsOwn) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 20, 5, 4});
  const ValueId y = b.conv("output", b.conv("few", x, 12), 20);
  EXPECT_EQ(widen_channels(b.build({y, b.conv("last", y, 20)})).changes, 0);
}

// What keeps 20 images of 20 channels, which a convolution reads, as they are.
TEST(WidenChannels, NotOfWhatCountsChannels) {
  using Use = std::function<ValueId(TestGraph&, ValueId)>;
  const auto number = [](TestGraph& b, float value, const Shape& shape) {
    return b.graph.add_constant("number", Tensor::from<float>(shape, std::vector<float>{value}));
  };
  const std::pair<const char*, Use> uses[] = {
      {"Reshape",
       [](TestGraph& b, ValueId x) {
         return b.add("y", Reshape({Shape{2, 4, 250, 4}}), {x});
       }},
      {"Transpose",
       [](TestGraph& b, ValueId x) {
         return b.add("y", Transpose({{0, 2, 3, 1}}), {x});
       }},
      {"BatchNorm", [](TestGraph& b, ValueId x) { return b.batch_norm("y", x); }},
      {"a number per channel",
       [](TestGraph& b, ValueId x) {
         return b.binary("y", BinaryKind::mul, x, b.constant(Shape{1, 20, 1, 1}));
       }},
      {"quotients of what is 0",
       [](TestGraph& b, ValueId x) { return b.binary("y", BinaryKind::div, x, b.conv("other", x, 20)); }},
      {"an infinite number",
       [&](TestGraph& b, ValueId x) {
         return b.binary("y", BinaryKind::min, x, number(b, INFINITY, Shape{}));
       }},
      {"a number of more dimensions",
       [&](TestGraph& b, ValueId x) {
         return b.binary("y", BinaryKind::add, x, number(b, 1, Shape{1, 1, 1, 1, 1}));
       }},
      {"an image of more dimensions",
       [](TestGraph& b, ValueId x) {
         const ValueId images = b.add("images", Reshape({Shape{1, 20, 20, 5, 4}}), {b.conv("other", x, 20)});
         return b.binary("y", BinaryKind::add, x, images);
       }},
      {"groups",
       [](TestGraph& b, ValueId x) {
         ConvAttributes groups;
         groups.groups = 2;
         return b.add("y", Conv(groups), {x, b.constant(Shape{20, 10, 1, 1})});
       }},
      {"weights that are computed",
       [](TestGraph& b, ValueId x) {
         return b.add("y", Conv(ConvAttributes{}), {b.conv("other", x, 20), x});
       }},
  };
  for (const auto& [name, use] : uses) {
    SCOPED_TRACE(name);
    TestGraph b;
    const bool weights = std::string_view(name) == "weights that are computed";
    const ValueId image = b.input(weights ? Shape{20, 3, 1, 1} : Shape{20, 3, 5, 4});
    const ValueId x = b.conv("first", image, 20, weights ? 1 : 3);
    const Graph before = b.build({use(b, x), b.conv("last", x, 3, 1)});
    const Rewritten after = widen_channels(before);
    EXPECT_EQ(channels(after.graph, "first"), 20);
    expect_same_outputs(before, after.graph);
  }
}

TEST(WidenChannels, NotOfSinglePixelsOrHugeImages) {
  for (const Shape& shape : {Shape{2, 3, 1, 1}, Shape{1, 3, 1, 1 << 27}}) {
    TestGraph b;
    EXPECT_EQ(widen_channels(b.build({b.conv("last", b.conv("first", b.input(shape), 20, 1), 3, 1)})).changes,
              0)
        << shape.str();
  }
}

TEST(WidenChannels, OnlyOnce) {
  TestGraph b;
  const ValueId image = b.input(Shape{2, 3, 5, 4});
  const ValueId joined = b.add("concat", Concat({1}), {b.conv("a", image, 17), b.conv("b", image, 18)});
  const Graph before = b.build({b.conv("c", joined, 4)});
  const Rewritten once = widen_channels(before);
  const Rewritten twice = widen_channels(once.graph);
  EXPECT_GT(once.changes, 0);
  EXPECT_EQ(twice.changes, 0);
  expect_same_outputs(before, twice.graph);
}

TEST(WidenChannels, OfIntegers) {
  TestGraph b;
  Quantization q;
  q.scale = 0.02F, q.zero_point = 3, q.dtype = DType::i8;
  const auto qconv = [&](const std::string& name, ValueId x, std::int64_t outputs) {
    const std::int64_t inputs = b.graph.value(x).desc.shape[1];
    QConvAttributes a;
    a.conv.window.kernel = {3, 3, 1};
    a.x = a.y = q;
    for (std::int64_t o = 0; o < outputs; ++o)
      a.weight_scales.push_back(0.001F * static_cast<float>(1 + o % 5));
    Tensor weights(TensorDesc{Shape{outputs, inputs, 3, 3}, DType::i8});
    for (std::int8_t& w : weights.values<std::int8_t>()) w = static_cast<std::int8_t>(b.random() % 255 - 127);
    Tensor bias(TensorDesc{Shape{outputs}, DType::i32});
    for (std::int32_t& v : bias.values<std::int32_t>()) v = static_cast<std::int32_t>(b.random() % 2000);
    return b.add(name, QConv(a),
                 {x, b.graph.add_constant(name + ".w", std::move(weights)),
                  b.graph.add_constant(name + ".b", std::move(bias))});
  };
  const ValueId x = b.add("quantize", Quantize(q), {b.input(Shape{1, 5, 9, 9})});
  const ValueId y = qconv("last", qconv("second", qconv("first", x, 21), 18), 6);
  const Graph before = b.build({b.add("back", Dequantize(q), {y})});
  const Rewritten after = widen_channels(before);
  EXPECT_EQ(after.changes, 3);
  EXPECT_EQ(channels(after.graph, "first"), 24);
  EXPECT_EQ(channels(after.graph, "second"), 24);
  expect_same_outputs(before, after.graph, 0);
}

// The whole pipeline, and where every value is to be seen.
TEST(WidenChannels, ForAGpuOnly) {
  TestGraph b;
  const ValueId x = b.conv("first", b.input(Shape{1, 3, 5, 4}), 20);
  const Graph before = b.build({b.conv("last", x, 4)});
  const auto width = [&](DeviceKind device, Precision precision, bool keep_every_value) {
    return channels(optimize(before, {device, precision, keep_every_value}), "first");
  };
  EXPECT_EQ(width(DeviceKind::cuda, Precision::fp16, false), 24);
  EXPECT_EQ(width(DeviceKind::cuda, Precision::fp16, true), 20) << "observers see the model's channels";
  EXPECT_EQ(width(DeviceKind::cuda, Precision::fp32, false), 20);
  EXPECT_EQ(width(DeviceKind::cpu, Precision::fp16, false), 20);
}

}  // namespace
}  // namespace pipit::internal
