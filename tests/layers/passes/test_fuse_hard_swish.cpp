// HardSigmoid and HardSwish in every order in which exporters write them out.
#include <gtest/gtest.h>

#include <limits>

#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::expect_same_outputs;
using test::TestGraph;

struct Written : TestGraph {
  ValueId number(float value) {
    return graph.add_constant("number" + std::to_string(++constants), Tensor::scalar(value));
  }
  ValueId either(const std::string& name, BinaryKind kind, bool swapped, ValueId a, ValueId b) {
    return swapped ? binary(name, kind, b, a) : binary(name, kind, a, b);
  }
  // min(max(x + 3, 0), 6), in the forms that `bounds` numbers.
  ValueId ramp(ValueId x, int bounds, bool swapped, float three = 3, float six = 6) {
    const ValueId sum = bounds == 4 ? binary("sum", BinaryKind::sub, x, number(-three))
                                    : either("sum", BinaryKind::add, swapped, x, number(three));
    switch (bounds) {
      case 0:
      case 4:
        return unary("clip", UnaryKind::clip, sum, 0, six);
      case 1:
        return either("min", BinaryKind::min, swapped, unary("relu", UnaryKind::relu, sum), number(six));
      case 2:
        return either("max", BinaryKind::max, swapped,
                      either("min", BinaryKind::min, swapped, sum, number(six)), number(0));
      default:
        return unary("clip", UnaryKind::clip, unary("relu", UnaryKind::relu, sum),
                     std::numeric_limits<float>::lowest(), six);
    }
  }
  ValueId sixth(ValueId x, bool divides, bool swapped) {
    return divides ? binary("div", BinaryKind::div, x, number(6))
                   : either("sixth", BinaryKind::mul, swapped, x, number(0.1666667F));
  }
};

constexpr int kClips = 5;

void expect_one(const Graph& before, const Rewritten& after, UnaryKind kind) {
  ASSERT_EQ(after.graph.nodes().size(), 1U);
  const auto* unary = layer_if<Unary>(after.graph.nodes()[0]);
  ASSERT_NE(unary, nullptr);
  EXPECT_EQ(unary_name(unary->attributes().kind), unary_name(kind));
  expect_same_outputs(before, after.graph, 1e-6);
}

TEST(FuseHardSwish, EveryOrderOfTheProduct) {
  for (int bounds = 0; bounds < kClips; ++bounds) {
    for (const bool divides : {false, true}) {
      for (const bool swapped : {false, true}) {
        for (int order = 0; order < 3; ++order) {
          SCOPED_TRACE(testing::Message() << bounds << divides << swapped << order);
          Written b;
          const ValueId x = b.binary("wide", BinaryKind::mul, b.input(Shape{1, 4, 5, 5}), b.number(8));
          const ValueId ramp = b.ramp(x, bounds, swapped);
          ValueId y = kNoValue;
          if (order == 0) {  // (x * ramp) / 6
            y = b.sixth(b.either("product", BinaryKind::mul, swapped, x, ramp), divides, swapped);
          } else if (order == 1) {  // (x / 6) * ramp
            y = b.either("product", BinaryKind::mul, swapped, b.sixth(x, divides, swapped), ramp);
          } else {  // x * (ramp / 6)
            y = b.either("product", BinaryKind::mul, swapped, x, b.sixth(ramp, divides, swapped));
          }
          const Graph before = b.build({y});
          const Rewritten after = fuse_activations_written_out(before);
          ASSERT_EQ(after.graph.nodes().size(), 2U);
          const auto* unary = layer_if<Unary>(after.graph.nodes()[1]);
          ASSERT_NE(unary, nullptr);
          EXPECT_EQ(unary_name(unary->attributes().kind), "hard_swish");
          expect_same_outputs(before, after.graph, 1e-6);
        }
      }
    }
  }
}

TEST(FuseHardSwish, TheGateAlone) {
  for (int bounds = 0; bounds < kClips; ++bounds) {
    for (const bool divides : {false, true}) {
      Written b;
      const Graph before =
          b.build({b.sixth(b.ramp(b.input(Shape{2, 4, 1, 1}), bounds, divides), divides, true)});
      expect_one(before, fuse_activations_written_out(before), UnaryKind::hard_sigmoid);
    }
  }
}

TEST(FuseHardSwish, SixDigitsOfASixthInTheOperator) {
  Written b;
  const ValueId x = b.input(Shape{1, 4, 3, 3});
  const ValueId gate = b.unary("gate", UnaryKind::hard_sigmoid, x, 0.1666667, 0.5);
  const Graph before = b.build({b.binary("product", BinaryKind::mul, gate, x)});
  expect_one(before, fuse_activations_written_out(before), UnaryKind::hard_swish);
}

TEST(FuseHardSwish, NotForOtherNumbersOrArguments) {
  for (const int wrong : {0, 1, 2, 3}) {
    Written b;
    const ValueId x = b.input(Shape{1, 4, 3, 3});
    const ValueId other = wrong == 2 ? b.unary("abs", UnaryKind::abs, x) : x;
    const ValueId ramp = b.ramp(x, 0, false, wrong == 0 ? 2.0F : 3.0F, wrong == 1 ? 5.0F : 6.0F);
    const ValueId product = b.binary("product", BinaryKind::mul, other, ramp);
    const Graph before =
        b.build({b.binary("y", BinaryKind::div, product, b.number(wrong == 3 ? 5.0F : 6.0F))});
    EXPECT_EQ(fuse_activations_written_out(before).changes, 0) << wrong;
  }
}

}  // namespace
}  // namespace pipit::internal
