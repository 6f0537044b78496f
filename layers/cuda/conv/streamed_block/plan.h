// How "streamed_block" cuts up a residual block whose weights are too many for shared memory. No CUDA: tested without
// a GPU.
//
// The block is a 1x1 convolution to 128 channels (the head), a 3x3 of 128 to 128 (the window), and a 1x1 of 128 to
// more (the tail), to which x may be added, in INT8. Output positions of all images, one after the other, are cut into
// tiles of kUnitRows. A worker, which is a block of threads, computes a range of tiles, four in an iteration, one for
// each group of four warps: in iteration i the heads of its tiles 4 i - halo and the next three, then window and tail
// of its tiles 4 (i - 1) and the next three, whose neighbours are complete by then. What heads compute waits for the
// windows in a ring of tiles in shared memory. Weights come in stages of 128 outputs and 128 elements of k, in the
// order of their use, once for every iteration: all four groups multiply a stage before the next one takes its place.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "layers/cuda/conv/chain/unit_layout.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

inline constexpr int kStreamedGroups = 4;  ///< of four warps; tiles of an iteration
inline constexpr int kStreamedInner =
    128;  ///< channels inside, and bytes of a row of everything in shared memory
inline constexpr int kStreamedRing = 8;     ///< tiles that heads have computed, in shared memory
inline constexpr int kStreamedWeights = 3;  ///< stages of weights
inline constexpr int kStreamedX = 3;        ///< stages of x: kStreamedInner channels of an iteration's tiles
inline constexpr int kStreamedTileBytes = kUnitRows * kStreamedInner;
inline constexpr int kStreamedWeightBytes = kStreamedInner * kStreamedInner;
inline constexpr int kStreamedXBytes = kStreamedGroups * kStreamedTileBytes;

struct StreamedPlan {
  int in_chunks = 1, out_stages = 1;  ///< of kStreamedInner channels
  bool adds_x = false;
  int width = 0, height = 0, positions = 0;  ///< of an image; of all
  int tiles = 0;
  int halo = 1;          ///< tiles before and after one that its window reads
  int worker_tiles = 0;  ///< a multiple of kStreamedGroups; the last worker may have fewer
  int workers = 1;

  PIPIT_HOST_DEVICE int stages() const { return in_chunks + kBlockTaps + out_stages; }
  PIPIT_HOST_DEVICE int constant_units() const { return 2 * (2 + out_stages); }  ///< of kUnitChannels
  int shared_bytes() const {
    return kStreamedRing * kStreamedTileBytes + kStreamedWeights * kStreamedWeightBytes +
           kStreamedX * kStreamedXBytes + constant_units() * kUnitChannels * 8 + kStreamedInner +
           kBlockReserved;
  }
};

/// processors: of the GPU. The reason where there is no plan.
inline std::variant<StreamedPlan, std::string> plan_streamed_block(const ConvChainShape& shape,
                                                                   const BlockRoles& roles, int processors) {
  const int in_c = shape.inputs[0];
  const int out_c = shape.convs[static_cast<std::size_t>(roles.tail)].out_c;
  if (shape.element_bytes != 1) return "only int8 is handled";
  if (roles.projection >= 0) return "a projection is not handled";
  if (in_c % kStreamedInner != 0 || out_c % kStreamedInner != 0) return "channels are no multiple of 128";
  StreamedPlan plan;
  plan.in_chunks = in_c / kStreamedInner, plan.out_stages = out_c / kStreamedInner;
  // A group whose heads are multiplied knows that the others have read what they take the place of (the kernel).
  if (plan.in_chunks + plan.out_stages < kStreamedWeights) return "too few channels";
  plan.adds_x = shape.convs[static_cast<std::size_t>(roles.tail)].residual >= 0;
  plan.width = shape.width, plan.height = shape.height;
  const std::int64_t positions = std::int64_t{shape.images} * shape.height * shape.width;
  if (positions > (1 << 30)) return "more positions than are counted";
  plan.positions = static_cast<int>(positions);
  plan.tiles = (plan.positions + kUnitRows - 1) / kUnitRows;
  plan.halo = (plan.width + kUnitRows) / kUnitRows;
  if (2 * plan.halo > kStreamedGroups) return "rows are longer than the ring";
  if (plan.shared_bytes() > kBlockMaxShared) return "its constants do not fit shared memory";
  const int iterations = (plan.tiles + kStreamedGroups - 1) / kStreamedGroups;
  const int most = std::max(processors, 1);
  plan.worker_tiles = (iterations + most - 1) / most * kStreamedGroups;
  plan.workers = (plan.tiles + plan.worker_tiles - 1) / plan.worker_tiles;
  return plan;
}

/// Bytes of the weights of all three, stage by stage in the order of their use, of [out_c][taps][in_c] each.
inline std::vector<std::byte> pack_streamed_weights(const StreamedPlan& plan, const std::byte* head,
                                                    const std::byte* window, const std::byte* tail) {
  std::vector<std::byte> packed(static_cast<std::size_t>(plan.stages()) * kStreamedWeightBytes);
  std::byte* to = packed.data();
  const auto stage = [&](const std::byte* weights, int in_c, int taps, int tap, int channel, int output,
                         bool stored) {
    for (int unit = 0; unit < kStreamedInner; unit += kUnitChannels) {
      pack_unit(weights, in_c, taps, tap, channel, output + unit, stored, 1, to, kStreamedInner);
      to += kUnitChannels * kStreamedInner;
    }
  };
  for (int chunk = 0; chunk < plan.in_chunks; ++chunk)
    stage(head, plan.in_chunks * kStreamedInner, 1, 0, chunk * kStreamedInner, 0, true);
  for (int tap = 0; tap < kBlockTaps; ++tap) stage(window, kStreamedInner, kBlockTaps, tap, 0, 0, false);
  for (int s = 0; s < plan.out_stages; ++s) stage(tail, kStreamedInner, 1, 0, 0, s * kStreamedInner, true);
  return packed;
}

// What the candidate "streamed_block" asks of its kernels.

struct StreamedBlockArgs {
  CUtensorMap x{};  ///< matrix_map of x, in boxes of a tile and kStreamedInner channels
  StreamedPlan plan;
  PositionGrid grid;
  const std::byte* weights = nullptr;    ///< pack_streamed_weights()
  const std::byte* constants = nullptr;  ///< of the units of head, window, tail
  std::byte* y = nullptr;
  PairBounds head, window, tail;
  float residual_scale = 0;
  bool small_sums = false;  ///< of all three (kSmallSum)
};

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_streamed_block(const StreamedBlockArgs& args);
/// After prepare_streamed_block: launches only.
cudaError_t launch_streamed_block(const StreamedBlockArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
