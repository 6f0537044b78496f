// Gemm and MatMul on the GPU, through cuBLASLt and without it, against the CPU reference.
#include "engine/cuda/library.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "tests/cuda/conformance.h"

namespace pipit::internal::test {
namespace {

/// Skips the current test where the library that it is about is missing.
#define PIPIT_NEEDS_CUBLASLT()                                                                   \
  PIPIT_NEEDS_GPU();                                                                             \
  if (const std::string problem = ::pipit::internal::cuda::cublaslt().problem; !problem.empty()) \
  GTEST_SKIP() << problem

constexpr Precision kPrecisions[] = {Precision::fp32, Precision::fp16};

GpuOperand operand(const Shape& shape, std::mt19937& random, bool constant = false) {
  return {shared_random(shape, random), Layout::row_major, constant};
}

// Every form in which C can be given, for random shapes, transpositions and factors.
void check_gemm(const std::string& candidate) {
  std::mt19937 random(gpu_seed());
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (const Precision precision : kPrecisions) {
    for (int c = 0; c < 12; ++c) {
      GemmAttributes attributes;
      attributes.transpose_a = pick(0, 1) == 1;
      attributes.transpose_b = pick(0, 1) == 1;
      attributes.alpha = pick(0, 1) == 1 ? 1.0F : 0.75F;
      attributes.beta = pick(0, 1) == 1 ? 1.0F : -1.5F;
      if (c % 3 == 1) attributes.activation = Clamp::relu();
      if (c % 3 == 2) attributes.activation = {-0.5F, 0.75F};
      // Odd sizes and multiples of eight take different kernels of the library.
      const std::int64_t step = pick(0, 1) == 1 ? 8 : 1;
      const std::int64_t m = step * pick(1, 20);
      const std::int64_t k = step * pick(1, 40);
      const std::int64_t n = step * pick(1, 30);
      GpuCase test;
      test.precision = precision;
      test.inputs = {operand(attributes.transpose_a ? Shape{k, m} : Shape{m, k}, random),
                     operand(attributes.transpose_b ? Shape{n, k} : Shape{k, n}, random, pick(0, 2) > 0)};
      const Shape shapes[] = {{n}, {m, n}, {m, 1}, {1, n}, {1}, {}};
      if (c > 0) test.inputs.push_back(operand(shapes[static_cast<std::size_t>(c) % 6], random, c < 7));
      expect_gpu(Gemm(attributes), candidate, test);
    }
  }
}

void check_matmul(const std::string& candidate) {
  std::mt19937 random(gpu_seed());
  const std::pair<Shape, Shape> shapes[] = {
      {{5, 7}, {7, 9}},
      {{64, 32}, {32, 48}},
      {{7}, {7, 9}},
      {{5, 7}, {7}},
      {{7}, {7}},
      {{3, 2, 5, 7}, {7, 9}},
      {{4, 8, 16}, {4, 16, 24}},
      {{2, 3, 8, 16}, {3, 16, 8}},
      {{2, 1, 5, 7}, {1, 3, 7, 4}},
      {{1, 3, 5, 7}, {2, 3, 7, 4}},
      {{2, 3, 2, 9, 5}, {2, 1, 2, 5, 3}},
  };
  for (const Precision precision : kPrecisions) {
    for (const auto& [a, b] : shapes) {
      for (const bool constant : {false, true}) {
        GpuCase test;
        test.precision = precision;
        test.inputs = {operand(a, random), operand(b, random, constant)};
        expect_gpu(MatMul(), candidate, test);
      }
    }
  }
}

TEST(GpuLinear, GemmThroughTheLibrary) {
  PIPIT_NEEDS_CUBLASLT();
  check_gemm("cublaslt");
}

TEST(GpuLinear, GemmWithoutTheLibrary) {
  PIPIT_NEEDS_GPU();
  check_gemm("simple_gemm");
}

// One to eight rows; depths within one round of a warp, across several and not filling the last.
TEST(GpuLinear, SkinnyGemm) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 1);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int c = 0; c < 24 && !::testing::Test::HasFailure(); ++c) {
    GemmAttributes attributes;
    attributes.transpose_b = pick(0, 1) == 1;
    attributes.alpha = pick(0, 1) == 1 ? 1.0F : 0.75F;
    attributes.beta = pick(0, 1) == 1 ? 1.0F : -1.5F;
    if (c % 3 == 1) attributes.activation = Clamp::relu();
    if (c % 3 == 2) attributes.activation = {-0.5F, 0.75F};
    const std::int64_t m = 1 + c % 8;
    const std::int64_t k = 8 * (c % 2 == 0 ? pick(1, 40) : pick(200, 600));
    const std::int64_t n = pick(1, 70);
    GpuCase test;
    test.precision = Precision::fp16;
    test.keep_output_f32 = c % 4 < 2;
    test.inputs = {operand({m, k}, random),
                   operand(attributes.transpose_b ? Shape{n, k} : Shape{k, n}, random, true)};
    const Shape shapes[] = {{n}, {1, n}, {1}, {}};
    if (c % 5 > 0) test.inputs.push_back(operand(shapes[c % 4], random, true));
    expect_gpu(Gemm(attributes), "skinny_gemm", test);
  }
  GpuCase tall;
  tall.precision = Precision::fp16;
  tall.inputs = {operand({9, 16}, random), operand({16, 4}, random, true)};
  EXPECT_TRUE(gpu_refusal(Gemm({}), "skinny_gemm", tall).has_value());
}

