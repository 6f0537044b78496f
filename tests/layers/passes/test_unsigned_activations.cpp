// i8 activations become u8 for the CPU: the same bits, and the kernels that u8 has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "layers/ops/cast.h"
#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/passes.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

// A value and what its integers mean.
struct Q {
  ValueId id = kNoValue;
  Quantization q;
};

// Networks of i8 activations with zero points of all kinds.
class SignedGraph {
 public:
  explicit SignedGraph(unsigned seed) : random_(seed) {}

  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  Quantization quantization() {
    const bool symmetric = integer(0, 2) == 0;  // without -128, as pipit writes it
    return {0.01F * static_cast<float>(integer(1, 9)), symmetric ? 0 : integer(-128, 127), DType::i8,
            !symmetric};
  }
  Tensor bytes(const Shape& shape, int low = -128) {
    Tensor tensor(TensorDesc{shape, DType::i8});
    for (std::int8_t& v : tensor.values<std::int8_t>()) v = static_cast<std::int8_t>(integer(low, 127));
    return tensor;
  }

  const Shape& shape(const Q& x) { return graph.value(x.id).desc.shape; }
  template <typename L>
  Q add(const std::string& name, L layer, const std::vector<ValueId>& inputs, const Quantization& q) {
    return {graph.add1(name, std::make_shared<L>(std::move(layer)), inputs), q};
  }

  Q input(const std::string& name, const Shape& shape) {
    return {graph.add_input(name, TensorDesc{shape, DType::i8}), quantization()};
  }
  Q image(const Shape& shape) {
    const Quantization q = quantization();
    return add("quantize", Quantize(q), {graph.add_input("image", TensorDesc{shape})}, q);
  }
  Q conv(const std::string& name, const Q& x, std::int64_t outputs, std::int64_t kernel, bool depthwise,
         const Quantization& y, const Q& residual = {}) {
    QConvAttributes a;
    a.x = x.q, a.y = y, a.residual = residual.q;
    a.conv.window.kernel = {kernel, kernel, 1};
    a.conv.window.pad_begin = a.conv.window.pad_end = {kernel / 2, kernel / 2, 0};
    a.conv.groups = depthwise ? outputs : 1;
    for (std::int64_t o = 0; o < outputs; ++o)
      a.weight_scales.push_back(0.001F * static_cast<float>(integer(1, 9)));
    const std::int64_t inputs = depthwise ? 1 : shape(x)[1];
    const ValueId w = graph.add_constant(name + ".w", bytes({outputs, inputs, kernel, kernel}, -127));
    Tensor bias(TensorDesc{Shape{outputs}, DType::i32});
    for (std::int32_t& b : bias.values<std::int32_t>()) b = integer(-2000, 2000);
    std::vector<ValueId> operands{x.id, w, graph.add_constant(name + ".b", std::move(bias))};
    if (residual.id != kNoValue) operands.push_back(residual.id);
    return add(name, QConv(a), operands, y);
  }

  // Every layer that handles integers, and readers of all kinds between them.
  Graph everything() {
    const Q a = conv("pointwise", image({2, 4, 9, 8}), 8, 1, false, quantization());
    const Q b = input("bytes", {2, 8, 9, 8});
    const Q d = conv("depthwise", a, 8, 3, true, quantization(), b);
    PadAttributes by_constant;
    by_constant.begin = {0, 0, 1, 0}, by_constant.end = {0, 0, 0, 2};
    by_constant.value = d.q.zero_point;
    const Q p = add("pad", Pad(by_constant), {d.id}, d.q);
    PoolAttributes max;
    max.window.kernel = max.window.stride = {2, 2, 1};
    max.window.pad_begin = {1, 0, 0};
    const Q m = add("max", Pool(max), {p.id}, d.q);
    const std::vector<ValueId> halves =
        graph.add("split", std::make_shared<Split>(SplitAttributes{1, {3, 5}}), {m.id}, {"three", "five"});
    const Q k = add("concat", Concat(ConcatAttributes{1}), {halves[1], halves[0]}, d.q);
    const Quantization sum_q = quantization();
    const Q sum = add("sum", QAdd({k.q, m.q, sum_q, Clamp::relu()}), {k.id, m.id}, sum_q);
    const Quantization f_q = quantization();
    const Q f = add("function", QUnary({{UnaryKind::hard_swish}, sum_q, f_q}), {sum.id}, f_q);
    const Quantization g_q = quantization();
    const PoolAttributes global{.kind = PoolKind::average, .global = true};
    const Q g = add("gate", QAveragePool({global, f_q, g_q}), {f.id}, g_q);
    const Quantization product_q = quantization();
    const Q product = add("product", QMul({f_q, g_q, product_q, {}}), {f.id, g.id}, product_q);
    const Q sliced =
        add("slice", Slice(SliceAttributes{{1}, {7}, {2}, {1}}), {product.id}, product_q);  // another extent
    const Q last = conv("last", product, 5, 3, false, Quantization{});
    graph.mark_output(last.id, "scores");
    graph.mark_output(conv("of concat", k, 8, 3, true, Quantization{}).id, "of concat");
    graph.mark_output(conv("of sum", sum, 4, 1, false, quantization()).id, "of sum");
    graph.mark_output(conv("of slice", sliced, 3, 1, false, quantization()).id, "of slice");
    graph.mark_output(d.id, "integers");
    graph.mark_output(graph.add1("cast", std::make_shared<Cast>(CastAttributes{DType::f32}), {k.id}), "cast");
    graph.mark_output(graph.add1("real", std::make_shared<Dequantize>(product.q), {product.id}), "real");
    return graph.build();
  }

