// Chains: nodes that read each other's results and that one kernel computes, and what kernels keep from run to run.
#include <gmock/gmock.h>

#include <map>

#include "engine/plan/execution_plan.h"
#include "engine/runtime/session.h"
#include "tests/support/toy_graph.h"

namespace pipit::internal {
namespace {

using test::ToyAdd;
using test::ToyView;
using testing::ElementsAre;
using testing::IsEmpty;

using Kind = LinkSource::Kind;

// Computes a chain of ToyAdds as Fusion describes it, all in memory of its own, and counts its runs in its state.
class ChainKernel final : public Kernel {
 public:
  explicit ChainKernel(const NodeSpec& spec) : read_first_(spec.inputs.size()) {
    add(spec);
    for (std::size_t i = 0; i < spec.inputs.size(); ++i)
      nodes_[0].sources.push_back(spec.constant(i) != nullptr ? LinkSource{}
                                                              : LinkSource{Kind::input, static_cast<int>(i)});
    for (const ChainLink& link : spec.fusion.chain) {
      add(*link.node);
      nodes_.back().sources = link.sources;
    }
  }
  std::size_t state_bytes() const override { return sizeof(int); }
  bool reads_constant(std::size_t) const override { return false; }
  void run(std::span<const ConstTensorView> in, std::span<const TensorView> out,
           const RunContext& context) const override {
    int& count = *reinterpret_cast<int*>(context.state);
    runs_of_last_session = ++count;
    std::vector<std::vector<float>> results;
    for (const OneNode& node : nodes_) {
      std::vector<float>& y = results.emplace_back(4, 0.0F);
      for (std::size_t i = 0; i < node.sources.size(); ++i) {
        const LinkSource& source = node.sources[i];
        const auto at = static_cast<std::size_t>(source.index);
        const float* x = source.kind == Kind::node      ? results[at].data()
                         : source.kind == Kind::input   ? in[at].as<float>()
                         : source.kind == Kind::outside ? in[read_first_ + at].as<float>()
                                                        : node.constants[i].data();
        for (std::size_t e = 0; e < 4; ++e) y[e] += x[e];
      }
    }
    std::copy_n(results.back().data(), 4, out[0].as<float>());
  }
  static inline int runs_of_last_session = 0;

 private:
  struct OneNode {
    std::vector<LinkSource> sources;
    std::vector<std::vector<float>> constants;
  };
  void add(const NodeSpec& spec) {
    OneNode& node = nodes_.emplace_back();
    for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
      const Tensor* k = spec.constant(i);
      const float* values = k != nullptr ? k->view().as<float>() : nullptr;
      node.constants.push_back(k != nullptr ? std::vector<float>(values, values + 4) : std::vector<float>());
    }
  }
  std::size_t read_first_;  // inputs of the first node
  std::vector<OneNode> nodes_;
};

// Believes that whatever runs last is the fastest.
class LastIsFastest final : public KernelTimer {
 public:
  void load(const NodeSpec&) override {}
  double warm_up(const Kernel&) override { return ms_ /= 2; }
  double time(const Kernel& kernel, int) override { return times_.try_emplace(&kernel, ms_).first->second; }

 private:
  double ms_ = 1024;
  std::map<const Kernel*, double> times_;
};

class ChainTest : public test::ToyGraphTest {
 protected:
  // Takes chains of up to `most` links, and no single node.
  Candidate chain(std::size_t most = 100, bool outside = false) {
    Candidate made;
    made.name = "chain";
    made.refuse = [](const NodeSpec&) -> Refusal { return "computes chains only"; };
    made.create = [this](const NodeSpec& spec) {
      EXPECT_THAT(spec.fusion.followers, IsEmpty());
      EXPECT_EQ(spec.fusion.overwritten, std::nullopt);
      made_.push_back(spec.fusion.chain.size());
      for (const ChainLink& link : spec.fusion.chain) {
        for (std::size_t i = 0; i < link.sources.size(); ++i)
          EXPECT_EQ(link.sources[i].kind == Kind::none, link.node->constant(i) != nullptr);
      }
      return std::make_unique<ChainKernel>(spec);
    };
    made.fusions.chain = [this, most](const NodeSpec&, std::span<const ChainLink> links) {
      asked_.push_back(links.size());
      return links.size() <= most;
    };
    made.fusions.chain_reads_outside = outside;
    return made;
  }
  // Runs single nodes, and would do more.
  static Candidate plain(const std::string& name = "plain") {
    Candidate made;
    made.name = name;
    made.refuse = [](const NodeSpec&) -> Refusal { return std::nullopt; };
    made.create = [](const NodeSpec&) { return std::make_unique<test::ToyAddKernel>(0, false); };
    made.fusions.epilogue = [](const NodeSpec&, const NodeSpec&) { return true; };
    return made;
  }
  static Candidate single(const std::string& name = "plain") {
    Candidate made = plain(name);
    made.fusions.epilogue = {};
    made.create = [](const NodeSpec&) { return std::make_unique<test::ToyAddKernel>(0, true); };
    return made;
  }

