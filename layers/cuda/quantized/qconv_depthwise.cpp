// Candidate "depthwise_quads" of QConv: the depthwise convolutions of networks, and the function of their results.
#include <fmt/format.h>

#include <limits>
#include <vector>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/cuda/conv/conv_gemm_launch.h"
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/qconv_common.h"
#include "layers/cuda/quantized/qconv_depthwise_launch.h"
#include "layers/cuda/quantized/qconv_follower.h"
#include "layers/ops/qconv.h"

namespace pipit {

namespace {

using cuda::DeviceBuffer;
using cuda::QDepthwiseArgs;

const QConvAttributes& attributes_of(const NodeSpec& spec) {
  return layer_as<QConv>(spec.layer).attributes();
}

Refusal refuse_window(const Window& w) {
  if (w.rank != 2) return "only two spatial dimensions are handled";
  if (w.kernel[0] != w.kernel[1] || (w.kernel[0] != 3 && w.kernel[0] != 5))
    return fmt::format("the window is {}x{}; 3x3 and 5x5 are handled", w.kernel[0], w.kernel[1]);
  if (w.stride[0] != w.stride[1] || w.stride[0] > 2)
    return fmt::format("the strides are {} and {}; 1 and 1, 2 and 2 are handled", w.stride[0], w.stride[1]);
  if (w.dilation[0] != 1 || w.dilation[1] != 1) return "dilation is not handled";
  return std::nullopt;
}

Refusal refuse_depthwise_quads(const NodeSpec& spec) {
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  const Window& w = attributes_of(spec).conv.window;
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (y.elements() == 0) return "empty tensors are not handled";
  const std::int64_t channels = x.shape[1];
  if (attributes_of(spec).conv.groups != channels || y.shape[1] != channels)
    return "not a depthwise convolution with one output per channel";
  if (channels % 4 != 0) return fmt::format("{} channels; multiples of 4 are handled", channels);
  if (Refusal reason = refuse_window(w)) return reason;
  if (spec.has_input(3)) return "a residual is not added";
  if (x.dtype == DType::f32) return "x is f32";
  if (!is_channels_last(x) || !is_channels_last(y)) return "input and output must be channels_last";
  // Positions and threads, of a row of two columns at least, are counted in 32 bits.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  if (x.elements() / x.shape[0] > kLimit || y.elements() > kLimit * 8 || w.pad_begin[0] > kLimit / 4 ||
      w.pad_begin[1] > kLimit / 4)
    return "the tensors are too large for 32-bit offsets";
  return std::nullopt;
}

/// Weights [C, 1, k, k] as QDepthwiseArgs has them.
std::vector<std::int32_t> pack_weights(std::span<const std::int8_t> from, std::size_t channels, int window) {
  const auto k = static_cast<std::size_t>(window);
  std::vector<std::int32_t> packed(static_cast<std::size_t>(cuda::depthwise_parts(window)) * channels);
  const auto put = [&](std::size_t part, std::size_t c, std::size_t byte, std::int8_t weight) {
    std::int32_t& word = packed[part * channels + c];
    word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) |
                                     std::uint32_t{static_cast<std::uint8_t>(weight)} << byte * 8);
  };
  const std::size_t oldest = k < 4 ? 4 - k : 0;
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t r = 0; r < k; ++r) {
      for (std::size_t column = 0; column < k; ++column) {
        const std::int8_t weight = from[(c * k + r) * k + column];
        if (r < 4) {
          put(column, c, oldest + r, weight);
        } else {
          put(k + column, c, c % 4, weight);
        }
      }
    }
  }
  return packed;
}

/// QDepthwiseArgs::table.
std::optional<cuda::ByteTable> table_of(const NodeSpec& spec) {
  const std::optional<cuda::ByteTable> follower = cuda::follower_table(spec);
  const Quantization& y = attributes_of(spec).y;
  if (!follower && (!y.quantized() || y.zero_point == 0)) return std::nullopt;
  cuda::ByteTable table{};
  for (std::size_t step = 0; step < table.size(); ++step) {
    const auto byte = static_cast<std::uint8_t>(step + static_cast<unsigned>(y.zero_point));
    table[step] = follower ? (*follower)[byte] : byte;
  }
  return table;
}

