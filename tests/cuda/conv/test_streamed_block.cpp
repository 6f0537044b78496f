// streamed_block on a GPU, as the planner makes it: against the CPU bit for bit.
#include "tests/cuda/conv/chain_graph.h"

namespace pipit::internal::test {
namespace {

using cuda::ConvChainShape;

constexpr const char* kName = "streamed_block";

// From a few positions to several iterations for every worker, between a convolution that computes x and one that reads
// the result.
ConvChainShape random_shape(std::mt19937& random, int adds) {
  ConvChainShape shape = random_block(random, 1, adds, 128);
  while (shape.inputs[0] + shape.convs.back().out_c < 384) shape = random_block(random, 1, adds, 128);
  shape.images = draw(random, 1, 60);
  shape.height = draw(random, 2, 30);
  shape.width = draw(random, 0, 4) == 0 ? draw(random, 60, 127) : draw(random, 2, 60);
  return between_convolutions(std::move(shape));
}

// Small weights, whose sums are floats as they are, and large ones, whose sums are converted.
TEST(StreamedBlock, IsTheSpecification) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(520);
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE(fmt::format("case {}, seed {}", i, gpu_seed()));
    const ConvChainShape shape = random_shape(numbers.random, i % 2);
    const ChainNumbers how{i % 4 < 2 ? 25 : 100, [&](std::size_t) {
                             return numbers.coin() ? Clamp::relu() : Clamp{0, 0.91F};
                           }};
    const Graph graph = graph_of(shape, true, numbers, how);
    ASSERT_EQ(expect_specification(graph, kName, numbers), 1);
  }
}

TEST(StreamedBlock, RefusesWhatItWouldRoundOtherwise) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(521);
  const ConvChainShape shape{
      2, 9, 9, 1, {512}, {{0, -1, 512, 128, false}, {1, -1, 128, 128, true}, {2, 0, 128, 512, false}}};
  const auto blocks = [&](const ChainNumbers& how) {
    const Graph graph = graph_of(shape, true, numbers, how);
    return chains_in(*plan_for(graph, DeviceKind::cuda, Precision::fp32, kName), kName);
  };
  EXPECT_EQ(blocks({127, [](std::size_t) { return Clamp::relu(); }}), 1);
  EXPECT_EQ(blocks({40, [](std::size_t) { return Clamp{}; }}), 0);
}

}  // namespace
}  // namespace pipit::internal::test
