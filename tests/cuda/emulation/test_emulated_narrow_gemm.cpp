// narrow_gemm on a CPU, against plain loops.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <algorithm>
#include <set>
#include <span>

#include "layers/cuda/conv/narrow_gemm/kernel.cuh"
#include "tests/cuda/emulation/conv_reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::NarrowEnd;
using cuda::NarrowFrom;

constexpr float kResidualScale = 0.83F;

template <int Steps>
auto* kernel_of(NarrowEnd end) {
  constexpr NarrowFrom kFrom = NarrowFrom::bytes;
  if (end == NarrowEnd::added) return cuda::narrow_gemm<Steps, kFrom, NarrowEnd::added>;
  return end == NarrowEnd::bytes ? cuda::narrow_gemm<Steps, kFrom, NarrowEnd::bytes>
                                 : cuda::narrow_gemm<Steps, kFrom, NarrowEnd::looked_up>;
}
auto* kernel_of(int steps, NarrowEnd end) {
  if (steps <= 2) return steps == 1 ? kernel_of<1>(end) : kernel_of<2>(end);
  return steps == 3 ? kernel_of<3>(end) : kernel_of<6>(end);
}

// Bytes through a table, or as they are.
class Table {
 public:
  Table(std::mt19937& random, bool looks_up) : bytes_(256), looks_up_(looks_up) {
    for (int i = 0; i < 256; ++i) bytes_.data()[i] = static_cast<std::uint8_t>(draw(random, 0, 255));
  }
  const std::uint8_t* data() const { return looks_up_ ? bytes_.data() : nullptr; }
  void look_up(Image& values) const {
    if (!looks_up_) return;
    for (float& v : values.values)
      v = static_cast<std::int8_t>(bytes_.data()[static_cast<std::uint8_t>(static_cast<std::int8_t>(v))]);
  }

 private:
  Global<std::uint8_t> bytes_;
  bool looks_up_;
};

template <typename Kernel>
void expect_kernel(std::mt19937& random, Kernel* kernel, cuda::NarrowArgs args, const RandomConv& conv,
                   std::span<const std::int8_t> weights, const Image& expected) {
  std::vector<std::int32_t> bias = conv.whole_bias;
  for (auto& b : bias) b += cuda::kMagicBits;
  const Global<std::byte> packed(cuda::pack_narrow(args.shape, weights, bias, conv.multiplier));
  Global<std::byte> y(expected.values.size(), 0x5A);
  args.positions = static_cast<int>(expected.values.size()) / args.shape.outputs;
  args.packed = packed.data(), args.packed_bytes = args.shape.shared_bytes();
  args.y = reinterpret_cast<std::int8_t*>(y.data());
  args.bounds = conv.unit_bounds();
  args.relu = conv.bounds.low == 0;
  const Launch how = launch_of(random, draw(random, 1, 3), cuda::kNarrowThreads, args.packed_bytes);
  if (expect_no_error(run(kernel, how, args))) expect_values(y, expected.values, true);
}

void expect_rows(std::mt19937& random, const cuda::NarrowShape& shape, int positions, NarrowEnd end) {
  const RandomConv conv(random, true, shape.channels, shape.outputs, 1, coin(random));
  const Image x(random, true, 1, 1, positions, shape.channels),
      added(random, true, 1, 1, positions, shape.outputs);
  Image expected = convolved(conv, x, end == NarrowEnd::added ? &added : nullptr, kResidualScale);
  const Table table(random, end == NarrowEnd::looked_up);
  table.look_up(expected);
  const Global<std::byte> in_x(x.bytes(true)), in_added(added.bytes(true));
  cuda::NarrowArgs args;
  args.shape = shape, args.adds = end == NarrowEnd::added;
  args.x = reinterpret_cast<const std::int8_t*>(in_x.data());
  args.table = table.data();
  if (args.adds) args.residual = reinterpret_cast<const std::int8_t*>(in_added.data());
  args.residual_scale = kResidualScale;
  expect_kernel(random, kernel_of(shape.steps(), end), args, conv, conv.bytes, expected);
}

// in_c: channels.
cuda::ConvShape random_window(std::mt19937& random) {
  cuda::ConvShape s;
  s.int8 = true;
  s.batch = draw(random, 1, 3), s.in_c = draw(random, 1, cuda::kNarrowWindowChannels);
  s.out_c = 8 * draw(random, 1, 10);
  const auto extent = [&](int& in, int& out, int& kernel, int& stride, int& pad) {
    kernel = draw(random, 1, cuda::kNarrowWindow), stride = draw(random, 1, 4), pad = draw(random, 0, 3);
    const int after = draw(random, 0, 3);
    in = std::max(draw(random, 1, 20), kernel - pad - after);
    out = (in + pad + after - kernel) / stride + 1;
  };
  extent(s.in_h, s.out_h, s.kernel_h, s.stride_h, s.pad_h);
  extent(s.in_w, s.out_w, s.kernel_w, s.stride_w, s.pad_w);
  return s;
}

