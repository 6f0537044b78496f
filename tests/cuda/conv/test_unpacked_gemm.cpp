// Products of many rows with weights in 8 and 4 bits, through cuBLASLt, on the GPU against the CPU reference.
#include "engine/cuda/library.h"
#include "tests/cuda/conv/conv_cases.h"
#include "tests/cuda/conv/packed_cases.h"

namespace pipit::internal::test {
namespace {

// In the norm of y, a weight's rounding to a half, the bias's, and that of y are at most 2^-11 each, if roundings are
// as good as independent (sums of many) and bounds only take from them. Sums in f32 are far below that. A library
// without an algorithm that has the epilogue rounds y once more.
constexpr double kTolerance = 4 * 0x1p-11;

void expect_product(const Layer& layer, GpuCase test) {
  test.tolerance = kTolerance;
  expect_gpu(layer, "unpacked_gemm", test);
}

// Groups that "packed_gemm" has no kernel for, too.
WeightFormat any_format(PackedCases& random) {
  constexpr std::int64_t kGroups[] = {0, 0, 32, 64, 128, 40, 8};
  return {random.pick(0, 1) == 0 ? 8 : 4, kGroups[random.pick(0, 6)]};
}

TEST(UnpackedGemm, LinearLayers) {
  PIPIT_NEEDS_LIBRARY(cuda::cublaslt());
  PackedCases random(gpu_seed() + 10);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const WeightFormat format = any_format(random);
    // Enough results that roundings do not add up by chance.
    const std::int64_t rows = i % 3 == 0 ? random.pick(16, 64) : random.pick(64, 500);
    const std::int64_t depth = i % 4 == 0   ? random.pick(20, 70)
                               : i % 4 == 1 ? 8 * random.pick(3, 200)
                               : i % 4 == 2 ? random.pick(100, 2000)
                                            : 128 * random.pick(4, 40);
    const std::int64_t outputs = i % 2 == 0 ? random.pick(16, 300) : 8 * random.pick(2, 60);
    const Shape shapes[] = {{rows, depth}, {1, rows, depth}};
    GpuCase test = random.product(format, shapes[i % 2], depth, outputs);
    for (GpuOperand& operand : test.inputs) operand.layout = Layout::row_major;
    test.output_layout = Layout::row_major;
    expect_product(WLinear({format, random.clamp()}), test);
  }
}

// Weights far below the normal halves, and others beyond the largest half. The test rounds scales to halves, too: all
// of these are some.
TEST(UnpackedGemm, ScalesOfAnySize) {
  PIPIT_NEEDS_LIBRARY(cuda::cublaslt());
  PackedCases random(gpu_seed() + 11);
  const std::pair<WeightFormat, float> cases[] = {
      {{8, 0}, 0x1p-14F}, {{8, 0}, 0x1p19F}, {{4, 32}, 0x1p-18F}, {{4, 32}, 0x1p20F}};
  for (const auto& [format, size] : cases) {
    GpuCase test = random.product(format, {48, 256}, 256, 64);
    Tensor scales = test.inputs[2].tensor->clone();
    for (float& scale : scales.values<float>()) scale *= size;
    test.inputs[2].tensor = std::make_shared<const Tensor>(std::move(scales));
    test.inputs[3] = {};
    test.keep_output_f32 = true;  // which halves would not hold
    expect_product(WLinear({format, {}}), test);
  }
}

// The first fully connected layer of VGG-16.
TEST(UnpackedGemm, DeepSums) {
  PIPIT_NEEDS_LIBRARY(cuda::cublaslt());
  PackedCases random(gpu_seed() + 12);
  for (const WeightFormat& format : {WeightFormat{8, 0}, WeightFormat{4, 128}, WeightFormat{4, 32}})
    expect_product(WLinear({format, Clamp::relu()}), random.product(format, {33, 25088}, 25088, 64));
}

// Strides, padding, one to three dimensions, residuals.
TEST(UnpackedGemm, Convolutions) {
  PIPIT_NEEDS_LIBRARY(cuda::cublaslt());
  PackedCases random(gpu_seed() + 13);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    WConvAttributes attributes{any_format(random), {}};
    Window& window = attributes.conv.window;
    window.rank = 1 + i % 3;
    std::vector<std::int64_t> x{random.pick(2, 5),
                                i % 2 == 0 ? random.pick(20, 300) : 8 * random.pick(3, 40)};
    for (int axis = 0; axis < window.rank; ++axis) x.push_back(random.pick(6, 15));
    for (std::size_t axis = 0; i % 4 != 0 && axis < static_cast<std::size_t>(window.rank); ++axis) {
      window.stride[axis] = random.pick(1, 3);
      window.pad_begin[axis] = random.pick(0, 2), window.pad_end[axis] = random.pick(0, 2);
    }
    attributes.conv.activation = random.clamp();
    const std::int64_t outputs = i % 2 == 0 ? random.pick(16, 200) : 8 * random.pick(2, 40);
    GpuCase test = random.product(attributes.format, Shape(x), x[1], outputs);
    if (i % 5 < 2) {
      test.inputs.push_back({shared_random(window_output_shape(window, Shape(x), outputs), random.engine()),
                             Layout::channels_last});
      test.keep_output_f32 = false;
    }
    expect_product(WConv(attributes), test);
  }
}

TEST(UnpackedGemm, Refusals) {
  PIPIT_NEEDS_LIBRARY(cuda::cublaslt());
  PackedCases random(gpu_seed() + 14);
  const auto refusal = [&](const Layer& layer, const GpuCase& test) {
    return gpu_refusal(layer, "unpacked_gemm", test);
  };
  const WeightFormat format{4, 32};
  GpuCase test = random.product(format, {40, 300}, 300, 20);
  EXPECT_EQ(refusal(WLinear({format, {}}), test), std::nullopt);
  GpuCase other = test;
  other.inputs[1].constant = false;
  expect_refused(refusal(WLinear({format, {}}), other), "at run time");
  other = test;
  other.precision = Precision::fp32;
  expect_refused(refusal(WLinear({format, {}}), other), "f16");
  WConvAttributes attributes{format, {}};
  attributes.conv.window.rank = 2;
  test = random.product(format, {1, 32, 5, 5}, 32, 8);
  test.keep_output_f32 = false;
  test.inputs.push_back({shared_random(Shape{1, 8, 5, 5}, random.engine()), Layout::channels_last});
  EXPECT_EQ(refusal(WConv(attributes), test), std::nullopt);
  other = test;
  other.keep_output_f32 = true;
  expect_refused(refusal(WConv(attributes), other), "residual of f16");
  other = test;
  other.inputs[0].layout = Layout::row_major;
  expect_refused(refusal(WConv(attributes), other), "channels_last");
}

}  // namespace
}  // namespace pipit::internal::test
