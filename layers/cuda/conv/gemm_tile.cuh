// What one compiled instance of the implicit-GEMM kernel is.
#pragma once

#include <cooperative_groups.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::internal::cuda {

/// Sizes of one instance. Vector: 16-bit units of x that are together in memory, 8, or 4 for narrow images. Sum: float
/// for halves, BfloatSum for bfloat16, std::int32_t for bytes. A unit is a half or a pair of bytes, so both have the
/// same rows in shared memory and the same steps. EndsUnstored: for ConvShape::unstored; an instance of its own, since
/// the second kind of copy makes every kernel slower.
template <int Rows, int Columns, int WarpRows, int WarpColumns, int Stages, int Vector,
          int BlocksPerProcessor, typename SumType = float, bool EndsUnstored = false>
struct ConvGemmTraits {
  static constexpr bool kEndsUnstored = EndsUnstored;
  using Sum = SumType;
  static constexpr bool kInt8 = std::is_same_v<Sum, std::int32_t>;
  using Element = NarrowOf<Sum>;  // of x, residual and y where sums are no integers
  static constexpr int kRows = Rows, kColumns = Columns, kStages = Stages, kVector = Vector;
  static constexpr int kWarpRows = WarpRows, kWarpColumns = WarpColumns;
  static constexpr int kThreads = WarpRows * WarpColumns * 32;
  static constexpr int kChunks = kTileDepth / 8;       // 16-byte chunks of a shared-memory row
  static constexpr int kRowStep = kThreads / kChunks;  // rows that one pass of all threads copies
  static constexpr int kRowBytes = kTileDepth * 2;
  static constexpr int kStageBytes = (Rows + Columns) * kRowBytes;
  // Sums; the rest keeps most stores of a warp in different banks.
  static constexpr int kSumStride = Columns + (kInt8 ? 4 : 8);
  static constexpr int kSumBytes = Rows * kSumStride * 4;
  static constexpr int kShared = Stages * kStageBytes > kSumBytes ? Stages* kStageBytes : kSumBytes;
  // Blocks that a multiprocessor is to hold, as far as its shared memory does (each takes 2 KiB more): bounding the
  // registers for more of them would make them spill for nothing.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr int kFitting = (164 << 10) / (kShared + 2048);
#else
  static constexpr int kFitting = (228 << 10) / (kShared + 2048);
#endif
  static constexpr int kBlocks = BlocksPerProcessor < kFitting ? BlocksPerProcessor : kFitting;
  // A block with the whole depth writes y in 16-byte groups of neighbouring channels.
  static constexpr int kOutputBytes = kInt8 ? 1 : 2;  // of an element of residual and y
  static constexpr int kGroup = 16 / kOutputBytes;    // channels of a group
  static constexpr int kGroups = Columns / kGroup;    // groups of a row of the tile
  static constexpr int kPass = kThreads / kGroups;    // rows that one pass of all threads reads or writes
  static constexpr int kTileBytes = Rows * Columns * kOutputBytes;  // of residual and y
  static_assert(kTileBytes <= kStageBytes && Rows % kPass == 0);
  // Blocks that share the depth write y in groups of eight channels.
  static constexpr int kShareGroups = Columns / 8;
  static constexpr int kSharePass = kThreads / kShareGroups;
  static constexpr int kShare = Rows / kSharePass / 2;  // passes over a tile that two blocks share
  static_assert(kShare >= 1);

  /// 16-byte chunk at which group `group` of row `row` of y is kept: a warp's fragments fall into different banks.
  static __device__ __forceinline__ int tile_chunk(int row, int group) {
    if constexpr (kGroups == 2) return row * 2 + (group ^ (row >> 2 & 1));
    if constexpr (kGroups == 4) return row * 4 + swizzled_chunk<4>(row, group);
    return row * kGroups + (group ^ (row & 7));
  }
};

// The products of the implicit-GEMM kernel and the registers that hold their sums.

/// Where a thread's accumulators lie in the tile: sums[i][j] is an m16n8 fragment.
template <typename T>
struct ConvGemmFragments {
#ifdef PIPIT_WARPGROUP_MMA
  // Four warps hold 64 rows and all columns.
  static constexpr int kM = T::kRows / 64 / (T::kThreads / 128);
  static constexpr int kN = T::kColumns / 8;
  static constexpr int kRowStep = 64;
  static __device__ int first_row(int warp) {
    return warp / 4 * (kM * 64) + warp % 4 * 16;
  }
  static __device__ int first_column(int) {
    return 0;
  }
#else
  static constexpr int kM = T::kRows / T::kWarpRows / 16;
  static constexpr int kN = T::kColumns / T::kWarpColumns / 8;
  static constexpr int kRowStep = 16;
  static __device__ int first_row(int warp) {
    return warp % T::kWarpRows * (T::kRows / T::kWarpRows);
  }
  static __device__ int first_column(int warp) {
    return warp / T::kWarpRows * (T::kColumns / T::kWarpColumns);
  }
  static_assert(kN % 2 == 0);
#endif
  typename T::Sum sums[kM][kN][4] = {};

