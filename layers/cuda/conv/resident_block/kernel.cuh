// The kernels of a residual block (plan.h), of which nothing but x and y passes through memory. Groups of four warps
// multiply; threads of their own have the copy engine bring weights and x.
//
// In a bottleneck and in a basic block, a block of threads keeps the weights of all convolutions in shared memory and
// computes a range of tiles; groups take turns at iterations. A bottleneck's head multiplies x from shared memory, in
// chunks of 128 bytes of a position; that of a basic block reads a window of x from a ring of tiles. Heads put what
// they compute into a ring. The window's left operands are read from it, each lane's own pixel, or zeros beyond the
// image's edge. A basic block's window computes y. A bottleneck's is the left operand of the tail as it lies in
// registers.
//
// In a streamed block all groups multiply the same stages of weights, each for a tile of its own.
#pragma once

#include <cstdint>
#include <type_traits>

#include "layers/cuda/conv/chain/unit.cuh"
#include "layers/cuda/conv/resident_block/plan.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::internal::cuda {

namespace resident_block {

using units::Outputs;
using units::Sums;

/// Sum: float for halves, BfloatSum for bfloat16, std::int32_t for bytes.
template <typename Sum, BlockForm Form, BlockAdds Adds>
struct Traits {
  static constexpr bool kBasic = Form == BlockForm::basic;
  static constexpr bool kAddsX = Adds == BlockAdds::x;
  static constexpr bool kProjects = Adds >= BlockAdds::projection;
  static constexpr int kBytes = std::is_same_v<Sum, std::int32_t> ? 1 : 2;  // of an element
  static constexpr int kGroups = block_groups(kBytes);
  static constexpr int kThreads = kGroups * 128 + 128;
  /// Registers of a thread that multiplies; a block has 65536, and threads that copy keep kCopyRegisters.
  static constexpr int kRegisters = kGroups == 3 ? 152 : 112;
  static constexpr int kCopyRegisters = kGroups == 3 ? 40 : 24;
  static constexpr int kRowBytes = kUnitChannels * kBytes;
  static constexpr int kUnitBytes = kUnitRows * kRowBytes;
  static constexpr int kProducts = kRowBytes / 32;                          // of a unit's depth
  static constexpr int kConstants = kUnitChannels * (kBytes == 1 ? 8 : 4);  // bytes of a unit's
  static constexpr int kChunkUnits = kBlockChunkBytes / kRowBytes;
  static constexpr int kSlotBytes = kBasic ? kUnitBytes : kBlockSlotBytes;
  /// Units of outputs whose residual a lane holds.
  static constexpr int kHeld = kBasic ? 1 : kBlockMaxUnits;
  /// Taps of a window whose left operands have registers at once: beside a tail, halves have room for two.
  static constexpr int kAhead = kBasic || kBytes == 1 ? 3 : 2;
};

#ifdef PIPIT_WARPGROUP_MMA

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

  __device__ __forceinline__ bool has_head(int i) const { return i >= first_head && i < end_head; }
};

__device__ __forceinline__ Range range_of(const BlockPlan& plan) {
  const auto worker = static_cast<int>(blockIdx.x);
  Range r;
  r.first = worker * plan.least_tiles + min(worker, plan.more_tiles);
  r.count = plan.least_tiles + (worker < plan.more_tiles ? 1 : 0);
  r.iterations = r.count + plan.lag;
  r.first_head = max(plan.halo - r.first, 0);
  r.end_head = min(r.count + 2 * plan.halo, plan.tiles - r.first + plan.halo);
  return r;
}

