// QuantizeAxis and DequantizeAxis: the scales and zero points are a table on the GPU.
#include "layers/ops/quantize_axis.h"

#include "layers/cuda/device/elements.cuh"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/families.h"

namespace pipit::internal {

namespace {

using namespace cuda;

// The scale and zero point of one index along the axis.
struct AxisStep {
  float scale;
  int zero_point;
};

// Loop: output, input, table.
__global__ void quantize_axis(DeviceLoop<3> loop, std::uint8_t* y, In x, const AxisStep* table, float low,
                              float high) {
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[3];
  loop.offsets(i, at);
  const AxisStep step = table[at[2]];
  const auto zero = static_cast<float>(step.zero_point);
  const QuantizedStore store{StoredType::i8, step.zero_point, low - zero, high - zero};
  y[at[0]] = static_cast<std::uint8_t>(store.integer(__fdiv_rn(load<float>(x, at[1]), step.scale)));
}

__global__ void dequantize_axis(DeviceLoop<3> loop, Out y, In x, const AxisStep* table) {
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[3];
  loop.offsets(i, at);
  const AxisStep step = table[at[2]];
  const std::int64_t steps = load<std::int64_t>(x, at[1]) - step.zero_point;
  store<float>(y, at[0], __fmul_rn(static_cast<float>(steps), step.scale));
}

class AxisKernel : public Kernel {
 public:
  explicit AxisKernel(const AxisQuantization& q) : q_(q) {
    std::vector<AxisStep> steps;
    for (std::size_t i = 0; i < q.scales.size(); ++i) steps.push_back({q.scales[i], q.zero_points[i]});
    table_ = DeviceBuffer(steps.data(), steps.size() * sizeof(AxisStep));
  }
  std::size_t packed_bytes() const override { return table_.bytes(); }

 protected:
  // With the table broadcast along all other dimensions.
  StridedLoop<3> loop_over(const TensorDesc& y, const TensorDesc& x) const {
    std::vector<std::int64_t> dims(static_cast<std::size_t>(y.shape.rank()), 1);
    if (!q_.per_tensor())
      dims[static_cast<std::size_t>(q_.axis)] = static_cast<std::int64_t>(q_.scales.size());
    const TensorDesc table{Shape(dims)};
    return broadcast_loop<3>({&y, &x, &table});
  }
  const AxisStep* table() const { return table_.as<AxisStep>(); }
  DType type() const { return q_.dtype; }

 private:
  AxisQuantization q_;
  DeviceBuffer table_;
};

class QuantizeAxisKernel final : public AxisKernel {
 public:
  explicit QuantizeAxisKernel(const NodeSpec& spec) : AxisKernel(layer_as<QuantizeAxis>(spec.layer).y()) {}
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto loop = loop_over(outputs[0].desc, inputs[0].desc);
    const QuantizedRange range = quantized_range({1, 0, type(), true});
    launch("quantize axis", quantize_axis, loop.size(), context, DeviceLoop<3>(loop),
           reinterpret_cast<std::uint8_t*>(outputs[0].data), In(inputs[0]), table(),
           static_cast<float>(range.low), static_cast<float>(range.high));
  }
};

class DequantizeAxisKernel final : public AxisKernel {
 public:
  explicit DequantizeAxisKernel(const NodeSpec& spec)
      : AxisKernel(layer_as<DequantizeAxis>(spec.layer).x()) {}
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto loop = loop_over(outputs[0].desc, inputs[0].desc);
    launch("dequantize axis", dequantize_axis, loop.size(), context, DeviceLoop<3>(loop), Out(outputs[0]),
           In(inputs[0]), table());
  }
};

Refusal refuse_quantize_axis(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  if (!is_float_or_half(spec.inputs[0]->dtype)) return "x is neither f32, f16 nor bf16";
  return std::nullopt;
}

Refusal refuse_dequantize_axis(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  if (!is_float_or_half(spec.outputs[0].dtype)) return "the output is neither f32, f16 nor bf16";
  return std::nullopt;
}

template <typename K>
std::unique_ptr<Kernel> make_axis_kernel(const NodeSpec& spec) {
  return std::make_unique<K>(spec);
}

}  // namespace

void register_cuda_quantize_axis(Registry& registry) {
  registry.add(QuantizeAxis::kType, DeviceKind::cuda,
               {"table", refuse_quantize_axis, make_axis_kernel<QuantizeAxisKernel>});
  registry.add(DequantizeAxis::kType, DeviceKind::cuda,
               {"table", refuse_dequantize_axis, make_axis_kernel<DequantizeAxisKernel>});
}

}  // namespace pipit::internal
