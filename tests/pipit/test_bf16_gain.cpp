// What bf16 could save (detail::bf16_gain), on machines that are made up.
#include "pipit/detail/bf16_gain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "layers/ops/conv.h"
#include "layers/ops/unary.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

using detail::bf16_gain;
using detail::bf16_note;
using detail::bf16_rate_text;
using detail::Bf16Gain;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A convolution of 64 channels over 32x32 pixels and, on request, a thousand of their square roots' kind: layers
// without products.
Graph convolution(std::int64_t groups = 1, int others = 0) {
  std::mt19937 random{test::test_seed()};
  GraphBuilder graph;
  ConvAttributes a;
  a.window.kernel = {3, 3, 1};
  a.window.pad_begin = a.window.pad_end = {1, 1, 0};
  a.groups = groups;
  ValueId x = graph.add_input("x", TensorDesc{Shape{1, 64, 32, 32}});
  const ValueId w =
      graph.add_constant("w", test::random_tensor(Shape{64, 64 / groups, 3, 3}, random, -0.3F, 0.3F));
  x = graph.add1("conv", std::make_shared<Conv>(a), {x, w});
  for (int i = 0; i < others; ++i)
    x = graph.add1("exp" + std::to_string(i), std::make_shared<Unary>(UnaryAttributes{UnaryKind::exp}), {x});
  graph.mark_output(x, "y");
  return graph.build();
}

std::shared_ptr<const ExecutionPlan> planned(Graph graph, Precision precision = Precision::fp32) {
  CompileOptions options;
  options.planning.precision = precision;
  options.planning.threads = 1;
  options.planning.prefer_kernels = {{"tile"}};  // or Winograd, of fewer products
  return compile(std::move(graph), options).plans[0];
}

// bfloat16 multiplied `products` times as fast as f32; memory so fast that arithmetic is all.
Ceilings machine(double products, double bytes_per_s = 1e15) {
  Ceilings ceilings;
  const auto rate = [](double best) { return MeasuredRate{.best = best, .median = best}; };
  ceilings.arithmetic = {{Products::fp32, "avx512", rate(1e11), rate(1e11)}};
  if (products > 0)
    ceilings.arithmetic.push_back({Products::bf16, "amx", rate(1e11 * products), rate(1e11 * products)});
  const MeasuredRate bytes = rate(bytes_per_s);
  ceilings.memory = {{"memory", 0, bytes, bytes, bytes, bytes}};
  return ceilings;
}

TEST(Bf16Gain, IsTheRatioOfTheFloors) {
  const std::optional<Bf16Gain> gain = bf16_gain(*planned(convolution()), 16, machine(4));
  ASSERT_TRUE(gain);
  EXPECT_TRUE(gain->is_estimate());
  // 32 columns are three strips of 11 or 12: the tile may multiply some pixels twice, which bf16 is not charged for.
  const double ms = 2e3 * 64 * 64 * 9 * 32 * 32 / 1e11;
  EXPECT_NEAR(gain->bf16_floor_ms, ms / 4, 0.02 * ms);
  EXPECT_GE(gain->floor_ms, ms);
  EXPECT_DOUBLE_EQ(gain->factor, gain->floor_ms / gain->bf16_floor_ms);
  EXPECT_NEAR(gain->factor, 4, 0.6);
}

TEST(Bf16Gain, HalvesBytesWhereMemoryIsTheLimit) {
  const std::optional<Bf16Gain> gain = bf16_gain(*planned(convolution()), 16, machine(1000, 1e6));
  ASSERT_TRUE(gain);
  EXPECT_NEAR(gain->factor, 2, 0.01);
}

TEST(Bf16Gain, IsAnUpperBoundWithoutCeilings) {
  for (const Ceilings& unknown : {Ceilings{}, machine(0)}) {
    const std::optional<Bf16Gain> gain = bf16_gain(*planned(convolution()), 16, unknown);
    ASSERT_TRUE(gain);
    EXPECT_FALSE(gain->is_estimate());
    EXPECT_GE(gain->factor, 16);
    EXPECT_LE(gain->factor, 20);
  }
}

TEST(Bf16Gain, IsNothingWhereBf16IsNotFaster) {
  const auto plan = planned(convolution());
  EXPECT_FALSE(bf16_gain(*plan, 0, machine(4))) << "no products of bfloat16";
  EXPECT_FALSE(bf16_gain(*plan, 2, machine(1.1))) << "measured to be hardly faster";
  EXPECT_FALSE(bf16_gain(*planned(convolution(64)), 16, machine(4))) << "depthwise: computed in f32";
  EXPECT_FALSE(bf16_gain(*planned(convolution(), Precision::bf16), 16, machine(4))) << "it is bf16";
  EXPECT_FALSE(bf16_gain(*planned(convolution(), Precision::int8_dynamic), 16, machine(4)));
}

TEST(Bf16Gain, SaysWhatTheFactorIs) {
  EXPECT_THAT(bf16_note("net.onnx", {Precision::fp32, 3.04, 10, 3.29}),
              AllOf(StartsWith("net.onnx may run 3.0 times as fast with --precision bf16: an estimate"),
                    HasSubstr("10 ms in fp32 and 3.29 ms in bf16"), HasSubstr("--against fp32")));
  EXPECT_THAT(bf16_note("net.onnx", {Precision::fp16, 8}),
              AllOf(HasSubstr("may run up to 8.0 times as fast as in fp16"), HasSubstr("an upper bound"),
                    HasSubstr("pipit ceilings")));
}

TEST(Bf16Gain, SaysHowFastAMachineMultiplies) {
  EXPECT_THAT(bf16_rate_text(0, machine(4)), IsEmpty());
  EXPECT_THAT(bf16_rate_text(16, machine(4)), HasSubstr("4.0 times as fast as in fp32 (400 and 100 GFLOP/s"));
  EXPECT_THAT(bf16_rate_text(16, {}), HasSubstr("up to 16 times as fast"));
}

}  // namespace
}  // namespace pipit::internal
