// Depthwise convolution on NHWC and NDHWC data: tiles of neighbouring output pixels, vectorized over the channels.
#include "engine/graph/shared_buffer.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/conv/depthwise_rows.h"
#include "layers/cpu/conv/fused_source.h"
#include "layers/cpu/conv/window_conv.h"
#include "layers/cpu/elementwise/epilogue.h"
#include "layers/cpu/families.h"
#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/vector/channel_rows.h"
#include "layers/ops/conv.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

Refusal refuse_depthwise_shape(const NodeSpec& spec) {
  const Shape& x = spec.inputs[0]->shape;
  const bool one_output = spec.outputs[0].shape[1] == x[1];
  const ConvAttributes& attributes = layer_as<Conv>(spec.layer).attributes();
  if (x.rank() < 4) return "only two or three spatial dimensions are handled";
  if (attributes.groups != x[1] || x[1] == 1) return "not a depthwise convolution";
  if (x.rank() == 4 && !one_output) return "several outputs per channel";
  if (x.rank() == 4 && !DepthwiseRows<float>::is_special(attributes.window))
    return "not a window of 3, 5 or 7 columns with a stride of 1 or 2";
  if (spec.inputs[0]->dtype != DType::f32 && !one_output)
    return "several outputs per channel are handled in f32 only";
  return std::nullopt;
}

Refusal refuse_depthwise(const NodeSpec& spec) {
  return refuse_window_conv(spec, refuse_depthwise_shape);
}

bool fuses_producer_of_depthwise(const NodeSpec& spec) {
  const Shape& x = spec.inputs[0]->shape;
  return pays_to_compute_input(spec) && x.rank() == 4 && spec.outputs[0].shape[1] == x[1];
}

