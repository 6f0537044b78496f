// Single layers timed on a GPU, and cuDNN's convolutions as other programs call them.
#include "engine/runtime/layer_clock.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "compile/compile.h"
#include "layers/gpu_peers.h"
#include "layers/registry.h"
#include "tests/cuda/conformance.h"
#include "tests/cuda/seed.h"
#include "tests/support/run_graph.h"

namespace pipit::internal::test {
namespace {

ConvAttributes window_of(std::int64_t kernel, std::int64_t stride) {
  ConvAttributes attributes;
  attributes.window.rank = 2;
  attributes.window.kernel = {kernel, kernel, 1};
  attributes.window.stride = {stride, stride, 1};
  attributes.window.pad_begin = attributes.window.pad_end = {kernel / 2, kernel / 2, 0};
  return attributes;
}

std::shared_ptr<const ExecutionPlan> plan_of(const Shape& x, std::int64_t outputs, std::int64_t kernel,
                                             Precision precision) {
  std::mt19937 random(gpu_seed());
  GraphBuilder graph;
  const ValueId read = graph.add_input("x", TensorDesc{x});
  const ValueId w = graph.add_constant("w", random_tensor(Shape{outputs, x[1], kernel, kernel}, random));
  const ValueId b = graph.add_constant("b", random_tensor(Shape{outputs}, random));
  graph.mark_output(graph.add1("layer", std::make_shared<Conv>(window_of(kernel, 1)), {read, w, b}));
  CompileOptions options;
  options.planning.device = DeviceKind::cuda;
  options.planning.precision = precision;
  options.planning.threads = 1;
  return compile(graph.build(), options).plans[0];
}

std::vector<std::byte> session_output(const std::shared_ptr<const ExecutionPlan>& plan, const Tensor& x) {
  Session session(plan);
  const ConstTensorView view = x.view();
  const ConstTensorView y = session.run({&view, 1})[0];
  return {y.data, y.data + y.desc.bytes()};
}

std::vector<std::byte> clocked_output(ClockedLayer& layer, std::size_t bytes) {
  std::vector<std::byte> y(bytes);
  // In three parts, one of them empty, that do not come in order.
  const std::size_t half = bytes / 2;
  const ClockedLayer::Part parts[] = {{half, std::span(y).subspan(half)},
                                      {half, std::span(y).subspan(half, 0)},
                                      {0, std::span(y).first(half)}};
  layer.read(parts);
  return y;
}

TEST(GpuLayerClock, LayersThatShareTheirOperandsComputeWhatSessionsDo) {
  PIPIT_NEEDS_GPU();
  std::mt19937 random(gpu_seed());
  const std::unique_ptr<LayerClock> clock = make_cuda_layer_clock(0);
  for (const Shape& shape : {Shape{2, 8, 17, 19}, Shape{1, 3, 9, 7}}) {
    const auto x = std::make_shared<const Tensor>(random_tensor(shape, random));
    std::vector<std::shared_ptr<const ExecutionPlan>> plans;
    std::vector<std::unique_ptr<ClockedLayer>> layers;
    for (const auto& [outputs, kernel, precision] :
         {std::tuple(8, 3, Precision::fp32), std::tuple(40, 1, Precision::fp16),
          std::tuple(5, 5, Precision::fp16), std::tuple(8, 3, Precision::bf16)}) {
      plans.push_back(plan_of(shape, outputs, kernel, precision));
      layers.push_back(clock->clocked(plans.back(), x));
    }
    for (int turn = 0; turn < 3; ++turn) {
      for (const auto& layer : layers) {
        EXPECT_GT(layer->run_ms(OperandPlace::memory), 0);
        EXPECT_GT(layer->run_ms(OperandPlace::cache), 0);
        EXPECT_GT(layer->estimate_ms(), 0);
      }
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const std::vector<std::byte> expected = session_output(plans[i], *x);
      EXPECT_EQ(clocked_output(*layers[i], expected.size()), expected)
          << "layer " << i << ", seed " << gpu_seed();
    }
  }
}

// Sums of halves in double; `magnitude`: of the summands' magnitudes.
void expect_convolution(const ConvProblem& problem, const Tensor& x, const PeerConv& peer,
                        const std::vector<Half>& y) {
  const Window& window = problem.attributes.window;
  const Shape& from = problem.x;
  const Shape& to = peer.y.shape;
  const Shape& w = problem.weights->shape();
  const bool last = peer.y.layout == Layout::channels_last;
  const auto at = [&](const Shape& shape, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t v) {
    return static_cast<std::size_t>(last ? ((n * shape[2] + h) * shape[3] + v) * shape[1] + c
                                         : ((n * shape[1] + c) * shape[2] + h) * shape[3] + v);
  };
  const auto half = [](float value) { return double{to_float(to_half(value))}; };
  for (std::int64_t n = 0; n < to[0]; ++n) {
    for (std::int64_t o = 0; o < to[1]; ++o) {
      for (std::int64_t row = 0; row < to[2]; ++row) {
        for (std::int64_t column = 0; column < to[3]; ++column) {
          const double bias = half(problem.bias[static_cast<std::size_t>(o)]);
          double sum = 0, magnitude = std::abs(bias);
          for (std::int64_t c = 0; c < w[1]; ++c) {
            for (std::int64_t r = 0; r < w[2]; ++r) {
              for (std::int64_t s = 0; s < w[3]; ++s) {
                const std::int64_t h = row * window.stride[0] - window.pad_begin[0] + r;
                const std::int64_t v = column * window.stride[1] - window.pad_begin[1] + s;
                if (h < 0 || h >= from[2] || v < 0 || v >= from[3]) continue;
                const double product = double{to_float(x.values<Half>()[at(from, n, c, h, v)])} *
                                       half(problem.weights->values<float>()[static_cast<std::size_t>(
                                           ((o * w[1] + c) * w[2] + r) * w[3] + s)]);
                sum += product;
                magnitude += std::abs(product);
              }
            }
          }
          // Sums in f32, rounded to halves twice at most: before the bias is added, and after.
          const double terms = static_cast<double>(w[1] * w[2] * w[3] + 1);
          const double tolerance =
              magnitude * terms * 0x1p-23 + (std::abs(sum) + std::abs(sum + bias)) * 0x1p-11 + 0x1p-24;
          ASSERT_NEAR(to_float(y[at(to, n, o, row, column)]), sum + bias, tolerance)
              << peer.name << ", image " << n << ", output " << o << ", row " << row << ", column " << column
              << ", seed " << gpu_seed();
        }
      }
    }
  }
}

TEST(GpuPeers, CudnnsPlansComputeTheConvolution) {
  PIPIT_NEEDS_GPU();
  if (!cudnn_problem().empty()) GTEST_SKIP() << cudnn_problem();
  std::mt19937 random(gpu_seed());
  const std::unique_ptr<LayerClock> clock = make_cuda_layer_clock(0);
  struct Case {
    Shape x;
    std::int64_t outputs, kernel, stride;
  };
  // None that Winograd or Fourier could take: these round halves more often.
  for (const Case& c :
       {Case{{2, 3, 13, 11}, 8, 5, 2}, Case{{1, 16, 12, 12}, 32, 3, 2}, Case{{3, 1, 9, 9}, 3, 1, 1}}) {
    ConvProblem problem;
    problem.attributes = window_of(c.kernel, c.stride);
    problem.x = c.x;
    problem.weights =
        std::make_shared<const Tensor>(random_tensor(Shape{c.outputs, c.x[1], c.kernel, c.kernel}, random));
    const Tensor bias = random_tensor(Shape{c.outputs}, random);
    problem.bias.assign(bias.values<float>().begin(), bias.values<float>().end());
    for (const PeerCall call : {PeerCall::framework, PeerCall::best}) {
      std::size_t found = 0;
      for (const Layout layout : {Layout::channels_last, Layout::row_major}) {
        std::vector<PeerConv> peers;
        try {
          peers = cudnn_convolutions(problem, call, layout, 0);
        } catch (const UnsupportedError&) {
          continue;  // not every layout has a plan
        }
        found += peers.size();
        for (const PeerConv& peer : peers) {
          Tensor values(peer.x);
          std::uniform_real_distribution<float> uniform(-1, 1);
          for (Half& value : values.values<Half>()) value = to_half(uniform(random));
          const auto x = std::make_shared<const Tensor>(std::move(values));
          const std::unique_ptr<ClockedLayer> layer = clock->clocked(peer.kernel, x, peer.y);
          EXPECT_GT(layer->run_ms(OperandPlace::memory), 0);
          std::vector<Half> y(static_cast<std::size_t>(peer.y.elements()));
          const ClockedLayer::Part all{0, std::as_writable_bytes(std::span(y))};
          layer->read({&all, 1});
          expect_convolution(problem, *x, peer, y);
        }
      }
      EXPECT_GT(found, 0U) << c.x.str() << ", call " << static_cast<int>(call);
    }
  }
}

}  // namespace
}  // namespace pipit::internal::test
