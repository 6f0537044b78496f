// Smaller graphs compute what the same graphs with zeros compute.
#include "sparsity/remove_channels.h"

#include <gmock/gmock.h>

#include <functional>

#include "engine/base/error.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/pool.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/resize.h"
#include "layers/ops/slicing.h"
#include "layers/passes/pipeline.h"
#include "layers/passes/rewriter.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::expect_same_outputs;
using test::TestGraph;
using ::testing::HasSubstr;

// At least one, where there is one.
std::vector<bool> some_of(const ChannelGroups& found, std::mt19937& random, double share) {
  std::vector<bool> removed;
  std::bernoulli_distribution choose(share);
  for (int i = 0; i < 100 && std::find(removed.begin(), removed.end(), true) == removed.end(); ++i) {
    removed.clear();
    for (const ChannelGroup& group : found.groups) removed.push_back(group.removable() && choose(random));
    spare_last_channels(found, removed);
  }
  return removed;
}

std::int64_t constants(const Graph& graph) {
  std::int64_t count = 0;
  for (const Value& value : graph.values()) count += value.is_constant() ? value.desc.elements() : 0;
  return count;
}

// Removes some channels of the graph as it is and as fuse() makes it. The sums are the same but for zeros, which may
// change their order: the tolerance of a fold holds.
void expect_removable(const Graph& graph, std::mt19937& random, double share = 0.4) {
  for (const Graph& form : {graph, fuse(graph)}) {
    const ChannelGroups found = find_channel_groups(form);
    const std::vector<bool> removed = some_of(found, random, share);
    if (std::find(removed.begin(), removed.end(), true) == removed.end()) {
      ADD_FAILURE() << "nothing can be removed";
      continue;
    }
    const Graph zero = zero_channels(form, found, removed);
    const Graph small = remove_channels(form, found, removed);
    EXPECT_LT(constants(small), constants(form));
    ASSERT_EQ(small.nodes().size(), form.nodes().size());
    for (std::size_t n = 0; n < form.nodes().size(); ++n)
      EXPECT_EQ(small.nodes()[n].name, form.nodes()[n].name);
    expect_same_outputs(zero, small);
  }
}

// A convolution of 4 to 9 channels, what `middle` makes of it, and one after that.
using Middle = std::function<ValueId(TestGraph&, ValueId)>;
void expect_removable_through(const Middle& middle) {
  TestGraph b;
  const std::int64_t channels = 4 + static_cast<std::int64_t>(b.random() % 6);
  ValueId v = b.conv("before", b.input(Shape{2, 3, 6, 7}), channels, 3, true);
  v = middle(b, v);
  const ValueId y = b.graph.value(v).desc.shape.rank() == 4 ? b.conv("after", v, 5, 1, true) : v;
  const Graph graph = b.build({y});
  for (int i = 0; i < 3; ++i) expect_removable(graph, b.random);
}

std::int64_t extent(const TestGraph& b, ValueId v, int axis) {
  return b.graph.value(v).desc.shape[axis];
}

TEST(RemoveChannels, ThroughNormalizationAndFunctions) {
  expect_removable_through([](TestGraph& b, ValueId v) {
    v = b.unary("relu", UnaryKind::relu, b.batch_norm("bn", v));
    return b.unary("silu", UnaryKind::silu, b.batch_norm("bn2", v));
  });
  expect_removable_through([](TestGraph& b, ValueId v) {
    const Shape c{extent(b, v, 1)};
    return b.add("norm", InstanceNorm(InstanceNormAttributes{}), {v, b.constant(c), b.constant(c)});
  });
}

TEST(RemoveChannels, BiasesTakeWhatAChannelIsWithoutWeights) {
  for (const UnaryKind kind : {UnaryKind::sigmoid, UnaryKind::exp, UnaryKind::cos, UnaryKind::softplus}) {
    expect_removable_through([&](TestGraph& b, ValueId v) { return b.unary("f", kind, v); });
  }
  expect_removable_through([](TestGraph& b, ValueId v) {  // also a classifier's
    v = b.add("pool", Pool(PoolAttributes{.kind = PoolKind::average, .global = true}),
              {b.unary("f", UnaryKind::sigmoid, v)});
    v = b.add("flatten", Reshape(ReshapeAttributes{Shape{2, extent(b, v, 1)}}), {v});
    GemmAttributes a;
    a.alpha = 0.5F;
    a.beta = 2;
    return b.add("fc", Gemm(a), {v, b.constant(Shape{extent(b, v, 1), 3}), b.constant(Shape{1, 3})});
  });
  expect_removable_through([](TestGraph& b, ValueId v) {  // and one without a bias
    v = b.add("pool", Reduce(ReduceAttributes{ReduceKind::mean, {2, 3}, false}),
              {b.unary("f", UnaryKind::sigmoid, v)});
    return b.add("fc", Gemm(GemmAttributes{.transpose_b = true}), {v, b.constant(Shape{3, extent(b, v, 1)})});
  });
}

