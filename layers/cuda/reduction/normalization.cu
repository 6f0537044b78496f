// Batch, layer, instance and local response normalization.
#include "layers/ops/normalization.h"

#include "layers/cuda/families.h"
#include "layers/cuda/reduction/team.cuh"

namespace pipit::internal {

namespace {

using namespace cuda;

// Strides of a per-channel operand [C] along the dimensions of x.
Strides channel_strides() {
  Strides strides{};
  strides[1] = 1;
  return strides;
}

// ---- BatchNorm: parameters packed as [mean, factor, bias][C], one element a thread.

// Loop: output, input, channel.
__global__ void batch_norm_kernel(DeviceLoop<3> loop, int channels, const float* parameters, Out y, In x) {
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[3];
  loop.offsets(i, at);
  const float* p = parameters + at[2];
  store<float>(y, at[0], (load<float>(x, at[1]) - p[0]) * p[channels] + p[2 * channels]);
}

struct BatchStatistics {
  In scale, bias, mean, variance;
};

// Those that are computed at run time, as the kernel reads them.
__global__ void pack_batch_norm_kernel(int channels, float epsilon, BatchStatistics from, float* parameters) {
  const auto c = static_cast<int>(thread_index());
  if (c >= channels) return;
  parameters[c] = load<float>(from.mean, c);
  parameters[channels + c] = load<float>(from.scale, c) / sqrtf(load<float>(from.variance, c) + epsilon);
  parameters[2 * channels + c] = load<float>(from.bias, c);
}

class BatchNormKernel final : public Kernel {
 public:
  explicit BatchNormKernel(const NodeSpec& spec)
      : epsilon_(layer_as<BatchNorm>(spec.layer).attributes().epsilon),
        channels_(static_cast<int>(spec.inputs[1]->elements())) {
    for (std::size_t i = 1; i < 5; ++i) {
      if (spec.constant(i) == nullptr) return;
    }
    const double epsilon = epsilon_;
    const auto scale = spec.constant(1)->values<float>();
    const auto bias = spec.constant(2)->values<float>();
    const auto mean = spec.constant(3)->values<float>();
    const auto variance = spec.constant(4)->values<float>();
    const std::size_t channels = scale.size();
    std::vector<float> packed(3 * channels);
    for (std::size_t c = 0; c < channels; ++c) {
      packed[c] = mean[c];
      packed[channels + c] =
          static_cast<float>(scale[c] / std::sqrt(static_cast<double>(variance[c]) + epsilon));
      packed[2 * channels + c] = bias[c];
    }
    parameters_.emplace(packed.data(), packed.size() * sizeof(float));
  }
  bool reads_constant(std::size_t index) const override { return index == 0 || !parameters_; }
  std::size_t packed_bytes() const override { return parameters_ ? parameters_->bytes() : 0; }
  std::size_t scratch_bytes() const override {
    return parameters_ ? 0 : 3 * static_cast<std::size_t>(channels_) * sizeof(float);
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const TensorDesc& desc = inputs[0].desc;
    const Strides to = outputs[0].desc.strides();
    const Strides from = desc.strides();
    const Strides channel = channel_strides();
    StridedLoop<3> loop;
    for (int d = 0; d < desc.shape.rank(); ++d) {
      const auto u = static_cast<std::size_t>(d);
      loop.add(desc.shape[d], {to[u], from[u], channel[u]});
    }
    loop.collapse();
    const float* parameters = parameters_ ? parameters_->as<float>() : nullptr;
    if (!parameters_) {
      auto* packed = reinterpret_cast<float*>(context.scratch);
      const BatchStatistics statistics{In(inputs[1]), In(inputs[2]), In(inputs[3]), In(inputs[4])};
      launch("batch norm: parameters", pack_batch_norm_kernel, channels_, context, channels_, epsilon_,
             statistics, packed);
      parameters = packed;
    }
    launch("batch norm", batch_norm_kernel, loop.size(), context, DeviceLoop<3>(loop), channels_, parameters,
           Out(outputs[0]), In(inputs[0]));
  }

