// The kernel of a basic residual block: a block of threads keeps the weights of both 3x3 convolutions in shared memory
// and computes a range of positions, of which nothing but x and y passes through memory. Groups of four warps take
// turns at iterations (plan.h); a thread of its own has the copy engine bring weights, and x tile by tile.
//
// Both convolutions read their left operands from rings of tiles, each lane its own pixel, or zeros beyond the image's
// edge: the head from that of x, the tail from that of the head's outputs.
#pragma once

#include <cstdint>

#include "layers/cuda/conv/basic_block/plan.h"
#include "layers/cuda/conv/chain/unit.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::internal::cuda {

namespace basic_block {

/// Taps whose left operands have registers at once.
inline constexpr int kAhead = 3;

#ifdef PIPIT_WARPGROUP_MMA

using units::Outputs;
using units::Sums;

/// Addresses in shared memory.
struct Places {
  std::uint32_t weights, x, ring, constants, zeros;
  std::uint32_t have_weights;  // two barriers: of the head, of the tail
  std::uint32_t full, empty;   // of every turn (kBasicTurns)
};

struct Range {
  int first, count;  // tiles whose outputs the worker computes
  int iterations;
  int first_head, end_head;  // iterations whose head's tile exists
};

__device__ __forceinline__ Range range_of(const BasicBlockArgs& p) {
  const auto worker = static_cast<int>(blockIdx.x);
  Range r;
  r.first = worker * p.least_tiles + min(worker, p.more_tiles);
  r.count = p.least_tiles + (worker < p.more_tiles ? 1 : 0);
  r.iterations = r.count + p.plan.lag;
  r.first_head = max(p.plan.halo - r.first, 0);
  r.end_head = min(r.iterations, p.plan.tiles - r.first + p.plan.halo);
  return r;
}

// One thread: weights, then x as room for it is made; zeros where there is no such tile.
template <typename Sum>
__device__ __forceinline__ void copy_all(const BasicBlockArgs& p, const Places& at, const Range& range) {
  using T = BlockTraits<Sum>;
  constexpr int kWeights = kBlockTaps * T::kUnitBytes;
#pragma unroll
  for (int conv = 0; conv < 2; ++conv) {
    ptx::arrive_expecting(at.have_weights + conv * 8, kWeights);
    ptx::copy_bytes(at.weights + conv * kWeights, p.weights + conv * kWeights, kWeights,
                    at.have_weights + conv * 8);
  }
  ptx::wait_for_previous_kernel();
  const int tiles = range.iterations + p.plan.lag;
#pragma unroll 1
  for (int j = 0, slot = 0; j < tiles; ++j) {
    const int last_read = j - p.plan.x_ring;
    if (last_read >= 0) {
      ptx::wait_barrier(at.empty + last_read % kBasicTurns * 8, last_read / kBasicTurns % 2);
      ptx::let_copies_overwrite();
    }
    const std::uint32_t full = at.full + j % kBasicTurns * 8;
    ptx::arrive_expecting(full, T::kUnitBytes);
    ptx::copy_box(at.x + slot * T::kUnitBytes, p.x, full, 0, (range.first - p.plan.lag + j) * kUnitRows);
    if (++slot == p.plan.x_ring) slot = 0;
  }
}

/// A group that multiplies.
template <typename Sum, bool Adds>
struct Group {
  using T = BlockTraits<Sum>;
  using Out = Outputs<Sum>;
  const BasicBlockArgs& p;
  const Places& at;
  const Range& range;
  // Iterations of every warp: of which the head is in the ring, and that have read the ring.
  int* written;
  int* read;
  int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  /// From one lane: the compiler serializes products in what it takes for divergent.
  int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 128, 0);

  __device__ __forceinline__ std::uint32_t constants_of(int conv) const {
    return at.constants + conv * T::kConstants + lane % 4 * 16;
  }

  __device__ __forceinline__ void await_x(int i) const {
    for (int j = i; j <= i + p.plan.lag; ++j)
      ptx::wait_barrier(at.full + j % kBasicTurns * 8, j / kBasicTurns % 2);
  }
  __device__ __forceinline__ void leave_x(int i) const {
    __syncwarp();
    if (lane == 0) ptx::arrive(at.empty + i % kBasicTurns * 8);
  }
  __device__ __forceinline__ int x_slot(int j) const { return j - p.x_ring.divide(j) * p.plan.x_ring; }
  __device__ __forceinline__ int slot(int head) const { return head - p.ring.divide(head) * p.plan.ring; }

  using Window = units::RingWindow<T::kRowBytes>;
  /// The window of a tile that lies in a slot of a ring.
  __device__ __forceinline__ Window window_of(int tile, std::uint32_t ring, int slots, int its_slot) const {
    const int row = warp * 16 + lane % 16;
    return Window(p.grid, tile * kUnitRows + row, its_slot * kUnitRows + row, ring, slots * kUnitRows,
                  at.zeros, lane);
  }
  /// All of it in one branch: sums that begin before it make the assembler serialize the products.
  __device__ __forceinline__ void convolve(Sums<Sum>& sums, int conv, const Window& window) const {
    units::start(sums, constants_of(conv));
    units::multiply_window<kAhead>(
        sums, window, units::descriptor<T::kRowBytes>(at.weights + conv * kBlockTaps * T::kUnitBytes));
  }

