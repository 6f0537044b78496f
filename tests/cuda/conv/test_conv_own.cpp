// The convolutions of our own on the GPU against the CPU reference.
#include <algorithm>
#include <array>
#include <iostream>
#include <limits>
#include <set>

#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/evaluate.h"
#include "layers/ops/conv.h"
#include "tests/cuda/conv/conv_cases.h"
#include "tests/cuda/conv/pruned_weights.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {
namespace {

TEST(ConvImplicitGemm, RandomGeometries) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed());
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    expect_conv("implicit_gemm", random_geometry(random), Precision::fp16, random);
  }
}

TEST(ConvImplicitGemm, OddChannelsAndRowMajorInputsAreCopiedFirst) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 1);
  for (const std::int64_t channels : {1, 2, 3, 4, 5, 7, 8, 12, 24, 33}) {
    for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
      Geometry g = random_geometry(random);
      g.channels = channels;
      expect_conv("implicit_gemm", g, Precision::fp16, random, layout);
      if (HasFailure()) return;
    }
  }
  expect_conv("implicit_gemm", geometry(2, 3, 45, 64, 7, 2, 3), Precision::fp16, random, Layout::row_major);
}

TEST(ConvImplicitGemm, ChosenTilesAndSplits) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 2);
  struct Size {
    std::int64_t batch, channels, size, outputs, kernel;
  };
  // Few positions and a deep sum, where it pays to split; many positions of few and of many channels.
  constexpr Size kSizes[] = {{1, 200, 7, 72, 3},  {2, 512, 5, 136, 3},  {1, 16, 29, 24, 3},
                             {2, 64, 52, 40, 1},  {5, 16, 61, 56, 1},   {9, 16, 61, 72, 1},
                             {6, 24, 83, 130, 1}, {5, 16, 104, 260, 1}, {1, 256, 14, 256, 1},
                             {3, 128, 20, 120, 3}};
  for (const Size& size : kSizes) {
    Geometry g =
        geometry(size.batch, size.channels, size.size, size.outputs, size.kernel, 1, size.kernel / 2);
    g.residual = size.outputs % 16 == 8;
    g.activation = Clamp::relu();
    expect_conv("implicit_gemm", g, Precision::fp16, random);
    if (HasFailure()) return;
  }
}