TEST(RemoveChannels, ConstantsPerChannel) {
  for (const BinaryKind kind : {BinaryKind::add, BinaryKind::sub, BinaryKind::mul, BinaryKind::prelu}) {
    expect_removable_through([&](TestGraph& b, ValueId v) {
      return b.binary("f", kind, v, b.constant(Shape{extent(b, v, 1), 1, 1}));
    });
  }
  expect_removable_through([](TestGraph& b, ValueId v) {  // a position embedding, and a scalar
    v = b.binary("positions", BinaryKind::add, v, b.constant(Shape{1, extent(b, v, 1), 6, 7}));
    return b.binary("scalar", BinaryKind::sub, b.constant(Shape{}), v);
  });
  expect_removable_through([](TestGraph& b, ValueId v) {
    v = b.binary("map", BinaryKind::mul, v, b.constant(Shape{6, 7}));
    return b.binary("max", BinaryKind::max, v, b.constant(Shape{1}));
  });
}

TEST(RemoveChannels, ThroughPoolsAndReductions) {
  for (const PoolKind kind : {PoolKind::max, PoolKind::average, PoolKind::lp}) {
    expect_removable_through([&](TestGraph& b, ValueId v) {
      PoolAttributes a{.kind = kind};
      a.window.kernel = {3, 3, 1};
      a.window.stride = {2, 2, 1};
      a.window.pad_begin = a.window.pad_end = {1, 1, 0};
      a.count_include_pad = kind == PoolKind::average;
      return b.add("pool", Pool(a), {v});
    });
  }
  expect_removable_through([](TestGraph& b, ValueId v) {
    const ValueId norm = b.add("norm", Reduce(ReduceAttributes{ReduceKind::l2, {1}, true}), {v});
    return b.binary("div", BinaryKind::div, v, norm);
  });
}

TEST(RemoveChannels, ThroughMovement) {
  expect_removable_through([](TestGraph& b, ValueId v) {
    v = b.add("pad", Pad(PadAttributes{PadMode::constant, {0, 0, 1, 0}, {0, 0, 0, 2}, 0}), {v});
    v = b.add("edge", Pad(PadAttributes{PadMode::edge, {0, 0, 1, 1}, {0, 0, 0, 0}, 0}), {v});
    ResizeAttributes a;
    a.sizes = {2, extent(b, v, 1), 11, 5};
    a.scales = {1, 1, 11.0F / 8, 0.5F};
    return b.add("resize", Resize(a), {v});
  });
  expect_removable_through([](TestGraph& b, ValueId v) {
    v = b.add("space", DepthToSpace(DepthToSpaceAttributes{.block = 2, .inverse = true}),
              {b.add("pad", Pad(PadAttributes{PadMode::constant, {0, 0, 0, 0}, {0, 0, 0, 1}, 0}), {v})});
    return b.add("depth", DepthToSpace(DepthToSpaceAttributes{.block = 2}), {v});
  });
  expect_removable_through([](TestGraph& b, ValueId v) {
    v = b.conv("wide", v, 12);
    return b.add("depth", DepthToSpace(DepthToSpaceAttributes{.block = 2, .column_row_depth = true}), {v});
  });
  expect_removable_through([](TestGraph& b, ValueId v) {
    v = b.add("rows", Reshape(ReshapeAttributes{Shape{2, extent(b, v, 1), 42}}), {v});
    v = b.add("turn", Transpose(TransposeAttributes{{0, 2, 1}}), {v});
    v = b.add("product", MatMul(), {v, b.constant(Shape{extent(b, v, 2), 6})});
    v = b.add("back", Transpose(TransposeAttributes{{0, 2, 1}}), {v});
    return b.add("image", Reshape(ReshapeAttributes{Shape{2, 6, 6, 7}}), {v});
  });
  expect_removable_through([](TestGraph& b, ValueId v) {
    const std::int64_t columns = extent(b, v, 1) * 42;
    v = b.add("flatten", Reshape(ReshapeAttributes{Shape{2, columns}}), {v});
    v = b.binary("scaled", BinaryKind::mul, v, b.constant(Shape{columns}));
    v = b.add("hidden", Gemm(GemmAttributes{.transpose_b = true}), {v, b.constant(Shape{8, columns})});
    return b.add("fc", Gemm(GemmAttributes{}), {v, b.constant(Shape{8, 3}), b.constant(Shape{3})});
  });
}

