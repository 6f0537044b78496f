// INT8 convolutions on the GPU against the CPU's scalar specification, bit for bit.
#include <array>
#include <set>

#include "engine/cuda/library.h"
#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/pipelined_gemm/launch.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/evaluate.h"
#include "layers/ops/qconv.h"
#include "layers/registry.h"
#include "tests/cuda/conv/qconv_cases.h"

namespace pipit::internal::test {
namespace {

// Why "pipelined_gemm" cannot run here; empty where it can.
std::string pipelined_problem() {
  return cuda::has_hopper_kernels() ? "" : "not a Hopper GPU";
}

TEST(QConv, DirectTakesEveryTypeGroupAndLayout) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(210);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const std::int64_t groups = numbers.coin() ? 1 : numbers.pick(1, 4);
    ConvCase c = random_case(numbers, i % 3 == 0 ? 4 * numbers.pick(1, 6) : numbers.pick(1, 21),
                             numbers.pick(1, 20), groups);
    c.attributes.x = kTypes[numbers.pick(0, 3)];
    c.attributes.residual = kTypes[numbers.pick(0, 3)];
    const float scale = c.attributes.y.scale;
    c.attributes.y = numbers.pick(0, 3) == 0 ? kReal : kTypes[numbers.pick(0, 3)];
    c.attributes.y.scale = scale;
    expect_conv("direct", c, numbers, numbers.coin() ? kLast : Layout::row_major,
                numbers.coin() ? Precision::fp32 : Precision::fp16);
  }
}

TEST(QConv, DirectInOneAndThreeDimensions) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(211);
  for (const int rank : {1, 3}) {
    ConvCase c;
    Window& w = c.attributes.conv.window;
    w.rank = rank;
    for (int i = 0; i < rank; ++i) {
      const auto at = static_cast<std::size_t>(i);
      w.kernel[at] = 3, w.stride[at] = 1 + i % 2, w.pad_begin[at] = 1, w.pad_end[at] = 2;
    }
    c.x = rank == 1 ? Shape{2, 6, 19} : Shape{2, 6, 5, 6, 7};
    c.weights = rank == 1 ? Shape{8, 3, 3} : Shape{8, 3, 3, 3, 3};
    c.attributes.conv.groups = 2;
    c.attributes.x = kOdd, c.attributes.y = kI8;
    c.attributes.weight_scales = {0.02F};
    fit_output_scale(c);
    expect_conv("direct", c, numbers);
  }
}

// Plans that do not round as specified are refused; where one is found, it gives the specification's bits.
TEST(QConv, Cudnn) {
  PIPIT_NEEDS_GPU();
  PIPIT_NEEDS_LIBRARY(cuda::cudnn_state());
  Numbers numbers(218);
  for (const auto& [channels, filters] : {std::pair{16, 32}, {64, 48}, {256, 128}, {20, 12}}) {
    for (int i = 0; i < 4 && !HasFailure(); ++i) {
      ConvCase c = random_case(numbers, channels, filters, 1);
      c.residual = i % 2 == 0;
      if (i == 3) c.attributes.y = kReal;
      expect_conv("cudnn", c, numbers);
    }
  }
}

// Pixels that fill 16 bytes, or with their last 8 do not, and any others.
std::int64_t some_channels(Numbers& numbers, int number) {
  if (number % 4 == 3) return numbers.pick(1, 70);
  return 16 * numbers.pick(1, 6) - (number % 4 == 2 ? 8 : 0);
}

TEST(QConv, ImplicitGemmOnRandomGeometries) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(213);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const std::int64_t channels = some_channels(numbers, i);
    ConvCase c =
        random_case(numbers, channels, numbers.coin() ? 16 * numbers.pick(1, 9) : numbers.pick(1, 70), 1);
    if (i % 5 == 0) keep_real(c);
    if (c.attributes.y.quantized()) maybe_follow(c, numbers);
    const Precision precision = i % 10 == 0 ? Precision::fp16 : Precision::fp32;
    expect_conv("implicit_gemm", c, numbers, i % 7 == 0 ? Layout::row_major : kLast, precision);
    if (channels % 16 == 0 && c.attributes.y.quantized() && pipelined_problem().empty())
      expect_conv("pipelined_gemm", c, numbers, kLast, precision);
  }
}

// Zeros that tiles leave out: of 16 channels of a tap as in memory, of more and of fewer, in every variant of a node.
TEST(QConv, ImplicitGemmLeavesZerosOut) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(219);
  for (int i = 0; i < 30 && !HasFailure(); ++i) {
    ConvCase c =
        random_case(numbers, some_channels(numbers, i), numbers.pick(1, 70) + (i % 3 == 0 ? 128 : 0), 1);
    c.pruned_block = i % 2 == 0 ? 16 : numbers.pick(1, 40);
    if (i % 5 == 0) keep_real(c);
    if (c.attributes.y.quantized()) maybe_follow(c, numbers);
    std::set<std::string> ways;
    expect_conv("implicit_gemm", c, numbers, i % 7 == 0 ? Layout::row_major : kLast, Precision::fp32, &ways);
  }
}