// Tiles that only large products choose, on small ones: every compiled kernel, with and without a cluster, against
// the reference. Depths of one step, of as many as there are stages and of more; odd rows and columns beyond the last
// tile; with and without a residual; overlap on and off.
void check_every_kernel(const Geometry& g, bool clusters, bool pruned, std::mt19937& random) {
  const auto rounded = [&](const Shape& shape) {
    Tensor t = random_tensor(shape, random);
    for (float& v : t.values<float>()) v = to_float(to_half(v));
    return std::make_shared<const Tensor>(std::move(t));
  };
  const auto halves = [](const Tensor& t) {
    const Tensor last = to_layout(t.view(), Layout::channels_last);
    std::vector<Half> result;
    for (const float v : last.values<float>()) result.push_back(to_half(v));
    return cuda::DeviceBuffer(result.data(), result.size() * sizeof(Half));
  };
  const Shape x_shape{g.batch, g.channels, g.height, g.width};
  const Shape y_shape = window_output_shape(g.window, x_shape, g.outputs);
  const auto x = rounded(x_shape);
  const auto dense = rounded(weight_shape(g));
  const auto weights = pruned ? pruned_weights(*dense, 8, random) : dense;
  const auto residual = rounded(y_shape);
  std::vector<std::shared_ptr<const Tensor>> inputs{x, weights};
  if (g.residual) inputs = {x, weights, nullptr, residual};
  const Tensor expected = to_layout(
      evaluate(Conv(ConvAttributes{g.window, 1, Clamp::relu()}), inputs)[0].view(), Layout::channels_last);

  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  cuda::ConvShape s;
  s.batch = narrow(g.batch), s.in_c = narrow(g.channels), s.out_c = narrow(g.outputs);
  s.in_h = narrow(g.height), s.in_w = narrow(g.width);
  s.out_h = narrow(y_shape[2]), s.out_w = narrow(y_shape[3]);
  s.kernel_h = s.kernel_w = narrow(g.window.kernel[0]);
  s.stride_h = s.stride_w = narrow(g.window.stride[0]);
  s.pad_h = s.pad_w = narrow(g.window.pad_begin[0]);
  const cuda::DeviceBuffer input = halves(*x);
  const cuda::DeviceBuffer addend = halves(*residual);
  const cuda::KeptDepth depth(s, s.in_c, weights->values<float>());
  for (cuda::ConvTile tile : cuda::kConvTiles) {
    if (!depth.all() && !cuda::has_listed_kernel(tile)) continue;
    const int steps = depth.most_steps(tile.columns);
    const std::vector<std::uint16_t> packed =
        cuda::pack_conv_weights(s, depth, s.in_c, weights->values<float>().data(), tile.columns);
    const cuda::DepthOnGpu blocks(s, depth, tile.columns);
    const cuda::DeviceBuffer right(packed.data(), packed.size() * sizeof packed[0]);
    for (tile.splits = 1; tile.splits <= (clusters ? cuda::kMaxSplits : 1) && tile.splits <= steps;
         tile.splits *= 2) {
      cuda::ConvGemmArgs args = cuda::conv_gemm_args(s, depth, tile);
      blocks.set(args);
      const std::vector<float> zeros(static_cast<std::size_t>(args.column_tiles * tile.columns));
      const cuda::DeviceBuffer bias(zeros.data(), zeros.size() * sizeof(float));
      const cuda::DeviceBuffer output(expected.values<float>().size() * sizeof(Half));
      PIPIT_CUDA(cudaMemset(output.data(), 0xFF, output.bytes()));
      PIPIT_CUDA(cudaDeviceSynchronize());
      args.x = input.as<const Half>(), args.weights = right.as<const Half>();
      args.bias = bias.as<const float>(), args.y = output.as<Half>();
      if (g.residual) args.residual = addend.as<const Half>();
      args.low = 0, args.high = Clamp::relu().high;
      args.overlap = clusters && tile.splits != 2;
      const cuda::Stream stream;
      PIPIT_CUDA(cuda::prepare_conv_gemm(tile, 8, args));
      PIPIT_CUDA(cuda::launch_conv_gemm(tile, 8, args, stream));
      stream.synchronize();
      std::vector<Half> result(expected.values<float>().size());
      PIPIT_CUDA(cudaMemcpy(result.data(), output.data(), output.bytes(), cudaMemcpyDeviceToHost));
      std::vector<float> got;
      for (const Half v : result) got.push_back(to_float(v));
      EXPECT_LT(relative_error(got, expected.values<float>()), 1e-3)
          << tile.rows << "x" << tile.columns << ", " << tile.splits << " splits, " << steps << " steps, "
          << g.outputs << " outputs, residual " << g.residual << ", pruned " << pruned << ", seed "
          << gpu_seed();
    }
  }
}

TEST(ConvImplicitGemm, EveryKernelOnASmallProduct) {
  PIPIT_NEEDS_GPU();
  bool clusters = false;
  PIPIT_CUDA(cuda::conv_gemm_has_clusters(clusters));
  std::mt19937 random(gpu_seed() + 7);
  // 11 steps of depth; then 1 to 5.
  std::vector<Geometry> geometries{geometry(3, 72, 15, 152, 3, 2, 1)};
  for (const std::int64_t channels : {64, 96, 192, 256, 288}) {
    geometries.push_back(geometry(2, channels, 13, channels == 192 ? 101 : 136, 1, 1, 0));
  }
  // Blocks of 64 channels, each through all taps.
  geometries.push_back(geometry(2, 128, 13, 136, 3, 1, 1));
  geometries.push_back(geometry(1, 64, 17, 72, 3, 2, 1));
  for (Geometry& g : geometries) {
    for (const bool residual : {false, true}) {
      g.residual = residual;
      for (const bool pruned : {false, true}) check_every_kernel(g, clusters, pruned, random);
    }
  }
}

