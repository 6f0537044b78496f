// Kernels of rewritten graphs compute the element-wise layers that follow them: fewer steps, the same outputs.
#include <gtest/gtest.h>

#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/matmul.h"
#include "layers/ops/unary.h"
#include "layers/passes/passes.h"
#include "layers/registry.h"
#include "quant/dynamic_int8.h"
#include "quant/weight_only.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

// A layer, then x * a + b with one a and b per output, then a Silu.
Graph with_followers(std::mt19937& random, bool convolution, const Shape& x, std::int64_t outputs) {
  GraphBuilder graph;
  ValueId y = graph.add_input("x", TensorDesc{x});
  const auto constant = [&](const std::string& name, const Shape& shape) {
    return graph.add_constant(name, test::random_tensor(shape, random));
  };
  if (convolution) {
    y = graph.add1("conv", std::make_shared<Conv>(ConvAttributes{}),
                   {y, constant("w", Shape{outputs, x[1], 1, 1})});
  } else {
    y = graph.add1("matmul", std::make_shared<MatMul>(), {y, constant("w", Shape{x[x.rank() - 1], outputs})});
  }
  const Shape per_output = convolution ? Shape{outputs, 1, 1} : Shape{outputs};
  y = graph.add1("scaled", std::make_shared<Binary>(BinaryAttributes{.kind = BinaryKind::mul}),
                 {y, constant("a", per_output)});
  y = graph.add1("shifted", std::make_shared<Binary>(BinaryAttributes{.kind = BinaryKind::add}),
                 {y, constant("b", per_output)});
  y = graph.add1("silu", std::make_shared<Unary>(UnaryAttributes{UnaryKind::silu, 0, 0}), {y}, "y");
  graph.mark_output(y);
  return graph.build();
}

void check(const Graph& rewritten, const Tensor& input, int steps) {
  const Graph graph = assign_layouts(rewritten).graph;
  std::vector<std::vector<float>> results;
  std::vector<int> counts;
  for (const bool keep : {true, false}) {
    PlanOptions options;
    options.threads = 2;
    options.keep_every_value = keep;
    const auto plan = ExecutionPlan::build(graph, default_registry(), options);
    counts.push_back(static_cast<int>(plan->steps().size()));
    Session session(plan);
    const ConstTensorView view = input.view();
    const Tensor y = to_layout(session.run({&view, 1})[0], Layout::row_major);
    results.emplace_back(y.values<float>().begin(), y.values<float>().end());
  }
  EXPECT_EQ(counts[1], steps);
  EXPECT_EQ(counts[0], steps + 3);
  EXPECT_LE(test::relative_error(results[1], results[0]), 1e-6);
}

TEST(FuseEpilogue, BehindStoredWeights) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (const WeightOnlyOptions& options : {WeightOnlyOptions{8}, WeightOnlyOptions{4, 32}}) {
    for (const std::int64_t rows : {1, 5, 40}) {  // on "gemv" and on "tile"
      const Shape x{rows, 70};
      check(store_weights_only(with_followers(random, false, x, 75), options, *shared_pool(2)).graph,
            test::random_tensor(x, random), 1);
    }
    for (const std::int64_t side : {2, 9}) {
      const Shape x{1, 80, side, side};
      // Into channels_last and back.
      check(store_weights_only(with_followers(random, true, x, 75), options, *shared_pool(2)).graph,
            test::random_tensor(x, random), 3);
    }
  }
}

TEST(FuseEpilogue, BehindDynamicConvolutions) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const Shape x{2, 20, 7, 5};
  check(quantize_dynamically(with_followers(random, true, x, 75), {}).graph, test::random_tensor(x, random),
        4);
}

}  // namespace
}  // namespace pipit::internal
