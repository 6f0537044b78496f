// Convolutions that write over the residual that they add: the same bits as with memory of their own.
#include <gmock/gmock.h>

#include "layers/cpu/tile/tile_kernel.h"
#include "layers/passes/passes.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::TestGraph;

struct OverwriteCase {
  std::int64_t batch, height, width, channels, kernel;
};

// r + conv(conv(r)); with `keeps` r is read again, so that nothing may lie over it.
Graph block(TestGraph& b, const OverwriteCase& c, bool keeps) {
  const ValueId r = b.conv("r", b.input(Shape{c.batch, 3, c.height, c.width}), c.channels);
  ConvAttributes a;
  a.activation = Clamp::relu();
  a.window.kernel = {c.kernel, c.kernel, 1};
  a.window.pad_begin = a.window.pad_end = {c.kernel / 2, c.kernel / 2, 0};
  const ValueId m = b.conv("m", r, 19);
  const ValueId y =
      b.add("y", Conv(a),
            {m, b.constant(Shape{c.channels, 19, c.kernel, c.kernel}), b.constant(Shape{c.channels}), r});
  std::vector<ValueId> outputs = {b.unary("end", UnaryKind::relu, y)};
  if (keeps) outputs.push_back(r);
  return b.build(outputs);
}

struct Result {
  std::vector<float> y;
  bool over = false;
};

Result run(Graph graph, const Tensor& input, const char* kernel, int threads, Precision precision) {
  graph = assign_layouts(graph).graph;
  if (precision == Precision::fp16) graph = assign_precision(graph, precision, DeviceKind::cpu, {}).graph;
  PlanOptions options;
  options.threads = threads;
  options.precision = precision;
  options.prefer_kernels = {{kernel, std::string(Conv::kType)}};
  const auto plan = ExecutionPlan::build(std::move(graph), default_registry(), options);
  Result result;
  for (const Step& step : plan->steps()) {
    if (plan->graph().nodes()[static_cast<std::size_t>(step.node)].name != "y") continue;
    EXPECT_THAT(step.kernel_name, testing::StartsWith(kernel));
    result.over = step.inputs[3].offset == step.outputs[0].offset;
  }
  Session session(plan);
  const ConstTensorView view = input.view();
  for (int i = 0; i < 2; ++i) {  // the second on an arena full of the first's values
    const Tensor y = to_layout(session.run({&view, 1})[0], Layout::row_major);
    result.y.assign(y.values<float>().begin(), y.values<float>().end());
  }
  return result;
}

// over: whether y is to lie where the residual lay; none where that depends on the instruction set.
void check(const OverwriteCase& c, const char* kernel, std::optional<bool> over,
           Precision precision = Precision::fp32) {
  SCOPED_TRACE(testing::Message() << kernel << ", " << c.batch << " x " << c.height << " x " << c.width
                                  << " x " << c.channels << ", kernel " << c.kernel);
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  for (const int threads : {1, 2, 3}) {
    TestGraph apart{.random = std::mt19937(seed)};
    TestGraph joined{.random = std::mt19937(seed)};
    const Graph kept = block(apart, c, true);
    const Graph free = block(joined, c, false);
    const Tensor input = test::random_tensor(kept.value(kept.inputs()[0]).desc.shape, apart.random);
    const Result expected = run(kept, input, kernel, threads, precision);
    const Result got = run(free, input, kernel, threads, precision);
    EXPECT_FALSE(expected.over);
    EXPECT_EQ(got.over, over.value_or(got.over));
    EXPECT_EQ(got.y, expected.y);
  }
}

TEST(Overwrite, PointwiseConvolutionsOfAnySize) {
  for (const std::int64_t width : {1, 2, 5, 6, 7, 8, 13, 15, 29}) {
    check({1, 1, width, 20, 1}, "tile", true);
    check({2, 3, width, 33, 1}, "tile", true);
  }
  check({1, 56, 56, 64, 1}, "tile", true);
  check({3, 9, 11, 520, 1}, "tile", true);  // panels outside
}

// With a kernel of several taps rows are computed apart.
TEST(Overwrite, RowsThatGroupsCover) {
  for (const std::int64_t width : {7, 14, 20, 24}) {
    const TileStrips strips(f32_tiles(), width);
    check({2, 5, width, 24, 3}, "tile", strips.count * strips.size == width);
  }
}

TEST(Overwrite, Winograd) {
  check({1, 21, 22, 32, 3}, "winograd_f4x4", true);
  check({2, 13, 12, 33, 3}, "winograd_f2x2", true);
}

TEST(Overwrite, HalfStorage) {
  check({1, 9, 13, 24, 1}, "tile", std::nullopt, Precision::fp16);
}

// The input is the residual too: every tap reads it.
TEST(Overwrite, NotWhatTheConvolutionReads) {
  TestGraph b;
  const ValueId r = b.conv("r", b.input(Shape{1, 3, 14, 14}), 16);
  const ValueId y = b.add("y", Conv({}), {r, b.constant(Shape{16, 16, 1, 1}), b.constant(Shape{16}), r});
  const Graph graph = b.build({b.unary("end", UnaryKind::relu, y)});
  test::expect_same_outputs(graph, assign_layouts(graph).graph);
}

}  // namespace
}  // namespace pipit::internal
