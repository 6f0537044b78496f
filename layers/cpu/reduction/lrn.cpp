// Local response normalization across the channels of NHWC data.
#include <algorithm>
#include <cmath>

#include "engine/platform/simd.h"
#include "layers/common/layer_kernel.h"
#include "layers/cpu/families.h"
#include "layers/cpu/work_sharing.h"
#include "layers/ops/normalization.h"
#include "layers/ops/operands.h"

namespace pipit::internal {

namespace {

Refusal refuse_lrn(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_f32(spec)) return reason;
  if (!is_channels_last(*spec.inputs[0]) || !is_channels_last(spec.outputs[0])) {
    return "input and output must be channels_last";
  }
  return std::nullopt;
}

PIPIT_INLINE inline void add_squares(const float* x, float* sums, std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) sums[c] += x[c] * x[c];
}

// y = x / base^(3/4), the exponent of nearly every network that has this layer.
PIPIT_INLINE inline void finish_three_quarters(const float* x, float bias, float factor, float* y,
                                               std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) {
    const float root = std::sqrt(bias + factor * y[c]);
    y[c] = x[c] / (root * std::sqrt(root));
  }
}

void finish(const float* x, float bias, float factor, float beta, float* y, std::int64_t count) {
  for (std::int64_t c = 0; c < count; ++c) y[c] = x[c] / std::pow(bias + factor * y[c], beta);
}

// The output row first holds the sums of squares.
void normalize_row(const LrnAttributes& a, const float* x, float* y, std::int64_t channels) {
  std::fill_n(y, channels, 0.0F);
  // Neighbours at each distance, as far as any exist.
  const std::int64_t before = std::min((a.size - 1) / 2, channels - 1);
  const std::int64_t after = std::min(a.size / 2, channels - 1);
  for (std::int64_t d = -before; d <= after; ++d) {
    const std::int64_t first = std::max<std::int64_t>(0, -d);
    const std::int64_t last = std::min(channels, channels - d);
    simd<add_squares>(x + first + d, y + first, last - first);
  }
  const float factor = a.alpha / static_cast<float>(a.size);
  if (a.beta == 0.75F) {
    simd<finish_three_quarters>(x, a.bias, factor, y, channels);
  } else {
    finish(x, a.bias, factor, a.beta, y, channels);
  }
}

void run_lrn(const Lrn& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
             const RunContext& context) {
  const Shape& shape = inputs[0].desc.shape;
  if (shape.elements() == 0) return;
  const std::int64_t channels = shape[1];
  const float* x = inputs[0].as<float>();
  float* y = outputs[0].as<float>();
  parallel_chunks(context.pool, shape.elements() / channels, rows_per_chunk(channels),
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t r = begin; r < end; ++r) {
                      normalize_row(layer.attributes(), x + r * channels, y + r * channels, channels);
                    }
                  });
}

}  // namespace

void register_cpu_lrn(Registry& registry) {
  add_layer_kernel<Lrn>(registry, "nhwc", refuse_lrn, run_lrn);
}

}  // namespace pipit::internal
