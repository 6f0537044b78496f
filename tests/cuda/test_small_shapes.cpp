// One small case of every kind of GPU kernel: short enough for tools that make kernels hundreds of times slower
// (compute-sanitizer, through tests/gpu.sh), odd enough to reach partial tiles, padding on every edge and tails.
#include <set>

#include "engine/cuda/library.h"
#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/spread_gemm/plan.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/ops/binary.h"
#include "layers/ops/channel_shuffle.h"
#include "layers/ops/conv.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/normalization.h"
#include "layers/ops/pool.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/resize.h"
#include "layers/ops/slicing.h"
#include "layers/ops/softmax.h"
#include "layers/ops/unary.h"
#include "layers/registry.h"
#include "tests/cuda/conformance.h"
#include "tests/cuda/conv/packed_cases.h"
#include "tests/cuda/conv/pruned_weights.h"
#include "tests/cuda/random_layers.h"

namespace pipit::internal::test {
namespace {

constexpr Layout kLast = Layout::channels_last;
const std::set<std::string> kLibraries{"cublaslt", "cudnn", "im2col_gemm", "unpacked_gemm"};

/// The named candidate, which must accept the case, and every other kernel of our own that does. Libraries run only
/// where they are named: what they do inside is not ours to check.
void expect_kernels(const Layer& layer, const std::string& candidate, const GpuCase& test) {
  expect_gpu(layer, candidate, test);
  if (kLibraries.count(candidate) != 0) return;
  for (const Candidate& other : default_registry().candidates(layer.type(), DeviceKind::cuda)) {
    if (other.name != candidate && kLibraries.count(other.name) == 0 && !gpu_refusal(layer, other.name, test))
      expect_gpu(layer, other.name, test);
  }
}

struct Geometry {
  std::int64_t batch, channels, height, width, outputs, kernel, stride, pad;
  std::int64_t groups = 1;
  bool residual = false, pruned = false;
};

void conv(const std::string& candidate, const Geometry& g, Precision precision, Layout input = kLast,
          const std::vector<const Layer*>& followers = {}) {
  std::mt19937 random(gpu_seed());
  ConvAttributes attributes;
  attributes.groups = g.groups;
  attributes.activation = Clamp::relu();
  Window& window = attributes.window;
  window.kernel = {g.kernel, g.kernel, 1};
  window.stride = {g.stride, g.stride, 1};
  window.pad_begin = {g.pad, g.pad, 0};
  window.pad_end = {g.pad, g.pad, 0};
  const Shape x{g.batch, g.channels, g.height, g.width};
  GpuCase test;
  test.precision = precision;
  test.output_layout = kLast;
  test.followers = followers;
  const Shape weights{g.outputs, g.channels / g.groups, g.kernel, g.kernel};
  test.inputs = {{shared_random(x, random), input},
                 {shared_random(weights, random), Layout::row_major, true},
                 {shared_random({g.outputs}, random), Layout::row_major, true}};
  if (g.pruned) test.inputs[1].tensor = pruned_weights(*test.inputs[1].tensor, 8, random);
  if (g.residual)
    test.inputs.push_back({shared_random(window_output_shape(window, x, g.outputs), random), kLast});
  expect_kernels(Conv(attributes), candidate, test);
  test.keep_input_f32 = precision == Precision::fp16;  // an image as the user gives it
  if (!gpu_refusal(Conv(attributes), candidate, test)) expect_kernels(Conv(attributes), candidate, test);
}

// Both precisions; `operands` after the first are constants.
void layer(const Layer& layer, const std::string& candidate, const std::vector<Shape>& operands,
           Layout layout = kLast) {
  std::mt19937 random(gpu_seed());
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    GpuCase test;
    test.precision = precision;
    test.output_layout = layout;
    for (const Shape& shape : operands) {
      const bool first = test.inputs.empty();
      test.inputs.push_back(
          {shared_random(shape, random, 0.5F, 2), first ? layout : Layout::row_major, !first});
    }
    expect_kernels(layer, candidate, test);
  }
}

TEST(SmallShapes, ImplicitGemm) {
  PIPIT_NEEDS_GPU();
  constexpr auto kHalf = Precision::fp16;
  conv("implicit_gemm", {2, 16, 9, 7, 24, 3, 1, 1, 1, true}, kHalf);
  conv("implicit_gemm", {1, 3, 19, 17, 8, 7, 2, 3}, kHalf, Layout::row_major);
  conv("implicit_gemm", {1, 72, 5, 5, 136, 1, 1, 0, 1, true}, kHalf);
  conv("implicit_gemm", {1, 200, 5, 5, 40, 3, 1, 1}, kHalf);  // deep and few positions: split over a cluster
  conv("implicit_gemm", {1, 8, 3, 3, 3, 5, 1, 2}, kHalf);     // the kernel is larger than the image
  conv("implicit_gemm", {2, 40, 6, 5, 150, 3, 1, 1, 1, true, true}, kHalf);
  const Pool average(PoolAttributes{PoolKind::average, {}, true});
  conv("implicit_gemm", {4, 40, 5, 5, 70, 1, 1, 0, 1, true}, kHalf, kLast, {&average});
  conv("implicit_gemm", {1, 200, 6, 5, 40, 3, 1, 1, 1, true}, kHalf, kLast, {&average});
}

TEST(SmallShapes, SpreadGemm) {
  PIPIT_NEEDS_GPU();
  if (!cuda::has_hopper_kernels()) GTEST_SKIP() << "not a Hopper GPU";
  constexpr auto kHalf = Precision::fp16;
  conv("spread_gemm", {2, 16, 9, 7, 24, 3, 1, 1, 1, true}, kHalf);
  conv("spread_gemm", {1, 200, 5, 5, 40, 3, 1, 1}, kHalf);  // clusters
  conv("spread_gemm", {1, 136, 9, 9, 33, 1, 2, 0}, kHalf);  // gathered pixels, an odd number of outputs
  conv("spread_gemm", {1, 8, 3, 3, 3, 5, 1, 2}, kHalf);     // the kernel is larger than the image
}

TEST(SmallShapes, DirectConvolutions) {
  PIPIT_NEEDS_GPU();
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    conv("direct", {2, 12, 6, 5, 9, 3, 2, 1, 3, true}, precision);
    conv("direct", {1, 3, 7, 6, 5, 3, 1, 1}, precision, Layout::row_major);
    conv("depthwise", {2, 24, 7, 9, 24, 3, 1, 1, 24}, precision);
    conv("depthwise", {1, 7, 6, 5, 7, 5, 2, 2, 7}, precision);
  }
}

