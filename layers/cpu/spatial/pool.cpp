// Pooling on NHWC data, vectorized over the channels.
#include "layers/ops/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/vector/tap_grid.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"

namespace pipit {

namespace {

// Channels that one task takes: few output rows (global pooling) leave the channels to share out.
std::int64_t channel_block(const Shape& y) {
  return y[0] * y[2] < 32 ? 4 * kLanes<Vector> : std::max<std::int64_t>(y[1], 1);
}

// One window per image, of which a task takes a row.
bool takes_rows(const Shape& x, const Shape& y) {
  return y[2] * y[3] == 1 && !shares_channels(x[1], x[0] * x[2] * x[3]);
}

// f16: what a worker makes f32 at a time: the input rows of one output row, or of a block of their channels, then one
// output pixel; or one input row.
std::int64_t stage_floats(const Shape& x, const Shape& y, const Window& window) {
  if (takes_rows(x, y)) return x[3] * x[1];
  return (std::min<std::int64_t>(window.kernel[0], x[2]) * x[3] + 1) * std::min(channel_block(y), x[1]);
}

Refusal refuse_pool(const NodeSpec& spec) {
  const PoolAttributes& attributes = layer_as<Pool>(spec.layer).attributes();
  if (attributes.indices) return "positions of the maxima are not tracked";
  if (Refusal reason = refuse_unless_stored_floats(spec)) return reason;
  if (spec.inputs[0]->shape.rank() != 4) return "only two spatial dimensions are handled";
  if (attributes.kind == PoolKind::lp && attributes.p > 2) return "only norms of order 1 and 2 are handled";
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0])) {
    return "input and output must be channels_last";
  }
  constexpr std::int64_t kMostStage = 1 << 18;  // floats: half of a second-level cache of 2 MiB
  const Shape& x = spec.inputs[0]->shape;
  if (spec.inputs[0]->dtype == DType::f16 && attributes.kind != PoolKind::max &&
      stage_floats(x, spec.outputs[0].shape, pool_window(attributes, x)) > kMostStage) {
    return "f16: the rows of a window do not fit in the cache as f32";
  }
  return std::nullopt;
}

// The reductions, on one float or one register of them. `join` adds the result of a row of taps.
struct Sum {
  static constexpr float kStart = 0;
  template <typename T>
  PIPIT_INLINE static void tap(T& result, const T& x) {
    result += x;
  }
  template <typename T>
  PIPIT_INLINE static void join(T& result, const T& row) {
    result += row;
  }
};

struct SumAbsolute : Sum {
  template <typename T>
  PIPIT_INLINE static void tap(T& result, const T& x) {
    result += x < 0 ? -x : x;
  }
};

struct SumSquares : Sum {
  template <typename T>
  PIPIT_INLINE static void tap(T& result, const T& x) {
    result += x * x;
  }
};

// Adding up row by row keeps the rounding error of a global average at (rows + columns) instead of
// (rows * columns) epsilon.
// `Count` Ts of channels at a time: one alone would wait for its own last sum.
template <typename Reduction, typename T, int Count>
PIPIT_INLINE inline void reduce(const TapGrid& x, std::int64_t c, float* y) {
  constexpr std::int64_t kStep = kLanes<T>;
  T result[Count];
  for (int i = 0; i < Count; ++i) result[i] = T{} + Reduction::kStart;
  for (std::int64_t h = 0; h < x.rows; ++h) {
    T row[Count];
    for (int i = 0; i < Count; ++i) row[i] = T{} + Reduction::kStart;
    for (std::int64_t w = 0; w < x.columns; ++w) {
      for (int i = 0; i < Count; ++i) {
        T value;
        load(x.at(h, w) + c + i * kStep, value);
        Reduction::tap(row[i], value);
      }
    }
    for (int i = 0; i < Count; ++i) Reduction::join(result[i], row[i]);
  }
  for (int i = 0; i < Count; ++i) store(result[i], y + c + i * kStep);
}

template <typename Reduction, typename V>
PIPIT_INLINE inline void reduce_channels(const TapGrid& x, std::int64_t channels, float* y) {
  std::int64_t c = 0;
  for (; c + 4 * kLanes<V> <= channels; c += 4 * kLanes<V>) reduce<Reduction, V, 4>(x, c, y);
  for (; c + kLanes<V> <= channels; c += kLanes<V>) reduce<Reduction, V, 1>(x, c, y);
  for (; c < channels; ++c) reduce<Reduction, float, 1>(x, c, y);
}

// y[c] = the reduction over all taps, for every channel.
using ReduceRow = void (*)(const TapGrid& x, std::int64_t channels, float* y);

