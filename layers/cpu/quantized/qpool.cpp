// Average and maximum of i8 and u8 NHWC data, vectorized over the channels.
#include <algorithm>

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

// y[c] = the largest x[c] of `Count` channels, compared as unsigned numbers after ^ flip. A constant count is loops
// without remainder.
template <int Count>
PIPIT_INLINE inline void max_block(const ByteTaps& x, std::int64_t c, std::uint8_t flip, std::uint8_t* y) {
  std::uint8_t best[Count] = {};
  for (std::int64_t h = 0; h < x.rows; ++h) {
    for (std::int64_t w = 0; w < x.columns; ++w) {
      const std::uint8_t* tap = x.data + h * x.row_step + w * x.column_step + c;
      for (int i = 0; i < Count; ++i) {
        const auto value = static_cast<std::uint8_t>(tap[i] ^ flip);
        best[i] = value > best[i] ? value : best[i];
      }
    }
  }
  for (int i = 0; i < Count; ++i) y[c + i] = static_cast<std::uint8_t>(best[i] ^ flip);
}

PIPIT_INLINE inline void max_taps(const ByteTaps& x, std::uint8_t flip, std::uint8_t* y, std::int64_t count) {
  std::int64_t c = 0;
  for (; c + 32 <= count; c += 32) max_block<32>(x, c, flip, y);
  for (; c + 8 <= count; c += 8) max_block<8>(x, c, flip, y);
  for (; c < count; ++c) max_block<1>(x, c, flip, y);
}

// Calls body(taps, row, column, first element of y, channels) for blocks of channels of every output position.
template <typename Body>
void for_each_block(const ConstTensorView& input, const Shape& y, const Window& window, ThreadPool& pool,
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
    for (std::int64_t column = 0; column < y[3]; ++column) {
      const ByteTaps taps(image, x[3], channels, window, h, taps_inside(window, 1, column, x[3]));
      body(taps, row % y[2], column, (row * y[3] + column) * channels + channel,
           std::min(block, channels - channel));
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
  for_each_block(
      inputs[0], outputs[0].desc.shape, window, context.pool,
      [&](const ByteTaps& taps, std::int64_t row, std::int64_t column, std::int64_t at, std::int64_t count) {
        std::int32_t sums[kBlock];
        const auto start = static_cast<int>(-input.offset * taps.rows * taps.columns);
        simd<sum_taps>(taps, static_cast<unsigned>(input.flip), start, sums, count);
        const std::int64_t divisor = std::max<std::int64_t>(
            1,
            average_divisor(window_3d, attributes.pool.count_include_pad, {0, row, column}, {1, x[2], x[3]}));
        requantize_span(sums, attributes.x.scale / (y_scale * static_cast<float>(divisor)), target,
                        outputs[0].data + at * y_bytes, count);
      });
}

void run_max(const Pool& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
             const RunContext& context) {
  const Window window = pool_window(layer.attributes(), inputs[0].desc.shape);
  const std::uint8_t flip = inputs[0].desc.dtype == DType::i8 ? 0x80 : 0;
  auto* y = reinterpret_cast<std::uint8_t*>(outputs[0].data);
  for_each_block(inputs[0], outputs[0].desc.shape, window, context.pool,
                 [&](const ByteTaps& taps, std::int64_t /*row*/, std::int64_t /*column*/, std::int64_t at,
                     std::int64_t count) { simd<max_taps>(taps, flip, y + at, count); });
}

}  // namespace

void register_cpu_qpool(Registry& registry) {
  add_layer_kernel<QAveragePool>(registry, "nhwc", refuse_images, run_average);
  add_layer_kernel<Pool>(registry, "nhwc_int8", refuse_max, run_max);
}

}  // namespace pipit