// T: what activations are stored in.
template <typename T>
class Depthwise final : public Kernel {
 public:
  explicit Depthwise(const NodeSpec& spec)
      : window_(layer_as<Conv>(spec.layer).attributes().window),
        activation_(layer_as<Conv>(spec.layer).attributes().activation),
        epilogue_(1, spec.fusion.followers),
        x_(spec.inputs[0]->shape),
        y_(spec.outputs[0].shape),
        multiplier_(y_[1] / x_[1]),
        rows_(window_, x_, y_, stored_kernels<T>().depthwise, T{}, spec.threads),
        threads_(spec.threads) {
    pack(*spec.constant(1));
    if (spec.fusion.producer != nullptr) {
      source_ = std::make_unique<FusedSource>(spec);
      cut_pieces(source_->rows());
    } else {
      worker_bytes_ = worker_stride(tile_bytes(rows_.block()));
    }
  }

  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(threads_) * worker_bytes_; }
  bool reads_constant(std::size_t index) const override {
    return source_ ? source_->kernel().reads_constant(index) : index != 1;
  }
  double kept_share() const override { return source_ ? source_->kernel().kept_share() : 1; }
  std::vector<KernelWork> work() const override {
    std::vector<KernelWork> parts;
    if (source_) parts = source_->work();
    parts.push_back({multiplier_ * rows_.macs(), Products::fp32, f32_tiles().isa});
    return parts;
  }
  std::size_t packed_bytes() const override {
    return packed_.bytes() + (source_ ? source_->kernel().packed_bytes() : 0);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    if (source_) return run_pieces(inputs, outputs[0].as<T>(), context);
    const Operands operands{inputs[0].as<T>(), optional_data<float>(inputs, 2), optional_data<T>(inputs, 3),
                            outputs[0].as<T>()};
    rows_.for_each_tile(operands.x, reinterpret_cast<const float*>(packed_.data()), context, worker_bytes_,
                        tile_body(operands));
  }

 private:
  using Function = typename DepthwiseRows<T>::Function;

  struct Operands {
    const T* x;
    const float* bias;
    const T* residual;
    T* y;
  };

  // Scratch of tiles of at most `channels` channels.
  std::size_t tile_bytes(std::int64_t channels) const {
    const std::int64_t plane = multiplier_ > 1 ? rows_.tile() * channels : 0;
    const std::int64_t row = std::is_same_v<T, float> ? 0 : channels;
    return rows_.pointer_bytes() + static_cast<std::size_t>(plane + row) * sizeof(float);
  }

  // How the work is cut where this kernel computes its input as well. A task is a block of channels in some
  // neighbouring output rows; it computes the input a few rows at a time into a ring that stays in the first-level
  // cache. Tasks of neighbouring rows compute the rows that both read twice.
  struct Pieces {
    std::int64_t bands = 0;     // of the rows of an image
    std::int64_t blocks = 0;    // of channels
    std::int64_t channels = 0;  // of a block
    std::int64_t rows = 0;      // of input that are computed together
    std::int64_t ring = 0;      // rows, a multiple of that
    // Scratch of a worker: what tiles need, then the ring, then the producer's.
    std::size_t ring_at = 0;
    std::size_t source_at = 0;
  };

  void cut_pieces(const RowSource& source) {
    constexpr std::int64_t kTogetherBytes = 16 << 10;
    constexpr std::int64_t kMinPixels = 28;  // two register tiles
    constexpr std::int64_t kTasksPerThread = 4;
    const auto up = [](auto n, decltype(n) step) { return (n + step - 1) / step * step; };
    pieces_.channels = std::min(source.piece_channels(), x_[1]);
    pieces_.blocks = (x_[1] + pieces_.channels - 1) / pieces_.channels;
    const std::int64_t row_bytes =
        rows_.piece_columns() * pieces_.channels * static_cast<std::int64_t>(sizeof(T));
    pieces_.rows =
        std::clamp<std::int64_t>(kTogetherBytes / row_bytes, (kMinPixels + x_[3] - 1) / x_[3], x_[2]);
    pieces_.ring = up(std::min(rows_.rows_of_taps() - 1 + pieces_.rows, x_[2]), pieces_.rows);
    pieces_.bands = 1;
    if (x_[0] % threads_ != 0)
      pieces_.bands = threads_ * std::max<std::int64_t>(1, kTasksPerThread / pieces_.blocks);
    pieces_.bands = std::min(pieces_.bands, y_[2]);
    pieces_.ring_at = up(tile_bytes(pieces_.channels), 64);
    pieces_.source_at = up(pieces_.ring_at + static_cast<std::size_t>(pieces_.ring * row_bytes), 64);
    worker_bytes_ = worker_stride(pieces_.source_at + source.piece_scratch_bytes());
  }

  void run_pieces(std::span<const ConstTensorView> inputs, T* y, const RunContext& context) const {
    const Operands operands{nullptr, source_->bias(), nullptr, y};
    context.pool.parallel_for(x_[0] * pieces_.bands * pieces_.blocks, [&](std::int64_t task, int worker) {
      const std::int64_t band = task / pieces_.blocks;
      run_piece(inputs, operands, band / pieces_.bands, band % pieces_.bands, task % pieces_.blocks,
                context.scratch + static_cast<std::size_t>(worker) * worker_bytes_);
    });
  }

  void run_piece(std::span<const ConstTensorView> inputs, const Operands& operands, std::int64_t image,
                 std::int64_t band, std::int64_t block, std::byte* scratch) const {
    T* ring = reinterpret_cast<T*>(scratch + pieces_.ring_at);
    std::byte* source_scratch = scratch + pieces_.source_at;
    const std::int64_t begin = y_[2] * band / pieces_.bands;
    const std::int64_t end = y_[2] * (band + 1) / pieces_.bands;
    const auto [first, last] = rows_.rows_read(begin, end);
    const std::int64_t channel = block * pieces_.channels;
    const typename DepthwiseRows<T>::Piece piece{ring, first, pieces_.ring, channel,
                                                 std::min(pieces_.channels, x_[1] - channel)};
    const std::int64_t columns = rows_.piece_columns();
    pad(ring, piece.channels);
    std::int64_t next = first;  // row of input to be computed
    for (std::int64_t row = begin; row < end; ++row) {
      for (const std::int64_t needed = rows_.rows_read(row, row + 1).second; next < needed;) {
        const std::int64_t stop = std::min(next + pieces_.rows, last);
        T* to = ring + ((next - first) % pieces_.ring * columns + rows_.left_columns()) * piece.channels;
        source_->rows().compute_piece(inputs, image, next, stop, block, reinterpret_cast<std::byte*>(to),
                                      columns, source_scratch);
        next = stop;
      }
      rows_.for_each_tile_of_piece(piece, reinterpret_cast<const float*>(packed_.data()), image * y_[2] + row,
                                   scratch, tile_body(operands));
    }
  }

  // Zeros left and right of the ring's rows.
  void pad(T* input, std::int64_t channels) const {
    const std::int64_t left = rows_.left_columns() * channels;
    const std::int64_t right = (rows_.piece_columns() - x_[3]) * channels - left;
    for (std::int64_t row = 0; row < pieces_.ring; ++row) {
      std::fill_n(input, left, T{});
      std::fill_n(input + left + x_[3] * channels, right, T{});
      input += left + x_[3] * channels + right;
    }
  }

  auto tile_body(const Operands& operands) const {
    return [this, &operands](DepthwiseTile<T>& tile, Function function, std::int64_t pixel,
                             std::int64_t channel, std::byte* scratch) {
      compute(operands, tile, function, pixel + channel * multiplier_, channel,
              reinterpret_cast<float*>(scratch));
    };
  }

  // [C * m, 1, kernel...] to m times [C / lanes, kernel..., lanes], zeros after the last channel.
  void pack(const Tensor& weights) {
    const Tensor plain = to_layout(weights.view(), Layout::row_major);
    const float* from = plain.values<float>().data();
    const std::int64_t taps = window_.taps();
    const std::int64_t lanes = row_kernels().lanes;
    plane_ = rows_.packed_size();
    HostBuffer packed = zeroed_host_buffer(static_cast<std::size_t>(multiplier_ * plane_) * sizeof(float));
    float* to = reinterpret_cast<float*>(packed.data());
    for (std::int64_t o = 0; o < y_[1]; ++o) {
      float* panel = to + o % multiplier_ * plane_ + rows_.packed_at(o / multiplier_);
      for (std::int64_t t = 0; t < taps; ++t) panel[t * lanes] = from[o * taps + t];
    }
    packed_ = SharedBuffer(std::move(packed));
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
    const SpanRows pixels{tile.channels, tile.tiles * tile.columns, tile.y_step};
    if constexpr (std::is_same_v<T, float>) {
      epilogue_.apply(tile.y, channel, pixels);
    } else {
      epilogue_.apply(tile.y, channel, pixels, row);
    }
  }

  void finish(const Operands& operands, const DepthwiseTile<T>& tile, std::int64_t offset,
              std::int64_t channel) const {
    const float* bias = operands.bias == nullptr ? nullptr : operands.bias + channel * multiplier_;
    for (std::int64_t i = 0; i < tile.columns; ++i, offset += y_[1]) {
      const float* residual = operands.residual == nullptr ? nullptr : operands.residual + offset;
      finish_row(operands.y + offset, tile.channels * multiplier_, bias, residual, activation_);
      epilogue_.apply(operands.y + offset, channel * multiplier_, {tile.channels * multiplier_});
    }
  }

  Window window_;
  Clamp activation_;
  Epilogue epilogue_;
  Shape x_;
  Shape y_;
  std::int64_t multiplier_;  // output channels per input channel
  DepthwiseRows<T> rows_;
  std::int64_t plane_ = 0;  // floats of the weights of one output per channel
  SharedBuffer packed_;
  // Scratch of one worker: pixel pointers, then with several outputs per channel one of them; see also Pieces.
  std::size_t worker_bytes_ = 0;
  std::int64_t threads_;
  std::unique_ptr<const FusedSource> source_;  // computes the input, or null
  Pieces pieces_;
};

}  // namespace

void register_cpu_conv_depthwise(Registry& registry) {
  add_window_conv<Depthwise>(registry, "depthwise", refuse_depthwise, fuses_producer_of_depthwise);
}

}  // namespace pipit::internal