TEST(RemoveChannels, ThroughExpandAndChannelsLast) {
  expect_removable_through([](TestGraph& b, ValueId v) {
    const ValueId mean = b.add("mean", Reduce(ReduceAttributes{ReduceKind::mean, {2, 3}, true}), {v});
    const ValueId spread = b.add("spread", Expand(ExpandAttributes{Shape{2, extent(b, v, 1), 6, 7}}), {mean});
    return b.binary("centred", BinaryKind::sub, v, spread);
  });
  expect_removable_through([](TestGraph& b, ValueId v) {
    const std::int64_t columns = extent(b, v, 1) * 42;
    v = b.add("nhwc", Transpose(TransposeAttributes{{0, 2, 3, 1}}), {v});
    v = b.binary("shifted", BinaryKind::add, v, b.constant(Shape{extent(b, v, 3)}));
    v = b.add("flatten", Reshape(ReshapeAttributes{Shape{2, columns}}), {v});
    return b.add("fc", Gemm(GemmAttributes{}), {v, b.constant(Shape{columns, 3}), b.constant(Shape{3})});
  });
}

TEST(RemoveChannels, OfBranches) {
  expect_removable_through([](TestGraph& b, ValueId v) {  // squeeze and excite
    ValueId gate = b.add("pool", Pool(PoolAttributes{.kind = PoolKind::average, .global = true}), {v});
    gate = b.unary("relu", UnaryKind::relu, b.conv("squeeze", gate, 4, 1, true));
    gate = b.unary("sigmoid", UnaryKind::sigmoid, b.conv("excite", gate, extent(b, v, 1), 1, true));
    return b.binary("gated", BinaryKind::mul, v, gate);
  });
  expect_removable_through([](TestGraph& b, ValueId v) {  // attention to places
    const ValueId map = b.unary("sigmoid", UnaryKind::sigmoid, b.conv("map", v, 1, 3, true));
    return b.binary("attended", BinaryKind::mul, map, v);
  });
  expect_removable_through([](TestGraph& b, ValueId v) {
    const ValueId joined = b.add("concat", Concat(ConcatAttributes{1}), {v, b.conv("more", v, 5), v});
    const std::int64_t half = extent(b, joined, 1) / 2;
    const std::vector<ValueId> parts = b.graph.add(
        "split", std::make_shared<Split>(SplitAttributes{1, {half, extent(b, joined, 1) - half}}), {joined});
    const ValueId rest = b.add("slice", Slice(SliceAttributes{{2}, {1000}, {-3}, {1}}), {joined});
    return b.add("again", Concat(ConcatAttributes{1}), {parts[1], rest, parts[0]});
  });
  expect_removable_through([](TestGraph& b, ValueId v) {
    return b.add("tall", Concat(ConcatAttributes{2}), {v, b.conv("more", v, extent(b, v, 1))});
  });
}

TEST(RemoveChannels, OfConvolutionsOfGroups) {
  struct Case {
    int inputs, outputs, groups;
  };
  for (const Case& c : {Case{6, 6, 6}, Case{4, 12, 4}, Case{8, 16, 8}, Case{12, 8, 2}, Case{8, 8, 4}}) {
    SCOPED_TRACE(testing::Message() << c.inputs << " to " << c.outputs << " in " << c.groups << " groups");
    expect_removable_through([&](TestGraph& b, ValueId v) {
      v = b.conv("wide", v, c.inputs);
      ConvAttributes a;
      a.groups = c.groups;
      a.window.kernel = {3, 2, 1};
      a.window.pad_begin = {1, 0, 0};
      return b.add(
          "grouped", Conv(a),
          {v, b.constant(Shape{c.outputs, c.inputs / c.groups, 3, 2}), b.constant(Shape{c.outputs})});
    });
  }
}