template <typename T>
DeviceBuffer upload(const std::vector<T>& values) {
  return {values.data(), values.size() * sizeof(T)};
}

class QDepthwise final : public Kernel {
 public:
  explicit QDepthwise(const NodeSpec& spec) {
    const QConvAttributes& a = attributes_of(spec);
    const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
    const Shape& x = spec.inputs[0]->shape;
    const Shape& y = spec.outputs[0].shape;
    args_.batch = narrow(x[0]), args_.channels = narrow(x[1]);
    args_.in_h = narrow(x[2]), args_.in_w = narrow(x[3]);
    args_.out_h = narrow(y[2]), args_.out_w = narrow(y[3]);
    const Window& window = a.conv.window;
    args_.pad_h = narrow(window.pad_begin[0]), args_.pad_w = narrow(window.pad_begin[1]);
    args_.window = narrow(window.kernel[0]), args_.stride = narrow(window.stride[0]);
    const cuda::IntegerOperand operand(a.x);
    args_.flip = operand.flip;
    args_.padding = static_cast<std::uint8_t>(a.x.zero_point) * 0x01010101U;
    set_constants(spec, operand.zero_point);
    const StepBounds bounds = cuda::output_bounds(a.y, a.conv.activation);
    args_.low = bounds.low;
    args_.high = bounds.high;
    args_.stored = a.y.quantized() ? cuda::StoredType::i8 : cuda::stored_type(spec.outputs[0].dtype);
    table_ = cuda::upload_table(table_of(spec));
    args_.table = table_.as<const std::uint8_t>();
    PIPIT_CUDA(cuda::prepare_qconv_depthwise(args_, overlap_));
  }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::size_t packed_bytes() const override {
    return weights_.bytes() + bias_.bytes() + multipliers_.bytes() + table_.bytes();
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    QDepthwiseArgs args = args_;
    args.x = inputs[0].data;
    args.y = outputs[0].data;
    PIPIT_CUDA(cuda::launch_qconv_depthwise_quads(args, overlap_, static_cast<cudaStream_t>(context.stream)));
  }

 private:
  void set_constants(const NodeSpec& spec, int zero_point) {
    const auto channels = static_cast<std::size_t>(args_.channels);
    const Tensor plain = to_layout(spec.constant(1)->view(), Layout::row_major);
    const auto weights = plain.values<std::int8_t>();
    std::vector<std::int32_t> bias(channels);
    if (const Tensor* given = spec.constant(2)) {
      const auto values = given->values<std::int32_t>();
      bias.assign(values.begin(), values.end());
    }
    // Padding holds the zero point, so every tap counts: what x's bytes are more than its integers goes off the bias.
    const std::size_t taps = weights.size() / channels;
    for (std::size_t c = 0; c < channels; ++c) {
      int sum = 0;
      for (const std::int8_t w : weights.subspan(c * taps, taps)) sum += w;
      bias[c] = static_cast<std::int32_t>(static_cast<std::uint32_t>(bias[c]) -
                                          static_cast<std::uint32_t>(zero_point * sum));
    }
    args_.small_sums = cuda::sums_stay_below(weights, bias, cuda::kSmallSum);
    weights_ = upload(pack_weights(weights, channels, args_.window));
    bias_ = upload(bias);
    multipliers_ = upload(requantization_multipliers(attributes_of(spec), args_.channels));
    args_.weights = weights_.as<const std::int32_t>();
    args_.bias = bias_.as<const std::int32_t>();
    args_.multipliers = multipliers_.as<const float>();
  }

  QDepthwiseArgs args_;
  bool overlap_ = false;
  DeviceBuffer weights_;
  DeviceBuffer bias_;
  DeviceBuffer multipliers_;
  DeviceBuffer table_;
};

}  // namespace

void register_cuda_qconv_depthwise_quads(Registry& registry) {
  Candidate candidate{"depthwise_quads", refuse_depthwise_quads,
                      [](const NodeSpec& spec) { return std::make_unique<QDepthwise>(spec); }};
  candidate.fuses_epilogue = cuda::fuses_table;
  registry.add(QConv::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit
