// The kernel of two 1x1 convolutions whose results are added (plan.h): neither is in memory. A thread has
// the copy engine bring what is multiplied, each group of four warps computes a tile of its own.
#pragma once

#include <cstdint>
#include <type_traits>

#include "layers/cuda/conv/chain/unit.cuh"
#include "layers/cuda/conv/projected_sum/plan.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::internal::cuda {

namespace projected_sum {

inline constexpr int kMultiplying = kSumGroups * 128;  // threads
inline constexpr int kThreads = kMultiplying + 128;
/// Registers of a thread that multiplies: what those that copy leave of the launch's registers.
inline constexpr int kRegisters = 112, kCopyRegisters = 24;
/// Barriers of chunks that take turns, for those that arrive and for those that have been multiplied. Groups wait for
/// chunks in any order: one waits for its own while those of a tile for each other group are still to come.
inline constexpr int kTurns = 32;
static_assert((kSumGroups + 1) * kSumMaxChunks <= kTurns);
inline constexpr int kProducts = kBlockChunkBytes / 32;  // of a chunk's depth
inline constexpr int kUnitBytes = kUnitChannels * kBlockChunkBytes;

#ifdef PIPIT_WARPGROUP_MMA

/// Addresses in shared memory.
struct Places {
  std::uint32_t weights, slots, constants;
  std::uint32_t have_weights, full, empty;  // barriers; of every turn
};

struct Range {
  int first, count;  // tiles
  int slice;
};
__device__ __forceinline__ Range range_of(const ProjectedSumArgs& p) {
  const auto block = static_cast<int>(blockIdx.x);
  const int worker = block / p.plan.slices;
  Range r;
  r.slice = block - worker * p.plan.slices;
  r.first = worker * p.least_tiles + min(worker, p.more_tiles);
  r.count = p.least_tiles + (worker < p.more_tiles ? 1 : 0);
  return r;
}

/// One thread: weights, then chunks as room for them is made.
__device__ __forceinline__ void copy_all(const ProjectedSumArgs& p, const Places& at, const Range& range) {
  const int bytes = p.plan.weight_bytes();
  ptx::arrive_expecting(at.have_weights, bytes);
  ptx::copy_bytes(at.weights, p.weights + static_cast<std::int64_t>(range.slice) * bytes, bytes,
                  at.have_weights);
  ptx::wait_for_previous_kernel();
  int chunk = 0, slot = 0;
#pragma unroll 1
  for (int tile = range.first; tile < range.first + range.count; ++tile) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const SumSource& source = p.sources[s];
      const PixelOrigin origin =
          source.plain ? PixelOrigin{}
                       : pixel_origin(source.shape, source.positions, source.out_width, tile * kUnitRows);
#pragma unroll 1
      for (int c = 0; c < p.plan.chunks[s]; ++c) {
        const int before = chunk - p.plan.slots;
        if (before >= 0) ptx::wait_barrier(at.empty + before % kTurns * 8, before / kTurns % 2);
        const std::uint32_t full = at.full + chunk % kTurns * 8;
        const std::uint32_t to = at.slots + slot * kBlockSlotBytes;
        ptx::arrive_expecting(full, kBlockSlotBytes);
        if (source.plain) {
          ptx::copy_box(to, source.map, full, c * kBlockChunkBytes, tile * kUnitRows);
        } else {
          ptx::copy_pixels(to, source.map, full, c * kBlockChunkBytes, origin.w, origin.h, origin.image, 0,
                           0);
        }
        ++chunk;
        if (++slot == p.plan.slots) slot = 0;
      }
    }
  }
}

