// image_chain on a GPU, as the planner makes it: against the CPU bit for bit.
#include <variant>

#include "layers/cuda/conv/image_chain/plan.h"
#include "tests/cuda/chain/chain_graph.h"

namespace pipit::test {
namespace {

using cuda::ConvChainShape;

constexpr const char* kName = "image_chain";

// From one image to several for every cluster, of one to eight ranks, between a convolution that computes x and one
// that reads the result.
ConvChainShape random_shape(std::mt19937& random, bool many) {
  const int images = many ? draw(random, 40, 300) : draw(random, 1, 40), most = many ? 15 : 24;
  const int height = draw(random, 3, most), width = draw(random, 3, most);
  return residual_blocks(images, height, width, 256 * draw(random, 1, 4), draw(random, 1, 3));
}

// Small weights, whose sums are floats as they are, and large ones, whose sums are converted.
TEST(ImageChain, IsTheSpecification) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(530);
  int taken = 0;
  for (int i = 0; i < 16; ++i) {
    const ConvChainShape shape = random_shape(numbers.random, i % 4 == 3);
    SCOPED_TRACE(fmt::format("case {}: {} channels, {} convolutions, {} images of {} x {}, seed {}", i,
                             shape.inputs[0], shape.convs.size(), shape.images, shape.height, shape.width,
                             gpu_seed()));
    const bool fits = std::holds_alternative<cuda::ImageChainPlan>(
        cuda::plan_image_chain(shape, [](const cuda::ImageChainPlan&) { return 1; }));
    const ChainNumbers how{i % 4 < 2 ? 13 : 100, [&](std::size_t) {
                             return numbers.coin() ? Clamp::relu() : Clamp{0, 0.91F};
                           }};
    const Graph graph = graph_of(between_convolutions(shape), true, numbers, how);
    const int chains = expect_specification(graph, kName, numbers);
    EXPECT_EQ(chains, fits ? 1 : 0);
    taken += chains;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(taken, 4);
}

// Sums of the 3x3 that are beyond 2^22, for which floats have steps of more than one where they begin with kMagicBits:
// random signs never come near.
TEST(ImageChain, SumsThatNeedAConversion) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(533);
  const ChainNumbers how{56, [](std::size_t) { return Clamp::relu(); }, 56};
  for (const int images : {1, 100}) {
    const Graph graph = graph_of(residual_blocks(images, 13, 13, 256, 1), true, numbers, how);
    EXPECT_EQ(expect_specification(graph, kName, numbers), 1);
  }
}

// The 14x14 stage of ResNet-50, as it is divided at batch 32 and 128.
TEST(ImageChain, StagesOfResNet) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(531);
  for (const int images : {32, 128}) {
    const ConvChainShape shape = residual_blocks(images, 14, 14, 1024, 2);
    const ChainNumbers how{25, [](std::size_t) { return Clamp::relu(); }};
    EXPECT_EQ(expect_specification(graph_of(shape, true, numbers, how), kName, numbers), 1);
  }
}

TEST(ImageChain, RefusesWhatItWouldRoundOtherwise) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(532);
  const ConvChainShape shape = residual_blocks(2, 9, 9, 256, 1);
  const auto blocks = [&](const ChainNumbers& how) {
    const Graph graph = graph_of(shape, true, numbers, how);
    return chains_in(*plan_for(graph, DeviceKind::cuda, Precision::fp32, kName), kName);
  };
  EXPECT_EQ(blocks({100, [](std::size_t) { return Clamp::relu(); }}), 1);
  EXPECT_EQ(blocks({40, [](std::size_t) { return Clamp{}; }}), 0);
}

}  // namespace
}  // namespace pipit::test
