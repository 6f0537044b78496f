// streamed_block on a CPU, against plain loops, bit for bit.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <variant>

#include "layers/cuda/conv/streamed_block/kernel.cuh"
#include "layers/cuda/conv/tensor_map.h"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

struct Extents {
  int in_c, out_c, images, height, width, processors;
};
constexpr Extents kExtents[] = {{256, 128, 1, 7, 9, 1},   {512, 256, 3, 14, 14, 2}, {256, 256, 2, 28, 28, 3},
                                {384, 512, 1, 20, 28, 1}, {512, 128, 2, 5, 70, 2},  {256, 512, 1, 6, 127, 2}};

void expect_block(std::mt19937& random, bool adds, bool small, const Extents& e) {
  const int out_c = adds ? e.in_c : e.out_c;
  const cuda::ConvChainShape shape{
      e.images,
      e.height,
      e.width,
      1,
      {e.in_c},
      {{0, -1, e.in_c, 128, false}, {1, -1, 128, 128, true}, {2, adds ? 0 : -1, 128, out_c, false}}};
  const auto roles = cuda::block_roles(shape, 128);
  ASSERT_TRUE(roles);
  const auto planned = cuda::plan_streamed_block(shape, *roles, e.processors);
  const auto* plan = std::get_if<cuda::StreamedPlan>(&planned);
  ASSERT_NE(plan, nullptr) << std::get<std::string>(planned);
  // Small weights, whose sums are floats as they are, and large ones, whose sums are converted.
  const int largest = small ? 25 : 127;
  const RandomConv head(random, true, e.in_c, 128, 1, true, largest),
      window(random, true, 128, 128, 9, true, largest), tail(random, true, 128, out_c, 1, true, largest);
  std::vector<std::byte> of_outputs;
  append_constants(of_outputs, head, true);
  append_constants(of_outputs, window, false);
  append_constants(of_outputs, tail, true);

  const Image x(random, true, e.images, e.height, e.width, e.in_c);
  Global<std::byte> in_memory(x.bytes(true)), constants(of_outputs);
  Global<std::byte> weights(
      cuda::pack_streamed_weights(*plan, head.weights(), window.weights(), tail.weights()));
  Global<std::byte> y(x.values.size() / static_cast<std::size_t>(e.in_c) * out_c, 0x5A);
  cuda::StreamedBlockArgs args;
  args.plan = *plan;
  args.head = head.unit_bounds(), args.window = window.unit_bounds(), args.tail = tail.unit_bounds();
  args.residual_scale = adds ? 0.83F : 0;
  args.small_sums = small;
  args.grid = {cuda::Divisor(e.width * e.height), cuda::Divisor(e.width), e.height, plan->positions};
  args.weights = weights.data(), args.constants = constants.data(), args.y = y.data();
  args.x = cuda::matrix_map(in_memory.data(), e.in_c, plan->positions, cuda::kStreamedInner, cuda::kUnitRows);
  const Launch how = launch_of(random, plan->workers, cuda::streamed_block::kThreads,
                               plan->shared_bytes() - cuda::kBlockReserved + 1024);
  auto* const kernel =
      adds ? (small ? cuda::run_streamed_block<true, true> : cuda::run_streamed_block<true, false>)
           : (small ? cuda::run_streamed_block<false, true> : cuda::run_streamed_block<false, false>);
  if (!expect_no_error(run(kernel, how, args))) return;
  const Image inner = convolved(window, convolved(head, x));
  expect_values(y, convolved(tail, inner, adds ? &x : nullptr, args.residual_scale).values, true);
}

TEST(EmulatedStreamedBlock, IsTheSpecification) {
  std::mt19937 random = numbers(11);
  for (const Extents& e : kExtents) {
    for (int way = 0; way < 4; ++way) {
      SCOPED_TRACE(fmt::format(
          "adds {}, small sums {}, {} to {}, {} images of {} x {}, {} processors, seed {}", way % 2, way / 2,
          e.in_c, e.out_c, e.images, e.height, e.width, e.processors, gpu_seed()));
      expect_block(random, way % 2 == 1, way / 2 == 1, e);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace pipit::internal::test::emulation