// One thread: weights, then x as room for it is made; zeros where there is no such tile.
template <typename T>
__device__ __forceinline__ void copy_all(const ResidentBlockArgs& p, const Places& at, const Range& range) {
  const int head = p.plan.head_units * T::kUnitBytes;
  const int rest = p.plan.weight_units * T::kUnitBytes - head;
  ptx::arrive_expecting(at.have_weights, head);
  ptx::copy_bytes(at.weights, p.weights, head, at.have_weights);
  ptx::arrive_expecting(at.have_weights + 8, rest);
  ptx::copy_bytes(at.weights + head, p.weights + head, rest, at.have_weights + 8);
  ptx::wait_for_previous_kernel();
  ptx::release_next_kernel();
  int entry = 0, slot = 0;
  const auto bring = [&](int chunk, int tile) {
    const int before = entry - p.plan.slots;
    if (before >= 0) {
      ptx::wait_barrier(at.empty + before % kBlockTurns * 8, before / kBlockTurns % 2);
      if constexpr (T::kBasic) ptx::let_copies_overwrite();
    }
    const std::uint32_t full = at.full + entry % kBlockTurns * 8;
    ptx::arrive_expecting(full, T::kSlotBytes);
    ptx::copy_box(at.slots + slot * T::kSlotBytes, p.x, full, chunk * kBlockChunkBytes, tile * kUnitRows);
    ++entry;
    if (++slot == p.plan.slots) slot = 0;
  };
#pragma unroll 1
  for (int i = 0; i < range.iterations + (T::kBasic ? p.plan.lag : 0); ++i) {
    const int output = range.first - p.plan.lag + i;
    if constexpr (T::kBasic) {
      bring(0, output);
    } else {
      if (range.has_head(i)) {
        for (int chunk = 0; chunk < p.plan.in_chunks; ++chunk) bring(chunk, range.first - p.plan.halo + i);
      }
      if (T::kProjects && i >= p.plan.lag) bring(0, output);
    }
  }
}

/// A group that multiplies.
template <typename Sum, BlockForm Form, BlockAdds Adds>
struct Group {
  using T = Traits<Sum, Form, Adds>;
  using Out = Outputs<Sum>;
  using Window = units::RingWindow<T::kRowBytes>;
  using Operands = std::uint32_t[T::kProducts][4];
  using Held = Out[T::kHeld][2];
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
  __device__ __forceinline__ void await_copy(int entry) const {
    ptx::wait_barrier(at.full + entry % kBlockTurns * 8, entry / kBlockTurns % 2);
  }
  __device__ __forceinline__ void leave_copy(int entry) const {
    __syncwarp();
    if (lane == 0) ptx::arrive(at.empty + entry % kBlockTurns * 8);
  }
  __device__ __forceinline__ std::uint32_t constants_of(int unit) const {
    return at.constants + unit * T::kConstants + lane % 4 * 16;
  }
  __device__ __forceinline__ std::uint64_t weights_of(int unit) const {
    return units::descriptor<T::kRowBytes>(at.weights + unit * T::kUnitBytes);
  }
  /// Of a tile, as heads are counted.
  __device__ __forceinline__ int ring_slot(int tile) const {
    return tile - p.ring.divide(tile) * p.plan.ring;
  }

  /// The window of a tile that lies in a slot of a ring.
  __device__ __forceinline__ Window window_of(int tile, std::uint32_t ring, int slots, int slot) const {
    const int row = warp * 16 + lane % 16;
    return Window(p.grid, (range.first + tile) * kUnitRows + row, slot * kUnitRows + row, ring,
                  slots * kUnitRows, at.zeros, lane);
  }
  /// All of it in one branch: sums that begin before it make the assembler serialize the products.
  __device__ __forceinline__ void convolve(Sums<Sum>& sums, const Window& window, int constants,
                                           int weights) const {
    units::start(sums, constants_of(constants));
    units::multiply_window<T::kAhead>(sums, window, weights_of(weights));
  }

  // A bottleneck's copies of x.

  /// How many there were before iteration i.
  __device__ __forceinline__ int entries_before(int i) const {
    const int heads = max(min(i, range.end_head) - range.first_head, 0) * p.plan.in_chunks;
    return heads + (T::kProjects ? max(i - p.plan.lag, 0) : 0);
  }
  __device__ __forceinline__ std::uint64_t chunk(int entry) const {
    await_copy(entry);
    return units::descriptor<kBlockChunkBytes>(at.slots + (entry & (p.plan.slots - 1)) * kBlockSlotBytes);
  }
  __device__ __forceinline__ void multiply_chunks(Sums<Sum>& sums, int entry) const {
    units::start(sums, constants_of(0));
#pragma unroll 1
    for (int c = 0; c < p.plan.in_chunks; ++c) {
      const std::uint64_t left = chunk(entry + c);
      ptx::begin_products();
#pragma unroll
      for (int u = 0; u < T::kChunkUnits; ++u) {
        const std::uint64_t right = weights_of(c * T::kChunkUnits + u);
#pragma unroll
        for (int k = 0; k < T::kProducts; ++k)
          ptx::multiply_group(sums, left + (u * T::kProducts + k) * 2, right + k * 2);
      }
      ptx::end_products();
      ptx::wait_products();
      leave_copy(entry + c);
    }
  }