  std::shared_ptr<const ExecutionPlan> plan(std::vector<Candidate> candidates, PlanOptions options = {}) {
    Registry registry;
    for (Candidate& c : candidates) registry.add(ToyAdd::kType, DeviceKind::cpu, std::move(c));
    options.threads = 1;
    return ExecutionPlan::build(builder_.build(), registry, options);
  }
  // The nodes of every step.
  static std::vector<std::vector<int>> nodes(const ExecutionPlan& plan) {
    std::vector<std::vector<int>> all;
    for (const Step& step : plan.steps()) {
      all.push_back({step.node});
      all.back().insert(all.back().end(), step.fused.begin(), step.fused.end());
      EXPECT_EQ(step.is_chain, step.kernel_name != "plain");
    }
    return all;
  }
  static std::vector<float> run(Session& session, const std::vector<float>& x) {
    const Tensor tensor = Tensor::from<float>(Shape({4}), x);
    const ConstTensorView view = tensor.view();
    const ConstTensorView y = session.run({&view, 1})[0];
    return {y.as<float>(), y.as<float>() + 4};
  }

  // Two residual blocks, the second over the first one's input: y = 2 x + 3 k.
  ValueId blocks(ValueId x) {
    const ValueId a = add("a", {x, constant()});
    const ValueId b = add("b", {a, constant()}, true);
    const ValueId c = add("c", {b, x}, true);
    return add("d", {constant(), c});
  }

  std::vector<std::size_t> made_;   // links of each chain
  std::vector<std::size_t> asked_;  // with how many links
};

TEST_F(ChainTest, OneKernelComputesAllNodes) {
  builder_.mark_output(blocks(input()));
  Candidate taken = chain();
  std::vector<std::vector<std::pair<Kind, int>>> sources;
  taken.create = [&](const NodeSpec& spec) {
    for (const ChainLink& link : spec.fusion.chain) {
      sources.emplace_back();
      for (const LinkSource& s : link.sources) sources.back().emplace_back(s.kind, s.index);
    }
    return std::make_unique<ChainKernel>(spec);
  };
  const auto built = plan({plain(), taken});
  EXPECT_THAT(nodes(*built), ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(asked_, testing::Contains(3U));
  using testing::Pair;
  EXPECT_THAT(sources, ElementsAre(ElementsAre(Pair(Kind::node, 0), Pair(Kind::none, 0)),
                                   ElementsAre(Pair(Kind::node, 1), Pair(Kind::input, 0)),
                                   ElementsAre(Pair(Kind::none, 0), Pair(Kind::node, 2))));
  const Step& step = built->steps()[0];
  EXPECT_EQ(step.kernel_name, "chain");
  EXPECT_EQ(step.inputs[0].kind, Placement::Kind::input);
  EXPECT_EQ(step.outputs[0].kind, Placement::Kind::arena);
  for (const auto& watch : constants_) EXPECT_TRUE(watch.expired());
  Session session(built);
  EXPECT_THAT(run(session, {10, 20, 30, 40}), ElementsAre(23, 46, 69, 92));
}

TEST_F(ChainTest, TheLongestThatIsTakenAndTheRestByItself) {
  const ValueId x = input();
  builder_.mark_output(add("g", {add("f", {add("e", {blocks(x)})})}));
  const auto built = plan({single(), chain(4)});
  // Neither of what is left is refused, so they are a chain, too.
  EXPECT_THAT(nodes(*built), ElementsAre(ElementsAre(0, 1, 2, 3, 4), ElementsAre(5, 6)));
  EXPECT_THAT(made_, ElementsAre(4U, 1U));
}

TEST_F(ChainTest, NobodyElseReadsWhatIsInside) {
  // b is read by what is no part of the chain: it reads another value.
  const ValueId x = input();
  const ValueId a = add("a", {x});
  const ValueId b = add("b", {a, x});
  const ValueId c = add("c", {b});
  builder_.mark_output(add("d", {add("other", {b, input("y")}), c}));
  const auto built = plan({single(), chain()});
  EXPECT_THAT(nodes(*built), ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3), ElementsAre(4)));
  EXPECT_THAT(asked_, testing::Not(testing::Contains(2U)));
}

