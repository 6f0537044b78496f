// The kernel of "packed_gemm" (plan.h), without its launch.
#pragma once

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

/// The left operand of product `j` of chunk `c` of a span, from a lane's units. All steps are exact.
template <int Bits, int Units>
__device__ __forceinline__ void decode(const uint4 (&units)[Units], int c, int j, std::uint32_t (&a)[4]) {
  constexpr std::uint32_t kThousand = 0x64006400;  // 1024 as a half, twice
  if constexpr (Bits == 8) {
    const uint4& unit = units[c];
    const std::uint32_t words[2] = {j == 0 ? unit.x : unit.z, j == 0 ? unit.y : unit.w};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      a[2 * h] = less(__byte_perm(words[h], kThousand, 0x5150), 128);
      a[2 * h + 1] = less(__byte_perm(words[h], kThousand, 0x5352), 128);
    }
  } else {
    const uint4& unit = units[c / 2];
    const std::uint32_t word = c % 2 == 0 ? (j == 0 ? unit.x : unit.y) : (j == 0 ? unit.z : unit.w);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::uint32_t moved = word >> 8 * h;
      a[2 * h] = less((moved & 0x000F000FU) | kThousand, 8);
      a[2 * h + 1] = less_of_high((moved & 0x00F000F0U) | kThousand);
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

/// What a lane holds of a span: its weights, and the scales of two outputs (one where whole rows have a scale, which
/// are read at the end).
template <int Bits, int Scales>
struct Span {
  static constexpr int kUnits = Bits == 4 ? 2 : 4;
  uint4 units[kUnits];
  float2 scales[Scales > 0 ? Scales : 1];

  /// The tile's weights and scales begin there.
  __device__ __forceinline__ void read(const PackedGemmArgs& g, const uint4* weights, const float2* of_groups,
                                       int span, int lane) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int unit = span * kUnits + u;
      units[u] = unit < g.units ? __ldg(weights + unit * 32 + lane) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int s = 0; s < Scales; ++s) {
      // After the last group there are only zeros to scale.
      const int group = min(Scales == 1 ? g.spans_of_scale.divide(span) : span * Scales + s, g.groups - 1);
      scales[s] = __ldg(of_groups + group * 8 + lane / 4);
    }
  }
};

}  // namespace packed