  /// The window of x of a basic block's head. held: x i, if there is a tail.
  __device__ __forceinline__ void convolve_x(Sums<Sum>& sums, int i, Held& held) const {
    const auto slot = [&](int j) { return j - p.slots.divide(j) * p.plan.slots; };
    // Where pixels lie is known before they are there.
    const Window window = window_of(i - p.plan.halo, at.slots, p.plan.slots, slot(i + p.plan.halo));
    for (int j = i; j <= i + p.plan.lag; ++j) await_copy(j);
    if (range.has_head(i)) convolve(sums, window, 0, 0);
    if (T::kAddsX && i >= p.plan.lag) units::get_rows<T::kRowBytes>(at.slots, slot(i), warp, lane, held[0]);
    leave_copy(i);
  }

  /// If its tile exists.
  __device__ __forceinline__ void head(int i, Held& held) const {
    Sums<Sum> sums;
    if constexpr (T::kBasic) convolve_x(sums, i, held);
    if (!range.has_head(i)) return;
    if constexpr (!T::kBasic) multiply_chunks(sums, entries_before(i));
    Out outputs[2];
    Out::template finish<false, true>(outputs, sums, constants_of(0), p.head, outputs, 0);
    await(read, i - p.plan.ring + p.plan.lag);
    units::put_rows<T::kRowBytes>(at.ring, ring_slot(i), warp, lane, outputs);
  }

  // A range's rows of y, and of x if it is added.

  __device__ __forceinline__ int row_bytes() const {
    return (T::kBasic ? 1 : p.plan.out_units) * T::kRowBytes;
  }
  __device__ __forceinline__ std::int64_t first_byte() const {
    return static_cast<std::int64_t>(range.first) * kUnitRows * row_bytes();
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

  /// A unit of a bottleneck's tail: sums of left, and of weights and constants `unit` after those of head and window.
  template <typename Left>
  __device__ __forceinline__ void multiply(Sums<Sum>& sums, const Left& left, int unit) const {
    units::start(sums, constants_of(2 + unit));
    units::begin_multiply<T::kProducts>(sums, left, weights_of(p.plan.in_units + kBlockTaps + unit));
    ptx::wait_products();
  }
  /// held: the residual, or where what is added may be put. x: what is projected.
  __device__ __forceinline__ void tail(const units::RowPlaces& places, const Operands& operands, Held& held,
                                       std::uint64_t x) const {
#pragma unroll
    for (int unit = 0; unit < kBlockMaxUnits; ++unit) {
      if (unit >= p.plan.out_units) break;
      const int projection = p.plan.out_units + unit;
      Sums<Sum> sums;
      if constexpr (Adds == BlockAdds::projection) {
        multiply(sums, x, projection);
        Out::template finish<false, false>(held[unit], sums, constants_of(2 + projection), p.projection,
                                           held[unit], 0);
      }
      multiply(sums, operands, unit);
      Out outputs[2];
      if constexpr (Adds == BlockAdds::tail) {
        Out::template finish<false, false>(held[unit], sums, constants_of(2 + unit), p.tail, held[unit], 0);
        multiply(sums, x, projection);
        Out::template finish<true, true>(outputs, sums, constants_of(2 + projection), p.projection,
                                         held[unit], p.residual_scale);
      } else {
        Out::template finish<Adds != BlockAdds::nothing, true>(outputs, sums, constants_of(2 + unit), p.tail,
                                                               held[unit], p.residual_scale);
      }
      units::write_rows(p.y + first_byte() + unit * T::kRowBytes, places, outputs);
    }
  }

  __device__ __forceinline__ void window_and_tail(int i, Held& held) const {
    const int output = i - p.plan.lag;
    const units::RowPlaces places = units::row_places(
        output * kUnitRows + warp * 16 + lane / 4, p.plan.positions - range.first * kUnitRows, row_bytes());
    // Before await(): after it, the assembler would move these reads past the window's products.
    if constexpr (T::kAddsX && !T::kBasic) {
#pragma unroll
      for (int unit = 0; unit < kBlockMaxUnits; ++unit)
        read_residual(places, min(unit, p.plan.out_units - 1), held[unit]);
    }
    const Window window = window_of(output, at.ring, p.plan.ring, ring_slot(output + p.plan.halo));
    ptx::wait_barrier(at.have_weights + 8, 0);
    await(written, output + 2 * p.plan.halo);
    Sums<Sum> sums;
    convolve(sums, window, 1, p.plan.head_units);
    Out outputs[2];
    if constexpr (T::kBasic) {
      tell(read);
      Out::template finish<T::kAddsX, true>(outputs, sums, constants_of(1), p.tail, held[0],
                                            p.residual_scale);
      units::write_rows(p.y + first_byte(), places, outputs);
    } else {
      Out::template finish<false, true>(outputs, sums, constants_of(1), p.window, outputs, 0);
      Operands operands;
      units::put_operands(outputs, operands);
      tell(read);
      int entry = 0;
      std::uint64_t x = 0;
      if constexpr (T::kProjects) {
        entry = entries_before(i) + (range.has_head(i) ? p.plan.in_chunks : 0);
        x = chunk(entry);
      }
      tail(places, operands, held, x);
      if constexpr (T::kProjects) leave_copy(entry);
    }
  }

  __device__ __forceinline__ void run() const {
    ptx::wait_for_previous_kernel();
    ptx::wait_barrier(at.have_weights, 0);
#pragma unroll 1
    for (int i = group; i < range.iterations; i += T::kGroups) {
      Held held;
      head(i, held);
      tell(written);
      if (i < p.plan.lag) {
        tell(read);
        continue;
      }
      window_and_tail(i, held);
    }
  }
};

#endif

}  // namespace resident_block

