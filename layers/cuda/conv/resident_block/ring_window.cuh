// A ring of tiles in shared memory: a lane's outputs as rows of it, and the products of a 3x3 convolution, for which
// each lane reads its own pixel for each tap, or zeros beyond the image's edge.
#pragma once

#include <cstdint>
#include <type_traits>

#include "layers/cuda/conv/chain/unit.cuh"
#include "layers/cuda/conv/chain/unit_layout.h"
#include "layers/cuda/conv/resident_block/plan.h"
#include "layers/cuda/device/hopper_ptx.cuh"
#include "layers/cuda/device/ptx.cuh"

namespace pipit::internal::cuda::units {

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
    from = min(from, from + ring_bytes);  // before the ring, where it wrapped around
    from = min(from, from - ring_bytes);
    return (inside >> t & 1) != 0 ? swizzled<RowBytes>(ring + from) : zeros;
  }
};

/// Where word 0 of a lane's outputs lies in the ring, of its two rows of a tile, not swizzled; the others follow in
/// steps of 64 bytes.
template <int RowBytes>
__device__ __forceinline__ std::uint32_t ring_row(std::uint32_t ring, int slot, int half, int warp,
                                                  int lane) {
  const int row = slot * kUnitRows + warp * 16 + lane / 4 + half * 8;
  return ring + row * RowBytes + lane % 4 * 16;
}
template <int RowBytes, typename Sum>
__device__ __forceinline__ void put_rows(std::uint32_t ring, int slot, int warp, int lane,
                                         const Outputs<Sum> (&outputs)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t to = ring_row<RowBytes>(ring, slot, half, warp, lane);
#pragma unroll
    for (int w = 0; w < RowBytes / 64; ++w) {
      const auto& word = outputs[half].word;
      store_four(swizzled<RowBytes>(to + w * 64),
                 make_uint4(word[w * 4], word[w * 4 + 1], word[w * 4 + 2], word[w * 4 + 3]));
    }
  }
}
/// What a lane would put there.
template <int RowBytes, typename Sum>
__device__ __forceinline__ void get_rows(std::uint32_t ring, int slot, int warp, int lane,
                                         Outputs<Sum> (&held)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t from = ring_row<RowBytes>(ring, slot, half, warp, lane);
#pragma unroll
    for (int w = 0; w < RowBytes / 64; ++w) {
      const uint4 four = load_four(swizzled<RowBytes>(from + w * 64));
      std::uint32_t* word = held[half].word + w * 4;
      word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
    }
  }
}

#ifdef PIPIT_WARPGROUP_MMA

/// sums += a window of 64 channels * its weights, one unit after the other, by taps. Left operands of Ahead taps have
/// registers at once.
template <int Ahead, int RowBytes, typename Sum>
__device__ __forceinline__ void multiply_window(Sums<Sum>& sums, const RingWindow<RowBytes>& window,
                                                std::uint64_t weights) {
  constexpr int kTaps = 9, kProducts = RowBytes / 32;
  std::uint32_t left[Ahead][kProducts][4];
  const auto load = [&](int tap) {
    const std::uint32_t from = window.tap(tap);
#pragma unroll
    for (int k = 0; k < kProducts; ++k) ptx::load_matrices(left[tap % Ahead][k], from ^ k * 32);
  };
#pragma unroll
  for (int tap = 0; tap < Ahead - 1; ++tap) load(tap);
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
    ptx::begin_products();
#pragma unroll
    for (int k = 0; k < kProducts; ++k)
      ptx::multiply_group(sums, left[tap % Ahead][k], weights + (tap * kUnitRows * RowBytes >> 4) + k * 2);
    ptx::end_products();
    // The operands that are loaded next take the place of those of the products before these.
    ptx::wait_products<1>();
    if (tap + Ahead - 1 < kTaps) load(tap + Ahead - 1);
  }
  ptx::wait_products();
}

#endif

}  // namespace pipit::internal::cuda::units

namespace pipit::internal::cuda {

// Groups of four warps that take turns at the iterations of a residual block: what they are made of, and how they wait
// for one another.

/// Sum: float for halves, std::int32_t for bytes.
template <typename Sum>
struct BlockTraits {
  static constexpr int kBytes = std::is_same_v<Sum, float> ? 2 : 1;  // of an element
  static constexpr int kGroups = block_groups(kBytes);
  static constexpr int kThreads = kGroups * 128 + 128;
  /// Registers of a thread that multiplies; a block has 65536, and threads that copy keep kFewRegisters.
  static constexpr int kRegisters = kGroups == 3 ? 152 : 112;
  static constexpr int kFewRegisters = kGroups == 3 ? 40 : 24;
  static constexpr int kRowBytes = kUnitChannels * kBytes;
  static constexpr int kUnitBytes = kUnitRows * kRowBytes;
  static constexpr int kProducts = kRowBytes / 32;                          // of a unit's depth
  static constexpr int kConstants = kUnitChannels * (kBytes == 1 ? 8 : 4);  // bytes of a unit's
};

/// Iterations up to `last` that the group takes part in.
template <int Groups>
__device__ __forceinline__ int iterations_until(int last, int group) {
  return last < group ? 0 : (last - group) / Groups + 1;
}
/// Waits, a whole warp, until every warp has counted all its iterations up to `last`. Counters: one of each warp. Not
/// counted together: a warp may count one iteration more while another of its group has yet to count.
template <int Groups>
__device__ __forceinline__ void await_iterations(const int* counters, int lane, int last) {
  const int other = lane % (Groups * 4);
  ptx::wait_counters(counters + other, iterations_until<Groups>(last, other / 4));
}
/// By a whole warp.
__device__ __forceinline__ void count_iteration(int* counters, int group, int warp, int lane) {
  __syncwarp();
  if (lane == 0) ptx::count_up(counters + group * 4 + warp);
}

}  // namespace pipit::internal::cuda
