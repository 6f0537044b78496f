// What resident_block's kernels are made of, which tiles a worker computes, and the thread that has the copy engine
// bring weights and x.
#pragma once

#include <cstdint>

#include "layers/cuda/chain/block_groups.cuh"
#include "layers/cuda/chain/resident_block_launch.h"
#include "layers/cuda/device/async_ptx.cuh"
#include "layers/cuda/device/cluster_ptx.cuh"
#include "layers/cuda/device/tensor_copy.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::cuda::resident_block {

template <typename Sum, BlockAdds Adds>
struct Traits : BlockTraits<Sum> {
  static constexpr bool kProjects = Adds >= BlockAdds::projection;
  static constexpr int kChunkUnits = kBlockChunkBytes / BlockTraits<Sum>::kRowBytes;
  /// Taps of the window whose left operands have registers at once: halves have room for two.
  static constexpr int kAhead = BlockTraits<Sum>::kBytes == 1 ? 3 : 2;
};
/// Barriers of units of x that take turns, for those that arrive and for those that have been multiplied. Groups wait
/// for units in any order: one waits for its own while those of an iteration for each other group are still to come.
inline constexpr int kTurns = 32;
static_assert((block_groups(1) + 1) * (kBlockMostUnits + 1) <= kTurns);

#ifdef PIPIT_WARPGROUP_MMA

/// Addresses in shared memory.
struct Places {
  std::uint32_t weights, ring, slots, constants, zeros;
  std::uint32_t have_weights;  // two barriers: of the head, of the rest
  std::uint32_t full, empty;   // of every turn
};

struct Range {
  int first, count;  // tiles whose outputs the worker computes
  int iterations;
  int first_head, end_head;  // iterations whose head's tile exists
};

__device__ __forceinline__ Range range_of(const ResidentBlockArgs& p) {
  const auto worker = static_cast<int>(blockIdx.x);
  Range r;
  r.first = worker * p.least_tiles + min(worker, p.more_tiles);
  r.count = p.least_tiles + (worker < p.more_tiles ? 1 : 0);
  r.iterations = r.count + p.plan.lag;
  r.first_head = max(p.plan.halo - r.first, 0);
  r.end_head = min(r.count + 2 * p.plan.halo, p.plan.tiles - r.first + p.plan.halo);
  return r;
}

// One thread: weights, then x as room for it is made.
template <typename Sum, BlockAdds Adds>
__device__ __forceinline__ void copy_all(const ResidentBlockArgs& p, const Places& at, const Range& range) {
  using T = Traits<Sum, Adds>;
  const int head = p.plan.in_units * T::kUnitBytes;
  const int rest = (kBlockTaps + p.plan.out_units * (T::kProjects ? 2 : 1)) * T::kUnitBytes;
  ptx::arrive_expecting(at.have_weights, head);
  ptx::copy_bytes(at.weights, p.weights, head, at.have_weights);
  ptx::arrive_expecting(at.have_weights + 8, rest);
  ptx::copy_bytes(at.weights + head, p.weights + head, rest, at.have_weights + 8);
  ptx::wait_for_previous_kernel();
  ptx::release_next_kernel();
  const int slots = 1 << p.plan.slots_log2;
  int entry = 0;
  const auto bring = [&](int chunk, int tile) {
    const int before = entry - slots;
    if (before >= 0) ptx::wait_barrier(at.empty + before % kTurns * 8, before / kTurns % 2);
    const std::uint32_t full = at.full + entry % kTurns * 8;
    ptx::arrive_expecting(full, kBlockSlotBytes);
    ptx::copy_box(at.slots + (entry & (slots - 1)) * kBlockSlotBytes, p.x, full, chunk * kBlockChunkBytes,
                  tile * kUnitRows);
    ++entry;
  };
#pragma unroll 1
  for (int i = 0; i < range.iterations; ++i) {
    if (i >= range.first_head && i < range.end_head) {
      for (int chunk = 0; chunk < p.in_chunks; ++chunk) bring(chunk, range.first - p.plan.halo + i);
    }
    if (T::kProjects && i >= p.plan.lag) bring(0, range.first + i - p.plan.lag);
  }
}

#endif

}  // namespace pipit::cuda::resident_block