template <typename Sum, BlockForm Form, BlockAdds Adds>
__global__ void __launch_bounds__(resident_block::Traits<Sum, Form, Adds>::kThreads, 1)
    run_resident_block(const __grid_constant__ ResidentBlockArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  using T = resident_block::Traits<Sum, Form, Adds>;
  extern __shared__ std::uint8_t dynamic[];
  __shared__ std::uint64_t barriers[2 + 2 * kBlockTurns];
  __shared__ int counters[8 * T::kGroups];
  resident_block::Places at;
  at.weights = (ptx::shared_address(dynamic) + 1023) & ~1023U;
  at.ring = at.weights + p.plan.weight_units * T::kUnitBytes;
  at.slots = at.ring + p.plan.ring * T::kUnitBytes;
  at.constants = at.slots + p.plan.slots * T::kSlotBytes;
  const int constant_bytes = p.plan.constant_units * T::kConstants;
  at.zeros = at.constants + constant_bytes;
  at.have_weights = ptx::shared_address(barriers);
  at.full = at.have_weights + 16;
  at.empty = at.full + kBlockTurns * 8;
  const auto thread = static_cast<int>(threadIdx.x);
  const bool copies = thread == T::kGroups * 128;
  const resident_block::Range range = resident_block::range_of(p.plan);
  if (copies) {
    ptx::init_barrier(at.have_weights, 1);
    ptx::init_barrier(at.have_weights + 8, 1);
    units::init_turns(at.full, at.empty, kBlockTurns, 4);
    ptx::publish_barriers();
  }
  units::put_constants<T::kThreads, Sum>(at.constants, p.constants, constant_bytes);
  if (thread < T::kRowBytes / 16) store_four(at.zeros + thread * 16, uint4{});
  if (thread < 8 * T::kGroups) counters[thread] = 0;
  __syncthreads();
  if (thread >= T::kGroups * 128) {
    ptx::leave_registers<T::kCopyRegisters>();
    if (copies) resident_block::copy_all<T>(p, at, range);
  } else {
    ptx::take_registers<T::kRegisters>();
    resident_block::Group<Sum, Form, Adds>{p, at, range, counters, counters + 4 * T::kGroups}.run();
  }
#endif
}

