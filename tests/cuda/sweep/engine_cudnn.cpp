#include <fmt/format.h>

#include "engine/graph/half.h"
#include "layers/cuda/libraries/cudnn_graph.h"
#include "layers/cuda/libraries/epilogue.h"
#include "tests/cuda/sweep/engines.h"

namespace pipit::sweep {

#if PIPIT_HAVE_CUDNN

namespace {

using cuda::CudnnConv;
using cuda::CudnnPlan;

CudnnConv::Tensor tensor_of(const Shape& shape, bool channels_last) {
  const std::int64_t c = shape[1], h = shape[2], w = shape[3];
  if (channels_last) return {{shape[0], c, h, w}, {h * w * c, 1, w * c, c}};
  return {{shape[0], c, h, w}, {c * h * w, h * w, w, 1}};
}

CudnnConv conv_of(const Configuration& c, bool channels_last, bool bias) {
  CudnnConv conv;
  conv.dtype = conv.y_dtype = DType::f16;
  conv.x = tensor_of(c.x(), channels_last);
  conv.w = tensor_of(c.weights(), channels_last);
  conv.y = tensor_of(c.y(), channels_last);
  conv.stride = {c.stride, c.stride};
  conv.dilation = {1, 1};
  conv.pad_begin = conv.pad_end = {c.kernel / 2, c.kernel / 2};
  conv.bias = bias;
  return conv;
}

cuda::DeviceBuffer random_halves(std::int64_t count) {
  std::vector<Half> values(static_cast<std::size_t>(count));
  unsigned state = 1;
  for (Half& v : values)
    v = to_half(static_cast<float>((state = state * 1664525U + 1013904223U) >> 8) * 0x1p-23F - 1);
  return {values.data(), values.size() * sizeof(Half)};
}

Times time_plan(const Configuration& c, const CudnnPlan& plan, bool channels_last, bool fused, Timer& timer) {
  const cuda::DeviceBuffer weights = random_halves(c.weights().elements());
  // One for every row of y as the addition sees it: positions, or images and channels.
  const cuda::DeviceBuffer bias = random_halves(c.batch * c.out_c);
  const Shape y_shape = c.y();
  const std::int64_t positions = y_shape[2] * y_shape[3];
  cuda::CudnnOperands operands;
  operands.w = weights.data();
  operands.bias = fused ? bias.data() : nullptr;
  operands.workspace = timer.scratch(plan.workspace_bytes() + 256);
  return timer.measure(DType::f16, static_cast<std::size_t>(c.x().elements()) * 2,
                       static_cast<std::size_t>(y_shape.elements()) * 2,
                       [&](const std::byte* x, std::byte* y, cudaStream_t stream) {
                         cuda::CudnnOperands now = operands;
                         now.x = x;
                         now.y = y;
                         plan.run(now, stream);
                         if (fused) return;
                         if (channels_last) {
                           cuda::apply_epilogue(y, DType::f16, c.batch * positions, c.out_c,
                                                {bias.data(), 0, 1, 1.0F}, {}, {}, stream);
                         } else {
                           cuda::apply_epilogue(y, DType::f16, c.batch * c.out_c, positions,
                                                {bias.data(), 1, 0, 1.0F}, {}, {}, stream);
                         }
                       });
}

}  // namespace

std::vector<Measured> measure_cudnn(const Configuration& c, Timer& timer, int proposals) {
  std::vector<Measured> results;
  if (!cuda::cudnn_state().problem.empty()) return results;
  for (const bool channels_last : {true, false}) {
    const std::string layout = channels_last ? "nhwc" : "nchw";
    const auto fastest = [&](const std::string& engine, bool fused, int count) {
      Measured best{engine, "", {}};
      for (int number = 0; number < count; ++number) {
        const auto plan = CudnnPlan::find(conv_of(c, channels_last, fused), best.kernel, number);
        if (!plan) break;
        const Times times = time_plan(c, *plan, channels_last, fused, timer);
        if (best.times.memory == 0 || times.memory < best.times.memory)
          best = {engine, fmt::format("plan {}", number), times};
      }
      results.push_back(best);
    };
    fastest("cudnn " + layout, false, 1);
    if (proposals > 0) fastest("cudnn fused " + layout, true, proposals);
  }
  return results;
}

#else

std::vector<Measured> measure_cudnn(const Configuration&, Timer&, int) {
  return {};
}

#endif

}  // namespace pipit::sweep