// Groups of any width, wider and narrower than a block of k.
TEST(QConv, ImplicitGemmOnGroups) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(225);
  for (int i = 0; i < 30 && !HasFailure(); ++i) {
    ConvCase c = random_case(numbers, i % 2 == 0 ? numbers.pick(2, 40) : 8 * numbers.pick(1, 5),
                             numbers.pick(1, 40), numbers.pick(2, i % 3 == 0 ? 24 : 5));
    if (i % 4 == 0) c.pruned_block = 16;
    if (i % 5 == 0) keep_real(c);
    if (c.attributes.y.quantized()) maybe_follow(c, numbers);
    std::set<std::string> ways;
    expect_conv("implicit_gemm", c, numbers, i % 7 == 0 ? Layout::row_major : kLast, Precision::fp32, &ways);
  }
}

// Kernel, stride, channels, filters and image of what networks are made of.
TEST(QConv, ImplicitGemmOnLayersOfNetworks) {
  PIPIT_NEEDS_GPU();
  struct Layer {
    std::int64_t batch, kernel, stride, channels, filters, size;
    bool residual;
  };
  const Layer layers[] = {
      {2, 1, 1, 64, 64, 56, false},   {2, 1, 1, 64, 256, 56, true},     {1, 3, 1, 64, 64, 56, true},
      {1, 3, 2, 128, 128, 56, false}, {3, 1, 2, 256, 512, 28, false},   {1, 3, 1, 512, 512, 7, true},
      {8, 1, 1, 2048, 512, 7, false}, {32, 1, 1, 2048, 1000, 1, false}, {1, 1, 1, 512, 1000, 13, false},
      {9, 1, 1, 128, 72, 61, false},  {6, 1, 1, 256, 144, 83, true},    {4, 1, 1, 512, 2048, 7, true}};
  Numbers numbers(214);
  for (const Layer& layer : layers) {
    ConvCase c;
    set_window(c.attributes.conv.window, layer.kernel, layer.stride, 1, layer.kernel / 2);
    c.x = Shape{layer.batch, layer.channels, layer.size, layer.size};
    c.weights = Shape{layer.filters, layer.channels, layer.kernel, layer.kernel};
    c.attributes.x = c.attributes.y = c.attributes.residual = kI8;
    c.attributes.weight_scales = {0.02F};
    c.residual = layer.residual;
    c.largest_weight =
        layer.residual ? 20 : 127;  // sums below and beyond what floats hold without a conversion
    fit_output_scale(c);
    c.attributes.conv.activation = Clamp::relu();
    for (const bool follower : {false, true}) {
      if (follower) c.follower.emplace(QUnaryAttributes{{UnaryKind::silu}, c.attributes.y, kI8});
      expect_conv("implicit_gemm", c, numbers);
      if (pipelined_problem().empty()) expect_conv("pipelined_gemm", c, numbers);
    }
    c.follower.reset();
    // Real results, as of the last convolution before an average that is kept in floating point.
    if (layer.size > 13) continue;
    keep_real(c);
    expect_conv("implicit_gemm", c, numbers, kLast, numbers.coin() ? Precision::fp16 : Precision::fp32);
    if (HasFailure()) return;
  }
}

// Sums at both ends of what two signed bytes can reach; every output saturates or is the largest sum itself.
TEST(QConv, ImplicitGemmOnExtremeOperands) {
  PIPIT_NEEDS_GPU();
  for (const int x : {-127, 127}) {
    for (const int w : {-127, 127}) {
      for (const Quantization& y : {kI8, kReal}) {
        QConvAttributes attributes;
        set_window(attributes.conv.window, 3, 1, 1, 1);
        attributes.x = kI8, attributes.y = y;
        attributes.weight_scales = {0.037F};
        GpuCase test = exact_case();
        const auto filled = [](const Shape& shape, int value) {
          Tensor tensor(TensorDesc{shape, DType::i8});
          for (std::int8_t& v : tensor.values<std::int8_t>()) v = static_cast<std::int8_t>(value);
          return std::make_shared<const Tensor>(std::move(tensor));
        };
        test.inputs = {{filled({1, 512, 7, 9}, x), kLast},
                       {filled({40, 512, 3, 3}, w), Layout::row_major, true}};
        expect_gpu(QConv(attributes), "implicit_gemm", test);
        if (y.quantized() && pipelined_problem().empty())
          expect_gpu(QConv(attributes), "pipelined_gemm", test);
        expect_gpu(QConv(attributes), "direct", test);
      }
    }
  }
}