// A plain loop per tap: comparisons of Vectors are taken apart lane by lane before they are inlined under an
// instruction set.
PIPIT_INLINE inline void max_row(const TapGrid& x, std::int64_t channels, float* y) {
  for (std::int64_t c = 0; c < channels; ++c) y[c] = -std::numeric_limits<float>::infinity();
  for (std::int64_t h = 0; h < x.rows; ++h) {
    for (std::int64_t w = 0; w < x.columns; ++w) {
      const float* tap = x.at(h, w);
      PIPIT_INDEPENDENT
      for (std::int64_t c = 0; c < channels; ++c) {
        y[c] = ((tap[c] > y[c]) | (tap[c] != tap[c])) ? tap[c] : y[c];  // NaN propagates
      }
    }
  }
}
template <typename Reduction>
constexpr ReduceRow kReduceRow =
    simd<reduce_channels<Reduction, ShortVector>, reduce_channels<Reduction, Vector>>;

PIPIT_INLINE inline void divide_row(float* y, std::int64_t channels, float divisor) {
  for (std::int64_t c = 0; c < channels; ++c) y[c] /= divisor;
}
PIPIT_INLINE inline void sqrt_row(float* y, std::int64_t channels) {
  for (std::int64_t c = 0; c < channels; ++c) y[c] = std::sqrt(y[c]);
}

ReduceRow reduction_of(const PoolAttributes& attributes) {
  switch (attributes.kind) {
    case PoolKind::max:
      return simd<max_row>;
    case PoolKind::average:
      return kReduceRow<Sum>;
    case PoolKind::lp:
      break;
  }
  return attributes.p == 1 ? kReduceRow<SumAbsolute> : kReduceRow<SumSquares>;
}

class PoolRows final : public Kernel {
 public:
  explicit PoolRows(const NodeSpec& spec)
      : attributes_(layer_as<Pool>(spec.layer).attributes()),
        x_(spec.inputs[0]->shape),
        y_(spec.outputs[0].shape),
        y_pixel_(y_[1]),
        window_(pool_window(attributes_, x_)),
        reduction_(reduction_of(attributes_)),
        // What joins the results of rows; sums of absolute values or squares are not taken again.
        join_(attributes_.kind == PoolKind::max ? simd<max_row> : kReduceRow<Sum>),
        half_(spec.inputs[0]->dtype == DType::f16),
        threads_(spec.threads),
        by_rows_(takes_rows(x_, y_)) {
    if (const std::size_t stride = spec.fusion.row_stride; stride != 0)
      y_pixel_ = static_cast<std::int64_t>(stride / dtype_bytes(spec.outputs[0].dtype));
    block_ = channel_block(y_);
    const bool stages = half_ && (by_rows_ || attributes_.kind != PoolKind::max);
    stage_ = stages ? stage_floats(x_, y_, window_) : 0;
  }

  std::size_t scratch_bytes() const override {
    // The sums of all rows, and for f16 those of an image.
    const std::int64_t rows = by_rows_ ? (x_[0] * x_[2] + (half_ ? 1 : 0)) * x_[1] : 0;
    return static_cast<std::size_t>(rows + stage_ * threads_) * sizeof(float);
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    if (by_rows_) {
      run_rows(inputs[0], outputs[0], context);
    } else if (half_) {
      run_halves(inputs[0].as<Half>(), outputs[0].as<Half>(), context);
    } else {
      run_windows(inputs[0].as<float>(), outputs[0].as<float>(), context.pool);
    }
  }

 private:
  void run_windows(const float* x, float* y, ThreadPool& pool) const {
    const std::int64_t channels = y_[1];
    const std::int64_t rows = y_[0] * y_[2];
    const std::int64_t blocks = (channels + block_ - 1) / block_;
    pool.parallel_for(rows * blocks, [&](std::int64_t task, int) {
      const std::int64_t row = task / blocks;
      const std::int64_t channel = task % blocks * block_;
      const std::int64_t count = std::min(block_, channels - channel);
      const float* image = x + row / y_[2] * x_[2] * x_[3] * channels + channel;
      const TapRange h = taps_inside(window_, 0, row % y_[2], x_[2]);
      for (std::int64_t column = 0; column < y_[3]; ++column) {
        const TapRange w = taps_inside(window_, 1, column, x_[3]);
        float* to = y + (row * y_[3] + column) * y_pixel_ + channel;
        reduction_(tap_grid(image, x_[3], channels, window_, h, w), count, to);
        finish(to, count, row % y_[2], column);
      }
    });
  }

  // `count` channels of output row `row`, counted through the images, from y on.
  void max_row_of_halves(const Half* image, std::int64_t row, std::int64_t count, Half* y) const {
    const TapRange h = taps_inside(window_, 0, row % y_[2], x_[2]);
    const std::int64_t first_row = h.start + h.begin * window_.dilation[0];
    for (std::int64_t column = 0; column < y_[3]; ++column) {
      const TapRange w = taps_inside(window_, 1, column, x_[3]);
      const std::int64_t first = first_row * x_[3] + w.start + w.begin * window_.dilation[1];
      row_kernels().max_taps({image + first * y_[1], window_.dilation[0] * x_[3] * y_[1],
                              window_.dilation[1] * y_[1], h.count(), w.count()},
                             count, y + column * y_pixel_);
    }
  }

