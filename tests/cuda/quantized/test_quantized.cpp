// INT8 layers without weights on the GPU against the CPU's scalar specification, bit for bit.
#include "layers/ops/pool.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "tests/cuda/quantized/quantized_cases.h"

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

TEST(QPool, Averages) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(220);
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    QAveragePoolAttributes a;
    a.x = kTypes[i % 4];
    a.y = i % 3 == 0 ? kReal : kTypes[numbers.pick(0, 3)];
    if (a.y.quantized()) a.y.scale = 0.01F;
    a.pool.kind = PoolKind::average;
    a.pool.global = i % 2 == 0;
    a.pool.count_include_pad = numbers.coin();
    set_window(a.pool.window, 3, numbers.pick(1, 2), 1, 1);
    const std::int64_t channels = i % 8 < 6 ? 4 * numbers.pick(1, 40) : numbers.pick(1, 9);
    const Shape shape{numbers.pick(1, 3), channels, numbers.pick(3, 14), numbers.pick(3, 14)};
    GpuCase test = exact_case();
    test.precision = numbers.coin() ? Precision::fp32 : Precision::fp16;
    test.inputs = {{numbers.quantized(shape, a.x), kLast}};
    expect_gpu(QAveragePool(a), "windows", test);
    if (!a.pool.global && channels % 8 == 0 && a.y.quantized()) {
      expect_gpu(QAveragePool(a), "small_windows", test);
    } else {
      EXPECT_TRUE(gpu_refusal(QAveragePool(a), "small_windows", test).has_value());
    }
    if (a.pool.global && channels % 4 == 0) expect_gpu(QAveragePool(a), "global_average", test);
    test.output_layout = test.inputs[0].layout = Layout::row_major;
    expect_gpu(QAveragePool(a), "windows", test);
  }
}

// Positions that the blocks of a cluster share, few and many channels.
TEST(QPool, GlobalAveragesOfLargeImages) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(224);
  const Shape shapes[] = {
      {1, 32, 112, 112}, {2, 4, 97, 201}, {3, 96, 56, 56}, {1, 1152, 31, 33}, {1, 20, 300, 7}};
  for (const Shape& shape : shapes) {
    for (const Quantization& x : kTypes) {
      QAveragePoolAttributes a;
      a.x = x;
      a.y = numbers.coin() ? kReal : kTypes[numbers.pick(0, 3)];
      if (a.y.quantized()) a.y.scale = 0.01F;
      a.pool.kind = PoolKind::average;
      a.pool.global = true;
      GpuCase test = exact_case();
      test.inputs = {{numbers.quantized(shape, x), kLast}};
      expect_gpu(QAveragePool(a), "global_average", test);
      if (HasFailure()) return;
    }
  }
}

// Every small window, odd extents, padding that counts or does not, a last window that ceil_mode adds.
TEST(QPool, AveragesOfSmallWindows) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(225);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    QAveragePoolAttributes a;
    a.x = kTypes[i % 4];
    a.y = kTypes[numbers.pick(0, 3)];
    a.y.scale = 0.01F;
    a.pool.kind = PoolKind::average;
    a.pool.count_include_pad = numbers.coin();
    const std::int64_t kernel = i % 3 == 0 ? 2 : 3;
    set_window(a.pool.window, kernel, kernel == 2 ? 2 : numbers.pick(1, 2), 1, 0);
    for (std::size_t d = 0; d < 2; ++d) {
      a.pool.window.pad_begin[d] = numbers.pick(0, kernel - 1);
      a.pool.window.pad_end[d] = numbers.pick(0, kernel - 1);
    }
    a.pool.window.ceil_mode = numbers.coin();
    GpuCase test = exact_case();
    test.inputs = {
        {numbers.quantized(
             {numbers.pick(1, 3), 8 * numbers.pick(1, 9), numbers.pick(3, 15), numbers.pick(3, 15)}, a.x),
         kLast}};
    expect_gpu(QAveragePool(a), "small_windows", test);
  }
}

TEST(QPool, Maxima) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(221);
  for (const auto& [kernel, stride] : {std::pair{3, 2}, {2, 2}, {3, 1}, {4, 3}}) {
    for (const Quantization& q : {kI8, kU8}) {
      for (const std::int64_t channels : {16, 48, 24, 12, 5}) {
        PoolAttributes a;
        set_window(a.window, kernel, stride, 1, kernel / 2);
        if (kernel == 2) a.window.pad_begin = a.window.pad_end = {0, 0, 0};
        const Shape shape{2, channels, numbers.pick(5, 19), numbers.pick(5, 19)};
        GpuCase test = exact_case();
        test.inputs = {{numbers.quantized(shape, q), kLast}};
        expect_gpu(Pool(a), "integer_windows", test);
        if (kernel != 4 && channels % 8 == 0) expect_gpu(Pool(a), "small_windows", test);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(QMovement, BytesAreMovedAsTheyAre) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(222);
  for (const Layout layout : {kLast, Layout::row_major}) {
    GpuCase test = exact_case(layout);
    test.inputs = {{numbers.quantized({2, 16, 7, 5}, kI8), layout},
                   {numbers.quantized({2, 5, 7, 5}, kI8), layout}};
    expect_gpu(Concat({1}), "rows", test);
    GpuCase mixed = test;
    mixed.inputs[1].layout = layout == kLast ? Layout::row_major : kLast;
    expect_gpu(Concat({1}), "strided_copy", mixed);
    test.inputs.pop_back();
    test.output_layout = layout == kLast ? Layout::row_major : kLast;
    expect_gpu(ToLayout({test.output_layout}), "strided_copy", test);
  }
  GpuCase test = exact_case(Layout::row_major);
  test.inputs = {{numbers.quantized({3, 8, 1, 1}, kI8)}};
  expect_gpu(Reshape({Shape{3, 8}}), "strided_copy", test);
}

}  // namespace
}  // namespace pipit::internal::test
