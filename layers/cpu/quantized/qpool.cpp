// Average and maximum of i8 and u8 NHWC data, vectorized over the channels.
#include <algorithm>
#include <limits>

#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/byte_loops.h"
#include "layers/ops/operands.h"
#include "layers/ops/pool.h"
#include "layers/ops/qelementwise.h"

namespace pipit {

namespace {

// Channels that are reduced at once.
constexpr std::int64_t kBlock = 256;

Refusal refuse_images(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
  if (spec.inputs[0]->shape.rank() != 4) return "only two spatial dimensions are handled";
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0])) {
    return "input and output must be channels_last";
  }
  return std::nullopt;
}

Refusal refuse_max(const NodeSpec& spec) {
  const PoolAttributes& attributes = layer_as<Pool>(spec.layer).attributes();
  if (attributes.kind != PoolKind::max || attributes.indices) return "only the maximum is handled";
  const DType type = spec.inputs[0]->dtype;
  if (type != DType::i8 && type != DType::u8) return "only i8 and u8 are handled";
  return refuse_images(spec);
}

// The taps of one output position that lie inside the image, at the first channel.
struct ByteTaps {
  const std::uint8_t* data;
  std::int64_t row_step;
  std::int64_t column_step;
  std::int64_t rows;
  std::int64_t columns;

  ByteTaps(const std::byte* image, std::int64_t width, std::int64_t channels, const Window& window,
           const TapRange& h, const TapRange& w)
      : data(reinterpret_cast<const std::uint8_t*>(image) +
             ((h.start + h.begin * window.dilation[0]) * width + w.start + w.begin * window.dilation[1]) *
                 channels),
        row_step(window.dilation[0] * width * channels),
        column_step(window.dilation[1] * channels),
        rows(h.count()),
        columns(w.count()) {}
};

// Neighbouring positions of an output row whose windows have the same taps inside the image.
struct Stretch {
  std::int64_t positions;
  std::int64_t x_step;  // from the taps of one to those of the next
  std::int64_t y_step;
};

// y[c] = start + sum of (x[c] ^ flip).
PIPIT_INLINE inline void sum_taps(const ByteTaps& x, unsigned flip, int start, std::int32_t* y,
                                  std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) y[c] = start;
  for (std::int64_t h = 0; h < x.rows; ++h) {
    for (std::int64_t w = 0; w < x.columns; ++w) {
      const std::uint8_t* tap = x.data + h * x.row_step + w * x.column_step;
      PIPIT_INDEPENDENT
      for (std::int64_t c = 0; c < count; ++c) y[c] += static_cast<std::int32_t>(tap[c] ^ flip);
    }
  }
}

// y[c] = the largest x[c] of `Count` channels. A constant count is loops without remainder.
template <typename T, int Count>
PIPIT_INLINE inline void max_block(const ByteTaps& x, const std::uint8_t* data, T* y) {
  T best[Count];
  for (int i = 0; i < Count; ++i) best[i] = std::numeric_limits<T>::min();
  for (std::int64_t h = 0; h < x.rows; ++h) {
    const T* tap = reinterpret_cast<const T*>(data + h * x.row_step);
    for (std::int64_t w = 0; w < x.columns; ++w, tap += x.column_step) {
      for (int i = 0; i < Count; ++i) best[i] = tap[i] > best[i] ? tap[i] : best[i];
    }
  }
  for (int i = 0; i < Count; ++i) y[i] = best[i];
}

template <typename T>
PIPIT_INLINE inline void max_taps(const ByteTaps& x, const Stretch& stretch, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < stretch.positions; ++i) {
    const std::uint8_t* data = x.data + i * stretch.x_step;
    T* to = y + i * stretch.y_step;
    std::int64_t c = 0;
    for (; c + 64 <= count; c += 64) max_block<T, 64>(x, data + c, to + c);
    for (; c + 16 <= count; c += 16) max_block<T, 16>(x, data + c, to + c);
    for (; c < count; ++c) max_block<T, 1>(x, data + c, to + c);
  }
}