/// A group that multiplies. Small: INT8 sums begin with kMagicBits.
template <typename Sum, bool Small>
struct Group {
  static constexpr bool kInt8 = std::is_same_v<Sum, std::int32_t>;
  static constexpr int kBytes = kInt8 ? 1 : 2;
  static constexpr int kConstants = kUnitChannels * (kInt8 ? 8 : 4);  // bytes of a unit's
  using Out = units::Outputs<Sum>;
  using Sums = units::TwoUnits<Sum>;
  const ProjectedSumArgs& p;
  const Places& at;
  const Range& range;
  int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  /// From one lane: the compiler serializes products in what it takes for divergent.
  int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 128, 0);

  __device__ __forceinline__ std::uint32_t constants_of(int unit) const {
    return at.constants + unit * kConstants + lane % 4 * 16;
  }

  /// Adds the products of the chunks [begin, end) of the tile that begins with chunk `first`, and a stage of outputs.
  __device__ __forceinline__ void multiply(Sums& sums, int first, int begin, int end, int stage,
                                           int constants) const {
    units::start<true>(sums.unit(0), constants_of(constants));
    units::start<true>(sums.unit(1), constants_of(constants + 1));
#pragma unroll 1
    for (int c = begin; c < end; ++c) {
      const int chunk = first + c;
      if (stage == 0) ptx::wait_barrier(at.full + chunk % kTurns * 8, chunk / kTurns % 2);
      const std::uint64_t left =
          units::descriptor<kBlockChunkBytes>(at.slots + chunk % p.plan.slots * kBlockSlotBytes);
      const std::uint64_t right = units::descriptor<kBlockChunkBytes>(
          at.weights + (stage * p.plan.tile_chunks() + c) * kSumStageBytes);
      units::begin_multiply<kProducts>(sums.all, left, right);
    }
    ptx::wait_products();
    if (stage + 1 < p.plan.stages) return;
    __syncwarp();
    for (int c = begin + lane; c < end; c += 32) ptx::arrive(at.empty + (first + c) % kTurns * 8);
  }

  __device__ __forceinline__ void write(int tile, int stage, int unit, const Out (&outputs)[2]) const {
    const int channel = ((range.slice * p.plan.stages + stage) * 2 + unit) * kUnitChannels;
    const std::int64_t channels = std::int64_t{p.plan.slices} * p.plan.stages * kSumStageOutputs;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = tile * kUnitRows + warp * 16 + lane / 4 + half * 8;
      if (position >= p.plan.positions) continue;
      auto* to = reinterpret_cast<uint4*>(p.y + (position * channels + channel) * kBytes + lane % 4 * 16);
      const std::uint32_t(&word)[4 * kBytes] = outputs[half].word;
#pragma unroll
      for (int w = 0; w < kBytes; ++w)
        to[w * 4] = make_uint4(word[w * 4], word[w * 4 + 1], word[w * 4 + 2], word[w * 4 + 3]);
    }
  }

  __device__ __forceinline__ void run() const {
    ptx::wait_for_previous_kernel();
    ptx::wait_barrier(at.have_weights, 0);
    const int chunks = p.plan.tile_chunks();
#pragma unroll 1
    for (int t = group; t < range.count; t += kSumGroups) {
#pragma unroll 1
      for (int stage = 0; stage < p.plan.stages; ++stage) {
        Sums sums;
        Out held[2][2];
        if constexpr (kInt8) {
          const int constants = stage * 2;
          multiply(sums, t * chunks, 0, p.plan.chunks[0], stage, constants);
#pragma unroll
          for (int u = 0; u < 2; ++u) {
            Out::template finish<false, false, Small>(held[u], sums.unit(u), constants_of(constants + u),
                                                      p.added, held[u], 0);
          }
          multiply(sums, t * chunks, p.plan.chunks[0], chunks, stage, p.plan.stages * 2 + stage * 2);
        } else {
          multiply(sums, t * chunks, 0, chunks, stage, stage * 2);
        }
#pragma unroll
        for (int u = 0; u < 2; ++u) {
          Out outputs[2];
          if constexpr (kInt8) {
            Out::template finish<true, true, Small>(outputs, sums.unit(u),
                                                    constants_of(p.plan.stages * 2 + stage * 2 + u), p.bounds,
                                                    held[u], p.added_scale);
          } else {
            Out::template finish<false, true>(outputs, sums.unit(u), 0, p.bounds, outputs, 0);
          }
          write(range.first + t, stage, u, outputs);
        }
      }
    }
  }
};

#endif

}  // namespace projected_sum

/// Sum: float for halves, BfloatSum for bfloat16, std::int32_t for bytes.
template <typename Sum, bool Small>
__global__ void __launch_bounds__(projected_sum::kThreads, 1)
    run_projected_sum(const __grid_constant__ ProjectedSumArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  using namespace projected_sum;
  extern __shared__ std::uint8_t dynamic[];
  __shared__ std::uint64_t barriers[1 + 2 * kTurns];
  Places at;
  at.weights = (ptx::shared_address(dynamic) + 1023) & ~1023U;
  at.slots = at.weights + p.plan.weight_bytes();
  at.constants = at.slots + p.plan.slots * kBlockSlotBytes;
  at.have_weights = ptx::shared_address(barriers);
  at.full = at.have_weights + 8;
  at.empty = at.full + kTurns * 8;
  const auto thread = static_cast<int>(threadIdx.x);
  const Range range = range_of(p);
  if (thread == kMultiplying) {
    ptx::init_barrier(at.have_weights, 1);
    units::init_turns(at.full, at.empty, kTurns, 4);
    ptx::publish_barriers();
  }
  const int constant_bytes = p.plan.constant_bytes();
  units::put_constants<kThreads, Sum, Small>(
      at.constants, p.constants + std::int64_t{range.slice} * constant_bytes, constant_bytes);
  __syncthreads();
  ptx::release_next_kernel();
  if (thread >= kMultiplying) {
    ptx::leave_registers<kCopyRegisters>();
    if (thread == kMultiplying) copy_all(p, at, range);
  } else {
    ptx::take_registers<kRegisters>();
    Group<Sum, Small>{p, at, range}.run();
  }
#endif
}

}  // namespace pipit::internal::cuda
