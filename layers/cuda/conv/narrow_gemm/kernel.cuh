// The kernel of 1x1 convolutions of few channels, and of small windows of the user's image, in INT8
// (plan.h).
#pragma once

#include <cstdint>

#include "layers/cuda/conv/narrow_gemm/plan.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda {

/// What happens to the sums: nothing, a table of y's bytes, a residual.
enum class NarrowEnd : std::uint8_t { bytes, looked_up, added };

inline constexpr int kNarrowThreads = 256;
/// Products' rows that a warp has at once, of 16 positions: more have no registers for operands of that depth.
template <int Steps>
inline constexpr int kNarrowRowTiles = Steps == 1 ? 2 : 1;
template <int Steps>
inline constexpr int kNarrowPositions = kNarrowRowTiles<Steps> * 16;

namespace narrow {

/// A tile's left operands.
template <int Steps>
struct Left {
  std::uint32_t fragment[kNarrowRowTiles<Steps>][Steps][4];
};

/// Positions of a tile that exist, and which a lane has of its rows.
template <int Steps>
__device__ __forceinline__ int rows_of(const NarrowArgs& p, int tile) {
  return min(kNarrowPositions<Steps>, p.positions - tile * kNarrowPositions<Steps>);
}
__device__ __forceinline__ int row_of(int row_tile, int half) {
  return row_tile * 16 + static_cast<int>(threadIdx.x) % 32 / 4 + half * 8;
}

/// How left operands come from x: what is read ahead, and what becomes of it. Of rows that do not exist the last one's.
/// Channels: of an image, at least as many as there are, 3 or 4; of bytes 0.
template <int Steps, NarrowFrom From, int Channels>
struct Source;

template <int Steps>
struct Source<Steps, NarrowFrom::bytes, 0> {
  using Ahead = Left<Steps>;

  static __device__ __forceinline__ void load(const NarrowArgs& p, int tile, Ahead& to) {
    const int rows = rows_of<Steps>(p, tile), channel = static_cast<int>(threadIdx.x) % 4 * 8;
    const std::int8_t* x =
        p.x + static_cast<std::int64_t>(tile) * kNarrowPositions<Steps> * p.shape.channels + channel;
#pragma unroll
    for (int t = 0; t < kNarrowRowTiles<Steps>; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto from = static_cast<unsigned>(min(row_of(t, half), rows - 1) * p.shape.channels);
#pragma unroll
        for (int s = 0; s < Steps; ++s) {
          uint2 two{};
          if (s * kNarrowStepBytes + channel < p.shape.channels)
            two = *reinterpret_cast<const uint2*>(x + from + s * kNarrowStepBytes);
          to.fragment[t][s][half] = two.x, to.fragment[t][s][half + 2] = two.y;
        }
      }
    }
  }
  static __device__ __forceinline__ Left<Steps> operands(const NarrowArgs&, const Ahead& ahead) {
    return ahead;
  }
};

/// A lane has a row of the window, the last one of four none.
template <int Channels>
struct Source<2, NarrowFrom::window, Channels> {
  static_assert(kNarrowRowTiles<2> == 1);
  struct Ahead {
    float pixel[2][kNarrowWindow][Channels];
  };

