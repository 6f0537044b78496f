// From int32 sums to y as layers/quantisation.h specifies it, bit for bit: every operation is rounded to f32, none is
// contracted.
#pragma once

#include <cuda_fp16.h>

#include "layers/cuda/conv_gemm_fragments.cuh"
#include "layers/cuda/conv_gemm_share.cuh"
#include "layers/cuda/int8_math.cuh"

namespace pipit::cuda {

/// x, residual and an INT8 y are i8 with zero point 0. y may be f32 or f16 as well.
template <typename T>
struct Int8Epilogue {
  using F = ConvGemmFragments<T>;
  using Eight = uint2;  // neighbouring channels of residual or y
  /// What belongs to the tile's columns, in shared memory.
  struct Columns {
    float multiplier[T::kColumns];
  };

  static __device__ __forceinline__ void load(const ConvGemmArgs& args, int first_column, Columns& columns) {
    for (int c = threadIdx.x; c < T::kColumns; c += T::kThreads)
      columns.multiplier[c] = args.multipliers[first_column + c];
  }
  /// Sums begin with the bias; small ones with kMagicBits in addition, so that their bits are a float (int8_math.cuh).
  static __device__ __forceinline__ void start(const ConvGemmArgs& args, F& fragments, int first_column,
                                               int split) {
    if (split != 0) return;  // they are added up
    const int magic = args.small_sums ? kMagicBits : 0;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int j = 0; j < F::kN; ++j) {
      const int column = first_column + F::first_column(warp) + j * 8 + static_cast<int>(threadIdx.x) % 4 * 2;
      const int2 bias = *reinterpret_cast<const int2*>(static_cast<const int*>(args.bias) + column);
#pragma unroll
      for (int i = 0; i < F::kM; ++i) {
        fragments.sums[i][j][0] = fragments.sums[i][j][2] = bias.x + magic;
        fragments.sums[i][j][1] = fragments.sums[i][j][3] = bias.y + magic;
      }
    }
  }
  static __device__ __forceinline__ int first_sum(const Columns&, int) {
    return 0;
  }
  /// Residuals go from memory to registers.
  static __device__ __forceinline__ bool stages_residual(const ConvGemmArgs&) {
    return false;
  }

  static __device__ __forceinline__ float scaled(const ConvGemmArgs& args, int sum, float multiplier) {
    return __fmul_rn(args.small_sums ? small_to_float(sum) : __int2float_rn(sum), multiplier);
  }
  static __device__ __forceinline__ float with_residual(const ConvGemmArgs& args, float v, float residual) {
    return __fadd_rn(v, __fmul_rn(residual, args.residual_scale));
  }
  static __device__ __forceinline__ float clamped(const ConvGemmArgs& args, float v) {
    v = v < args.low ? args.low : v;
    return v > args.high ? args.high : v;
  }

  /// One element whose residual, if any, is not at hand yet.
  static __device__ __forceinline__ void store_one(const ConvGemmArgs& args, float v, std::int64_t at) {
    if (args.residual != nullptr)
      v = with_residual(args, v, static_cast<float>(static_cast<const signed char*>(args.residual)[at]));
    if (args.stored == ConvStored::i8) {
      static_cast<unsigned char*>(args.y)[at] =
          static_cast<unsigned char>(requantise_bits(v, args.low, args.high));
    } else if (args.stored == ConvStored::f16) {
      static_cast<__half*>(args.y)[at] = __float2half_rn(clamped(args, v));
    } else {
      static_cast<float*>(args.y)[at] = clamped(args, v);
    }
  }

  /// The column of the tile that has channel `channel` + k of it, channel being a multiple of 8 and k < 8.
  static __device__ __forceinline__ constexpr int column_of(int channel, int k) {
    return (channel & ~31) + k / 2 * 8 + (channel >> 3 & 3) * 2 + k % 2;
  }

