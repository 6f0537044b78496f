// What resident_block's kernels are made of, which tiles a worker computes, and the thread that has the copy engine
// bring weights and x.
#pragma once

#include <cstdint>

#include "layers/cuda/conv/chain/unit.cuh"
#include "layers/cuda/conv/resident_block/plan.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::internal::cuda::resident_block {

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
static_assert((block_groups(1) + 1) * (kBlockMaxUnits + 1) <= kTurns);

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

}  // namespace pipit::internal::cuda::resident_block

namespace pipit::internal::cuda {

// The kernel of a residual block: a block of threads keeps the weights of all its convolutions in
// shared memory and computes a range of positions, of which nothing but x and y passes through memory. Groups of four
// warps take turns at iterations (plan.h); a thread of its own has the copy engine bring weights, and x
// in chunks of 128 bytes of a position.
//
// The head multiplies x from shared memory and puts its outputs into a ring there. The window's left operands are read
// from the ring, each lane's own pixel, or zeros beyond the image's edge. Its outputs are the left operands of the tail
// as they are, in registers.

namespace resident_block {

using units::Outputs;
using units::Sums;

#ifdef PIPIT_WARPGROUP_MMA

/// A group that multiplies.
template <typename Sum, BlockAdds Adds>
struct Group {
  using T = Traits<Sum, Adds>;
  using Out = Outputs<Sum>;
  const ResidentBlockArgs& p;
  const Places& at;
  const Range& range;
  // Iterations of every warp: of which the head is in the ring, and that have read the ring.
  int* written;
  int* read;
  int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  /// From one lane: the compiler serializes products in what it takes for divergent.
  int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 128, 0);

  __device__ __forceinline__ void await(const int* counters, int last) const {
    await_iterations<T::kGroups>(counters, lane, last);
  }
  __device__ __forceinline__ void tell(int* counters) const { count_iteration(counters, group, warp, lane); }
  /// How many units of x were brought before iteration i.
  __device__ __forceinline__ int entries_before(int i) const {
    const int heads = max(min(i, range.end_head) - range.first_head, 0) * p.in_chunks;
    return heads + (T::kProjects ? max(i - p.plan.lag, 0) : 0);
  }
  __device__ __forceinline__ std::uint32_t await_slot(int entry) const {
    ptx::wait_barrier(at.full + entry % kTurns * 8, entry / kTurns % 2);
    return at.slots + (entry & ((1 << p.plan.slots_log2) - 1)) * kBlockSlotBytes;
  }
  __device__ __forceinline__ void leave_slot(int entry) const {
    __syncwarp();
    if (lane == 0) ptx::arrive(at.empty + entry % kTurns * 8);
  }
  __device__ __forceinline__ std::uint32_t constants_of(int unit) const {
    return at.constants + unit * T::kConstants + lane % 4 * 16;
  }
  __device__ __forceinline__ std::uint64_t weights_of(int unit) const {
    return units::descriptor<T::kRowBytes>(at.weights + unit * T::kUnitBytes);
  }

  __device__ __forceinline__ void head(int i) const {
    Sums<Sum> sums;
    units::start(sums, constants_of(0));
    const int entry = entries_before(i);
#pragma unroll 1
    for (int chunk = 0; chunk < p.in_chunks; ++chunk) {
      const std::uint64_t left = units::descriptor<kBlockChunkBytes>(await_slot(entry + chunk));
      ptx::begin_products();
#pragma unroll
      for (int u = 0; u < T::kChunkUnits; ++u) {
        const int unit = chunk * T::kChunkUnits + u;
        const std::uint64_t right = weights_of(unit);
#pragma unroll
        for (int k = 0; k < T::kProducts; ++k)
          ptx::multiply_group(sums, left + (u * T::kProducts + k) * 2, right + k * 2);
      }
      ptx::end_products();
      ptx::wait_products();
      leave_slot(entry + chunk);
    }
    Out outputs[2];
    Out::template finish<false, true>(outputs, sums, constants_of(0), p.head, outputs, 0);
    await(read, i - p.plan.ring + p.plan.lag);
    const int slot = i - p.ring.divide(i) * p.plan.ring;
    units::put_rows<T::kRowBytes>(at.ring, slot, warp, lane, outputs);
  }

