// Convolution through cuDNN: bias, residual and Relu in the same kernel where the library has one, else after it.
#include <algorithm>
#include <array>
#include <cmath>

#include "layers/cuda/conv/conv_library.h"
#include "layers/cuda/conv/im2col.h"
#include "layers/cuda/families.h"
#include "layers/cuda/libraries/cudnn_geometry.h"
#include "layers/cuda/libraries/cudnn_graph.h"
#include "layers/cuda/libraries/epilogue.h"
#include "layers/cuda/libraries/proposals.h"

namespace pipit {

#if PIPIT_HAVE_CUDNN

namespace {

using cuda::Addend;
using cuda::CudnnConv;
using cuda::CudnnPlan;
using cuda::Im2colShape;

// How a node is handed to the library.
struct Call {
  CudnnConv conv;
  bool copy =
      false;  // the input is first copied to scratch: made channels_last, with channels of 0 up to `channels`
  std::int64_t channels = 0;
  Im2colShape copied;  // the copy, as patches of one position
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

Call call_of(const Conv& layer, const NodeSpec& spec) {
  const ConvAttributes& attributes = layer.attributes();
  const Image x(*spec.inputs[0]);
  const Image y(spec.outputs[0]);
  Call call;
  CudnnConv& conv = call.conv;
  conv.dtype = spec.outputs[0].dtype;
  // Tensor cores take eight halves at a time; for images there are kernels that take four.
  const std::int64_t few = x.channels <= 4 ? 4 : 8;
  const std::int64_t wide = conv.dtype == DType::f16 && attributes.groups == 1 ? few : 1;
  call.channels = (x.channels + wide - 1) / wide * wide;
  call.copy = call.channels != x.channels || !is_channels_last(*spec.inputs[0]);
  if (call.copy) {
    Im2colShape& p = call.copied;
    p.window = as_3d(Window{});
    p.group_channels = x.channels;
    p.row = call.channels;
    p.element = dtype_bytes(conv.dtype);
    p.input = x.extent;
    p.output = x.extent;
    p.batch_stride = x.batch_stride;
    p.channel_stride = is_channels_last(*spec.inputs[0]) ? 1 : x.channel_stride;
    p.stride = x.stride;
  }
  cuda::set_geometry(conv, attributes, spec, call.channels);
  call.rows = y.batch * y.positions();
  call.columns = y.channels;
  return call;
}

// The convolution with as much of the epilogue as one plan takes: all or nothing.
struct Chosen {
  std::shared_ptr<const CudnnPlan> plan;
  bool fused = false;
};

// A variant counts the proposals for whichever of the two the library has a first plan for.
Chosen choose(const Conv& layer, const NodeSpec& spec, const Call& call, std::string& reason) {
  const int proposal = cuda::proposal_number(spec.variant);
  const Clamp& clamp = layer.attributes().activation;
  CudnnConv conv = call.conv;
  conv.bias = spec.has_input(2);
  conv.residual = spec.has_input(3);
  if (clamp.is_identity() || (clamp.low == 0 && clamp.high > 0)) {
    conv.low = clamp.low;
    conv.high = clamp.high;
    if (CudnnPlan::find(conv, reason)) return {CudnnPlan::find(conv, reason, proposal), true};
  }
  return {CudnnPlan::find(call.conv, reason, proposal), false};
}

class CudnnConvKernel final : public Kernel {
 public:
  CudnnConvKernel(const Conv& layer, const NodeSpec& spec) : call_(call_of(layer, spec)) {
    std::string reason;
    const Chosen chosen = choose(layer, spec, call_, reason);
    if (!chosen.plan) fail("{}", reason);
    plan_ = chosen.plan;
    macs_ = layer.work(spec.inputs, spec.outputs).macs;
    fused_ = chosen.fused;
    if (!fused_) clamp_ = layer.attributes().activation;
    if (call_.copy) copy_ = cuda::Im2col(call_.copied);
    weights_ = cuda::upload(padded_filters(*spec.constant(1), call_.conv.w.extents[1]), call_.conv.dtype);
    if (spec.has_input(2)) bias_ = cuda::upload(spec.constant(2)->values<float>(), call_.conv.dtype);
    if (spec.constant(3) != nullptr) {
      const Tensor moved = to_layout(spec.constant(3)->view(), spec.outputs[0].layout);
      residual_ = cuda::upload(moved.values<float>(), call_.conv.dtype);
    }
  }

