// cuDNN's convolutions as other programs call them.
#include "layers/gpu_peers.h"

#include <fmt/format.h>

#include "engine/cuda/runtime.h"
#include "engine/platform/device.h"
#include "layers/cuda/device/constants.h"
#include "layers/cuda/libraries/cudnn_graph.h"
#include "layers/cuda/libraries/lt_gemm.h"

namespace pipit::internal {

#if PIPIT_HAVE_CUDNN

namespace {

using cuda::CudnnConv;
using cuda::CudnnPlan;
using cuda::DeviceBuffer;

CudnnConv::Tensor extents_of(const Shape& shape, Layout layout) {
  const std::int64_t c = shape[1], h = shape[2], w = shape[3];
  if (layout == Layout::channels_last) return {{shape[0], c, h, w}, {h * w * c, 1, w * c, c}};
  return {{shape[0], c, h, w}, {c * h * w, h * w, w, 1}};
}

// What the plans of one layout share.
struct PeerOperands {
  DeviceBuffer weights, bias;
  // y as the kernel that adds the bias sees it: pixels of channels, or the planes of all images.
  std::int64_t rows = 0, columns = 0;
  cuda::Addend addend;
};

class PeerKernel final : public Kernel {
 public:
  PeerKernel(std::shared_ptr<const CudnnPlan> plan, std::shared_ptr<const PeerOperands> operands, bool fused)
      : plan_(std::move(plan)), operands_(std::move(operands)), fused_(fused) {}

  std::size_t scratch_bytes() const override { return plan_->workspace_bytes(); }
  std::size_t packed_bytes() const override { return operands_->weights.bytes() + operands_->bias.bytes(); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    cuda::CudnnOperands operands;
    operands.x = inputs[0].data;
    operands.w = operands_->weights.data();
    operands.bias = fused_ ? operands_->bias.data() : nullptr;
    operands.y = outputs[0].data;
    operands.workspace = context.scratch;
    plan_->run(operands, stream);
    if (!fused_)
      cuda::apply_epilogue(outputs[0].data, DType::f16, operands_->rows, operands_->columns,
                           operands_->addend, {}, {}, stream);
  }

 private:
  std::shared_ptr<const CudnnPlan> plan_;
  std::shared_ptr<const PeerOperands> operands_;
  bool fused_;
};

std::shared_ptr<const PeerOperands> operands_of(const ConvProblem& problem, const Shape& y, Layout layout) {
  const auto made = std::make_shared<PeerOperands>();
  const bool last = layout == Layout::channels_last;
  made->weights = cuda::upload(to_layout(problem.weights->view(), layout).values<float>(), DType::f16);
  std::vector<float> bias = problem.bias;
  // Consecutive for all images, where planes are rows; a fused plan reads the first ones.
  for (std::int64_t image = 1; !last && image < y[0]; ++image)
    bias.insert(bias.end(), problem.bias.begin(), problem.bias.end());
  made->bias = cuda::upload(bias, DType::f16);
  const std::int64_t pixels = y[2] * y[3];
  made->rows = last ? y[0] * pixels : y[0] * y[1];
  made->columns = last ? y[1] : pixels;
  made->addend = {made->bias.data(), last ? 0 : 1, last ? 1 : 0, 1.0F};
  return made;
}

CudnnConv conv_of(const ConvProblem& problem, const Shape& y, Layout layout, bool fused) {
  const Window& window = problem.attributes.window;
  CudnnConv conv;
  conv.dtype = conv.y_dtype = DType::f16;
  conv.x = extents_of(problem.x, layout);
  conv.w = extents_of(problem.weights->shape(), layout);
  conv.y = extents_of(y, layout);
  conv.stride = {window.stride[0], window.stride[1]};
  conv.dilation = {window.dilation[0], window.dilation[1]};
  conv.pad_begin = {window.pad_begin[0], window.pad_begin[1]};
  conv.pad_end = {window.pad_end[0], window.pad_end[1]};
  conv.bias = fused;
  return conv;
}

}  // namespace

std::string cudnn_problem() {
  return cuda::cudnn_state().problem;
}

std::vector<PeerConv> cudnn_convolutions(const ConvProblem& problem, PeerCall call, Layout layout, int gpu) {
  if (const std::string why = cudnn_problem(); !why.empty()) fail_unsupported("{}", why);
  select_gpu(gpu);
  const bool fused = call == PeerCall::best;
  const Shape y = window_output_shape(problem.attributes.window, problem.x, problem.weights->shape()[0]);
  const CudnnConv conv = conv_of(problem, y, layout, fused);
  const std::shared_ptr<const PeerOperands> operands = operands_of(problem, y, layout);
  const char* name = layout == Layout::channels_last ? "nhwc" : "nchw";
  std::vector<PeerConv> found;
  std::string reason;
  for (int number = 0; number < (fused ? CudnnPlan::kProposals : 1); ++number) {
    const auto plan = CudnnPlan::find(conv, reason, number);
    if (!plan) break;
    found.push_back({fmt::format("{}, plan {}", name, number), TensorDesc{problem.x, DType::f16, layout},
                     TensorDesc{y, DType::f16, layout}, std::make_shared<PeerKernel>(plan, operands, fused)});
  }
  if (found.empty()) fail_unsupported("{}: {}", name, reason);
  return found;
}

#else

std::string cudnn_problem() {
  return cuda::cudnn_state().problem;
}

std::vector<PeerConv> cudnn_convolutions(const ConvProblem&, PeerCall, Layout, int) {
  fail_unsupported("{}", cudnn_problem());
}

#endif

}  // namespace pipit::internal
