// basic_block on a CPU, against plain loops.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <algorithm>
#include <variant>

#include "layers/cuda/conv/basic_block/kernel.cuh"
#include "layers/cuda/conv/tensor_map.h"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::BasicBlockPlan;

struct Extents {
  int images, height, width, workers;
};
// A tile and less, several workers, one image after another in a worker's range, rounds of both rings and of the
// barriers of x, rows of more than a tile and of as many as there are barriers for.
constexpr Extents kExtents[] = {{1, 7, 9, 1},   {3, 7, 9, 2},  {2, 14, 14, 3}, {1, 20, 28, 7},
                                {3, 28, 28, 1}, {2, 5, 70, 2}, {1, 1, 1, 4},   {1, 2, 440, 1}};

struct Packed {
  std::vector<std::byte> weights, constants;
};

void pack(const RandomConv& conv, const BasicBlockPlan& plan, Packed& to) {
  for (int tap = 0; tap < conv.taps; ++tap) {
    const std::size_t at = to.weights.size();
    to.weights.resize(at + static_cast<std::size_t>(plan.unit_bytes()));
    cuda::pack_unit(conv.weights(), conv.in_c, conv.taps, tap, 0, 0, true, plan.element_bytes,
                    &to.weights[at]);
  }
  append_constants(to.constants, conv, true);
}

template <typename Sum>
Outcome run_block(const Launch& how, const cuda::BasicBlockArgs& args) {
  return args.plan.adds_x ? run(cuda::run_basic_block<Sum, true>, how, args)
                          : run(cuda::run_basic_block<Sum, false>, how, args);
}

// Whether there is a plan: long rows leave no room beside weights in halves.
bool expect_block(std::mt19937& random, bool int8, bool adds, const Extents& e) {
  constexpr int kChannels = cuda::kUnitChannels;
  const cuda::ConvChainShape shape{
      e.images,    e.height,
      e.width,     int8 ? 1 : 2,
      {kChannels}, {{0, -1, kChannels, kChannels, true}, {1, adds ? 0 : -1, kChannels, kChannels, true}}};
  EXPECT_TRUE(cuda::is_basic_block(shape));
  const auto planned = cuda::plan_basic_block(shape);
  const auto* plan = std::get_if<BasicBlockPlan>(&planned);
  if (plan == nullptr) return false;
  // In INT8 both end in ReLU: the kernel is for nothing else.
  const RandomConv head(random, int8, kChannels, kChannels, 9, true),
      tail(random, int8, kChannels, kChannels, 9, true);
  Packed packed;
  pack(head, *plan, packed), pack(tail, *plan, packed);

  const Image x(random, int8, e.images, e.height, e.width, kChannels);
  Global<std::byte> in_memory(x.bytes(int8)), weights(packed.weights), constants(packed.constants);
  Global<std::byte> y(in_memory.size(), 0x5A);
  cuda::BasicBlockArgs args;
  args.plan = *plan;
  args.head = head.unit_bounds(), args.tail = tail.unit_bounds();
  args.residual_scale = int8 && adds ? 0.83F : 0;
  args.workers = std::min(e.workers, plan->tiles);
  args.least_tiles = plan->tiles / args.workers;
  args.more_tiles = plan->tiles % args.workers;
  args.grid = {cuda::Divisor(e.width * e.height), cuda::Divisor(e.width), e.height, plan->positions};
  args.x_ring = cuda::Divisor(plan->x_ring), args.ring = cuda::Divisor(plan->ring);
  args.weights = weights.data(), args.constants = constants.data();
  args.x = cuda::matrix_map(in_memory.data(), plan->row_bytes(), plan->positions, plan->row_bytes(),
                            cuda::kUnitRows);
  args.y = y.data();
  const Launch how = launch_of(random, args.workers, cuda::block_groups(plan->element_bytes) * 128 + 128,
                               plan->shared_bytes() - cuda::kBlockReserved + 1024);
  const Outcome outcome = int8 ? run_block<std::int32_t>(how, args) : run_block<float>(how, args);
  if (!expect_no_error(outcome)) return false;
  const Image inner = convolved(head, x);
  expect_values(y, convolved(tail, inner, adds ? &x : nullptr, args.residual_scale).values, int8);
  return true;
}

void expect_blocks(bool int8, unsigned test) {
  std::mt19937 random = numbers(test);
  int blocks = 0, number = 0;
  for (const Extents& e : kExtents) {
    for (const bool adds : {true, false}) {
      SCOPED_TRACE(fmt::format("case {}: adds {}, {} images of {} x {}, {} workers, seed {}", number++, adds,
                               e.images, e.height, e.width, e.workers, gpu_seed()));
      blocks += expect_block(random, int8, adds, e);
      if (::testing::Test::HasFailure()) return;
    }
  }
  // In halves rows of more than two tiles leave no room beside the weights.
  EXPECT_EQ(blocks, int8 ? number : number - 2);
}

TEST(EmulatedBasicBlock, IsTheSpecificationInInt8) {
  expect_blocks(true, 1);
}
TEST(EmulatedBasicBlock, AgreesInHalves) {
  expect_blocks(false, 2);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