 private:
  float epsilon_;
  int channels_;
  std::optional<DeviceBuffer> parameters_;  // where they are constants
};

// ---- LayerNorm and InstanceNorm: y = (x - mean) / deviation * scale + bias within each group.

struct NormNumbers {
  float epsilon;
  bool rms;  // the mean counts as 0
};

// Operands of both loops: output, input, scale, bias, statistics.
struct NormOperands {
  Out y;
  In x, scale, bias;  // data null where absent
  Out mean, inverse_deviation;
};

__global__ void group_norm_kernel(TeamPlan plan, DeviceLoop<5> groups, DeviceLoop<5> inside,
                                  NormNumbers numbers, NormOperands o) {
  __shared__ float shared[kTeamShared];
  const Team team(plan);
  int start[5] = {0, 0, 0, 0, 0};
  if (team.active) groups.offsets(team.group, start);
  const auto for_each = [&](auto&& body) {
    if (!team.active) return;
    for (unsigned i = team.lane; i < inside.size; i += team.lanes) {
      int at[5];
      inside.offsets(i, at);
      body(load<float>(o.x, static_cast<std::int64_t>(start[1]) + at[1]), at);
    }
  };
  const auto count = static_cast<float>(inside.size);
  float mean = 0;
  if (!numbers.rms) {
    float sum = 0;
    for_each([&](float x, const int(&)[5]) { sum += x; });
    mean = team.reduce(sum, shared, Sum{}) / count;
  }
  float squares = 0;
  for_each([&](float x, const int(&)[5]) { squares += (x - mean) * (x - mean); });
  const float factor = 1 / sqrtf(team.reduce(squares, shared, Sum{}) / count + numbers.epsilon);
  if (team.active && team.lane == 0) {
    if (o.mean.data != nullptr) store<float>(o.mean, start[4], mean);
    if (o.inverse_deviation.data != nullptr) store<float>(o.inverse_deviation, start[4], factor);
  }
  for_each([&](float x, const int(&at)[5]) {
    float value = (x - mean) * factor;
    if (o.scale.data != nullptr) value *= load<float>(o.scale, start[2] + at[2]);
    if (o.bias.data != nullptr) value += load<float>(o.bias, start[3] + at[3]);
    store<float>(o.y, static_cast<std::int64_t>(start[0]) + at[0], value);
  });
}

// The same for short rows in memory order (channels of ConvNeXt), a warp each, held in registers: one pass over
// memory, 16 bytes a thread. `length` is a multiple of kRowVector and at most kRowVector * kWarp * kRowParts.
constexpr int kRowVector = 8;
constexpr int kRowParts = 4;

__global__ void row_norm_kernel(int rows, int length, NormNumbers numbers, NormOperands o) {
  const int row = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
  if (row >= rows) return;  // a whole warp
  const int start = row * length;
  const auto lane = static_cast<int>(threadIdx.x);
  float x[kRowParts][kRowVector];
  const auto total = [](float value) {
    for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, mask);
    return value;
  };
  float sum = 0;
#pragma unroll
  for (int p = 0; p < kRowParts; ++p) {
    const int i = (p * kWarp + lane) * kRowVector;
    if (i >= length) continue;
    load_vector<kRowVector>(o.x, start + i, x[p]);
#pragma unroll
    for (int v = 0; v < kRowVector; ++v) sum += x[p][v];
  }
  const float mean = numbers.rms ? 0 : total(sum) / static_cast<float>(length);
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kRowParts; ++p) {
    if ((p * kWarp + lane) * kRowVector >= length) continue;
#pragma unroll
    for (int v = 0; v < kRowVector; ++v) squares += (x[p][v] - mean) * (x[p][v] - mean);
  }
  const float factor = 1 / sqrtf(total(squares) / static_cast<float>(length) + numbers.epsilon);
  if (lane == 0) {
    if (o.mean.data != nullptr) store<float>(o.mean, row, mean);
    if (o.inverse_deviation.data != nullptr) store<float>(o.inverse_deviation, row, factor);
  }
#pragma unroll
  for (int p = 0; p < kRowParts; ++p) {
    const int i = (p * kWarp + lane) * kRowVector;
    if (i >= length) continue;
    float parameter[kRowVector];
#pragma unroll
    for (int v = 0; v < kRowVector; ++v) x[p][v] = (x[p][v] - mean) * factor;
    if (o.scale.data != nullptr) {
      load_vector<kRowVector>(o.scale, i, parameter);
#pragma unroll
      for (int v = 0; v < kRowVector; ++v) x[p][v] *= parameter[v];
    }
    if (o.bias.data != nullptr) {
      load_vector<kRowVector>(o.bias, i, parameter);
#pragma unroll
      for (int v = 0; v < kRowVector; ++v) x[p][v] += parameter[v];
    }
    store_vector<kRowVector>(o.y, start + i, x[p]);
  }
}