// A projection of what a block reads: x and y are in memory for as long as the chain needs them, though its first node
// reads neither.
TEST_F(ChainTest, LinksReadWhatWasComputedBefore) {
  const ValueId x = add("x", {input(), constant()});
  const ValueId y = add("y", {x, constant()});
  const ValueId a = add("a", {add("b", {y})});
  const ValueId c = add("c", {a, x, constant()}, true);
  builder_.mark_output(add("d", {c, x, a, y}));
  Candidate taken = chain(100, true);
  std::vector<std::vector<std::pair<Kind, int>>> sources;
  taken.fusions.chain = [&](const NodeSpec& spec, std::span<const ChainLink> links) {
    return spec.inputs.size() == 1 && (links.empty() || links.size() == 2);
  };
  taken.create = [&](const NodeSpec& spec) {
    for (const ChainLink& link : spec.fusion.chain) {
      sources.emplace_back();
      for (const LinkSource& s : link.sources) sources.back().emplace_back(s.kind, s.index);
    }
    return std::make_unique<ChainKernel>(spec);
  };
  const auto built = plan({single(), taken});
  ASSERT_THAT(nodes(*built),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3, 4, 5)));
  using testing::Pair;
  EXPECT_THAT(sources,
              ElementsAre(ElementsAre(Pair(Kind::node, 0), Pair(Kind::outside, 0), Pair(Kind::none, 0)),
                          ElementsAre(Pair(Kind::node, 1), Pair(Kind::outside, 0), Pair(Kind::node, 0),
                                      Pair(Kind::outside, 1))));
  const Step& step = built->steps()[3];
  EXPECT_THAT(step.outside, ElementsAre(x, y));
  ASSERT_EQ(step.inputs.size(), 3U);
  for (std::size_t i = 1; i < 3; ++i) EXPECT_NE(step.inputs[i].offset, step.inputs[0].offset);
  Session session(built);
  // x = i + k, y = i + 2 k, c = y + x + k, d = c + x + y + y.
  EXPECT_THAT(run(session, {10, 20, 30, 40}), ElementsAre(50 + 9, 100 + 18, 150 + 27, 200 + 36));
}

