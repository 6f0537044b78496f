// narrow_gemm on a CPU, against plain loops.
#include "tests/cuda/emulation/emulation.h"
// What is emulated comes first: kernels want its words.
#include <set>

#include "layers/cuda/quantized/qconv_narrow_kernel.cuh"
#include "tests/cuda/emulation/reference.h"

namespace pipit::test::emulation {
namespace {

using cuda::NarrowEnd;

constexpr float kResidualScale = 0.83F;

template <int Steps>
auto* kernel_of(NarrowEnd end) {
  if (end == NarrowEnd::added) return cuda::narrow_gemm<Steps, NarrowEnd::added>;
  return end == NarrowEnd::bytes ? cuda::narrow_gemm<Steps, NarrowEnd::bytes>
                                 : cuda::narrow_gemm<Steps, NarrowEnd::looked_up>;
}
auto* kernel_of(int steps, NarrowEnd end) {
  if (steps <= 2) return steps == 1 ? kernel_of<1>(end) : kernel_of<2>(end);
  return steps == 3 ? kernel_of<3>(end) : kernel_of<6>(end);
}

void expect_narrow(std::mt19937& random, const cuda::NarrowShape& shape, int positions, NarrowEnd end) {
  const RandomConv conv(random, true, shape.channels, shape.outputs, 1, coin(random));
  const Image x(random, true, 1, 1, positions, shape.channels),
      added(random, true, 1, 1, positions, shape.outputs);
  Image expected = convolved(conv, x, end == NarrowEnd::added ? &added : nullptr, kResidualScale);
  std::vector<std::int32_t> bias = conv.whole_bias;
  for (auto& b : bias) b += cuda::kMagicBits;
  const Global<std::byte> in_x(x.bytes(true)), in_added(added.bytes(true)),
      packed(cuda::pack_narrow(shape, conv.bytes, bias, conv.multiplier));
  Global<std::uint8_t> table(256);
  for (int i = 0; i < 256; ++i) table.data()[i] = static_cast<std::uint8_t>(draw(random, 0, 255));
  if (end == NarrowEnd::looked_up) {
    for (float& v : expected.values)
      v = static_cast<std::int8_t>(table.data()[static_cast<std::uint8_t>(static_cast<std::int8_t>(v))]);
  }
  Global<std::byte> y(expected.values.size(), 0x5A);
  cuda::NarrowArgs args;
  args.shape = shape, args.positions = positions, args.packed_bytes = shape.shared_bytes();
  args.x = reinterpret_cast<const std::int8_t*>(in_x.data());
  args.packed = packed.data();
  if (end == NarrowEnd::looked_up) args.table = table.data();
  if (end == NarrowEnd::added) args.residual = reinterpret_cast<const std::int8_t*>(in_added.data());
  args.y = reinterpret_cast<std::int8_t*>(y.data());
  args.residual_scale = kResidualScale;
  args.bounds = conv.unit_bounds();
  args.relu = conv.bounds.low == 0;
  const Launch how = launch_of(random, draw(random, 1, 3), cuda::kNarrowThreads, args.packed_bytes);
  if (expect_no_error(run(kernel_of(shape.steps(), end), how, args))) expect_values(y, expected.values, true);
}

// Every kernel: depths that fill products or not, rows of y that 16 bytes divide or not, last tiles of a row.
TEST(EmulatedNarrowGemm, IsTheSpecification) {
  std::mt19937 random = numbers(95);
  std::set<std::pair<int, NarrowEnd>> kernels;
  std::set<int> together;  // pairs of columns
  for (int i = 0; i < 90 && !HasFailure(); ++i) {
    const cuda::NarrowShape shape{8 * (i % 2 == 0 ? draw(random, 1, 12) : draw(random, 1, 24)),
                                  8 * draw(random, 1, 22)};
    if (shape.shared_bytes() > cuda::kNarrowMostShared) continue;
    const auto end = static_cast<NarrowEnd>(i % 3);
    const int positions = coin(random) ? draw(random, 1, 33) : draw(random, 34, 600);
    SCOPED_TRACE(fmt::format("case {}: {} channels, {} outputs, {} positions, end {}, seed {}", i,
                             shape.channels, shape.outputs, positions, i % 3, gpu_seed()));
    expect_narrow(random, shape, positions, end);
    kernels.insert({shape.steps(), end});
    for (int column = 0; column < shape.outputs; column += shape.pairs_from(column) * 16)
      together.insert(shape.pairs_from(column));
  }
  EXPECT_EQ(kernels.size(), 12U);
  EXPECT_EQ(together, (std::set<int>{1, 2, 4}));
}

}  // namespace
}  // namespace pipit::test::emulation
