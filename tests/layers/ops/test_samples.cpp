// What layers say of samples: where they keep them apart, micro-batches give the bits of a whole run, and where they do
// not, they say so.
#include <gmock/gmock.h>

#include "layers/ops/cast.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/resize.h"
#include "layers/ops/slicing.h"
#include "layers/ops/softmax.h"
#include "layers/passes/passes.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::TestGraph;
using ::testing::HasSubstr;

constexpr std::int64_t kSamples = 5;

std::vector<std::vector<std::byte>> outputs_of(const Graph& graph, const std::vector<Tensor>& inputs,
                                               std::int64_t size, const char* kernel) {
  PlanOptions options;
  options.threads = 2;
  options.micro_batch = size;
  options.prefer_kernels = {{kernel}};
  options.exclude_kernels = {{"winograd_f4x4"}, {"winograd_f2x2"}};  // they take batches of enough tiles
  Session session(ExecutionPlan::build(graph, default_registry(), options));
  std::vector<ConstTensorView> views;
  for (const Tensor& t : inputs) views.push_back(t.view());
  std::vector<std::vector<std::byte>> results;
  for (int run = 0; run < 2; ++run) {  // the second on an arena full of the first's values
    results.clear();
    for (const ConstTensorView& y : session.run(views)) {
      const Tensor row_major = to_layout(y, Layout::row_major);
      const std::byte* data = row_major.view().data;
      results.emplace_back(data, data + row_major.desc().bytes());
    }
  }
  return results;
}

// Blocked products of matrices (gemm.h) add up in an order that depends on the number of rows; other kernels do not.
void expect_apart(TestGraph& b, std::vector<ValueId> outputs, bool gemm = false) {
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << test::test_seed());
  const Graph graph = assign_layouts(b.build(std::move(outputs))).graph;
  EXPECT_EQ(find_samples(graph).obstacle, "");
  const std::vector<Tensor> inputs = test::random_inputs(graph, b.random);
  for (const char* kernel : {"", "reference"}) {
    if (gemm && *kernel == '\0') continue;
    const auto whole = outputs_of(graph, inputs, 0, kernel);
    for (const std::int64_t size : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << "kernel '" << kernel << "', micro-batches of " << size);
      EXPECT_EQ(outputs_of(graph, inputs, size, kernel), whole);
    }
  }
}

void expect_mixed(TestGraph& b, std::vector<ValueId> outputs, const std::string& type) {
  const Graph graph = assign_layouts(b.build(std::move(outputs))).graph;
  EXPECT_THAT(find_samples(graph).obstacle, HasSubstr("(" + type + ") mixes the samples of a batch"));
}

PoolAttributes pool(PoolKind kind, bool indices = false) {
  PoolAttributes a;
  a.kind = kind;
  a.window.kernel = {3, 3, 1};
  a.window.pad_begin = a.window.pad_end = {1, 1, 0};
  a.indices = indices;
  return a;
}

TEST(Samples, ANetworkWithEveryKindOfBranch) {
  TestGraph b;
  const ValueId x = b.input(Shape{kSamples, 3, 9, 11});
  const ValueId c = b.batch_norm("bn", b.conv("c", x, 16, 3, true));
  const ValueId p = b.add("max", Pool(pool(PoolKind::max)), {c});
  const ValueId q = b.conv("q", p, 16, 1);
  const ValueId sum = b.binary("sum", BinaryKind::add, q, c);
  const ValueId scaled = b.binary("scaled", BinaryKind::mul, sum, b.constant(Shape{16, 1, 1}));
  const ValueId joined = b.add("join", Concat({1}), {scaled, b.conv("r", c, 7)});
  const ValueId act = b.unary("act", UnaryKind::sigmoid, joined);
  PoolAttributes all = pool(PoolKind::average);
  all.global = true;
  const ValueId means = b.add("means", Pool(all), {act});
  const ValueId flat = b.add("flat", Reshape({Shape{kSamples, 23}}), {means});
  const ValueId scores = b.add("fc", Gemm({}), {flat, b.constant(Shape{23, 10}), b.constant(Shape{10})});
  expect_apart(b, {b.add("soft", Softmax(SoftmaxAttributes{}), {scores}), joined, flat});
}

