// Units in shared memory as the matrix products read them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "layers/cuda/conv/chain/unit_layout.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda::units {

/// Matrices in shared memory of rows of RowBytes, 16-byte chunks swizzled within 8 or 4 rows (PTX ISA, "Matrix
/// descriptor").
template <int RowBytes>
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t address) {
  constexpr std::uint64_t kEightRows = RowBytes * 8 >> 4;
  constexpr std::uint64_t kSwizzle = RowBytes == 128 ? 1 : 2;
  return static_cast<std::uint64_t>((address & 0x3FFFF) >> 4) | std::uint64_t{1} << 16 | kEightRows << 32 |
         kSwizzle << 62;
}

/// Rows of 256 bytes are for matrices that are loaded, of which eight rows then lie in different banks.
template <int RowBytes>
__device__ __forceinline__ std::uint32_t swizzled(std::uint32_t address) {
  return address ^ (address >> (RowBytes == 256 ? 4 : 3) & (RowBytes == 64 ? 0x30U : 0x70U));
}

// From sums to outputs of a unit: a lane has 16 sums of each of two rows. fp16 and bf16 as in gemm_epilogue.cuh,
// INT8 as layers/ops/quantization.h specifies it, every operation rounded to f32.

/// Sums of 64 rows and a unit, by four warps.
template <typename Sum>
using Sums = Sum[8][4];

/// 16 bytes of the constants as they lie in shared memory: in INT8 a unit's biases, before its multipliers, begin
/// with kMagicBits where sums are small.
template <typename Sum, bool Small = true>
__device__ __forceinline__ uint4 constant(const std::byte* constants, int at) {
  uint4 four = *reinterpret_cast<const uint4*>(constants + at);
  if constexpr (std::is_same_v<Sum, std::int32_t> && Small) {
    const unsigned magic = at % (kUnitChannels * 8) < kUnitChannels * 4 ? kMagicBits : 0;
    four.x += magic, four.y += magic, four.z += magic, four.w += magic;
  }
  return four;
}

/// Sums begin with the bias; constants: of the unit, of the lane. Two rows begin with the same. Twice: it is read for
/// each, which is half as many instructions, but twice the cycles of shared memory; which is faster has to be timed.
template <bool Twice = false, typename Sum>
__device__ __forceinline__ void start(Sums<Sum>& sums, std::uint32_t constants) {
  if constexpr (Twice) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int half = 0; half < 4; half += 2) {
        const uint2 two = load_two(constants + j / 2 * 64 + j % 2 * 8);
        const auto* bias = reinterpret_cast<const Sum*>(&two);
        sums[j][half] = bias[0], sums[j][half + 1] = bias[1];
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 four = load_four(constants + i * 64);
      const auto* bias = reinterpret_cast<const Sum*>(&four);
#pragma unroll
      for (int half = 0; half < 4; half += 2) {
        sums[i * 2][half] = bias[0], sums[i * 2][half + 1] = bias[1];
        sums[i * 2 + 1][half] = bias[2], sums[i * 2 + 1][half + 1] = bias[3];
      }
    }
  }
  // As floats from here on: what is loaded as words stays in registers of words, and the moves between these and those
  // of the products lie where products run, which the compiler then waits for in between (ptxas C7517).
  if constexpr (!std::is_same_v<Sum, std::int32_t>) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) asm volatile("" : "+f"(register_of(sums[j][k])));
    }
  }
}

/// A lane's outputs of a row, as stored.
template <typename Sum>
struct Outputs {
  using Element = NarrowOf<Sum>;
  using Two = TwoOf<Element>;
  std::uint32_t word[8];

  template <bool Adds, bool Relu>
  static __device__ __forceinline__ void finish(Outputs (&to)[2], const Sums<Sum>& sums, std::uint32_t,
                                                const PairBounds& bounds, const Outputs (&residual)[2],
                                                float) {
    finish_by<Adds, Relu>(to, sums, 0, bounds, residual, 0);
  }
  template <bool Adds, bool Relu, typename Multipliers>
  static __device__ __forceinline__ void finish_by(Outputs (&to)[2], const Sums<Sum>& sums,
                                                   const Multipliers&, const PairBounds& bounds,
                                                   const Outputs (&residual)[2], float) {
    const auto& low = *reinterpret_cast<const Two*>(&bounds.low);
    const auto& high = *reinterpret_cast<const Two*>(&bounds.high);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float2 v = make_float2(sums[j][half * 2], sums[j][half * 2 + 1]);
        if constexpr (Adds) {
          const float2 held = to_floats<Element>(residual[half].word[j]);
          v.x += held.x, v.y += held.y;
        }
        // Rounding does not change the order, so bounds may come after it.
        const Two pair = __hmin2_nan(__hmax2_nan(to_two<Element>(v.x, v.y), low), high);
        to[half].word[j] = *reinterpret_cast<const std::uint32_t*>(&pair);
      }
    }
  }
};

template <>
struct Outputs<std::int32_t> {
  std::uint32_t word[4];

