// Convolution through cuDNN: bias, residual and Relu in the same kernel where the library has one, else after it.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <random>

#include "engine/cuda/runtime.h"
#include "engine/graph/half.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/library/library.h"
#include "layers/cuda/families.h"
#include "layers/cuda/libraries/cudnn_graph.h"
#include "layers/cuda/libraries/lt_gemm.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

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
  const std::int64_t wide = is_stored_float(conv.dtype) && attributes.groups == 1 ? few : 1;
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
    return {{std::llround(macs), call_.conv.dtype == DType::f16    ? Products::fp16
                                 : call_.conv.dtype == DType::bf16 ? Products::bf16
                                                                   : Products::fp32}};
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
  const std::int64_t wide = !is_stored_float(spec.outputs[0].dtype) || a.groups > 1 ? 1
                            : channels <= 4                                         ? 4
                                                                                    : 8;
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

// Candidate "cudnn" of QConv: one fused plan of cuDNN's graph interface, where that plan gives the specification's
// bits.

namespace {

const QConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<QConv>(spec.layer).attributes();
}

// All but what the library is asked.
Refusal refuse_form(const NodeSpec& spec) {
  const QConvAttributes& a = attributes_of(spec);
  const TensorDesc& x = *spec.inputs[0];
  if (!cuda::is_symmetric_i8(a.x) || x.dtype != DType::i8) return "x is not i8 with zero point 0";
  if (a.y.quantized() && !cuda::is_symmetric_i8(a.y)) return "y is not i8 with zero point 0";
  if (spec.has_input(3) && !cuda::is_symmetric_i8(a.residual))
    return "the residual is not i8 with zero point 0";
  if (Refusal reason = cuda::refuse_library_operands(spec)) return reason;
  if (!is_channels_last(x)) return "x must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  if (a.conv.groups != 1) return "groups are not handled";
  if (x.shape[1] % 4 != 0 || spec.outputs[0].shape[1] % 4 != 0) return "channels must be a multiple of 4";
  return std::nullopt;
}

}  // namespace

#if PIPIT_HAVE_CUDNN

namespace {

using cuda::CudnnConv;
using cuda::CudnnPlan;
using cuda::DeviceBuffer;

CudnnConv conv_of(const NodeSpec& spec) {
  const QConvAttributes& a = attributes_of(spec);
  const StepBounds bounds = cuda::output_bounds(a.y, a.conv.activation);
  CudnnConv conv;
  conv.dtype = DType::i8;
  conv.y_dtype = spec.outputs[0].dtype;
  cuda::set_geometry(conv, a.conv, spec, spec.inputs[0]->shape[1]);
  conv.bias = true;
  conv.residual = spec.has_input(3);
  conv.low = bounds.low;
  conv.high = bounds.high;
  return conv;
}

template <typename T>
DeviceBuffer upload(const std::vector<T>& values) {
  return DeviceBuffer(values.data(), values.size() * sizeof(T));
}

std::size_t bytes_of(const CudnnConv::Tensor& tensor, DType type) {
  return static_cast<std::size_t>(tensor.extents[0] * tensor.strides[0]) * dtype_bytes(type);
}

// A value as the kernel is to store it, in as many bytes as its type has.
void append_stored(std::vector<std::byte>& row, float value, const CudnnConv& conv) {
  const auto append = [&](const auto& stored) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&stored);
    row.insert(row.end(), bytes, bytes + sizeof stored);
  };
  const float clamped = std::min(std::max(value, conv.low), conv.high);
  if (conv.y_dtype == DType::i8)
    append(static_cast<std::int8_t>(requantize(value, {conv.low, conv.high}, 0)));
  else if (conv.y_dtype == DType::f16)
    append(to_half(clamped));
  else if (conv.y_dtype == DType::bf16)
    append(to_bfloat16(clamped));
  else
    append(clamped);
}