  static __device__ __forceinline__ void load(const NarrowArgs& p, int tile, Ahead& to) {
    const NarrowWindow& w = p.window;
    const int rows = rows_of<2>(p, tile), window_row = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = tile * kNarrowPositions<2> + min(row_of(0, half), rows - 1);
      const int image = w.positions.divide(position);
      const int rest = position - image * static_cast<int>(w.positions.value);
      const int oh = w.out_width.divide(rest);
      const int h = oh * w.stride_h - w.pad_h + window_row;
      const int first = (rest - oh * static_cast<int>(w.out_width.value)) * w.stride_w - w.pad_w;
      const bool has_row = window_row < kNarrowWindow && h >= 0 && h < w.in_h;
      const int from = image * w.x_image + h * w.x_row + first * w.x_pixel;
#pragma unroll
      for (int x = 0; x < kNarrowWindow; ++x) {
        const bool inside = has_row && first + x >= 0 && first + x < w.in_w;
#pragma unroll
        for (int c = 0; c < Channels; ++c)
          to.pixel[half][x][c] =
              inside && c < w.channels ? w.x[from + x * w.x_pixel + c * w.x_channel] : 0.0F;
      }
    }
  }
  static __device__ __forceinline__ Left<2> operands(const NarrowArgs& p, const Ahead& ahead) {
    Left<2> left;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t word[4] = {};
#pragma unroll
      for (int x = 0; x < kNarrowWindow; ++x) {
        std::uint32_t bits[kNarrowWindowChannels] = {};
#pragma unroll
        for (int c = 0; c < Channels; ++c) bits[c] = image_bits(ahead.pixel[half][x][c], p.window.scale);
        word[x] = low_bytes(bits);
      }
#pragma unroll
      for (int s = 0; s < 2; ++s)
        left.fragment[0][s][half] = word[s * 2], left.fragment[0][s][half + 2] = word[s * 2 + 1];
    }
    return left;
  }
};

template <int Steps>
struct Warp {
  static constexpr int kRowTiles = kNarrowRowTiles<Steps>;
  const NarrowArgs& p;
  std::uint32_t packed;       // in shared memory
  const std::uint8_t* table;  // likewise
  int lane = static_cast<int>(threadIdx.x) % 32;

  /// A lane's neighbouring channels of a row, Pairs words of them.
  template <int Pairs>
  static __device__ __forceinline__ void read_run(const std::int8_t* from, std::uint32_t (&run)[Pairs]) {
    if constexpr (Pairs == 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(from);
      run[0] = four.x, run[1] = four.y, run[2] = four.z, run[3] = four.w;
    } else if constexpr (Pairs == 2) {
      const uint2 two = *reinterpret_cast<const uint2*>(from);
      run[0] = two.x, run[1] = two.y;
    } else {
      run[0] = *reinterpret_cast<const std::uint32_t*>(from);
    }
  }
  template <int Pairs>
  static __device__ __forceinline__ void write_run(std::int8_t* to, const std::uint32_t (&run)[Pairs]) {
    if constexpr (Pairs == 4) {
      *reinterpret_cast<uint4*>(to) = make_uint4(run[0], run[1], run[2], run[3]);
    } else if constexpr (Pairs == 2) {
      *reinterpret_cast<uint2*>(to) = make_uint2(run[0], run[1]);
    } else {
      *reinterpret_cast<std::uint32_t*>(to) = run[0];
    }
  }

  /// Columns of y from `column` on, as many as Pairs have.
  template <int Pairs, NarrowEnd End, bool Relu>
  __device__ __forceinline__ void finish(int tile, const Left<Steps>& left, int column,
                                         std::uint32_t constants) const {
    const int first = column + lane % 4 * (4 * Pairs), rows = rows_of<Steps>(p, tile);
    const std::int64_t begin =
        static_cast<std::int64_t>(tile) * kNarrowPositions<Steps> * p.shape.outputs + first;
    std::uint32_t runs[kRowTiles][2][Pairs];
    if constexpr (End == NarrowEnd::added) {
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const auto at = static_cast<unsigned>(row_of(t, half) * p.shape.outputs);
          if (row_of(t, half) < rows && first < p.shape.outputs)
            read_run<Pairs>(p.residual + begin + at, runs[t][half]);
        }
      }
    }
    const std::uint32_t base = End == NarrowEnd::added ? byte_base() : 0;
