// The kernel of "packed_gemm" (plan.h), without its launch.
#pragma once

#include <type_traits>

#include "layers/cuda/conv/packed_gemm/plan.h"
#include "layers/cuda/device/elements.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda {

namespace packed {

/// The two halves of a word, each 1024 + a stored integer, less 1024 + zero.
__device__ __forceinline__ std::uint32_t less(std::uint32_t word, float zero) {
  const __half2 difference =
      __hsub2(*reinterpret_cast<const __half2*>(&word), __float2half2_rn(1024.0F + zero));
  return *reinterpret_cast<const std::uint32_t*>(&difference);
}
/// The same where the integers lie four bits higher: 1024 and 16 times the integer.
__device__ __forceinline__ std::uint32_t less_of_high(std::uint32_t word) {
  const __half2 difference = __hfma2(*reinterpret_cast<const __half2*>(&word), __float2half2_rn(1.0F / 16),
                                     __float2half2_rn(-64.0F - 8.0F));
  return *reinterpret_cast<const std::uint32_t*>(&difference);
}

/// The bits of a word under the mask, in two halves of 1024 and more. One instruction, which the compiler makes two.
template <std::uint32_t Mask>
__device__ __forceinline__ std::uint32_t above_thousand(std::uint32_t word) {
  std::uint32_t halves;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;\n" : "=r"(halves) : "r"(word), "n"(Mask), "r"(0x64006400));
  return halves;
}

/// The left operand of product `j` of chunk `c` of a span, from a lane's unit with that chunk. All steps are exact.
template <int Bits>
__device__ __forceinline__ void decode(const uint4& unit, int c, int j, std::uint32_t (&a)[4]) {
  if constexpr (Bits == 8) {
    constexpr std::uint32_t kThousand = 0x64006400;  // 1024 as a half, twice
    const std::uint32_t words[2] = {j == 0 ? unit.x : unit.z, j == 0 ? unit.y : unit.w};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      a[2 * h] = less(__byte_perm(words[h], kThousand, 0x5150), 128);
      a[2 * h + 1] = less(__byte_perm(words[h], kThousand, 0x5352), 128);
    }
  } else {
    const std::uint32_t word = c % 2 == 0 ? (j == 0 ? unit.x : unit.y) : (j == 0 ? unit.z : unit.w);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::uint32_t moved = word >> 8 * h;
      a[2 * h] = less(above_thousand<0x000F000F>(moved), 8);
      a[2 * h + 1] = less_of_high(above_thousand<0x00F000F0>(moved));
    }
  }
}

/// Eight elements of the row that begins at `row`, zeros where there is none and after its end.
__device__ __forceinline__ uint4 read_eight(const PackedGemmArgs& g, int row, int k) {
  if (row < 0 || k >= g.depth) return make_uint4(0, 0, 0, 0);
  const auto* from = static_cast<const unsigned short*>(g.x) + row + k;
  if (g.vectors) return *reinterpret_cast<const uint4*>(from);
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = k + 2 * i < g.depth ? from[2 * i] : 0U;
    if (k + 2 * i + 1 < g.depth) words[i] |= static_cast<std::uint32_t>(from[2 * i + 1]) << 16;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// A warp's ring of spans in shared memory, and where the next one to copy comes from.
template <int Bits, int Scales, int OutTiles>
struct Ring {
  static constexpr int kUnits = Bits == 4 ? 2 : 4, kStages = packed_stages(Bits, OutTiles);
  static constexpr int kTileBytes = packed_span_bytes(Bits, Scales), kStageBytes = OutTiles * kTileBytes;
  static constexpr int kBytes = kStages * kStageBytes;

  const uint4* weights;  ///< of the first tile, this lane's, of `span`
  const float2* scales;  ///< of the first tile
  int span;
  int end;             ///< spans of k
  int next_tile;       ///< 1, or 0: there is no second tile, and the first is multiplied twice
  std::uint32_t base;  ///< address of the first stage

  /// Begins to copy `span`, if there is one, to a stage, and goes on to the next of this warp. Each lane copies the
  /// weights that it reads itself; scales are for the warp.
  __device__ __forceinline__ void copy(const PackedGemmArgs& g, std::uint32_t stage, int lane) {
    if (span < end) {
#pragma unroll
      for (int t = 0; t < OutTiles; ++t) {
        const std::uint32_t to = stage + t * kTileBytes;
        const uint4* const from = weights + t * next_tile * g.units * 32;
#pragma unroll
        for (int u = 0; u < kUnits; ++u)
          ptx::copy_async<16>(to + u * 512 + lane * 16, from + u * 32, u == 0 || span * kUnits + u < g.units);
      }
      if (Scales > 0 && lane < Scales * 8) {
        // After the last group there are only zeros to scale.
        const int group =
            min(Scales == 1 ? g.spans_of_scale.divide(span) : span * Scales + lane / 8, g.groups - 1);
#pragma unroll
        for (int t = 0; t < OutTiles; ++t)
          ptx::copy_async<8>(stage + t * kTileBytes + kUnits * 512 + lane * 8,
                             scales + (t * next_tile * g.groups + group) * 8 + lane % 8, true);
      }
    }
    ptx::commit_copies();
    span += g.k_warps;
    weights += g.k_warps * kUnits * 32;
  }
};

}  // namespace packed

