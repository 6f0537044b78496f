// Random convolutions for the tests of the GPU's kernels in fp32 and fp16.
#pragma once

#include <algorithm>
#include <array>
#include <random>

#include "layers/cuda/conv/conv_tile.h"
#include "layers/ops/conv.h"
#include "tests/cuda/conformance.h"

namespace pipit::internal::test {

struct Geometry {
  std::int64_t batch = 1, channels = 8, height = 9, width = 9, outputs = 8, groups = 1;
  Window window;
  bool bias = true;
  bool residual = false;
  Clamp activation;
};

inline Geometry geometry(std::int64_t batch, std::int64_t channels, std::int64_t size, std::int64_t outputs,
                         std::int64_t kernel, std::int64_t stride, std::int64_t pad) {
  Geometry g;
  g.batch = batch, g.channels = channels, g.height = g.width = size, g.outputs = outputs;
  g.window.kernel = {kernel, kernel, 1}, g.window.stride = {stride, stride, 1};
  g.window.pad_begin = g.window.pad_end = {pad, pad, 0};
  return g;
}

inline Geometry random_geometry(std::mt19937& random) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Geometry g;
  g.batch = pick(1, 3), g.height = pick(1, 17), g.width = pick(1, 17);
  g.channels = 8 * pick(1, 6), g.outputs = pick(0, 1) == 1 ? 8 * pick(1, 18) : pick(1, 70);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t extent = i == 0 ? g.height : g.width;
    Window& w = g.window;
    w.kernel[i] = pick(1, 5), w.stride[i] = pick(1, 3), w.dilation[i] = pick(1, 2);
    w.pad_begin[i] = pick(0, 3), w.pad_end[i] = pick(0, 3);
    // Windows larger than the image are welcome as long as the padding makes room for one.
    w.pad_end[i] +=
        std::max<std::int64_t>(0, w.span(static_cast<int>(i)) - extent - w.pad_begin[i] - w.pad_end[i]);
  }
  g.bias = pick(0, 3) != 0;
  g.residual = pick(0, 1) == 1;
  if (pick(0, 1) == 1) g.activation = pick(0, 1) == 1 ? Clamp::relu() : Clamp{-0.5F, 0.7F};
  return g;
}

inline Shape weight_shape(const Geometry& g) {
  return {g.outputs, g.channels / g.groups, g.window.kernel[0], g.window.kernel[1]};
}

inline GpuCase make_case(const Geometry& g, Precision precision, std::mt19937& random,
                         Layout input_layout = Layout::channels_last) {
  const Shape x{g.batch, g.channels, g.height, g.width};
  GpuCase test;
  test.precision = precision;
  test.output_layout = Layout::channels_last;
  test.inputs.push_back({shared_random(x, random), input_layout});
  test.inputs.push_back({shared_random(weight_shape(g), random), Layout::row_major, true});
  if (g.bias || g.residual) test.inputs.push_back({});
  if (g.bias) test.inputs[2] = {shared_random(Shape{g.outputs}, random), Layout::row_major, true};
  if (g.residual) {
    test.inputs.push_back(
        {shared_random(window_output_shape(g.window, x, g.outputs), random), Layout::channels_last});
  }
  return test;
}

inline void expect_conv(const std::string& candidate, const Geometry& g, Precision precision,
                        std::mt19937& random, Layout input_layout = Layout::channels_last) {
  const Conv layer(ConvAttributes{g.window, g.groups, g.activation});
  expect_gpu(layer, candidate, make_case(g, precision, random, input_layout));
}

/// As the implicit-GEMM kernels see it in fp16.
inline cuda::ConvShape gemm_shape(const Geometry& g) {
  const Shape y = window_output_shape(g.window, Shape{g.batch, g.channels, g.height, g.width}, g.outputs);
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  cuda::ConvShape s;
  s.batch = narrow(g.batch), s.in_h = narrow(g.height), s.in_w = narrow(g.width), s.in_c = narrow(g.channels);
  s.out_h = narrow(y[2]), s.out_w = narrow(y[3]), s.out_c = narrow(g.outputs);
  s.kernel_h = narrow(g.window.kernel[0]), s.kernel_w = narrow(g.window.kernel[1]);
  s.stride_h = narrow(g.window.stride[0]), s.stride_w = narrow(g.window.stride[1]);
  s.dilation_h = narrow(g.window.dilation[0]), s.dilation_w = narrow(g.window.dilation[1]);
  s.pad_h = narrow(g.window.pad_begin[0]), s.pad_w = narrow(g.window.pad_begin[1]);
  return s;
}

inline void expect_refused(const std::optional<std::string>& reason, const std::string& part) {
  ASSERT_TRUE(reason.has_value()) << "accepted; expected a refusal with '" << part << "'";
  EXPECT_NE(reason->find(part), std::string::npos) << *reason;
}

}  // namespace pipit::internal::test
