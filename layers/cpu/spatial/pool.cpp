// Pooling on NHWC and NDHWC data, vectorized over the channels.
#include "layers/ops/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/base/ceil_div.h"
#include "layers/common/image.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/row_kernels.h"
#include "layers/cpu/vector/tap_grid.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/operands.h"

namespace pipit {

namespace {

std::int64_t rows_of(const Image& image) {
  return image.batch * image.extent[0] * image.extent[1];
}

// Channels that one task takes: few output rows (global pooling) leave the channels to share out.
std::int64_t channel_block(const Image& y) {
  return rows_of(y) < 32 ? 4 * kLanes<Vector> : std::max<std::int64_t>(y.channels, 1);
}

// One window per image, of which a task takes a row.
bool takes_rows(const Image& x, const Image& y) {
  return y.positions() == 1 && !shares_channels(x.channels, x.batch * x.positions());
}

// f16: what a worker makes f32 at a time: the input rows of one output row, or of a block of their channels, then one
// output pixel; or one input row.
std::int64_t stage_floats(const Image& x, const Image& y, const Window& window) {
  if (takes_rows(x, y)) return x.extent[2] * x.channels;
  const std::int64_t rows = std::min(window.kernel[0], x.extent[0]) * std::min(window.kernel[1], x.extent[1]);
  return (rows * x.extent[2] + 1) * std::min(channel_block(y), x.channels);
}

Refusal refuse_pool(const NodeSpec& spec) {
  const PoolAttributes& attributes = layer_as<Pool>(spec.layer).attributes();
  if (attributes.indices) return "positions of the maxima are not tracked";
  if (Refusal reason = refuse_unless_stored_floats(spec)) return reason;
  if (attributes.kind == PoolKind::lp && attributes.p > 2) return "only norms of order 1 and 2 are handled";
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0])) {
    return "input and output must be channels_last";
  }
  constexpr std::int64_t kMostStage = 1 << 18;  // floats: half of a second-level cache of 2 MiB
  const TensorDesc& x = *spec.inputs[0];
  if (x.dtype == DType::f16 && attributes.kind != PoolKind::max &&
      stage_floats(Image(x), Image(spec.outputs[0]), as_3d(pool_window(attributes, x.shape))) > kMostStage) {
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

// Adding up row by row keeps the rounding error of a global average at (slices * rows + columns) instead of
// (slices * rows * columns) epsilon.
// `Count` Ts of channels at a time: one alone would wait for its own last sum.
template <typename Reduction, typename T, int Count>
PIPIT_INLINE inline void reduce(const Taps<float>& x, std::int64_t c, float* y) {
  constexpr std::int64_t kStep = kLanes<T>;
  T result[Count];
  for (int i = 0; i < Count; ++i) result[i] = T{} + Reduction::kStart;
  for (std::int64_t d = 0; d < x.slices; ++d) {
    for (std::int64_t h = 0; h < x.rows; ++h) {
      T row[Count];
      for (int i = 0; i < Count; ++i) row[i] = T{} + Reduction::kStart;
      for (std::int64_t w = 0; w < x.columns; ++w) {
        for (int i = 0; i < Count; ++i) {
          T value;
          load(tap_at(x, d, h, w) + c + i * kStep, value);
          Reduction::tap(row[i], value);
        }
      }
      for (int i = 0; i < Count; ++i) Reduction::join(result[i], row[i]);
    }
  }
  for (int i = 0; i < Count; ++i) store(result[i], y + c + i * kStep);
}

template <typename Reduction, typename V>
PIPIT_INLINE inline void reduce_channels(const Taps<float>& x, std::int64_t channels, float* y) {
  std::int64_t c = 0;
  for (; c + 4 * kLanes<V> <= channels; c += 4 * kLanes<V>) reduce<Reduction, V, 4>(x, c, y);
  for (; c + 2 * kLanes<V> <= channels; c += 2 * kLanes<V>) reduce<Reduction, V, 2>(x, c, y);
  for (; c + kLanes<V> <= channels; c += kLanes<V>) reduce<Reduction, V, 1>(x, c, y);
  for (; c < channels; ++c) reduce<Reduction, float, 1>(x, c, y);
}

// y[c] = the reduction over all taps, for every channel.
using ReduceRow = void (*)(const Taps<float>& x, std::int64_t channels, float* y);

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
      return row_kernels().max_floats;
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
        x_(*spec.inputs[0]),
        y_(spec.outputs[0]),
        y_pixel_(y_.channels),
        window_(as_3d(pool_window(attributes_, spec.inputs[0]->shape))),
        reduction_(reduction_of(attributes_)),
        // What joins the results of rows; sums of absolute values or squares are not taken again.
        join_(attributes_.kind == PoolKind::max ? row_kernels().max_floats : kReduceRow<Sum>),
        half_(spec.inputs[0]->dtype == DType::f16),
        threads_(spec.threads),
        by_rows_(takes_rows(x_, y_)) {
    if (const std::size_t stride = spec.fusion.row_stride; stride != 0)
      y_pixel_ = static_cast<std::int64_t>(stride / dtype_bytes(spec.outputs[0].dtype));
    block_ = channel_block(y_);
    whole_windows_ = whole_windows();
    const bool stages = half_ && (by_rows_ || attributes_.kind != PoolKind::max);
    stage_ = stages ? stage_floats(x_, y_, window_) : 0;
  }

  std::size_t scratch_bytes() const override {
    // The sums of all rows, and for f16 those of an image.
    const std::int64_t rows = by_rows_ ? (rows_of(x_) + (half_ ? 1 : 0)) * x_.channels : 0;
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
  // What a task computes: a block of channels of an output row.
  struct Row {
    std::int64_t image;  // elements of the input before its volume's first channel of interest
    std::int64_t slice;  // of the output
    std::int64_t row;
    std::int64_t output;  // elements of y before it
    std::int64_t channels;
    TapRange d, h;
  };

  template <typename Body>
  void for_each_row(ThreadPool& pool, Body&& body) const {
    const std::int64_t blocks = (y_.channels + block_ - 1) / block_;
    pool.parallel_for(rows_of(y_) * blocks, [&](std::int64_t task, int worker) {
      const std::int64_t index = task / blocks;
      const std::int64_t channel = task % blocks * block_;
      Row row{};
      row.row = index % y_.extent[1];
      row.slice = index / y_.extent[1] % y_.extent[0];
      row.image = index / y_.extent[1] / y_.extent[0] * x_.positions() * x_.channels + channel;
      row.output = index * y_.extent[2] * y_pixel_ + channel;
      row.channels = std::min(block_, y_.channels - channel);
      row.d = taps_inside(window_, 0, row.slice, x_.extent[0]);
      row.h = taps_inside(window_, 1, row.row, x_.extent[1]);
      body(row, worker);
    });
  }

  template <typename T>
  Taps<T> taps_at(const T* x, const Row& row, std::int64_t column) const {
    return taps_of(x + row.image, x_.extent[1], x_.extent[2], x_.channels, window_, row.d, row.h,
                   taps_inside(window_, 2, column, x_.extent[2]));
  }

  void run_windows(const float* x, float* y, ThreadPool& pool) const {
    for_each_row(pool, [&](const Row& row, int /*worker*/) {
      const auto one_by_one = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t column = begin; column < end; ++column) {
          float* to = y + row.output + column * y_pixel_;
          reduction_(taps_at(x, row, column), row.channels, to);
          finish(to, row.channels, {row.slice, row.row, column});
        }
      };
      const auto [begin, end] = whole_windows_;
      one_by_one(0, begin);
      if (begin < end) {
        float* const first = y + row.output + begin * y_pixel_;
        Taps<float> taps = taps_at(x, row, begin);
        for (std::int64_t column = begin; column < end; ++column) {
          reduction_(taps, row.channels, first + (column - begin) * y_pixel_);
          taps.data += window_.stride[2] * x_.channels;
        }
        const std::int64_t divisor = divisor_at({row.slice, row.row, begin});
        if (y_pixel_ == row.channels) {
          finish_by(first, (end - begin) * row.channels, divisor);
        } else {
          for (std::int64_t i = 0; i < end - begin; ++i)
            finish_by(first + i * y_pixel_, row.channels, divisor);
        }
      }
      one_by_one(end, y_.extent[2]);
    });
  }

  // The columns of y whose windows have all their columns inside of x, [begin, end) with begin <= end.
  std::pair<std::int64_t, std::int64_t> whole_windows() const {
    const std::int64_t stride = window_.stride[2];
    const std::int64_t last =
        x_.extent[2] - 1 - window_.dilation[2] * (window_.kernel[2] - 1) + window_.pad_begin[2];
    const std::int64_t begin = std::min(ceil_div(window_.pad_begin[2], stride), y_.extent[2]);
    return {begin, last < 0 ? begin : std::clamp(last / stride + 1, begin, y_.extent[2])};
  }

  // As run_windows(). Maxima are found among halves; for sums every input row is made f32 for each output row that
  // reads it.
  void run_halves(const Half* x, Half* y, const RunContext& context) const {
    for_each_row(context.pool, [&](const Row& row, int worker) {
      if (attributes_.kind != PoolKind::max) {
        sum_row_of_halves(x, row, reinterpret_cast<float*>(context.scratch) + worker * stage_, y);
        return;
      }
      for (std::int64_t column = 0; column < y_.extent[2]; ++column)
        row_kernels().max_halves(taps_at(x, row, column), row.channels, y + row.output + column * y_pixel_);
    });
  }

  void sum_row_of_halves(const Half* x, const Row& row, float* stage, Half* y) const {
    const std::int64_t width = x_.extent[2];
    float* sums = stage;
    for (std::int64_t d = row.d.begin; d < row.d.end; ++d) {
      const std::int64_t slice = row.d.start + d * window_.dilation[0];
      for (std::int64_t h = row.h.begin; h < row.h.end; ++h, sums += width * row.channels) {
        const std::int64_t from = slice * x_.extent[1] + row.h.start + h * window_.dilation[1];
        widen_row(x + row.image + from * width * x_.channels, row.channels, sums);
      }
    }
    Taps<float> taps;
    taps.row_step = width * row.channels;
    taps.column_step = window_.dilation[2] * row.channels;
    taps.rows = row.d.count() * row.h.count();
    for (std::int64_t column = 0; column < y_.extent[2]; ++column) {
      const TapRange w = taps_inside(window_, 2, column, width);
      taps.data = stage + (w.start + w.begin * window_.dilation[2]) * row.channels;
      taps.columns = w.count();
      reduction_(taps, row.channels, sums);
      finish(sums, row.channels, {row.slice, row.row, column});
      row_kernels().to_half(sums, y + row.output + column * y_pixel_, row.channels);
    }
  }

  // `count` channels of the pixels of an input row.
  void widen_row(const Half* from, std::int64_t count, float* to) const {
    const bool whole = count == y_.channels;
    const std::int64_t pixels = whole ? 1 : x_.extent[2];
    const std::int64_t run = whole ? x_.extent[2] * count : count;
    for (std::int64_t i = 0; i < pixels; ++i)
      row_kernels().to_float(from + i * y_.channels, to + i * run, run);
  }

  // One window per image: first the rows, which are where the workers that wrote them find them, then what they add up
  // to; the order of sums is that of run_windows().
  void run_rows(const ConstTensorView& x, const TensorView& y, const RunContext& context) const {
    float* partial = reinterpret_cast<float*>(context.scratch);
    const std::int64_t channels = y_.channels;
    float* total = partial + rows_of(x_) * channels;  // f16
    const TapRange d = taps_inside(window_, 0, 0, x_.extent[0]);
    const TapRange h = taps_inside(window_, 1, 0, x_.extent[1]);
    const TapRange w = taps_inside(window_, 2, 0, x_.extent[2]);
    const std::int64_t rows = d.count() * h.count();  // of an image
    context.pool.parallel_for(x_.batch * rows, [&](std::int64_t task, int worker) {
      const std::int64_t slice = d.start + (d.begin + task % rows / h.count()) * window_.dilation[0];
      const std::int64_t row = h.start + (h.begin + task % h.count()) * window_.dilation[1];
      const std::int64_t first =
          ((task / rows * x_.extent[0] + slice) * x_.extent[1] + row) * x_.extent[2] * channels;
      float* stage = half_ ? total + channels + worker * stage_ : nullptr;
      if (half_) widen_row(x.as<Half>() + first, channels, stage);
      Taps<float> taps;
      taps.data = half_ ? stage : x.as<float>() + first;
      taps.data += (w.start + w.begin * window_.dilation[2]) * channels;
      taps.column_step = window_.dilation[2] * channels;
      taps.rows = 1;
      taps.columns = w.count();
      reduction_(taps, channels, partial + task * channels);
    });
    Taps<float> sums;
    sums.row_step = channels;
    sums.rows = rows;
    sums.columns = 1;
    for (std::int64_t n = 0; n < x_.batch; ++n) {
      float* to = half_ ? total : y.as<float>() + n * y_pixel_;
      sums.data = partial + n * rows * channels;
      join_(sums, channels, to);
      finish(to, channels, {0, 0, 0});
      if (half_) row_kernels().to_half(to, y.as<Half>() + n * y_pixel_, channels);
    }
  }

  // `count` channels of an output position from their reduction.
  void finish(float* y, std::int64_t count, const std::array<std::int64_t, 3>& position) const {
    finish_by(y, count, divisor_at(position));
  }

  std::int64_t divisor_at(const std::array<std::int64_t, 3>& position) const {
    if (attributes_.kind != PoolKind::average) return 1;
    return average_divisor(window_, attributes_.count_include_pad, position, x_.extent);
  }

  void finish_by(float* y, std::int64_t count, std::int64_t divisor) const {
    if (attributes_.kind == PoolKind::average) {
      simd<divide_row>(y, count, static_cast<float>(std::max<std::int64_t>(divisor, 1)));
    } else if (attributes_.kind == PoolKind::lp && attributes_.p == 2) {
      simd<sqrt_row>(y, count);
    }
  }

  PoolAttributes attributes_;
  Image x_;
  Image y_;
  std::int64_t y_pixel_;  // elements from one pixel of the output to the next
  Window window_;         // three-dimensional
  ReduceRow reduction_;
  ReduceRow join_;
  bool half_;
  int threads_;
  bool by_rows_;
  std::int64_t block_ = 0;  // channels that one task takes
  std::pair<std::int64_t, std::int64_t> whole_windows_;
  std::int64_t stage_ = 0;  // f16: see stage_floats()
};

}  // namespace

void register_cpu_pool(Registry& registry) {
  Candidate nhwc{"nhwc", refuse_pool, [](const NodeSpec& spec) { return std::make_unique<PoolRows>(spec); }};
  nhwc.writes_rows_apart = [](const NodeSpec&) { return true; };
  registry.add(Pool::kType, DeviceKind::cpu, std::move(nhwc));
}

}  // namespace pipit
