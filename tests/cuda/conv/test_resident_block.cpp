// resident_block on a GPU, in its three forms, as the planner makes it: against the CPU, bit for bit in INT8, by norms
// in fp16.
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

// How many chains of the shape in INT8 the kernel takes.
int blocks_in_int8(const ConvChainShape& shape, Numbers& numbers, const ChainNumbers& how) {
  const Graph graph = graph_of(shape, true, numbers, how);
  return chains_in(*plan_for(graph, DeviceKind::cuda, Precision::fp32, kName), kName);
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
  EXPECT_EQ(blocks_in_int8(shape, numbers, {40, [](std::size_t) { return Clamp::relu(); }}), 1);
  EXPECT_EQ(blocks_in_int8(shape, numbers, {127, [](std::size_t) { return Clamp::relu(); }}),
            0);  // sums of 3x3 reach 2^22
  EXPECT_EQ(blocks_in_int8(shape, numbers, {40, [](std::size_t) { return Clamp{}; }}), 0);
}

// Two 3x3 convolutions.

// `count` blocks one after the other, each of which adds what it reads or nothing.
ConvChainShape basic_blocks(int count, bool adds) {
  ConvChainShape shape{1, 1, 1, 2, {64}, {}};
  for (int x = 0; x < 2 * count; x += 2) {
    shape.convs.push_back({x, -1, 64, 64, true});
    shape.convs.push_back({x + 1, adds ? x : -1, 64, 64, true});
  }
  return shape;
}

// From a few positions to several tiles for every worker, between a convolution that computes x and one that reads the
// result.
ConvChainShape random_basic(std::mt19937& random, bool int8, bool adds) {
  ConvChainShape shape = basic_blocks(1, adds);
  shape.element_bytes = int8 ? 1 : 2;
  shape.images = draw(random, 1, 40);
  shape.height = draw(random, 2, 30);
  shape.width = draw(random, 0, 4) == 0 ? draw(random, 60, 127) : draw(random, 2, 60);
  return between_convolutions(std::move(shape));
}

// What the INT8 kernel handles: sums that stay small, and ReLU.
ChainNumbers small_basic_sums(Numbers& numbers) {
  return {40, [&](std::size_t) { return numbers.coin() ? Clamp::relu() : Clamp{0, 0.91F}; }};
}

TEST(ResidentBlock, IsTheSpecificationOfTwoWindowsInInt8) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(430);
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const Graph graph =
        graph_of(random_basic(numbers.random, true, i % 4 != 0), true, numbers, small_basic_sums(numbers));
    ASSERT_EQ(expect_specification(graph, kName, numbers), 1);
  }
}

TEST(ResidentBlock, AgreesOfTwoWindowsInHalves) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(431);
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const Graph graph = graph_of(random_basic(numbers.random, false, i % 4 != 0), false, numbers);
    // Weights, x and five results are rounded, each to 2^-12 of it on average.
    EXPECT_EQ(expect_halves(graph, kName, 1e-3, numbers), 1);
  }
}

// As in ResNet-18: four convolutions are two chains.
TEST(ResidentBlock, TakesOneBlockAfterAnother) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(432);
  ConvChainShape shape = basic_blocks(2, true);
  shape.images = 3, shape.height = shape.width = 56;
  shape = between_convolutions(std::move(shape));
  EXPECT_EQ(expect_halves(graph_of(shape, false, numbers), kName, 1e-3, numbers), 2);
  shape.element_bytes = 1;
  EXPECT_EQ(expect_specification(graph_of(shape, true, numbers, small_basic_sums(numbers)), kName, numbers),
            2);
}

// Its arithmetic is shorter than the specification's where that cannot make a difference; elsewhere it refuses.
TEST(ResidentBlock, RefusesTwoWindowsThatItWouldRoundOtherwise) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(433);
  ConvChainShape shape = basic_blocks(1, true);
  shape.element_bytes = 1, shape.images = 2, shape.height = shape.width = 9;
  const auto chains = [&](const ChainNumbers& how) {
    return chains_in(*plan_for(graph_of(shape, true, numbers, how), DeviceKind::cuda, Precision::fp32, kName),
                     kName);
  };
  EXPECT_EQ(chains({40, [](std::size_t) { return Clamp::relu(); }}), 1);
  EXPECT_EQ(chains({127, [](std::size_t) { return Clamp::relu(); }}), 0);  // sums reach 2^22
  EXPECT_EQ(chains({40, [](std::size_t) { return Clamp{}; }}), 0);
}

// 128 channels inside.

// From a few positions to several iterations for every worker, between a convolution that computes x and one that reads
// the result.
ConvChainShape random_streamed(std::mt19937& random, int adds) {
  ConvChainShape shape = random_block(random, 1, adds, 128);
  while (shape.inputs[0] + shape.convs.back().out_c < 384) shape = random_block(random, 1, adds, 128);
  shape.images = draw(random, 1, 60);
  shape.height = draw(random, 2, 30);
  shape.width = draw(random, 0, 4) == 0 ? draw(random, 60, 127) : draw(random, 2, 60);
  return between_convolutions(std::move(shape));
}

// Small weights, whose sums are floats as they are, and large ones, whose sums are converted.
TEST(ResidentBlock, IsTheSpecificationWithStreamedWeights) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(520);
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const ConvChainShape shape = random_streamed(numbers.random, i % 2);
    const ChainNumbers how{i % 4 < 2 ? 25 : 100, [&](std::size_t) {
                             return numbers.coin() ? Clamp::relu() : Clamp{0, 0.91F};
                           }};
    const Graph graph = graph_of(shape, true, numbers, how);
    ASSERT_EQ(expect_specification(graph, kName, numbers), 1);
  }
}

TEST(ResidentBlock, RefusesStreamedWeightsThatItWouldRoundOtherwise) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(521);
  const ConvChainShape shape{
      2, 9, 9, 1, {512}, {{0, -1, 512, 128, false}, {1, -1, 128, 128, true}, {2, 0, 128, 512, false}}};
  EXPECT_EQ(blocks_in_int8(shape, numbers, {127, [](std::size_t) { return Clamp::relu(); }}), 1);
  EXPECT_EQ(blocks_in_int8(shape, numbers, {40, [](std::size_t) { return Clamp{}; }}), 0);
}

}  // namespace
}  // namespace pipit::internal::test
