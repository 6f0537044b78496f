// basic_block on a GPU, as the planner makes it: against the CPU bit for bit in INT8, by norms in fp16.
#include "tests/cuda/conv/chain_graph.h"

namespace pipit::internal::test {
namespace {

using cuda::ConvChainShape;

constexpr const char* kName = "basic_block";

// `count` blocks one after the other, each of which adds what it reads or nothing.
ConvChainShape blocks(int count, bool adds) {
  ConvChainShape shape{1, 1, 1, 2, {64}, {}};
  for (int x = 0; x < 2 * count; x += 2) {
    shape.convs.push_back({x, -1, 64, 64, true});
    shape.convs.push_back({x + 1, adds ? x : -1, 64, 64, true});
  }
  return shape;
}

// From a few positions to several tiles for every worker, between a convolution that computes x and one that reads the
// result.
ConvChainShape random_shape(std::mt19937& random, bool int8, bool adds) {
  ConvChainShape shape = blocks(1, adds);
  shape.element_bytes = int8 ? 1 : 2;
  shape.images = draw(random, 1, 40);
  shape.height = draw(random, 2, 30);
  shape.width = draw(random, 0, 4) == 0 ? draw(random, 60, 127) : draw(random, 2, 60);
  return between_convolutions(std::move(shape));
}

// What the INT8 kernel handles: sums that stay small, and ReLU.
ChainNumbers small_sums(Numbers& numbers) {
  return {40, [&](std::size_t) { return numbers.coin() ? Clamp::relu() : Clamp{0, 0.91F}; }};
}

TEST(BasicBlock, IsTheSpecificationInInt8) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(430);
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const Graph graph =
        graph_of(random_shape(numbers.random, true, i % 4 != 0), true, numbers, small_sums(numbers));
    ASSERT_EQ(expect_specification(graph, kName, numbers), 1);
  }
}

TEST(BasicBlock, AgreesInHalves) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(431);
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const Graph graph = graph_of(random_shape(numbers.random, false, i % 4 != 0), false, numbers);
    // Weights, x and five results are rounded, each to 2^-12 of it on average.
    EXPECT_EQ(expect_halves(graph, kName, 1e-3, numbers), 1);
  }
}

// As in ResNet-18: four convolutions are two chains.
TEST(BasicBlock, TakesOneBlockBehindAnother) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(432);
  ConvChainShape shape = blocks(2, true);
  shape.images = 3, shape.height = shape.width = 56;
  shape = between_convolutions(std::move(shape));
  EXPECT_EQ(expect_halves(graph_of(shape, false, numbers), kName, 1e-3, numbers), 2);
  shape.element_bytes = 1;
  EXPECT_EQ(expect_specification(graph_of(shape, true, numbers, small_sums(numbers)), kName, numbers), 2);
}

// Its arithmetic is shorter than the specification's where that cannot make a difference; elsewhere it refuses.
TEST(BasicBlock, RefusesWhatItWouldRoundOtherwise) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(433);
  ConvChainShape shape = blocks(1, true);
  shape.element_bytes = 1, shape.images = 2, shape.height = shape.width = 9;
  const auto chains = [&](const ChainNumbers& how) {
    return chains_in(*plan_for(graph_of(shape, true, numbers, how), DeviceKind::cuda, Precision::fp32, kName),
                     kName);
  };
  EXPECT_EQ(chains({40, [](std::size_t) { return Clamp::relu(); }}), 1);
  EXPECT_EQ(chains({127, [](std::size_t) { return Clamp::relu(); }}), 0);  // sums reach 2^22
  EXPECT_EQ(chains({40, [](std::size_t) { return Clamp{}; }}), 0);
}

}  // namespace
}  // namespace pipit::internal::test
