// Pooling on NHWC data, vectorised over the channels.
#include "layers/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "layers/cpu/cpu.h"
#include "layers/cpu/taps.h"
#include "layers/layer_kernel.h"
#include "layers/operands.h"

namespace pipit {

namespace {

Refusal refuse_pool(const NodeSpec& spec) {
  const PoolAttributes& attributes = layer_as<Pool>(spec.layer).attributes();
  if (attributes.indices) return "positions of the maxima are not tracked";
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  if (spec.inputs[0]->shape.rank() != 4) return "only two spatial dimensions are handled";
  if (attributes.kind == PoolKind::lp && attributes.p > 2) return "only norms of order 1 and 2 are handled";
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0])) {
    return "input and output must be channels_last";
  }
  return std::nullopt;
}

// The reductions, on one float or one Vector. `join` adds the result of a row of taps.
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
template <typename Reduction, typename T>
PIPIT_INLINE inline void reduce(const TapGrid& x, std::int64_t c, float* y) {
  T result = T{} + Reduction::kStart;
  for (std::int64_t h = 0; h < x.rows; ++h) {
    T row = T{} + Reduction::kStart;
    for (std::int64_t w = 0; w < x.columns; ++w) {
      T value;
      load(x.at(h, w) + c, value);
      Reduction::tap(row, value);
    }
    Reduction::join(result, row);
  }
  store(result, y + c);
}

template <typename Reduction>
PIPIT_INLINE inline void reduce_channels(const TapGrid& x, std::int64_t channels, float* y) {
  std::int64_t c = 0;
  for (; c + kLanes <= channels; c += kLanes) reduce<Reduction, Vector>(x, c, y);
  for (; c < channels; ++c) reduce<Reduction, float>(x, c, y);
}

// y[c] = the reduction over all taps, for every channel.
using ReduceRow = void (*)(const TapGrid& x, std::int64_t channels, float* y);

// A plain loop per tap: comparisons of Vectors are taken apart lane by lane before the clones are made.
PIPIT_SIMD_CLONES void max_row(const TapGrid& x, std::int64_t channels, float* y) {
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
PIPIT_SIMD_CLONES void sum_row(const TapGrid& x, std::int64_t channels, float* y) {
  reduce_channels<Sum>(x, channels, y);
}
PIPIT_SIMD_CLONES void sum_absolute_row(const TapGrid& x, std::int64_t channels, float* y) {
  reduce_channels<SumAbsolute>(x, channels, y);
}
PIPIT_SIMD_CLONES void sum_squares_row(const TapGrid& x, std::int64_t channels, float* y) {
  reduce_channels<SumSquares>(x, channels, y);
}

PIPIT_SIMD_CLONES void divide_row(float* y, std::int64_t channels, float divisor) {
  for (std::int64_t c = 0; c < channels; ++c) y[c] /= divisor;
}
PIPIT_SIMD_CLONES void sqrt_row(float* y, std::int64_t channels) {
  for (std::int64_t c = 0; c < channels; ++c) y[c] = std::sqrt(y[c]);
}

ReduceRow reduction_of(const PoolAttributes& attributes) {
  switch (attributes.kind) {
    case PoolKind::max:
      return max_row;
    case PoolKind::average:
      return sum_row;
    case PoolKind::lp:
      break;
  }
  return attributes.p == 1 ? sum_absolute_row : sum_squares_row;
}

// Channels per task. Few output rows (global pooling) leave the channels to share out.
std::int64_t channel_block(std::int64_t rows, std::int64_t channels) {
  return rows < 32 ? 4 * kLanes : std::max<std::int64_t>(channels, 1);
}

// `y_pixel`: floats from one pixel of the output to the next.
void run_pool(const PoolAttributes& attributes, std::int64_t y_pixel, std::span<const ConstTensorView> inputs,
              std::span<const TensorView> outputs, const RunContext& context) {
  const Shape& x = inputs[0].desc.shape;
  const Shape& y = outputs[0].desc.shape;
  const Window window = pool_window(attributes, x);
  const Window window_3d = as_3d(window);
  const ReduceRow reduction = reduction_of(attributes);
  const std::int64_t channels = y[1];
  const std::int64_t rows = y[0] * y[2];
  const std::int64_t block = channel_block(rows, channels);
  const std::int64_t blocks = (channels + block - 1) / block;

  context.pool.parallel_for(rows * blocks, [&](std::int64_t task, int) {
    const std::int64_t row = task / blocks;
    const std::int64_t channel = task % blocks * block;
    const std::int64_t count = std::min(block, channels - channel);
    const float* image = inputs[0].as<float>() + row / y[2] * x[2] * x[3] * channels + channel;
    const TapRange h = taps_inside(window, 0, row % y[2], x[2]);
    for (std::int64_t column = 0; column < y[3]; ++column) {
      const TapRange w = taps_inside(window, 1, column, x[3]);
      float* to = outputs[0].as<float>() + (row * y[3] + column) * y_pixel + channel;
      reduction(tap_grid(image, x[3], channels, window, h, w), count, to);
      if (attributes.kind == PoolKind::average) {
        const std::int64_t divisor = average_divisor(window_3d, attributes.count_include_pad,
                                                     {0, row % y[2], column}, {1, x[2], x[3]});
        divide_row(to, count, static_cast<float>(std::max<std::int64_t>(divisor, 1)));
      } else if (attributes.kind == PoolKind::lp && attributes.p == 2) {
        sqrt_row(to, count);
      }
    }
  });
}

class PoolNhwc final : public Kernel {
 public:
  explicit PoolNhwc(const NodeSpec& spec)
      : attributes_(layer_as<Pool>(spec.layer).attributes()), y_pixel_(spec.outputs[0].shape[1]) {}

  bool write_rows_apart(std::size_t stride) override {
    y_pixel_ = static_cast<std::int64_t>(stride / sizeof(float));
    return true;
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    run_pool(attributes_, y_pixel_, inputs, outputs, context);
  }

 private:
  PoolAttributes attributes_;
  std::int64_t y_pixel_;
};

}  // namespace

void register_cpu_pool(Registry& registry) {
  registry.add(Pool::kType, DeviceKind::cpu,
               {"nhwc", refuse_pool, [](const NodeSpec& spec) { return std::make_unique<PoolNhwc>(spec); }});
}

}  // namespace pipit