namespace streamed_block {

inline constexpr int kMultiplying = kStreamedGroups * 128;  // threads
inline constexpr int kThreads = kMultiplying + 128;
/// Registers of a thread that multiplies: what those that copy leave of the launch's registers.
inline constexpr int kRegisters = 112, kCopyRegisters = 32;
inline constexpr int kProducts = kStreamedInner / 32;              // of a stage's depth
inline constexpr int kUnitBytes = kUnitChannels * kStreamedInner;  // of weights
inline constexpr int kConstants = kUnitChannels * 8;               // bytes of a unit's

#ifdef PIPIT_WARPGROUP_MMA

using Out = units::Outputs<std::int32_t>;
using Sums = units::TwoUnits<std::int32_t>;

/// Stages of shared memory that copies fill and groups empty in turns, as one of these sees them.
template <int Count, int Bytes>
struct Stages {
  std::uint32_t base, full, empty;  // addresses; of barriers, one a stage
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ __forceinline__ std::uint32_t address() const { return base + stage * Bytes; }
  __device__ __forceinline__ std::uint32_t is_full() const { return full + stage * 8; }
  __device__ __forceinline__ std::uint32_t is_empty() const { return empty + stage * 8; }
  __device__ __forceinline__ void advance() {
    if (++stage == Count) stage = 0, parity ^= 1;
  }
  /// Waits for what the copies bring next.
  __device__ __forceinline__ std::uint32_t take() const {
    ptx::wait_barrier(is_full(), parity);
    return address();
  }
  /// By a warp whose lanes have all read what they need of the stage taken before.
  __device__ __forceinline__ void leave(int lane) {
    __syncwarp();
    if (lane == 0) ptx::arrive(is_empty());
    advance();
  }
  /// Waits until all threads have left the stage that is filled next.
  __device__ __forceinline__ void await_room() const { ptx::wait_barrier(is_empty(), parity ^ 1); }
};
using Weights = Stages<kStreamedWeights, kStreamedWeightBytes>;
using X = Stages<kStreamedX, kStreamedXBytes>;

struct Range {
  int first, count;  // tiles whose outputs the worker computes
  int heads;         // tiles whose heads these need
  int iterations;
};
__device__ __forceinline__ Range range_of(const BlockPlan& plan) {
  Range r;
  r.first = static_cast<int>(blockIdx.x) * plan.least_tiles;
  r.count = min(plan.least_tiles, plan.tiles - r.first);
  r.heads = r.count + 2 * plan.halo;
  r.iterations = (r.count + kStreamedGroups - 1) / kStreamedGroups + 1;
  return r;
}

/// Weights, of one thread.
__device__ __forceinline__ void bring_weights(const ResidentBlockArgs& p, const Range& range, Weights to) {
#pragma unroll 1
  for (int i = 0; i < range.iterations; ++i) {
    const int stages = i == 0 ? p.plan.in_units : p.plan.weight_units;
#pragma unroll 1
    for (int s = 0; s < stages; ++s) {
      to.await_room();
      ptx::arrive_expecting(to.is_full(), kStreamedWeightBytes);
      ptx::copy_bytes(to.address(), p.weights + s * kStreamedWeightBytes, kStreamedWeightBytes, to.is_full());
      to.advance();
    }
  }
}

/// x, for the heads and again where it is added, of one thread. Tiles that are not needed stay as they are.
template <bool AddsX>
__device__ __forceinline__ void bring_x(const ResidentBlockArgs& p, const Range& range, X to) {
  const auto bring = [&](int tile, int tiles, int chunk) {
    const int count = min(tiles, kStreamedGroups);
    to.await_room();
    ptx::let_copies_overwrite();
    ptx::arrive_expecting(to.is_full(), max(count, 0) * kStreamedTileBytes);
    for (int t = 0; t < count; ++t) {
      ptx::copy_box(to.address() + t * kStreamedTileBytes, p.x, to.is_full(), chunk * kStreamedInner,
                    (tile + t) * kUnitRows);
    }
    to.advance();
  };
#pragma unroll 1
  for (int i = 0; i < range.iterations; ++i) {
    const int head = i * kStreamedGroups, output = head - kStreamedGroups;
    for (int chunk = 0; chunk < p.plan.in_units; ++chunk)
      bring(range.first - p.plan.halo + head, range.heads - head, chunk);
    const int added = AddsX && i > 0 ? p.plan.in_units : 0;
    for (int chunk = 0; chunk < added; ++chunk) bring(range.first + output, range.count - output, chunk);
  }
}

/// A group that multiplies. Small: sums begin with kMagicBits.
template <bool AddsX, bool Small>
struct Group {
  const ResidentBlockArgs& p;
  const Range& range;
  Weights weights;
  X x;
  std::uint32_t ring, constants, zeros;
  int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  /// From one lane: the compiler serializes products in what it takes for divergent.
  int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 128, 0);