  std::size_t scratch_bytes() const override { return copy_area() + plan_->workspace_bytes(); }
  bool reads_constant(std::size_t) const override { return false; }
  std::size_t packed_bytes() const override { return weights_.bytes() + bias_.bytes() + residual_.bytes(); }
  // Winograd needs fewer products than the layer says.
  std::vector<KernelWork> work() const override {
    const auto macs = static_cast<double>(macs_) * plan_->least_products();
    return {{std::llround(macs), call_.conv.dtype == DType::f16 ? Products::fp16 : Products::fp32}};
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto stream = static_cast<cudaStream_t>(context.stream);
    const std::byte* x = inputs[0].data;
    const std::byte* residual = residual_.data();
    if (residual == nullptr && inputs.size() > 3) residual = inputs[3].data;
    std::byte* y = outputs[0].data;
    if (call_.copy) {
      copy_.run(x, call_.conv.x.extents[0], context.scratch, stream);
      x = context.scratch;
    }
    cuda::CudnnOperands operands;
    operands.x = x;
    operands.w = weights_.data();
    operands.y = y;
    operands.workspace = context.scratch + copy_area();
    if (fused_) {
      operands.bias = bias_.data();
      operands.residual = residual;
    }
    plan_->run(operands, stream);
    if (fused_ || (bias_.data() == nullptr && residual == nullptr && clamp_.is_identity())) return;
    const Addend bias{bias_.data(), 0, 1, 1.0F};
    const Addend late{residual, call_.columns, 1, 1.0F};
    apply_epilogue(y, call_.conv.dtype, call_.rows, call_.columns, bias, late, clamp_, stream);
  }

 private:
  // [O, taps, channels] with zeros for the channels that the copied input has in addition.
  static std::vector<float> padded_filters(const Tensor& weights, std::int64_t channels) {
    const std::int64_t real = weights.shape()[1];
    const std::int64_t filters = weights.shape().elements() / real;  // outputs times taps
    const std::vector<float> dense =
        cuda::filters_by_tap<float>(weights, weights.shape().elements() / weights.shape()[0]);
    std::vector<float> packed(static_cast<std::size_t>(filters * channels), 0.0F);
    for (std::int64_t f = 0; f < filters; ++f)
      std::copy_n(dense.begin() + f * real, real, packed.begin() + f * channels);
    return packed;
  }
  std::size_t copy_area() const {
    if (!call_.copy) return 0;
    const auto elements = static_cast<std::size_t>(call_.conv.x.extents[0] * call_.conv.x.strides[0]);
    return (elements * call_.copied.element + 255) / 256 * 256;
  }

  Call call_;
  std::shared_ptr<const CudnnPlan> plan_;
  std::int64_t macs_ = 0;  // of the layer
  bool fused_ = false;
  Clamp clamp_;
  cuda::Im2col copy_;
  cuda::DeviceBuffer weights_;
  cuda::DeviceBuffer bias_;
  cuda::DeviceBuffer residual_;  // only where it is a constant
};

// Asks the library itself, which may build the plan; the kernel then finds it built.
Refusal refuse(const NodeSpec& spec) {
  if (Refusal reason = cuda::refuse_library_conv(spec)) return reason;
  if (const std::string& problem = cuda::cudnn_state().problem; !problem.empty()) return problem;
  const Conv& layer = layer_as<Conv>(spec.layer);
  const Call call = call_of(layer, spec);
  if (call.copy) {
    if (const char* problem = cuda::Im2col::problem(call.copied, call.conv.x.extents[0])) return problem;
  }
  std::string reason;
  if (!choose(layer, spec, call, reason).plan) return reason;
  return std::nullopt;
}

Candidate candidate() {
  return {"cudnn", refuse,
          [](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
            return std::make_unique<CudnnConvKernel>(layer_as<Conv>(spec.layer), spec);
          },
          [](const NodeSpec&) { return cuda::proposals(CudnnPlan::kProposals); }};
}

}  // namespace

#else

namespace {

Candidate candidate() {
  return {"cudnn", [](const NodeSpec&) -> Refusal { return cuda::cudnn_state().problem; }, nullptr};
}

}  // namespace

#endif

namespace {

// Results that are bounded from above (relu6) have no ready kernel.
std::optional<Estimate> estimate(const NodeSpec& spec) {
  if (cuda::refuse_library_conv(spec)) return std::nullopt;
  const ConvAttributes& a = layer_as<Conv>(spec.layer).attributes();
  const std::int64_t channels = spec.inputs[0]->shape[1];
  const std::int64_t wide = spec.outputs[0].dtype != DType::f16 || a.groups > 1 ? 1 : channels <= 4 ? 4 : 8;
  const bool copies = channels % wide != 0 || !is_channels_last(*spec.inputs[0]);
  const bool bounded = std::isfinite(a.activation.high);
  return cuda::library_estimate(
      spec, a, fmt::format("cudnn {}{}", cuda::library_family(spec, a), bounded ? " bounded" : ""),
      copies ? 1 : 0, copies ? 2e-6 * static_cast<double>(spec.inputs[0]->bytes()) : 0);
}

}  // namespace

void register_cuda_conv_cudnn(Registry& registry) {
  Candidate made = candidate();
  made.estimate = estimate;
  registry.add(Conv::kType, DeviceKind::cuda, std::move(made));
}

}  // namespace pipit
