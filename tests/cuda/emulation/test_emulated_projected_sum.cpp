// projected_sum on a CPU, against plain loops.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <memory>
#include <variant>

#include "layers/cuda/conv/projected_sum/kernel.cuh"
#include "layers/cuda/conv/tensor_map.h"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

// Sizes of both sources' channels in chunks of 128 bytes, and their strides.
struct Extents {
  int chunks[2], stride[2];
  int out_c, images, height, width, processors;
};

Extents random_extents(std::mt19937& random) {
  const int first = draw(random, 1, 5), second = draw(random, 1, 6 - first);
  return {{first, second},          {draw(random, 1, 2), draw(random, 1, 2)},
          128 * draw(random, 1, 5), draw(random, 1, 3),
          draw(random, 1, 14),      draw(random, 1, 30),
          draw(random, 1, 20)};
}

// One of the images that are summed, and its pixels at every stride-th place.
struct Source {
  cuda::SumSource args;
  Image picked;
  std::unique_ptr<Global<std::byte>> memory;

  Source(std::mt19937& random, bool int8, const Extents& e, int in_c, int stride)
      : picked(e.images, e.height, e.width, in_c) {
    cuda::ConvShape c;
    c.batch = e.images, c.in_c = in_c, c.out_h = e.height, c.out_w = e.width, c.out_c = e.out_c;
    c.stride_h = c.stride_w = stride;
    // Rows and columns after the last that is read.
    c.in_h = (e.height - 1) * stride + draw(random, 1, stride),
    c.in_w = (e.width - 1) * stride + draw(random, 1, stride);
    const Image whole(random, int8, e.images, c.in_h, c.in_w, in_c);
    memory = std::make_unique<Global<std::byte>>(whole.bytes(int8));
    std::size_t to = 0;
    for (int n = 0; n < e.images; ++n) {
      for (int p = 0; p < e.height * e.width; ++p) {
        for (int k = 0; k < in_c; ++k)
          picked.values[to++] = whole.at(n, p / e.width * stride, p % e.width * stride, k);
      }
    }
    const int bytes = in_c * (int8 ? 1 : 2);
    args.shape = c, args.plain = stride == 1;
    args.positions = cuda::Divisor(e.height * e.width), args.out_width = cuda::Divisor(e.width);
    args.map =
        stride == 1
            ? cuda::matrix_map(memory->data(), bytes, c.rows(), cuda::kBlockChunkBytes, cuda::kUnitRows)
            : cuda::patch_map(memory->data(), c, bytes, cuda::kBlockChunkBytes, cuda::kUnitRows);
  }
};

void expect_sum(std::mt19937& random, bool int8, bool small, const Extents& e) {
  const int bytes = int8 ? 1 : 2, unit = cuda::kBlockChunkBytes / bytes;
  cuda::ProjectedSumShape shape;
  shape.element_bytes = bytes, shape.positions = std::int64_t{e.images} * e.height * e.width;
  shape.in_c[0] = e.chunks[0] * unit, shape.in_c[1] = e.chunks[1] * unit, shape.out_c = e.out_c;
  const auto planned = cuda::plan_projected_sum(shape, e.processors);
  const auto* plan = std::get_if<cuda::ProjectedSumPlan>(&planned);
  ASSERT_NE(plan, nullptr) << std::get<std::string>(planned);
  const int largest = small ? 25 : 127;
  RandomConv added(random, int8, shape.in_c[0], e.out_c, 1, false, largest);
  RandomConv other(random, int8, shape.in_c[1], e.out_c, 1, true, largest);
  // Halves are added as sums, before anything bounds them, and so are their biases.
  if (!int8) {
    added.bounds = {-kInfinity, kInfinity};
    for (std::size_t i = 0; i < added.bias.size(); ++i) other.bias[i] += added.bias[i], added.bias[i] = 0;
  }
  std::vector<std::byte> of_outputs;
  const int first_of_slice = plan->stages * 2 * cuda::kUnitChannels;
  for (int slice = 0; slice < plan->slices; ++slice) {
    for (const RandomConv* c : {&added, &other}) {
      if (!int8 && c == &added) continue;
      for (int first = slice * first_of_slice; first < (slice + 1) * first_of_slice;
           first += cuda::kUnitChannels) {
        for (const std::byte* values : c->constants()) {
          of_outputs.resize(of_outputs.size() + 256);
          cuda::pack_unit_constants(values + first * 4, true, bytes, &of_outputs[of_outputs.size() - 256]);
        }
      }
    }
  }
  const Source sources[2] = {{random, int8, e, shape.in_c[0], e.stride[0]},
                             {random, int8, e, shape.in_c[1], e.stride[1]}};
  Global<std::byte> weights(cuda::pack_projected_sum(*plan, added.weights(), other.weights())),
      constants(of_outputs);
  Global<std::byte> y(static_cast<std::size_t>(shape.positions) * e.out_c * bytes, 0x5A);
  cuda::ProjectedSumArgs args;
  args.plan = *plan;
  args.sources[0] = sources[0].args, args.sources[1] = sources[1].args;
  args.added = added.unit_bounds(), args.bounds = other.unit_bounds();
  args.added_scale = 0.83F;
  args.small_sums = small;
  args.least_tiles = plan->tiles / plan->workers, args.more_tiles = plan->tiles % plan->workers;
  args.weights = weights.data(), args.constants = constants.data(), args.y = y.data();
  const Launch how = launch_of(random, plan->workers * plan->slices, cuda::projected_sum::kThreads,
                               plan->shared_bytes() - cuda::kBlockReserved + 1024);
  auto* const kernel = !int8   ? cuda::run_projected_sum<float, true>
                       : small ? cuda::run_projected_sum<std::int32_t, true>
                               : cuda::run_projected_sum<std::int32_t, false>;
  if (!expect_no_error(run(kernel, how, args))) return;
  const Image first = convolved(added, sources[0].picked);
  expect_values(y, convolved(other, sources[1].picked, &first, args.added_scale).values, int8);
}

void expect_sums(unsigned test, bool int8, bool small) {
  std::mt19937 random = numbers(test);
  for (int i = 0; i < 16; ++i) {
    const Extents e = random_extents(random);
    SCOPED_TRACE(fmt::format(
        "case {}: {} and {} chunks, strides {} and {}, to {}, {} images of {} x {}, {} processors, seed {}",
        i, e.chunks[0], e.chunks[1], e.stride[0], e.stride[1], e.out_c, e.images, e.height, e.width,
        e.processors, gpu_seed()));
    expect_sum(random, int8, small, e);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(EmulatedProjectedSum, IsTheSpecificationInInt8) {
  expect_sums(21, true, false);
}
TEST(EmulatedProjectedSum, IsTheSpecificationOfSmallSums) {
  expect_sums(22, true, true);
}
TEST(EmulatedProjectedSum, AgreesInHalves) {
  expect_sums(23, false, true);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