TEST(QConv, ImplicitGemmRefuses) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(215);
  const auto refusal = [&](const ConvCase& c) {
    GpuCase test = exact_case();
    test.inputs = {{numbers.quantized(c.x, c.attributes.x), kLast},
                   {numbers.integers<std::int8_t>(c.weights, -9, 9), Layout::row_major, true}};
    return gpu_refusal(QConv(c.attributes), "implicit_gemm", test);
  };
  ConvCase c = random_case(numbers, 16, 16, 1);
  EXPECT_EQ(refusal(c), std::nullopt);
  c.attributes.x = kU8;
  EXPECT_TRUE(refusal(c).has_value());
  c.attributes.x = kI8, c.attributes.y = kOddI8;
  EXPECT_TRUE(refusal(c).has_value());
  EXPECT_TRUE(refusal(random_case(numbers, 1, 8, 2)).has_value()) << "depthwise";
  EXPECT_EQ(refusal(random_case(numbers, 8, 8, 2)), std::nullopt);
}

// Tiles that only large products choose, on a small one: every compiled kernel, with and without a cluster, with small
// and large sums, with and without a residual.
void check_every_kernel(std::int64_t channels, std::int64_t filters, std::int64_t kernel, int largest,
                        bool residual, bool clusters, bool pruned, Numbers& numbers) {
  ConvCase c;
  set_window(c.attributes.conv.window, kernel, 1, 1, kernel / 2);
  c.x = Shape{2, channels, 13, 11};
  c.weights = Shape{filters, channels, kernel, kernel};
  c.attributes.x = c.attributes.y = c.attributes.residual = kI8;
  c.attributes.weight_scales = {0.02F};
  fit_output_scale(c);
  const auto x = numbers.quantized(c.x, kI8);
  const auto dense = numbers.integers<std::int8_t>(c.weights, -largest, largest);
  const auto weights = pruned ? pruned_weights(*dense, 16, numbers.random) : dense;
  const auto bias = numbers.integers<std::int32_t>(Shape{filters}, -3000, 3000);
  const auto addend = residual ? numbers.quantized(output_of(c), kI8) : nullptr;
  const Tensor expected = to_layout(
      evaluate(QConv(c.attributes), std::vector<std::shared_ptr<const Tensor>>{x, weights, bias, addend})[0]
          .view(),
      kLast);
  const auto upload = [](const Tensor& tensor) {
    const Tensor last = to_layout(tensor.view(), tensor.shape().rank() == 4 ? kLast : Layout::row_major);
    return cuda::DeviceBuffer(last.view().data, last.desc().bytes());
  };
  const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
  cuda::ConvShape s;
  s.batch = 2, s.in_c = narrow(ceil_div(channels, 16) * 8), s.out_c = narrow(filters);
  s.unstored = s.in_c - narrow(channels / 2);
  s.in_h = s.out_h = 13, s.in_w = s.out_w = 11;
  s.kernel_h = s.kernel_w = narrow(kernel), s.pad_h = s.pad_w = narrow(kernel / 2);
  const cuda::DeviceBuffer input = upload(*x);
  const cuda::DeviceBuffer added = residual ? upload(*addend) : cuda::DeviceBuffer();
  const cuda::KeptDepth depth(s, narrow(channels), weights->values<std::int8_t>());
  for (cuda::ConvTile tile : cuda::kConvTiles) {
    if ((!depth.all() && !cuda::has_listed_kernel(tile)) || !cuda::has_kernel(s, tile)) continue;
    const int steps = depth.most_steps(tile.columns);
    const std::vector<std::int8_t> packed = cuda::pack_qconv_weights(
        s, depth, narrow(channels), weights->values<std::int8_t>().data(), tile.columns);
    const cuda::DepthOnGpu blocks(s, depth, tile.columns);
    const cuda::DeviceBuffer right(packed.data(), packed.size());
    for (tile.splits = 1; tile.splits <= (clusters ? cuda::kMaxSplits : 1) && tile.splits <= steps;
         tile.splits *= 2) {
      for (const bool small : {false, true}) {
        if (small && channels * kernel * kernel * 128 * largest + 3000 >= cuda::kSmallSum) continue;
        cuda::ConvGemmArgs args = cuda::conv_gemm_args(s, depth, tile);
        blocks.set(args);
        const auto columns = static_cast<std::size_t>(args.column_tiles * tile.columns);
        std::vector<std::int32_t> biases(bias->values<std::int32_t>().begin(),
                                         bias->values<std::int32_t>().end());
        biases = cuda::in_packed_order(biases, columns);
        const std::vector<float> multipliers =
            cuda::in_packed_order(requantization_multipliers(c.attributes, filters), columns);
        const cuda::DeviceBuffer bias_buffer(biases.data(), columns * 4);
        const cuda::DeviceBuffer multiplier_buffer(multipliers.data(), columns * 4);
        const cuda::DeviceBuffer output(expected.desc().bytes());
        PIPIT_CUDA(cudaMemset(output.data(), 0x81, output.bytes()));
        PIPIT_CUDA(cudaDeviceSynchronize());
        args.x = input.data(), args.weights = right.data(), args.bias = bias_buffer.data();
        args.multipliers = multiplier_buffer.as<const float>(), args.y = output.data();
        args.residual = residual ? added.data() : nullptr;
        args.residual_scale = kI8.scale / c.attributes.y.scale;
        args.low = -127, args.high = 127, args.small = small;
        args.whole_bounds = cuda::PairBounds::of({-127, 127});
        args.overlap = clusters && tile.splits != 2;
        const cuda::Stream stream;
        PIPIT_CUDA(cuda::prepare_qconv_gemm(tile, args));
        PIPIT_CUDA(cuda::launch_qconv_gemm(tile, args, stream));
        stream.synchronize();
        std::vector<std::int8_t> result(expected.desc().bytes());
        PIPIT_CUDA(cudaMemcpy(result.data(), output.data(), output.bytes(), cudaMemcpyDeviceToHost));
        const auto want = expected.values<std::int8_t>();
        EXPECT_TRUE(std::equal(result.begin(), result.end(), want.begin()))
            << tile.rows << "x" << tile.columns << ", " << tile.splits << " splits, " << steps << " steps, "
            << filters << " outputs, residual " << residual << ", small sums " << small << ", pruned "
            << pruned << ", seed " << gpu_seed();
      }
    }
  }
}