  using Window = units::RingWindow<T::kRowBytes>;
  __device__ __forceinline__ Window window_of(int output) const {
    const int row = warp * 16 + lane % 16;
    const int tile = output + p.plan.halo;  // as heads are counted
    const int slot = tile - p.ring.divide(tile) * p.plan.ring;
    return Window(p.grid, (range.first + output) * kUnitRows + row, slot * kUnitRows + row, at.ring,
                  p.plan.ring * kUnitRows, at.zeros, lane);
  }

  __device__ __forceinline__ void window(int output, std::uint32_t (&operands)[T::kProducts][4]) const {
    const Window window = window_of(output);
    Sums<Sum> sums;
    units::start(sums, constants_of(1));
    units::multiply_window<T::kAhead>(sums, window, weights_of(p.plan.in_units));
    Out outputs[2];
    Out::template finish<false, true>(outputs, sums, constants_of(1), p.window, outputs, 0);
#pragma unroll
    for (int w = 0; w < 4 * T::kBytes; ++w) {
#pragma unroll
      for (int half = 0; half < 2; ++half) operands[w / 2][w % 2 * 2 + half] = outputs[half].word[w];
    }
  }

  /// After the first position of the range.
  __device__ __forceinline__ units::RowPlaces places_of(int output) const {
    return units::row_places(output * kUnitRows + warp * 16 + lane / 4,
                             p.plan.positions - range.first * kUnitRows, p.plan.out_units * T::kRowBytes);
  }
  __device__ __forceinline__ std::int64_t first_byte() const {
    return static_cast<std::int64_t>(range.first) * kUnitRows * p.plan.out_units * T::kRowBytes;
  }

  __device__ __forceinline__ void read_residual(const units::RowPlaces& places, int unit,
                                                Out (&held)[2]) const {
    const std::byte* residual = p.residual + first_byte() + unit * T::kRowBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int w = 0; w < T::kBytes; ++w) {
        const uint4 four = *reinterpret_cast<const uint4*>(residual + places.to[half] + w * 64);
        std::uint32_t* word = held[half].word + w * 4;
        word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
      }
    }
  }

  /// A unit of the tail's sums.
  __device__ __forceinline__ void multiply_operands(int unit,
                                                    const std::uint32_t (&operands)[T::kProducts][4],
                                                    Sums<Sum>& sums) const {
    units::start(sums, tail_constants(unit));
    const std::uint64_t right = weights_of(p.plan.in_units + kBlockTaps + unit);
    ptx::begin_products();
#pragma unroll
    for (int k = 0; k < T::kProducts; ++k) ptx::multiply_group(sums, operands[k], right + k * 2);
    ptx::end_products();
    ptx::wait_products();
  }
  /// A unit of the projection's. left: x.
  __device__ __forceinline__ void multiply_x(int unit, std::uint64_t left, Sums<Sum>& sums) const {
    units::start(sums, projection_constants(unit));
    const std::uint64_t right = weights_of(p.plan.in_units + kBlockTaps + p.plan.out_units + unit);
    ptx::begin_products();
#pragma unroll
    for (int k = 0; k < T::kProducts; ++k) ptx::multiply_group(sums, left + k * 2, right + k * 2);
    ptx::end_products();
    ptx::wait_products();
  }
  __device__ __forceinline__ std::uint32_t tail_constants(int unit) const {
    return constants_of(2 + unit);
  }
  __device__ __forceinline__ std::uint32_t projection_constants(int unit) const {
    return constants_of(2 + p.plan.out_units + unit);
  }

  /// held: the residual, or where what is added may be put.
  __device__ __forceinline__ void tail(const units::RowPlaces& places,
                                       const std::uint32_t (&operands)[T::kProducts][4],
                                       Out (&held)[kBlockMaxUnits][2], std::uint64_t left) const {
#pragma unroll
    for (int unit = 0; unit < kBlockMaxUnits; ++unit) {
      if (unit >= p.plan.out_units) break;
      Sums<Sum> sums;
      if constexpr (Adds == BlockAdds::projection) {
        multiply_x(unit, left, sums);
        Out::template finish<false, false>(held[unit], sums, projection_constants(unit), p.projection,
                                           held[unit], 0);
      }
      multiply_operands(unit, operands, sums);
      Out outputs[2];
      if constexpr (Adds == BlockAdds::tail) {
        Out::template finish<false, false>(held[unit], sums, tail_constants(unit), p.tail, held[unit], 0);
        multiply_x(unit, left, sums);
        Out::template finish<true, true>(outputs, sums, projection_constants(unit), p.projection, held[unit],
                                         p.residual_scale);
      } else {
        Out::template finish<Adds != BlockAdds::nothing, true>(outputs, sums, tail_constants(unit), p.tail,
                                                               held[unit], p.residual_scale);
      }
      units::write_rows(p.y + first_byte() + unit * T::kRowBytes, places, outputs);
    }
  }

  __device__ __forceinline__ void window_and_tail(int i) const {
    const int output = i - p.plan.lag;
    const units::RowPlaces places = places_of(output);
    Out held[kBlockMaxUnits][2];
    // Before await(): after it, the assembler would move these reads past the window's products.
    if constexpr (Adds == BlockAdds::x) {
#pragma unroll
      for (int unit = 0; unit < kBlockMaxUnits; ++unit)
        read_residual(places, min(unit, p.plan.out_units - 1), held[unit]);
    }
    await(written, output + 2 * p.plan.halo);
    std::uint32_t operands[T::kProducts][4];
    window(output, operands);
    tell(read);
    int entry = 0;
    std::uint64_t left = 0;
    if constexpr (T::kProjects) {
      entry = entries_before(i) + (i >= range.first_head && i < range.end_head ? p.in_chunks : 0);
      left = units::descriptor<kBlockChunkBytes>(await_slot(entry));
    }
    tail(places, operands, held, left);
    if constexpr (T::kProjects) leave_slot(entry);
  }

  __device__ __forceinline__ void run() const {
    ptx::wait_for_previous_kernel();
    ptx::wait_barrier(at.have_weights, 0);
#pragma unroll 1
    for (int i = group; i < range.iterations; i += T::kGroups) {
      if (i >= range.first_head && i < range.end_head) head(i);
      tell(written);
      if (i < p.plan.lag) {
        tell(read);
        continue;
      }
      ptx::wait_barrier(at.have_weights + 8, 0);
      window_and_tail(i);
    }
  }
};

