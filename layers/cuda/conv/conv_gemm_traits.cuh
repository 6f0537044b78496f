// What one compiled instance of the implicit-GEMM kernel is.
#pragma once

#include <cstdint>
#include <type_traits>

#include "layers/cuda/conv/conv_tile.h"

namespace pipit::cuda {

/// Sizes of one instance. Vector: 16-bit units of x that are together in memory, 8, or 4 for narrow images. Sum: float
/// for halves, std::int32_t for bytes. A unit is a half or a pair of bytes, so both have the same rows in shared
/// memory and the same steps. EndsUnstored: for ConvShape::unstored; with the second way to copy in every kernel
/// MobileNet v3 in fp16 took 5 % longer at batch 1.
template <int Rows, int Columns, int WarpRows, int WarpColumns, int Stages, int Vector,
          int BlocksPerProcessor, typename SumType = float, bool EndsUnstored = false>
struct ConvGemmTraits {
  static constexpr bool kEndsUnstored = EndsUnstored;
  using Sum = SumType;
  static constexpr bool kInt8 = std::is_same_v<Sum, std::int32_t>;
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

}  // namespace pipit::cuda
