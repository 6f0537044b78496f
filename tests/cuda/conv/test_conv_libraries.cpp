// Convolution through cuDNN and through cuBLASLt against the CPU reference.
#include <fmt/format.h>

#include <iostream>

#include "engine/cuda/library.h"
#include "layers/ops/conv.h"
#include "tests/cuda/conformance.h"
#include "tests/cuda/conv/pruned_weights.h"

namespace pipit::internal::test {
namespace {

struct Geometry {
  Shape x;
  Shape w;
  std::int64_t stride = 1;
  std::int64_t pad = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  bool residual = false;
  Clamp activation;
  Layout input = Layout::channels_last;
  bool constant_residual = false;
};

Conv layer_of(const Geometry& g) {
  ConvAttributes attributes;
  attributes.window.rank = g.x.rank() - 2;
  for (int axis = 0; axis < attributes.window.rank; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    attributes.window.kernel[i] = g.w[axis + 2];
    attributes.window.stride[i] = g.stride;
    attributes.window.dilation[i] = g.dilation;
    attributes.window.pad_begin[i] = g.pad;
    attributes.window.pad_end[i] = g.pad;
  }
  attributes.groups = g.groups;
  attributes.activation = g.activation;
  return Conv(attributes);
}

GpuCase case_of(const Geometry& g, Precision precision, std::mt19937& random) {
  GpuCase test;
  test.precision = precision;
  test.output_layout = Layout::channels_last;
  test.inputs = {{shared_random(g.x, random), g.input},
                 {shared_random(g.w, random), Layout::row_major, true}};
  if (g.bias || g.residual) test.inputs.emplace_back();
  if (g.bias) test.inputs[2] = {shared_random({g.w[0]}, random), Layout::row_major, true};
  if (g.residual) {
    const Shape y = window_output_shape(layer_of(g).attributes().window, g.x, g.w[0]);
    test.inputs.push_back({shared_random(y, random),
                           g.constant_residual ? Layout::row_major : Layout::channels_last,
                           g.constant_residual});
  }
  return test;
}

void expect_conv(const std::string& candidate, const Geometry& g, std::mt19937& random) {
  for (const Precision precision : {Precision::fp32, Precision::fp16})
    expect_gpu(layer_of(g), candidate, case_of(g, precision, random));
}

const Geometry kCommon[] = {
    {{2, 16, 9, 7}, {24, 16, 3, 3}, 1, 1, 1, 1, true, true, Clamp::relu()},
    {{1, 32, 8, 8}, {16, 32, 1, 1}, 1, 0, 1, 1, true, false, Clamp::relu()},
    {{2, 3, 19, 17}, {8, 3, 7, 7}, 2, 3, 1, 1, true, false, Clamp::relu(), Layout::row_major},
    {{1, 16, 10, 10}, {16, 16, 3, 3}, 1, 2, 2, 1, false, false, {}},
    {{1, 8, 6, 6}, {8, 8, 3, 3}, 1, 1, 1, 1, true, false, {0.0F, 6.0F}},
    {{1, 8, 6, 6}, {8, 8, 3, 3}, 1, 1, 1, 1, true, true, {-0.5F, 0.75F}},
    {{2, 32, 7, 7}, {32, 8, 3, 3}, 2, 1, 1, 4, true, false, Clamp::relu()},
};

// What only the product of matrices has to handle: odd channels, depthwise, one and three dimensions.
const Geometry kUnusual[] = {
    {{3, 5, 6, 11}, {7, 5, 2, 3}, 1, 1, 1, 1, true, true, Clamp::relu()},
    {{2, 9, 5, 5}, {9, 1, 3, 3}, 1, 1, 1, 9, true, true, Clamp::relu()},
    {{2, 6, 5, 5}, {9, 2, 1, 1}, 1, 0, 1, 3, true, false, {-1.0F, 1.0F}},
    {{2, 6, 23}, {10, 6, 5}, 2, 2, 1, 1, true, false, {}},
    {{1, 4, 5, 6, 7}, {8, 4, 3, 3, 3}, 1, 1, 1, 1, false, true, Clamp::relu()},
    {{1, 16, 4, 4}, {16, 16, 1, 1}, 2, 1, 1, 1, true, true, {}, Layout::row_major},
    {{1, 8, 5, 5}, {8, 8, 3, 3}, 1, 1, 1, 1, true, true, {}, Layout::channels_last, true},
    {{1, 1, 1, 1}, {1, 1, 1, 1}, 1, 0, 1, 1, true, false, {}},
    {{1, 64, 3, 3}, {3, 64, 11, 11}, 1, 5, 1, 1, true, false, {}},
};

// Runs of channels of a tap in which every weight is zero are no columns of the patches.
TEST(GpuConvIm2col, LeavesZerosOut) {
  PIPIT_NEEDS_LIBRARY(cuda::cublaslt());
  std::mt19937 random(gpu_seed() + 13);
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    Geometry g = i % 2 == 0 ? kCommon[static_cast<std::size_t>(i / 2) % std::size(kCommon)]
                            : kUnusual[static_cast<std::size_t>(i / 2) % std::size(kUnusual)];
    for (const Precision precision : {Precision::fp32, Precision::fp16}) {
      GpuCase test = case_of(g, precision, random);
      test.inputs[1].tensor = pruned_weights(*test.inputs[1].tensor, i % 3 == 0 ? 3 : 8, random);
      expect_gpu(layer_of(g), "im2col_gemm", test);
    }
  }
}

TEST(GpuConvIm2col, CommonGeometries) {
  PIPIT_NEEDS_LIBRARY(cuda::cublaslt());
  std::mt19937 random(gpu_seed());
  for (const Geometry& g : kCommon) expect_conv("im2col_gemm", g, random);
}

TEST(GpuConvIm2col, UnusualGeometries) {
  PIPIT_NEEDS_LIBRARY(cuda::cublaslt());
  std::mt19937 random(gpu_seed());
  for (const Geometry& g : kUnusual) expect_conv("im2col_gemm", g, random);
}

// The patches of both images together exceed what scratch may hold: one product per image.
TEST(GpuConvIm2col, LargeBatchesAreSplit) {
  PIPIT_NEEDS_LIBRARY(cuda::cublaslt());
  std::mt19937 random(gpu_seed());
  const Geometry g{{2, 64, 256, 256}, {1, 64, 3, 3}, 1, 1, 1, 1, true, true, Clamp::relu()};
  expect_gpu(layer_of(g), "im2col_gemm", case_of(g, Precision::fp32, random));
}

TEST(GpuConvIm2col, RefusesRuntimeWeightsAndRowMajorOutputs) {
  PIPIT_NEEDS_LIBRARY(cuda::cublaslt());
  std::mt19937 random(gpu_seed());
  GpuCase test = case_of(kCommon[0], Precision::fp32, random);
  test.inputs[1].constant = false;
  EXPECT_EQ(gpu_refusal(layer_of(kCommon[0]), "im2col_gemm", test), "the weights are computed at run time");
  test.inputs[1].constant = true;
  test.output_layout = Layout::row_major;
  EXPECT_EQ(gpu_refusal(layer_of(kCommon[0]), "im2col_gemm", test), "the output must be channels_last");
}

TEST(GpuConvCudnn, CommonGeometries) {
  PIPIT_NEEDS_LIBRARY(cuda::cudnn_state());
  std::mt19937 random(gpu_seed());
  for (const Geometry& g : kCommon) expect_conv("cudnn", g, random);
}

TEST(GpuConvCudnn, RefusesRuntimeWeights) {
  PIPIT_NEEDS_LIBRARY(cuda::cudnn_state());
  std::mt19937 random(gpu_seed());
  GpuCase test = case_of(kCommon[0], Precision::fp16, random);
  test.inputs[1].constant = false;
  EXPECT_EQ(gpu_refusal(layer_of(kCommon[0]), "cudnn", test), "the weights are computed at run time");
}

// test_cuda --gtest_also_run_disabled_tests --gtest_filter='*ConvLibrariesBench*': ResNet-50 layers.
TEST(DISABLED_ConvLibrariesBench, ResNet50) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed());
  struct Row {
    std::int64_t channels, size, outputs, kernel, stride;
    bool residual;
  };
  const Row rows[] = {{3, 224, 64, 7, 2, false},   {64, 56, 64, 3, 1, false},   {64, 56, 256, 1, 1, true},
                      {128, 28, 128, 3, 1, false}, {512, 28, 128, 1, 1, false}, {256, 14, 256, 3, 1, false},
                      {256, 14, 1024, 1, 1, true}, {512, 7, 512, 3, 1, false},  {512, 7, 2048, 1, 1, true}};
  for (const Precision precision : {Precision::fp16, Precision::fp32}) {
    for (const std::int64_t batch : {1, 32}) {
      for (const Row& r : rows) {
        const Geometry g{{batch, r.channels, r.size, r.size},
                         {r.outputs, r.channels, r.kernel, r.kernel},
                         r.stride,
                         r.kernel / 2,
                         1,
                         1,
                         true,
                         r.residual,
                         Clamp::relu()};
        const GpuCase test = case_of(g, precision, random);
        std::string line =
            fmt::format("{} b{} {}->{} {}x{} s{} @{}{}:", precision_name(precision), batch, r.channels,
                        r.outputs, r.kernel, r.kernel, r.stride, r.size, r.residual ? " +r" : "");
        for (const std::string candidate : {"implicit_gemm", "cudnn", "im2col_gemm"}) {
          if (gpu_refusal(layer_of(g), candidate, test)) {
            line += " " + candidate + " -";
          } else {
            line += fmt::format(" {} {:.1f} us", candidate, gpu_microseconds(layer_of(g), candidate, test));
          }
        }
        std::cout << line << std::endl;
      }
    }
  }
}

}  // namespace
}  // namespace pipit::internal::test
