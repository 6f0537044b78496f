// Average and maximum of i8 and u8 NHWC and NDHWC data, vectorized over the channels.
#include <algorithm>
#include <limits>

#include "engine/platform/simd.h"
#include "layers/common/image.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/vector/byte_loops.h"
#include "layers/cpu/vector/tap_grid.h"
#include "layers/ops/operands.h"
#include "layers/ops/pool.h"
#include "layers/ops/qelementwise.h"

namespace pipit::internal {

namespace {

// Channels that are reduced at once.
constexpr std::int64_t kBlock = 256;

Refusal refuse_images(const NodeSpec& spec) {
  if (Refusal reason = refuse_reduced_precision(spec)) return reason;
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

// At the first channel of the taps of one output position that lie inside the image.
using ByteTaps = Taps<std::uint8_t>;

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
  for (std::int64_t d = 0; d < x.slices; ++d) {
    for (std::int64_t h = 0; h < x.rows; ++h) {
      for (std::int64_t w = 0; w < x.columns; ++w) {
        const std::uint8_t* tap = tap_at(x, d, h, w);
        PIPIT_INDEPENDENT
        for (std::int64_t c = 0; c < count; ++c) y[c] += static_cast<std::int32_t>(tap[c] ^ flip);
      }
    }
  }
}

// y[c] = the largest x[c] of `Count` channels. A constant count is loops without remainder; 16 and less would be taken
// apart before they are vectors.
template <typename T, int Count>
PIPIT_INLINE inline void max_block(const ByteTaps& x, const std::uint8_t* data, T* y) {
  T best[Count];
  for (int i = 0; i < Count; ++i) best[i] = std::numeric_limits<T>::min();
  for (std::int64_t d = 0; d < x.slices; ++d) {
    for (std::int64_t h = 0; h < x.rows; ++h) {
      const T* tap = reinterpret_cast<const T*>(data + d * x.slice_step + h * x.row_step);
      for (std::int64_t w = 0; w < x.columns; ++w, tap += x.column_step) {
        for (int i = 0; i < Count; ++i) best[i] = tap[i] > best[i] ? tap[i] : best[i];
      }
    }
  }
  for (int i = 0; i < Count; ++i) y[i] = best[i];
}

// The same for fewer channels.
template <typename T>
PIPIT_INLINE inline void max_few(const ByteTaps& x, const std::uint8_t* data, T* y, std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) y[c] = std::numeric_limits<T>::min();
  for (std::int64_t d = 0; d < x.slices; ++d) {
    for (std::int64_t h = 0; h < x.rows; ++h) {
      const T* tap = reinterpret_cast<const T*>(data + d * x.slice_step + h * x.row_step);
      for (std::int64_t w = 0; w < x.columns; ++w, tap += x.column_step) {
        PIPIT_INDEPENDENT
        for (std::int64_t c = 0; c < count; ++c) y[c] = tap[c] > y[c] ? tap[c] : y[c];
      }
    }
  }
}

template <typename T>
PIPIT_INLINE inline void max_taps(const ByteTaps& x, const Stretch& stretch, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < stretch.positions; ++i) {
    const std::uint8_t* data = x.data + i * stretch.x_step;
    T* to = y + i * stretch.y_step;
    std::int64_t c = 0;
    for (; c + 64 <= count; c += 64) max_block<T, 64>(x, data + c, to + c);
    for (; c + 32 <= count; c += 32) max_block<T, 32>(x, data + c, to + c);
    if (c == count) continue;
    if (count >= 32) {  // the last block overlaps its neighbour
      max_block<T, 32>(x, data + count - 32, to + count - 32);
    } else {
      max_few<T>(x, data, to, count);
    }
  }
}

// Calls body(taps of the first position, stretch, its position, first element of y, channels) for blocks of channels of
// all output positions. `window`: three-dimensional.
template <typename Body>
void for_each_stretch(const ConstTensorView& input, const TensorDesc& output, const Window& window,
                      ThreadPool& pool, Body&& body) {
  const Image x(input.desc);
  const Image y(output);
  const std::int64_t channels = y.channels;
  const std::int64_t rows = y.batch * y.extent[0] * y.extent[1];
  // Few output rows (global pooling) leave the channels to share out.
  const std::int64_t block = rows < 32 ? 64 : kBlock;
  const std::int64_t blocks = (channels + block - 1) / block;
  pool.parallel_for(rows * blocks, [&](std::int64_t task, int /*worker*/) {
    const std::int64_t index = task / blocks;
    const std::int64_t channel = task % blocks * block;
    std::array<std::int64_t, 3> at{index / y.extent[1] % y.extent[0], index % y.extent[1], 0};
    const std::int64_t image = index / y.extent[1] / y.extent[0];
    const auto* data =
        reinterpret_cast<const std::uint8_t*>(input.data) + image * x.positions() * channels + channel;
    const TapRange d = taps_inside(window, 0, at[0], x.extent[0]);
    const TapRange h = taps_inside(window, 1, at[1], x.extent[1]);
    Stretch stretch{1, window.stride[2] * channels, channels};
    for (std::int64_t& column = at[2]; column < y.extent[2]; column += stretch.positions) {
      const TapRange w = taps_inside(window, 2, column, x.extent[2]);
      const bool whole = w.count() == window.kernel[2];
      stretch.positions = whole ? std::min(y.extent[2] - column,
                                           (x.extent[2] - window.span(2) - w.start) / window.stride[2] + 1)
                                : 1;
      body(taps_of(data, x.extent[1], x.extent[2], channels, window, d, h, w), stretch, at,
           (index * y.extent[2] + column) * channels + channel, std::min(block, channels - channel));
    }
  });
}

void run_average(const QAveragePool& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& context) {
  const QAveragePoolAttributes& attributes = layer.attributes();
  const Image x(inputs[0].desc);
  const Window window = as_3d(pool_window(attributes.pool, inputs[0].desc.shape));
  const ByteSpan input(inputs[0].data, attributes.x);
  const ByteTarget target(attributes.y);
  const float y_scale = attributes.y.quantized() ? attributes.y.scale : 1.0F;
  const auto y_bytes = static_cast<std::int64_t>(dtype_bytes(outputs[0].desc.dtype));
  for_each_stretch(
      inputs[0], outputs[0].desc, window, context.pool,
      [&](ByteTaps taps, const Stretch& stretch, std::array<std::int64_t, 3> position, std::int64_t at,
          std::int64_t count) {
        std::int32_t sums[kBlock];
        const auto start = static_cast<int>(-input.offset * taps.slices * taps.rows * taps.columns);
        for (std::int64_t i = 0; i < stretch.positions; ++i, ++position[2], taps.data += stretch.x_step) {
          simd<sum_taps>(taps, static_cast<unsigned>(input.flip), start, sums, count);
          const std::int64_t divisor = std::max<std::int64_t>(
              1, average_divisor(window, attributes.pool.count_include_pad, position, x.extent));
          requantize_span(sums, attributes.x.scale / (y_scale * static_cast<float>(divisor)), target,
                          outputs[0].data + (at + i * stretch.y_step) * y_bytes, count);
        }
      });
}

template <typename T>
void run_max_of(const Pool& layer, const ConstTensorView& x, const TensorView& y, ThreadPool& pool) {
  const Window window = as_3d(pool_window(layer.attributes(), x.desc.shape));
  for_each_stretch(x, y.desc, window, pool,
                   [&](const ByteTaps& taps, const Stretch& stretch,
                       const std::array<std::int64_t, 3>& /*position*/, std::int64_t at, std::int64_t count) {
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

}  // namespace pipit::internal
