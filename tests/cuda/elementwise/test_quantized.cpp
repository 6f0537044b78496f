// INT8 layers without weights, element by element, on the GPU against the CPU's scalar specification, bit for bit.
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"
#include "layers/ops/quantize_axis.h"
#include "layers/ops/qunary.h"
#include "tests/cuda/quantized_cases.h"

namespace pipit::internal::test {
namespace {

TEST(QElementwise, RandomShapesTypesAndLayouts) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(200);
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    const Shape shape{numbers.pick(1, 3), i % 2 == 0 ? 8 * numbers.pick(1, 5) : numbers.pick(1, 40),
                      numbers.pick(1, 9), numbers.pick(1, 9)};
    const Layout layout = numbers.coin() ? kLast : Layout::row_major;
    const Quantization& q = kTypes[i % 4];
    for (const Precision precision : {Precision::fp32, Precision::fp16}) {
      GpuCase test = exact_case(layout);
      test.precision = precision;
      test.inputs = {{shared_random(shape, numbers.random, -8, 8), numbers.coin() ? layout : kLast}};
      expect_gpu(Quantize(q), "elementwise", test);
      test.inputs = {{numbers.quantized(shape, q), layout}};
      expect_gpu(Dequantize(q), "elementwise", test);
    }
    QAddAttributes add{kTypes[numbers.pick(0, 3)], q, kTypes[numbers.pick(0, 3)], {}};
    add.y.scale = 0.07F;
    if (numbers.coin()) add.activation = Clamp::relu();
    GpuCase test = exact_case(layout);
    test.inputs = {{numbers.quantized(shape, add.a), layout}, {numbers.quantized(shape, add.b), layout}};
    expect_gpu(QAdd(add), "elementwise", test);
  }
}

TEST(QFunctions, RandomShapesTypesAndLayouts) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(203);
  for (int i = 0; i < 48 && !HasFailure(); ++i) {
    const Shape shape{numbers.pick(1, 3), i % 2 == 0 ? 16 * numbers.pick(1, 5) : numbers.pick(1, 40),
                      numbers.pick(1, 9), numbers.pick(1, 9)};
    const Layout layout = numbers.coin() ? kLast : Layout::row_major;
    Quantization y = kTypes[numbers.pick(0, 3)];
    y.scale = 0.04F;
    const UnaryKind kinds[] = {UnaryKind::silu, UnaryKind::sigmoid, UnaryKind::hard_swish, UnaryKind::gelu};
    GpuCase test = exact_case(layout);
    test.precision = numbers.coin() ? Precision::fp32 : Precision::fp16;
    const Quantization& x = kTypes[i % 4];
    test.inputs = {{numbers.quantized(shape, x), layout}};
    expect_gpu(QUnary({{kinds[i / 4 % 4]}, x, y}), "table", test);

    // A gate per image and channel, the same shape, a plane for all channels, one factor for all.
    const Shape gates[] = {{shape[0], shape[1], 1, 1}, shape, {1, 1, shape[2], shape[3]}, {1, 1, 1, 1}};
    QMulAttributes product{x, kTypes[numbers.pick(0, 3)], y, {}};
    if (i / 8 % 2 == 0) product.b = i / 4 % 2 == 0 ? kI8 : kU8, product.y = kI8;  // no zero points but x's
    product.y.scale = 0.3F;
    if (numbers.coin()) product.activation = Clamp::relu();
    test.inputs.push_back({numbers.quantized(gates[i / 2 % 4], product.b), layout});
    expect_gpu(QMul(product), "elementwise", test);
  }
}

// Halfway cases, infinities, NaN and values beyond the range.
TEST(QElementwise, RoundsTiesToEvenAndSaturates) {
  PIPIT_NEEDS_GPU();
  std::vector<float> values{1e30F, -1e30F, INFINITY, -INFINITY, NAN, 0.0F, -0.0F, 1e-40F};
  for (int i = -520; i <= 520; ++i) values.push_back(static_cast<float>(i) * 0.5F);
  const auto x = std::make_shared<const Tensor>(
      Tensor::from<float>(Shape{static_cast<std::int64_t>(values.size())}, values));
  for (Quantization q : kTypes) {
    for (const float scale : {1.0F, 0.3F}) {
      q.scale = scale;
      GpuCase test = exact_case();
      test.inputs = {{x}};
      expect_gpu(Quantize(q), "elementwise", test);
    }
  }
}

// A scale for each index of a dimension, or one for all.
TEST(QElementwise, ScalesPerAxis) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(44);
  for (int round = 0; round < 24 && !HasFailure(); ++round) {
    const Shape shape{numbers.pick(1, 3), numbers.pick(1, 17), numbers.pick(1, 5), numbers.pick(1, 7)};
    AxisQuantization q;
    q.dtype = round % 3 == 0 ? DType::u8 : round % 3 == 1 ? DType::i8 : DType::i32;
    q.axis = numbers.pick(0, 3);
    const std::int64_t count = numbers.coin() ? 1 : shape[static_cast<int>(q.axis)];
    for (std::int64_t i = 0; i < count; ++i) {
      q.scales.push_back(static_cast<float>(numbers.real(0.01, 0.1)));
      q.zero_points.push_back(q.dtype == DType::i32  ? 0
                              : q.dtype == DType::u8 ? static_cast<int>(numbers.pick(0, 255))
                                                     : static_cast<int>(numbers.pick(-128, 127)));
    }
    GpuCase test = exact_case(numbers.coin() ? kLast : Layout::row_major);
    const bool bytes = q.dtype != DType::i32;
    const double low = q.dtype == DType::u8 ? 0 : bytes ? -128 : -1e6;
    test.inputs = {{numbers.tensor(shape, low,
                                   q.dtype == DType::u8 ? 256
                                   : bytes              ? 128
                                                        : 1e6,
                                   q.dtype),
                    numbers.coin() ? kLast : Layout::row_major}};
    expect_gpu(DequantizeAxis(q), "table", test);
    if (!bytes) continue;
    test.inputs[0].tensor = numbers.tensor(shape, -8, 8);
    expect_gpu(QuantizeAxis(q), "table", test);
  }
}

}  // namespace
}  // namespace pipit::internal::test
