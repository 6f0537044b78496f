// INT8 with scales that are found at run time, on the GPU against the CPU reference, bit for bit.
#include "layers/ops/dynamic_int8.h"
#include "tests/cuda/conv/conv_cases.h"
#include "tests/cuda/quantized_cases.h"

namespace pipit::internal::test {
namespace {

DynamicQuantizeAttributes to_i8(bool per_sample) {
  return {.per_sample = per_sample, .type = DType::i8};
}

TEST(DynamicInt8, QuantizesSamples) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(0);
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const Shape shapes[] = {
        {numbers.pick(1, 40), numbers.pick(1, 3000)},
        {numbers.pick(1, 5), 8 * numbers.pick(1, 9), numbers.pick(1, 60), numbers.pick(1, 60)},
        {1, 3, 224, 224}};
    const float most = std::exp2(static_cast<float>(numbers.pick(-12, 12)));
    GpuCase test;
    test.precision = i % 2 == 0 ? Precision::fp16 : Precision::fp32;
    test.keep_output_f32 = true;
    Tensor x = shared_random(shapes[i % 3], numbers.random, -most, most)->clone();
    if (i % 7 == 0) x.values<float>()[x.values<float>().size() / 2] = i % 2 == 0 ? NAN : INFINITY;
    if (i % 7 == 1) std::ranges::fill(x.values<float>(), 0.0F);
    test.inputs = {{std::make_shared<const Tensor>(std::move(x)), kLast}};
    test.output_layout = kLast;
    expect_gpu(DynamicQuantize(to_i8(numbers.coin())), "samples", test);
  }
}

// In every variant that is worth timing. Scales are given as a constant, which is never stored as halves.
void expect_products(Numbers& numbers, const Shape& x, const Shape& weights,
                     DynamicQConvAttributes attributes, Layout layout, bool halves, bool residual) {
  for (std::int64_t o = 0; o < weights[0]; ++o)
    attributes.weight_scales.push_back(0.0001F * static_cast<float>(numbers.pick(1, 40)));
  GpuCase test;
  test.precision = halves ? Precision::fp16 : Precision::fp32;
  test.exact = true;
  test.output_layout = kLast;
  std::int64_t scales = numbers.pick(1, x[0]);
  while (x[0] % scales != 0) --scales;
  test.inputs = {{numbers.integers<std::int8_t>(x, -127, 127), layout},
                 {numbers.integers<std::int8_t>(weights, -127, 127), Layout::row_major, true},
                 {},
                 {},
                 {shared_random(Shape{scales}, numbers.random, 0.01F, 0.1F), Layout::row_major, true}};
  if (numbers.coin())
    test.inputs[2] = {shared_random(Shape{weights[0]}, numbers.random), Layout::row_major, true};
  const Shape y = window_output_shape(attributes.conv.window, x, weights[0]);
  if (residual) test.inputs[3] = {shared_random(y, numbers.random), kLast};
  const DynamicQConv layer(attributes);
  for (const std::string& variant : gpu_variants(layer, "implicit_gemm", test)) {
    SCOPED_TRACE(variant);
    test.variant = variant;
    expect_gpu(layer, "implicit_gemm", test);
  }
}

TEST(DynamicInt8, Convolutions) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(1);
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    DynamicQConvAttributes attributes;
    Window& window = attributes.conv.window;
    const auto pick = [&](std::int64_t low, std::int64_t high) { return numbers.pick(low, high); };
    const std::array<std::int64_t, 2> extent = random_window(window, pick, 15);
    const std::int64_t channels = i % 3 == 0 ? pick(1, 70) : 16 * pick(1, 20), outputs = pick(1, 150);
    if (numbers.coin()) attributes.conv.activation = numbers.coin() ? Clamp::relu() : Clamp{-1.5F, 2.25F};
    expect_products(numbers, Shape{pick(1, 4), channels, extent[0], extent[1]},
                    Shape{outputs, channels, window.kernel[0], window.kernel[1]}, attributes,
                    i % 4 == 0 ? Layout::row_major : kLast, i % 2 == 0, numbers.coin());
  }
}

// A matrix product: rows of several samples share a scale.
TEST(DynamicInt8, Rows) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(2);
  DynamicQConvAttributes attributes;
  attributes.conv.window.rank = 2;
  for (const std::int64_t rows : {1, 3, 130})
    expect_products(numbers, Shape{rows, 25088, 1, 1}, Shape{40, 25088, 1, 1}, attributes, kLast, true,
                    false);
}

// More than the second dimension of a grid takes.
TEST(DynamicInt8, ManySamples) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(4);
  GpuCase test;
  test.precision = Precision::fp16;
  test.keep_output_f32 = true;
  test.inputs = {{shared_random(Shape{70'000, 24}, numbers.random), kLast}};
  test.output_layout = kLast;
  expect_gpu(DynamicQuantize(to_i8(true)), "samples", test);
}

TEST(DynamicInt8, Refusals) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(3);
  GpuCase test;
  test.inputs = {{shared_random(Shape{2, 16}, numbers.random)}};
  test.keep_output_f32 = true;
  expect_refused(gpu_refusal(DynamicQuantize(DynamicQuantizeAttributes{}), "samples", test), "i8");
  expect_refused(gpu_refusal(DynamicQuantize({false, true}), "samples", test), "zero points");
  EXPECT_EQ(gpu_refusal(DynamicQuantize(to_i8(true)), "samples", test), std::nullopt);
}

}  // namespace
}  // namespace pipit::internal::test
