// spread_chain: what its plans promise, and on a GPU, as the planner makes it, against the CPU: bit for bit in INT8, by
// norms in fp16.
#include <atomic>
#include <thread>
#include <variant>

#include "layers/cuda/chain/spread_chain_plan.h"
#include "tests/cuda/chain/chain_graph.h"

namespace pipit::test {
namespace {

using cuda::ConvChainShape;

constexpr const char* kName = "spread_chain";

std::vector<cuda::SpreadChainConv> convs_of(const ConvChainShape& s) {
  std::vector<cuda::SpreadChainConv> convs;
  for (const cuda::ChainConv& c : s.convs) {
    cuda::SpreadChainConv conv;
    cuda::ConvShape& shape = conv.shape;
    shape.batch = s.images, shape.in_h = shape.out_h = s.height, shape.in_w = shape.out_w = s.width;
    shape.in_c = c.in_c * s.element_bytes / 2, shape.out_c = c.out_c;
    if (c.window) shape.kernel_h = shape.kernel_w = 3, shape.pad_h = shape.pad_w = 1;
    shape.int8 = s.element_bytes == 1;
    conv.x = c.x, conv.residual = c.residual, conv.output_bytes = s.element_bytes;
    convs.push_back(conv);
  }
  return convs;
}

ConvChainShape random_shape(std::mt19937& random, bool int8) {
  ConvChainShape shape = random_chain(random, 16 * draw(random, 1, 4), int8 ? 1 : 2);
  shape.images = draw(random, 1, 2);
  shape.height = draw(random, 1, 20), shape.width = draw(random, 1, 20);
  return shape;
}

TEST(SpreadChainPlan, EverythingHasAPlaceOfItsOwn) {
  std::mt19937 random(gpu_seed() + 520);
  int planned = 0;
  for (int i = 0; i < 200; ++i) {
    const std::vector<cuda::SpreadChainConv> convs = convs_of(random_shape(random, i % 2 == 0));
    const auto result = cuda::plan_spread_chain(convs, 2, 128);
    const auto* plan = std::get_if<cuda::SpreadChainPlan>(&result);
    if (plan == nullptr) continue;
    ++planned;
    ASSERT_EQ(plan->values.size(), convs.size() - 1);
    EXPECT_LE(plan->shared_bytes, cuda::kSpreadChainShared);
    for (std::size_t c = 0; c + 1 < convs.size(); ++c) {
      const std::int64_t end = c + 2 < convs.size() ? plan->values[c + 1] : plan->values_bytes;
      EXPECT_LE(plan->values[c] + convs[c].shape.rows() * convs[c].shape.out_c * convs[c].output_bytes, end);
      EXPECT_EQ(plan->values[c] % 16, 0);
    }
    for (std::size_t c = 0; c < convs.size(); ++c) {
      const cuda::SpreadPlan& p = plan->plans[c];
      const std::int64_t tiles = ceil_div(convs[c].shape.rows(), cuda::kSpreadRows) *
                                 ceil_div(convs[c].shape.out_c, cuda::kSpreadColumns);
      EXPECT_TRUE(p.slices == 1 || tiles * p.slices <= 128) << "blocks have a shared tile and another one";
      EXPECT_LE(p.steps * cuda::kSpreadStepWeights, plan->weights_bytes);
      EXPECT_LE(p.pixels * p.pitch, plan->zeros - plan->x);
      EXPECT_LE(p.steps * 8, plan->places_bytes);
    }
  }
  EXPECT_GT(planned, 150);
}

TEST(SpreadChain, IsTheSpecificationInInt8) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(521);
  int chains = 0;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const ConvChainShape shape = random_shape(numbers.random, true);
    chains += expect_specification(graph_of(shape, true, numbers), kName, numbers);
  }
  EXPECT_GT(chains, 30);
}

TEST(SpreadChain, AgreesInHalves) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(522);
  int chains = 0;
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const ConvChainShape shape = random_shape(numbers.random, false);
    // Each of up to 12 convolutions rounds what it computes, to 2^-12 of it on average, and passes on what it got.
    chains += expect_halves(graph_of(shape, false, numbers), kName, 2e-3, numbers);
  }
  EXPECT_GT(chains, 30);
}

// Several rounds of tiles, all blocks, few rows.
TEST(SpreadChain, Large) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(523);
  for (const int size : {56, 28, 14, 7}) {
    ConvChainShape shape{1, size, size, 1, {64 * 56 / size}, {}};
    const int wide = 256 * 56 / size, narrow = 64 * 56 / size;
    shape.convs = {{0, -1, narrow, narrow, true}, {1, -1, narrow, wide, false}, {2, -1, wide, narrow, false},
                   {3, -1, narrow, narrow, true}, {4, 2, narrow, wide, false}};
    EXPECT_EQ(expect_specification(graph_of(shape, true, numbers), kName, numbers), 1);
    shape.element_bytes = 2;
    EXPECT_EQ(expect_halves(graph_of(shape, false, numbers), kName, 2e-3, numbers), 1);
  }
}

// Blocks wait for each other: launches of several sessions may not each have half of the GPU.
TEST(SpreadChain, SessionsDoNotWaitForEachOther) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(524);
  ConvChainShape shape{1, 14, 14, 1, {256}, {}};
  for (int x = 0; x < 4; ++x) shape.convs.push_back({x, -1, 256, 256, x % 2 == 1});
  const Graph graph = graph_of(shape, true, numbers);
  const auto plan = plan_for(graph, DeviceKind::cuda, Precision::fp32, kName);
  ASSERT_EQ(chains_in(*plan, kName), 1);
  const std::vector<Tensor> inputs = random_inputs(graph, numbers.random);
  Session alone(plan_for(graph, DeviceKind::cuda, Precision::fp32));
  const std::vector<std::byte> expected = bytes_of(results(alone, inputs)[0]);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Session session(plan);
      for (int run = 0; run < 200; ++run) wrong += bytes_of(results(session, inputs)[0]) != expected ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace pipit::test
