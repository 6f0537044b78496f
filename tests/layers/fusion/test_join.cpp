// Kernels that write right into the output of the Concat after them: the same bits as with every value in memory of
// its own.
#include <gmock/gmock.h>

#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/quantize.h"
#include "layers/ops/slicing.h"
#include "layers/passes/passes.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::TestGraph;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;

ValueId concat(TestGraph& b, const std::string& name, std::vector<ValueId> inputs) {
  return b.add(name, Concat(ConcatAttributes{1}), std::move(inputs));
}

std::vector<std::vector<float>> outputs_of(const Graph& graph, const Tensor& input, bool keep,
                                           const char* kernel, Precision precision,
                                           std::vector<std::string>& joins) {
  PlanOptions options;
  options.precision = precision;
  options.threads = 2;
  options.keep_every_value = keep;
  options.prefer_kernels = {{kernel}};
  const auto plan = ExecutionPlan::build(graph, default_registry(), options);
  for (const Step& step : plan->steps()) {
    if (graph.nodes()[static_cast<std::size_t>(step.node)].layer->type() == Concat::kType)
      joins.push_back(step.kernel_name);
  }
  Session session(plan);
  const ConstTensorView view = input.view();
  std::vector<std::vector<float>> results;
  for (int run = 0; run < 2; ++run) {  // the second on an arena full of the first's values
    results.clear();
    for (const ConstTensorView& y : session.run({&view, 1})) {
      const Tensor row_major = to_layout(y, Layout::row_major);
      results.emplace_back(row_major.values<float>().begin(), row_major.values<float>().end());
    }
  }
  return results;
}

// `expected`: kernels of the Concats when they join in place.
void check(TestGraph& b, std::vector<ValueId> outputs, const std::vector<std::string>& expected,
           const char* kernel = "", Precision precision = Precision::fp32) {
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << test::test_seed());
  Graph graph = assign_layouts(b.build(std::move(outputs))).graph;
  if (precision == Precision::fp16) graph = assign_precision(graph, precision).graph;
  const Tensor input = test::random_tensor(graph.value(graph.inputs()[0]).desc.shape, b.random);
  std::vector<std::string> copied;
  std::vector<std::string> joined;
  const auto separate = outputs_of(graph, input, true, kernel, precision, copied);
  EXPECT_EQ(outputs_of(graph, input, false, kernel, precision, joined), separate);
  EXPECT_THAT(joined, ElementsAreArray(expected));
  for (const std::string& name : copied) EXPECT_THAT(name, Not(HasSubstr("in place")));
}

TEST(Join, ConvolutionsOfEveryKernel) {
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    for (const char* kernel : {"tile", "winograd_f4x4", "winograd_f2x2"}) {
      SCOPED_TRACE(testing::Message() << kernel << " in " << precision_name(precision));
      TestGraph b;
      const ValueId x = b.conv("in", b.input(Shape{2, 3, 13, 14}), 20);
      const ValueId joined =
          concat(b, "join", {b.conv("a", x, 19, 1, true), b.conv("b", x, 33, 3, true), b.conv("c", x, 16)});
      check(b, {b.conv("out", joined, 8, 1)}, {"rows, in place"}, kernel, precision);
    }
  }
}

TEST(Join, PoolsAndWhatRunsOverTheWhole) {
  TestGraph b;
  const ValueId x = b.conv("in", b.input(Shape{1, 3, 9, 11}), 16);
  PoolAttributes max;
  max.window.kernel = {3, 3, 1};
  max.window.pad_begin = max.window.pad_end = {1, 1, 0};
  const ValueId joined = concat(b, "join", {b.add("max", Pool(max), {x}), b.conv("a", x, 10)});
  // A layer that the Concat takes over runs over all parts.
  check(b, {b.conv("out", b.unary("silu", UnaryKind::silu, joined), 8, 1)}, {"rows, in place"});
}

TEST(Join, OnlyWhatNobodyElseReads) {
  TestGraph b;
  const ValueId x = b.input(Shape{1, 3, 8, 8});
  const ValueId a = b.conv("a", x, 16);
  const ValueId twice = concat(b, "twice", {a, a});                    // read twice
  const ValueId shared = concat(b, "shared", {a, b.conv("b", x, 8)});  // one of two
  const ValueId input = concat(b, "input", {x, b.conv("c", x, 8)});    // the user's memory
  const ValueId out = b.conv("d", x, 4);
  const ValueId output = concat(b, "output", {out, b.conv("e", x, 4)});  // also an output of the graph
  const ValueId changed =
      b.unary("relu", UnaryKind::relu, b.conv("f", x, 4));  // absorbed before it is joined
  const ValueId absorbed = concat(b, "absorbed", {changed, b.conv("g", x, 4)});
  check(b, {twice, shared, input, out, output, absorbed}, {"rows", "rows", "rows", "rows", "rows, in place"},
        "tile");
}

TEST(Join, NestedOnes) {
  TestGraph b;
  const ValueId x = b.conv("in", b.input(Shape{2, 3, 7, 9}), 16);
  const ValueId inner = concat(b, "inner", {b.conv("a", x, 5), b.conv("b", x, 6)});
  const ValueId outer = concat(b, "outer", {b.conv("c", x, 7), inner, b.conv("d", x, 8)});
  check(b, {b.conv("out", outer, 8, 1)}, {"rows, in place", "rows, in place"}, "tile");
}

TEST(Join, Integers) {
  TestGraph b;
  const Quantization q{0.02F, 128, DType::u8};
  const auto qconv = [&](const std::string& name, ValueId x, std::int64_t filters) {
    const std::int64_t channels = b.graph.value(x).desc.shape[1];
    Tensor weights{TensorDesc{Shape{filters, channels, 1, 1}, DType::i8}};
    for (std::int8_t& w : weights.values<std::int8_t>())
      w = static_cast<std::int8_t>(std::uniform_int_distribution<int>(-127, 127)(b.random));
    QConvAttributes attributes;
    attributes.x = attributes.y = q;
    attributes.weight_scales = {0.005F};
    return b.add(name, QConv(attributes), {x, b.graph.add_constant(name + ".w", std::move(weights))});
  };
  const ValueId x = b.add("quantize", Quantize(q), {b.input(Shape{1, 12, 6, 5})});
  const ValueId joined = concat(b, "join", {qconv("a", x, 11), qconv("b", x, 30)});
  check(b, {b.add("dequantize", Dequantize(q), {qconv("out", joined, 9)})}, {"rows, in place"});
}

}  // namespace
}  // namespace pipit::internal