// Calls body(taps of the first position, stretch, row, column, first element of y, channels) for blocks of channels of
// all output positions.
template <typename Body>
void for_each_stretch(const ConstTensorView& input, const Shape& y, const Window& window, ThreadPool& pool,
                      Body&& body) {
  const Shape& x = input.desc.shape;
  const std::int64_t channels = y[1];
  const std::int64_t rows = y[0] * y[2];
  // Few output rows (global pooling) leave the channels to share out.
  const std::int64_t block = rows < 32 ? 64 : kBlock;
  const std::int64_t blocks = (channels + block - 1) / block;
  pool.parallel_for(rows * blocks, [&](std::int64_t task, int /*worker*/) {
    const std::int64_t row = task / blocks;
    const std::int64_t channel = task % blocks * block;
    const std::byte* image = input.data + row / y[2] * x[2] * x[3] * channels + channel;
    const TapRange h = taps_inside(window, 0, row % y[2], x[2]);
    Stretch stretch{1, window.stride[1] * channels, channels};
    for (std::int64_t column = 0; column < y[3]; column += stretch.positions) {
      const TapRange w = taps_inside(window, 1, column, x[3]);
      const bool whole = w.count() == window.kernel[1];
      stretch.positions =
          whole ? std::min(y[3] - column, (x[3] - window.span(1) - w.start) / window.stride[1] + 1) : 1;
      body(ByteTaps(image, x[3], channels, window, h, w), stretch, row % y[2], column,
           (row * y[3] + column) * channels + channel, std::min(block, channels - channel));
    }
  });
}

void run_average(const QAveragePool& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& context) {
  const QAveragePoolAttributes& attributes = layer.attributes();
  const Shape& x = inputs[0].desc.shape;
  const Window window = pool_window(attributes.pool, x);
  const Window window_3d = as_3d(window);
  const ByteSpan input(inputs[0].data, attributes.x);
  const ByteTarget target(attributes.y);
  const float y_scale = attributes.y.quantized() ? attributes.y.scale : 1.0F;
  const auto y_bytes = static_cast<std::int64_t>(dtype_bytes(outputs[0].desc.dtype));
  for_each_stretch(inputs[0], outputs[0].desc.shape, window, context.pool,
                   [&](ByteTaps taps, const Stretch& stretch, std::int64_t row, std::int64_t column,
                       std::int64_t at, std::int64_t count) {
                     std::int32_t sums[kBlock];
                     const auto start = static_cast<int>(-input.offset * taps.rows * taps.columns);
                     for (std::int64_t i = 0; i < stretch.positions; ++i, taps.data += stretch.x_step) {
                       simd<sum_taps>(taps, static_cast<unsigned>(input.flip), start, sums, count);
                       const std::int64_t divisor = std::max<std::int64_t>(
                           1, average_divisor(window_3d, attributes.pool.count_include_pad,
                                              {0, row, column + i}, {1, x[2], x[3]}));
                       requantize_span(sums, attributes.x.scale / (y_scale * static_cast<float>(divisor)),
                                       target, outputs[0].data + (at + i * stretch.y_step) * y_bytes, count);
                     }
                   });
}

template <typename T>
void run_max_of(const Pool& layer, const ConstTensorView& x, const TensorView& y, ThreadPool& pool) {
  const Window window = pool_window(layer.attributes(), x.desc.shape);
  for_each_stretch(x, y.desc.shape, window, pool,
                   [&](const ByteTaps& taps, const Stretch& stretch, std::int64_t /*row*/,
                       std::int64_t /*column*/, std::int64_t at, std::int64_t count) {
                     simd<max_taps<T>>(taps, stretch, reinterpret_cast<T*>(y.data) + at, count);
                   });
}

void run_max(const Pool& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
             const RunContext& context) {
  if (inputs[0].desc.dtype == DType::i8) {
    run_max_of<std::int8_t>(layer, inputs[0], outputs[0], context.pool);
  } else {
    run_max_of<std::uint8_t>(layer, inputs[0], outputs[0], context.pool);
  }
}

}  // namespace

void register_cpu_qpool(Registry& registry) {
  add_layer_kernel<QAveragePool>(registry, "nhwc", refuse_images, run_average);
  add_layer_kernel<Pool>(registry, "nhwc_int8", refuse_max, run_max);
}

}  // namespace pipit
