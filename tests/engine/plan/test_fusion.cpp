// What the planner decides before it makes a kernel, and tells the candidate: each kernel is made once, with all that
// is fused into it.
#include <gmock/gmock.h>

#include "engine/plan/execution_plan.h"
#include "tests/support/toy_graph.h"

namespace pipit::internal {
namespace {

using test::ToyAdd;
using testing::ElementsAre;
using testing::IsEmpty;

// What create() was told.
struct Made {
  std::string candidate;
  std::size_t followers = 0;
  std::string producer;
  std::size_t producer_followers = 0;
  std::size_t row_stride = 0;
  std::vector<std::size_t> in_place;
  std::optional<std::size_t> overwritten;
};

class FusionTest : public test::ToyGraphTest {
 protected:
  // Runs ToyAdd nodes with this many constants.
  Candidate candidate(const std::string& name, std::size_t constants) {
    Candidate made;
    made.name = name;
    made.refuse = [constants](const NodeSpec& spec) -> Refusal {
      std::size_t count = 0;
      for (std::size_t i = 0; i < spec.inputs.size(); ++i) count += spec.constant(i) != nullptr;
      if (count != constants) return "another number of constants";
      return std::nullopt;
    };
    made.create = [this, name](const NodeSpec& spec) {
      const Fusion& fusion = spec.fusion;
      Made& record = made_.emplace_back();
      record.candidate = name;
      record.followers = fusion.followers.size();
      if (fusion.producer != nullptr) {
        record.producer = fusion.producer_candidate->name;
        record.producer_followers = fusion.producer->fusion.followers.size();
      }
      record.row_stride = fusion.row_stride;
      record.in_place.assign(fusion.in_place.begin(), fusion.in_place.end());
      record.overwritten = fusion.overwritten;
      for (const NodeSpec* follower : fusion.followers)
        EXPECT_TRUE(follower->inputs.size() == 1 || follower->constant(1) != nullptr);
      return std::make_unique<test::ToyAddKernel>(0, false);
    };
    return made;
  }

  static std::shared_ptr<const ExecutionPlan> plan(Graph graph, std::vector<Candidate> candidates,
                                                   PlanOptions options = {}) {
    Registry registry;
    for (Candidate& c : candidates) registry.add(ToyAdd::kType, DeviceKind::cpu, std::move(c));
    options.threads = 1;  // kernels are made in order
    return ExecutionPlan::build(std::move(graph), registry, options);
  }