  /// sums += left (rows x kTileDepth units) * right (columns x kTileDepth units), both in shared memory. Asynchronous
  /// on Hopper: finish() before the operands are overwritten or the sums are read.
  __device__ __forceinline__ void multiply_step(std::uint32_t left, std::uint32_t right, int warp) {
#ifdef PIPIT_WARPGROUP_MMA
    ptx::begin_products();
#pragma unroll
    for (int kk = 0; kk < kTileDepth / 16; ++kk) {
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        const int row = warp / 4 * (kM * 64) + i * 64;
        ptx::multiply_group(sums[i], ptx::matrix_descriptor(left + row * T::kRowBytes + kk * 32),
                            ptx::matrix_descriptor(right + kk * 32));
      }
    }
    ptx::end_products();
#else
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int kk = 0; kk < kTileDepth / 16; ++kk) {
      std::uint32_t a[kM][4];
      std::uint32_t b[kN / 2][4];
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        const int r = first_row(warp) + i * 16 + (lane & 15);
        ptx::load_matrices(
            a[i], left + r * T::kRowBytes + swizzled_chunk<T::kChunks>(r, kk * 2 + (lane >> 4)) * 16);
      }
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) {
        const int r = first_column(warp) + j * 16 + (lane & 7) + (lane >> 4) * 8;
        ptx::load_matrices(
            b[j], right + r * T::kRowBytes + swizzled_chunk<T::kChunks>(r, kk * 2 + (lane >> 3 & 1)) * 16);
      }
#pragma unroll
      for (int i = 0; i < kM; ++i) {
#pragma unroll
        for (int j = 0; j < kN; ++j)
          ptx::multiply(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
#endif
  }

  __device__ __forceinline__ void finish() {
#ifdef PIPIT_WARPGROUP_MMA
    ptx::wait_products();
#endif
  }

  /// Writes the sums to tile [rows][kSumStride], columns in the order of their channels.
  __device__ __forceinline__ void store(typename T::Sum* tile, int warp) const {
    struct alignas(8) Pair {
      typename T::Sum first, second;
    };
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const int column = first_column(warp) + j * 8 + lane % 4 * 2;
        auto* to = tile + (first_row(warp) + i * kRowStep + lane / 4) * T::kSumStride +
                   (T::kInt8 ? packed_channel(column) : column);
        *reinterpret_cast<Pair*>(to) = {sums[i][j][0], sums[i][j][1]};
        *reinterpret_cast<Pair*>(to + 8 * T::kSumStride) = {sums[i][j][2], sums[i][j][3]};
      }
    }
  }
};

// Brings a tile's operands to shared memory, step by step along k.

/// Copies the tile's next step along k from x and the weights to shared memory. Positions along k count units of 16
/// bits, which are halves or pairs of bytes. Listed: of ConvGemmArgs::blocks, else of all blocks. WholeImages: only
/// ConvAverage::rows of the tile are copied.
template <typename T, bool Listed, bool WholeImages = false>
struct ConvGemmLoader {
  static constexpr int kRowLoads = T::kRows / T::kRowStep;
  static constexpr int kColumnLoads = T::kColumns / T::kRowStep;
  static constexpr int kParts = 8 / T::kVector;  // copies that make up one chunk
  static_assert(T::kRows % T::kRowStep == 0 && T::kColumns % T::kRowStep == 0);
  /// What a thread copies of one step of x.
  struct alignas(kParts * sizeof(DepthBlock)) Blocks {
    DepthBlock part[kParts];
  };

  const ConvGemmArgs& args;
  int row = static_cast<int>(threadIdx.x) / T::kChunks;
  int chunk = static_cast<int>(threadIdx.x) % T::kChunks;
  int h[kRowLoads], w[kRowLoads], base[kRowLoads];
  const Blocks* blocks = nullptr;  // listed: of this thread's chunk of the first step
  // Else where this thread's next chunk lies.
  DepthCursor cursor[kParts];
  int k = 0;
  const std::uint16_t* x = static_cast<const std::uint16_t*>(args.x);
  const std::uint16_t* weights;

