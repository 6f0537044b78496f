// Attention in one kernel on the CPU: what is written as products, transposes and a softmax is one step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "layers/ops/binary.h"
#include "layers/ops/matmul.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/softmax.h"
#include "layers/passes/passes.h"
#include "layers/registry.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

enum class Bias { none, constant, input, input_of_masks };

struct AttentionCase {
  std::int64_t batch, heads, queries, keys, size, results;
  bool transposed = true;  // operands [batch, positions, heads, size]
  bool scaled = true;
  Bias bias = Bias::none;
  bool broadcast = false;
  std::int64_t axis = -1;
  bool keys_in_rows = false;  // [batch, heads, size, keys]
};

constexpr float kHidden = -std::numeric_limits<float>::infinity();

Graph graph_of(const AttentionCase& c, std::mt19937& random) {
  GraphBuilder builder;
  const auto operand = [&](const char* name, std::int64_t positions, std::int64_t size) {
    return builder.add_input(name, TensorDesc{c.transposed ? Shape{c.batch, positions, c.heads, size}
                                                           : Shape{c.batch, c.heads, positions, size}});
  };
  const auto turned = [&](const std::string& name, ValueId x, std::vector<std::int64_t> permutation) {
    return builder.add1(name, std::make_shared<Transpose>(TransposeAttributes{std::move(permutation)}), {x});
  };
  const auto number = [&](const char* name, float value) {
    return builder.add_constant(
        name, std::make_shared<const Tensor>(Tensor::from<float>(Shape{}, std::vector<float>{value})));
  };
  const auto binary = [&](const char* name, BinaryKind kind, ValueId a, ValueId b) {
    return builder.add1(name, std::make_shared<Binary>(BinaryAttributes{kind}), {a, b});
  };
  ValueId q = operand("q", c.queries, c.size);
  ValueId k = c.keys_in_rows ? builder.add_input("k", TensorDesc{Shape{c.batch, c.heads, c.size, c.keys}})
                             : operand("k", c.keys, c.size);
  ValueId v = operand("v", c.keys, c.results);
  if (c.scaled) q = binary("scale", BinaryKind::mul, q, number("s", 0.25F));
  if (c.transposed) q = turned("tq", q, {0, 2, 1, 3});
  if (!c.keys_in_rows) k = c.transposed ? turned("tk", k, {0, 2, 3, 1}) : turned("tk", k, {0, 1, 3, 2});
  ValueId scores = builder.add1("scores", std::make_shared<MatMul>(), {q, k});
  ValueId bias = kNoValue;
  const Shape shape = c.broadcast ? Shape{c.batch, 1, 1, c.keys} : Shape{c.queries, c.keys};
  if (c.bias == Bias::constant)
    bias = builder.add_constant("bias", std::make_shared<const Tensor>(test::random_tensor(shape, random)));
  if (c.bias == Bias::input || c.bias == Bias::input_of_masks)
    bias = builder.add_input("bias", TensorDesc{shape});
  if (bias != kNoValue) scores = binary("biased", BinaryKind::add, scores, bias);
  ValueId p = builder.add1("softmax", std::make_shared<Softmax>(SoftmaxAttributes{.axis = c.axis}), {scores});
  if (c.bias == Bias::input_of_masks) {
    const ValueId most =
        builder.add1("most", std::make_shared<Reduce>(ReduceAttributes{ReduceKind::max, {-1}}), {bias});
    const ValueId none = binary("none", BinaryKind::equal, most, number("hidden", kHidden));
    p = builder.add1("kept", std::make_shared<Where>(), {none, number("zero", 0), p});
  }
  if (c.transposed) v = turned("tv", v, {0, 2, 1, 3});
  ValueId y = builder.add1("result", std::make_shared<MatMul>(), {p, v});
  if (c.transposed) y = turned("ty", y, {0, 2, 1, 3});
  builder.mark_output(y);
  return builder.build();
}

std::vector<Tensor> inputs_of(const Graph& graph, const AttentionCase& c, std::mt19937& random) {
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs())
    inputs.push_back(test::random_tensor(graph.value(id).desc.shape, random));
  if (c.bias != Bias::input_of_masks) return inputs;
  std::int64_t i = 0;  // every third query sees no key, the others not the first one
  for (float& value : inputs.back().values<float>()) {
    const std::int64_t query = i / c.keys, key = i++ % c.keys;
    if (query % 3 == 2 || (key == 0 && c.keys > 1)) value = kHidden;
  }
  return inputs;
}

std::size_t steps_of(const Graph& graph) {
  return ExecutionPlan::build(graph, default_registry(), {})->steps().size();
}