  /// Eight neighbouring channels: sum + residual, clamped. `held` is the residual where out_c is a multiple of 8.
  static __device__ __forceinline__ void finish_channels(const ConvGemmArgs& args, const Columns& columns,
                                                         const int (&sum)[8], uint2 held, int row,
                                                         int first_column, int tile_channel) {
    const int out_c = args.shape.out_c;
    const std::int64_t at = output_offset(args, row, first_column + tile_channel);
    if (out_c % 8 == 0 && args.stored == ConvStored::i8) {
      const std::uint32_t residual[2] = {held.x, held.y};
      std::uint32_t words[2];
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        std::uint32_t bits[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float v = scaled(args, sum[w * 4 + j], columns.multiplier[column_of(tile_channel, w * 4 + j)]);
          if (args.residual != nullptr)
            v = with_residual(args, v, static_cast<float>(static_cast<signed char>(residual[w] >> j * 8)));
          bits[j] = requantise_bits(v, args.low, args.high);
        }
        words[w] = low_bytes(bits);
      }
      *reinterpret_cast<uint2*>(static_cast<std::uint8_t*>(args.y) + at) = make_uint2(words[0], words[1]);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (first_column + tile_channel + j >= out_c) break;
        store_one(args, scaled(args, sum[j], columns.multiplier[column_of(tile_channel, j)]), at + j);
      }
    }
  }

  /// Writes the tile when its block has the whole depth: a lane has eight neighbouring channels of every 32.
  static __device__ __forceinline__ void write_tile(const ConvGemmArgs& args, const F& fragments,
                                                    std::uint8_t*, const Columns& columns, bool,
                                                    int first_row, int first_column) {
    const bool whole = first_column + T::kColumns <= args.shape.out_c;
    if (args.stored != ConvStored::i8 || args.shape.out_c % 8 != 0 || !whole) {
      write_elements(args, fragments, columns, first_row, first_column);
    } else if (args.residual != nullptr) {
      args.small_sums ? write_bytes<true, true>(args, fragments, columns, first_row, first_column)
                      : write_bytes<true, false>(args, fragments, columns, first_row, first_column);
    } else {
      args.small_sums ? write_bytes<false, true>(args, fragments, columns, first_row, first_column)
                      : write_bytes<false, false>(args, fragments, columns, first_row, first_column);
    }
  }

 private:
  static constexpr int kTogether =
      F::kN % 4 == 0 ? 4 : 2;  // fragments whose columns are a lane's neighbouring channels
  struct alignas(kTogether * 2) Group {
    std::uint32_t word[kTogether / 2];
  };

  // Columns within y, as nearly all are: no tests between the elements.
  template <bool Residual, bool Small>
  static __device__ __forceinline__ void write_bytes(const ConvGemmArgs& args, const F& fragments,
                                                     const Columns& columns, int first_row,
                                                     int first_column) {
    constexpr int kBlocks = F::kN / kTogether;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first = F::first_column(warp) + lane % 4 * 2;  // in the order of the packed weights
    const float* multipliers = columns.multiplier + first;
    const float low = args.low, high = args.high, residual_scale = args.residual_scale;
    const auto row_of = [&](int i, int h) {
      return first_row + F::first_row(warp) + i * F::kRowStep + lane / 4 + h * 8;
    };
    const auto offset_of = [&](int i, int h) {
      return output_offset(args, row_of(i, h), first_column + packed_channel(first));
    };
#pragma unroll
    for (int i = 0; i < F::kM; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (row_of(i, h) >= args.rows) continue;
        Group held[kBlocks];
        if constexpr (Residual) {
          const auto* from = static_cast<const std::uint8_t*>(args.residual) + offset_of(i, h);
#pragma unroll
          for (int block = 0; block < kBlocks; ++block)
            held[block] = *reinterpret_cast<const Group*>(from + block * kTogether * 8);
        }
        auto* to = static_cast<std::uint8_t*>(args.y) + offset_of(i, h);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          Group group;
#pragma unroll
          for (int w = 0; w < kTogether / 2; ++w) {
            std::uint32_t bits[4];
#pragma unroll
            for (int u = 0; u < 2; ++u) {
              const int j = block * kTogether + w * 2 + u;
              const float2 m = *reinterpret_cast<const float2*>(multipliers + j * 8);
              float2 v;
              const int(&sums)[4] = fragments.sums[i][j];
              v.x = __fmul_rn(Small ? small_to_float(sums[h * 2]) : __int2float_rn(sums[h * 2]), m.x);
              v.y = __fmul_rn(Small ? small_to_float(sums[h * 2 + 1]) : __int2float_rn(sums[h * 2 + 1]), m.y);
              if constexpr (Residual) {
                const float2 r = bytes_to_float(static_cast<std::uint16_t>(held[block].word[w] >> u * 16));
                v.x = __fadd_rn(v.x, __fmul_rn(r.x, residual_scale));
                v.y = __fadd_rn(v.y, __fmul_rn(r.y, residual_scale));
              }
              bits[u * 2] = requantise_bits(v.x, low, high);
              bits[u * 2 + 1] = requantise_bits(v.y, low, high);
            }
            group.word[w] = low_bytes(bits);
          }
          *reinterpret_cast<Group*>(to + block * kTogether * 8) = group;
        }
      }
    }
  }

  // Everything else, one element after the other: f32 or f16, the last columns.
  static __device__ __forceinline__ void write_elements(const ConvGemmArgs& args, const F& fragments,
                                                        const Columns& columns, int first_row,
                                                        int first_column) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < F::kM; ++i) {
#pragma unroll
      for (int j = 0; j < F::kN; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = first_row + F::first_row(warp) + i * F::kRowStep + lane / 4 + e / 2 * 8;
          const int column = F::first_column(warp) + j * 8 + lane % 4 * 2 + e % 2;
          const int channel = first_column + packed_channel(column);
          if (row >= args.rows || channel >= args.shape.out_c) continue;
          store_one(args, scaled(args, fragments.sums[i][j][e], columns.multiplier[column]),
                    output_offset(args, row, channel));
        }
      }
    }
  }
};

}  // namespace pipit::cuda