  __device__ ConvGemmLoader(const ConvGemmArgs& a, int first_row, int column_tile, int first_step) : args(a) {
    const ConvShape& s = args.shape;
#pragma unroll
    for (int i = 0; i < kRowLoads; ++i) {
      const int m = first_row + row + i * T::kRowStep;
      bool inside = m < args.rows;
      if constexpr (WholeImages) inside = inside && m - first_row < args.average.rows;
      const PixelOrigin origin = pixel_origin(s, args.positions, args.out_width, inside ? m : 0);
      // Rows beyond the matrix, or the tile's images, read as padding.
      h[i] = inside ? origin.h : -(1 << 29);
      w[i] = origin.w;
      base[i] = ((origin.image * s.in_h + origin.h) * s.in_w + origin.w) * pixel_units();
      ptx::keep_in_register(h[i]);
      ptx::keep_in_register(w[i]);
      ptx::keep_in_register(base[i]);
    }
    if constexpr (Listed) {
      blocks = reinterpret_cast<const Blocks*>(args.blocks + column_tile * args.tile_blocks) +
               first_step * T::kChunks + chunk;
    } else {
      k = first_step * kTileDepth + chunk * 8;
      place_cursors();
    }
    weights = static_cast<const std::uint16_t*>(args.weights) +
              static_cast<std::int64_t>(column_tile * T::kColumns + row) * args.depth +
              first_step * kTileDepth + chunk * 8;
  }

  __device__ __forceinline__ void place_cursors() {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      cursor[p] = depth_cursor(args.shape, args.channels, args.kernel_width, k + p * T::kVector);
    }
  }

  /// The listed blocks of a step. They are constants, which may be read before the previous kernel has finished.
  __device__ __forceinline__ Blocks listed(int step) const {
    return blocks[step * T::kChunks];
  }

  /// The next step's part of x. of_step: its listed blocks, where there are any.
  __device__ __forceinline__ void load_left(std::uint32_t stage, const Blocks& of_step) {
    const ConvShape& s = args.shape;
    if constexpr (Listed) {
      // Through the first-level cache: a pixel's lines are read again for the blocks of other taps.
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const DepthBlock& at = of_step.part[p];
        const int odd = T::kEndsUnstored ? at.offset & 1 : 0;
        load_part<ptx::Through::both_caches>(stage, p, true, at.down, at.right, at.offset - odd, odd == 0);
      }
    } else {
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        DepthCursor& at = cursor[p];
        const int down = at.r * s.dilation_h;
        const int right = at.s * s.dilation_w;
        load_part<ptx::Through::second_cache>(stage, p, at.r < s.kernel_h, down, right,
                                              (down * s.in_w + right) * pixel_units() + at.c,
                                              at.c + 8 <= pixel_units());
        if constexpr (T::kVector == 8) at.advance(s, kTileDepth);
      }
      if constexpr (T::kVector < 8) {
        // Sixteen taps to a step: dividing is shorter than walking.
        k += kTileDepth;
        place_cursors();
      }
    }
  }

  /// The step's part of the weights.
  __device__ __forceinline__ void load_right(std::uint32_t stage) {
    const std::uint32_t right = stage + T::kRows * T::kRowBytes;
#pragma unroll
    for (int i = 0; i < kColumnLoads; ++i) {
      const int r = row + i * T::kRowStep;
      ptx::copy_async<16>(right + r * T::kRowBytes + swizzled_chunk<T::kChunks>(r, chunk) * 16,
                          weights + static_cast<std::int64_t>(i * T::kRowStep) * args.depth, true);
    }
    weights += kTileDepth;
  }

 private:
  __device__ __forceinline__ int pixel_units() const {
    return T::kEndsUnstored ? args.shape.pixel_units() : args.shape.in_c;
  }

  /// whole: else the last four units are unstored.
  template <ptx::Through Caches>
  __device__ __forceinline__ void load_part(std::uint32_t stage, int part, bool live, int down, int right,
                                            int offset, bool whole) const {
    const ConvShape& s = args.shape;
#pragma unroll
    for (int i = 0; i < kRowLoads; ++i) {
      const bool valid = live && static_cast<unsigned>(h[i] + down) < static_cast<unsigned>(s.in_h) &&
                         static_cast<unsigned>(w[i] + right) < static_cast<unsigned>(s.in_w);
      const int r = row + i * T::kRowStep;
      const std::uint32_t to =
          stage + r * T::kRowBytes + swizzled_chunk<T::kChunks>(r, chunk) * 16 + part * T::kVector * 2;
      const std::uint16_t* from = x + (valid ? base[i] + offset : 0);
      if constexpr (T::kEndsUnstored) {  // pixels begin at multiples of 8 bytes
        ptx::copy_async<8>(to, from, valid);
        ptx::copy_async<8>(to + 8, valid && whole ? from + 4 : x, valid && whole);
      } else {
        ptx::copy_async<T::kVector * 2, Caches>(to, from, valid);
      }
    }
  }
};

