// The table of passes.
#include "layers/passes/pipeline.h"

#include <gmock/gmock.h>

#include <set>

#include "layers/ops/unary.h"
#include "tests/support/test_graph.h"

namespace pipit::internal {
namespace {

using test::TestGraph;

std::vector<std::string> names(const std::vector<PassReport>& reports) {
  std::vector<std::string> result;
  for (const PassReport& report : reports) result.push_back(report.pass);
  return result;
}

Graph convolution_with_relu() {
  TestGraph b;
  return b.build({b.unary("relu", UnaryKind::relu, b.conv("conv", b.input(Shape{1, 3, 5, 4}), 8))});
}

TEST(Pipeline, HasEveryPassOnceAndThoseForAnyTargetFirst) {
  std::set<std::string> seen;
  bool target = false;
  for (const Pass& pass : passes()) {
    EXPECT_TRUE(seen.insert(pass.name).second) << pass.name;
    EXPECT_NE(pass.run, nullptr) << pass.name;
    EXPECT_FALSE(target && pass.stage == PassStage::model) << pass.name;
    target = pass.stage == PassStage::target;
  }
}

TEST(Pipeline, RunsThePassesOfTheTargetInTheOrderOfTheTable) {
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    for (const Precision precision : {Precision::fp32, Precision::fp16}) {
      std::vector<PassReport> reports;
      const PassTarget target{.device = device, .precision = precision};
      optimize(convolution_with_relu(), target, &reports);
      std::vector<std::string> expected;
      for (const Pass& pass : passes()) {
        const std::string name = pass.name;
        const bool runs =
            name == "quantize" || name == "adapt quantized layers" ? false
            : name == "write out dynamic scales"                   ? device == DeviceKind::cuda
            : name == "write out stored weights" ? device == DeviceKind::cuda || precision == Precision::fp16
            : name == "widen channels"           ? device == DeviceKind::cuda && precision == Precision::fp16
            : name == "assign precision"         ? precision == Precision::fp16
                                                 : true;
        if (runs) expected.push_back(name);
      }
      EXPECT_EQ(names(reports), expected);
    }
  }
}

TEST(Pipeline, QuantizesTheFusedGraphAndKeepsWhatTheTargetSays) {
  PassTarget target{.device = DeviceKind::cuda, .precision = Precision::int8};
  std::size_t nodes = 0;
  target.quantize = [&](Graph fused, PassTarget& its) {
    nodes = fused.nodes().size();
    its.kept.f32.insert("conv");
    return Rewritten{std::move(fused), 1};
  };
  const auto has_halves = [](const Graph& graph) {
    return std::ranges::any_of(graph.values(), [](const Value& v) { return v.desc.dtype == DType::f16; });
  };
  std::vector<PassReport> reports;
  EXPECT_FALSE(has_halves(optimize(convolution_with_relu(), target, &reports)));
  EXPECT_EQ(nodes, 1U) << "the convolution, with its activation";
  EXPECT_THAT(names(reports), testing::Contains("quantize"));
  target.quantize = [](Graph fused, PassTarget&) { return Rewritten{std::move(fused), 1}; };
  EXPECT_TRUE(has_halves(optimize(convolution_with_relu(), target)));
}

}  // namespace
}  // namespace pipit::internal