// Zeros that tiles leave out: of 8 channels of a tap as in memory, of more and of fewer, in every variant of a node.
TEST(ConvImplicitGemm, LeavesZerosOut) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 12);
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    Geometry g = random_geometry(random);
    if (i % 4 == 0) g.channels = std::uniform_int_distribution<std::int64_t>(1, 40)(random);
    if (i % 3 == 0) g.outputs += 128;  // several tiles, with lists of their own
    GpuCase test =
        make_case(g, Precision::fp16, random, i % 5 == 0 ? Layout::row_major : Layout::channels_last);
    const std::int64_t block = std::array{8, 16, 3}[static_cast<std::size_t>(i % 3)];
    test.inputs[1].tensor = pruned_weights(*test.inputs[1].tensor, block, random);
    const Conv layer(ConvAttributes{g.window, 1, g.activation});
    for (const std::string& way : gpu_variants(layer, "implicit_gemm", test)) {
      test.variant = way;
      expect_gpu(layer, "implicit_gemm", test);
      if (HasFailure()) return;
    }
  }
}

// Groups of any width, wider and narrower than a block of k, in every variant of a node.
TEST(ConvImplicitGemm, Groups) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 13);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    Geometry g = random_geometry(random);
    g.groups = pick(2, i % 3 == 0 ? 30 : 5);
    g.channels = g.groups * (i % 2 == 0 ? pick(2, 20) : 8 * pick(1, 3));
    g.outputs = g.groups * pick(1, 40);
    GpuCase test =
        make_case(g, Precision::fp16, random, i % 5 == 0 ? Layout::row_major : Layout::channels_last);
    if (i % 4 == 0) test.inputs[1].tensor = pruned_weights(*test.inputs[1].tensor, 8, random);
    const Conv layer(ConvAttributes{g.window, g.groups, g.activation});
    for (const std::string& way : gpu_variants(layer, "implicit_gemm", test)) {
      test.variant = way;
      expect_gpu(layer, "implicit_gemm", test);
      if (HasFailure()) return;
    }
  }
}

TEST(ConvImplicitGemm, Refuses) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 3);
  Geometry g = geometry(1, 16, 5, 16, 3, 1, 1);
  const Conv layer(ConvAttributes{g.window, 1, {}});
  EXPECT_EQ(gpu_refusal(layer, "implicit_gemm", make_case(g, Precision::fp16, random)), std::nullopt);
  expect_refused(gpu_refusal(layer, "implicit_gemm", make_case(g, Precision::fp32, random)), "fp16");
  GpuCase run_time = make_case(g, Precision::fp16, random);
  run_time.inputs[1].constant = false;
  expect_refused(gpu_refusal(layer, "implicit_gemm", run_time), "run time");
  g.groups = 16;
  const Conv grouped(ConvAttributes{g.window, 16, {}});
  expect_refused(gpu_refusal(grouped, "implicit_gemm", make_case(g, Precision::fp16, random)), "depthwise");
  expect_refused(
      gpu_refusal(layer, "depthwise", make_case(geometry(1, 16, 5, 16, 3, 1, 1), Precision::fp16, random)),
      "depthwise");
}

// The fall-back for an f32 image.
TEST(ConvImplicitGemm, ReadsAnF32Image) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 11);
  for (const std::int64_t channels : {1, 3, 4, 8, 12}) {
    for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
      const Geometry g = geometry(2, channels, 19, 40, 3, 2, 1);
      GpuCase test = make_case(g, Precision::fp16, random, layout);
      test.keep_input_f32 = true;
      expect_gpu(Conv(ConvAttributes{g.window, 1, {}}), "implicit_gemm", test);
      if (HasFailure()) return;
    }
  }
}

class ConvDirect : public ::testing::TestWithParam<Precision> {};

TEST_P(ConvDirect, RandomGeometriesAndGroups) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 4);
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    Geometry g = random_geometry(random);
    if (i % 2 == 1) {  // groups of 1 to 7 channels: both the wide and the narrow loads
      const auto pick = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
      };
      g.groups = pick(1, 5);
      g.channels = g.groups * pick(1, 8);
      g.outputs = g.groups * pick(1, 7);
    }
    expect_conv("direct", g, GetParam(), random, i % 3 == 0 ? Layout::row_major : Layout::channels_last);
  }
}

TEST_P(ConvDirect, Depthwise) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 5);
  for (const std::int64_t channels : {2, 7, 8, 20, 32, 96}) {
    for (int i = 0; i < 3 && !HasFailure(); ++i) {
      Geometry g = random_geometry(random);
      g.channels = g.outputs = g.groups = channels;
      expect_conv("depthwise", g, GetParam(), random);
      expect_conv("direct", g, GetParam(), random);
    }
  }
}