// True when the normalized dimensions are whole rows of x and y in memory and every parameter, where present, one
// row of as many elements, all aligned for row_norm_kernel.
bool are_rows(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
              std::int64_t length) {
  const auto aligned = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; };
  for (const TensorView& y : outputs) {
    if (!is_row_major(y.desc)) return false;
  }
  if (!is_row_major(inputs[0].desc) || !aligned(inputs[0].data) || !aligned(outputs[0].data)) return false;
  for (const ConstTensorView& parameter : inputs.subspan(1)) {
    if (!parameter.present()) continue;
    if (parameter.desc.elements() != length || !is_row_major(parameter.desc) || !aligned(parameter.data)) {
      return false;
    }
  }
  return length > 0 && length % kRowVector == 0 && length <= kRowVector * kWarp * kRowParts;
}

void launch_group_norm(StridedLoop<5> groups, StridedLoop<5> inside, NormNumbers numbers,
                       const NormOperands& operands, const RunContext& context) {
  groups.collapse();
  inside.collapse();
  launch_teams("group norm", group_norm_kernel, TeamPlan(groups, 1, inside, 1), context,
               DeviceLoop<5>(groups), DeviceLoop<5>(inside), numbers, operands);
}

// Dimensions [begin, end) of the first operand's shape form the groups.
void run_group_norm(const Shape& shape, int begin, int end, const std::array<Strides, 5>& strides,
                    NormNumbers numbers, const NormOperands& operands, const RunContext& context) {
  StridedLoop<5> groups, inside;
  for (int d = 0; d < shape.rank(); ++d) {
    StridedLoop<5>::Offsets step;
    for (std::size_t k = 0; k < step.size(); ++k) step[k] = strides[k][static_cast<std::size_t>(d)];
    (d >= begin && d < end ? inside : groups).add(shape[d], step);
  }
  launch_group_norm(groups, inside, numbers, operands, context);
}

In optional_in(std::span<const ConstTensorView> inputs, std::size_t index) {
  return index < inputs.size() ? In(inputs[index]) : In();
}

void run_layer_norm(const LayerNorm& layer, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs, const RunContext& context) {
  const TensorDesc& desc = inputs[0].desc;
  const int rank = desc.shape.rank();
  const int axis = normalize_axis(layer.attributes().axis, rank, "LayerNorm");
  const auto broadcast = [&](std::size_t i) {
    return i < inputs.size() && inputs[i].present() ? broadcast_strides(inputs[i].desc, desc.shape)
                                                    : Strides{};
  };
  const auto statistic = [&](std::size_t i) { return Out(i < outputs.size() ? outputs[i] : TensorView{}); };
  const NormOperands operands{Out(outputs[0]),        In(inputs[0]), optional_in(inputs, 1),
                              optional_in(inputs, 2), statistic(1),  statistic(2)};
  const NormNumbers numbers{layer.attributes().epsilon, layer.attributes().rms};
  std::int64_t length = 1;
  for (int d = axis; d < rank; ++d) length *= desc.shape[d];
  if (are_rows(inputs, outputs, length)) {
    if (desc.elements() == 0) return;
    const auto rows = static_cast<int>(desc.elements() / length);
    constexpr unsigned kRowsOfBlock = 8;
    row_norm_kernel<<<blocks_for(rows, kRowsOfBlock), dim3(kWarp, kRowsOfBlock), 0,
                      static_cast<cudaStream_t>(context.stream)>>>(rows, static_cast<int>(length), numbers,
                                                                   operands);
    return check_launch("row norm");
  }
  run_group_norm(desc.shape, axis, rank,
                 {outputs[0].desc.strides(), desc.strides(), broadcast(1), broadcast(2),
                  outputs.size() > 1 ? broadcast_strides(outputs[1].desc, desc.shape) : Strides{}},
                 numbers, operands, context);
}

