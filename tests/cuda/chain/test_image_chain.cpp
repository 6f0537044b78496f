// image_chain on a GPU, as the planner makes it: against the CPU bit for bit.
#include <variant>

#include "layers/cuda/chain/image_chain_plan.h"
#include "tests/cuda/chain/chain_graph.h"

namespace pipit::test {
namespace {

using cuda::ConvChainShape;

constexpr const char* kName = "image_chain";

ConvChainShape residual_blocks(int channels, int count) {
  ConvChainShape shape;
  shape.element_bytes = 1;
  shape.inputs = {channels};
  for (int x = 0; x < 3 * count; x += 3) {
    shape.convs.push_back({x, -1, channels, 256, false});
    shape.convs.push_back({x + 1, -1, 256, 256, true});
    shape.convs.push_back({x + 2, x, 256, channels, false});
  }
  return shape;
}

// From one image to several for every cluster, of one to eight ranks, between a convolution that computes x and one
// that reads the result.
ConvChainShape random_shape(std::mt19937& random, bool many) {
  ConvChainShape shape = residual_blocks(256 * draw(random, 1, 4), draw(random, 1, 3));
  shape.images = many ? draw(random, 40, 300) : draw(random, 1, 40);
  shape.height = draw(random, 3, many ? 15 : 24);
  shape.width = draw(random, 3, many ? 15 : 24);
  return shape;
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
    const auto planned = cuda::plan_image_chain(shape, processors());
    const ChainNumbers how{i % 4 < 2 ? 13 : 100, [&](std::size_t) {
                             return numbers.coin() ? Clamp::relu() : Clamp{0, 0.91F};
                           }};
    const Graph graph = graph_of(between_convolutions(shape), true, numbers, how);
    const int chains = expect_specification(graph, kName, numbers);
    EXPECT_EQ(chains, std::holds_alternative<cuda::ImageChainPlan>(planned) ? 1 : 0);
    taken += chains;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(taken, 4);
}

// The 14x14 stage of ResNet-50, as it is divided at batch 32 and 128.
TEST(ImageChain, StagesOfResNet) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(531);
  for (const int images : {32, 128}) {
    ConvChainShape shape = residual_blocks(1024, 2);
    shape.images = images, shape.height = shape.width = 14;
    const ChainNumbers how{25, [](std::size_t) { return Clamp::relu(); }};
    EXPECT_EQ(expect_specification(graph_of(shape, true, numbers, how), kName, numbers), 1);
  }
}

TEST(ImageChain, RefusesWhatItWouldRoundOtherwise) {
  PIPIT_NEEDS_HOPPER();
  Numbers numbers(532);
  ConvChainShape shape = residual_blocks(256, 1);
  shape.images = 2, shape.height = shape.width = 9;
  const auto blocks = [&](const ChainNumbers& how) {
    const Graph graph = graph_of(shape, true, numbers, how);
    return chains_in(*plan_for(graph, DeviceKind::cuda, Precision::fp32, kName), kName);
  };
  EXPECT_EQ(blocks({100, [](std::size_t) { return Clamp::relu(); }}), 1);
  EXPECT_EQ(blocks({40, [](std::size_t) { return Clamp{}; }}), 0);
}

}  // namespace
}  // namespace pipit::test