TEST(Samples, Movements) {
  TestGraph b;
  const ValueId x = b.input(Shape{kSamples, 8, 4, 6});
  const ValueId t = b.add("t", Transpose({{0, 2, 3, 1}}), {x});
  const ValueId s = b.add("s", Slice({{1}, {4}, {2}, {1}}), {x});
  const ValueId pad = b.add("pad", Pad({PadMode::constant, {0, 0, 1, 2}, {0, 1, 0, 0}, 3}), {x});
  const ValueId d = b.add("d", DepthToSpace({2}), {x});
  const ValueId tile = b.add("tile", Tile({{1, 2, 1, 1}}), {x});
  const ValueId rows = b.add("rows", Reshape({Shape{kSamples, 8, 24, 1}}), {x});
  const ValueId mean = b.add("mean", Reduce({ReduceKind::mean, {1, 2}, false}), {rows});
  const ValueId wide = b.add("wide", Expand({Shape{kSamples, 3}}), {mean});
  ResizeAttributes up;
  up.scales = {1, 1, 2, 2, 1, 1};
  up.sizes = {kSamples, 8, 8, 12};
  const ValueId big = b.add("up", Resize(up), {x});
  const ValueId best = b.add("best", ArgMax({.axis = 1}), {x});
  expect_apart(b, {t, s, pad, d, tile, wide, big, best});
}

TEST(Samples, Products) {
  TestGraph b;
  const ValueId x = b.input(Shape{kSamples, 4, 6});
  const ValueId by_weights = b.add("w", MatMul(), {x, b.constant(Shape{6, 3})});
  const ValueId by_samples = b.add("s", MatMul(), {x, b.add("t", Transpose({{0, 2, 1}}), {x})});
  const ValueId from_left = b.add("l", MatMul(), {b.constant(Shape{2, 4}), x});
  const ValueId row = b.add("row", MatMul(), {x, b.constant(Shape{6})});
  const ValueId norm = b.add("norm", LayerNorm({}), {x, b.constant(Shape{6}), b.constant(Shape{6})});
  expect_apart(b, {by_weights, by_samples, from_left, row, norm});
}

TEST(Samples, Integers) {
  TestGraph b;
  const ValueId x = b.input(Shape{kSamples, 8, 5, 5});
  const ValueId q = b.add("q", Quantize({0.01F, 128, DType::u8}), {x});
  const ValueId d = b.add("d", Dequantize({0.01F, 128, DType::u8}), {q});
  const std::vector<ValueId> dynamic =
      b.graph.add("dyn", std::make_shared<DynamicQuantize>(DynamicQuantizeAttributes{}), {x});
  expect_apart(b, {q, d, dynamic[0], dynamic[1], b.add("cast", Cast({DType::i64}), {d})});
}

TEST(Samples, LayersThatMixSamples) {
  const Shape shape{kSamples, kSamples, 4};
  const auto mixed = [&](const std::string& type, auto&& make) {
    TestGraph b;
    const ValueId x = b.input(shape);
    expect_mixed(b, {make(b, x)}, type);
  };
  mixed("Concat", [](TestGraph& b, ValueId x) { return b.add("n", Concat({0}), {x, x}); });
  mixed("Concat", [&](TestGraph& b, ValueId x) { return b.add("n", Concat({1}), {x, b.constant(shape)}); });
  mixed("Softmax", [](TestGraph& b, ValueId x) { return b.add("n", Softmax({.axis = 0}), {x}); });
  mixed("Softmax", [](TestGraph& b, ValueId x) { return b.add("n", Softmax({.axis = -3}), {x}); });
  mixed("Transpose", [](TestGraph& b, ValueId x) { return b.add("n", Transpose({{1, 0, 2}}), {x}); });
  mixed("Reshape", [](TestGraph& b, ValueId x) { return b.add("n", Reshape({Shape{4, 25}}), {x}); });
  mixed("Reshape", [](TestGraph& b, ValueId x) { return b.add("n", Reshape({Shape{100}}), {x}); });
  mixed("Slice", [](TestGraph& b, ValueId x) { return b.add("n", Slice({{4}, {-6}, {0}, {-1}}), {x}); });
  mixed("Reduce", [](TestGraph& b, ValueId x) { return b.add("n", Reduce({.axes = {}}), {x}); });
  mixed("Reduce", [](TestGraph& b, ValueId x) { return b.add("n", Reduce({.axes = {-3}}), {x}); });
  mixed("Reduce", [](TestGraph& b, ValueId x) {
    return b.add("n", Reduce({.axes = {0}, .keep_dims = false}), {x});  // dimension 0 has the same extent
  });
  mixed("ArgMax", [](TestGraph& b, ValueId x) { return b.add("n", ArgMax({.axis = 0}), {x}); });
  mixed("Pad", [](TestGraph& b, ValueId x) {
    return b.add("n", Pad({PadMode::constant, {1, 0, 0}, {-1, 0, 0}, 0}), {x});
  });
  mixed("Tile", [](TestGraph& b, ValueId x) { return b.add("n", Tile({{2, 1, 1}}), {x}); });
  mixed("Expand", [&](TestGraph& b, ValueId x) {
    return b.add("n", Expand({Shape{kSamples, kSamples, kSamples, 4}}), {x});
  });
  mixed("LayerNorm", [&](TestGraph& b, ValueId x) {
    return b.add("n", LayerNorm({.axis = 0}), {x, b.constant(shape)});
  });
  mixed("Binary", [&](TestGraph& b, ValueId x) {
    return b.binary("n", BinaryKind::add, x, b.constant(Shape{kSamples, 1, 1}));
  });
  mixed("Binary", [&](TestGraph& b, ValueId x) {
    return b.binary("n", BinaryKind::add, x, b.constant(Shape{2, 1, 1, 1}));
  });
  mixed("MatMul", [](TestGraph& b, ValueId x) {
    return b.add("n", MatMul(), {x, b.constant(Shape{5, 4, 2})});
  });
  mixed("MatMul", [](TestGraph& b, ValueId x) {
    return b.add("n", MatMul(), {b.constant(Shape{2, 5, 5, 4}), b.add("t", Transpose({{0, 2, 1}}), {x})});
  });
}