  /// The lane's two rows. Adds: to + residual * residual_scale. Small: sums began with kMagicBits.
  template <bool Adds, bool Relu, bool Small = true>
  static __device__ __forceinline__ void finish(Outputs (&to)[2], const Sums<std::int32_t>& sums,
                                                std::uint32_t constants, const PairBounds& bounds,
                                                const Outputs (&residual)[2], float residual_scale) {
    finish_by<Adds, Relu, Small>(
        to, sums, [&](int i) { return load_four(constants + 256 + i * 64); }, bounds, residual,
        residual_scale);
  }
  /// multipliers(i): of the lane's four neighbouring channels.
  template <bool Adds, bool Relu, bool Small = true, typename Multipliers>
  static __device__ __forceinline__ void finish_by(Outputs (&to)[2], const Sums<std::int32_t>& sums,
                                                   const Multipliers& multipliers, const PairBounds& bounds,
                                                   const Outputs (&residual)[2], float residual_scale) {
    const std::uint32_t base = Adds ? byte_base() : 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 four = multipliers(i);
      const auto& multiplier = reinterpret_cast<const float(&)[4]>(four);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        to[half].word[i] = four_bytes_of<Adds, Relu>(
            [&](int k) { return sums[i * 2 + k / 2][half * 2 + k % 2]; }, Small, multiplier, bounds,
            Adds ? residual[half].word[i] : 0, residual_scale, base);
      }
    }
  }
};

/// Where a lane's outputs of its two rows begin, in bytes from a first row that all lanes share, and whether there are
/// such rows. 32 bits of it: what one block of threads writes is far below 4 GiB, and 32-bit addresses cost less.
struct RowPlaces {
  std::uint32_t to[2];
  bool exist[2];
};
/// rows: how many there are from the first one on. row: the lane's first. Past the last row the places are the last
/// one's.
__device__ __forceinline__ RowPlaces row_places(int row, int rows, int row_bytes) {
  RowPlaces places;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    places.exist[half] = row + half * 8 < rows;
    places.to[half] = static_cast<std::uint32_t>(min(row + half * 8, rows - 1)) * row_bytes +
                      static_cast<int>(threadIdx.x) % 4 * 16;
  }
  return places;
}

/// y: of the unit in the first row.
template <typename Sum>
__device__ __forceinline__ void write_rows(std::byte* y, const RowPlaces& places,
                                           const Outputs<Sum> (&outputs)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (!places.exist[half]) continue;
    const auto& word = outputs[half].word;
#pragma unroll
    for (int w = 0; w < static_cast<int>(sizeof word / 16); ++w)
      *reinterpret_cast<uint4*>(y + places.to[half] + w * 64) =
          make_uint4(word[w * 4], word[w * 4 + 1], word[w * 4 + 2], word[w * 4 + 3]);
  }
}

// A ring of tiles in shared memory: a lane's outputs as rows of it, and the products of a 3x3 convolution, for which
// each lane reads its own pixel for each tap, or zeros beyond the image's edge.

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
    for (int w = 0; w < static_cast<int>(sizeof outputs[half].word / 16); ++w) {
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
    for (int w = 0; w < static_cast<int>(sizeof held[half].word / 16); ++w) {
      const uint4 four = load_four(swizzled<RowBytes>(from + w * 64));
      std::uint32_t* word = held[half].word + w * 4;
      word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
    }
  }
}

/// The outputs of a unit whose weights are packed as not stored, as left operands of the next products.
template <typename Sum>
__device__ __forceinline__ void put_operands(const Outputs<Sum> (&outputs)[2], std::uint32_t (*operands)[4]) {
#pragma unroll
  for (int w = 0; w < static_cast<int>(sizeof outputs[0].word / 4); ++w) {
#pragma unroll
    for (int half = 0; half < 2; ++half) operands[w / 2][w % 2 * 2 + half] = outputs[half].word[w];
  }
}

/// Sums of a tile and 128 outputs, which are two units.
template <typename Sum>
struct TwoUnits {
  Sum all[2 * 8][4];
  __device__ __forceinline__ Sums<Sum>& unit(int u) { return *reinterpret_cast<Sums<Sum>*>(&all[u * 8]); }
};

// What a block of threads begins with.

/// Barriers of `count` turns: a copy fills one, `readers` warps leave it.
__device__ __forceinline__ void init_turns(std::uint32_t full, std::uint32_t empty, int count, int readers) {
  for (int t = 0; t < count; ++t) {
    ptx::init_barrier(full + t * 8, 1);
    ptx::init_barrier(empty + t * 8, readers);
  }
}
/// Constants to shared memory, by all threads.
template <int Threads, typename Sum, bool Small = true>
__device__ __forceinline__ void put_constants(std::uint32_t to, const std::byte* constants, int bytes) {
  for (int i = static_cast<int>(threadIdx.x) * 16; i < bytes; i += Threads * 16)
    store_four(to + i, constant<Sum, Small>(constants, i));
}

#ifdef PIPIT_WARPGROUP_MMA

/// Begins sums += left * right, of a depth of 32 bytes for each of `Products`. left: a matrix in shared memory.
template <int Products, int Units, typename Sum>
__device__ __forceinline__ void begin_multiply(Sum (&sums)[Units][4], std::uint64_t left,
                                               std::uint64_t right) {
  ptx::begin_products();
#pragma unroll
  for (int k = 0; k < Products; ++k) ptx::multiply_group(sums, left + k * 2, right + k * 2);
  ptx::end_products();
}
/// The same of left operands in registers.
template <int Products, int Units, typename Sum>
__device__ __forceinline__ void begin_multiply(Sum (&sums)[Units][4],
                                               const std::uint32_t (&left)[Products][4],
                                               std::uint64_t right) {
  ptx::begin_products();
#pragma unroll
  for (int k = 0; k < Products; ++k) ptx::multiply_group(sums, left[k], right + k * 2);
  ptx::end_products();
}

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
    begin_multiply(sums, left[tap % Ahead], weights + (tap * kUnitRows * RowBytes >> 4));
    // The operands that are loaded next take the place of those of the products before these.
    ptx::wait_products<1>();
    if (tap + Ahead - 1 < kTaps) load(tap + Ahead - 1);
  }
  ptx::wait_products();
}

#endif

}  // namespace pipit::internal::cuda::units
