#include "layers/cpu/tile/tile_loop.h"

#include <algorithm>

namespace pipit::internal {

namespace {

constexpr std::int64_t kLine = 64;

TileCall second_strip(TileCall call) {
  call.a[0] = call.a[1];
  call.c[0] = call.c[1];
  call.residual[0] = call.residual[1];
  call.pixel_scale[0] = call.pixel_scale[1];
  return call;
}

}  // namespace

std::int64_t TileLoop::tiles(const TileBand& band) const {
  return (TileStrips(*kernels, band.width).count * band.rows + 1) / 2;
}

void TileLoop::run_tiles(const TileBand& band, const TileRange& tiles, const TileRange& panel_range,
                         const std::byte* weights, const float* bias, const std::byte* prefetch,
                         std::int64_t prefetch_bytes) const {
  const TileStrips cut(*kernels, band.width);
  const std::int64_t total = cut.count * band.rows;
  const std::int64_t c_row = band.c_row != 0 ? band.c_row : band.width * band.c_pixel;
  const std::int64_t c_image = band.c_image != 0 ? band.c_image : band.rows_per_image * c_row;
  const TilePanel* const first = panels.data() + panel_range.begin;
  const TilePanel* const last = panels.data() + panel_range.end;

  TileCall call = shared;
  call.a_stride = band.a_pixel;
  call.c_stride = band.c_pixel;
  call.residual_stride = band.residual_pixel;
  call.pixel_scale_step = band.pixel_scale_step;
  const std::int32_t* const sum_bias = band.sum_bias != nullptr ? band.sum_bias : shared.sum_bias;
  const float* const multipliers = band.multipliers != nullptr ? band.multipliers : shared.multiplier;
  // Every step of K of every tile calls one line; neighbouring lines come in pairs.
  std::int64_t steps = 0;
  for (const TilePanel* panel = first; panel != last; ++panel) steps += panel->steps();
  const std::int64_t calls = std::max<std::int64_t>(1, tiles.size() * steps);
  const std::int64_t prefetch_step = std::min(2 * kLine, (prefetch_bytes + calls - 1) / calls);
  call.prefetch_step = prefetch_step;
  call.prefetch = prefetch_step > 0 ? prefetch : weights;

  // Where the next strip of pixels is: counted on rather than divided out, which takes as long as a short sum.
  std::int64_t row = 2 * tiles.begin / cut.count;
  std::int64_t index = 2 * tiles.begin % cut.count;
  std::int64_t image_row = row % band.rows_per_image;
  const std::byte* image = band.a + row / band.rows_per_image * band.a_image;
  std::byte* results = band.c + row / band.rows_per_image * c_image;
  for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    const std::byte* a[2] = {};
    std::byte* c[2] = {};
    const std::byte* residual[2] = {};
    std::int64_t size[2] = {};
    const int used = 2 * tile + 1 < total ? 2 : 1;
    for (int slot = 0; slot < used; ++slot) {
      // The strip before the first one is another call's, at the same time perhaps.
      const bool alone = band.once || (tile == tiles.begin && slot == 0);
      const std::int64_t pixel = alone ? index * cut.size : cut.start(index);
      size[slot] = std::min(cut.size, band.width - pixel);
      a[slot] = image + image_row * band.a_row + pixel * band.a_pixel;
      c[slot] = results + image_row * c_row + pixel * band.c_pixel;
      const std::int64_t at = row * band.width + pixel;
      if (band.residual != nullptr) residual[slot] = band.residual + at * band.residual_pixel;
      if (band.pixel_scale != nullptr) call.pixel_scale[slot] = band.pixel_scale + at * band.pixel_scale_step;
      if (++index < cut.count) continue;
      index = 0;
      ++row;
      if (++image_row < band.rows_per_image) continue;
      image_row = 0;
      image += band.a_image;
      results += c_image;
    }
    for (const TilePanel* panel = first; panel != last; ++panel) {
      const std::int64_t output = panel->output;
      call.weights = weights + (panel->weights - first->weights);
      call.columns = panel->columns;
      call.segments = panel->segments;
      call.segment_count = panel->segment_count;
      call.run = panel->run;
      call.bias = bias != nullptr ? bias + output : nullptr;
      if (sum_bias != nullptr) call.sum_bias = sum_bias + output;
      if (multipliers != nullptr) call.multiplier = multipliers + output;
      for (int slot = 0; slot < used; ++slot) {
        call.a[slot] = a[slot] + panel->input;
        call.c[slot] = c[slot] + (panel->result - band.c_begin);
        if (band.residual != nullptr) call.residual[slot] = residual[slot] + output * residual_bytes;
      }
      const int vectors = kernels->vectors(call.columns);
      if (used == 1 || size[0] == size[1]) {
        kernels->tile[used - 1][size[0] - 1][vectors - 1](call);
      } else {
        kernels->tile[0][size[0] - 1][vectors - 1](call);
        kernels->tile[0][size[1] - 1][vectors - 1](second_strip(call));
      }
      call.prefetch += prefetch_step * panel->steps();
    }
  }
  kernels->done();
}

}  // namespace pipit::internal
