// resident_block on a CPU, against plain loops.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <algorithm>
#include <variant>

#include "layers/cuda/conv/resident_block/kernel.cuh"
#include "layers/cuda/conv/tensor_map.h"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::BlockAdds;
using cuda::BlockPlan;

struct Extents {
  int images, height, width, workers;
};
// A tile and less, several workers, one image after another in a worker's range, rows of more than a tile.
constexpr Extents kExtents[] = {{1, 7, 9, 1},   {3, 7, 9, 2},  {2, 14, 14, 3},
                                {1, 20, 28, 2}, {2, 5, 70, 2}, {1, 1, 1, 4}};

// What a block adds: nothing, x, a projection of x to its result, or its result to that.
cuda::ConvChainShape block_shape(std::mt19937& random, bool int8, int adds, const Extents& e) {
  cuda::ConvChainShape shape = random_block(random, int8 ? 1 : 2, adds);
  shape.images = e.images, shape.height = e.height, shape.width = e.width;
  return shape;
}

struct Packed {
  std::vector<std::byte> weights, constants;
};

void pack(const RandomConv& conv, bool stored, const BlockPlan& plan, Packed& to) {
  for (int output = 0; output < conv.out_c; output += cuda::kUnitChannels) {
    for (int tap = 0; tap < conv.taps; ++tap) {
      for (int channel = 0; channel < conv.in_c; channel += cuda::kUnitChannels) {
        to.weights.resize(to.weights.size() + static_cast<std::size_t>(plan.unit_bytes()));
        cuda::pack_unit(conv.weights(), conv.in_c, conv.taps, tap, channel, output, stored,
                        plan.element_bytes,
                        &to.weights[to.weights.size() - static_cast<std::size_t>(plan.unit_bytes())]);
      }
    }
  }
  append_constants(to.constants, conv, stored);
}

template <typename Sum>
Outcome run_block(const Launch& how, const cuda::ResidentBlockArgs& args) {
  switch (args.plan.adds) {
    case BlockAdds::x:
      return run(cuda::run_resident_block<Sum, BlockAdds::x>, how, args);
    case BlockAdds::projection:
      return run(cuda::run_resident_block<Sum, BlockAdds::projection>, how, args);
    case BlockAdds::tail:
      return run(cuda::run_resident_block<Sum, BlockAdds::tail>, how, args);
    default:
      return run(cuda::run_resident_block<Sum, BlockAdds::nothing>, how, args);
  }
}

// Whether there is a plan: wide rows leave no room beside many weights.
bool expect_block(std::mt19937& random, bool int8, int adds, const Extents& e) {
  const cuda::ConvChainShape shape = block_shape(random, int8, adds, e);
  const auto roles = cuda::block_roles(shape, 64);
  if (!roles) {
    ADD_FAILURE() << "the chain is no block";
    return false;
  }
  const auto planned = cuda::plan_block(shape, *roles);
  const auto* plan = std::get_if<BlockPlan>(&planned);
  if (plan == nullptr) return false;
  const int in_c = shape.inputs[0], out_c = shape.convs.back().out_c;
  const bool projects = adds >= 2;
  // In INT8 all but what is added first ends in ReLU: the kernel is for nothing else.
  const RandomConv head(random, int8, in_c, 64, 1, true), window(random, int8, 64, 64, 9, true),
      tail(random, int8, 64, out_c, 1, adds != 3), projection(random, int8, in_c, out_c, 1, adds == 3);
  Packed packed;
  pack(head, true, *plan, packed), pack(window, false, *plan, packed), pack(tail, true, *plan, packed);
  if (projects) pack(projection, true, *plan, packed);

  const Image x(random, int8, e.images, e.height, e.width, in_c);
  Global<std::byte> in_memory(x.bytes(int8)), weights(packed.weights), constants(packed.constants);
  Global<std::byte> y(x.values.size() / static_cast<std::size_t>(in_c) * out_c * (int8 ? 1 : 2), 0x5A);
  cuda::ResidentBlockArgs args;
  args.plan = *plan;
  args.in_chunks = plan->in_chunks();
  args.head = head.unit_bounds(), args.window = window.unit_bounds(), args.tail = tail.unit_bounds();
  if (projects) args.projection = projection.unit_bounds();
  args.residual_scale = int8 && adds > 0 ? 0.83F : 0;
  args.workers = std::min(e.workers, plan->tiles);
  args.least_tiles = plan->tiles / args.workers;
  args.more_tiles = plan->tiles % args.workers;
  args.grid = {cuda::Divisor(e.width * e.height), cuda::Divisor(e.width), e.height, plan->positions};
  args.ring = cuda::Divisor(plan->ring);
  args.weights = weights.data(), args.constants = constants.data();
  args.x = cuda::matrix_map(in_memory.data(), std::int64_t{plan->in_units} * plan->row_bytes(),
                            plan->positions, cuda::kBlockChunkBytes, cuda::kUnitRows);
  args.residual = in_memory.data();
  args.y = y.data();
  const Launch how = launch_of(random, args.workers, cuda::block_groups(plan->element_bytes) * 128 + 128,
                               plan->shared_bytes() - cuda::kBlockReserved + 1024);
  const Outcome outcome = int8 ? run_block<std::int32_t>(how, args) : run_block<float>(how, args);
  if (!expect_no_error(outcome)) return false;

  const Image inner = convolved(window, convolved(head, x));
  const float scale = args.residual_scale;
  if (adds < 2) {
    expect_values(y, convolved(tail, inner, adds == 1 ? &x : nullptr, scale).values, int8);
  } else if (adds == 2) {
    const Image projected = convolved(projection, x);
    expect_values(y, convolved(tail, inner, &projected, scale).values, int8);
  } else {
    const Image last = convolved(tail, inner);
    expect_values(y, convolved(projection, x, &last, scale).values, int8);
  }
  return true;
}

void expect_blocks(bool int8, unsigned test) {
  std::mt19937 random = numbers(test);
  int blocks = 0, number = 0;
  for (const Extents& e : kExtents) {
    for (int adds = 0; adds < 4; ++adds, ++number) {
      SCOPED_TRACE(fmt::format("case {}: adds {}, {} images of {} x {}, {} workers, seed {}", number, adds,
                               e.images, e.height, e.width, e.workers, gpu_seed()));
      blocks += expect_block(random, int8, adds, e);
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(blocks, number / 2);
}

TEST(EmulatedResidentBlock, IsTheSpecificationInInt8) {
  expect_blocks(true, 1);
}
TEST(EmulatedResidentBlock, AgreesInHalves) {
  expect_blocks(false, 2);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
