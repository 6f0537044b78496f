// Time of every ResNet-50 convolution against what the hardware allows; disabled, for working on the kernels:
//   test_cuda --gtest_also_run_disabled_tests --gtest_filter='*ConvBench*'
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/cuda/runtime.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/ops/conv.h"
#include "tests/cuda/conformance.h"

namespace pipit::cuda {
namespace {

struct Bench {
  int channels, size, outputs, kernel, stride, count;
};

// ResNet-50 (stride in the 3x3): channels, input extent, outputs, kernel, stride, how often.
constexpr Bench kLayers[] = {
    {4, 224, 64, 7, 2, 1},     {64, 56, 64, 1, 1, 1},    {256, 56, 64, 1, 1, 2},   {64, 56, 64, 3, 1, 3},
    {64, 56, 256, 1, 1, 4},    {256, 56, 128, 1, 1, 1},  {128, 56, 128, 3, 2, 1},  {128, 28, 512, 1, 1, 4},
    {256, 56, 512, 1, 2, 1},   {512, 28, 128, 1, 1, 3},  {128, 28, 128, 3, 1, 3},  {512, 28, 256, 1, 1, 1},
    {256, 28, 256, 3, 2, 1},   {256, 14, 1024, 1, 1, 6}, {512, 28, 1024, 1, 2, 1}, {1024, 14, 256, 1, 1, 5},
    {256, 14, 256, 3, 1, 5},   {1024, 14, 512, 1, 1, 1}, {512, 14, 512, 3, 2, 1},  {512, 7, 2048, 1, 1, 3},
    {1024, 14, 2048, 1, 2, 1}, {2048, 7, 512, 1, 1, 2},  {512, 7, 512, 3, 1, 2},
};

ConvShape shape_of(const Bench& b, int batch) {
  ConvShape s;
  s.batch = batch, s.in_h = s.in_w = b.size, s.in_c = b.channels, s.out_c = b.outputs;
  s.kernel_h = s.kernel_w = b.kernel, s.stride_h = s.stride_w = b.stride, s.pad_h = s.pad_w = b.kernel / 2;
  s.out_h = s.out_w = (b.size + 2 * s.pad_h - b.kernel) / b.stride + 1;
  return s;
}

struct Buffers {
  DeviceBuffer x, weights, bias, y;
};

// Microseconds per launch: median of nine replays of a graph of 20.
double measure(const ConvShape& s, const ConvTile& tile, const Buffers& buffers, int processors) {
  const KeptDepth depth(s);
  const DepthOnGpu blocks(s, depth, tile.columns);
  ConvGemmArgs args = conv_gemm_args(s, depth, tile);
  blocks.set(args);
  args.overlap = pays_to_overlap(s, tile, processors);
  args.x = buffers.x.as<const Half>();
  args.weights = buffers.weights.as<const Half>();
  args.bias = buffers.bias.as<const float>();
  args.y = buffers.y.as<Half>();
  args.low = 0, args.high = HUGE_VALF;
  const int vector = s.in_c == 4 ? 4 : 8;
  PIPIT_CUDA(prepare_conv_gemm(tile, vector, args));
  const Stream stream;
  constexpr int kLaunches = 20;
  const Graph graph(stream, [&] {
    for (int i = 0; i < kLaunches; ++i) PIPIT_CUDA(launch_conv_gemm(tile, vector, args, stream));
  });
  graph.launch(stream);
  std::vector<double> times;
  const Event begin, end;
  for (int r = 0; r < 9; ++r) {
    begin.record(stream);
    graph.launch(stream);
    end.record(stream);
    stream.synchronize();
    times.push_back(end.since(begin));
  }
  std::nth_element(times.begin(), times.begin() + 4, times.end());
  return times[4] * 1000 / kLaunches;
}

// Candidates side by side, with residual and Relu as networks have them.
TEST(DISABLED_ConvBench, Candidates) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  struct Layer {
    std::int64_t channels, size, outputs, kernel, stride;
    bool residual;
  };
  constexpr Layer kCompared[] = {
      {3, 224, 64, 7, 2, false},  {64, 56, 64, 3, 1, false},   {64, 56, 256, 1, 1, false},
      {64, 56, 256, 1, 1, true},  {256, 56, 64, 1, 1, false},  {128, 28, 128, 3, 1, false},
      {128, 28, 512, 1, 1, true}, {256, 14, 256, 3, 1, false}, {256, 14, 1024, 1, 1, true},
      {512, 7, 512, 3, 1, true},  {512, 7, 2048, 1, 1, true}};
  for (const std::int64_t batch : {1, 32}) {
    for (const Layer& l : kCompared) {
      Window window;
      window.kernel = {l.kernel, l.kernel, 1}, window.stride = {l.stride, l.stride, 1};
      window.pad_begin = window.pad_end = {l.kernel / 2, l.kernel / 2, 0};
      const Shape x{batch, l.channels, l.size, l.size};
      const Shape y = window_output_shape(window, x, l.outputs);
      test::GpuCase test;
      test.precision = Precision::fp16;
      test.output_layout = Layout::channels_last;
      const Layout layout = l.channels < 8 ? Layout::row_major : Layout::channels_last;
      test.inputs = {{test::shared_random(x, random), layout},
                     {test::shared_random({l.outputs, l.channels, l.kernel, l.kernel}, random), {}, true},
                     {test::shared_random({l.outputs}, random), {}, true}};
      if (l.residual) test.inputs.push_back({test::shared_random(y, random), Layout::channels_last});
      const Conv layer(ConvAttributes{window, 1, Clamp::relu()});
      const double read = static_cast<double>(x.elements()) * 2 / (l.kernel == 1 ? l.stride * l.stride : 1);
      const double bytes = read + static_cast<double>(y.elements()) * (l.residual ? 4 : 2);
      const double flops = 2.0 * static_cast<double>(y.elements() * l.channels * l.kernel * l.kernel);
      std::string row = fmt::format("batch {} {}->{} {}x{} s{} @{}{}: floor {:.1f} us", batch, l.channels,
                                    l.outputs, l.kernel, l.kernel, l.stride, l.size,
                                    l.residual ? " + residual" : "", std::max(bytes / 4.27e6, flops / 753e6));
      for (const char* candidate : {"stem", "implicit_gemm", "cudnn"}) {
        if (test::gpu_refusal(layer, candidate, test)) continue;
        row += fmt::format(", {} {:.1f}", candidate, test::gpu_microseconds(layer, candidate, test));
      }
      fmt::print("{}\n", row);
    }
  }
}

TEST(DISABLED_ConvBench, ResNet50) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(test::gpu_seed());
  std::vector<Half> noise(std::size_t{1} << 25);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<Half> pattern(std::size_t{1} << 16);
  for (Half& h : pattern) h = to_half(uniform(random));
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = pattern[(i * 40503) & 0xFFFF];
  Buffers buffers{DeviceBuffer(noise.data(), noise.size() * 2),
                  DeviceBuffer(noise.data(), std::size_t{1} << 24), DeviceBuffer(noise.data(), 1 << 16),
                  DeviceBuffer(std::size_t{1} << 26)};
  PIPIT_CUDA(cudaMemset(buffers.bias.data(), 0, buffers.bias.bytes()));
  int processors = 0;
  PIPIT_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  bool clusters = false;
  PIPIT_CUDA(conv_gemm_has_clusters(clusters));
  if (!clusters) GTEST_SKIP() << "the sweep includes splits, which need clusters";
  for (const int batch : {1, 32}) {
    double total = 0, best_total = 0, floor_total = 0;
    fmt::print("batch {}\n", batch);
    for (const Bench& b : kLayers) {
      const ConvShape s = shape_of(b, batch);
      std::string row;
      ConvTile chosen = b.channels == 4 ? ConvTile{128, 64, 1} : choose_tile(s, processors, true);
      ConvTile best;
      double best_us = HUGE_VAL, chosen_us = 0;
      for (ConvTile tile : kConvTiles) {
        if (b.channels == 4 && !(tile == ConvTile{128, 64, 1})) continue;
        for (tile.splits = 1; tile.splits <= kMaxSplits; tile.splits *= 2) {
          if (tile.splits > s.steps(tile.columns)) break;
          const double us = measure(s, tile, buffers, processors);
          row += fmt::format(" {}x{}/{}:{:.1f}", tile.rows, tile.columns, tile.splits, us);
          if (tile == chosen) chosen_us = us;
          if (us < best_us) best_us = us, best = tile;
        }
      }
      const int channels = b.channels == 4 ? 3 : b.channels;
      const double flops = 2.0 * static_cast<double>(s.rows()) * s.out_c * channels * b.kernel * b.kernel;
      const double read = std::min(static_cast<double>(batch) * s.in_h * s.in_w,
                                   static_cast<double>(s.rows()) * b.kernel * b.kernel);
      const double bytes = 2.0 * (read * channels + static_cast<double>(s.rows()) * s.out_c +
                                  static_cast<double>(s.out_c) * channels * b.kernel * b.kernel);
      const double floor = std::max(bytes / 4.27e6, flops / 753e6);
      total += chosen_us * b.count, best_total += best_us * b.count, floor_total += floor * b.count;
      fmt::print(
          "{}->{} {}x{} s{} @{} x{}: {}x{}/{} {:.1f} us, best {}x{}/{} {:.1f}, floor {:.1f}, {:.0f} TFLOP/s "
          "|{}\n",
          b.channels, b.outputs, b.kernel, b.kernel, b.stride, b.size, b.count, chosen.rows, chosen.columns,
          chosen.splits, chosen_us, best.rows, best.columns, best.splits, best_us, floor,
          flops / best_us / 1e6, row);
    }
    fmt::print("batch {}: chosen {:.1f} us, best {:.1f} us, floor {:.1f} us\n", batch, total, best_total,
               floor_total);
  }
}

}  // namespace
}  // namespace pipit::cuda
