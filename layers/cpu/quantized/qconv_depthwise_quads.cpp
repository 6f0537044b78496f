// INT8 depthwise convolution on NHWC data, four rows of taps at a time.
#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/base/ceil_div.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/quantized/depthwise_quads.h"
#include "layers/cpu/quantized/qconv_windows.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"
#include "layers/ops/qconv.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kQuad = 4;

std::int64_t quads_of(const Window& window) {
  return ceil_div(window.kernel[1], kQuad);
}

Refusal refuse_quads(const NodeSpec& spec) {
  if (quad_kernels() == nullptr) return "the instruction set has no products of bytes on 512 bits";
  if (Refusal reason = refuse_qconv_depthwise(spec)) return reason;
  const QConvAttributes& attributes = layer_as<QConv>(spec.layer).attributes();
  const Window& window = attributes.conv.window;
  if (window.rank != 2) return "only two spatial dimensions are handled";
  const std::int64_t columns = window.kernel[1];
  if (columns != 3 && columns != 5 && columns != 7) return "the filter is not 3, 5 or 7 columns wide";
  if (window.kernel[0] > kQuad * quads_of(window)) return "the filter is higher than wide";
  if (window.stride[1] > 2 || window.dilation[1] != 1) return "horizontal stride above 2, or dilation";
  if (!attributes.y.quantized()) return "the output is f32";
  if (spec.has_input(3)) return "there is a residual";
  if (spec.outputs[0].elements() == 0) return "the output is empty";
  return std::nullopt;
}

class QDepthwiseQuads final : public Kernel {
 public:
  explicit QDepthwiseQuads(const NodeSpec& spec)
      : window_(layer_as<QConv>(spec.layer).attributes().conv.window),
        x_(spec.inputs[0]->shape),
        y_(spec.outputs[0].shape),
        quads_(quads_of(window_)),
        pixels_(2 * x_[1] == kQuadChannels && window_.stride[1] == 1 && y_[3] >= 2 ? 2 : 1),
        channels_(pixels_ * x_[1]),
        stride_(pixels_ * window_.stride[1]),
        blocks_(ceil_div(channels_, kQuadChannels)),
        tile_columns_((kQuadTile - 1) * stride_ + window_.kernel[1]),
        function_(quad_kernels()->tile[(window_.kernel[1] - 3) / 2][stride_ - 1]) {
    const QConvAttributes& attributes = layer_as<QConv>(spec.layer).attributes();
    const StepBounds bounds =
        step_bounds(attributes.y, attributes.conv.activation.low, attributes.conv.activation.high);
    shared_.low = bounds.low;
    shared_.high = bounds.high;
    const bool is_signed = attributes.y.dtype == DType::i8;
    shared_.zero_point = attributes.y.zero_point + (is_signed ? 128 : 0);
    shared_.turned = is_signed ? 0x80 : 0;
    shared_.y_step = channels_;
    padding_.assign(static_cast<std::size_t>(channels_), static_cast<std::uint8_t>(attributes.x.zero_point));
    pack(attributes, *spec.constant(1), spec.constant(2));
    share_out(spec.threads);
    worker_bytes_ = worker_stride(pointer_bytes() + static_cast<std::size_t>(2 * quads_ * kQuad * channels_));
    scratch_bytes_ = static_cast<std::size_t>(spec.threads) * worker_bytes_;
  }

  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  bool reads_constant(std::size_t index) const override { return index != 1 && index != 2; }
  std::vector<KernelWork> work() const override {
    const std::int64_t tiles = y_[0] * y_[2] * ceil_div(y_[3], std::int64_t{kQuadTile});
    const std::int64_t products = quads_ * kQuad * window_.kernel[1] * kQuadTile * kQuadChannels;
    return {{tiles * blocks_ * products, Products::int8, Isa::avx512vnni}};
  }
  std::size_t packed_bytes() const override {
    return weights_.bytes() + bias_.bytes() + multipliers_.bytes();
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const auto* x = reinterpret_cast<const std::uint8_t*>(inputs[0].data);
    auto* y = reinterpret_cast<std::uint8_t*>(outputs[0].data);
    const std::int64_t rows = y_[0] * y_[2];
    context.pool.parallel_for(row_tasks_ * channel_tasks_, [&](std::int64_t task, int worker) {
      std::byte* own = context.scratch + static_cast<std::size_t>(worker) * worker_bytes_;
      const Scratch scratch{reinterpret_cast<const std::uint8_t**>(own),
                            reinterpret_cast<std::uint8_t*>(own + pointer_bytes())};
      const std::int64_t part = task / channel_tasks_;
      const std::int64_t first = blocks_ * (task % channel_tasks_) / channel_tasks_;
      const std::int64_t last = blocks_ * (task % channel_tasks_ + 1) / channel_tasks_;
      for (std::int64_t row = rows * part / row_tasks_; row < rows * (part + 1) / row_tasks_; ++row)
        run_row(x, y, row, first, last, scratch);
    });
  }

