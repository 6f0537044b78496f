// Depthwise convolution on NHWC data: tiles of neighbouring output pixels, vectorised over the channels.
#include "layers/conv.h"
#include "layers/cpu/channel_rows.h"
#include "layers/cpu/cpu.h"
#include "layers/cpu/epilogue.h"
#include "layers/cpu/row_kernels.h"
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

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
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
        multiplier_(y_[1] / x_[1]) {
    const std::int64_t width = y_[3];
    const bool wide = ceil_div(width, kWideTile) * kWideTile <= ceil_div(width, kNarrowTile) * kNarrowTile;
    const bool special = window_.dilation[1] == 1 && window_.stride[1] <= 2 && window_.kernel[1] % 2 == 1 &&
                         window_.kernel[1] >= 3 && window_.kernel[1] <= 7;
    tile_ = wide || !special ? kWideTile : kNarrowTile;
    if (special) {
      const auto& pair =
          kernels_of<T>().special[(window_.kernel[1] - 3) / 2][window_.stride[1] - 1][wide ? 0 : 1];
      inside_ = pair[0];
      border_ = pair[1];
    } else {
      border_ = kernels_of<T>().general;
    }
    row_pixels_ = special ? (tile_ - 1) * window_.stride[1] + window_.kernel[1] : tile_ * window_.kernel[1];
    share_out();
    pack(*spec.constant(1));
    zeros_ = HostBuffer(static_cast<std::size_t>(x_[1]) * sizeof(T));
    std::memset(zeros_.data(), 0, zeros_.bytes());
    worker_bytes_ = static_cast<std::size_t>(window_.kernel[0] * row_pixels_) * sizeof(const T*);
    if (multiplier_ > 1) worker_bytes_ += static_cast<std::size_t>(tile_ * block_) * sizeof(T);
    threads_ = static_cast<std::size_t>(spec.threads);
  }

  std::size_t scratch_bytes() const override { return threads_ * worker_bytes_; }
  bool reads_constant(std::size_t index) const override { return index != 1; }
  bool absorb(const NodeSpec& next) override { return std::is_same_v<T, float> && epilogue_.absorb(next); }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const Operands operands{inputs[0].as<T>(), optional_data<float>(inputs, 2), optional_data<T>(inputs, 3),
                            outputs[0].as<T>()};
    const std::int64_t rows = y_[0] * y_[2];
    context.pool.parallel_for(
        ceil_div(rows, task_rows_) * channel_blocks_, [&](std::int64_t task, int worker) {
          std::byte* scratch = context.scratch + static_cast<std::size_t>(worker) * worker_bytes_;
          const std::int64_t first = task / channel_blocks_ * task_rows_;
          const std::int64_t channel = task % channel_blocks_ * block_;
          for (std::int64_t row = first; row < std::min(rows, first + task_rows_); ++row) {
            compute_row(operands, row, channel, scratch);
          }
        });
  }

 private:
  struct Operands {
    const T* x;
    const float* bias;
    const T* residual;
    T* y;
  };

  // Tasks of about 2^15 products, a microsecond on a fast core: parts of a row's channels, or several rows.
  void share_out() {
    constexpr std::int64_t kTaskProducts = 1 << 15;
    const std::int64_t column = std::max<std::int64_t>(1, y_[3] * window_.taps() * multiplier_);
    const std::int64_t lanes = row_kernels().lanes;
    const std::int64_t wanted = ceil_div(std::max(4 * lanes, kTaskProducts / column), lanes) * lanes;
    channel_blocks_ = std::max<std::int64_t>(1, x_[1] / wanted);
    block_ = ceil_div(ceil_div(x_[1], channel_blocks_), lanes) * lanes;
    channel_blocks_ = ceil_div(x_[1], block_);
    task_rows_ = channel_blocks_ > 1 ? 1 : std::max<std::int64_t>(1, kTaskProducts / (column * x_[1]));
  }

  // [C * m, 1, KH, KW] to m times [C / lanes, KH, KW, lanes], zeros behind the last channel.
  void pack(const Tensor& weights) {
    const Tensor plain = to_layout(weights.view(), Layout::row_major);
    const float* from = plain.values<float>().data();
    const std::int64_t taps = window_.taps();
    const std::int64_t lanes = row_kernels().lanes;
    plane_ = ceil_div(x_[1], lanes) * lanes * taps;
    packed_ = HostBuffer(static_cast<std::size_t>(multiplier_ * plane_) * sizeof(float));
    float* to = reinterpret_cast<float*>(packed_.data());
    std::fill_n(to, multiplier_ * plane_, 0.0F);
    for (std::int64_t o = 0; o < y_[1]; ++o) {
      const std::int64_t c = o / multiplier_;
      float* panel = to + o % multiplier_ * plane_ + c / lanes * lanes * taps + c % lanes;
      for (std::int64_t t = 0; t < taps; ++t) panel[t * lanes] = from[o * taps + t];
    }
  }

  // One output row, for the block of input channels from `channel` on. `row` counts through images.
  void compute_row(const Operands& operands, std::int64_t row, std::int64_t channel,
                   std::byte* scratch) const {
    const std::int64_t channels = x_[1];
    const TapRange h = taps_inside(window_, 0, row % y_[2], x_[2]);
    const std::int64_t first_row = h.start + h.begin * window_.dilation[0];
    DepthwiseTile<T> tile;
    tile.row_step = window_.dilation[0] * x_[3] * channels;
    tile.pixel_step = channels;
    tile.row_pixels = row_pixels_;
    tile.rows = h.count();
    tile.weights_step = window_.taps() * row_kernels().lanes;
    tile.channels = std::min(block_, channels - channel);
    tile.low = activation_.low;
    tile.high = activation_.high;
    tile.kernel = window_.kernel[1];
    const T* x = operands.x + (row / y_[2] * x_[2] + first_row) * x_[3] * channels + channel;
    const float* weights = reinterpret_cast<const float*>(packed_.data()) + channel * window_.taps() +
                           h.begin * window_.kernel[1] * row_kernels().lanes;
    const T** pixels = reinterpret_cast<const T**>(scratch);
    T* plane = reinterpret_cast<T*>(pixels + window_.kernel[0] * row_pixels_);  // [tile_][block_]

    tile.columns = std::min(tile_, y_[3]);
    // The last tile overlaps its neighbour.
    for (std::int64_t next = 0; next < y_[3]; next += tile_) {
      const std::int64_t column = std::min(next, y_[3] - tile.columns);
      const std::int64_t start = column * window_.stride[1] - window_.pad_begin[1];
      const bool inside =
          inside_ != nullptr && tile.columns == tile_ && start >= 0 && start + row_pixels_ <= x_[3];
      if (inside) {
        tile.x = x + start * channels;
      } else {
        tile.pixels = pixels;
        point(x, start, tile, pixels);
      }
      const auto function = inside ? inside_ : border_;
      const std::int64_t offset = (row * y_[3] + column) * y_[1] + channel * multiplier_;
      tile.weights = weights;
      if (multiplier_ == 1) {
        tile.bias = operands.bias == nullptr ? nullptr : operands.bias + channel;
        tile.residual = operands.residual == nullptr ? nullptr : operands.residual + offset;
        tile.y = operands.y + offset;
        tile.y_step = y_[1];
        function(tile);
        if constexpr (std::is_same_v<T, float>) apply_epilogue(tile, channel);
      } else if constexpr (std::is_same_v<T, float>) {
        tile.y = plane;
        tile.y_step = block_;
        tile.low = Clamp{}.low;
        tile.high = Clamp{}.high;
        for (std::int64_t j = 0; j < multiplier_; ++j, tile.weights += plane_) {
          function(tile);
          spread(plane, tile, j, operands.y + offset);
        }
        finish(operands, tile, offset, channel);
      }
    }
  }

  // The pixels of every row of taps, the first tap of the first output being image column `start`.
  void point(const T* x, std::int64_t start, const DepthwiseTile<T>& tile, const T** pixels) const {
    const T* zeros = reinterpret_cast<const T*>(zeros_.data());
    for (std::int64_t h = 0; h < tile.rows; ++h) {
      for (std::int64_t i = 0; i < row_pixels_; ++i) {
        const std::int64_t column =
            start +
            (inside_ != nullptr ? i : i / tile_ * window_.dilation[1] + i % tile_ * window_.stride[1]);
        *pixels++ = column >= 0 && column < x_[3] ? x + h * tile.row_step + column * x_[1] : zeros;
      }
    }
  }

  // Output j of every channel of the tile to where it belongs.
  void spread(const T* plane, const DepthwiseTile<T>& tile, std::int64_t j, T* y) const {
    for (std::int64_t i = 0; i < tile.columns; ++i) {
      for (std::int64_t c = 0; c < tile.channels; ++c)
        y[i * y_[1] + c * multiplier_ + j] = plane[i * block_ + c];
    }
  }

  void apply_epilogue(const DepthwiseTile<T>& tile, std::int64_t channel) const {
    if (epilogue_.empty()) return;
    for (std::int64_t i = 0; i < tile.columns; ++i) {
      epilogue_.apply(tile.y + i * tile.y_step, channel, tile.channels);
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
  typename DepthwiseKernels<T>::Function inside_ = nullptr;
  typename DepthwiseKernels<T>::Function border_ = nullptr;
  std::int64_t tile_ = 0;        // output pixels
  std::int64_t row_pixels_ = 0;  // pointers of a tile's row of taps
  std::int64_t block_ = 0;       // channels of a task
  std::int64_t channel_blocks_ = 0;
  std::int64_t task_rows_ = 0;
  std::int64_t plane_ = 0;  // floats of the weights of one output per channel
  HostBuffer packed_;
  HostBuffer zeros_;  // a pixel of the padding
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
