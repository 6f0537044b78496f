// depthwise_quads on a CPU, in INT8 and halves, against plain loops: every window, stride and width of a thread.
#include "tests/cuda/emulation/emulation.h"
// The emulator comes first: kernels use its declarations.
#include <algorithm>

#include "layers/cuda/conv/depthwise/kernel.cuh"
#include "layers/cuda/conv/depthwise/plan.h"
#include "tests/cuda/emulation/reference.h"

namespace pipit::internal::test::emulation {
namespace {

using cuda::ConvDepthwiseArgs;
using cuda::DepthwiseGeometry;
using cuda::QDepthwiseArgs;
using cuda::depthwise::Result;

// Odd extents, images smaller than the window, padding of its own at every edge.
DepthwiseGeometry random_geometry(std::mt19937& random, int window, int stride, int columns) {
  DepthwiseGeometry g;
  g.window = window, g.stride = stride, g.columns = columns;
  g.batch = draw(random, 1, 3);
  constexpr int kChannels[] = {4, 8, 12, 20, 96};
  g.channels = kChannels[draw(random, 0, 4)];
  const auto extent = [&](int& in, int& out, int& begin) {
    in = draw(random, 1, 19), begin = draw(random, 0, 3);
    const int end = std::max(draw(random, 0, 3), window - in - begin);
    out = (in + begin + end - window) / stride + 1;
  };
  extent(g.in_h, g.out_h, g.pad_h);
  extent(g.in_w, g.out_w, g.pad_w);
  g.rows = draw(random, 1, g.out_h);
  return g;
}

std::string text(const DepthwiseGeometry& g) {
  return fmt::format(
      "{0}x{0}, stride {1}, {2} images of {3}x{4}, {5} channels, padding {6} and {7}, to {8}x{9}, {10} "
      "columns and {11} rows a thread, seed {12}",
      g.window, g.stride, g.batch, g.in_h, g.in_w, g.channels, g.pad_h, g.pad_w, g.out_h, g.out_w, g.columns,
      g.rows, gpu_seed());
}

int outputs_of(const DepthwiseGeometry& g) {
  return g.batch * g.out_h * g.out_w * g.channels;
}

// What the taps of output `i` meet; padding is 0.
std::vector<float> patch_of(const Image& x, const DepthwiseGeometry& g, int i) {
  const int position = i / g.channels, row = position / g.out_w % g.out_h;
  std::vector<float> patch;
  for (int tap = 0; tap < g.window * g.window; ++tap)
    patch.push_back(x.at(position / g.out_w / g.out_h, row * g.stride - g.pad_h + tap / g.window,
                         position % g.out_w * g.stride - g.pad_w + tap % g.window, i % g.channels));
  return patch;
}

// i8 and u8 of zero point 128; small sums and others; bytes, bytes after a table, halves and floats.
void expect_int8(std::mt19937& random, const DepthwiseGeometry& g, Result result,
                 void (*kernel)(QDepthwiseArgs)) {
  const Image x(random, true, g.batch, g.in_h, g.in_w, g.channels);
  const RandomConv conv(random, true, 1, g.channels, g.window * g.window, coin(random), 127);
  std::vector<std::byte> x_bytes = x.bytes(true);
  QDepthwiseArgs args;
  static_cast<DepthwiseGeometry&>(args) = g;
  if (coin(random)) {
    args.flip = args.padding = 0x80808080U;
    for (std::byte& b : x_bytes) b ^= std::byte{0x80};
  }
  std::vector<std::uint8_t> steps;
  for (int i = 0; i < 256; ++i) steps.push_back(static_cast<std::uint8_t>(draw(random, 0, 255)));
  const Global<std::byte> in_memory(x_bytes);
  const Global<std::int32_t> weights(
      cuda::pack_depthwise(conv.bytes, static_cast<std::size_t>(g.channels), g.window)),
      bias(conv.whole_bias);
  const Global<float> multipliers(conv.multiplier);
  const Global<std::uint8_t> table(steps);
  args.x = in_memory.data(), args.weights = weights.data(), args.bias = bias.data();
  args.multipliers = multipliers.data();
  args.low = conv.bounds.low, args.high = conv.bounds.high, args.whole_bounds = conv.unit_bounds();
  args.small = coin(random);
  if (result == Result::looked_up) args.table = table.data();
  if (result == Result::real) args.stored = coin(random) ? cuda::StoredType::f16 : cuda::StoredType::f32;
  const bool halves = args.stored == cuda::StoredType::f16;
  const std::size_t size = result != Result::real ? 1 : halves ? 2 : 4;
  const int outputs = outputs_of(g);
  Global<std::byte> y(static_cast<std::size_t>(outputs) * size, 0x5A);
  args.y = y.data();
  const auto blocks =
      static_cast<int>(cuda::depthwise::blocks_for(g, cuda::depthwise::kQuad, g.columns, g.rows));
  if (!expect_no_error(run(kernel, launch_of(random, blocks, cuda::depthwise::kThreads, 0), args))) return;
  for (int i = 0; i < outputs; ++i) {
    const auto c = static_cast<std::size_t>(i % g.channels);
    const std::vector<float> patch = patch_of(x, g, i);
    int sum = conv.whole_bias[c];
    for (std::size_t tap = 0; tap < patch.size(); ++tap)
      sum += static_cast<int>(patch[tap]) * conv.bytes[c * patch.size() + tap];
    const float v = static_cast<float>(sum) * conv.multiplier[c];
    float expected = std::min(std::max(v, args.low), args.high), stored = 0;
    const std::byte* at = y.data() + static_cast<std::size_t>(i) * size;
    if (result != Result::real) {
      const auto byte = static_cast<std::uint8_t>(requantize(v, conv.bounds, 0));
      expected = result == Result::looked_up ? steps[byte] : byte;
      stored = static_cast<float>(std::to_integer<int>(*at));
    } else if (halves) {
      Half half{};
      std::memcpy(&half, at, 2);
      stored = to_float(half), expected = to_float(to_half(expected));
    } else {
      std::memcpy(&stored, at, 4);
    }
    ASSERT_EQ(stored, expected) << "value " << i << " of " << outputs << ", sum " << sum;
  }
}

// Sums are made in the order of the taps; SiLU after them or nothing.
void expect_halves(std::mt19937& random, const DepthwiseGeometry& g, int channels, bool function,
                   void (*kernel)(ConvDepthwiseArgs)) {
  const Image x(random, false, g.batch, g.in_h, g.in_w, g.channels);
  const int taps = g.window * g.window;
  const RandomConv conv(random, false, 1, g.channels, taps, coin(random));
  std::vector<float> by_tap(conv.halves.size());
  for (int i = 0; i < taps * g.channels; ++i)
    by_tap[static_cast<std::size_t>(i)] =
        to_float(conv.halves[static_cast<std::size_t>(i % g.channels * taps + i / g.channels)]);
  const Global<std::byte> in_memory(x.bytes(false));
  const Global<float> weights(by_tap), bias(conv.bias);
  Global<std::byte> y(static_cast<std::size_t>(outputs_of(g)) * 2, 0x5A);
  ConvDepthwiseArgs args;
  static_cast<DepthwiseGeometry&>(args) = g;
  args.x = in_memory.data(), args.y = y.data(), args.weights = weights.data(), args.bias = bias.data();
  args.low = conv.bounds.low, args.high = conv.bounds.high;
  if (function) args.function = {cuda::HalfGate::logistic, true, -1.442695F, 0};
  const auto blocks = static_cast<int>(cuda::depthwise::blocks_for(g, channels, g.columns, g.rows));
  if (!expect_no_error(run(kernel, launch_of(random, blocks, cuda::depthwise::kThreads, 0), args))) return;
  std::vector<float> expected;
  for (int i = 0; i < outputs_of(g); ++i) {
    const float v = output_of(conv, i % g.channels, patch_of(x, g, i), nullptr, 0);
    expected.push_back(function ? v / (1 + std::exp(-v)) : v);
  }
  expect_values(y, expected, false);
}

template <typename Expect>
void expect_shapes(unsigned test, int window, int stride, int columns, const Expect& expect) {
  std::mt19937 random = numbers(test);
  for (int i = 0; i < 24 && !testing::Test::HasFailure(); ++i) {
    const DepthwiseGeometry g = random_geometry(random, window, stride, columns);
    SCOPED_TRACE(fmt::format("case {}: {}", i, text(g)));
    expect(random, g);
  }
}

template <int Window, int Stride, int Columns, Result R>
void expect_result(unsigned test) {
  expect_shapes(test, Window, Stride, Columns, [](std::mt19937& random, const DepthwiseGeometry& g) {
    expect_int8(random, g, R, &cuda::depthwise::depthwise_quads<Window, Stride, Columns, 1, R>);
  });
}
template <int Window, int Stride, int Columns>
void expect_results(unsigned test) {
  expect_result<Window, Stride, Columns, Result::bytes>(test);
  expect_result<Window, Stride, Columns, Result::looked_up>(test + 1);
  expect_result<Window, Stride, Columns, Result::real>(test + 2);
}

template <int Window, int Stride, int Columns, int Channels, bool Function>
void expect_function(unsigned test) {
  expect_shapes(test, Window, Stride, Columns, [](std::mt19937& random, const DepthwiseGeometry& g) {
    expect_halves(random, g, Channels, Function,
                  &cuda::depthwise::depthwise_halves<__half, Window, Stride, Columns, Channels, 1, Function>);
  });
}
template <int Window, int Stride, int Columns, int Channels>
void expect_functions(unsigned test) {
  expect_function<Window, Stride, Columns, Channels, false>(test);
  expect_function<Window, Stride, Columns, Channels, true>(test + 1);
}

TEST(EmulatedDepthwise, ThreeRowsAreTheSpecification) {
  expect_results<3, 1, 7>(200);
  expect_results<3, 2, 2>(203);
}
TEST(EmulatedDepthwise, FiveRowsAreTheSpecification) {
  expect_results<5, 1, 4>(206);
  expect_results<5, 2, 3>(209);
}
TEST(EmulatedDepthwise, SevenRowsAreTheSpecification) {
  expect_results<7, 1, 2>(212);
  expect_results<7, 2, 1>(215);
}
TEST(EmulatedDepthwise, AgreesInHalves) {
  expect_functions<3, 1, 4, 4>(218);
  expect_functions<3, 2, 2, 4>(220);
  expect_functions<5, 1, 4, 2>(222);
  expect_functions<5, 2, 1, 2>(224);
  expect_functions<7, 1, 2, 2>(226);
  expect_functions<7, 2, 1, 2>(228);
}

}  // namespace
}  // namespace pipit::internal::test::emulation