void expect_window(std::mt19937& random, const cuda::ConvShape& s, bool channels_last, bool looks_up) {
  const RandomConv conv(random, true, s.in_c, s.out_c, s.kernel_h * s.kernel_w, coin(random));
  constexpr float kScale = 0.0123F;
  cuda::NarrowArgs args;
  args.shape = {cuda::kNarrowWindowBytes, s.out_c};
  args.from = NarrowFrom::window;
  cuda::NarrowWindow& w = args.window;
  w.channels = s.in_c, w.in_h = s.in_h, w.in_w = s.in_w;
  w.stride_h = s.stride_h, w.stride_w = s.stride_w, w.pad_h = s.pad_h, w.pad_w = s.pad_w;
  w.x_image = s.in_c * s.in_h * s.in_w, w.x_channel = channels_last ? 1 : s.in_h * s.in_w;
  w.x_row = channels_last ? s.in_w * s.in_c : s.in_w, w.x_pixel = channels_last ? s.in_c : 1;
  w.positions = cuda::Divisor(s.out_h * s.out_w), w.out_width = cuda::Divisor(s.out_w);
  w.scale = cuda::ImageScale(kScale);
  Image x(s.batch, s.in_h, s.in_w, s.in_c);
  Global<float> in_memory(x.values.size());
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const int channel = static_cast<int>(i) % s.in_c, pixel = static_cast<int>(i) / s.in_c;
    const int image = pixel / (s.in_h * s.in_w), rest = pixel - image * (s.in_h * s.in_w);
    float& v = in_memory.data()[image * w.x_image + rest / s.in_w * w.x_row + rest % s.in_w * w.x_pixel +
                                channel * w.x_channel];
    v = real(random, -2, 2);
    x.values[i] = static_cast<float>(requantize(v / kScale, {-127, 127}, 0));
  }
  w.x = in_memory.data();
  Image expected = convolved(conv, s, x, nullptr, 0);
  const Table table(random, looks_up);
  table.look_up(expected);
  args.table = table.data();
  auto* const kernel = looks_up ? cuda::narrow_gemm<2, NarrowFrom::window, NarrowEnd::looked_up>
                                : cuda::narrow_gemm<2, NarrowFrom::window, NarrowEnd::bytes>;
  expect_kernel(
      random, kernel, args, conv,
      cuda::narrow_window_weights(by_input(conv, conv.bytes), s.out_c, s.in_c, s.kernel_h, s.kernel_w),
      expected);
}

// Every kernel: depths that fill products or not, rows of y that 16 bytes divide or not, last tiles of a row.
TEST(EmulatedNarrowGemm, IsTheSpecification) {
  std::mt19937 random = numbers(95);
  std::set<std::pair<int, NarrowEnd>> kernels;
  std::set<int> together;  // pairs of columns
  for (int i = 0; i < 90 && !HasFailure(); ++i) {
    const cuda::NarrowShape shape{8 * (i % 2 == 0 ? draw(random, 1, 12) : draw(random, 1, 24)),
                                  8 * draw(random, 1, 22)};
    if (shape.shared_bytes() > cuda::kNarrowMaxShared) continue;
    const auto end = static_cast<NarrowEnd>(i % 3);
    const int positions = coin(random) ? draw(random, 1, 33) : draw(random, 34, 600);
    SCOPED_TRACE(fmt::format("case {}: {} channels, {} outputs, {} positions, end {}, seed {}", i,
                             shape.channels, shape.outputs, positions, i % 3, gpu_seed()));
    expect_rows(random, shape, positions, end);
    kernels.insert({shape.steps(), end});
    for (int column = 0; column < shape.outputs; column += shape.pairs_from(column) * 16)
      together.insert(shape.pairs_from(column));
  }
  EXPECT_EQ(kernels.size(), 12U);
  EXPECT_EQ(together, (std::set<int>{1, 2, 4}));
}

// Windows of an image in both layouts, padding on every side, strides that leave pixels out.
TEST(EmulatedNarrowGemm, ReadsImages) {
  std::mt19937 random = numbers(96);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const cuda::ConvShape s = random_window(random);
    SCOPED_TRACE(fmt::format(
        "case {}: {} images of {} x {} x {}, {} outputs, window {} x {}, strides {} x {}, padding {} x {}, "
        "seed {}",
        i, s.batch, s.in_c, s.in_h, s.in_w, s.out_c, s.kernel_h, s.kernel_w, s.stride_h, s.stride_w, s.pad_h,
        s.pad_w, gpu_seed()));
    expect_window(random, s, i % 2 == 0, i % 3 == 0);
  }
}

}  // namespace
}  // namespace pipit::internal::test::emulation