  __device__ __forceinline__ std::uint32_t constants_of(int unit) const {
    return constants + unit * kConstants + lane % 4 * 16;
  }
  __device__ __forceinline__ void start(Sums& sums, int unit) const {
    units::start(sums.unit(0), constants_of(unit));
    units::start(sums.unit(1), constants_of(unit + 1));
  }

  __device__ __forceinline__ void head(int i) {
    Sums sums;
    start(sums, 0);
#pragma unroll 1
    for (int chunk = 0; chunk < p.plan.in_units; ++chunk) {
      const std::uint64_t left = units::descriptor<kStreamedInner>(x.take() + group * kStreamedTileBytes);
      const std::uint64_t right = units::descriptor<kStreamedInner>(weights.take());
      units::begin_multiply<kProducts>(sums.all, left, right);
      ptx::wait_products();
      x.leave(lane);
      weights.leave(lane);
    }
    // What lies in the tile's place was read by windows before the stage of weights that has just come was brought:
    // their last stage was left by every group by then (plan_streamed).
    const int slot = (i * kStreamedGroups + group) % kStreamedRing;
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      Out outputs[2];
      Out::template finish<false, true, Small>(outputs, sums.unit(u), constants_of(u), p.head, outputs, 0);
      units::put_rows<kStreamedInner>(ring + u * kUnitChannels, slot, warp, lane, outputs);
    }
  }

  using Window = units::RingWindow<kStreamedInner>;
  using Left = std::uint32_t[kProducts / 2][4];  // half of a tap's
  static __device__ __forceinline__ void load(Left& left, std::uint32_t from, int half) {
#pragma unroll
    for (int k = 0; k < kProducts / 2; ++k)
      ptx::load_matrices(left[k], from ^ (half * (kProducts / 2) + k) * 32);
  }
  using Operands = std::uint32_t[kProducts][4];
  /// output: the tile, of the worker's.
  __device__ __forceinline__ void window(int output, Operands& operands) {
    const int row = warp * 16 + lane % 16;
    const Window window(p.grid, (range.first + output) * kUnitRows + row,
                        (output + p.plan.halo) % kStreamedRing * kUnitRows + row, ring,
                        kStreamedRing * kUnitRows, zeros, lane);
    Sums sums;
    start(sums, 2);
    Left first, second;
    std::uint32_t from = window.tap(0);
    load(first, from, 0);
#pragma unroll
    for (int tap = 0; tap < kBlockTaps; ++tap) {
      // The stage of the previous tap is left when its second half is done; its place in turns comes first.
      Weights now = weights;
      if (tap > 0) now.advance();
      const std::uint64_t right = units::descriptor<kStreamedInner>(now.take());
      units::begin_multiply(sums.all, first, right);
      ptx::wait_products<1>();
      if (tap > 0) weights.leave(lane);
      load(second, from, 1);
      units::begin_multiply(sums.all, second, right + kProducts);
      ptx::wait_products<1>();
      if (tap + 1 < kBlockTaps) {
        from = window.tap(tap + 1);
        load(first, from, 0);
      }
    }
    ptx::wait_products();
    weights.leave(lane);
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      Out outputs[2];
      Out::template finish<false, true, Small>(outputs, sums.unit(u), constants_of(2 + u), p.window, outputs,
                                               0);
      units::put_operands(outputs, operands + u * 2);
    }
  }

  // A unit at a time: there are registers for the operands and one unit's sums and residual.
  __device__ __forceinline__ void tail(int output, const Operands& operands) {
    const int row_bytes = p.plan.out_units * kStreamedInner;
    const int first = range.first * kUnitRows;  // position of the worker's
    const int rows = min(range.count * kUnitRows, p.grid.positions - first);
    const units::RowPlaces places =
        units::row_places(output * kUnitRows + warp * 16 + lane / 4, rows, row_bytes);
    std::byte* y = p.y + static_cast<std::int64_t>(first) * row_bytes;
#pragma unroll 1
    for (int stage = 0; stage < p.plan.out_units; ++stage) {
      const std::uint32_t here = weights.take();
      std::uint32_t tile = 0;
      if constexpr (AddsX) tile = x.take() + group * kStreamedTileBytes;
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const std::uint32_t unit_constants = constants_of(4 + stage * 2 + u);
        units::Sums<std::int32_t> sums;
        units::start(sums, unit_constants);
        const std::uint64_t right = units::descriptor<kStreamedInner>(here + u * kUnitBytes);
        units::begin_multiply(sums, operands, right);
        Out held[2], outputs[2];
        if constexpr (AddsX) units::get_rows<kStreamedInner>(tile + u * kUnitChannels, 0, warp, lane, held);
        ptx::wait_products();
        if (u == 1) weights.leave(lane);
        Out::template finish<AddsX, true, Small>(outputs, sums, unit_constants, p.tail, held,
                                                 p.residual_scale);
        units::write_rows(y, places, outputs);
        y += kUnitChannels;
      }
      if constexpr (AddsX) x.leave(lane);
    }
  }

  __device__ __forceinline__ void run() {
    ptx::wait_for_previous_kernel();
#pragma unroll 1
    for (int i = 0; i < range.iterations; ++i) {
      head(i);
      // All heads are in the ring.
      asm volatile("bar.sync 1, %0;\n" ::"n"(kMultiplying) : "memory");
      if (i == 0) continue;
      const int output = (i - 1) * kStreamedGroups + group;
      Operands operands;
      window(output, operands);
      tail(output, operands);
    }
  }
};