  // As run_windows(). Maxima are found among halves; for sums every input row is made f32 for each output row that
  // reads it.
  void run_halves(const Half* x, Half* y, const RunContext& context) const {
    const std::int64_t channels = y_[1];
    const std::int64_t blocks = (channels + block_ - 1) / block_;
    context.pool.parallel_for(y_[0] * y_[2] * blocks, [&](std::int64_t task, int worker) {
      const std::int64_t row = task / blocks;
      const std::int64_t channel = task % blocks * block_;
      const std::int64_t count = std::min(block_, channels - channel);
      const Half* image = x + row / y_[2] * x_[2] * x_[3] * channels + channel;
      if (attributes_.kind == PoolKind::max)
        return max_row_of_halves(image, row, count, y + row * y_[3] * y_pixel_ + channel);
      float* stage = reinterpret_cast<float*>(context.scratch) + worker * stage_;
      const TapRange h = taps_inside(window_, 0, row % y_[2], x_[2]);
      for (std::int64_t tap = 0; tap < h.count(); ++tap) {
        const std::int64_t from = h.start + (h.begin + tap) * window_.dilation[0];
        widen_row(image + from * x_[3] * channels, count, stage + tap * x_[3] * count);
      }
      float* sums = stage + h.count() * x_[3] * count;
      for (std::int64_t column = 0; column < y_[3]; ++column) {
        const TapRange w = taps_inside(window_, 1, column, x_[3]);
        const std::int64_t first = w.start + w.begin * window_.dilation[1];
        reduction_({stage + first * count, x_[3] * count, window_.dilation[1] * count, h.count(), w.count()},
                   count, sums);
        finish(sums, count, row % y_[2], column);
        row_kernels().to_half(sums, y + (row * y_[3] + column) * y_pixel_ + channel, count);
      }
    });
  }

  // `count` channels of the pixels of an input row.
  void widen_row(const Half* from, std::int64_t count, float* to) const {
    const bool whole = count == y_[1];
    const std::int64_t pixels = whole ? 1 : x_[3];
    const std::int64_t run = whole ? x_[3] * count : count;
    for (std::int64_t i = 0; i < pixels; ++i) row_kernels().to_float(from + i * y_[1], to + i * run, run);
  }

  // One window per image: first the rows, which are where the workers that wrote them find them, then what they add up
  // to; the order of sums is that of run_windows().
  void run_rows(const ConstTensorView& x, const TensorView& y, const RunContext& context) const {
    float* partial = reinterpret_cast<float*>(context.scratch);
    float* total = partial + x_[0] * x_[2] * x_[1];  // f16
    const std::int64_t channels = y_[1];
    const TapRange h = taps_inside(window_, 0, 0, x_[2]);
    const TapRange w = taps_inside(window_, 1, 0, x_[3]);
    context.pool.parallel_for(x_[0] * h.count(), [&](std::int64_t task, int worker) {
      const std::int64_t row = h.start + (h.begin + task % h.count()) * window_.dilation[0];
      const std::int64_t first = (task / h.count() * x_[2] + row) * x_[3] * channels;
      float* stage = half_ ? total + channels + worker * stage_ : nullptr;
      if (half_) widen_row(x.as<Half>() + first, channels, stage);
      const float* from = half_ ? stage : x.as<float>() + first;
      const std::int64_t column = w.start + w.begin * window_.dilation[1];
      reduction_({from + column * channels, 0, window_.dilation[1] * channels, 1, w.count()}, channels,
                 partial + task * channels);
    });
    for (std::int64_t n = 0; n < x_[0]; ++n) {
      float* to = half_ ? total : y.as<float>() + n * y_pixel_;
      join_({partial + n * h.count() * channels, channels, channels, h.count(), 1}, channels, to);
      finish(to, channels, 0, 0);
      if (half_) row_kernels().to_half(to, y.as<Half>() + n * y_pixel_, channels);
    }
  }

  // Output [row, column] of `count` channels from its reduction.
  void finish(float* y, std::int64_t count, std::int64_t row, std::int64_t column) const {
    if (attributes_.kind == PoolKind::average) {
      const std::int64_t divisor =
          average_divisor(as_3d(window_), attributes_.count_include_pad, {0, row, column}, {1, x_[2], x_[3]});
      simd<divide_row>(y, count, static_cast<float>(std::max<std::int64_t>(divisor, 1)));
    } else if (attributes_.kind == PoolKind::lp && attributes_.p == 2) {
      simd<sqrt_row>(y, count);
    }
  }

  PoolAttributes attributes_;
  Shape x_;
  Shape y_;
  std::int64_t y_pixel_;  // elements from one pixel of the output to the next
  Window window_;
  ReduceRow reduction_;
  ReduceRow join_;
  bool half_;
  int threads_;
  bool by_rows_;
  std::int64_t block_ = 0;  // channels that one task takes
  std::int64_t stage_ = 0;  // f16: see stage_floats()
};

}  // namespace

void register_cpu_pool(Registry& registry) {
  Candidate nhwc{"nhwc", refuse_pool, [](const NodeSpec& spec) { return std::make_unique<PoolRows>(spec); }};
  nhwc.writes_rows_apart = [](const NodeSpec&) { return true; };
  registry.add(Pool::kType, DeviceKind::cpu, std::move(nhwc));
}

}  // namespace pipit
