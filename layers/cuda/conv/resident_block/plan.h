// How "resident_block" lays out a residual block: which weights lie where in shared memory, which worker computes which
// positions when, and in which order channels lie in between. No CUDA: tested without a GPU.
//
// The block is a 1x1 convolution to 64 channels (the head), a 3x3 of 64 to 64 (the window), and a 1x1 of 64 to more
// (the tail), to which x is added, or what a 1x1 convolution makes of x (the projection; or the tail to that). Output
// positions of all images, one after the other, are cut into tiles of kUnitRows. A worker, which is a block of
// threads, computes a range of tiles in iterations: in iteration i the head of its tile i - halo, and window and tail
// of its tile i - lag, whose neighbours are complete by then. What the head computes waits for the window in a ring of
// tiles in shared memory.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "layers/cuda/conv/chain/unit_layout.h"
#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

/// What is added to what: nothing, x or the projection to the tail's outputs, or the tail's to the projection's.
enum class BlockAdds : std::uint8_t { nothing, x, projection, tail };

struct BlockPlan {
  int element_bytes = 1;
  int in_units = 1, out_units = 1;  ///< of kUnitChannels
  BlockAdds adds = BlockAdds::nothing;
  int width = 0, height = 0, positions = 0;  ///< of an image; of all
  int tiles = 0;
  int halo = 1;        ///< tiles before and after one that its window reads
  int lag = 0;         ///< iterations from a tile's head to the tail of the one it is a neighbour of
  int ring = 0;        ///< tiles that the head has computed, in shared memory
  int slots_log2 = 0;  ///< chunks of x in shared memory

  bool projects() const { return adds >= BlockAdds::projection; }
  int row_bytes() const { return kUnitChannels * element_bytes; }  ///< of a position in a unit
  int unit_bytes() const { return kUnitRows * row_bytes(); }       ///< of weights and of the ring
  int in_chunks() const { return (in_units * row_bytes() + kBlockChunkBytes - 1) / kBlockChunkBytes; }
  int weight_units() const {
    return in_units + kBlockTaps + out_units + (projects() ? in_units * out_units : 0);
  }
  /// Biases, in INT8 and multipliers, of the outputs of a unit.
  int constant_bytes() const { return kUnitChannels * 4 * (element_bytes == 1 ? 2 : 1); }
  int constant_units() const { return 2 + out_units * (projects() ? 2 : 1); }
  int shared_bytes() const {
    return (weight_units() + ring) * unit_bytes() + (kBlockSlotBytes << slots_log2) +
           constant_units() * constant_bytes() + row_bytes() + kBlockReserved;
  }
};

/// The reason where there is no plan.
inline std::variant<BlockPlan, std::string> plan_block(const ConvChainShape& shape, const BlockRoles& roles) {
  const int in_c = shape.inputs[0];
  const int out_c = shape.convs[static_cast<std::size_t>(roles.tail)].out_c;
  if (in_c % kUnitChannels != 0 || out_c % kUnitChannels != 0) return "channels are no multiple of 64";
  BlockPlan plan;
  plan.element_bytes = shape.element_bytes;
  plan.in_units = in_c / kUnitChannels, plan.out_units = out_c / kUnitChannels;
  if (roles.projection >= 0) {
    plan.adds = roles.projection > roles.tail ? BlockAdds::tail : BlockAdds::projection;
  } else if (shape.convs[static_cast<std::size_t>(roles.tail)].residual >= 0) {
    plan.adds = BlockAdds::x;
  }
  if (plan.in_units > kBlockMaxUnits || plan.out_units > kBlockMaxUnits ||
      (plan.projects() && plan.in_units > 1))
    return "more channels than there is room for";
  plan.width = shape.width, plan.height = shape.height;
  const std::int64_t positions = std::int64_t{shape.images} * shape.height * shape.width;
  if (positions > (1 << 30)) return "more positions than are counted";
  plan.positions = static_cast<int>(positions);
  plan.tiles = (plan.positions + kUnitRows - 1) / kUnitRows;
  plan.halo = (plan.width + kUnitRows) / kUnitRows;
  plan.lag = 2 * plan.halo + 1;
  // With a tile for every group no group waits for room. Weights in fp16 leave less.
  plan.ring = plan.lag + (plan.element_bytes == 1 ? block_groups(1) : 2);
  for (plan.slots_log2 = 3; plan.shared_bytes() > kBlockMaxShared; --plan.slots_log2) {
    if (plan.slots_log2 == 1) return "shared memory has no room for weights and rows";
  }
  return plan;
}

// What the candidate "resident_block" asks of its kernels.

struct ResidentBlockArgs {
  CUtensorMap x{};  ///< matrix_map of x, in boxes of a tile and a chunk
  int in_chunks = 1;
  BlockPlan plan;
  const std::byte* weights = nullptr;    ///< units of head, window (by taps), tail, projection
  const std::byte* constants = nullptr;  ///< in the same order, window having one unit
  const std::byte* residual = nullptr;   ///< x again
  std::byte* y = nullptr;
  PairBounds head, window, tail, projection;
  float residual_scale = 0;
  int least_tiles = 0;  ///< of every worker; the first more_tiles have one more
  int more_tiles = 0;
  int workers = 1;
  PositionGrid grid;
  Divisor ring;  ///< tiles of the ring
};

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_resident_block(const BlockPlan& plan);
/// After prepare_resident_block: launches only.
cudaError_t launch_resident_block(const ResidentBlockArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
