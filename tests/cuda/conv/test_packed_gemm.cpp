// Products with weights in 8 and 4 bits on the GPU against the CPU reference.
#include "layers/ops/unary.h"
#include "tests/cuda/conv/conv_cases.h"
#include "tests/cuda/conv/packed_cases.h"

namespace pipit::internal::test {
namespace {

// In every variant that is worth timing.
void expect_variants(const Layer& layer, GpuCase test) {
  for (const std::string& variant : gpu_variants(layer, "packed_gemm", test)) {
    SCOPED_TRACE(variant);
    test.variant = variant;
    expect_gpu(layer, "packed_gemm", test);
  }
}

TEST(PackedGemm, LinearLayers) {
  PIPIT_NEEDS_GPU();
  PackedCases random(gpu_seed());
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const WeightFormat format = random.format();
    const std::int64_t rows = i % 3 == 0 ? 1 : i % 3 == 1 ? random.pick(2, 20) : random.pick(21, 300);
    const std::int64_t depth = i % 4 == 0   ? random.pick(1, 70)
                               : i % 4 == 1 ? 8 * random.pick(1, 200)
                               : i % 4 == 2 ? random.pick(100, 2000)
                                            : 128 * random.pick(4, 40);
    const std::int64_t outputs = random.pick(1, 300);
    const Shape shapes[] = {{rows, depth}, {1, rows, depth}, {depth}};
    const Shape& x = shapes[rows == 1 ? i % 3 : i % 2];
    GpuCase test = random.product(format, x, depth, outputs);
    for (GpuOperand& operand : test.inputs) operand.layout = Layout::row_major;
    test.output_layout = Layout::row_major;
    expect_variants(WLinear({format, random.clamp()}), test);
  }
}

// The fully connected layers of VGG-16, one image and several.
TEST(PackedGemm, DeepSums) {
  PIPIT_NEEDS_GPU();
  PackedCases random(gpu_seed() + 1);
  for (const std::int64_t rows : {1, 7, 33}) {
    for (const WeightFormat& format : {WeightFormat{8, 0}, WeightFormat{4, 128}, WeightFormat{4, 32}})
      expect_gpu(WLinear({format, Clamp::relu()}), "packed_gemm",
                 random.product(format, {rows, 25088}, 25088, 64));
  }
}

// Strides, padding, one to three dimensions, residuals, and functions of the result.
TEST(PackedGemm, Convolutions) {
  PIPIT_NEEDS_GPU();
  PackedCases random(gpu_seed() + 2);
  const Unary silu({UnaryKind::silu}), leaky({UnaryKind::leaky_relu, 0.1});
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    WConvAttributes attributes{random.format(), {}};
    Window& window = attributes.conv.window;
    window.rank = 1 + i % 3;
    std::vector<std::int64_t> x{random.pick(1, 4), i % 2 == 0 ? random.pick(1, 300) : 8 * random.pick(1, 40)};
    for (int axis = 0; axis < window.rank; ++axis) x.push_back(random.pick(1, 15));
    for (std::size_t axis = 0; i % 4 != 0 && axis < static_cast<std::size_t>(window.rank); ++axis) {
      window.stride[axis] = random.pick(1, 3);
      window.pad_begin[axis] = random.pick(0, 2), window.pad_end[axis] = random.pick(0, 2);
    }
    attributes.conv.activation = random.clamp();
    const std::int64_t outputs = random.pick(1, 200);
    GpuCase test = random.product(attributes.format, Shape(x), x[1], outputs);
    if (i % 5 < 2) {
      test.inputs.push_back({shared_random(window_output_shape(window, Shape(x), outputs), random.engine()),
                             Layout::channels_last});
      test.keep_output_f32 = false;
    }
    if (!test.keep_output_f32 && i % 3 == 0) test.followers = {i % 2 == 0 ? &silu : &leaky};
    expect_variants(WConv(attributes), test);
  }
}

TEST(PackedGemm, Refusals) {
  PIPIT_NEEDS_GPU();
  PackedCases random(gpu_seed() + 3);
  const auto refusal = [&](const Layer& layer, GpuCase test) {
    return gpu_refusal(layer, "packed_gemm", test);
  };
  const auto product = [&](const WeightFormat& format) { return random.product(format, {3, 300}, 300, 20); };
  EXPECT_EQ(refusal(WLinear({{8, 0}, {}}), product({8, 0})), std::nullopt);
  expect_refused(refusal(WLinear({{8, 64}, {}}), product({8, 64})), "groups of 64 weights of 8 bits");
  expect_refused(refusal(WLinear({{8, 128}, {}}), product({8, 128})), "groups of 128 weights of 8 bits");
  expect_refused(refusal(WLinear({{4, 40}, {}}), product({4, 40})), "groups of 40 weights of 4 bits");
  GpuCase test = product({4, 32});
  test.inputs[1].constant = false;
  expect_refused(refusal(WLinear({{4, 32}, {}}), test), "at run time");
  test = product({4, 32});
  test.precision = Precision::fp32;
  expect_refused(refusal(WLinear({{4, 32}, {}}), test), "f16");
  WConvAttributes attributes{{8, 0}, {}};
  attributes.conv.window.rank = 2;
  test = random.product({8, 0}, {1, 16, 5, 5}, 16, 8);
  test.inputs[0].layout = Layout::row_major;
  expect_refused(refusal(WConv(attributes), test), "channels_last");
}

}  // namespace
}  // namespace pipit::internal::test
