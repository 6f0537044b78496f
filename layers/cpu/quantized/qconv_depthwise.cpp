// INT8 depthwise convolution on NHWC and NDHWC data: the tiles of the f32 one, on whole numbers.
#include <algorithm>
#include <vector>

#include "layers/common/layer_kernel.h"
#include "layers/cpu/conv/depthwise_rows.h"
#include "layers/cpu/families.h"
#include "layers/cpu/quantized/qconv_depthwise.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

// Sums of more taps may leave the whole numbers that floats hold exactly: 255 * 128 * taps < 2^24.
constexpr std::int64_t kMostTaps = 512;

}  // namespace

Refusal refuse_qconv_depthwise(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if (x.shape.rank() < 4) return "only two or three spatial dimensions are handled";
  if (layer_as<QConv>(spec.layer).attributes().conv.groups != x.shape[1] || x.shape[1] == 1 ||
      y.shape[1] != x.shape[1]) {
    return "not a depthwise convolution of one output per channel";
  }
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(x) || !is_channels_last(y)) return "input and output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  if (x.dtype != DType::u8 || (spec.has_input(3) && spec.inputs[3]->dtype != DType::u8))
    return "input and residual must be u8";
  const Window& window = layer_as<QConv>(spec.layer).attributes().conv.window;
  if (window.rank == 2 && !DepthwiseRows<std::uint8_t>::is_special(window))
    return "not a window of 3, 5 or 7 columns with a stride of 1 or 2";
  if (window.taps() > kMostTaps) return "more than 512 taps";
  return std::nullopt;
}

namespace {

class QDepthwise final : public Kernel {
 public:
  explicit QDepthwise(const NodeSpec& spec)
      : attributes_(layer_as<QConv>(spec.layer).attributes()),
        y_(spec.outputs[0].shape),
        rows_(attributes_.conv.window, spec.inputs[0]->shape, y_, row_kernels().depthwise_u8,
              static_cast<std::uint8_t>(attributes_.x.zero_point), spec.threads),
        multipliers_(requantization_multipliers(attributes_, y_[1])),
        bias_(multipliers_.size(), 0),
        bounds_{attributes_.conv.activation.low, attributes_.conv.activation.high},
        worker_bytes_(worker_stride(rows_.pointer_bytes())),
        scratch_bytes_(static_cast<std::size_t>(spec.threads) * worker_bytes_) {
    if (attributes_.y.quantized()) bounds_ = step_bounds(attributes_.y, bounds_.low, bounds_.high);
    if (const Tensor* bias = spec.constant(2)) {
      std::copy(bias->values<std::int32_t>().begin(), bias->values<std::int32_t>().end(), bias_.begin());
    }
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
    const auto* residual =
        inputs.size() > 3 ? reinterpret_cast<const std::uint8_t*>(inputs[3].data) : nullptr;
    const bool real = !attributes_.y.quantized();
    ByteFinish finish;
    finish.x_zero_point = static_cast<float>(attributes_.x.zero_point);
    finish.residual_zero_point = static_cast<float>(attributes_.residual.zero_point);
    finish.residual_scale = attributes_.residual.scale / (real ? 1.0F : attributes_.y.scale);
    finish.zero_point = attributes_.y.zero_point;
    rows_.for_each_tile(x, weights_.data(), context, worker_bytes_,
                        [&](DepthwiseTile<std::uint8_t>& tile, DepthwiseRows<std::uint8_t>::Function function,
                            std::int64_t pixel, std::int64_t channel, std::byte* /*scratch*/) {
                          tile.low = bounds_.low;
                          tile.high = bounds_.high;
                          tile.bytes = finish;
                          tile.bytes.bias = bias_.data() + channel;
                          tile.bytes.multiplier = multipliers_.data() + channel;
                          tile.y_step = y_[1];
                          if (residual != nullptr) tile.residual = residual + pixel + channel;
                          if (real) {
                            tile.bytes.real = reinterpret_cast<float*>(outputs[0].data) + pixel + channel;
                          } else {
                            tile.y = reinterpret_cast<std::uint8_t*>(outputs[0].data) + pixel + channel;
                          }
                          function(tile);
                        });
  }

 private:
  // [C, 1, kernel...] to [C / lanes, kernel..., lanes].
  void pack(const Tensor& weights) {
    const Tensor plain = to_layout(weights.view(), Layout::row_major);
    const std::int64_t taps = attributes_.conv.window.taps();
    weights_.assign(static_cast<std::size_t>(rows_.packed_size()), 0.0F);
    for (std::int64_t c = 0; c < y_[1]; ++c) {
      float* to = weights_.data() + rows_.packed_at(c);
      const std::int8_t* from = plain.values<std::int8_t>().data() + c * taps;
      for (std::int64_t t = 0; t < taps; ++t) to[t * row_kernels().lanes] = static_cast<float>(from[t]);
    }
  }

  QConvAttributes attributes_;
  Shape y_;
  DepthwiseRows<std::uint8_t> rows_;
  std::vector<float> multipliers_;
  std::vector<std::int32_t> bias_;
  std::vector<float> weights_;
  StepBounds bounds_;
  std::size_t worker_bytes_;
  std::size_t scratch_bytes_;
};

}  // namespace

void register_cpu_qconv_depthwise(Registry& registry) {
  registry.add(QConv::kType, DeviceKind::cpu, {"depthwise", refuse_qconv_depthwise, [](const NodeSpec& spec) {
                                                 return std::make_unique<QDepthwise>(spec);
                                               }});
}

}  // namespace pipit
