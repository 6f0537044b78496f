// Loops of the tile kernel over the pixels and panels of a layer.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/cpu/tile/tile_kernel.h"
#include "layers/cpu/tile/tile_schedule.h"

namespace pipit::internal {

/// Output pixels in rows of equal width, and where their operands lie. Strides in bytes.
struct TileBand {
  std::int64_t width = 0;
  std::int64_t rows = 0;
  const std::byte* a = nullptr;  ///< input of the first pixel
  std::int64_t a_pixel = 0;
  std::int64_t a_row = 0;
  std::int64_t a_image = 0;         ///< from the first row of an image to that of the next
  std::int64_t rows_per_image = 1;  ///< the first row of the band is the first of an image, or all are of one
  std::byte* c = nullptr;           ///< results of the first pixel, from byte c_begin on
  std::int64_t c_begin = 0;
  const std::byte* residual = nullptr;  ///< [pixel][output], or null
  std::int64_t c_pixel = 0;
  std::int64_t c_row = 0;    ///< 0: rows follow each other, as those of residual and scales always do
  std::int64_t c_image = 0;  ///< from image to image; 0: rows of all follow each other
  std::int64_t residual_pixel = 0;
  /// No pixel is computed twice, so that c may be the residual: the last strip of a row is smaller where otherwise it
  /// overlaps its neighbour, and is computed alone.
  bool once = false;
  const float* pixel_scale = nullptr;  ///< of the first pixel, see TileCall; or null
  std::int64_t pixel_scale_step = 0;
  const std::int32_t* sum_bias = nullptr;  ///< of output 0, instead of TileLoop::shared's; or null
  const float* multipliers = nullptr;      ///< likewise
};

/// Neighbouring outputs that tiles compute together, and what they are summed up from. Panels of a layer may have K of
/// their own each.
struct TilePanel {
  std::int64_t output = 0;  ///< the first
  std::int32_t columns = 0;
  const std::int32_t* segments = nullptr;  ///< see TileCall
  std::int32_t segment_count = 0;
  std::int32_t run = 0;
  std::int64_t input = 0;         ///< bytes from where a pixel's input is to where segments count from
  std::int64_t result = 0;        ///< bytes from where a pixel's results are to those of the panel
  std::int64_t weights = 0;       ///< bytes from the weights of the first panel
  std::int64_t weight_bytes = 0;  ///< [steps][vectors * lanes] elements of 4 bytes

  std::int64_t steps() const { return std::int64_t{segment_count} * run; }
};

/// What all tiles of a layer share.
struct TileLoop {
  const TileKernels* kernels = nullptr;
  std::vector<TilePanel> panels;
  /// What all calls have in common: the bounds, and for int8 its arithmetic, of which sum_bias and multiplier are of
  /// output 0.
  TileCall shared;
  std::int64_t residual_bytes = 4;  ///< of one output's

  std::int64_t panel_count() const { return static_cast<std::int64_t>(panels.size()); }
  const TilePanel& panel(std::int64_t index) const { return panels[static_cast<std::size_t>(index)]; }
  /// Tiles that one panel takes: pairs of strips.
  std::int64_t tiles(const TileBand& band) const;
  /// Computes `tiles` of the band for each of the panels [panels.begin, panels.end): tile by tile, and for each tile
  /// panel by panel. Calls for different tiles write different pixels, so that workers may make them at a time.
  /// `weights`: of the first of the panels. Meanwhile `prefetch_bytes` from `prefetch` on are called into the
  /// second-level cache.
  void run_tiles(const TileBand& band, const TileRange& tiles, const TileRange& panels,
                 const std::byte* weights, const float* bias, const std::byte* prefetch = nullptr,
                 std::int64_t prefetch_bytes = 0) const;
};

}  // namespace pipit::internal
