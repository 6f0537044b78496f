// image_chain on a CPU, against plain loops, bit for bit: clusters whose blocks send each other rows, and weights that
// come to all of them.
#include "tests/cuda/emulation/emulation.h"
// What is emulated comes first: kernels want its words.
#include <algorithm>
#include <variant>

#include "layers/cuda/conv/image_chain/kernel.cuh"
#include "layers/cuda/conv/tensor_map.h"
#include "tests/cuda/emulation/reference.h"

namespace pipit::test::emulation {
namespace {

using cuda::ImageChainPlan;

struct Extents {
  int channels, blocks, images, height, width, clusters;
};

cuda::ImageChainBounds bounds_of(const RandomConv& head, const RandomConv& window, const RandomConv& tail,
                                 float scale) {
  return {head.unit_bounds(), window.unit_bounds(), tail.unit_bounds(), scale};
}

void expect_chain(std::mt19937& random, const Extents& e, bool small, int ranks, int tiles) {
  const auto planned = cuda::plan_image_chain(
      residual_blocks(e.images, e.height, e.width, e.channels, e.blocks),
      [&](const ImageChainPlan& plan) { return plan.ranks == ranks ? e.clusters : 0; });
  const auto* plan = std::get_if<ImageChainPlan>(&planned);
  ASSERT_NE(plan, nullptr) << std::get<std::string>(planned);
  EXPECT_EQ(plan->ranks, ranks);
  EXPECT_EQ(plan->tiles, tiles);
  // Small weights, whose sums are floats as they are, and large ones, whose sums are converted.
  const int largest = small ? 13 : 100;
  const Image x(random, true, e.images, e.height, e.width, e.channels);
  Image values = x;
  std::vector<std::byte> weights, constants;
  cuda::ImageChainArgs args;
  args.plan = *plan;
  for (int b = 0; b < e.blocks; ++b) {
    const RandomConv head(random, true, e.channels, 256, 1, true, largest),
        window(random, true, 256, 256, 9, true, largest),
        tail(random, true, 256, e.channels, 1, true, largest);
    cuda::append_image_weights(*plan, head.weights(), window.weights(), tail.weights(), weights);
    for (const RandomConv* conv : {&head, &window, &tail}) append_constants(constants, *conv, true);
    const float scale = real(random, 0.3F, 0.9F);
    args.bounds[b] = bounds_of(head, window, tail, scale);
    values = convolved(tail, convolved(window, convolved(head, values)), &values, scale);
  }
  if (small) cuda::begin_with_magic(constants);
  Global<std::byte> in_memory(x.bytes(true)), weights_there(weights), constants_there(constants),
      y(x.values.size(), 0x5A);
  args.small_sums = small;
  args.image = cuda::Divisor(e.width * e.height), args.row = cuda::Divisor(e.width);
  args.clusters = e.clusters;
  args.weights = weights_there.data(), args.constants = constants_there.data(), args.y = y.data();
  args.x = cuda::matrix_map(in_memory.data(), e.channels, std::int64_t{e.images} * e.height * e.width,
                            cuda::kImageStageDepth, plan->positions());
  Launch how = launch_of(random, e.clusters * plan->ranks, cuda::image_chain::kThreads,
                         plan->shared_bytes() - cuda::kBlockReserved + 1024);
  how.cluster = static_cast<unsigned>(plan->ranks);
  auto* const kernel = plan->tiles == 1
                           ? (small ? cuda::run_image_chain<1, true> : cuda::run_image_chain<1, false>)
                           : (small ? cuda::run_image_chain<2, true> : cuda::run_image_chain<2, false>);
  if (!expect_no_error(run(kernel, how, args))) return;
  expect_values(y, values.values, true);
}

void expect_chains(unsigned test, const Extents& e, int ranks, int tiles) {
  std::mt19937 random = numbers(test);
  for (const bool small : {true, false}) {
    SCOPED_TRACE(fmt::format("small sums {}, {} channels, {} blocks, {} images of {} x {}, seed {}", small,
                             e.channels, e.blocks, e.images, e.height, e.width, gpu_seed()));
    expect_chain(random, e, small, ranks, tiles);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(EmulatedImageChain, OneRankHasAnImage) {
  expect_chains(61, {512, 2, 3, 7, 7, 2}, 1, 1);
}
TEST(EmulatedImageChain, TwoRanksWithTwoTiles) {
  expect_chains(62, {256, 3, 2, 9, 20, 1}, 2, 2);
}
TEST(EmulatedImageChain, FourRanks) {
  expect_chains(63, {256, 2, 2, 14, 14, 1}, 4, 1);
}
TEST(EmulatedImageChain, EightRanksWithOneRowEach) {
  expect_chains(65, {256, 2, 1, 8, 64, 1}, 8, 1);
}
TEST(EmulatedImageChain, OneRowOfTwoTiles) {
  expect_chains(66, {256, 2, 2, 1, 128, 1}, 1, 2);
}
TEST(EmulatedImageChain, ManyChannels) {
  expect_chains(64, {1024, 1, 1, 5, 6, 1}, 1, 1);
}

}  // namespace
}  // namespace pipit::test::emulation
