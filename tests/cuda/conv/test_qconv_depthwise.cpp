// INT8 depthwise convolutions on the GPU against the CPU's scalar specification, bit for bit.
#include "tests/cuda/conv/qconv_cases.h"

namespace pipit::internal::test {
namespace {

TEST(QConv, Depthwise) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(212);
  for (const std::int64_t channels : {2, 7, 8, 20, 32, 96}) {
    for (int i = 0; i < 4 && !HasFailure(); ++i) {
      ConvCase c = random_case(numbers, 1, 1, channels);
      c.attributes.x = kTypes[i];
      c.attributes.y.dtype = kTypes[3 - i].dtype, c.attributes.y.zero_point = kTypes[3 - i].zero_point;
      expect_conv("depthwise", c, numbers);
    }
  }
}

// Square windows of odd images, uneven padding that may be wider than the window, every type of x and y, small and
// large sums, one and many blocks.
TEST(QConv, DepthwiseQuads) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(216);
  for (int i = 0; i < 96 && !HasFailure(); ++i) {
    const std::int64_t kernel = 3 + i % 3 * 2;
    const std::int64_t channels = 4 * (i % 8 == 0 ? numbers.pick(1, 80) : numbers.pick(1, 9));
    ConvCase c = random_case(numbers, 1, 1, channels);
    Window& window = c.attributes.conv.window;
    set_window(window, kernel, 1 + i / 3 % 2, 1, 0);
    for (std::size_t axis = 0; axis < 2; ++axis) {
      window.pad_begin[axis] = numbers.pick(0, kernel + 1);
      window.pad_end[axis] = numbers.pick(0, kernel + 1);
    }
    const std::int64_t largest = i % 16 == 15 ? 70 : 19;
    c.x = Shape{numbers.pick(1, i % 6 == 5 ? 9 : 2), channels, numbers.pick(kernel, largest),
                numbers.pick(kernel, largest)};
    c.weights = Shape{channels, 1, kernel, kernel};
    fit_output_scale(c);
    c.residual = false;
    const float scale = c.attributes.y.scale;
    c.attributes.x = kTypes[numbers.pick(0, 3)];
    c.attributes.y = numbers.pick(0, 4) == 0 ? kReal : kTypes[numbers.pick(0, 3)];
    c.attributes.y.scale = scale;
    if (c.attributes.y.quantized()) maybe_follow(c, numbers);
    c.largest_bias = numbers.pick(0, 3) == 0 ? 50'000'000 : 3000;
    expect_conv("depthwise_quads", c, numbers, kLast, numbers.coin() ? Precision::fp32 : Precision::fp16);
  }
}

// What networks are made of; sums at both ends of what the bytes can reach.
TEST(QConv, DepthwiseQuadsOnLayersOfNetworks) {
  PIPIT_NEEDS_GPU();
  struct Layer {
    std::int64_t batch, kernel, stride, channels, size;
  };
  const Layer layers[] = {{1, 3, 1, 32, 112}, {2, 3, 2, 96, 112}, {2, 5, 2, 144, 56}, {2, 5, 1, 240, 28},
                          {1, 3, 1, 480, 14}, {2, 5, 1, 672, 14}, {3, 5, 2, 672, 14}, {4, 5, 1, 1152, 7},
                          {1, 7, 1, 96, 56},  {2, 7, 1, 768, 7},  {3, 7, 2, 144, 28}};
  Numbers numbers(219);
  for (const Layer& layer : layers) {
    ConvCase c;
    set_window(c.attributes.conv.window, layer.kernel, layer.stride, 1, layer.kernel / 2);
    c.attributes.conv.groups = layer.channels;
    c.x = Shape{layer.batch, layer.channels, layer.size, layer.size};
    c.weights = Shape{layer.channels, 1, layer.kernel, layer.kernel};
    c.attributes.x = c.attributes.y = kI8;
    c.attributes.weight_scales = {0.02F};
    fit_output_scale(c);
    maybe_follow(c, numbers);
    expect_conv("depthwise_quads", c, numbers);
    for (const Quantization& x : {kI8, kOdd, kOddI8}) {
      c.attributes.x = x;
      GpuCase test = exact_case();
      test.inputs = {{numbers.extreme(c.x, x), kLast},
                     {numbers.extreme(c.weights, kI8), Layout::row_major, true}};
      expect_gpu(QConv(c.attributes), "depthwise_quads", test);
    }
    if (HasFailure()) return;
  }
}

// What depthwise_quads leaves to others, which take it.
TEST(QConv, DepthwiseQuadsRefuses) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(223);
  const auto case_of = [&](std::int64_t channels, std::int64_t kernel) {
    ConvCase c = random_case(numbers, 1, 1, channels);
    set_window(c.attributes.conv.window, kernel, 1, 1, kernel / 2);
    c.x = Shape{2, channels, 9, 11};
    c.weights = Shape{channels, 1, kernel, kernel};
    c.residual = false;
    return c;
  };
  const auto refuses = [&](const ConvCase& c, const std::string& other) {
    GpuCase test = exact_case();
    test.inputs = {{numbers.quantized(c.x, c.attributes.x), kLast},
                   {numbers.integers<std::int8_t>(c.weights, -9, 9), Layout::row_major, true}};
    if (c.residual) {
      test.inputs.push_back({});
      test.inputs.push_back({numbers.quantized(output_of(c), c.attributes.residual), kLast});
    }
    const auto reason = gpu_refusal(QConv(c.attributes), "depthwise_quads", test);
    expect_conv(other, c, numbers);
    return reason.value_or("");
  };
  EXPECT_EQ(refuses(case_of(16, 3), "depthwise"), "");
  EXPECT_EQ(refuses(case_of(18, 3), "depthwise"), "18 channels; multiples of 4 are handled");
  EXPECT_EQ(refuses(case_of(16, 9), "depthwise"), "the window is 9x9; 3x3, 5x5 and 7x7 are handled");
  ConvCase c = case_of(16, 3);
  c.attributes.conv.window.dilation = {2, 2, 1};
  EXPECT_EQ(refuses(c, "depthwise"), "dilation is not handled");
  c = case_of(16, 3);
  c.attributes.conv.window.stride = {1, 2, 1};
  EXPECT_EQ(refuses(c, "depthwise"), "the strides are 1 and 2; 1 and 1, 2 and 2 are handled");
  c = case_of(16, 3);
  c.residual = true;
  EXPECT_EQ(refuses(c, "depthwise"), "a residual is not added");
  c = random_case(numbers, 1, 2, 8);  // two outputs per channel
  EXPECT_EQ(refuses(c, "direct"), "not a depthwise convolution with one output per channel");
}

}  // namespace
}  // namespace pipit::internal::test
