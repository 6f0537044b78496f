// Depthwise convolution on NHWC data: tiles of neighbouring output pixels, vectorised over the channels.
#include "layers/conv.h"
#include "layers/cpu/channel_rows.h"
#include "layers/cpu/cpu.h"
#include "layers/cpu/depthwise_rows.h"
#include "layers/cpu/epilogue.h"
#include "layers/layer_kernel.h"
#include "layers/operands.h"

namespace pipit {

namespace {

Refusal refuse_depthwise(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_stored_floats(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  if (x.shape.rank() != 4) return "only two spatial dimensions are handled";
  if (layer_as<Conv>(spec.layer).attributes().groups != x.shape[1] || x.shape[1] == 1) {
    return "not a depthwise convolution";
  }
  if (spec.constant(1) == nullptr) return "weights are computed at run time";
  if (!is_channels_last(x) || !is_channels_last(spec.outputs[0]))
    return "input and output must be channels_last";
  if (spec.has_input(3) && !is_channels_last(*spec.inputs[3])) return "the residual must be channels_last";
  if (spec.has_input(2) && spec.inputs[2]->dtype != DType::f32) return "the bias must be f32";
  if (x.dtype != DType::f32 && spec.outputs[0].shape[1] != x.shape[1]) {
    return "several outputs per channel are handled in f32 only";
  }
  return std::nullopt;
}

template <typename T>
const DepthwiseKernels<T>& kernels_of() {
  if constexpr (std::is_same_v<T, float>) {
    return row_kernels().depthwise_f32;
  } else {
    return row_kernels().depthwise_f16;
  }
}

// T: what activations are stored in.
template <typename T>
class Depthwise final : public Kernel {
 public:
  explicit Depthwise(const NodeSpec& spec)
      : window_(layer_as<Conv>(spec.layer).attributes().window),
        activation_(layer_as<Conv>(spec.layer).attributes().activation),
        x_(spec.inputs[0]->shape),
        y_(spec.outputs[0].shape),
        multiplier_(y_[1] / x_[1]),
        rows_(window_, x_, y_, kernels_of<T>(), T{}, spec.threads) {
    pack(*spec.constant(1));
    const std::int64_t plane = multiplier_ > 1 ? rows_.tile() * rows_.block() : 0;
    const std::int64_t row = std::is_same_v<T, Half> ? rows_.block() : 0;
    worker_bytes_ = rows_.worker_bytes(static_cast<std::size_t>(plane + row) * sizeof(float));
    threads_ = static_cast<std::size_t>(spec.threads);
  }

  std::size_t scratch_bytes() const override { return threads_ * worker_bytes_; }
  bool reads_constant(std::size_t index) const override { return index != 1; }
  bool absorb(const NodeSpec& next) override { return epilogue_.absorb(next); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const Operands operands{inputs[0].as<T>(), optional_data<float>(inputs, 2), optional_data<T>(inputs, 3),
                            outputs[0].as<T>()};
    rows_.for_each_tile(operands.x, reinterpret_cast<const float*>(packed_.data()), context, worker_bytes_,
                        [&](DepthwiseTile<T>& tile, Function function, std::int64_t pixel,
                            std::int64_t channel, std::byte* scratch) {
                          compute(operands, tile, function, pixel + channel * multiplier_, channel,
                                  reinterpret_cast<float*>(scratch));
                        });
  }

 private:
  using Function = typename DepthwiseRows<T>::Function;

  struct Operands {
    const T* x;
    const float* bias;
    const T* residual;
    T* y;
  };

  // [C * m, 1, KH, KW] to m times [C / lanes, KH, KW, lanes], zeros behind the last channel.
  void pack(const Tensor& weights) {
    const Tensor plain = to_layout(weights.view(), Layout::row_major);
    const float* from = plain.values<float>().data();
    const std::int64_t taps = window_.taps();
    const std::int64_t lanes = row_kernels().lanes;
    plane_ = rows_.packed_size();
    packed_ = HostBuffer(static_cast<std::size_t>(multiplier_ * plane_) * sizeof(float));
    float* to = reinterpret_cast<float*>(packed_.data());
    std::fill_n(to, multiplier_ * plane_, 0.0F);
    for (std::int64_t o = 0; o < y_[1]; ++o) {
      float* panel = to + o % multiplier_ * plane_ + rows_.packed_at(o / multiplier_);
      for (std::int64_t t = 0; t < taps; ++t) panel[t * lanes] = from[o * taps + t];
    }
  }

  // One tile, `offset` elements into y. `plane`: room for [tile][block] results where a channel has several; f16: for a
  // row of them in f32.
  void compute(const Operands& operands, DepthwiseTile<T>& tile, Function function, std::int64_t offset,
               std::int64_t channel, float* plane) const {
    tile.low = activation_.low;
    tile.high = activation_.high;
    if (multiplier_ == 1) {
      tile.bias = operands.bias == nullptr ? nullptr : operands.bias + channel;
      tile.residual = operands.residual == nullptr ? nullptr : operands.residual + offset;
      tile.y = operands.y + offset;
      tile.y_step = y_[1];
      function(tile);
      apply_epilogue(tile, channel, plane);
    } else if constexpr (std::is_same_v<T, float>) {
      tile.y = plane;
      tile.y_step = rows_.block();
      tile.low = Clamp{}.low;
      tile.high = Clamp{}.high;
      for (std::int64_t j = 0; j < multiplier_; ++j, tile.weights += plane_) {
        function(tile);
        spread(plane, tile, j, operands.y + offset);
      }
      finish(operands, tile, offset, channel);
    }
  }

  // Output j of every channel of the tile to where it belongs.
  void spread(const float* plane, const DepthwiseTile<T>& tile, std::int64_t j, T* y) const {
    for (std::int64_t i = 0; i < tile.columns; ++i) {
      for (std::int64_t c = 0; c < tile.channels; ++c)
        y[i * y_[1] + c * multiplier_ + j] = plane[i * rows_.block() + c];
    }
  }

  void apply_epilogue(const DepthwiseTile<T>& tile, std::int64_t channel, [[maybe_unused]] float* row) const {
    if (epilogue_.empty()) return;
    for (std::int64_t i = 0; i < tile.columns; ++i) {
      T* y = tile.y + i * tile.y_step;
      if constexpr (std::is_same_v<T, float>) {
        epilogue_.apply(y, channel, tile.channels);
      } else {
        epilogue_.apply(y, channel, tile.channels, row);
      }
    }
  }

  void finish(const Operands& operands, const DepthwiseTile<T>& tile, std::int64_t offset,
              std::int64_t channel) const {
    const float* bias = operands.bias == nullptr ? nullptr : operands.bias + channel * multiplier_;
    for (std::int64_t i = 0; i < tile.columns; ++i, offset += y_[1]) {
      const float* residual = operands.residual == nullptr ? nullptr : operands.residual + offset;
      finish_row(operands.y + offset, tile.channels * multiplier_, bias, residual, activation_);
      epilogue_.apply(operands.y + offset, channel * multiplier_, tile.channels * multiplier_);
    }
  }

  Window window_;
  Clamp activation_;
  Epilogue epilogue_{1};
  Shape x_;
  Shape y_;
  std::int64_t multiplier_;  // output channels per input channel
  DepthwiseRows<T> rows_;
  std::int64_t plane_ = 0;  // floats of the weights of one output per channel
  HostBuffer packed_;
  // Scratch of one worker: pixel pointers, then with several outputs per channel one of them.
  std::size_t worker_bytes_ = 0;
  std::size_t threads_ = 0;
};

}  // namespace

void register_cpu_conv_depthwise(Registry& registry) {
  registry.add(Conv::kType, DeviceKind::cpu,
               {"depthwise", refuse_depthwise, [](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
                  if (spec.inputs[0]->dtype == DType::f16) return std::make_unique<Depthwise<Half>>(spec);
                  return std::make_unique<Depthwise<float>>(spec);
                }});
}

}  // namespace pipit
