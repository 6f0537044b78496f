// How "basic_block" lays out a basic residual block: which tiles lie where in shared memory, and which group computes
// which of them when. No CUDA: tested without a GPU.
//
// The block is a 3x3 convolution of 64 channels to 64 (the head) and another one (the tail), to which x is added or
// nothing. Positions of all images, one after the other, are cut into tiles of kUnitRows. A worker, which is a block
// of threads, computes a range of tiles in iterations: in iteration i the head of its tile i - halo, which reads x of
// the tiles i - 2 halo to i, and then the tail of its tile i - 2 halo, which reads heads of the tiles i - 3 halo to
// i - halo, and adds the oldest of these tiles of x. Counted from the first tile of which there is any, head i reads x
// i to i + 2 halo, and tail i reads heads i - 2 halo to i and adds x i.
//
// Both lie in rings. Iteration i is the last one that reads x i and head i - 2 halo, but not all before it are finished
// by then, since groups of warps take turns at them. So x j is brought when all iterations up to j - x_ring have read
// their x, and head i is stored when all up to i - ring + 2 halo have read their heads. With 2 halo + 1 places and more
// in both rings every iteration waits for earlier ones only, and the first that is not finished can go on.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <optional>
#include <string>
#include <variant>

#include "layers/cuda/conv/chain/unit_layout.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

inline constexpr int kBasicWeightUnits = 2 * kBlockTaps;
/// Barriers that tiles of x take turns at, and iterations that have read theirs. In iteration i a group waits for x i
/// to x i + lag. It would take an earlier tile for one that is still to come if it had not seen the previous round end:
/// after the tail of iteration i - groups it has seen all up to x i - groups + lag, since heads have waited for them.
/// Iterations below lag + groups, whose group has had no tail before, must find their tiles in the first round.
inline constexpr int kBasicTurns = 32;
constexpr bool has_turns(int lag, int groups) {
  return 2 * lag + groups <= kBasicTurns;
}

struct BasicBlockPlan {
  int element_bytes = 1;
  bool adds_x = false;
  int width = 0, height = 0, positions = 0;  ///< of an image; of all
  int tiles = 0;
  int halo = 1;    ///< tiles before and after one that its windows read
  int lag = 2;     ///< iterations from a tile's head to the tail of the first one that reads it: 2 halo
  int x_ring = 0;  ///< tiles of x in shared memory
  int ring = 0;    ///< tiles that the head has computed, in shared memory

  int row_bytes() const { return kUnitChannels * element_bytes; }  ///< of a position
  int unit_bytes() const { return kUnitRows * row_bytes(); }       ///< of a tap's weights, and of a tile
  /// Biases, in INT8 and multipliers, of both convolutions.
  int constant_bytes() const { return 2 * kUnitChannels * 4 * (element_bytes == 1 ? 2 : 1); }
  int shared_bytes() const {
    return (kBasicWeightUnits + x_ring + ring) * unit_bytes() + constant_bytes() + row_bytes() +
           kBlockReserved;
  }
};

inline bool is_basic_block(const ConvChainShape& shape) {
  if (shape.inputs.size() != 1 || shape.convs.size() != 2) return false;
  const ChainConv &head = shape.convs[0], &tail = shape.convs[1];
  for (const ChainConv* conv : {&head, &tail}) {
    if (!conv->window || conv->in_c != kUnitChannels || conv->out_c != kUnitChannels) return false;
  }
  return head.x == 0 && head.residual < 0 && tail.x == 1 && tail.residual <= 0;
}

/// The plan of a chain that is such a block. The reason where there is no plan.
inline std::variant<BasicBlockPlan, std::string> plan_basic_block(const ConvChainShape& shape) {
  BasicBlockPlan plan;
  plan.element_bytes = shape.element_bytes;
  plan.adds_x = shape.convs[1].residual == 0;
  plan.width = shape.width, plan.height = shape.height;
  const std::int64_t positions = std::int64_t{shape.images} * shape.height * shape.width;
  if (positions > (1 << 30)) return "more positions than are counted";
  plan.positions = static_cast<int>(positions);
  plan.tiles = (plan.positions + kUnitRows - 1) / kUnitRows;
  plan.halo = (plan.width + kUnitRows) / kUnitRows;
  plan.lag = 2 * plan.halo;
  // With a tile of both for every other group no group waits for room; the copies of two more of x are in flight
  // meanwhile. Weights in fp16 leave less.
  const int least = plan.lag + 1, groups = block_groups(plan.element_bytes);
  if (!has_turns(plan.lag, groups)) return "rows are too long";
  plan.ring = least + groups - 1;
  plan.x_ring = least + groups + 1;
  while (plan.shared_bytes() > kBlockMaxShared) {
    int& more = plan.x_ring > plan.ring ? plan.x_ring : plan.ring;
    if (more <= least) return "shared memory has no room for weights and rows";
    --more;
  }
  return plan;
}

// What the candidate "basic_block" asks of its kernels.

struct BasicBlockArgs {
  CUtensorMap x{};  ///< matrix_map of x, in boxes of a tile
  BasicBlockPlan plan;
  const std::byte* weights = nullptr;    ///< units of the head and the tail, by taps
  const std::byte* constants = nullptr;  ///< of both
  std::byte* y = nullptr;
  PairBounds head, tail;
  float residual_scale = 0;
  int least_tiles = 0;  ///< of every worker; the first more_tiles have one more
  int more_tiles = 0;
  int workers = 1;
  PositionGrid grid;
  Divisor x_ring, ring;  ///< tiles of the rings
};

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_basic_block(const BasicBlockPlan& plan);
/// After prepare_basic_block: launches only.
cudaError_t launch_basic_block(const BasicBlockArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