void run_instance_norm(const InstanceNorm& layer, std::span<const ConstTensorView> inputs,
                       std::span<const TensorView> outputs, const RunContext& context) {
  const TensorDesc& desc = inputs[0].desc;
  if (desc.elements() == 0) return;
  const Out none{TensorView{}};
  const NormOperands operands{Out(outputs[0]), In(inputs[0]), In(inputs[1]), In(inputs[2]), none, none};
  const std::int64_t of_group = channels_of_group(layer.attributes(), desc.shape);
  const Strides to = outputs[0].desc.strides(), from = desc.strides();
  StridedLoop<5> groups, inside;
  for (int d = 0; d < desc.shape.rank(); ++d) {
    const auto u = static_cast<std::size_t>(d);
    const std::int64_t channel = d == 1 ? 1 : 0;
    const StridedLoop<5>::Offsets step{to[u], from[u], channel, channel, 0};
    if (d == 1) {
      groups.add(desc.shape[1] / of_group, {to[u] * of_group, from[u] * of_group, of_group, of_group, 0});
      inside.add(of_group, step);
    } else {
      (d == 0 ? groups : inside).add(desc.shape[d], step);
    }
  }
  launch_group_norm(groups, inside, {layer.attributes().epsilon, false}, operands, context);
}

// ---- LRN: one element a thread; the neighbours' squares are added anew for each.

struct LrnNumbers {
  float scale, beta, bias;  // scale: alpha / size
  int before, after;        // channels of the window around its own
  int channels, x_step;     // stride of x along the channels
};

// Loop: output, input, channel number.
__global__ void lrn_kernel(DeviceLoop<3> loop, LrnNumbers n, Out y, In x) {
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[3];
  loop.offsets(i, at);
  const int begin = max(at[2] - n.before, 0);
  const int end = min(at[2] + n.after + 1, n.channels);
  float squares = 0;
  for (int c = begin; c < end; ++c) {
    const auto value = load<float>(x, at[1] + static_cast<std::int64_t>(c - at[2]) * n.x_step);
    squares += value * value;
  }
  const auto value = load<float>(x, at[1]);
  store<float>(y, at[0], value / powf(n.bias + n.scale * squares, n.beta));
}

void run_lrn(const Lrn& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
             const RunContext& context) {
  const LrnAttributes& a = layer.attributes();
  const TensorDesc& desc = inputs[0].desc;
  const Strides to = outputs[0].desc.strides();
  const Strides from = desc.strides();
  const Strides channel = channel_strides();
  StridedLoop<3> loop;
  for (int d = 0; d < desc.shape.rank(); ++d) {
    const auto u = static_cast<std::size_t>(d);
    loop.add(desc.shape[d], {to[u], from[u], channel[u]});
  }
  loop.collapse();
  // Windows larger than the tensor still reach its ends.
  const std::int64_t reach = std::min(a.size - 1, 2 * desc.shape[1] + 2);
  const LrnNumbers n{static_cast<float>(static_cast<double>(a.alpha) / static_cast<double>(a.size)),
                     a.beta,
                     a.bias,
                     static_cast<int>(reach / 2),
                     static_cast<int>(reach - reach / 2),
                     static_cast<int>(desc.shape[1]),
                     static_cast<int>(from[1])};
  launch("lrn", lrn_kernel, loop.size(), context, DeviceLoop<3>(loop), n, Out(outputs[0]), In(inputs[0]));
}

}  // namespace

void register_cuda_normalization(Registry& registry) {
  registry.add(BatchNorm::kType, DeviceKind::cuda,
               {"elementwise", refuse_unless_float_or_half, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<BatchNormKernel>(spec));
                }});
  add_kernel<LayerNorm>(registry, "teams", refuse_unless_float_or_half, run_layer_norm);
  add_kernel<InstanceNorm>(registry, "teams", refuse_unless_float_or_half, run_instance_norm);
  add_kernel<Lrn>(registry, "elementwise", refuse_unless_float_or_half, run_lrn);
}

}  // namespace pipit::internal