// Scores of a network in half precision: products of f16, results of f32.
void check_wide_output(const std::string& candidate) {
  std::mt19937 random(gpu_seed() + 2);
  for (const std::int64_t m : {1, 5, 32, 40}) {
    for (const bool bias : {false, true}) {
      GpuCase test;
      test.precision = Precision::fp16;
      test.keep_output_f32 = true;
      test.inputs = {operand({m, 72}, random), operand({72, 56}, random, true)};
      if (bias) test.inputs.push_back(operand({56}, random, true));
      expect_gpu(Gemm({}), candidate, test);
    }
  }
}

TEST(GpuLinear, HalfProductsWithF32ResultsThroughTheLibrary) {
  PIPIT_NEEDS_CUBLASLT();
  check_wide_output("cublaslt");
}

TEST(GpuLinear, HalfProductsWithF32ResultsWithoutTheLibrary) {
  PIPIT_NEEDS_GPU();
  check_wide_output("simple_gemm");
}

TEST(GpuLinear, MatMulThroughTheLibrary) {
  PIPIT_NEEDS_CUBLASLT();
  check_matmul("cublaslt");
}

TEST(GpuLinear, MatMulWithoutTheLibrary) {
  PIPIT_NEEDS_GPU();
  check_matmul("simple_gemm");
}

// TF32 would be wrong by some 3e-4 here.
TEST(GpuLinear, Fp32IsNotRoundedToTf32) {
  PIPIT_NEEDS_CUBLASLT();
  std::mt19937 random(gpu_seed());
  GpuCase test;
  test.tolerance = 2e-6;
  test.inputs = {operand({256, 1024}, random), operand({1024, 256}, random, true)};
  expect_gpu(MatMul(), "cublaslt", test);
}

TEST(GpuLinear, RefusesWhatItCannotDo) {
  PIPIT_NEEDS_CUBLASLT();
  std::mt19937 random(gpu_seed());
  GpuCase test;
  test.precision = Precision::fp16;
  test.inputs = {operand({4, 8}, random), operand({8, 4}, random)};
  EXPECT_EQ(gpu_refusal(MatMul(), "cublaslt", test), std::nullopt);
  test.keep_input_f32 = true;
  const auto reason = gpu_refusal(MatMul(), "cublaslt", test);
  ASSERT_TRUE(reason.has_value());
  EXPECT_NE(reason->find("input 0 is"), std::string::npos) << *reason;
}

TEST(GpuLibraries, StatusNamesVersionOrReason) {
  const CudaLibraries libraries = cuda_libraries();
  EXPECT_EQ(libraries.cublaslt.starts_with("not usable: "), !cuda::cublaslt().problem.empty());
  EXPECT_EQ(libraries.cudnn.starts_with("not usable: "), !cuda::cudnn_state().problem.empty());
  EXPECT_FALSE(libraries.cublaslt.empty());
  EXPECT_FALSE(libraries.cudnn.empty());
}

}  // namespace
}  // namespace pipit::internal::test