  /// The head, if the tile exists. held: x i, if there is a tail.
  __device__ __forceinline__ void head(int i, Out (&held)[2]) const {
    const bool exists = i >= range.first_head && i < range.end_head;
    // Where pixels lie is known before they are there.
    const Window window =
        window_of(range.first - p.plan.halo + i, at.x, p.plan.x_ring, x_slot(i + p.plan.halo));
    Sums<Sum> sums;
    await_x(i);
    if (exists) convolve(sums, 0, window);
    if (Adds && i >= p.plan.lag) units::get_rows<T::kRowBytes>(at.x, x_slot(i), warp, lane, held);
    leave_x(i);
    if (!exists) return;
    Out outputs[2];
    Out::template finish<false, true>(outputs, sums, constants_of(0), p.head, outputs, 0);
    await_iterations<T::kGroups>(read, lane, i - p.plan.ring + p.plan.lag);
    units::put_rows<T::kRowBytes>(at.ring, slot(i), warp, lane, outputs);
  }

  __device__ __forceinline__ void tail(int i, const Out (&held)[2]) const {
    const int output = i - p.plan.lag;
    const int first = range.first * kUnitRows;
    const units::RowPlaces places =
        units::row_places(output * kUnitRows + warp * 16 + lane / 4, p.plan.positions - first, T::kRowBytes);
    const Window window = window_of(range.first + output, at.ring, p.plan.ring, slot(i - p.plan.halo));
    Sums<Sum> sums;
    ptx::wait_barrier(at.have_weights + 8, 0);
    await_iterations<T::kGroups>(written, lane, i);
    convolve(sums, 1, window);
    count_iteration(read, group, warp, lane);
    Out outputs[2];
    Out::template finish<Adds, true>(outputs, sums, constants_of(1), p.tail, held, p.residual_scale);
    units::write_rows(p.y + static_cast<std::int64_t>(first) * T::kRowBytes, places, outputs);
  }

  __device__ __forceinline__ void run() const {
    ptx::wait_for_previous_kernel();
    ptx::release_next_kernel();
    ptx::wait_barrier(at.have_weights, 0);
#pragma unroll 1
    for (int i = group; i < range.iterations; i += T::kGroups) {
      Out held[2];
      head(i, held);
      count_iteration(written, group, warp, lane);
      if (i < p.plan.lag) {
        count_iteration(read, group, warp, lane);
        continue;
      }
      tail(i, held);
    }
  }
};

#endif

}  // namespace basic_block

/// Sum: float for halves, std::int32_t for bytes.
template <typename Sum, bool Adds>
__global__ void __launch_bounds__(BlockTraits<Sum>::kThreads, 1)
    run_basic_block(const __grid_constant__ BasicBlockArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  using T = BlockTraits<Sum>;
  extern __shared__ std::uint8_t dynamic[];
  __shared__ std::uint64_t barriers[2 + 2 * kBasicTurns];
  __shared__ int counters[8 * T::kGroups];
  basic_block::Places at;
  at.weights = (ptx::shared_address(dynamic) + 1023) & ~1023U;
  at.x = at.weights + kBasicWeightUnits * T::kUnitBytes;
  at.ring = at.x + p.plan.x_ring * T::kUnitBytes;
  at.constants = at.ring + p.plan.ring * T::kUnitBytes;
  at.zeros = at.constants + 2 * T::kConstants;
  at.have_weights = ptx::shared_address(barriers);
  at.full = at.have_weights + 16;
  at.empty = at.full + kBasicTurns * 8;
  const auto thread = static_cast<int>(threadIdx.x);
  const bool copies = thread == T::kGroups * 128;
  const basic_block::Range range = basic_block::range_of(p);
  if (copies) {
    ptx::init_barrier(at.have_weights, 1);
    ptx::init_barrier(at.have_weights + 8, 1);
    for (int t = 0; t < kBasicTurns; ++t) {
      ptx::init_barrier(at.full + t * 8, 1);
      ptx::init_barrier(at.empty + t * 8, 4);
    }
    ptx::publish_barriers();
  }
  for (int i = thread * 16; i < 2 * T::kConstants; i += T::kThreads * 16)
    store_four(at.constants + i, units::constant<Sum>(p.constants, i));
  if (thread < T::kRowBytes / 16) store_four(at.zeros + thread * 16, uint4{});
  if (thread < 8 * T::kGroups) counters[thread] = 0;
  __syncthreads();
  if (thread >= T::kGroups * 128) {
    ptx::leave_registers<T::kFewRegisters>();
    if (copies) basic_block::copy_all<Sum>(p, at, range);
  } else {
    ptx::take_registers<T::kRegisters>();
    basic_block::Group<Sum, Adds>{p, at, range, counters, counters + 4 * T::kGroups}.run();
  }
#endif
}

}  // namespace pipit::internal::cuda
