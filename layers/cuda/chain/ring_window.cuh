// Left operands of a 3x3 convolution from a ring of tiles in shared memory: each lane reads its own pixel for each tap,
// or zeros beyond the image's edge.
#pragma once

#include <cstdint>

#include "layers/cuda/chain/unit_layout.h"
#include "layers/cuda/chain/unit_products.cuh"

namespace pipit::cuda::units {

/// Where the lane's pixel of each tap begins in shared memory, swizzled, for its half of every product.
template <int RowBytes>
struct RingWindow {
  std::uint32_t pixel, ring, ring_bytes, zeros;
  int width;
  std::uint32_t inside;  // a bit for every tap

  /// row: of the ring, where the pixel at `position` lies. zeros: RowBytes of them, aligned.
  __device__ __forceinline__ RingWindow(const PositionGrid& grid, int position, int ring_row,
                                        std::uint32_t at, int rows, std::uint32_t nothing, int lane)
      : ring(at), ring_bytes(rows * RowBytes), width(static_cast<int>(grid.row.value)) {
    const int rest = position - grid.image.divide(position) * static_cast<int>(grid.image.value);
    const int y = grid.row.divide(rest);
    const int x = rest - y * width;
    const std::uint32_t columns = (x > 0 ? 1U : 0U) | 2U | (x + 1 < width ? 4U : 0U);
    inside = (y > 0 ? columns : 0U) | columns << 3 | (y + 1 < grid.height ? columns << 6 : 0U);
    if (position >= grid.positions) inside = 0;
    const int half = lane / 16 * 16;
    pixel = ring_row * RowBytes + half;
    zeros = nothing + half;
  }

  __device__ __forceinline__ std::uint32_t tap(int t) const {
    const int away = ((t / 3 - 1) * width + t % 3 - 1) * RowBytes;
    std::uint32_t from = pixel + away;
    from = min(from, from + ring_bytes);  // in front of the ring, where it wrapped around
    from = min(from, from - ring_bytes);
    return (inside >> t & 1) != 0 ? swizzled<RowBytes>(ring + from) : zeros;
  }
};

}  // namespace pipit::cuda::units