/// Scales: of a span; 0: one for a whole row.
template <int Bits, int Scales, int RowTiles>
__global__ void __launch_bounds__(kPackedWarps * 32, 2)
    packed_gemm(const __grid_constant__ PackedGemmArgs g) {
  constexpr int kRows = RowTiles * kPackedRows, kChunks = kPackedSpan / kPackedChunk;
  // With few rows, spans that are on their way while one is multiplied, and the x of a whole span, hide the latency of
  // memory. With many there is enough to do for each chunk, and x is read for four products at a time.
  constexpr bool kFew = RowTiles <= 2;
  constexpr int kAhead = !kFew ? 1 : Bits == 4 && RowTiles == 1 ? 4 : 2;
  constexpr int kTogether = kFew ? kChunks : 1, kBatch = kFew ? RowTiles : 4;
  // Sums pass through shared memory in parts.
  constexpr int kPart = RowTiles > 4 ? 4 : RowTiles, kPartRows = kPart * kPackedRows;
  constexpr int kPitch = kPackedOutputs + 1;
  using Span = packed::Span<Bits, Scales>;
  __shared__ float sums[kPackedWarps * kPartRows * kPitch];

  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int k_warp = warp % g.k_warps, o_warps = kPackedWarps / g.k_warps;
  const int tile = static_cast<int>(blockIdx.y) * o_warps + warp / g.k_warps;
  const int first_row = static_cast<int>(blockIdx.x) * kRows;
  const int end = tile < g.tiles ? g.spans : 0;
  const auto* weights =
      static_cast<const uint4*>(g.weights) + static_cast<std::int64_t>(end > 0 ? tile : 0) * g.units * 32;
  const auto* scales = reinterpret_cast<const float2*>(g.scales) +
                       static_cast<std::int64_t>(end > 0 ? tile : 0) * g.groups * 8;

  Span spans[kAhead];
#pragma unroll
  for (int s = 0; s < kAhead; ++s) {
    if (k_warp + s * g.k_warps < end) spans[s].read(g, weights, scales, k_warp + s * g.k_warps, lane);
  }
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
  ptx::wait_for_previous_kernel();
  ptx::release_next_kernel();

  float total[RowTiles][4] = {};
  for (int begin = k_warp; begin < end; begin += kAhead * g.k_warps) {
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
      const int span = begin + s * g.k_warps;
      if (span >= end) break;
      const int k = span * kPackedSpan + lane % 4 * 8;
      float of_group[RowTiles][4] = {};
      float(&sum)[RowTiles][4] = Scales > 0 ? of_group : total;
#pragma unroll
      for (int first = 0; first < kChunks; first += kTogether) {
        uint4 x[kTogether][kBatch];
        const auto read_x = [&](int c, int from) {
#pragma unroll
          for (int n = 0; n < kBatch; ++n)
            x[c][n] = packed::read_eight(g, rows[from + n], k + (first + c) * kPackedChunk);
        };
        if constexpr (kFew) {
#pragma unroll
          for (int c = 0; c < kTogether; ++c) read_x(c, 0);
        }
#pragma unroll
        for (int c = 0; c < kTogether; ++c) {
          const int chunk = first + c;
          if (span * kPackedSpan + chunk * kPackedChunk < g.depth) {
            std::uint32_t a[2][4];
            packed::decode<Bits>(spans[s].units, chunk, 0, a[0]);
            packed::decode<Bits>(spans[s].units, chunk, 1, a[1]);
#pragma unroll
            for (int from = 0; from < RowTiles; from += kBatch) {
              if constexpr (!kFew) read_x(c, from);
#pragma unroll
              for (int n = 0; n < kBatch; ++n) {
                ptx::multiply(sum[from + n], a[0], x[c][n].x, x[c][n].y);
                ptx::multiply(sum[from + n], a[1], x[c][n].z, x[c][n].w);
              }
            }
          }
          if constexpr (Scales > 0) {
            constexpr int kOfGroup = kChunks / Scales;
            if ((chunk + 1) % kOfGroup == 0) {
              const float2 scale = spans[s].scales[chunk / kOfGroup];
#pragma unroll
              for (int n = 0; n < RowTiles; ++n) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                  total[n][i] = fmaf(i < 2 ? scale.x : scale.y, sum[n][i], total[n][i]);
                  sum[n][i] = 0;
                }
              }
            }
          }
        }
      }
      const int next = span + kAhead * g.k_warps;
      if (next < end) spans[s].read(g, weights, scales, next, lane);
    }
  }

  // A lane's sums are those of outputs g and g + 8, rows 2 t and 2 t + 1.
  const float2 of_rows = Scales == 0 && end > 0 ? __ldg(scales + lane / 4) : make_float2(1, 1);
  const int columns = o_warps * kPackedOutputs, first_output = static_cast<int>(blockIdx.y) * columns;
#pragma unroll
  for (int part = 0; part < RowTiles; part += kPart) {
    if (part > 0) __syncthreads();
#pragma unroll
    for (int n = 0; n < kPart; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[(warp * kPartRows + n * kPackedRows + lane % 4 * 2 + i % 2) * kPitch + lane / 4 + i / 2 * 8] =
            total[part + n][i] * (i < 2 ? of_rows.x : of_rows.y);
    }
    __syncthreads();
    const int first = first_row + part * kPackedRows;
    for (int i = static_cast<int>(threadIdx.x); i < kPartRows * columns; i += kPackedWarps * 32) {
      // Neighbouring threads write neighbouring outputs; there are 16, 32, 64 or 128.
      const int column = i & (columns - 1), row = i / columns;
      const int output = first_output + column;
      if (first + row >= g.rows || output >= g.outputs) continue;
      const float* of_warps =
          sums + (column / kPackedOutputs * g.k_warps * kPartRows + row) * kPitch + column % kPackedOutputs;
      float v[1] = {g.bias[output]};
      for (int w = 0; w < g.k_warps; ++w) v[0] += of_warps[w * kPartRows * kPitch];
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
Kernel kernel_of_rows(int row_tiles) {
  switch (row_tiles) {
    case 1:
      return packed_gemm<Bits, Scales, 1>;
    case 2:
      return packed_gemm<Bits, Scales, 2>;
    case 4:
      return packed_gemm<Bits, Scales, 4>;
    default:
      return packed_gemm<Bits, Scales, 8>;
  }
}

/// The kernel of `bits`, `scales_of_span` and `row_tiles`.
inline Kernel kernel_of(const PackedGemmArgs& args) {
  if (args.bits == 8) return kernel_of_rows<8, 0>(args.row_tiles);
  switch (args.scales_of_span) {
    case 1:
      return kernel_of_rows<4, 1>(args.row_tiles);
    case 2:
      return kernel_of_rows<4, 2>(args.row_tiles);
    default:
      return kernel_of_rows<4, 4>(args.row_tiles);
  }
}

}  // namespace packed

}  // namespace pipit::internal::cuda
