// Depthwise convolution on NHWC data, vectorised over the channels.
#include "layers/conv.h"
#include "layers/cpu/channel_rows.h"
#include "layers/cpu/cpu.h"
#include "layers/cpu/taps.h"
#include "layers/layer_kernel.h"
#include "layers/operands.h"

namespace pipit {

namespace {

Refusal refuse_depthwise(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  if (x.shape.rank() != 4) return "only two spatial dimensions are handled";
  if (layer_as<Conv>(spec.layer).attributes().groups != x.shape[1] || x.shape[1] == 1) {
    return "not a depthwise convolution";
  }
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (!is_channels_last(x) || !is_channels_last(spec.outputs[0]))
    return "input and output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  return std::nullopt;
}

// sums[c .. c + lanes * Count] = sum over all taps of x[c] * w[c]; several sums hide the latency of additions.
template <typename T, int Count>
PIPIT_INLINE inline void sum_taps(const TapGrid& x, const TapGrid& w, std::int64_t c, float* sums) {
  constexpr std::int64_t kStep = sizeof(T) / sizeof(float);
  T sum[Count] = {};
  for (std::int64_t h = 0; h < x.rows; ++h) {
    for (std::int64_t v = 0; v < x.columns; ++v) {
      const float* xs = x.at(h, v) + c;
      const float* ws = w.at(h, v) + c;
#pragma GCC unroll 4
      for (int i = 0; i < Count; ++i) {
        T a;
        T b;
        load(xs + i * kStep, a);
        load(ws + i * kStep, b);
        sum[i] += a * b;
      }
    }
  }
  for (int i = 0; i < Count; ++i) store(sum[i], sums + c + i * kStep);
}

PIPIT_SIMD_CLONES void sum_row(const TapGrid& x, const TapGrid& w, std::int64_t channels, float* sums) {
  std::int64_t c = 0;
  for (; c + 4 * kLanes <= channels; c += 4 * kLanes) sum_taps<Vector, 4>(x, w, c, sums);
  for (; c + kLanes <= channels; c += kLanes) sum_taps<Vector, 1>(x, w, c, sums);
  for (; c < channels; ++c) sum_taps<float, 1>(x, w, c, sums);
}

class Depthwise final : public Kernel {
 public:
  explicit Depthwise(const NodeSpec& spec)
      : window_(layer_as<Conv>(spec.layer).attributes().window),
        activation_(layer_as<Conv>(spec.layer).attributes().activation),
        x_(spec.inputs[0]->shape),
        y_(spec.outputs[0].shape),
        multiplier_(y_[1] / x_[1]) {
    pack(*spec.constant(1));
    if (multiplier_ > 1) {
      scratch_bytes_ =
          static_cast<std::size_t>(spec.threads) * static_cast<std::size_t>(x_[1]) * sizeof(float);
    }
  }

  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  bool reads_constant(std::size_t index) const override { return index != 1; }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const Operands operands{inputs[0].as<float>(), optional_data<float>(inputs, 2),
                            optional_data<float>(inputs, 3), outputs[0].as<float>()};
    context.pool.parallel_for(y_[0] * y_[2], [&](std::int64_t row, int worker) {
      float* sums = reinterpret_cast<float*>(context.scratch) + worker * x_[1];
      for (std::int64_t column = 0; column < y_[3]; ++column) compute(operands, row, column, sums);
    });
  }

 private:
  struct Operands {
    const float* x;
    const float* bias;
    const float* residual;
    float* y;
  };

  // [C * m, 1, KH, KW] to m planes of [KH, KW, C].
  void pack(const Tensor& weights) {
    const Tensor plain = to_layout(weights.view(), Layout::row_major);
    const float* from = plain.values<float>().data();
    const std::int64_t taps = window_.taps();
    packed_ = HostBuffer(plain.desc().bytes());
    float* to = reinterpret_cast<float*>(packed_.data());
    for (std::int64_t o = 0; o < y_[1]; ++o) {
      for (std::int64_t t = 0; t < taps; ++t) {
        to[(o % multiplier_ * taps + t) * x_[1] + o / multiplier_] = from[o * taps + t];
      }
    }
  }

  // All channels of one output position. `row` counts through images.
  void compute(const Operands& operands, std::int64_t row, std::int64_t column, float* scratch) const {
    const std::int64_t channels = x_[1];
    const TapRange h = taps_inside(window_, 0, row % y_[2], x_[2]);
    const TapRange w = taps_inside(window_, 1, column, x_[3]);
    const float* image = operands.x + row / y_[2] * x_[2] * x_[3] * channels;
    const TapGrid x = tap_grid(image, x_[3], channels, window_, h, w);
    const std::int64_t offset = (row * y_[3] + column) * y_[1];
    float* y = operands.y + offset;
    float* sums = multiplier_ == 1 ? y : scratch;
    for (std::int64_t j = 0; j < multiplier_; ++j) {
      const float* plane = reinterpret_cast<const float*>(packed_.data()) + j * window_.taps() * channels;
      const TapGrid filter{plane + (h.begin * window_.kernel[1] + w.begin) * channels,
                           window_.kernel[1] * channels, channels, x.rows, x.columns};
      sum_row(x, filter, channels, sums);
      if (multiplier_ == 1) break;
      for (std::int64_t c = 0; c < channels; ++c) y[c * multiplier_ + j] = sums[c];
    }
    finish_row(y, y_[1], operands.bias, operands.residual != nullptr ? operands.residual + offset : nullptr,
               activation_);
  }

  Window window_;
  Clamp activation_;
  Shape x_;
  Shape y_;
  std::int64_t multiplier_;  // output channels per input channel
  HostBuffer packed_;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace

void register_cpu_conv_depthwise(Registry& registry) {
  registry.add(Conv::kType, DeviceKind::cpu, {"depthwise", refuse_depthwise, [](const NodeSpec& spec) {
                                                return std::make_unique<Depthwise>(spec);
                                              }});
}

}  // namespace pipit
