// row_chain on a GPU, as the planner makes it: against the CPU bit for bit in INT8, by norms in fp16.
#include <atomic>
#include <thread>

#include "tests/cuda/conv/chain_graph.h"

namespace pipit::internal::test {
namespace {

using cuda::ConvChainShape;

constexpr const char* kName = "row_chain";

// Rows and channels for which the GPU's blocks are used well.
ConvChainShape random_shape(std::mt19937& random, bool int8, int processors) {
  const int rows = draw(random, 0, 1) == 0 ? draw(random, 5, 40) : draw(random, 5, 15);
  int ranks = 16;
  while (rows * ranks > processors) ranks /= 2;
  ConvChainShape shape = random_chain(random, 32 * ranks, int8 ? 1 : 2);
  shape.images = rows % 2 == 0 && draw(random, 0, 1) == 0 ? 2 : 1;
  shape.height = rows / shape.images;
  shape.width = draw(random, 1, ranks > 4 ? 18 : 40);
  return shape;
}

TEST(RowChain, IsTheSpecificationInInt8) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(410);
  int chains = 0;
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const ConvChainShape shape = random_shape(numbers.random, true, processors());
    chains += expect_specification(graph_of(shape, true, numbers), kName, numbers);
  }
  EXPECT_GT(chains, 8);
}

TEST(RowChain, AgreesInHalves) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(411);
  int chains = 0;
  for (int i = 0; i < 30; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const ConvChainShape shape = random_shape(numbers.random, false, processors());
    // Each of up to 12 convolutions rounds what it computes, to 2^-12 of it on average, and passes on what it got.
    chains += expect_halves(graph_of(shape, false, numbers), kName, 2e-3, numbers);
  }
  EXPECT_GT(chains, 4);  // of half of them values leave no room for weights
}

// Blocks wait for each other: launches of several sessions may not each have half of the GPU.
TEST(RowChain, SessionsDoNotWaitForEachOther) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(412);
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
}  // namespace pipit::internal::test
