// INT8 convolution of small groups on NHWC data, with any window in one or two dimensions: that of floats, on whole
// numbers.
#include <algorithm>
#include <vector>

#include "layers/common/layer_kernel.h"
#include "layers/cpu/conv/group_windows.h"
#include "layers/cpu/families.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

GroupWindows::Geometry geometry_of(const NodeSpec& spec) {
  const ConvAttributes& conv = layer_as<QConv>(spec.layer).attributes().conv;
  return {conv.window, spec.inputs[0]->shape, spec.outputs[0].shape, conv.groups};
}

Refusal refuse_groups(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(x) || !is_channels_last(spec.outputs[0]))
    return "input and output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  if (x.dtype != DType::u8 || (spec.has_input(3) && spec.inputs[3]->dtype != DType::u8))
    return "input and residual must be u8";
  if (const auto reason = GroupWindows::refuse(geometry_of(spec))) return *reason;
  return std::nullopt;
}

class QGroupConv final : public Kernel {
 public:
  explicit QGroupConv(const NodeSpec& spec)
      : attributes_(layer_as<QConv>(spec.layer).attributes()),
        windows_(geometry_of(spec), true, spec.threads),
        multipliers_(
            windows_.spread(requantization_multipliers(attributes_, spec.outputs[0].shape[1]), 1.0F)),
        bounds_{attributes_.conv.activation.low, attributes_.conv.activation.high},
        packed_(windows_.pack(
            to_layout(spec.constant(1)->view(), Layout::row_major).values<std::int8_t>().data())),
        worker_bytes_(worker_stride(windows_.worker_bytes())),
        scratch_bytes_(static_cast<std::size_t>(spec.threads) * worker_bytes_) {
    if (attributes_.y.quantized()) bounds_ = step_bounds(attributes_.y, bounds_.low, bounds_.high);
    std::vector<std::int32_t> bias(static_cast<std::size_t>(spec.outputs[0].shape[1]), 0);
    if (const Tensor* given = spec.constant(2))
      std::copy(given->values<std::int32_t>().begin(), given->values<std::int32_t>().end(), bias.begin());
    bias_ = windows_.spread(std::move(bias), std::int32_t{0});
  }

  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::vector<KernelWork> work() const override {
    return {{windows_.macs(), Products::fp32, f32_tiles().isa}};
  }
  std::size_t packed_bytes() const override { return packed_.size() * sizeof(float); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto* x = reinterpret_cast<const std::uint8_t*>(inputs[0].data);
    const auto* residual =
        inputs.size() > 3 ? reinterpret_cast<const std::uint8_t*>(inputs[3].data) : nullptr;
    const bool real = !attributes_.y.quantized();
    const auto zero_point = static_cast<float>(attributes_.x.zero_point);
    ByteFinish bytes;
    bytes.bias = bias_.data();
    bytes.multiplier = multipliers_.data();
    bytes.residual_zero_point = static_cast<float>(attributes_.residual.zero_point);
    bytes.residual_scale = attributes_.residual.scale / (real ? 1.0F : attributes_.y.scale);
    bytes.zero_point = attributes_.y.zero_point;
    const WindowStorage<std::uint8_t>& storage = row_kernels().windows_u8;
    const auto fill = [&](const GroupWindows::Rows& rows, std::byte* /*scratch*/) {
      windows_.stage(x, zero_point, storage, rows);
    };
    const auto finish = [&](const GroupWindows::Part& part, std::byte* /*scratch*/) {
      WindowOutput<std::uint8_t> output = part.output<std::uint8_t>();
      output.tile.low = bounds_.low;
      output.tile.high = bounds_.high;
      output.tile.bytes = bytes;
      if (residual != nullptr) output.tile.residual = residual + part.offset;
      if (real) {
        output.tile.bytes.real = reinterpret_cast<float*>(outputs[0].data) + part.offset;
      } else {
        output.tile.y = reinterpret_cast<std::uint8_t*>(outputs[0].data) + part.offset;
      }
      storage.finish(output);
    };
    windows_.run(packed_.data(), context, worker_bytes_, fill, finish,
                 [](const GroupWindows::Tile& /*tile*/, std::byte* /*scratch*/) {});
  }

 private:
  QConvAttributes attributes_;
  GroupWindows windows_;
  std::vector<float> multipliers_;
  std::vector<std::int32_t> bias_;
  StepBounds bounds_;
  std::vector<float> packed_;
  std::size_t worker_bytes_;
  std::size_t scratch_bytes_;
};

}  // namespace

void register_cpu_qconv_groups(Registry& registry) {
  registry.add(QConv::kType, DeviceKind::cpu, {"small_groups", refuse_groups, [](const NodeSpec& spec) {
                                                 return std::make_unique<QGroupConv>(spec);
                                               }});
}

}  // namespace pipit
