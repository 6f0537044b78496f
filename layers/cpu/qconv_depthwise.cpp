// INT8 depthwise convolution on NHWC data, vectorised over the channels.
#include <algorithm>
#include <array>
#include <vector>

#include "layers/cpu/cpu.h"
#include "layers/cpu/requantise.h"
#include "layers/cpu/simd.h"
#include "layers/layer_kernel.h"
#include "layers/operands.h"
#include "layers/qconv.h"

namespace pipit {

namespace {

// Taps that are summed up at once; the last batch is filled up with weights of zero.
constexpr std::int64_t kTaps = 9;
// Channels whose sums wait between batches.
constexpr std::int64_t kBlock = 256;

Refusal refuse_depthwise(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if (x.shape.rank() != 4) return "only two spatial dimensions are handled";
  if (layer_as<QConv>(spec.layer).attributes().conv.groups != x.shape[1] || x.shape[1] == 1 ||
      y.shape[1] != x.shape[1]) {
    return "not a depthwise convolution of one output per channel";
  }
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (spec.has_input(2) && spec.constant(2) == nullptr) return "the bias is computed at run time";
  if (!is_channels_last(x) || !is_channels_last(y)) return "input and output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  return std::nullopt;
}

// Where the taps of one output position lie; outside the image a row of zero points.
template <typename T>
using Pointers = std::array<const T*, kTaps>;

// y[c] = start[c] + sum over kTaps taps of x[c] * w[c]. y may be start.
template <typename T>
PIPIT_INLINE inline void sum_taps(const Pointers<T>& x, std::int64_t at, const std::int32_t* w,
                                  std::int64_t step, const std::int32_t* start, std::int32_t* y,
                                  std::int64_t count) {
  const T *x0 = x[0] + at, *x1 = x[1] + at, *x2 = x[2] + at, *x3 = x[3] + at, *x4 = x[4] + at,
          *x5 = x[5] + at, *x6 = x[6] + at, *x7 = x[7] + at, *x8 = x[8] + at;
  PIPIT_INDEPENDENT
  for (std::int64_t c = 0; c < count; ++c) {
    y[c] = start[c] + x0[c] * w[c] + x1[c] * w[step + c] + x2[c] * w[2 * step + c] + x3[c] * w[3 * step + c] +
           x4[c] * w[4 * step + c] + x5[c] * w[5 * step + c] + x6[c] * w[6 * step + c] +
           x7[c] * w[7 * step + c] + x8[c] * w[8 * step + c];
  }
}

PIPIT_SIMD_CLONES void sum_unsigned(const Pointers<std::uint8_t>& x, std::int64_t at, const std::int32_t* w,
                                    std::int64_t step, const std::int32_t* start, std::int32_t* y,
                                    std::int64_t count) {
  sum_taps(x, at, w, step, start, y, count);
}
PIPIT_SIMD_CLONES void sum_signed(const Pointers<std::int8_t>& x, std::int64_t at, const std::int32_t* w,
                                  std::int64_t step, const std::int32_t* start, std::int32_t* y,
                                  std::int64_t count) {
  sum_taps(x, at, w, step, start, y, count);
}

void sum(const Pointers<std::uint8_t>& x, std::int64_t at, const std::int32_t* w, std::int64_t step,
         const std::int32_t* start, std::int32_t* y, std::int64_t count) {
  sum_unsigned(x, at, w, step, start, y, count);
}
void sum(const Pointers<std::int8_t>& x, std::int64_t at, const std::int32_t* w, std::int64_t step,
         const std::int32_t* start, std::int32_t* y, std::int64_t count) {
  sum_signed(x, at, w, step, start, y, count);
}

// values = float(sums) * multipliers; the same memory.
PIPIT_SIMD_CLONES void scale(const std::int32_t* sums, const float* multipliers, float* values,
                             std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) values[c] = static_cast<float>(sums[c]) * multipliers[c];
}
PIPIT_SIMD_CLONES void add(const std::uint8_t* residual, unsigned flip, int offset, float scale,
                           float* values, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t c = 0; c < count; ++c) {
    values[c] += static_cast<float>(static_cast<int>(residual[c] ^ flip) - offset) * scale;
  }
}
PIPIT_SIMD_CLONES void store_bytes(const float* values, StepBounds bounds, int zero_point, std::uint8_t* y,
                                   std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t c = 0; c < count; ++c) {
    y[c] = static_cast<std::uint8_t>(requantise_step(values[c], bounds, zero_point));
  }
}
PIPIT_SIMD_CLONES void store_floats(const float* values, StepBounds bounds, float* y, std::int64_t count) {
  PIPIT_INDEPENDENT
  for (std::int64_t c = 0; c < count; ++c) {
    const float above = values[c] < bounds.low ? bounds.low : values[c];  // a NaN passes
    y[c] = above > bounds.high ? bounds.high : above;
  }
}

