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
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "layers/cuda/conv/chain/unit_layout.h"
#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

inline constexpr int kBlockTaps = 9;
inline constexpr int kBlockChunkBytes =
    128;  ///< of a position's channels of x, which are copied at once for a tile
inline constexpr int kBlockSlotBytes = kUnitRows * kBlockChunkBytes;
inline constexpr int kBlockMaxUnits = 4;           ///< units of outputs, and of x
inline constexpr int kBlockMaxShared = 227 << 10;  ///< bytes that a block of threads may take on Hopper
inline constexpr int kBlockReserved = 2
                                      << 10;  ///< of them: barriers, counters, the alignment of what follows

/// What is added to what: nothing, x or the projection to the tail's outputs, or the tail's to the projection's.
enum class BlockAdds : std::uint8_t { nothing, x, projection, tail };

/// Groups of four warps that take turns at iterations, as many as there are registers for.
constexpr int block_groups(int element_bytes) {
  return element_bytes == 1 ? 4 : 3;
}

/// Which convolution of the chain is what; -1: there is none.
struct BlockRoles {
  int head = -1, window = -1, tail = -1, projection = -1;
};
/// The roles of the convolutions of a block of `inner` channels between its convolutions. Nothing where the chain is no
/// such block.
std::optional<BlockRoles> block_roles(const ConvChainShape& shape, int inner);

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
  int shared_bytes() const;
};

/// The reason where there is no plan.
std::variant<BlockPlan, std::string> plan_block(const ConvChainShape& shape, const BlockRoles& roles);

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