// What both epilogues of the implicit-GEMM kernel share: how the residual is read, and tiles whose depth a cluster's
// blocks have between them.

/// Copies the tile of the residual to `to`, zeros beyond its edges. out_c is a multiple of
/// T::kGroup.
template <typename T>
__device__ __forceinline__ void load_residual(const ConvGemmArgs& args, std::uint32_t to, int first_row,
                                              int first_column) {
  const auto* residual = static_cast<const std::byte*>(args.residual);
  const int group = static_cast<int>(threadIdx.x) % T::kGroups;
  const int column = first_column + group * T::kGroup;
#pragma unroll
  for (int i = 0; i < T::kRows / T::kPass; ++i) {
    const int row = static_cast<int>(threadIdx.x) / T::kGroups + i * T::kPass;
    const bool valid = first_row + row < args.rows && column < args.shape.out_c;
    ptx::copy_async<16>(
        to + T::tile_chunk(row, group) * 16,
        valid ? residual + output_offset(args, first_row + row, column) * T::kOutputBytes : residual, valid);
  }
}

/// The rows of a tile that this block finishes when a cluster shares its depth: every args.splits-th pass.
template <typename T, typename Epilogue>
struct ConvGemmShare {
  struct alignas(16) Quad {
    typename T::Sum v[4];
  };

  const ConvGemmArgs& args;
  int first_row, first_column;
  int column = static_cast<int>(threadIdx.x) % T::kShareGroups * 8;  // a thread stays with its eight channels
  typename Epilogue::Eight held[T::kShare];

  __device__ __forceinline__ ConvGemmShare(const ConvGemmArgs& a, int row, int column0)
      : args(a), first_row(row), first_column(column0) {}
  __device__ __forceinline__ int row(int i) const {
    return (i * args.splits + static_cast<int>(blockIdx.y)) * T::kSharePass +
           static_cast<int>(threadIdx.x) / T::kShareGroups;
  }
  __device__ __forceinline__ bool inside(int i) const {
    return row(i) < T::kRows && first_row + row(i) < args.rows && first_column + column < args.shape.out_c;
  }

  /// Starts reading the residual, long before it is needed.
  __device__ __forceinline__ void fetch_residual() {
#pragma unroll
    for (int i = 0; i < T::kShare; ++i) {
      held[i] = {};
      if (args.residual == nullptr || args.shape.out_c % 8 != 0 || !inside(i)) continue;
      held[i] = *reinterpret_cast<const typename Epilogue::Eight*>(
          static_cast<const std::byte*>(args.residual) +
          output_offset(args, first_row + row(i), first_column + column) * T::kOutputBytes);
    }
  }

  /// Adds up the sums that the cluster's blocks have in `tile` and writes y.
  __device__ __forceinline__ void write(typename T::Sum* tile,
                                        const typename Epilogue::Columns& columns) const {
#if __CUDA_ARCH__ >= 900
    namespace cg = cooperative_groups;
    const cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    constexpr int kAtOnce = 4;  // loads from other blocks that are in flight together
    typename T::Sum sum[T::kShare][8];
#pragma unroll
    for (int i = 0; i < T::kShare; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[i][j] = Epilogue::first_sum(columns, column + j);
      if (!inside(i)) continue;
      auto* from = tile + row(i) * T::kSumStride + column;
      // Always in the same order, so that the result does not depend on timing.
      for (int rank = 0; rank < args.splits; rank += kAtOnce) {
        Quad part[kAtOnce][2];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          const auto* other = rank + u < args.splits ? cluster.map_shared_rank(from, rank + u) : nullptr;
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            part[u][r] = {};
            if (other != nullptr) part[u][r] = reinterpret_cast<const Quad*>(other)[r];
          }
        }
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
          for (int j = 0; j < 8; ++j) sum[i][j] += part[u][j / 4].v[j % 4];
        }
      }
    }
    // No block leaves while others still read its sums.
    auto token = cluster.barrier_arrive();
#pragma unroll
    for (int i = 0; i < T::kShare; ++i) {
      if (inside(i)) {
        Epilogue::finish_channels(args, columns, sum[i], held[i], first_row + row(i), first_column, column);
      }
    }
    cluster.barrier_wait(std::move(token));
#endif
  }
};

}  // namespace pipit::internal::cuda