TEST(SmallShapes, Products) {
  PIPIT_NEEDS_GPU();
  for (const std::int64_t rows : {1, 5, 33})
    layer(Gemm({}), "simple_gemm", {{rows, 40}, {40, 19}, {19}}, Layout::row_major);
  layer(MatMul(), "simple_gemm", {{2, 5, 7}, {7, 9}}, Layout::row_major);
}

TEST(SmallShapes, Pools) {
  PIPIT_NEEDS_GPU();
  PoolAttributes windows{PoolKind::max, {}, false, false};
  windows.window = {2, {3, 3, 1}, {2, 2, 1}, {1, 1, 1}, {1, 1, 0}, {1, 1, 0}, false};
  layer(Pool(windows), "windows", {{2, 16, 9, 8}});
  layer(Pool({PoolKind::max, {2, {2, 2, 1}, {2, 2, 1}}}), "windows", {{1, 8, 5, 7}});
  layer(Pool(windows), "windows", {{1, 5, 7, 6}});
  windows.kind = PoolKind::average;
  layer(Pool(windows), "windows", {{1, 8, 6, 9}});
  layer(Pool({PoolKind::average, {}, true}), "global_average", {{2, 40, 7, 5}});
}

TEST(SmallShapes, Elementwise) {
  PIPIT_NEEDS_GPU();
  layer(Unary({UnaryKind::silu}), "elementwise", {{2, 16, 3, 5}});
  layer(Unary({UnaryKind::relu}), "elementwise", {{3, 7, 5}});
  layer(Binary({BinaryKind::add}), "elementwise", {{2, 5, 3, 7}, {5, 1, 1}});
  layer(BatchNorm({1e-3F}), "elementwise", {{2, 24, 5, 3}, {24}, {24}, {24}, {24}});
}