#endif

}  // namespace streamed_block

template <bool AddsX, bool Small>
__global__ void __launch_bounds__(streamed_block::kThreads, 1)
    run_streamed_block(const __grid_constant__ ResidentBlockArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  using namespace streamed_block;
  extern __shared__ std::uint8_t dynamic[];
  __shared__ std::uint64_t barriers[2 * (kStreamedWeights + kStreamedX)];
  const std::uint32_t base = (ptx::shared_address(dynamic) + 1023) & ~1023U;
  const std::uint32_t full = ptx::shared_address(barriers);
  Weights weights{base, full, full + kStreamedWeights * 8};
  X x{weights.base + kStreamedWeights * kStreamedWeightBytes, full + kStreamedWeights * 16,
      full + kStreamedWeights * 16 + kStreamedX * 8};
  const std::uint32_t ring = x.base + kStreamedX * kStreamedXBytes;
  const std::uint32_t zeros = ring + kStreamedRing * kStreamedTileBytes;
  const std::uint32_t constants = zeros + kStreamedInner;
  const int constant_bytes = p.plan.constant_units * kConstants;
  const auto thread = static_cast<int>(threadIdx.x);
  const Range range = range_of(p.plan);
  if (thread == kMultiplying) {
    units::init_turns(weights.full, weights.empty, kStreamedWeights, kStreamedGroups * 4);
    units::init_turns(x.full, x.empty, kStreamedX, kStreamedGroups * 4);
    ptx::publish_barriers();
  }
  units::put_constants<kThreads, std::int32_t, Small>(constants, p.constants, constant_bytes);
  if (thread < kStreamedInner / 16) store_four(zeros + thread * 16, uint4{});
  __syncthreads();
  ptx::release_next_kernel();
  if (thread >= kMultiplying) {
    ptx::leave_registers<kCopyRegisters>();
    if (thread == kMultiplying) bring_weights(p, range, weights);
    if (thread == kMultiplying + 32) {
      ptx::wait_for_previous_kernel();
      bring_x<AddsX>(p, range, x);
    }
  } else {
    ptx::take_registers<kRegisters>();
    Group<AddsX, Small>{p, range, weights, x, ring, constants, zeros}.run();
  }
#endif
}

}  // namespace pipit::internal::cuda