  std::vector<Made> made_;
};

TEST_F(FusionTest, FollowersAreDecidedBeforeTheirKernelIsMadeOnce) {
  ValueId v = add("first", {input()});
  for (const char* name : {"a", "b", "c"}) v = add(name, {v, constant()}, true);
  builder_.mark_output(v);
  const Graph graph = builder_.build();
  std::vector<std::size_t> asked;
  const auto two = [&] {
    Candidate plain = candidate("plain", 0);
    plain.fusions.epilogue = [&](const NodeSpec& spec, const NodeSpec& next) {
      EXPECT_NE(next.constant(1), nullptr);
      asked.push_back(spec.fusion.followers.size());
      return spec.fusion.followers.size() < 2;
    };
    return std::vector<Candidate>{plain, candidate("constant", 1)};
  };
  const auto fused = plan(graph, two());
  EXPECT_THAT(asked, ElementsAre(0, 1, 2));
  ASSERT_EQ(fused->steps().size(), 2U);
  EXPECT_THAT(fused->steps()[0].fused, ElementsAre(1, 2));
  EXPECT_EQ(fused->steps()[0].outputs[0].desc, fused->steps()[1].inputs[0].desc);
  ASSERT_EQ(made_.size(), 2U);
  EXPECT_EQ(made_[0].candidate, "plain");
  EXPECT_EQ(made_[0].followers, 2U);
  EXPECT_EQ(made_[1].candidate, "constant");
  EXPECT_EQ(made_[1].followers, 0U);

  made_.clear();
  asked.clear();
  PlanOptions options;
  options.keep_every_value = true;
  EXPECT_EQ(plan(graph, two(), options)->steps().size(), 4U);
  EXPECT_EQ(made_.size(), 4U);
  EXPECT_THAT(asked, IsEmpty());
}

TEST_F(FusionTest, OnlyWhatNothingElseReadsIsAFollower) {
  const ValueId first = add("first", {input()});
  builder_.mark_output(add("second", {first, constant()}, true));
  builder_.mark_output(first);
  Candidate plain = candidate("plain", 0);
  plain.fusions.epilogue = [](const NodeSpec&, const NodeSpec&) { return true; };
  EXPECT_EQ(plan(builder_.build(), {plain, candidate("constant", 1)})->steps().size(), 2U);
}

// Its elements in another type.
class ToyNarrow final : public LayerOf<ToyNarrow, test::ToyAddAttributes> {
 public:
  static constexpr std::string_view kType = "ToyNarrow";
  ToyNarrow() : LayerOf({}) {}
  std::vector<TensorDesc> infer(std::span<const TensorDesc* const> inputs) const override {
    return {TensorDesc{inputs[0]->shape, DType::i8}};
  }
};

TEST_F(FusionTest, AFollowerMayWriteAnotherType) {
  builder_.mark_output(builder_.add1("round", std::make_shared<ToyNarrow>(), {add("first", {input()})}));
  Candidate plain = candidate("plain", 0);
  plain.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec& next) {
    return spec.outputs[0].dtype == DType::f32 && next.outputs[0].dtype == DType::i8;
  };
  Registry registry;
  registry.add(ToyAdd::kType, DeviceKind::cpu, plain);
  registry.add(ToyNarrow::kType, DeviceKind::cpu, candidate("round", 0));
  PlanOptions options;
  options.threads = 1;
  const auto built = ExecutionPlan::build(builder_.build(), registry, options);
  ASSERT_EQ(built->steps().size(), 1U);
  EXPECT_THAT(built->steps()[0].fused, ElementsAre(1));
  EXPECT_EQ(built->steps()[0].outputs[0].desc.dtype, DType::i8);
  ASSERT_EQ(made_.size(), 1U);
  EXPECT_EQ(made_[0].followers, 1U);
}

TEST_F(FusionTest, AProducerComesWithItsOwnFollowers) {
  const ValueId between = add("follower", {add("producer", {input(), input("y")}), constant()}, true);
  builder_.mark_output(add("reader", {between, constant(), constant()}));
  Candidate producer = candidate("producer", 0);
  producer.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec&) { return spec.inputs.size() == 2; };
  producer.fusions.computes_pieces = [](const NodeSpec& spec) { return spec.fusion.followers.size() == 1; };
  Candidate reader = candidate("reader", 2);
  reader.fusions.producer = [](const NodeSpec&) { return true; };
  const auto built = plan(builder_.build(), {producer, reader, candidate("constant", 1)});
  ASSERT_EQ(built->steps().size(), 1U);
  const Step& step = built->steps()[0];
  EXPECT_EQ(step.kernel_name, "producer + reader");
  EXPECT_EQ(step.node, 0);
  EXPECT_THAT(step.fused, ElementsAre(1, 2));
  EXPECT_EQ(step.inputs.size(), 2U);
  ASSERT_EQ(made_.size(), 1U);
  EXPECT_EQ(made_[0].candidate, "reader");
  EXPECT_EQ(made_[0].producer, "producer");
  EXPECT_EQ(made_[0].producer_followers, 1U);
  for (const auto& watch : constants_) EXPECT_TRUE(watch.expired());
}

TEST_F(FusionTest, AProducerMustComputePieces) {
  builder_.mark_output(add("reader", {add("producer", {input()}), constant()}));
  Candidate reader = candidate("reader", 1);
  reader.fusions.producer = [](const NodeSpec&) { return true; };
  EXPECT_EQ(plan(builder_.build(), {candidate("producer", 0), reader})->steps().size(), 2U);
}