// Runs the plan on an x of zeros, so that its sums are the bias, and on numbers that distinguish every kind of
// rounding. What the plan computes with other sums is the same code: it does not look at them.
bool rounds_as_specified(const CudnnConv& conv, const CudnnPlan& plan) {
  const auto channels = static_cast<std::size_t>(conv.y.extents[1]);
  const StepBounds bounds{std::max(conv.low, -127.0F), std::min(conv.high, 127.0F)};
  const cuda::RequantizationProbe probe = cuda::requantization_probe(channels, conv.residual, bounds);
  const std::size_t y_bytes = bytes_of(conv.y, conv.y_dtype);
  const std::size_t rows = y_bytes / channels / dtype_bytes(conv.y_dtype);
  std::vector<std::byte> expected;
  for (const float value : probe.value) append_stored(expected, value, conv);

  DeviceBuffer x(bytes_of(conv.x, DType::i8));
  DeviceBuffer w(bytes_of(conv.w, DType::i8));
  DeviceBuffer y(y_bytes);
  DeviceBuffer workspace(std::max<std::size_t>(plan.workspace_bytes(), 16));
  const DeviceBuffer bias = upload(probe.bias);
  const DeviceBuffer multiplier = upload(probe.multiplier);
  const DeviceBuffer residual_scale = upload(std::vector<float>{cuda::RequantizationProbe::kResidualScale});
  DeviceBuffer residual;
  if (conv.residual) {
    std::vector<std::int8_t> all;
    for (std::size_t row = 0; row < rows; ++row)
      all.insert(all.end(), probe.residual.begin(), probe.residual.end());
    residual = upload(all);
  }
  PIPIT_CUDA(cudaMemset(x.data(), 0, bytes_of(conv.x, DType::i8)));
  PIPIT_CUDA(cudaMemset(w.data(), 0, bytes_of(conv.w, DType::i8)));
  PIPIT_CUDA(cudaMemset(y.data(), 0x5A, y_bytes));
  PIPIT_CUDA(cudaDeviceSynchronize());
  cuda::CudnnOperands operands;
  operands.x = x.data();
  operands.w = w.data();
  operands.y = y.data();
  operands.workspace = workspace.data();
  operands.bias = bias.data();
  operands.multiplier = multiplier.data();
  operands.residual = residual.data();
  if (conv.residual) operands.residual_scale = residual_scale.data();
  plan.run(operands, nullptr);
  std::vector<std::byte> got(y_bytes);
  PIPIT_CUDA(cudaMemcpy(got.data(), y.data(), y_bytes, cudaMemcpyDeviceToHost));
  for (std::size_t row = 0; row < rows; ++row) {
    if (!std::equal(expected.begin(), expected.end(),
                    got.begin() + static_cast<std::ptrdiff_t>(row * expected.size())))
      return false;
  }
  return true;
}

// The plan with the spec's number among those that round as specified. Null when there is none, with the reason.
std::shared_ptr<const CudnnPlan> find_plan(const NodeSpec& spec, std::string& reason) {
  static std::mutex mutex;
  static auto& known = *new std::map<std::string, bool>;  // by GPU, convolution and number of the plan
  const CudnnConv conv = conv_of(spec);
  const int wanted = cuda::proposal_number(spec.variant);
  int exact = 0;
  for (int number = 0; number < CudnnPlan::kProposals; ++number) {
    std::shared_ptr<const CudnnPlan> plan = CudnnPlan::find(conv, reason, number);
    if (!plan) return nullptr;
    const std::string key = fmt::format("{}: {} {}", spec.gpu, conv.key(), number);
    const std::lock_guard lock(mutex);
    auto entry = known.find(key);
    if (entry == known.end()) entry = known.emplace(key, rounds_as_specified(conv, *plan)).first;
    if (entry->second && exact++ == wanted) return plan;
  }
  reason = fmt::format("of the plans that cuDNN {} proposes {} round as INT8 is specified",
                       cuda::cudnn_state().version, exact);
  return nullptr;
}

