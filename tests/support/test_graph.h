// Small graphs for tests of rewrites, and the check that a rewrite changed no answer.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/normalization.h"
#include "layers/ops/unary.h"
#include "layers/registry.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {

// Rounding: a fold multiplies weights ahead of time, so each product is rounded once more; sums are of at most
// a few hundred terms of either sign.
constexpr double kFoldTolerance = 1e-5;

struct TestGraph {
  GraphBuilder graph;
  std::mt19937 random{test_seed()};
  int constants = 0;

  ValueId input(const Shape& shape) { return graph.add_input("x", TensorDesc{shape}); }
  ValueId constant(const Shape& shape, float low = -1, float high = 1) {
    return graph.add_constant("c" + std::to_string(++constants), random_tensor(shape, random, low, high));
  }
  template <typename L>
  ValueId add(const std::string& name, L layer, const std::vector<ValueId>& inputs) {
    return graph.add1(name, std::make_shared<L>(std::move(layer)), inputs);
  }
  ValueId conv(const std::string& name, ValueId x, std::int64_t channels, std::int64_t kernel = 3,
               bool bias = false) {
    ConvAttributes a;
    for (std::size_t d = 0; d < 2; ++d) {
      a.window.kernel[d] = kernel;
      a.window.pad_begin[d] = a.window.pad_end[d] = kernel / 2;
    }
    const std::int64_t in = graph.value(x).desc.shape[1];
    std::vector<ValueId> inputs = {x, constant(Shape{channels, in, kernel, kernel})};
    if (bias) inputs.push_back(constant(Shape{channels}));
    return add(name, Conv(a), inputs);
  }
  ValueId batch_norm(const std::string& name, ValueId x) {
    const Shape c{graph.value(x).desc.shape[1]};
    return add(name, BatchNorm(BatchNormAttributes{}),
               {x, constant(c), constant(c), constant(c), constant(c, 0.5F, 2.0F)});
  }
  ValueId unary(const std::string& name, UnaryKind kind, ValueId x, double alpha = 0, double beta = 0) {
    return add(name, Unary(UnaryAttributes{kind, alpha, beta}), {x});
  }
  ValueId binary(const std::string& name, BinaryKind kind, ValueId a, ValueId b) {
    return add(name, Binary(BinaryAttributes{.kind = kind}), {a, b});
  }
  Graph build(const std::vector<ValueId>& outputs) {
    for (const ValueId id : outputs) graph.mark_output(id);
    return graph.build();
  }
};

inline int count_type(const Graph& graph, std::string_view type) {
  int n = 0;
  for (const Node& node : graph.nodes()) n += node.layer->type() == type ? 1 : 0;
  return n;
}

inline void expect_same_outputs(const Graph& before, const Graph& after, double tolerance = kFoldTolerance) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const std::vector<Tensor> inputs = random_inputs(before, random);
  const std::vector<Tensor> expected = run_graph(before, default_registry(), inputs, "reference");
  for (const char* kernel : {"reference", ""}) {
    const std::vector<Tensor> got = run_graph(after, default_registry(), inputs, kernel);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].shape(), expected[i].shape());
      EXPECT_LE(relative_error(got[i].values<float>(), expected[i].values<float>()), tolerance)
          << "output " << i
          << (*kernel == '\0' ? " with the default kernels" : " with the reference kernels");
    }
  }
}

}  // namespace pipit::internal::test