#endif

}  // namespace resident_block

/// Sum: float for halves, std::int32_t for bytes.
template <typename Sum, BlockAdds Adds>
__global__ void __launch_bounds__(resident_block::Traits<Sum, Adds>::kThreads, 1)
    run_resident_block(const __grid_constant__ ResidentBlockArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  using T = resident_block::Traits<Sum, Adds>;
  extern __shared__ std::uint8_t dynamic[];
  __shared__ std::uint64_t barriers[2 + 2 * resident_block::kTurns];
  __shared__ int counters[8 * T::kGroups];
  resident_block::Places at;
  at.weights = (ptx::shared_address(dynamic) + 1023) & ~1023U;
  const int weight_units = p.plan.in_units + kBlockTaps + p.plan.out_units * (T::kProjects ? 2 : 1);
  at.ring = at.weights + weight_units * T::kUnitBytes;
  at.slots = at.ring + p.plan.ring * T::kUnitBytes;
  at.constants = at.slots + (kBlockSlotBytes << p.plan.slots_log2);
  const int constant_bytes = (2 + p.plan.out_units * (T::kProjects ? 2 : 1)) * T::kConstants;
  at.zeros = at.constants + constant_bytes;
  at.have_weights = ptx::shared_address(barriers);
  at.full = at.have_weights + 16;
  at.empty = at.full + resident_block::kTurns * 8;
  const auto thread = static_cast<int>(threadIdx.x);
  const bool copies = thread == T::kGroups * 128;
  const resident_block::Range range = resident_block::range_of(p);
  if (copies) {
    ptx::init_barrier(at.have_weights, 1);
    ptx::init_barrier(at.have_weights + 8, 1);
    for (int t = 0; t < resident_block::kTurns; ++t) {
      ptx::init_barrier(at.full + t * 8, 1);
      ptx::init_barrier(at.empty + t * 8, 4);
    }
    ptx::publish_barriers();
  }
  for (int i = thread * 16; i < constant_bytes; i += T::kThreads * 16)
    store_four(at.constants + i, units::constant<Sum>(p.constants, i));
  if (thread < T::kRowBytes / 16) store_four(at.zeros + thread * 16, uint4{});
  if (thread < 8 * T::kGroups) counters[thread] = 0;
  __syncthreads();
  if (thread >= T::kGroups * 128) {
    ptx::leave_registers<T::kFewRegisters>();
    if (copies) resident_block::copy_all<Sum, Adds>(p, at, range);
  } else {
    ptx::take_registers<T::kRegisters>();
    resident_block::Group<Sum, Adds>{p, at, range, counters, counters + 4 * T::kGroups}.run();
  }
#endif
}

}  // namespace pipit::internal::cuda