TEST(SmallShapes, RowsAndReductions) {
  PIPIT_NEEDS_GPU();
  layer(Softmax({-1}), "teams", {{3, 37}}, Layout::row_major);
  layer(Softmax({1}), "teams", {{2, 11, 3, 5}});
  layer(LayerNorm({-1, 1e-5F, 1}), "teams", {{3, 5, 40}, {40}, {40}}, Layout::row_major);
  layer(LayerNorm({-1, 1e-5F, 1, true}), "teams", {{3, 5, 40}, {40}, {40}}, Layout::row_major);
  layer(Reduce({ReduceKind::mean, {2, 3}, true}), "teams", {{2, 20, 5, 3}});
}

TEST(SmallShapes, StoredWeights) {
  PIPIT_NEEDS_GPU();
  PackedCases random(gpu_seed());
  for (const WeightFormat& format : {WeightFormat{8, 0}, WeightFormat{4, 32}, WeightFormat{4, 128}}) {
    GpuCase linear = random.product(format, {3, 301}, 301, 19);
    linear.inputs[0].layout = linear.output_layout = Layout::row_major;
    expect_gpu(WLinear({format, Clamp::relu()}), "packed_gemm", linear);
    WConvAttributes attributes{format, {}};
    Window& window = attributes.conv.window;
    window.rank = 2;
    window.stride = {2, 1, 1}, window.pad_begin = {1, 0, 0}, window.pad_end = {0, 2, 0};
    expect_gpu(WConv(attributes), "packed_gemm", random.product(format, {2, 72, 5, 4}, 72, 24));
  }
}

TEST(SmallShapes, DynamicScales) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed());
  for (const Shape& x : {Shape{3, 301}, Shape{2, 16, 5, 6}}) {
    GpuCase quantize;
    quantize.precision = Precision::fp16;
    quantize.keep_output_f32 = true;
    quantize.output_layout = kLast;
    quantize.inputs = {{shared_random(x, random), kLast}};
    expect_gpu(DynamicQuantize({.per_sample = x.rank() == 2, .type = DType::i8}), "samples", quantize);
  }
  Tensor q(TensorDesc{Shape{2, 20, 7, 5}, DType::i8}), weights(TensorDesc{Shape{24, 20, 3, 3}, DType::i8});
  for (Tensor* tensor : {&q, &weights}) {
    for (std::int8_t& v : tensor->values<std::int8_t>())
      v = static_cast<std::int8_t>(std::uniform_int_distribution<int>(-127, 127)(random));
  }
  DynamicQConvAttributes attributes;
  attributes.conv.window.kernel = {3, 3, 1};
  attributes.conv.window.pad_begin = attributes.conv.window.pad_end = {1, 1, 0};
  attributes.weight_scales = {0.001F};
  GpuCase conv;
  conv.precision = Precision::fp16;
  conv.output_layout = kLast;
  conv.inputs = {{std::make_shared<const Tensor>(std::move(q)), kLast},
                 {std::make_shared<const Tensor>(std::move(weights)), Layout::row_major, true},
                 {},
                 {shared_random(Shape{2, 24, 7, 5}, random), kLast},
                 {shared_random(Shape{2}, random, 0.01F, 0.1F), Layout::row_major, true}};
  expect_gpu(DynamicQConv(attributes), "implicit_gemm", conv);
}