/// Scales: of a span; 0: one for a whole row.
template <int Bits, int Scales, int RowTiles, int OutTiles>
__global__ void __launch_bounds__(packed_most_warps(RowTiles) * 32, RowTiles <= 2 ? 1 : 2)
    packed_gemm(const __grid_constant__ PackedGemmArgs g) {
  using Ring = packed::Ring<Bits, Scales, OutTiles>;
  constexpr int kRows = RowTiles * kPackedRows, kChunks = kPackedSpan / kPackedChunk;
  // With few rows x is read a span ahead. With many there is enough to do for each chunk, and x is read for four
  // products at a time.
  constexpr bool kFew = RowTiles <= 2;
  constexpr int kBatch = kFew ? RowTiles : 4;
  // Sums pass through shared memory in parts.
  constexpr int kPart = RowTiles > 4 ? 4 : RowTiles, kPartRows = kPart * kPackedRows;
  constexpr int kWarpOutputs = OutTiles * kPackedOutputs, kPitch = kWarpOutputs + 1;
  extern __shared__ __align__(128) std::uint8_t dynamic[];

  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int threads = static_cast<int>(blockDim.x), o_warps = threads / 32 / g.k_warps;
  const int k_warp = warp % g.k_warps;
  const int given_tile = (static_cast<int>(blockIdx.y) * o_warps + warp / g.k_warps) * OutTiles;
  const int tile = min(given_tile, g.tiles - 1), next_tile = tile + 1 < g.tiles ? 1 : 0;
  const int first_row = static_cast<int>(blockIdx.x) * kRows;
  const auto* const scales = reinterpret_cast<const float2*>(g.scales) + tile * g.groups * 8;
  Ring ring{static_cast<const uint4*>(g.weights) +
                (static_cast<std::int64_t>(tile) * g.units + k_warp * Ring::kUnits) * 32 + lane,
            scales,
            k_warp,
            given_tile < g.tiles ? g.spans : 0,
            next_tile,
            ptx::shared_address(dynamic) + warp * Ring::kBytes};
#pragma unroll
  for (int s = 0; s < Ring::kStages - 1; ++s) ring.copy(g, ring.base + s * Ring::kStageBytes, lane);

  int rows[RowTiles];  // where this lane's row of each product begins in x
#pragma unroll
  for (int n = 0; n < RowTiles; ++n) {
    const int row = first_row + n * kPackedRows + lane / 4;
    if (row >= g.rows) {
      rows[n] = -1;
    } else if (g.pixels == nullptr) {
      rows[n] = row * g.depth;
    } else {
      const int image = g.positions.divide(row);
      const int pixel = __ldg(g.pixels + row - image * static_cast<int>(g.positions.value));
      rows[n] = pixel < 0 ? -1 : image * g.image + pixel;
    }
  }
  // A lane's sums are those of outputs g and g + 8, rows 2 t and 2 t + 1. Read at the end, bias and scales of rows
  // would take as long as weights; the first warp along k adds the bias.
  float total[OutTiles][RowTiles][4];
  float2 bias[OutTiles], of_rows[OutTiles];
#pragma unroll
  for (int t = 0; t < OutTiles; ++t) {
    const float* const first = g.bias + (tile + t * next_tile) * kPackedOutputs + lane / 4;
    bias[t] = k_warp == 0 ? make_float2(__ldg(first), __ldg(first + 8)) : make_float2(0, 0);
    of_rows[t] = Scales == 0 ? __ldg(scales + t * next_tile * 8 + lane / 4) : make_float2(1, 1);
#pragma unroll
    for (int n = 0; n < RowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) total[t][n][i] = Scales == 0 ? 0 : i < 2 ? bias[t].x : bias[t].y;
    }
  }
  ptx::wait_for_previous_kernel();
  ptx::release_next_kernel();

  const auto multiply = [&](auto vectors) {
    uint4 x[kFew ? kChunks : 1][kBatch];
    // Of the span that is read next: k of this lane, and where the elements from there on are, in units of eight.
    int k = k_warp * kPackedSpan + lane % 4 * 8;
    const uint4* from_x[RowTiles];
    int ends[RowTiles];
#pragma unroll
    for (int n = 0; n < RowTiles; ++n) {
      from_x[n] = reinterpret_cast<const uint4*>(static_cast<const __half*>(g.x) + max(rows[n], 0) + k);
      ends[n] = rows[n] < 0 ? 0 : g.depth;
    }
    const auto read_x = [&](int chunk, int from) {
      const int at = k + chunk * kPackedChunk;
#pragma unroll
      for (int n = 0; n < kBatch; ++n) {
        if constexpr (kFew && decltype(vectors)::value) {
          x[chunk][n] = at < ends[n] ? from_x[n][chunk * kPackedChunk / 8] : make_uint4(0, 0, 0, 0);
        } else {
          x[kFew ? chunk : 0][n] = packed::read_eight(g, rows[from + n], at);
        }
      }
    };
    const auto advance = [&] {
      k += g.k_warps * kPackedSpan;
#pragma unroll
      for (int n = 0; n < RowTiles; ++n) from_x[n] += g.k_warps * kPackedSpan / 8;
    };
    if constexpr (kFew) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) read_x(c, 0);
      advance();
    }
    std::uint32_t from = ring.base, free = ring.base + (Ring::kStages - 1) * Ring::kStageBytes;