class QDepthwise final : public Kernel {
 public:
  explicit QDepthwise(const NodeSpec& spec)
      : attributes_(layer_as<QConv>(spec.layer).attributes()),
        x_(spec.inputs[0]->shape),
        y_(spec.outputs[0].shape),
        taps_((attributes_.conv.window.taps() + kTaps - 1) / kTaps * kTaps),
        multipliers_(requantisation_multipliers(attributes_, y_[1])),
        starts_(static_cast<std::size_t>(y_[1])),
        padding_(static_cast<std::size_t>(y_[1]), static_cast<std::uint8_t>(attributes_.x.zero_point)),
        bounds_{attributes_.conv.activation.low, attributes_.conv.activation.high} {
    if (attributes_.y.quantised()) bounds_ = step_bounds(attributes_.y, bounds_.low, bounds_.high);
    pack(*spec.constant(1));
    if (const Tensor* bias = spec.constant(2)) {
      for (std::size_t c = 0; c < starts_.size(); ++c) starts_[c] += bias->values<std::int32_t>()[c];
    }
  }

  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const std::byte* residual = inputs.size() > 3 ? inputs[3].data : nullptr;
    context.pool.parallel_for(y_[0] * y_[2], [&](std::int64_t row, int /*worker*/) {
      for (std::int64_t column = 0; column < y_[3]; ++column) {
        if (attributes_.x.dtype == DType::i8) {
          compute(reinterpret_cast<const std::int8_t*>(inputs[0].data), residual, outputs[0].data, row,
                  column);
        } else {
          compute(reinterpret_cast<const std::uint8_t*>(inputs[0].data), residual, outputs[0].data, row,
                  column);
        }
      }
    });
  }

 private:
  // [C, 1, KH, KW] to [taps][C]; what the zero point adds to a sum is taken off its start. Padding is as good as a
  // tap with the value of the zero point.
  void pack(const Tensor& weights) {
    const Tensor plain = to_layout(weights.view(), Layout::row_major);
    const std::int64_t channels = x_[1];
    const std::int64_t taps = attributes_.conv.window.taps();
    weights_.assign(static_cast<std::size_t>(taps_ * channels), 0);
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t t = 0; t < taps; ++t) {
        const std::int32_t w = plain.values<std::int8_t>()[static_cast<std::size_t>(c * taps + t)];
        weights_[static_cast<std::size_t>(t * channels + c)] = w;
        starts_[static_cast<std::size_t>(c)] -= w * attributes_.x.zero_point;
      }
    }
  }

  // Taps [first, first + kTaps) at one output position. `row` counts through images.
  template <typename T>
  Pointers<T> pointers(const T* x, std::int64_t row, std::int64_t column, std::int64_t first) const {
    const Window& window = attributes_.conv.window;
    const T* image = x + row / y_[2] * x_[2] * x_[3] * x_[1];
    const std::int64_t top = row % y_[2] * window.stride[0] - window.pad_begin[0];
    const std::int64_t left = column * window.stride[1] - window.pad_begin[1];
    Pointers<T> taps;
    taps.fill(reinterpret_cast<const T*>(padding_.data()));
    std::int64_t kh = first / window.kernel[1];
    std::int64_t kw = first % window.kernel[1];
    for (const T*& tap : taps) {
      const std::int64_t h = top + kh * window.dilation[0];
      const std::int64_t w = left + kw * window.dilation[1];
      if (kh < window.kernel[0] && h >= 0 && h < x_[2] && w >= 0 && w < x_[3]) {
        tap = image + (h * x_[3] + w) * x_[1];
      }
      if (++kw == window.kernel[1]) {
        kw = 0;
        ++kh;
      }
    }
    return taps;
  }

  // All channels of one output position.
  template <typename T>
  void compute(const T* x, const std::byte* residual, std::byte* y, std::int64_t row,
               std::int64_t column) const {
    const std::int64_t channels = x_[1];
    const std::int64_t offset = (row * y_[3] + column) * channels;
    const Quantisation& r = attributes_.residual;
    const bool real = !attributes_.y.quantised();
    const float residual_scale = r.scale / (real ? 1.0F : attributes_.y.scale);
    const Pointers<T> first = pointers(x, row, column, 0);
    for (std::int64_t c = 0; c < channels; c += kBlock) {
      const std::int64_t count = std::min(kBlock, channels - c);
      std::int32_t sums[kBlock];
      float values[kBlock];
      sum(first, c, weights_.data() + c, channels, starts_.data() + c, sums, count);
      for (std::int64_t t = kTaps; t < taps_; t += kTaps) {
        sum(pointers(x, row, column, t), c, weights_.data() + t * channels + c, channels, sums, sums, count);
      }
      scale(sums, multipliers_.data() + c, values, count);
      if (residual != nullptr) {
        const unsigned flip = r.dtype == DType::i8 ? 0x80 : 0;
        add(reinterpret_cast<const std::uint8_t*>(residual) + offset + c, flip,
            r.zero_point + static_cast<int>(flip), residual_scale, values, count);
      }
      if (real) {
        store_floats(values, bounds_, reinterpret_cast<float*>(y) + offset + c, count);
      } else {
        store_bytes(values, bounds_, attributes_.y.zero_point,
                    reinterpret_cast<std::uint8_t*>(y) + offset + c, count);
      }
    }
  }

  QConvAttributes attributes_;
  Shape x_;
  Shape y_;
  std::int64_t taps_;  // a multiple of kTaps
  std::vector<float> multipliers_;
  std::vector<std::int32_t> starts_;   // of the sums: bias - zero point * sum(w)
  std::vector<std::uint8_t> padding_;  // a pixel of zero points
  std::vector<std::int32_t> weights_;
  StepBounds bounds_;
};

}  // namespace

void register_cpu_qconv_depthwise(Registry& registry) {
  registry.add(QConv::kType, DeviceKind::cpu, {"depthwise", refuse_depthwise, [](const NodeSpec& spec) {
                                                 return std::make_unique<QDepthwise>(spec);
                                               }});
}

}  // namespace pipit
