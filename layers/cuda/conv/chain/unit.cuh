// Units in shared memory as the matrix products read them.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "layers/cuda/conv/chain/unit_layout.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"
#include "layers/cuda/epilogue/int8_math.cuh"

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

}  // namespace pipit::internal::cuda::units

namespace pipit::internal::cuda::units {

// From sums to outputs of a unit: a lane has 16 sums of each of two rows. fp16 as in gemm_epilogue.cuh,
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
  if constexpr (std::is_same_v<Sum, float>) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) asm volatile("" : "+f"(sums[j][k]));
    }
  }
}

/// A lane's outputs of a row, as stored.
template <typename Sum>
struct Outputs;

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
      const auto* multiplier = reinterpret_cast<const float*>(&four);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t biased = Adds ? residual[half].word[i] ^ 0x80808080U : 0;
        float v[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int sum = sums[i * 2 + k / 2][half * 2 + k % 2];
          v[k] = __fmul_rn(Small ? small_to_float(sum) : __int2float_rn(sum), multiplier[k]);
          if constexpr (Adds)
            v[k] = __fadd_rn(v[k], __fmul_rn(biased_to_float(biased, k, base), residual_scale));
        }
        to[half].word[i] = requantize_four<Relu>(v, bounds);
      }
    }
  }
};

template <>
struct Outputs<float> {
  std::uint32_t word[8];

  template <bool Adds, bool Relu>
  static __device__ __forceinline__ void finish(Outputs (&to)[2], const Sums<float>& sums, std::uint32_t,
                                                const PairBounds& bounds, const Outputs (&residual)[2],
                                                float) {
    finish_by<Adds, Relu>(to, sums, 0, bounds, residual, 0);
  }
  template <bool Adds, bool Relu, typename Multipliers>
  static __device__ __forceinline__ void finish_by(Outputs (&to)[2], const Sums<float>& sums,
                                                   const Multipliers&, const PairBounds& bounds,
                                                   const Outputs (&residual)[2], float) {
    const auto& low = *reinterpret_cast<const __half2*>(&bounds.low);
    const auto& high = *reinterpret_cast<const __half2*>(&bounds.high);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float2 v = make_float2(sums[j][half * 2], sums[j][half * 2 + 1]);
        if constexpr (Adds) {
          const float2 held = __half22float2(*reinterpret_cast<const __half2*>(&residual[half].word[j]));
          v.x += held.x, v.y += held.y;
        }
        // Rounding does not change the order, so bounds may come after it.
        const __half2 pair = __hmin2_nan(__hmax2_nan(__float22half2_rn(v), low), high);
        to[half].word[j] = *reinterpret_cast<const std::uint32_t*>(&pair);
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

}  // namespace pipit::internal::cuda::units