#pragma unroll 1
    for (int span = k_warp; span < ring.end; span += g.k_warps) {
      ptx::wait_copies<Ring::kStages - 2>();
      // Lanes read scales that others have copied, and did so from the stage that is overwritten.
      if constexpr (Scales > 0) __syncwarp();
      ring.copy(g, free, lane);
      float of_group[OutTiles][RowTiles][4] = {};
      float(&sum)[OutTiles][RowTiles][4] = Scales > 0 ? of_group : total;
      uint4 units[OutTiles] = {};
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int first = 0; first < RowTiles; first += kBatch) {
          if constexpr (!kFew) read_x(c, first);
#pragma unroll
          for (int t = 0; t < OutTiles; ++t) {
            if (first == 0 && (Bits == 8 || c % 2 == 0))
              units[t] = load_four(from + t * Ring::kTileBytes + (Bits == 8 ? c : c / 2) * 512 + lane * 16);
            std::uint32_t a[2][4];
            packed::decode<Bits>(units[t], c, 0, a[0]);
            packed::decode<Bits>(units[t], c, 1, a[1]);
#pragma unroll
            for (int n = 0; n < kBatch; ++n) {
              const uint4& of_row = x[kFew ? c : 0][n];
              ptx::multiply(sum[t][first + n], a[0], of_row.x, of_row.y);
              ptx::multiply(sum[t][first + n], a[1], of_row.z, of_row.w);
            }
          }
        }
        if constexpr (kFew) read_x(c, 0);
        if constexpr (Scales > 0) {
          constexpr int kOfGroup = kChunks / Scales;
          if ((c + 1) % kOfGroup == 0) {
#pragma unroll
            for (int t = 0; t < OutTiles; ++t) {
              const uint2 words = load_two(from + t * Ring::kTileBytes + Ring::kUnits * 512 +
                                           c / kOfGroup * 64 + lane / 4 * 8);
              const float scale[2] = {__uint_as_float(words.x), __uint_as_float(words.y)};
#pragma unroll
              for (int n = 0; n < RowTiles; ++n) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                  total[t][n][i] = fmaf(scale[i / 2], sum[t][n][i], total[t][n][i]);
                  sum[t][n][i] = 0;
                }
              }
            }
          }
        }
      }
      advance();
      free = from;
      from += Ring::kStageBytes;
      if (from == ring.base + Ring::kBytes) from = ring.base;
    }
  };
  if (kFew && g.vectors) {  // without a branch at every read
    multiply(std::true_type());
  } else {
    multiply(std::false_type());
  }

  auto* const sums = reinterpret_cast<float*>(dynamic);
  const int columns = o_warps * kWarpOutputs, first_output = static_cast<int>(blockIdx.y) * columns;