class CudnnQConv final : public Kernel {
 public:
  explicit CudnnQConv(const NodeSpec& spec) {
    const QConvAttributes& a = attributes_of(spec);
    std::string reason;
    plan_ = find_plan(spec, reason);
    if (!plan_) fail("{}", reason);
    const Tensor weights = to_layout(spec.constant(1)->view(), Layout::row_major);
    const std::int64_t outputs = weights.shape()[0];
    weights_ =
        upload(cuda::filters_by_tap<std::int8_t>(weights, weights.shape().elements() / weights.shape()[0]));
    bias_ = upload(cuda::qconv_biases(spec));
    multiplier_ = upload(requantization_multipliers(a, outputs));
    if (spec.has_input(3)) residual_scale_ = upload(std::vector<float>{cuda::residual_factor(a)});
  }
  std::size_t scratch_bytes() const override { return plan_->workspace_bytes(); }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override {
    return weights_.bytes() + bias_.bytes() + multiplier_.bytes() + residual_scale_.bytes();
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    cuda::CudnnOperands operands;
    operands.x = inputs[0].data;
    operands.w = weights_.data();
    operands.bias = bias_.data();
    operands.multiplier = multiplier_.data();
    operands.residual = optional_data<std::int8_t>(inputs, 3);
    operands.residual_scale = residual_scale_.data();
    operands.y = outputs[0].data;
    operands.workspace = context.scratch;
    plan_->run(operands, static_cast<cudaStream_t>(context.stream));
  }

 private:
  std::shared_ptr<const CudnnPlan> plan_;
  DeviceBuffer weights_;
  DeviceBuffer bias_;
  DeviceBuffer multiplier_;
  DeviceBuffer residual_scale_;
};

Refusal refuse_int8(const NodeSpec& spec) {
  if (Refusal reason = refuse_form(spec)) return reason;
  if (const std::string& problem = cuda::cudnn_state().problem; !problem.empty()) return problem;
  std::string reason;
  if (!find_plan(spec, reason)) return reason;
  return std::nullopt;
}

// Further proposals were up to 7 % faster in two of five convolutions; each takes half a second to make.
constexpr int kTimed = 2;

Candidate candidate_int8() {
  Candidate made{"cudnn", refuse_int8,
                 [](const NodeSpec& spec) { return std::make_unique<CudnnQConv>(spec); },
                 [](const NodeSpec&) { return cuda::proposals(kTimed); }};
  // Building its plans takes most of the time of autotuning, and it is rarely the fastest where the rule does not
  // prefer it (ResNet-50 at batch 32 on an H200).
  made.slow_to_make = true;
  return made;
}

}  // namespace

#else

namespace {

Candidate candidate_int8() {
  return {"cudnn", [](const NodeSpec&) -> Refusal { return cuda::cudnn_state().problem; }, nullptr};
}

}  // namespace

#endif

namespace {

std::optional<Estimate> estimate_int8(const NodeSpec& spec) {
  if (refuse_form(spec)) return std::nullopt;
  const ConvAttributes& conv = attributes_of(spec).conv;
  return cuda::library_estimate(spec, conv, "cudnn " + cuda::library_family(spec, conv), 0, 0);
}

}  // namespace

void register_cuda_qconv_cudnn(Registry& registry) {
  Candidate made = candidate_int8();
  made.estimate = estimate_int8;
  registry.add(QConv::kType, DeviceKind::cuda, std::move(made));
}

}  // namespace pipit::internal

