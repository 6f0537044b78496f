// The kernel of a residual block of 128 channels inside, in INT8 (plan.h): of what it computes nothing
// but y passes through memory. Four groups of four warps multiply the same stages of weights, each for a tile of its
// own; two threads have the copy engine bring weights and x.
#pragma once

#include <cstdint>

#include "layers/cuda/conv/chain/unit.cuh"
#include "layers/cuda/conv/streamed_block/plan.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::internal::cuda {

namespace streamed_block {

inline constexpr int kMultiplying = kStreamedGroups * 128;  // threads
inline constexpr int kThreads = kMultiplying + 128;
/// Registers of a thread that multiplies: what those that copy leave of the launch's registers.
inline constexpr int kRegisters = 112, kFewRegisters = 32;
inline constexpr int kProducts = kStreamedInner / 32;              // of a stage's depth
inline constexpr int kUnitBytes = kUnitChannels * kStreamedInner;  // of weights
inline constexpr int kConstants = kUnitChannels * 8;               // bytes of a unit's

#ifdef PIPIT_WARPGROUP_MMA

using units::Outputs;
using Out = Outputs<std::int32_t>;

/// Sums of a tile and 128 outputs, which are two units.
struct Sums {
  std::int32_t all[2 * 8][4];
  __device__ __forceinline__ units::Sums<std::int32_t>& unit(int u) {
    return *reinterpret_cast<units::Sums<std::int32_t>*>(&all[u * 8]);
  }
};

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
__device__ __forceinline__ Range range_of(const StreamedPlan& plan) {
  Range r;
  r.first = static_cast<int>(blockIdx.x) * plan.worker_tiles;
  r.count = min(plan.worker_tiles, plan.tiles - r.first);
  r.heads = r.count + 2 * plan.halo;
  r.iterations = (r.count + kStreamedGroups - 1) / kStreamedGroups + 1;
  return r;
}

/// Weights, of one thread.
__device__ __forceinline__ void bring_weights(const StreamedBlockArgs& p, const Range& range, Weights to) {
#pragma unroll 1
  for (int i = 0; i < range.iterations; ++i) {
    const int stages = i == 0 ? p.plan.in_chunks : p.plan.stages();
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
__device__ __forceinline__ void bring_x(const StreamedBlockArgs& p, const Range& range, X to) {
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
    for (int chunk = 0; chunk < p.plan.in_chunks; ++chunk)
      bring(range.first - p.plan.halo + head, range.heads - head, chunk);
    const int added = AddsX && i > 0 ? p.plan.in_chunks : 0;
    for (int chunk = 0; chunk < added; ++chunk) bring(range.first + output, range.count - output, chunk);
  }
}

/// A group that multiplies. Small: sums begin with kMagicBits.
template <bool AddsX, bool Small>
struct Group {
  const StreamedBlockArgs& p;
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
    for (int chunk = 0; chunk < p.plan.in_chunks; ++chunk) {
      const std::uint64_t left = units::descriptor<kStreamedInner>(x.take() + group * kStreamedTileBytes);
      const std::uint64_t right = units::descriptor<kStreamedInner>(weights.take());
      ptx::begin_products();
#pragma unroll
      for (int k = 0; k < kProducts; ++k) ptx::multiply_group(sums.all, left + k * 2, right + k * 2);
      ptx::end_products();
      ptx::wait_products();
      x.leave(lane);
      weights.leave(lane);
    }
    // What lies in the tile's place was read by windows before the stage of weights that has just come was brought:
    // their last stage was left by every group by then (plan_streamed_block).
    const int slot = (i * kStreamedGroups + group) % kStreamedRing;
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      Out outputs[2];
      Out::template finish<false, true, Small>(outputs, sums.unit(u), constants_of(u), p.head, outputs, 0);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = slot * kUnitRows + warp * 16 + lane / 4 + half * 8;
        const std::uint32_t to = ring + row * kStreamedInner + u * kUnitChannels + lane % 4 * 16;
        const std::uint32_t(&word)[4] = outputs[half].word;
        store_four(units::swizzled<kStreamedInner>(to), make_uint4(word[0], word[1], word[2], word[3]));
      }
    }
  }

  using Window = units::RingWindow<kStreamedInner>;
  using Left = std::uint32_t[kProducts / 2][4];  // half of a tap's
  static __device__ __forceinline__ void load(Left& left, std::uint32_t from, int half) {
#pragma unroll
    for (int k = 0; k < kProducts / 2; ++k)
      ptx::load_matrices(left[k], from ^ (half * (kProducts / 2) + k) * 32);
  }
  static __device__ __forceinline__ void multiply(Sums& sums, const Left& left, std::uint64_t right,
                                                  int half) {
    ptx::begin_products();
#pragma unroll
    for (int k = 0; k < kProducts / 2; ++k)
      ptx::multiply_group(sums.all, left[k], right + (half * (kProducts / 2) + k) * 2);
    ptx::end_products();
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
      multiply(sums, first, right, 0);
      ptx::wait_products<1>();
      if (tap > 0) weights.leave(lane);
      load(second, from, 1);
      multiply(sums, second, right, 1);
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
#pragma unroll
      for (int w = 0; w < 4; ++w) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          operands[u * 2 + w / 2][w % 2 * 2 + half] = outputs[half].word[w];
      }
    }
  }

  __device__ __forceinline__ void read_residual(std::uint32_t tile, int u, Out (&held)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp * 16 + lane / 4 + half * 8;
      const uint4 four = load_four(
          units::swizzled<kStreamedInner>(tile + row * kStreamedInner + u * kUnitChannels + lane % 4 * 16));
      std::uint32_t(&word)[4] = held[half].word;
      word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
    }
  }
  // A unit at a time: there are registers for the operands and one unit's sums and residual.
  __device__ __forceinline__ void tail(int output, const Operands& operands) {
    const int row_bytes = p.plan.out_stages * kStreamedInner;
    const int first = range.first * kUnitRows;  // position of the worker's
    const int rows = min(range.count * kUnitRows, p.grid.positions - first);
    const units::RowPlaces places =
        units::row_places(output * kUnitRows + warp * 16 + lane / 4, rows, row_bytes);
    std::byte* y = p.y + static_cast<std::int64_t>(first) * row_bytes;
#pragma unroll 1
    for (int stage = 0; stage < p.plan.out_stages; ++stage) {
      const std::uint32_t here = weights.take();
      std::uint32_t tile = 0;
      if constexpr (AddsX) tile = x.take() + group * kStreamedTileBytes;
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const std::uint32_t unit_constants = constants_of(4 + stage * 2 + u);
        units::Sums<std::int32_t> sums;
        units::start(sums, unit_constants);
        const std::uint64_t right = units::descriptor<kStreamedInner>(here + u * kUnitBytes);
        ptx::begin_products();
#pragma unroll
        for (int k = 0; k < kProducts; ++k) ptx::multiply_group(sums, operands[k], right + k * 2);
        ptx::end_products();
        Out held[2], outputs[2];
        if constexpr (AddsX) read_residual(tile, u, held);
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
    run_streamed_block(const __grid_constant__ StreamedBlockArgs p) {
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
  const int constant_bytes = p.plan.constant_units() * kConstants;
  const auto thread = static_cast<int>(threadIdx.x);
  const Range range = range_of(p.plan);
  if (thread == kMultiplying) {
    for (int s = 0; s < kStreamedWeights; ++s) {
      ptx::init_barrier(weights.full + s * 8, 1);
      ptx::init_barrier(weights.empty + s * 8, kStreamedGroups * 4);
    }
    for (int s = 0; s < kStreamedX; ++s) {
      ptx::init_barrier(x.full + s * 8, 1);
      ptx::init_barrier(x.empty + s * 8, kStreamedGroups * 4);
    }
    ptx::publish_barriers();
  }
  for (int i = thread * 16; i < constant_bytes; i += kThreads * 16)
    store_four(constants + i, units::constant<std::int32_t, Small>(p.constants, i));
  if (thread < kStreamedInner / 16) store_four(zeros + thread * 16, uint4{});
  __syncthreads();
  ptx::release_next_kernel();
  if (thread >= kMultiplying) {
    ptx::leave_registers<kFewRegisters>();
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
