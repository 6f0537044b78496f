// INT8 depthwise convolution on NHWC and NDHWC data: the tiles of the f32 one, on whole numbers.
#include <vector>

#include "layers/cpu/conv/depthwise_rows.h"
#include "layers/cpu/families.h"
#include "layers/cpu/quantized/qconv_windows.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/work_sharing.h"

namespace pipit::internal {

namespace {

class QDepthwise final : public Kernel {
 public:
  explicit QDepthwise(const NodeSpec& spec)
      : results_(spec),
        y_(spec.outputs[0].shape),
        rows_(results_.attributes().conv.window, spec.inputs[0]->shape, y_, row_kernels().depthwise_u8,
              static_cast<std::uint8_t>(results_.attributes().x.zero_point), spec.threads),
        multipliers_(results_.multipliers()),
        bias_(results_.bias()),
        worker_bytes_(worker_stride(rows_.pointer_bytes())),
        scratch_bytes_(static_cast<std::size_t>(spec.threads) * worker_bytes_) {
    // To the end of the last register.
    const auto padded = bias_.size() + static_cast<std::size_t>(row_kernels().lanes) - 1;
    bias_.resize(padded, 0);
    multipliers_.resize(padded, 1.0F);
    pack(*spec.constant(1));
  }

  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::vector<KernelWork> work() const override { return {{rows_.macs(), Products::fp32, f32_tiles().isa}}; }
  std::size_t packed_bytes() const override { return weights_.size() * sizeof(float); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto* x = reinterpret_cast<const std::uint8_t*>(inputs[0].data);
    rows_.for_each_tile(x, weights_.data(), context, worker_bytes_,
                        [&](DepthwiseTile<std::uint8_t>& tile, DepthwiseRows<std::uint8_t>::Function function,
                            std::int64_t pixel, std::int64_t channel, std::byte* /*scratch*/) {
                          results_.aim(tile, inputs, outputs, pixel + channel);
                          tile.bytes.bias = bias_.data() + channel;
                          tile.bytes.multiplier = multipliers_.data() + channel;
                          tile.y_step = y_[1];
                          function(tile);
                        });
  }

 private:
  // [C, 1, kernel...] to [C / lanes, kernel..., lanes].
  void pack(const Tensor& weights) {
    const Tensor plain = to_layout(weights.view(), Layout::row_major);
    const std::int64_t taps = results_.attributes().conv.window.taps();
    weights_.assign(static_cast<std::size_t>(rows_.packed_size()), 0.0F);
    for (std::int64_t c = 0; c < y_[1]; ++c) {
      float* to = weights_.data() + rows_.packed_at(c);
      const std::int8_t* from = plain.values<std::int8_t>().data() + c * taps;
      for (std::int64_t t = 0; t < taps; ++t) to[t * row_kernels().lanes] = static_cast<float>(from[t]);
    }
  }

  ByteResults results_;
  Shape y_;
  DepthwiseRows<std::uint8_t> rows_;
  std::vector<float> multipliers_;
  std::vector<std::int32_t> bias_;
  std::vector<float> weights_;
  std::size_t worker_bytes_;
  std::size_t scratch_bytes_;
};

}  // namespace

void register_cpu_qconv_depthwise(Registry& registry) {
  add_qconv_windows<QDepthwise>(registry, "depthwise", refuse_qconv_depthwise);
}

}  // namespace pipit::internal