namespace pipit::internal::cuda {

namespace {

struct Numbers {
  std::int32_t bias;
  float multiplier;
  std::int8_t residual;
};

float product(float a, float b) {
  volatile float p = a * b;  // rounded whatever the compiler may contract
  return p;
}

float value_of(const Numbers& n, bool has_residual) {
  const float scaled = product(static_cast<float>(n.bias), n.multiplier);
  return has_residual ? scaled + product(static_cast<float>(n.residual), RequantizationProbe::kResidualScale)
                      : scaled;
}

enum class Wrong { contracts_sum, contracts_residual, keeps_sum };

// Whether wrong rounding (a product that is not rounded by itself, or a sum of more digits than f32 has) gives another
// result.
bool tells_apart(const Numbers& n, bool has_residual, Wrong wrong, const StepBounds& bounds) {
  const auto sum = static_cast<float>(n.bias);
  const auto r = static_cast<float>(n.residual);
  float value = 0;
  switch (wrong) {
    case Wrong::contracts_sum:
      value = std::fma(sum, n.multiplier, product(r, RequantizationProbe::kResidualScale));
      break;
    case Wrong::contracts_residual:
      value = std::fma(r, RequantizationProbe::kResidualScale, product(sum, n.multiplier));
      break;
    case Wrong::keeps_sum:
      value = static_cast<float>(static_cast<double>(n.bias) * n.multiplier);
      break;
  }
  return requantize(value, bounds, 0) != requantize(value_of(n, has_residual), bounds, 0);
}

class Search {
 public:
  explicit Search(const StepBounds& bounds) : bounds_(bounds) {}

  // A value at, or next to, a tie within the bounds.
  Numbers tie(bool has_residual) {
    Numbers n{};
    const float target = std::floor(between(bounds_.low, bounds_.high)) + 0.5F;
    n.bias = static_cast<std::int32_t>(1 + random_() % (coin() ? 1U << 22 : 1U << 30));
    n.residual = static_cast<std::int8_t>(has_residual ? std::floor(between(-127, 127)) : 0);
    const float rest =
        has_residual ? product(static_cast<float>(n.residual), RequantizationProbe::kResidualScale) : 0.0F;
    n.multiplier = (target - rest) / static_cast<float>(n.bias);
    const int steps = static_cast<int>(between(-2, 3));
    for (int i = 0; i < std::abs(steps); ++i)
      n.multiplier = std::nextafter(n.multiplier, steps < 0 ? -INFINITY : INFINITY);
    return n;
  }
  Numbers beyond(bool has_residual) {
    const float sign = coin() ? 1.0F : -1.0F;
    return {static_cast<std::int32_t>(between(1, 1 << 22)), sign * between(1, 50),
            static_cast<std::int8_t>(has_residual ? std::floor(between(-127, 127)) : 0)};
  }
  bool coin() { return random_() % 2 == 0; }

 private:
  // Not std::uniform_real_distribution, whose numbers differ between standard libraries.
  float between(float low, float high) {
    return low + (high - low) * static_cast<float>(random_() % (1U << 24)) / static_cast<float>(1U << 24);
  }

  StepBounds bounds_;
  std::mt19937 random_{20};
};

}  // namespace

RequantizationProbe requantization_probe(std::size_t channels, bool residual, const StepBounds& bounds) {
  constexpr int kTries = 2000;
  Search search(bounds);
  RequantizationProbe probe;
  const bool room = bounds.high - bounds.low >= 1;
  for (std::size_t c = 0; c < channels; ++c) {
    const Wrong wrong = !residual    ? Wrong::keeps_sum
                        : c % 2 == 0 ? Wrong::contracts_sum
                                     : Wrong::contracts_residual;
    Numbers n = search.beyond(residual);
    if (room && c % 4 != 3) {
      n = search.tie(residual);
      // Without a residual plain ties are to be among them.
      const bool searches = residual || c % 4 == 0;
      for (int i = 0; searches && i < kTries && !tells_apart(n, residual, wrong, bounds); ++i)
        n = search.tie(residual);
    }
    probe.bias.push_back(n.bias);
    probe.multiplier.push_back(n.multiplier);
    probe.residual.push_back(n.residual);
    probe.value.push_back(value_of(n, residual));
  }
  return probe;
}

}  // namespace pipit::internal::cuda
