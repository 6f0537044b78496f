// Loops of the tile kernel over the pixels and panels of a layer.
#pragma once

#include <cstdint>

#include "layers/cpu/tile/tile_pack.h"

namespace pipit {

/// Output pixels in rows of equal width, and where their operands lie. Strides in bytes.
struct TileBand {
  std::int64_t width = 0;
  std::int64_t rows = 0;
  const std::byte* a = nullptr;  ///< input of the first pixel
  std::int64_t a_pixel = 0;
  std::int64_t a_row = 0;
  std::int64_t a_image = 0;         ///< from the first row of an image to that of the next
  std::int64_t rows_per_image = 1;  ///< the first row of the band is the first of an image, or all are of one
  std::byte* c = nullptr;           ///< output 0 of the first pixel
  const std::byte* residual = nullptr;  ///< [pixel][output] like c, or null
  std::int64_t c_pixel = 0;
  std::int64_t c_row = 0;  ///< 0: rows follow each other, as those of residual and scales always do
  std::int64_t residual_pixel = 0;
  /// No pixel is computed twice, so that c may be the residual: the last strip of a row is smaller where otherwise it
  /// overlaps its neighbour, and is computed alone.
  bool once = false;
  const float* pixel_scale = nullptr;  ///< of the first pixel, see TileCall; or null
  std::int64_t pixel_scale_step = 0;
};

/// A range [begin, end).
struct TileRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  /// Part `index` of `parts` of nearly equal size.
  TileRange part(std::int64_t index, std::int64_t parts) const {
    return {begin + size() * index / parts, begin + size() * (index + 1) / parts};
  }
};

/// What all tiles of a layer share. A layer of several groups has panels().count() panels per group, one group after
/// the other; they are counted through.
struct TileLoop {
  const TileKernels* kernels = nullptr;
  TilePanels panels;  ///< of one group
  std::int64_t groups = 1;
  std::int64_t a_group = 0;                ///< bytes from the input of one group to that of the next
  std::int64_t c_group = 0;                ///< and from its outputs; 0: they follow each other
  const std::int32_t* segments = nullptr;  ///< see TileCall
  std::int32_t segment_count = 0;
  std::int32_t run = 0;
  /// What all calls have in common: the bounds, and for int8 its arithmetic, of which sum_bias and multiplier are of
  /// output 0.
  TileCall shared;
  std::int64_t c_bytes = 4;  ///< of an output
  std::int64_t residual_bytes = 4;

  std::int64_t panel_count() const { return groups * panels.count(); }
  std::int64_t packed_bytes() const { return groups * panels.bytes(); }
  /// Tiles that one panel takes: pairs of strips.
  std::int64_t tiles(const TileBand& band) const;
  /// Computes `tiles` of the band for each of the panels [panels.begin, panels.end): tile by tile, and for each
  /// tile panel by panel. Meanwhile `prefetch_bytes` from `prefetch` on are called into the second-level cache.
  void run_tiles(const TileBand& band, const TileRange& tiles, const TileRange& panels,
                 const std::byte* packed, const float* bias, const std::byte* prefetch = nullptr,
                 std::int64_t prefetch_bytes = 0) const;
};

}  // namespace pipit