// A network of random layers: each takes the values that there are.
Graph random_network(std::mt19937& random) {
  TestGraph b;
  b.random.seed(random());
  const auto draw = [&](std::size_t n) { return b.random() % n; };
  std::vector<ValueId> values{b.conv("stem", b.input(Shape{1, 3, 8, 8}), 8, 3, true)};
  const std::size_t layers = 4 + draw(10);
  for (std::size_t i = 0; i < layers; ++i) {
    const std::string name = "n" + std::to_string(i);
    const ValueId x = values[values.size() - 1 - draw(std::min<std::size_t>(3, values.size()))];
    const std::int64_t channels = extent(b, x, 1);
    const ValueId other = values[draw(values.size())];
    ConvAttributes depthwise;
    depthwise.groups = channels;
    switch (draw(9)) {
      case 0:
        values.push_back(
            b.conv(name, x, 4 + static_cast<std::int64_t>(draw(9)), draw(2) == 0 ? 1 : 3, draw(2) == 0));
        break;
      case 1:
        values.push_back(b.add(name, Conv(depthwise), {x, b.constant(Shape{channels, 1, 1, 1})}));
        break;
      case 2:
        values.push_back(b.batch_norm(name, x));
        break;
      case 3:
        values.push_back(b.unary(name, draw(2) == 0 ? UnaryKind::relu : UnaryKind::hard_swish, x));
        break;
      case 4:
        values.push_back(b.add(name, Concat(ConcatAttributes{1}), {x, other}));
        break;
      case 5:
      case 6:
        values.push_back(b.binary(name, BinaryKind::add, b.conv(name + ".c", other, channels), x));
        break;
      case 7:
        values.push_back(
            b.binary(name, BinaryKind::mul, x,
                     b.unary(name + ".s", UnaryKind::sigmoid, b.conv(name + ".c", other, channels))));
        break;
      default:
        values.push_back(b.add(name, Slice(SliceAttributes{{1}, {channels}, {1}, {1}}), {x}));
        break;
    }
  }
  ValueId v = b.add("all", Concat(ConcatAttributes{1}), values);
  v = b.unary("sigmoid", UnaryKind::sigmoid, b.conv("head", v, 6));
  v = b.add("pool", Pool(PoolAttributes{.kind = PoolKind::average, .global = true}), {v});
  v = b.add("flatten", Reshape(ReshapeAttributes{Shape{1, 6}}), {v});
  return b.build({b.add("fc", Gemm(GemmAttributes{}), {v, b.constant(Shape{6, 4}), b.constant(Shape{4})})});
}

TEST(RemoveChannels, OfRandomNetworks) {
  std::mt19937 random(test::test_seed());
  for (int i = 0; i < 30; ++i) {
    SCOPED_TRACE(testing::Message() << "network " << i);
    expect_removable(random_network(random), random, 0.3);
  }
}

TEST(RemoveChannels, RefusesWhatCannotGo) {
  TestGraph b;
  const Graph graph = b.build({b.conv("second", b.conv("first", b.input(Shape{1, 3, 4, 4}), 2), 2)});
  const ChannelGroups found = find_channel_groups(graph);
  const auto message = [&](const std::vector<bool>& removed) -> std::string {
    try {
      remove_channels(graph, found, removed);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(message({false, false, true, false}), HasSubstr("an output of the model"));
  EXPECT_THAT(message({true, true, false, false}),
              HasSubstr("'first' would be left without channels: of its 2"));
  EXPECT_THAT(message({true}), HasSubstr("1 marks for 4 groups"));
  std::vector<bool> all{true, true, false, false};
  spare_last_channels(found, all);
  EXPECT_THAT(all, testing::ElementsAre(false, true, false, false));
}

// Channels that were zero already, at either end.
TEST(FindDeadGroups, FindsWhatComputesNothing) {
  TestGraph b;
  ValueId v = b.conv("first", b.input(Shape{1, 3, 4, 4}), 6, 3, true);
  v = b.conv("second", b.unary("relu", UnaryKind::relu, v), 5);
  const Graph graph = b.build({b.conv("third", b.unary("relu2", UnaryKind::relu, v), 2)});
  const ChannelGroups found = find_channel_groups(graph);
  EXPECT_EQ(find_dead_groups(graph, found), std::vector<bool>(13, false));
  std::vector<bool> removed(13, false);
  removed[1] = removed[4] = removed[8] = true;
  const Graph zero = zero_channels(graph, found, removed);
  EXPECT_EQ(find_dead_groups(zero, found), removed);

  // Weights that read channel 2 of the first layer, which has a bias.
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(rewriter.map(id));
    if (node.name == "second") {
      Tensor weights = graph.value(node.inputs[1]).constant->clone();
      for (std::size_t o = 0; o < 5; ++o)
        std::fill_n(weights.values<float>().begin() + std::ptrdiff_t(o * 54 + 18), 9, 0.0F);
      inputs[1] = rewriter.constant("unread", std::move(weights));
    }
    rewriter.emit(node.name, node.layer, std::move(inputs), node.outputs);
  }
  const Graph unread = rewriter.finish();
  const std::vector<bool> dead = find_dead_groups(unread, find_channel_groups(unread));
  removed.assign(13, false);
  removed[2] = true;
  EXPECT_EQ(dead, removed);
  expect_same_outputs(unread, remove_channels(unread, find_channel_groups(unread), dead));
}

}  // namespace
}  // namespace pipit::internal
