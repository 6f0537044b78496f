#include "layers/cpu/tile_pack.h"

#include <algorithm>

namespace pipit {

void pack_f32_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights, std::byte* packed) {
  const std::int64_t columns = panels.columns(p);
  const std::int64_t width = (columns + panels.lanes - 1) / panels.lanes * panels.lanes;
  const float* first = weights.data + p * panels.panel * weights.output_stride;
  float* to = reinterpret_cast<float*>(packed + panels.offset(p));
  for (std::int64_t outer = 0; outer < weights.outer_count; ++outer) {
    for (std::int64_t inner = 0; inner < weights.inner_count; ++inner, to += width) {
      const float* from = first + outer * weights.outer_stride + inner * weights.inner_stride;
      for (std::int64_t o = 0; o < columns; ++o) to[o] = from[o * weights.output_stride];
      std::fill(to + columns, to + width, 0.0F);
    }
  }
}

void pack_s8_panel(const TilePanels& panels, std::int64_t p, const WeightsOf<std::int8_t>& weights,
                   std::byte* packed) {
  const std::int64_t columns = panels.columns(p);
  const std::int64_t width = (columns + panels.lanes - 1) / panels.lanes * panels.lanes;
  const std::int8_t* first = weights.data + p * panels.panel * weights.output_stride;
  auto* to = reinterpret_cast<std::int8_t*>(packed + panels.offset(p));
  for (std::int64_t outer = 0; outer < weights.outer_count; ++outer) {
    for (std::int64_t inner = 0; inner < weights.inner_count; inner += 4, to += 4 * width) {
      std::fill_n(to, 4 * width, std::int8_t{0});
      const std::int64_t used = std::min<std::int64_t>(4, weights.inner_count - inner);
      for (std::int64_t o = 0; o < columns; ++o) {
        const std::int8_t* from = first + o * weights.output_stride + outer * weights.outer_stride;
        for (std::int64_t i = 0; i < used; ++i) to[4 * o + i] = from[(inner + i) * weights.inner_stride];
      }
    }
  }
}

}  // namespace pipit