TEST(Samples, MatricesOfSamples) {
  const Shape square{kSamples, kSamples};
  const auto mixed = [&](const std::string& type, auto&& make) {
    TestGraph b;
    const ValueId x = b.input(square);
    expect_mixed(b, {make(b, x)}, type);
  };
  mixed("Gemm", [&](TestGraph& b, ValueId x) {
    return b.add("n", Gemm({.transpose_a = true}), {x, b.constant(square)});
  });
  mixed("Gemm", [&](TestGraph& b, ValueId x) { return b.add("n", Gemm({}), {b.constant(square), x}); });
  mixed("Gemm", [&](TestGraph& b, ValueId x) { return b.add("n", Gemm({}), {x, x}); });
  mixed("Gemm", [&](TestGraph& b, ValueId x) {
    return b.add("n", Gemm({}), {x, b.constant(square), b.constant(square)});
  });
  mixed("MatMul", [&](TestGraph& b, ValueId x) { return b.add("n", MatMul(), {b.constant(square), x}); });
  mixed("MatMul", [&](TestGraph& b, ValueId x) { return b.add("n", MatMul(), {x, x}); });
  TestGraph b;
  const ValueId x = b.input(square);
  expect_apart(
      b, {b.add("n", Gemm({}), {x, b.constant(square), x}), b.add("m", MatMul(), {x, b.constant(square)})},
      true);
}

TEST(Samples, PositionsInTheBatchAndScalesOfTheBatch) {
  TestGraph b;
  const ValueId x = b.input(Shape{kSamples, 4, 6, 6});
  const std::vector<ValueId> y = b.graph.add("max", std::make_shared<Pool>(pool(PoolKind::max, true)), {x});
  expect_mixed(b, {y[0], y[1]}, "Pool");
  TestGraph d;
  const std::vector<ValueId> q =
      d.graph.add("dyn", std::make_shared<DynamicQuantize>(DynamicQuantizeAttributes{false}),
                  {d.input(Shape{kSamples, 4})});
  expect_mixed(d, {q[0]}, "DynamicQuantize");
}

TEST(Samples, GatherOfSamplesAndByThem) {
  TestGraph b;
  const ValueId x = b.input(Shape{kSamples, 4, 6});
  const ValueId three =
      b.graph.add_constant("three", Tensor::from<std::int64_t>(Shape({2}), std::vector<std::int64_t>{3, 1}));
  const ValueId rows = b.add("cast", Cast({DType::i64}), {b.add("best", ArgMax({.axis = 2}), {x})});
  expect_apart(
      b, {b.add("g", Gather({1}), {x, three}), b.add("look", Gather({0}), {b.constant(Shape{6, 3}), rows})});
  TestGraph m;
  const ValueId z = m.input(Shape{kSamples, 4});
  const ValueId first =
      m.graph.add_constant("first", Tensor::from<std::int64_t>(Shape({5}), std::vector<std::int64_t>(5, 0)));
  expect_mixed(m, {m.add("g", Gather({0}), {z, first})}, "Gather");
}

}  // namespace
}  // namespace pipit::internal
