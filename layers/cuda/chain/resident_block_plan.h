// How "resident_block" lays out a residual block: which weights lie where in shared memory, who computes which
// positions when, and in which order channels lie in between. No CUDA: tested without a GPU.
//
// The block is a 1x1 convolution to 64 channels (the head), a 3x3 of 64 to 64 (the window), and a 1x1 of 64 to more
// (the tail), to which x is added, or what a 1x1 convolution makes of x (the projection; or the tail to that). Output
// positions of all images, one behind the other, are cut into tiles of kUnitRows. A worker, which is a block of
// threads, computes a range of tiles in iterations: in iteration i the head of its tile i - halo, and window and tail
// of its tile i - lag, whose neighbours are complete by then. What the head computes waits for the window in a ring of
// tiles in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "layers/cuda/chain/conv_chain_shape.h"
#include "layers/cuda/chain/unit_layout.h"

namespace pipit::cuda {

inline constexpr int kBlockTaps = 9;
inline constexpr int kBlockChunkBytes =
    128;  ///< of a position's channels of x, which are copied at once for a tile
inline constexpr int kBlockSlotBytes = kUnitRows * kBlockChunkBytes;
inline constexpr int kBlockMostUnits = 4;           ///< units of outputs, and of x
inline constexpr int kBlockMostShared = 227 << 10;  ///< bytes that a block of threads may take on Hopper
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
/// Of a block of `inner` channels between its convolutions. Nothing where the chain is no such block.
std::optional<BlockRoles> block_roles(const ConvChainShape& shape, int inner);

struct BlockPlan {
  int element_bytes = 1;
  int in_units = 1, out_units = 1;  ///< of kUnitChannels
  BlockAdds adds = BlockAdds::nothing;
  int width = 0, height = 0, positions = 0;  ///< of an image; of all
  int tiles = 0;
  int halo = 1;        ///< tiles in front of and behind one that its window reads
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

}  // namespace pipit::cuda
