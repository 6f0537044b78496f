#include "layers/cuda/conv_tile.h"

namespace pipit::cuda {

double tile_cost(const ConvShape& shape, const ConvTile& tile, int processors) {
  // Microseconds that a multiprocessor needs for one pipeline step of a tile when it is kept busy: the tensor
  // cores do 0.0165 us per 64 x 64 x 64 step, and small tiles fetch more bytes per operation.
  const double area = static_cast<double>(tile.rows) * tile.columns / (64 * 64);
  const double busy = 0.0165 * area + 0.006 * (tile.rows + tile.columns) / 128;
  // A step of a block that has the multiprocessor to itself waits for memory and instruction latency.
  const double alone = 0.14 + 0.05 * area;
  const double steps = static_cast<double>(ceil_div(ceil_div(shape.depth(), kTileDepth), tile.splits));
  const std::int64_t blocks =
      ceil_div(shape.rows(), tile.rows) * ceil_div(shape.out_c, tile.columns) * tile.splits;
  const double per_processor = static_cast<double>(ceil_div(blocks, processors));
  // Filling the pipeline and the epilogue; a cluster exchanges its sums.
  const double fixed = 1.6 + (tile.splits > 1 ? 0.8 + 0.1 * tile.splits : 0.0);
  return fixed + std::max(alone * steps, per_processor * busy * steps) + per_processor * 0.12 * area;
}

ConvTile choose_tile(const ConvShape& shape, int processors, bool clusters) {
  const std::int64_t steps = ceil_div(shape.depth(), kTileDepth);
  ConvTile best = kConvTiles[0];
  double best_cost = tile_cost(shape, best, processors);
  for (ConvTile tile : kConvTiles) {
    for (int splits = 1; splits <= (clusters ? kMaxSplits : 1) && splits <= steps; splits *= 2) {
      tile.splits = splits;
      const double cost = tile_cost(shape, tile, processors);
      if (cost < best_cost) {
        best = tile;
        best_cost = cost;
      }
    }
  }
  return best;
}

std::vector<Half> pack_conv_weights(const ConvShape& shape, int channels, const float* weights, int columns) {
  const std::int64_t depth = packed_depth(shape);
  const std::int64_t taps = static_cast<std::int64_t>(shape.kernel_h) * shape.kernel_w;
  std::vector<Half> packed(static_cast<std::size_t>(ceil_div(shape.out_c, columns) * columns * depth));
  for (std::int64_t o = 0; o < shape.out_c; ++o) {
    for (std::int64_t t = 0; t < taps; ++t) {
      for (std::int64_t c = 0; c < channels; ++c) {
        packed[static_cast<std::size_t>(o * depth + t * shape.in_c + c)] =
            to_half(weights[(o * channels + c) * taps + t]);
      }
    }
  }
  return packed;
}

}  // namespace pipit::cuda