#pragma unroll
  for (int part = 0; part < RowTiles; part += kPart) {
    __syncthreads();
#pragma unroll
    for (int t = 0; t < OutTiles; ++t) {
#pragma unroll
      for (int n = 0; n < kPart; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[(warp * kPartRows + n * kPackedRows + lane % 4 * 2 + i % 2) * kPitch + t * kPackedOutputs +
               lane / 4 + i / 2 * 8] = Scales > 0
                                           ? total[t][part + n][i]
                                           : fmaf(total[t][part + n][i], i < 2 ? of_rows[t].x : of_rows[t].y,
                                                  i < 2 ? bias[t].x : bias[t].y);
      }
    }
    __syncthreads();
    const int first = first_row + part * kPackedRows;
    for (int i = static_cast<int>(threadIdx.x); i < kPartRows * columns; i += threads) {
      // Neighbouring threads write neighbouring outputs; their number is a power of two.
      const int column = i & (columns - 1), row = i / columns;
      const int output = first_output + column;
      if (first + row >= g.rows || output >= g.outputs) continue;
      const float* of_warps =
          sums + (column / kWarpOutputs * g.k_warps * kPartRows + row) * kPitch + column % kWarpOutputs;
      float v[1] = {of_warps[0]};
      for (int w = 1; w < g.k_warps; ++w) v[0] += of_warps[w * kPartRows * kPitch];
      const std::int64_t at = static_cast<std::int64_t>(first + row) * g.outputs + output;
      if (g.residual != nullptr) v[0] += load(static_cast<const __half*>(g.residual)[at]);
      v[0] = clamp_value(v[0], g.low, g.high);
      if (g.function.gate != HalfGate::none) apply(g.function, v);
      if (g.wide) {
        static_cast<float*>(g.y)[at] = v[0];
      } else {
        static_cast<__half*>(g.y)[at] = store<__half>(v[0]);
      }
    }
  }
}

namespace packed {

using Kernel = void (*)(PackedGemmArgs);

template <int Bits, int Scales>
Kernel kernel_of_tiles(int row_tiles, int out_tiles) {
  switch (row_tiles) {
    case 1:
      return out_tiles == 1 ? packed_gemm<Bits, Scales, 1, 1> : packed_gemm<Bits, Scales, 1, 2>;
    case 2:
      if constexpr (Scales < 4) {
        if (out_tiles == 2) return packed_gemm<Bits, Scales, 2, 2>;
      }
      return packed_gemm<Bits, Scales, 2, 1>;
    case 4:
      return packed_gemm<Bits, Scales, 4, 1>;
    default:
      return packed_gemm<Bits, Scales, 8, 1>;
  }
}

/// The kernel of `bits`, `scales_of_span`, `row_tiles` and `out_tiles`.
inline Kernel kernel_of(const PackedGemmArgs& args) {
  if (args.bits == 8) return kernel_of_tiles<8, 0>(args.row_tiles, args.out_tiles);
  switch (args.scales_of_span) {
    case 1:
      return kernel_of_tiles<4, 1>(args.row_tiles, args.out_tiles);
    case 2:
      return kernel_of_tiles<4, 2>(args.row_tiles, args.out_tiles);
    default:
      return kernel_of_tiles<4, 4>(args.row_tiles, args.out_tiles);
  }
}

}  // namespace packed

}  // namespace pipit::internal::cuda