  std::vector<Tensor> inputs_of(const Graph& built) {
    std::vector<Tensor> inputs;
    for (const ValueId id : built.inputs()) {
      const TensorDesc& desc = built.value(id).desc;
      inputs.push_back(desc.dtype == DType::i8 ? bytes(desc.shape)
                                               : test::random_tensor(desc.shape, random_, -3, 3));
    }
    return inputs;
  }

  GraphBuilder graph;

 private:
  std::mt19937 random_;
};

void expect_same_bits(const Graph& before, const Graph& after, const std::vector<Tensor>& inputs) {
  const auto expected =
      test::run_graph(assign_layouts(before).graph, default_registry(), inputs, "reference");
  for (const char* kernel : {"reference", ""}) {
    const auto got = test::run_graph(assign_layouts(after).graph, default_registry(), inputs, kernel);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].desc(), expected[i].desc());
      ASSERT_EQ(std::memcmp(got[i].view().data, expected[i].view().data, got[i].desc().bytes()), 0)
          << "output " << i << ", kernels: " << kernel;
    }
  }
}

// The kernels that convolutions run on.
std::set<std::string> convolution_kernels(const Graph& graph) {
  const auto plan = ExecutionPlan::build(assign_layouts(graph).graph, default_registry(), {});
  std::set<std::string> kernels;
  for (const Step& step : plan->steps()) {
    const Node& node = plan->graph().nodes()[static_cast<std::size_t>(step.node)];
    if (node.layer->type() == QConv::kType) kernels.insert(step.kernel_name);
  }
  return kernels;
}

TEST(UnsignedActivations, HoldTheSameValuesThroughEveryLayer) {
  for (int round = 0; round < 20; ++round) {
    const unsigned seed = test::test_seed() + static_cast<unsigned>(round);
    SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
    SignedGraph made(seed);
    const Graph before = made.everything();
    const Rewritten after = adapt_quantized(before, DeviceKind::cpu);
    expect_same_bits(before, after.graph, made.inputs_of(before));
    if (HasFatalFailure()) return;
    EXPECT_EQ(after.changes, 11);  // all that the convolutions read and what it is made of
    const std::set<std::string> kernels = convolution_kernels(after.graph);
    EXPECT_THAT(kernels, testing::IsSupersetOf({"depthwise", "tile"}));
    EXPECT_FALSE(kernels.count("reference"));
    for (const Node& node : after.graph.nodes()) {
      if (node.layer->type() == QConv::kType) {
        EXPECT_EQ(after.graph.value(node.inputs[0]).desc.dtype, DType::u8) << node.name;
      }
    }
  }
}

TEST(UnsignedActivations, ConvertTheGraphsOwnInputsAndOutputsOnly) {
  SignedGraph made(1);
  const auto x = made.input("x", {1, 8, 5, 5});
  const auto y = made.conv("first", x, 8, 3, true, made.quantization());
  made.graph.mark_output(made.conv("second", y, 4, 1, false, made.quantization()).id, "y");
  const Graph before = made.graph.build();
  const Graph after = adapt_quantized(before, DeviceKind::cpu).graph;
  EXPECT_EQ(after.value(after.inputs()[0]).desc.dtype, DType::i8);
  EXPECT_EQ(after.value(after.outputs()[0]).desc.dtype, DType::i8);
  EXPECT_EQ(test::count_type(after, QUnary::kType), 1);  // the input; the last convolution writes i8 itself
  EXPECT_EQ(after.nodes().size(), 3U);
  expect_same_bits(before, after, made.inputs_of(before));
}

TEST(UnsignedActivations, LeaveAloneWhatNoConvolutionReads) {
  SignedGraph made(1);
  const auto x = made.input("x", {1, 8, 5, 5});
  const auto flat = made.add("flat", Reshape(ReshapeAttributes{Shape{1, 200}}), {x.id}, x.q);
  made.graph.mark_output(made.graph.add1("real", std::make_shared<Dequantize>(x.q), {flat.id}), "y");
  const Rewritten after = adapt_quantized(made.graph.build(), DeviceKind::cpu);
  EXPECT_EQ(after.changes, 0);
  EXPECT_EQ(after.graph.nodes().size(), 2U);
}

}  // namespace
}  // namespace pipit::internal
