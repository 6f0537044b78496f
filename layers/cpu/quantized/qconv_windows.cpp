#include "layers/cpu/quantized/qconv_windows.h"

#include <algorithm>

#include "layers/common/layer_kernel.h"
#include "layers/cpu/conv/depthwise_rows.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

Refusal refuse_qconv_windows(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(x) || !is_channels_last(spec.outputs[0]))
    return "input and output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  if (x.dtype != DType::u8 || (spec.has_input(3) && spec.inputs[3]->dtype != DType::u8))
    return "input and residual must be u8";
  return std::nullopt;
}

Refusal refuse_qconv_depthwise(const NodeSpec& spec) {
  // Sums of more taps may leave the whole numbers that floats hold exactly: 255 * 128 * taps < 2^24.
  constexpr std::int64_t kMaxTaps = 512;
  if (Refusal reason = refuse_qconv_windows(spec)) return reason;
  const Shape& x = spec.inputs[0]->shape;
  const ConvAttributes& conv = layer_as<QConv>(spec.layer).attributes().conv;
  if (x.rank() < 4) return "only two or three spatial dimensions are handled";
  if (conv.groups != x[1] || x[1] == 1 || spec.outputs[0].shape[1] != x[1])
    return "not a depthwise convolution of one output per channel";
  if (conv.window.rank == 2 && !DepthwiseRows<std::uint8_t>::is_special(conv.window))
    return "not a window of 3, 5 or 7 columns with a stride of 1 or 2";
  if (conv.window.taps() > kMaxTaps) return "more than 512 taps";
  return std::nullopt;
}

ByteResults::ByteResults(const NodeSpec& spec)
    : attributes_(layer_as<QConv>(spec.layer).attributes()),
      multipliers_(requantization_multipliers(attributes_, spec.outputs[0].shape[1])),
      bias_(multipliers_.size(), 0),
      bounds_{attributes_.conv.activation.low, attributes_.conv.activation.high} {
  if (attributes_.y.quantized()) bounds_ = step_bounds(attributes_.y, bounds_.low, bounds_.high);
  if (const Tensor* bias = spec.constant(2))
    std::copy(bias->values<std::int32_t>().begin(), bias->values<std::int32_t>().end(), bias_.begin());
  finish_.x_zero_point = static_cast<float>(attributes_.x.zero_point);
  finish_.residual_zero_point = static_cast<float>(attributes_.residual.zero_point);
  finish_.residual_scale =
      attributes_.residual.scale / (attributes_.y.quantized() ? attributes_.y.scale : 1.0F);
  finish_.zero_point = attributes_.y.zero_point;
}

void ByteResults::aim(DepthwiseTile<std::uint8_t>& tile, std::span<const ConstTensorView> inputs,
                      std::span<const TensorView> outputs, std::int64_t offset) const {
  tile.low = bounds_.low;
  tile.high = bounds_.high;
  tile.bytes = finish_;
  if (inputs.size() > 3 && inputs[3].data != nullptr)
    tile.residual = reinterpret_cast<const std::uint8_t*>(inputs[3].data) + offset;
  if (attributes_.y.quantized()) {
    tile.y = reinterpret_cast<std::uint8_t*>(outputs[0].data) + offset;
  } else {
    tile.bytes.real = reinterpret_cast<float*>(outputs[0].data) + offset;
  }
}

}  // namespace pipit::internal
