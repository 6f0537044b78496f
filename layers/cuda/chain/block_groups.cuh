// Groups of four warps that take turns at the iterations of a residual block: what they are made of, and how they wait
// for one another.
#pragma once

#include <cstdint>
#include <type_traits>

#include "layers/cuda/chain/resident_block_plan.h"
#include "layers/cuda/device/async_ptx.cuh"
#include "layers/cuda/device/tensor_copy.cuh"

namespace pipit::cuda {

/// Sum: float for halves, std::int32_t for bytes.
template <typename Sum>
struct BlockTraits {
  static constexpr int kBytes = std::is_same_v<Sum, float> ? 2 : 1;  // of an element
  static constexpr int kGroups = block_groups(kBytes);
  static constexpr int kThreads = kGroups * 128 + 128;
  /// Of a thread that multiplies; a block has 65536, and threads that copy keep kFewRegisters.
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

}  // namespace pipit::cuda
