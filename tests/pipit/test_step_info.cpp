// What is told of a step whose kernel computes a chain of nodes.
#include "pipit/detail/step_info.h"

#include <gmock/gmock.h>

#include "tests/support/toy_layers.h"

namespace pipit::internal {
namespace {

struct WeightedAttributes {
  std::int64_t macs = 0;
};

/// Has weights of the input's shape and as many multiply-accumulates as it says.
class Weighted final : public LayerOf<Weighted, WeightedAttributes> {
 public:
  static constexpr std::string_view kType = "Weighted";
  explicit Weighted(std::int64_t macs) : LayerOf({macs}) {}
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override {
    return {*inputs[0]};
  }
  Work work(std::span<const TensorDesc* const>, std::span<const TensorDesc>) const override {
    return {attributes_.macs};
  }
};

class Packed final : public Kernel {
 public:
  std::size_t packed_bytes() const override { return 1000; }
  bool reads_constant(std::size_t) const override { return false; }
  void run(std::span<const ConstTensorView>, std::span<const TensorView>, const RunContext&) const override {}
};

TEST(StepInfo, AChainCountsAllNodesAndNothingBetweenThem) {
  GraphBuilder builder;
  const ValueId x = builder.add_input("x", TensorDesc{Shape({16})});
  ValueId y = x;
  for (const char* name : {"a", "b", "c"}) {
    const ValueId w = builder.add_constant(std::string("w.") + name,
                                           Tensor::from<float>(Shape({16}), std::vector<float>(16, 1.0F)));
    y = builder.add1(name, std::make_shared<Weighted>(100), {y, w});
  }
  builder.mark_output(builder.add1("sum", std::make_shared<test::ToyAdd>(), {y, x}));
  Registry registry = test::toy_registry();
  const auto accept = [](const NodeSpec&) -> Refusal { return std::nullopt; };
  const auto create = [](const NodeSpec&) { return std::make_unique<Packed>(); };
  Candidate chain{"chain", [](const NodeSpec&) -> Refusal { return "chains only"; }, create};
  chain.fusions.chain = [](const NodeSpec&, std::span<const ChainLink>) { return true; };
  registry.add(Weighted::kType, DeviceKind::cpu, std::move(chain));
  registry.add(Weighted::kType, DeviceKind::cpu, {"single", accept, create});
  PlanOptions options;
  options.threads = 1;
  const auto plan = ExecutionPlan::build(builder.build(), registry, options);
  ASSERT_EQ(plan->steps().size(), 1U);
  const detail::StepInfo info = detail::step_info(*plan, plan->steps()[0]);
  EXPECT_EQ(info.name, "a");
  EXPECT_EQ(info.type, "Weighted");
  EXPECT_EQ(info.kernel, "chain");
  EXPECT_EQ(info.geometry, " then 2 Weighted, 1 ToyAdd");
  EXPECT_THAT(info.nodes, testing::ElementsAre("a", "b", "c", "sum"));
  EXPECT_EQ(info.macs, 300);
  EXPECT_EQ(info.bytes, 64 + 3 * 64 + 64);
  EXPECT_EQ(info.work.macs(), 300);
  EXPECT_EQ(info.work.read, 64);
  EXPECT_EQ(info.work.weights, 1000);
  EXPECT_EQ(info.work.written, 64);
  EXPECT_EQ(plan->arena_bytes(), 64U);
}

}  // namespace
}  // namespace pipit::internal