TEST(FuseAttention, RandomCasesAreOneStepAndMatchTheReference) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 60 && !testing::Test::HasFailure(); ++i) {
    AttentionCase c{pick(1, 2), pick(1, 3), pick(1, 80), pick(1, 70), pick(1, 40), pick(1, 60)};
    if (i % 8 == 0) c.keys = pick(500, 2100);  // fewer queries at a time, and sums in parts
    if (i % 3 == 0) {                          // few queries read keys and values as they lie
      c.queries = pick(1, 32);
      c.results = 16 * pick(1, 4);
      c.keys_in_rows = pick(0, 1) == 1;
      if (pick(0, 1) == 1) c.keys = 16 * pick(1, 8);
    }
    c.transposed = i % 2 == 0;
    c.scaled = pick(0, 1) == 1;
    c.bias = static_cast<Bias>(i % 4);
    c.broadcast = pick(0, 1) == 1;
    const Graph graph = graph_of(c, random);
    const std::vector<Tensor> inputs = inputs_of(graph, c, random);
    // Transposes that leave all elements where they are are views and no steps.
    const bool views = c.queries == 1 || c.keys == 1 || c.size == 1 || c.heads == 1;
    EXPECT_TRUE(views || steps_of(graph) == 1) << "case " << i;
    const Tensor want = std::move(test::run_graph(graph, default_registry(), inputs, kReference)[0]);
    const Tensor got = std::move(test::run_graph(graph, default_registry(), inputs)[0]);
    // Scores of size terms of 1 at most are off by size^2 epsilon, and so are probabilities, relatively; results are
    // means of numbers of 1 at most, with keys roundings.
    const double size = static_cast<double>(c.size) + 4;
    const double bound = (2 * size * size + static_cast<double>(c.keys) + 8) * FLT_EPSILON;
    for (std::size_t e = 0; e < want.values<float>().size(); ++e)
      ASSERT_NEAR(got.values<float>()[e], want.values<float>()[e], bound) << "case " << i << " element " << e;
    for (const int threads : {2, 3}) {
      const Tensor other = std::move(test::run_graph(graph, default_registry(), inputs, {}, threads)[0]);
      EXPECT_TRUE(std::ranges::equal(other.values<float>(), got.values<float>())) << threads << " threads";
    }
  }
}

// In fp16 and bf16 operands are widened and results rounded; scores are f32.
TEST(FuseAttention, OperandsOf16BitsAreOneStepToo) {
  std::mt19937 random(1);
  for (const Bias bias : {Bias::none, Bias::constant, Bias::input, Bias::input_of_masks}) {
    const AttentionCase c{
        .batch = 1, .heads = 3, .queries = 37, .keys = 33, .size = 16, .results = 24, .bias = bias};
    const Graph graph = graph_of(c, random);
    std::vector<Tensor> inputs = inputs_of(graph, c, random);
    for (Tensor& input : inputs) {
      for (float& value : input.values<float>()) {
        if (value != kHidden) value = std::nearbyint(value * 64) / 64;  // exact in both types
      }
    }
    const Tensor want = std::move(test::run_graph(graph, default_registry(), inputs, kReference)[0]);
    for (const Precision precision : {Precision::fp16, Precision::bf16}) {
      const Graph stored = assign_precision(graph, precision, DeviceKind::cpu, {}).graph;
      PlanOptions options;
      options.precision = precision;
      const auto plan = ExecutionPlan::build(stored, default_registry(), options);
      const auto is_attention = [](const Step& step) {
        return step.kernel_name == "attention, 16-bit storage";
      };
      EXPECT_EQ(std::ranges::count_if(plan->steps(), is_attention), 1);
      EXPECT_EQ(plan->steps().size(), graph.inputs().size() + 2);  // a Cast of each input and of the result
      Session session(plan);
      std::vector<ConstTensorView> views;
      for (const Tensor& input : inputs) views.push_back(input.view());
      const ConstTensorView got = session.run(views)[0];
      // That of f32 for 16 products and 33 keys, and half a last place of results of 1 at most.
      const double bound =
          (2 * 20 * 20 + 41) * FLT_EPSILON + (precision == Precision::fp16 ? 0x1p-12 : 0x1p-9);
      for (std::size_t e = 0; e < want.values<float>().size(); ++e)
        ASSERT_NEAR(got.as<float>()[e], want.values<float>()[e], bound)
            << precision_name(precision) << " " << e;
    }
  }
}

// A softmax along the queries, and probabilities that others read.
TEST(FuseAttention, NotEverything) {
  std::mt19937 random(1);
  AttentionCase c{1, 2, 4, 5, 6, 7};
  c.axis = 2;
  EXPECT_GT(steps_of(graph_of(c, random)), 1U);
  for (const bool read : {false, true}) {
    GraphBuilder builder;
    const ValueId q = builder.add_input("q", TensorDesc{Shape{2, 4, 6}});
    const ValueId k = builder.add_input("k", TensorDesc{Shape{2, 6, 5}});
    const ValueId v = builder.add_input("v", TensorDesc{Shape{2, 5, 7}});
    const ValueId scores = builder.add1("scores", std::make_shared<MatMul>(), {q, k});
    const ValueId p = builder.add1("softmax", std::make_shared<Softmax>(SoftmaxAttributes{}), {scores});
    if (read) builder.mark_output(p);
    builder.mark_output(builder.add1("result", std::make_shared<MatMul>(), {p, v}));
    EXPECT_EQ(steps_of(builder.build()), read ? 3U : 1U);
  }
}

}  // namespace
}  // namespace pipit::internal