 private:
  // The scratch of a worker.
  struct Scratch {
    const std::uint8_t** pixels;  // QuadTile::pixels
    std::uint8_t* edges;          // [rows of taps][left, right][channels_]
  };

  std::int8_t* weight_data() const { return reinterpret_cast<std::int8_t*>(weights_.data()); }
  std::int32_t* bias_data() const { return reinterpret_cast<std::int32_t*>(bias_.data()); }
  float* multiplier_data() const { return reinterpret_cast<float*>(multipliers_.data()); }
  std::int64_t pointers() const { return tile_columns_ * quads_ * kQuad; }
  std::size_t pointer_bytes() const {
    return static_cast<std::size_t>(
        round_up(pointers() * std::int64_t{sizeof(const std::uint8_t*)}, kQuadChannels));
  }

  // Weights [C, 1, KH, KW] to what QuadTile wants; zeros for the rows and channels that do not exist.
  void pack(const QConvAttributes& attributes, const Tensor& weights, const Tensor* bias) {
    const Tensor plain = to_layout(weights.view(), Layout::row_major);
    const std::int8_t* from = plain.values<std::int8_t>().data();
    const std::vector<float> multipliers = requantization_multipliers(attributes, y_[1]);
    const auto lanes = static_cast<std::size_t>(blocks_ * kQuadChannels);
    const std::size_t weight_bytes = lanes * static_cast<std::size_t>(quads_ * window_.kernel[1] * kQuad);
    weights_ = HostBuffer(weight_bytes);
    bias_ = HostBuffer(lanes * sizeof(std::int32_t));
    multipliers_ = HostBuffer(lanes * sizeof(float));
    std::memset(weights_.data(), 0, weight_bytes);
    std::memset(bias_.data(), 0, lanes * sizeof(std::int32_t));
    std::fill_n(multiplier_data(), lanes, 1.0F);
    for (std::int64_t c = 0; c < channels_; ++c) {
      const std::int64_t block = c / kQuadChannels;
      const std::int64_t lane = quad_lane(static_cast<int>(c % kQuadChannels));
      const auto channel = static_cast<std::size_t>(c % x_[1]);
      const std::int8_t* w = from + channel * static_cast<std::size_t>(window_.kernel[0] * window_.kernel[1]);
      std::int64_t sum = 0;
      for (std::int64_t h = 0; h < window_.kernel[0]; ++h) {
        for (std::int64_t k = 0; k < window_.kernel[1]; ++k) {
          sum += *w;
          const std::int64_t tap = (block * quads_ + h / kQuad) * window_.kernel[1] + k;
          weight_data()[(tap * kQuadChannels + lane) * kQuad + h % kQuad] = *w++;
        }
      }
      const std::int64_t at = block * kQuadChannels + lane;
      const std::int64_t given = bias != nullptr ? bias->values<std::int32_t>()[channel] : 0;
      // Modulo 2^32, like every sum of int32 here.
      bias_data()[at] =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(given - attributes.x.zero_point * sum));
      multiplier_data()[at] = multipliers[channel];
    }
  }

  // Workers take neighbouring rows of all channels, or where the layers around do so blocks of channels.
  void share_out(int threads) {
    constexpr std::int64_t kTaskRows = 8;  // so that what neighbouring tasks both read is little
    const std::int64_t rows = y_[0] * y_[2];
    if (shares_channels(channels_, rows * y_[3] / pixels_)) {
      channel_tasks_ = blocks_;
    } else {
      row_tasks_ = std::clamp<std::int64_t>(rows / (threads * kTaskRows) * threads,
                                            std::min<std::int64_t>(rows, threads), rows);
    }
  }

  // One output row, which counts through images, and blocks [first, last) of channels.
  void run_row(const std::uint8_t* x, std::uint8_t* y, std::int64_t row, std::int64_t first,
               std::int64_t last, const Scratch& scratch) const {
    const std::int64_t channel = first * kQuadChannels;
    const std::uint8_t* image = x + row / y_[2] * x_[2] * x_[3] * x_[1];
    QuadTile tile = shared_;
    tile.pixels = scratch.pixels;
    tile.channels = std::min(channels_, last * kQuadChannels) - channel;
    tile.weights = weight_data() + channel * quads_ * window_.kernel[1] * kQuad;
    tile.bias = bias_data() + channel;
    tile.multiplier = multiplier_data() + channel;
    tile.columns = std::min<std::int64_t>(kQuadTile, y_[3] / pixels_);
    const std::int64_t top = row % y_[2] * window_.stride[0] - window_.pad_begin[0];
    if (pixels_ == 2) copy_edges(image, top, scratch.edges);
    bool inside = false;
    for (std::int64_t next = 0; next < y_[3]; next += tile.columns * pixels_) {
      // The last tile overlaps its neighbour.
      const std::int64_t column = std::min(next, y_[3] - tile.columns * pixels_);
      const std::int64_t left = column * window_.stride[1] - window_.pad_begin[1];
      const bool was_inside = inside && column == next;
      inside = left >= 0 && left + tile_columns_ + pixels_ - 1 <= x_[3];
      if (was_inside && inside) {
        move(scratch.pixels);
      } else {
        point(image + channel, top, left, scratch);
      }
      tile.y = y + (row * y_[3] + column) * y_[1] + channel;
      function_(tile);
    }
  }

  // Row `r` of the taps below `top`, or null where it is padding or there is none.
  const std::uint8_t* row_of(const std::uint8_t* image, std::int64_t top, std::int64_t r) const {
    const std::int64_t row = top + r * window_.dilation[0];
    const bool exists = r < window_.kernel[0] && row >= 0 && row < x_[2];
    return exists ? image + row * x_[3] * x_[1] : nullptr;
  }

  // Where two pixels are read at a time: padding with the first pixel of a row, and the last one with padding.
  void copy_edges(const std::uint8_t* image, std::int64_t top, std::uint8_t* edges) const {
    const auto pixel = static_cast<std::size_t>(x_[1]);
    for (std::int64_t r = 0; r < quads_ * kQuad; ++r, edges += 4 * pixel) {
      const std::uint8_t* row = row_of(image, top, r);
      if (row == nullptr) continue;
      std::memcpy(edges, padding_.data(), pixel);
      std::memcpy(edges + pixel, row, pixel);
      std::memcpy(edges + 2 * pixel, row + (x_[3] - 1) * x_[1], pixel);
      std::memcpy(edges + 3 * pixel, padding_.data(), pixel);
    }
  }

  // The pixels of a tile whose first input column is `left`, below `top`; what lies outside is padding, and so is what
  // meets no weights.
  void point(const std::uint8_t* image, std::int64_t top, std::int64_t left, const Scratch& scratch) const {
    const std::int64_t rows = quads_ * kQuad;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::uint8_t* row = row_of(image, top, r);
      const std::uint8_t* edges = scratch.edges + 2 * r * channels_;
      for (std::int64_t i = 0; i < tile_columns_; ++i) {
        const std::int64_t column = left + i;
        const std::uint8_t*& pixel = scratch.pixels[i * rows + r];
        if (row == nullptr || column <= -pixels_ || column >= x_[3]) {
          pixel = padding_.data();
        } else if (column < 0) {
          pixel = edges;
        } else if (column + pixels_ > x_[3]) {
          pixel = edges + channels_;
        } else {
          pixel = row + column * x_[1];
        }
      }
    }
  }

  // On to the next tile of the row, where both lie inside; padding rows stay where they are.
  void move(const std::uint8_t** pixels) const {
    const std::int64_t step = kQuadTile * stride_ * x_[1];
    const std::uint8_t* padding = padding_.data();
    for (std::int64_t i = 0; i < pointers(); ++i)
      pixels[i] = pixels[i] == padding ? padding : pixels[i] + step;
  }

  Window window_;
  Shape x_;
  Shape y_;
  std::int64_t quads_;
  // Two neighbouring pixels of 32 channels are one of 64, at every other column: no lane of a register stays empty.
  std::int64_t pixels_;
  std::int64_t channels_;  // of as many pixels
  std::int64_t stride_;    // in columns, from one to the next
  std::int64_t blocks_;
  std::int64_t tile_columns_;  // input columns that a tile reads
  QuadKernels::Function function_;
  QuadTile shared_;
  std::vector<std::uint8_t> padding_;  // pixels_ of them
  // Aligned: every load of 64 bytes would cross a line.
  HostBuffer weights_, bias_, multipliers_;
  std::int64_t row_tasks_ = 1;
  std::int64_t channel_tasks_ = 1;
  std::size_t worker_bytes_ = 0;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace

void register_cpu_qconv_depthwise_quads(Registry& registry) {
  add_qconv_windows<QDepthwiseQuads>(registry, "depthwise_quads", refuse_quads);
}

}  // namespace pipit::internal