TEST(SmallShapes, Movement) {
  PIPIT_NEEDS_GPU();
  layer(Transpose({{0, 2, 3, 1}}), "strided_copy", {{2, 3, 5, 7}}, Layout::row_major);
  layer(Concat({1}), "strided_copy", {{2, 8, 3, 5}, {2, 5, 3, 5}});
  layer(Concat({1}), "rows", {{2, 13, 3, 5}});
  layer(Split({1, {8, 5}}), "rows", {{2, 13, 3, 5}});
  layer(ChannelShuffle({2, {6, 8}}), "rows", {{2, 14, 3, 5}});
  layer(ChannelShuffle({2, {5, 7}, {12}, {8, 16}}), "rows", {{2, 16, 3, 5}});
  layer(Pad({PadMode::constant, {0, 1, 2, 3}, {0, 0, 1, 4}, 1.5}), "pad", {{1, 3, 4, 5}});
  ResizeAttributes twice{ResizeMode::linear, ResizeCoordinates::half_pixel};
  twice.scales = {1, 1, 2, 2, 1, 1};
  layer(Resize(twice), "taps", {{1, 5, 4, 3}});
}

// What a seed of its own makes of the layers of random_layers.h, once each.
TEST(SmallShapes, PositionsOrderAndSequences) {
  PIPIT_NEEDS_GPU();
  LayerRandom random(gpu_seed());
  const auto check = [](const RandomLayer& node, const char* candidate, double tolerance = 0) {
    for (const Precision precision : {Precision::fp32, Precision::fp16}) {
      GpuCase test;
      test.precision = precision;
      if (precision == Precision::fp32) test.tolerance = tolerance;
      for (const auto& input : node.inputs) test.inputs.push_back({input});
      expect_gpu(*node.layer, candidate, test);
    }
  };
  for (int round = 0; round < 4; ++round) {
    check(random_gather_indexed(random), "indexed");
    check(random_scatter_indexed(random), "indexed");
    check(random_top_k(random, 40), "bitonic");
    check(random_cum_sum(random), "warps");
    check(random_grid_sample(random, 2), "positions");
    const RecurrentExtents extents{3, round + 1, 4 * round + 5};
    check(random_recurrent(random, extents), "warps", recurrent_tolerance(extents));
  }
  check(random_top_k(random, 5000), "bitonic");
  ResizeAttributes cubic{ResizeMode::cubic, ResizeCoordinates::half_pixel};
  cubic.scales = {1, 1, 2, 0.5F, 1, 1};
  layer(Resize(cubic), "filters", {{1, 5, 4, 6}});
}

TEST(SmallShapesOfLibraries, Products) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = cuda::cublaslt().problem; !problem.empty()) GTEST_SKIP() << problem;
  layer(Gemm({}), "cublaslt", {{8, 40}, {40, 24}, {24}}, Layout::row_major);
  for (const Precision precision : {Precision::fp32, Precision::fp16})
    conv("im2col_gemm", {2, 12, 6, 5, 16, 3, 2, 1, 1, true}, precision);
  PackedCases random(gpu_seed());
  for (const WeightFormat& format : {WeightFormat{8, 0}, WeightFormat{4, 32}}) {
    GpuCase linear = random.product(format, {40, 301}, 301, 19);
    linear.inputs[0].layout = linear.output_layout = Layout::row_major;
    expect_gpu(WLinear({format, Clamp::relu()}), "unpacked_gemm", linear);
    WConvAttributes attributes{format, {}};
    Window& window = attributes.conv.window;
    window.rank = 2;
    window.stride = {2, 1, 1}, window.pad_begin = {1, 0, 0}, window.pad_end = {0, 2, 0};
    expect_gpu(WConv(attributes), "unpacked_gemm", random.product(format, {2, 72, 5, 4}, 72, 24));
  }
}

TEST(SmallShapesOfLibraries, Cudnn) {
  PIPIT_NEEDS_GPU();
  if (const std::string problem = cuda::cudnn_state().problem; !problem.empty()) GTEST_SKIP() << problem;
  conv("cudnn", {1, 16, 6, 5, 16, 3, 1, 1, 1, true}, Precision::fp16);
}

}  // namespace
}  // namespace pipit::internal::test
