// Prints how fast the GPU kernels that are no matrix products run.
#include <cstdio>

#include "layers/ops/binary.h"
#include "layers/ops/gemm.h"
#include "layers/ops/normalization.h"
#include "layers/ops/normalize_image.h"
#include "layers/ops/pool.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/ops/softmax.h"
#include "layers/ops/unary.h"
#include "tests/cuda/conformance.h"

namespace pipit {
namespace {

using test::GpuOperand;
using test::shared_random;

// Shapes of networks; run with --gtest_also_run_disabled_tests. Rates count bytes read and written once.
TEST(GpuSpeed, DISABLED_Report) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  const auto report = [](const char* what, const Layer& layer, const char* name, const test::GpuCase& test) {
    const double us = test::gpu_microseconds(layer, name, test);
    double bytes = 0;
    const double element = test.precision == Precision::fp16 ? 2 : 4;
    std::vector<const TensorDesc*> descs;
    for (const GpuOperand& x : test.inputs) {
      bytes += element * static_cast<double>(x.tensor->shape().elements());
      descs.push_back(&x.tensor->desc());
    }
    for (const TensorDesc& y : layer.infer(descs)) bytes += element * static_cast<double>(y.elements());
    std::printf("%-34s %8.2f us %8.0f GB/s\n", what, us, bytes / us * 1e-3);
  };
  constexpr Layout kLast = Layout::channels_last;
  constexpr auto kHalf = Precision::fp16;
  for (const std::int64_t batch : {1, 32}) {
    const auto wide = shared_random({batch, 64, 112, 112}, random);
    const auto deep = shared_random({batch, 512, 7, 7}, random);
    const auto half_wide = shared_random({batch, 32, 112, 112}, random);
    PoolAttributes stem{PoolKind::max, {2, {3, 3, 1}, {2, 2, 1}, {1, 1, 1}, {1, 1, 0}, {1, 1, 0}}};
    std::printf("batch %d, fp16, NHWC\n", static_cast<int>(batch));
    report("max pool 3x3 s2, 64x112x112", Pool(stem), "windows", {{{wide, kLast}}, kHalf, kLast});
    report("the same, max_half", Pool(stem), "max_half", {{{wide, kLast}}, kHalf, kLast});
    if (batch == 1) {
      test::GpuCase scores;
      scores.inputs = {{shared_random({1, 2048}, random)},
                       {shared_random({2048, 1000}, random), Layout::row_major, true},
                       {shared_random({1000}, random), Layout::row_major, true}};
      scores.precision = kHalf;
      report("gemm 1x2048x1000, skinny_gemm", Gemm({}), "skinny_gemm", scores);
      report("gemm 1x2048x1000, cublaslt", Gemm({}), "cublaslt", scores);
    }
    report("global average 512x7x7", Pool({PoolKind::average, {}, true}), "global_average",
           {{{deep, kLast}}, kHalf, kLast});
    report("global average 64x112x112", Pool({PoolKind::average, {}, true}), "global_average",
           {{{wide, kLast}}, kHalf, kLast});
    report("to NHWC 64x112x112", ToLayout({kLast}), "strided_copy", {{{wide}}, kHalf, kLast});
    report("relu 64x112x112", Unary({UnaryKind::relu}), "elementwise", {{{wide, kLast}}, kHalf, kLast});
    report("silu 64x112x112", Unary({UnaryKind::silu}), "elementwise", {{{wide, kLast}}, kHalf, kLast});
    report("gelu 64x112x112", Unary({UnaryKind::gelu}), "elementwise", {{{wide, kLast}}, kHalf, kLast});
    report("add 64x112x112", Binary({BinaryKind::add}), "elementwise",
           {{{wide, kLast}, {wide, kLast}}, kHalf, kLast});
    report("mul by 64x1x1, 64x112x112", Binary({BinaryKind::mul}), "elementwise",
           {{{wide, kLast}, {shared_random({batch, 64, 1, 1}, random), kLast}}, kHalf, kLast});
    report("concat 32+32 of 112x112", Concat({1}), "rows",
           {{{half_wide, kLast}, {half_wide, kLast}}, kHalf, kLast});
    report("image 3x224x224 to NHWC", ToLayout({kLast}), "strided_copy",
           {{{shared_random({batch, 3, 224, 224}, random)}}, kHalf, kLast});
    Tensor image(TensorDesc{Shape{batch, 224, 224, 3}, DType::u8});
    for (std::uint8_t& x : image.values<std::uint8_t>())
      x = static_cast<std::uint8_t>(std::uniform_int_distribution<int>(0, 255)(random));
    report("normalize image 3x224x224", NormalizeImage(NormalizeImageAttributes{}), "table",
           {{{std::make_shared<const Tensor>(std::move(image))},
             {shared_random({3, 256}, random), Layout::row_major, true}}});
    report("softmax 1000", Softmax({-1}), "teams", {{{shared_random({batch, 1000}, random)}}, kHalf});
    report("layer norm 56x56x128", LayerNorm({-1}), "teams",
           {{{shared_random({batch, 56, 56, 128}, random)}}, kHalf});
  }
}

}  // namespace
}  // namespace pipit
