// What the kernel of "image_chain" has beside its products: where values lie in shared memory, which rows are a rank's,
// and who brings weights and constants.
#pragma once

#include <cstdint>

#include "layers/cuda/chain/image_chain_launch.h"
#include "layers/cuda/device/cluster_ptx.cuh"
#include "layers/cuda/device/tensor_copy.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::cuda::image_chain {

inline constexpr int kConvolutions = 3;  // of a residual block

#ifdef PIPIT_WARPGROUP_MMA

/// What lies where in shared memory: addresses, the same in every rank.
struct Places {
  std::uint32_t x, weights, inner, zeros, constants;
  /// Barriers: of every stage of weights, that it is full, empty, and empty in all ranks; x has come; neighbours' rows
  /// have come; the constants of each of a block's convolutions have.
  std::uint32_t full, empty, all_empty, x_here, rows_here, constants_here;

  __device__ __forceinline__ Places(const ImageChainPlan& plan, std::uint32_t dynamic,
                                    std::uint32_t barriers) {
    x = (dynamic + 1023) & ~1023U;
    weights = x + (plan.x_bytes() + 1023) / 1024 * 1024;
    inner = weights + plan.ring * kImageStageBytes;
    zeros = inner + plan.inner_rows() * kImageInner;
    constants = zeros + kImageInner;
    full = barriers, empty = full + kImageMostRing * 8, all_empty = empty + kImageMostRing * 8;
    x_here = all_empty + kImageMostRing * 8, rows_here = x_here + 8, constants_here = rows_here + 8;
  }
};
inline constexpr int kBarriers = 3 * kImageMostRing + 2 + kConvolutions;

/// The rows of an image that are a rank's.
struct Part {
  int rank, first_row, positions;
  bool above, below;  // there are rows of another rank

  __device__ __forceinline__ explicit Part(const ImageChainPlan& plan)
      : rank(static_cast<int>(ptx::cluster_rank())),
        first_row(rank * plan.rows),
        positions(min(plan.rows, plan.height - first_row) * plan.width),
        above(rank > 0),
        below(rank + 1 < plan.ranks) {}
};

/// Stages of weights as the groups of a half see them, every second one.
struct Weights {
  std::uint32_t base, full, empty;
  int ring;
  int stage;
  std::uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    stage += kImageHalves;
    if (stage >= ring) stage -= ring, parity ^= 1;
  }
  /// Waits for the stage; its address.
  __device__ __forceinline__ std::uint32_t take() const {
    ptx::wait_barrier(full + stage * 8, parity);
    return base + stage * kImageStageBytes;
  }
  /// By a warp whose lanes have read what they need of it.
  __device__ __forceinline__ void leave(int lane) {
    __syncwarp();
    if (lane == 0) ptx::arrive(empty + stage * 8);
    advance();
  }
};

__device__ __forceinline__ int images_of_cluster(const ImageChainArgs& p) {
  const int cluster = static_cast<int>(blockIdx.x) / p.plan.ranks;
  return (p.plan.images - cluster + p.clusters - 1) / p.clusters;
}

/// Tells all ranks, each of which brings a share of what comes next, that a stage is empty here; of one thread. Warps
/// that told them by themselves would be too many.
__device__ __forceinline__ void tell_of_room(const ImageChainArgs& p, const Places& at) {
  const int stages = p.plan.blocks * p.plan.stages();
  int stage = 0;
  std::uint32_t parity = 1;
#pragma unroll 1
  for (int images = images_of_cluster(p); images > 0; --images) {
#pragma unroll 1
    for (int s = 0; s < stages; ++s) {
      ptx::wait_barrier(at.empty + stage * 8, parity);
      for (int rank = 0; rank < p.plan.ranks; ++rank)
        ptx::arrive_in_block(ptx::in_block(at.all_empty + stage * 8, static_cast<std::uint32_t>(rank)));
      if (++stage == p.plan.ring) stage = 0, parity ^= 1;
    }
  }
}

/// This rank's share, to all; of one thread.
__device__ __forceinline__ void bring_weights(const ImageChainArgs& p, const Places& at, int rank) {
  const int stages = p.plan.blocks * p.plan.stages();
  const int share = kImageStageBytes / p.plan.ranks;
  const auto all = static_cast<std::uint16_t>((1 << p.plan.ranks) - 1);
  int stage = 0;
  std::uint32_t parity = 0;
#pragma unroll 1
  for (int images = images_of_cluster(p); images > 0; --images) {
    const std::byte* from = p.weights + rank * share;
#pragma unroll 1
    for (int s = 0; s < stages; ++s, from += kImageStageBytes) {
      ptx::wait_barrier(at.all_empty + stage * 8, parity);
      ptx::arrive_expecting(at.full + stage * 8, kImageStageBytes);
      ptx::copy_bytes_to_all(at.weights + stage * kImageStageBytes + rank * share, from, share,
                             at.full + stage * 8, all);
      if (++stage == p.plan.ring) stage = 0, parity ^= 1;
    }
  }
}

/// The constants of a residual block's head (0), window (1) or tail (2); of one thread.
__device__ __forceinline__ void bring_constants(const ImageChainArgs& p, const Places& at, int block,
                                                int conv) {
  constexpr int kInnerBytes = kImageInner / kUnitChannels * kImageConstantBytes;
  const int bytes = conv < 2 ? kInnerBytes : p.plan.channels / kUnitChannels * kImageConstantBytes;
  const std::uint32_t barrier = at.constants_here + conv * 8;
  ptx::let_copies_overwrite();
  ptx::arrive_expecting(barrier, bytes);
  ptx::copy_bytes(at.constants + conv * kInnerBytes,
                  p.constants + block * p.plan.constant_units() * kImageConstantBytes + conv * kInnerBytes,
                  bytes, barrier);
}

#endif

}  // namespace pipit::cuda::image_chain
