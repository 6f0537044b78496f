// resident_block on a GPU, as the planner makes it: against the CPU bit for bit in INT8, by norms in fp16.
#include "tests/cuda/conv/chain_graph.h"

namespace pipit::internal::test {
namespace {

using cuda::ConvChainShape;

constexpr const char* kName = "resident_block";

// All that may be added to what, from a few positions to several tiles for every worker, between a convolution that
// computes x and one that reads the result.
ConvChainShape random_shape(std::mt19937& random, bool int8, int adds) {
  ConvChainShape shape = random_block(random, int8 ? 1 : 2, adds);
  shape.images = draw(random, 1, 40);
  shape.height = draw(random, 2, 30);
  shape.width = draw(random, 0, 4) == 0 ? draw(random, 60, 130) : draw(random, 2, 60);
  return between_convolutions(std::move(shape));
}

// What the INT8 kernel handles: sums that stay small, and ReLU everywhere but in what is added.
ChainNumbers small_sums(const ConvChainShape& shape, Numbers& numbers) {
  return {40, [&](std::size_t c) {
            const int added = shape.convs[shape.convs.size() - 2].residual - 1;
            if (static_cast<int>(c) == added) return numbers.coin() ? Clamp{} : Clamp{-0.4F, 0.7F};
            return numbers.coin() ? Clamp::relu() : Clamp{0, 0.91F};
          }};
}

TEST(ResidentBlock, IsTheSpecificationInInt8) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(420);
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const ConvChainShape shape = random_shape(numbers.random, true, i % 4);
    const Graph graph = graph_of(shape, true, numbers, small_sums(shape, numbers));
    ASSERT_EQ(expect_specification(graph, kName, numbers), 1);
  }
}

TEST(ResidentBlock, AgreesInHalves) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(421);
  int blocks = 0;
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const Graph graph = graph_of(random_shape(numbers.random, false, i % 4), false, numbers);
    // Weights, x and six results are rounded, each to 2^-12 of it on average.
    blocks += expect_halves(graph, kName, 1e-3, numbers);
  }
  EXPECT_GT(blocks, 16);  // wide images leave no room beside the weights
}

// Its arithmetic is shorter than the specification's where that cannot make a difference; elsewhere it refuses.
TEST(ResidentBlock, RefusesWhatItWouldRoundOtherwise) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(422);
  const ConvChainShape shape{
      2, 9, 9, 1, {256}, {{0, -1, 256, 64, false}, {1, -1, 64, 64, true}, {2, 0, 64, 256, false}}};
  const auto blocks = [&](const ChainNumbers& how) {
    const Graph graph = graph_of(shape, true, numbers, how);
    return chains_in(*plan_for(graph, DeviceKind::cuda, Precision::fp32, kName), kName);
  };
  EXPECT_EQ(blocks({40, [](std::size_t) { return Clamp::relu(); }}), 1);
  EXPECT_EQ(blocks({127, [](std::size_t) { return Clamp::relu(); }}), 0);  // sums of 3x3 reach 2^22
  EXPECT_EQ(blocks({40, [](std::size_t) { return Clamp{}; }}), 0);
}

}  // namespace
}  // namespace pipit::internal::test