// Both windows and strides, few and many columns and rows for a thread, any padding.
TEST(ConvDepthwiseQuads, RandomGeometries) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 9);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 48 && !HasFailure(); ++i) {
    const std::int64_t window = 3 + i % 3 * 2, stride = 1 + i / 3 % 2;
    Geometry g = geometry(pick(1, 3), 4 * pick(1, 40), 1, 1, window, stride, 0);
    if (i % 4 == 0) g.batch = pick(16, 40);
    g.height = pick(1, 40), g.width = pick(1, 40);
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const std::int64_t extent = axis == 0 ? g.height : g.width;
      g.window.pad_begin[axis] = pick(0, 3);
      g.window.pad_end[axis] = std::max(pick(0, 3), window - extent - g.window.pad_begin[axis]);
    }
    g.outputs = g.groups = g.channels;
    g.bias = pick(0, 3) != 0;
    if (pick(0, 1) == 1) g.activation = pick(0, 1) == 1 ? Clamp::relu() : Clamp{-0.5F, 0.7F};
    expect_conv("depthwise_quads", g, Precision::fp16, random);
  }
}

TEST(ConvDepthwiseQuads, Refuses) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 10);
  const auto refusal = [&](std::int64_t channels, std::int64_t window, std::int64_t stride,
                           Precision precision) {
    Geometry g = geometry(1, channels, 9, channels, window, stride, 1);
    g.groups = channels;
    return gpu_refusal(Conv(ConvAttributes{g.window, channels, {}}), "depthwise_quads",
                       make_case(g, precision, random));
  };
  EXPECT_EQ(refusal(16, 3, 1, Precision::fp16), std::nullopt);
  expect_refused(refusal(16, 3, 1, Precision::fp32), "f16");
  expect_refused(refusal(18, 3, 1, Precision::fp16), "multiples of 4");
  expect_refused(refusal(16, 9, 1, Precision::fp16), "9x9");
  expect_refused(refusal(16, 3, 3, Precision::fp16), "strides");
}

TEST_P(ConvDirect, OneAndThreeDimensions) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 6);
  for (const int rank : {1, 3}) {
    Window w;
    w.rank = rank;
    const Shape x = rank == 1 ? Shape{2, 6, 19} : Shape{2, 6, 5, 6, 7};
    const Shape weights = rank == 1 ? Shape{8, 3, 3} : Shape{8, 3, 3, 3, 3};
    for (int i = 0; i < rank; ++i) {
      const auto at = static_cast<std::size_t>(i);
      w.kernel[at] = 3, w.stride[at] = 1 + i % 2, w.pad_begin[at] = 1, w.pad_end[at] = 2;
    }
    GpuCase test;
    test.precision = GetParam();
    test.output_layout = Layout::channels_last;
    test.inputs.push_back({shared_random(x, random), Layout::channels_last});
    test.inputs.push_back({shared_random(weights, random), Layout::row_major, true});
    expect_gpu(Conv(ConvAttributes{w, 2, {}}), "direct", test);
  }
}

// What is constant, the weights, the bias, both or none of them; weights in both layouts.
TEST_P(ConvDirect, WeightsAndBiasesAtRunTime) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed() + 11);
  for (int i = 0; i < 24 && !HasFailure(); ++i) {
    Geometry g = random_geometry(random);
    const auto pick = [&](std::int64_t low, std::int64_t high) {
      return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    g.groups = pick(1, 4);
    g.channels = g.groups * pick(1, 8);
    g.outputs = g.groups * pick(1, 7);
    g.bias = true;
    GpuCase test = make_case(g, GetParam(), random, i % 2 == 0 ? Layout::row_major : Layout::channels_last);
    test.inputs[1].constant = i % 3 == 0;
    test.inputs[2].constant = i % 3 == 1;
    if (!test.inputs[1].constant && i % 4 < 2) test.inputs[1].layout = Layout::channels_last;
    const Conv conv(ConvAttributes{g.window, g.groups, g.activation});
    expect_gpu(conv, "direct", test);
    expect_refused(gpu_refusal(conv, "depthwise", test), "run time");
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, ConvDirect, ::testing::Values(Precision::fp32, Precision::fp16),
                         [](const auto& precision) { return std::string(precision_name(precision.param)); });

}  // namespace
}  // namespace pipit::internal::test