#pragma unroll
    for (int pair = 0; pair < Pairs; ++pair) {
      const std::uint32_t of_pair = constants + pair * p.shape.pair_bytes();
      const std::uint32_t of_lane = of_pair + lane % 4 * 16;
      int sums[kRowTiles][2][4];
      const uint4 bias[2] = {load_four(of_lane), load_four(of_lane + 64)};
#pragma unroll
      for (int s = 0; s < Steps; ++s) {
        const uint4 right = load_four(of_pair + kNarrowConstantBytes + (s * 32 + lane) * 16);
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
          if (s == 0) {
            ptx::multiply(sums[t][0], left.fragment[t][0], right.x, right.y, bias[0]);
            ptx::multiply(sums[t][1], left.fragment[t][0], right.z, right.w, bias[1]);
          } else {
            ptx::multiply(sums[t][0], left.fragment[t][s], right.x, right.y);
            ptx::multiply(sums[t][1], left.fragment[t][s], right.z, right.w);
          }
        }
      }
      const uint4 four = load_four(of_lane + 128);
      const float multiplier[4] = {__uint_as_float(four.x), __uint_as_float(four.y), __uint_as_float(four.z),
                                   __uint_as_float(four.w)};
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          std::uint32_t& word = runs[t][half][pair];
          word = four_bytes_of<End == NarrowEnd::added, Relu>(
              [&](int k) { return sums[t][k / 2][half * 2 + k % 2]; }, true, multiplier, p.bounds,
              End == NarrowEnd::added ? word : 0, p.residual_scale, base);
          if constexpr (End == NarrowEnd::looked_up) word = looked_up(word, table);
        }
      }
    }
    if (first >= p.shape.outputs) return;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto at = static_cast<unsigned>(row_of(t, half) * p.shape.outputs);
        if (row_of(t, half) < rows) write_run<Pairs>(p.y + begin + at, runs[t][half]);
      }
    }
  }

  template <NarrowFrom From, int Channels, NarrowEnd End, bool Relu>
  __device__ __forceinline__ void run() const {
    using X = Source<Steps, From, Channels>;
    const int warps = static_cast<int>(gridDim.x) * (kNarrowThreads / 32);
    const int tiles = (p.positions + kNarrowPositions<Steps> - 1) / kNarrowPositions<Steps>;
    int tile = static_cast<int>(blockIdx.x) * (kNarrowThreads / 32) + static_cast<int>(threadIdx.x) / 32;
    if (tile >= tiles) return;
    typename X::Ahead ahead;
    X::load(p, tile, ahead);
#pragma unroll 1
    for (; tile < tiles; tile += warps) {
      const Left<Steps> left = X::operands(p, ahead);
      if (tile + warps < tiles) X::load(p, tile + warps, ahead);
      std::uint32_t constants = packed;
#pragma unroll 1
      for (int column = 0; column < p.shape.outputs;) {
        const int pairs = p.shape.pairs_from(column);
        if (pairs == 4) {
          finish<4, End, Relu>(tile, left, column, constants);
        } else if (pairs == 2) {
          finish<2, End, Relu>(tile, left, column, constants);
        } else {
          finish<1, End, Relu>(tile, left, column, constants);
        }
        column += pairs * kNarrowPairColumns;
        constants += pairs * p.shape.pair_bytes();
      }
    }
  }
};

}  // namespace narrow

/// Steps: NarrowShape::steps().
template <int Steps, NarrowFrom From, NarrowEnd End>
__global__ void __launch_bounds__(kNarrowThreads, 2) narrow_gemm(const __grid_constant__ NarrowArgs p) {
  extern __shared__ __align__(16) std::uint8_t dynamic[];
  __shared__ alignas(4) std::uint8_t table[End == NarrowEnd::looked_up ? 256 : 4];
  const std::uint32_t packed = ptx::shared_address(dynamic);
  for (int i = static_cast<int>(threadIdx.x) * 16; i < p.packed_bytes; i += kNarrowThreads * 16)
    store_four(packed + i, *reinterpret_cast<const uint4*>(p.packed + i));
  if constexpr (End == NarrowEnd::looked_up) copy_table(table, p.table);
  __syncthreads();
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const narrow::Warp<Steps> warp{p, packed, table};
  if constexpr (From == NarrowFrom::bytes) {
    p.relu ? warp.template run<From, 0, End, true>() : warp.template run<From, 0, End, false>();
  } else if (p.window.channels < kNarrowWindowChannels) {
    p.relu ? warp.template run<From, 3, End, true>() : warp.template run<From, 3, End, false>();
  } else {
    p.relu ? warp.template run<From, 4, End, true>() : warp.template run<From, 4, End, false>();
  }
}

}  // namespace pipit::internal::cuda
