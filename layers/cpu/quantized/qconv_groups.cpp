// INT8 convolution of small groups on NHWC data, with any window in one or two dimensions: that of floats, on whole
// numbers.
#include <vector>

#include "layers/cpu/conv/group_windows.h"
#include "layers/cpu/families.h"
#include "layers/cpu/quantized/qconv_windows.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/work_sharing.h"

namespace pipit::internal {

namespace {

GroupWindows::Geometry geometry_of(const NodeSpec& spec) {
  const ConvAttributes& conv = layer_as<QConv>(spec.layer).attributes().conv;
  return {conv.window, spec.inputs[0]->shape, spec.outputs[0].shape, conv.groups};
}

Refusal refuse_groups(const NodeSpec& spec) {
  if (Refusal reason = refuse_qconv_windows(spec)) return reason;
  if (const auto reason = GroupWindows::refuse(geometry_of(spec))) return *reason;
  return std::nullopt;
}

class QGroupConv final : public Kernel {
 public:
  explicit QGroupConv(const NodeSpec& spec)
      : results_(spec),
        windows_(geometry_of(spec), true, spec.threads),
        multipliers_(windows_.spread(results_.multipliers(), 1.0F)),
        bias_(windows_.spread(results_.bias(), std::int32_t{0})),
        packed_(windows_.pack(
            to_layout(spec.constant(1)->view(), Layout::row_major).values<std::int8_t>().data())),
        worker_bytes_(worker_stride(windows_.worker_bytes())),
        scratch_bytes_(static_cast<std::size_t>(spec.threads) * worker_bytes_) {}

  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::vector<KernelWork> work() const override {
    return {{windows_.macs(), Products::fp32, f32_tiles().isa}};
  }
  std::size_t packed_bytes() const override { return packed_.size() * sizeof(float); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto* x = reinterpret_cast<const std::uint8_t*>(inputs[0].data);
    const auto zero_point = static_cast<float>(results_.attributes().x.zero_point);
    const WindowStorage<std::uint8_t>& storage = row_kernels().windows_u8;
    const auto fill = [&](const GroupWindows::Rows& rows, std::byte* /*scratch*/) {
      windows_.stage(x, zero_point, storage, rows);
    };
    const auto finish = [&](const GroupWindows::Part& part, std::byte* /*scratch*/) {
      WindowOutput<std::uint8_t> output = part.output<std::uint8_t>();
      results_.aim(output.tile, inputs, outputs, part.offset);
      output.tile.bytes.bias = bias_.data();
      output.tile.bytes.multiplier = multipliers_.data();
      storage.finish(output);
    };
    windows_.run(packed_.data(), context, worker_bytes_, fill, finish,
                 [](const GroupWindows::Tile& /*tile*/, std::byte* /*scratch*/) {});
  }

 private:
  ByteResults results_;
  GroupWindows windows_;
  std::vector<float> multipliers_;
  std::vector<std::int32_t> bias_;
  std::vector<float> packed_;
  std::size_t worker_bytes_;
  std::size_t scratch_bytes_;
};

}  // namespace

void register_cpu_qconv_groups(Registry& registry) {
  add_qconv_windows<QGroupConv>(registry, "small_groups", refuse_groups);
}

}  // namespace pipit::internal
