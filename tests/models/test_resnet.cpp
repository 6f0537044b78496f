// Whole models through the engine: rewrites, memory, determinism, allocations.
#include <gmock/gmock.h>

#include <thread>

#include "layers/passes/pipeline.h"
#include "layers/registry.h"
#include "models/model.h"
#include "models/resnet.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/run_graph.h"

namespace pipit::internal {
namespace {

std::shared_ptr<const ExecutionPlan> plan_of(const Graph& graph, int threads,
                                             const std::string& kernel = {}) {
  PlanOptions options;
  options.threads = threads;
  options.prefer_kernels = {{kernel}};
  return ExecutionPlan::build(optimize(graph), default_registry(), options);
}

TEST(Resnet, HasThePublishedSizes) {
  struct Expected {
    ResnetDepth depth;
    std::int64_t parameters, macs;
    std::size_t convolutions;
  };
  // torchvision: 11,689,512 and 25,557,032 parameters, of which batch-norm's scale and bias fold into biases of
  // the convolutions (one value per channel less); 1.814 and 4.089 GMAC.
  for (const Expected& e : {Expected{ResnetDepth::resnet18, 11'689'512 - 4800, 1'814'073'344, 20},
                            Expected{ResnetDepth::resnet50, 25'557'032 - 26560, 4'089'184'256, 53}}) {
    const Graph graph = optimize(build_resnet(e.depth, 1));
    std::int64_t parameters = 0;
    std::int64_t macs = 0;
    std::size_t convolutions = 0;
    for (const Value& v : graph.values()) parameters += v.is_constant() ? v.desc.elements() : 0;
    for (const Node& node : graph.nodes()) {
      macs += node.layer->work(graph.input_descs(node), graph.output_descs(node)).macs;
      convolutions += node.layer->type() == "Conv" ? 1 : 0;
    }
    EXPECT_EQ(parameters, e.parameters);
    EXPECT_EQ(macs, e.macs);
    EXPECT_EQ(convolutions, e.convolutions);
    // Convolutions, two pools, the classifier, and a layout view before it: nothing else is left.
    EXPECT_EQ(graph.nodes().size(), e.convolutions + 5);
  }
}

TEST(Resnet, ArenaOfResnet50IsTheLargestLiveSet) {
  const Graph graph = build_resnet(ResnetDepth::resnet50, 1);
  const auto fast = plan_of(graph, 2);
  EXPECT_LE(static_cast<double>(fast->arena_bytes()), 1.15 * static_cast<double>(fast->peak_live_bytes()));

  // Without scratch (the reference kernels need none) the packing is known exactly: it is the bound itself.
  const auto plan = plan_of(graph, 1, "reference");
  EXPECT_EQ(plan->arena_bytes(), plan->peak_live_bytes());
  // It is held by a block of stage 1 at its last convolution: the residual and the output (256x56x56 each) and
  // the branch (64x56x56).
  constexpr std::size_t kBlock = 4UL * 256 * 56 * 56;
  constexpr std::size_t kBranch = 4UL * 64 * 56 * 56;
  EXPECT_EQ(plan->arena_bytes(), 2 * kBlock + kBranch);
  std::vector<std::size_t> offsets;
  for (std::size_t s = 0; s < 12; ++s) offsets.push_back(plan->steps()[s].outputs[0].offset);
  // Stem, pool, then three blocks of three convolutions and, in the first, the projection. Outputs of blocks take
  // turns at 0 and kBlock; what lives inside a block lies where the block's output is not.
  EXPECT_THAT(offsets, testing::ElementsAre(0, 2 * kBlock,         // stem, pool
                                            0, kBlock, 0, kBlock,  // with the projection
                                            0, 2 * kBlock, 0,      //
                                            kBlock, 2 * kBlock, kBlock));
}

std::vector<float> run_once(const std::shared_ptr<const ExecutionPlan>& plan,
                            const std::vector<Tensor>& inputs) {
  Session session(plan);
  std::vector<ConstTensorView> views;
  for (const Tensor& t : inputs) views.push_back(t.view());
  const ConstTensorView out = session.run(views)[0];
  return {out.as<float>(), out.as<float>() + out.desc.elements()};
}

TEST(ShippedModel, LoadsWithItsMetadata) {
  const Model model = load_model("resnet20-cifar10", {});
  EXPECT_THAT(model.labels, testing::ElementsAre("airplane", "automobile", "bird", "cat", "deer", "dog",
                                                 "frog", "horse", "ship", "truck"));
  ASSERT_TRUE(model.preprocess.has_value());
  EXPECT_EQ(model.preprocess->crop, 32);
  EXPECT_FALSE(model.fixed_batch);
}

TEST(WholeModels, SameBitsForAnyThreadCount) {
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  for (const auto& [name, batch] : {std::pair{"resnet20-cifar10", 3}, std::pair{"resnet18", 1}}) {
    OnnxOptions options;
    options.batch = batch;
    const Model model = load_model(name, options);
    const std::vector<Tensor> inputs = test::random_inputs(model.graph, random);
    const std::vector<float> one = run_once(plan_of(model.graph, 1), inputs);
    for (const int threads : {2, 3, 4, 5}) {
      EXPECT_EQ(run_once(plan_of(model.graph, threads), inputs), one)
          << name << ", " << threads << " threads";
    }
  }
}

TEST(ShippedModel, FastKernelsAgreeWithTheReference) {
  const Model model = load_model("resnet20-cifar10", {});
  const unsigned seed = test::test_seed();
  SCOPED_TRACE(testing::Message() << "PIPIT_TEST_SEED=" << seed);
  std::mt19937 random(seed);
  const std::vector<Tensor> inputs = test::random_inputs(model.graph, random);
  const std::vector<float> exact = run_once(plan_of(model.graph, 1, "reference"), inputs);
  const std::vector<float> fast = run_once(plan_of(model.graph, 2), inputs);
  // 21 layers, each within 1e-5 of its reference.
  EXPECT_LE(test::relative_error(fast, exact), 21e-5);
}

TEST(ShippedModel, SteadyStateAllocatesNothing) {
  if (!test::AllocationCounter::available()) GTEST_SKIP() << "malloc belongs to a sanitizer";
  for (const std::string name : {"resnet20-cifar10", "resnet18"}) {
    const Model model = load_model(name, {});
    std::mt19937 random(1);
    const std::vector<Tensor> inputs = test::random_inputs(model.graph, random);
    const ConstTensorView view = inputs[0].view();
    Session session(plan_of(model.graph, 2));
    session.run({&view, 1});
    long allocations = -1;
    {
      const test::AllocationCounter counter;
      session.run({&view, 1});
      allocations = counter.count();
    }
    EXPECT_EQ(allocations, 0) << name;
  }
}

TEST(ShippedModel, TwoSessionsOfOnePlanInTwoThreads) {
  const Model model = load_model("resnet20-cifar10", {});
  const auto plan = plan_of(model.graph, 2);
  std::mt19937 random(test::test_seed());
  const std::vector<Tensor> a = test::random_inputs(model.graph, random);
  const std::vector<Tensor> b = test::random_inputs(model.graph, random);
  const std::vector<float> expected_a = run_once(plan, a);
  const std::vector<float> expected_b = run_once(plan, b);
  ASSERT_NE(expected_a, expected_b);
  std::vector<float> got_a;
  std::thread other([&] {
    for (int i = 0; i < 5; ++i) got_a = run_once(plan, a);
  });
  std::vector<float> got_b;
  for (int i = 0; i < 5; ++i) got_b = run_once(plan, b);
  other.join();
  EXPECT_EQ(got_a, expected_a);
  EXPECT_EQ(got_b, expected_b);
}

TEST(LoadModel, NamesTheBuiltInsWhenThereIsNoFile) {
  EXPECT_THAT([] { load_model("no-such-model", {}); },
              testing::ThrowsMessage<Error>(testing::AllOf(
                  testing::HasSubstr("no-such-model: there is no such file"),
                  testing::HasSubstr("resnet20-cifar10, resnet18, resnet50, efficientnet-lite0"))));
}

}  // namespace
}  // namespace pipit::internal