TEST(QConv, EveryImplicitGemmKernelOnASmallProduct) {
  PIPIT_NEEDS_GPU();
  bool clusters = false;
  PIPIT_CUDA(cuda::conv_gemm_has_clusters(clusters));
  Numbers numbers(216);
  struct Size {
    std::int64_t channels, filters, kernel;
    int largest;
  };
  // Depths of one step, of as many as there are stages and of more; rows of y with and without 16-byte groups; pixels
  // that end with 8 bytes.
  for (const Size& size : {Size{64, 144, 1, 100},
                           {128, 48, 1, 100},
                           {384, 136, 1, 40},
                           {512, 64, 1, 127},
                           {144, 152, 3, 127},
                           {64, 80, 3, 20},
                           {576, 33, 1, 50},
                           {72, 144, 1, 100},
                           {440, 136, 1, 40},
                           {104, 40, 3, 20}}) {
    for (const bool residual : {false, true}) {
      for (const bool pruned : {false, true}) {
        check_every_kernel(size.channels, size.filters, size.kernel, size.largest, residual, clusters, pruned,
                           numbers);
        if (HasFailure()) return;
      }
    }
  }
}

// Short enough for tools that make kernels hundreds of times slower.
TEST(SmallShapes, Int8) {
  PIPIT_NEEDS_GPU();
  Numbers numbers(218);
  ConvCase c = random_case(numbers, 48, 72, 1);
  set_window(c.attributes.conv.window, 3, 1, 1, 1);
  c.x = Shape{2, 48, 9, 7};
  c.weights = Shape{72, 48, 3, 3};
  for (const bool residual : {false, true}) {
    c.residual = residual;
    for (const char* candidate : {"implicit_gemm", "direct"}) expect_conv(candidate, c, numbers);
    if (pipelined_problem().empty()) {  // as for resident_gemm
      for (const char* candidate : {"pipelined_gemm", "resident_gemm", "spread_gemm"})
        expect_conv(candidate, c, numbers);
    }
    ConvCase real = c;
    real.attributes.y = kReal;
    expect_conv("implicit_gemm", real, numbers);
  }
  c = random_case(numbers, 3, 40, 1);
  expect_conv("stem", c, numbers, Layout::row_major);
  for (const std::int64_t channels : {1, 8, 20, 32}) {
    std::set<std::string> ways;
    expect_conv("stem", random_case(numbers, channels, 2 * channels + 3, 1), numbers, kLast, Precision::fp32,
                &ways);
  }
  expect_conv("depthwise", random_case(numbers, 1, 1, 24), numbers);
  c = random_case(numbers, 40, 72, 1);
  set_window(c.attributes.conv.window, 1, 1, 1, 0);
  c.weights = Shape{72, 40, 1, 1};
  c.largest_weight = 60;
  for (const bool residual : {false, true}) {
    c.residual = residual;
    expect_conv("narrow_gemm", c, numbers);
  }
  c = random_case(numbers, 48, 72, 1);
  c.pruned_block = 16;
  expect_conv("implicit_gemm", c, numbers);
}

}  // namespace
}  // namespace pipit::internal::test