TEST_F(ChainTest, AnOutputOfTheGraphEndsIt) {
  const ValueId b = add("b", {add("a", {input()})});
  builder_.mark_output(add("d", {add("c", {b})}));
  builder_.mark_output(b);
  EXPECT_THAT(nodes(*plan({single(), chain()})), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST_F(ChainTest, AViewIsAReader) {
  const ValueId a = add("a", {input()});
  const ValueId b = add("b", {a});
  const ValueId view = builder_.add1("view", std::make_shared<ToyView>(Shape({2, 2})), {a});
  builder_.mark_output(add("c", {b}));
  builder_.mark_output(add("d", {view}));
  // a is read through the view, so that the chain begins after it.
  EXPECT_THAT(nodes(*plan({single(), chain()})),
              ElementsAre(ElementsAre(0), ElementsAre(1, 3), ElementsAre(4)));
}

TEST_F(ChainTest, TheOptionsMayForbidIt) {
  builder_.mark_output(blocks(input()));
  const Graph graph = builder_.build();
  const auto steps = [&](const PlanOptions& options) {
    Registry registry;
    registry.add(ToyAdd::kType, DeviceKind::cpu, single());
    registry.add(ToyAdd::kType, DeviceKind::cpu, chain());
    return ExecutionPlan::build(graph, registry, options)->steps().size();
  };
  EXPECT_EQ(steps({}), 1U);
  asked_.clear();
  PlanOptions options;
  options.exclude_kernels = {{"chain"}};
  EXPECT_EQ(steps(options), 4U);
  options.exclude_kernels = {{"chain", "Other"}};
  EXPECT_EQ(steps(options), 1U);
  asked_.clear();
  options = {};
  options.keep_every_value = true;
  EXPECT_EQ(steps(options), 4U);
  options = {};
  options.prefer_kernels = {{"plain"}};
  EXPECT_EQ(steps(options), 4U);
  EXPECT_THAT(asked_, IsEmpty());
}

// Of a chain of n links times[n], of a single node time.
Candidate estimated(Candidate candidate, std::vector<double> times) {
  candidate.estimate = [times](const NodeSpec& spec) -> std::optional<Estimate> {
    const std::size_t links = spec.fusion.chain.size();
    if (links >= times.size() || times[links] == 0) return std::nullopt;
    return Estimate{times[links], {}, {}};
  };
  return candidate;
}

TEST_F(ChainTest, AreMadeWhereTheyTakeLessThanTheirNodesOneByOne) {
  const auto planned = [&](std::vector<double> times, std::vector<double> others = {}) {
    builder_ = {};
    builder_.mark_output(blocks(input()));
    Candidate other = estimated(chain(), std::move(others));
    other.name = "other";
    return plan({estimated(single(), {1}), estimated(chain(), std::move(times)), other});
  };
  // Four nodes that take 1 each.
  EXPECT_EQ(nodes(*planned({0, 2.1, 3.1, 4.1})).size(), 4U);
  EXPECT_THAT(nodes(*planned({0, 1.9, 3.1, 4.1})), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(nodes(*planned({0, 1.9, 0, 3.7})), ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(nodes(*planned({0, 1.8, 0, 3.7})), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(nodes(*planned({0, 0, 0, 4})), ElementsAre(ElementsAre(0, 1, 2, 3))) << "fewer steps";
  // Of two candidates the one that takes less, from the last node as well.
  const auto two = planned({0, 1.9, 0, 3.95}, {0, 1.5, 0, 3.2});
  ASSERT_THAT(nodes(*two), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_EQ(two->steps()[0].kernel_name, "other");
  // What was compared: of each candidate the chain that is taken, or would save most.
  const std::vector<EstimatedChain>& chains = two->steps()[0].chains;
  ASSERT_EQ(chains.size(), 2U);
  EXPECT_EQ(chains[0].name, "chain");
  EXPECT_EQ(chains[0].nodes, 2U);
  EXPECT_EQ(chains[0].time, 1.9);
  EXPECT_EQ(chains[0].apart, 2);
  EXPECT_EQ(chains[1].name, "other");
  EXPECT_EQ(chains[1].nodes, 2U);
  EXPECT_EQ(chains[1].time, 1.5);
}

TEST_F(ChainTest, WhatKernelsFuseCountsWithTheNodesOneByOne) {
  // The kernel of the first node computes the second one, too, in half its time.
  const auto planned = [&](double two, double one) {
    builder_ = {};
    const ValueId first = add("first", {input(), input("y")});
    builder_.mark_output(add("last", {add("second", {first}, true)}, true));
    Candidate apart = single();
    apart.fusions.epilogue = [](const NodeSpec& spec, const NodeSpec&) {
      return spec.inputs.size() == 2 && spec.fusion.followers.empty();
    };
    apart.estimate = [](const NodeSpec& spec) -> std::optional<Estimate> {
      return Estimate{spec.fusion.followers.empty() ? 1 : 1.5, {}, {}};
    };
    Candidate taken = chain();
    taken.estimate = [two, one](const NodeSpec& spec) -> std::optional<Estimate> {
      return Estimate{spec.fusion.chain.size() == 2 ? two : spec.inputs.size() == 2 ? 9 : one, {}, {}};
    };
    return nodes(*plan({apart, taken}));
  };
  EXPECT_THAT(planned(2.4, 9), ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(planned(2.6, 9), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_THAT(planned(2.6, 1.6), ElementsAre(ElementsAre(0, 1), ElementsAre(2))) << "not 0.5 and 1";
  EXPECT_THAT(planned(2.6, 1.4), ElementsAre(ElementsAre(0), ElementsAre(1, 2)));
}

TEST_F(ChainTest, WhatTakesLongerIsLeftUnlessItIsAskedFor) {
  const auto planned = [&](std::size_t most, const PlanOptions& options = {}) {
    builder_ = {};
    builder_.mark_output(blocks(input()));
    std::vector<double> times(100, 1000);
    std::fill_n(times.begin(), most + 1, 1.5);
    return nodes(*plan({estimated(single(), {1}), estimated(chain(), times)}, options));
  };
  EXPECT_THAT(planned(1), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_EQ(planned(0).size(), 4U);
  PlanOptions options;
  options.prefer_kernels = {{"chain"}};
  EXPECT_THAT(planned(0, options), ElementsAre(ElementsAre(0, 1, 2, 3)));
  options.prefer_kernels.push_back({"plain", std::string(ToyAdd::kType)});
  EXPECT_EQ(planned(3, options).size(), 4U);
  // The first of two preferred kernels counts.
  options.prefer_kernels = {{"chain"}, {"plain"}};
  EXPECT_THAT(planned(0, options), ElementsAre(ElementsAre(0, 1, 2, 3)));
  options.prefer_kernels = {{"plain"}, {"chain"}};
  EXPECT_EQ(planned(3, options).size(), 4U);
}

TEST_F(ChainTest, OutputsOverwriteNothingThatIsRead) {
  // The first node may run in place, and its input dies with the chain.
  const ValueId x = builder_.add1("x", std::make_shared<ToyAdd>(), {input()});
  const ValueId first = add("first", {x}, true);
  builder_.mark_output(add("last", {first, x}, true));
  Candidate taken = chain();
  taken.fusions.overwrites = [](const NodeSpec&, std::size_t) { return true; };
  taken.fusions.chain = [](const NodeSpec& spec, std::span<const ChainLink> links) {
    return links.size() < 2 && spec.layer.may_run_in_place(0);
  };
  const auto built = plan({single(), taken});
  ASSERT_THAT(nodes(*built), ElementsAre(ElementsAre(0), ElementsAre(1, 2)));
  EXPECT_NE(built->steps()[1].inputs[0].offset, built->steps()[1].outputs[0].offset);
  Session session(built);
  EXPECT_THAT(run(session, {1, 2, 3, 4}), ElementsAre(2, 4, 6, 8));
}

TEST_F(ChainTest, NothingElseIsFusedWithIt) {
  // The previous node could compute the first one of the chain, and the chain's last one has a follower.
  const ValueId front = add("front", {input(), input("y")});
  const ValueId a = add("a", {front}, true);
  builder_.mark_output(add("c", {add("b", {a}, true)}, true));
  Candidate taken = chain();
  taken.fusions.epilogue = plain().fusions.epilogue;
  taken.fusions.producer = taken.fusions.computes_pieces = [](const NodeSpec&) { return true; };
  taken.fusions.chain = [](const NodeSpec& spec, std::span<const ChainLink> links) {
    return links.size() < 2 && spec.inputs.size() == 1;
  };
  Candidate eager = plain();
  eager.fusions.computes_pieces = taken.fusions.computes_pieces;
  EXPECT_THAT(nodes(*plan({eager, taken})), ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3)));
  EXPECT_THAT(made_, ElementsAre(1U));
}

TEST_F(ChainTest, KernelsOfTheTunerTakeNoConstantsAway) {
  const ValueId y = blocks(input());
  builder_.mark_output(add("tail", {y, y, constant()}));
  Graph graph = builder_.build();
  TunerOptions tuning;
  tuning.make_timer = [](DeviceKind, const NodeSpec&) { return std::make_unique<LastIsFastest>(); };
  PlanOptions options;
  options.threads = 1;
  std::vector<std::shared_ptr<const ExecutionPlan>> plans;
  for (const std::size_t most : {std::size_t{3}, std::size_t{0}}) {
    options.tuner = std::make_shared<Tuner>(tuning);
    Registry registry;
    for (const char* name : {"one", "two"}) {
      Candidate c = single(name);
      c.create = [](const NodeSpec&) { return std::make_unique<test::ToyAddKernel>(0, false); };
      registry.add(ToyAdd::kType, DeviceKind::cpu, std::move(c));
    }
    Candidate taken = chain();
    taken.fusions.chain = [most](const NodeSpec&, std::span<const ChainLink> links) {
      return links.empty() || links.size() == most;
    };
    registry.add(ToyAdd::kType, DeviceKind::cpu, std::move(taken));
    std::vector<ChosenBy> chosen;
    const auto built = plans.emplace_back(ExecutionPlan::build(graph, registry, options));
    for (const Step& step : built->steps()) chosen.push_back(step.choice.by);
    if (most == 0) {
      // What may be an epilogue is not timed on a CPU.
      EXPECT_THAT(chosen, ElementsAre(ChosenBy::measurement, ChosenBy::order, ChosenBy::measurement,
                                      ChosenBy::measurement, ChosenBy::measurement));
    } else {
      EXPECT_THAT(chosen, ElementsAre(ChosenBy::order, ChosenBy::measurement));
      EXPECT_THAT(made_, ElementsAre(3U));
      EXPECT_EQ(built->steps()[0].variant, "");
    }
  }
  EXPECT_FALSE(constants_[0].expired());
  graph = Graph();
  for (const auto& watch : constants_) EXPECT_TRUE(watch.expired());
}

TEST_F(ChainTest, EverySessionHasAStateOfItsOwnThatStays) {
  builder_.mark_output(blocks(input()));
  const auto built = plan({plain(), chain()});
  Session first(built);
  Session second(built);
  const std::vector<float> x{1, 1, 1, 1};
  for (int count = 1; count <= 3; ++count) {
    run(first, x);
    EXPECT_EQ(ChainKernel::runs_of_last_session, count);
  }
  run(second, x);
  EXPECT_EQ(ChainKernel::runs_of_last_session, 1);
  run(first, x);
  EXPECT_EQ(ChainKernel::runs_of_last_session, 4);
}

}  // namespace
}  // namespace pipit::internal