// The outer of two nested ones first, whose stride the inner one's parts have too.
TEST_F(FusionTest, PlacesAreToldToBothSides) {
  const ValueId inner = add("inner", {add("a", {input()}), constant()});
  const ValueId outer = add("outer", {inner, constant()});
  builder_.mark_output(add("last", {outer}));
  Candidate writer = candidate("writer", 0);
  writer.fusions.writes_strided_rows = [](const NodeSpec&) { return true; };
  Candidate whole = candidate("whole", 1);
  whole.fusions.writes_strided_rows = writer.fusions.writes_strided_rows;
  whole.fusions.place_of_input = [](const NodeSpec& spec, std::size_t input) -> std::optional<RowPlace> {
    if (input != 0) return std::nullopt;
    return RowPlace{4, spec.fusion.row_stride != 0 ? spec.fusion.row_stride : 16};
  };
  const auto built = plan(builder_.build(), {writer, whole});
  ASSERT_EQ(built->steps().size(), 4U);
  ASSERT_EQ(made_.size(), 4U);
  EXPECT_EQ(made_[0].row_stride, 16U);
  EXPECT_EQ(made_[1].row_stride, 16U);
  EXPECT_EQ(made_[2].row_stride, 0U);
  EXPECT_THAT(made_[0].in_place, IsEmpty());
  EXPECT_THAT(made_[1].in_place, ElementsAre(0U));
  EXPECT_THAT(made_[2].in_place, ElementsAre(0U));
  const std::size_t base = built->steps()[2].outputs[0].offset;
  EXPECT_EQ(built->steps()[1].outputs[0].offset, base + 4);
  EXPECT_EQ(built->steps()[0].outputs[0].offset, base + 8);
}

TEST_F(FusionTest, AKernelIsToldWhatItOverwrites) {
  const ValueId a = add("a", {input()});
  const ValueId b = add("b", {a, input("y")});
  builder_.mark_output(add("c", {b, a}));  // a is read again: only here may it be overwritten
  Candidate plain = candidate("plain", 0);
  plain.fusions.overwrites = [](const NodeSpec& spec, std::size_t input) {
    return input + 1 == spec.inputs.size() || spec.inputs.size() == 2;
  };
  const auto built = plan(builder_.build(), {plain});
  ASSERT_EQ(made_.size(), 3U);
  EXPECT_EQ(made_[0].overwritten, std::nullopt);  // the user's memory
  EXPECT_EQ(made_[1].overwritten, std::nullopt);
  EXPECT_EQ(made_[2].overwritten, 0U);
  EXPECT_EQ(built->steps()[2].outputs[0].offset, built->steps()[1].outputs[0].offset);
}

TEST_F(FusionTest, APlanLeavesTheGraphAsItWas) {
  builder_.mark_output(add("n", {input(), constant()}));
  const Graph graph = builder_.build();
  const auto built = plan(graph, {candidate("constant", 1)});
  EXPECT_FALSE(constants_[0].expired());
  const ValueId k = graph.nodes()[0].inputs[1];
  EXPECT_EQ(graph.value(k).constant, constants_[0].lock());
  EXPECT_FALSE(graph.value(k).released);
  EXPECT_EQ(built->graph().value(k).constant, nullptr);
  EXPECT_TRUE(built->graph().value(k).is_constant());

  GraphBuilder batch;
  batch.mark_output(
      batch.add1("n", std::make_shared<ToyAdd>(), {batch.add_input("x", TensorDesc{Shape({4, 3})})}));
  const Graph whole = batch.build();
  PlanOptions options;
  options.micro_batch = 2;
  const auto cut = plan(whole, {candidate("plain", 0)}, options);
  EXPECT_TRUE(cut->micro_batches().cut());
  EXPECT_EQ(cut->steps()[0].outputs[0].desc.shape, Shape({2, 3}));
  for (const Graph* g : {&whole, &cut->graph()})
    EXPECT_EQ(g->value(g->outputs()[0]).desc.shape, Shape({4, 3}));
}

}  // namespace
}  // namespace pipit::internal
