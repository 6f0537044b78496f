// How "resident_block" lays out a residual block: which weights lie where in shared memory, which worker computes which
// tiles when, and in which order channels lie in between. No CUDA: tested without a GPU.
//
// A block has one of three forms:
// - bottleneck: a 1x1 convolution to 64 channels (the head), a 3x3 of 64 to 64 (the window) and a 1x1 of 64 to more
//   (the tail), to which x is added, or what a 1x1 convolution makes of x (the projection; or the tail to that);
// - streamed: the same of 128 channels in INT8, to which x may be added. Its weights do not fit shared memory;
// - basic: two 3x3 convolutions of 64 channels (the head, and the tail, which is the window here), to which x may be
//   added.
//
// Output positions of all images, one after the other, are cut into tiles of kUnitRows. A worker, which is a block of
// threads, computes a range of tiles in iterations: in iteration i the head of its tile i - halo, then window and tail
// of its tile i - lag, whose neighbours are complete by then. What heads compute waits for windows in a ring of tiles
// in shared memory.
//
// A basic block's x waits in a ring, too. Counted from the first tile of which there is any, head i reads x i to
// i + 2 halo, and tail i reads heads i - 2 halo to i and adds x i. Iteration i is the last one that reads x i and head
// i - 2 halo, but not all before it are finished by then, since groups of warps take turns at them. So x j is brought
// when all iterations up to j - slots have read their x, and head i is stored when all up to i - ring + lag have read
// their heads. With 2 halo + 1 places and more in both rings every iteration waits for earlier ones only, and the first
// that is not finished can go on.
//
// In a streamed block an iteration has a tile for each of four groups of four warps: the heads of the worker's tiles
// 4 i - halo and the next three, then window and tail of its tiles 4 (i - 1) and the next three. Weights come in stages
// of 128 outputs and 128 elements of k, in the order of their use, once for every iteration: all four groups multiply a
// stage before the next one takes its place.
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
#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

enum class BlockForm : std::uint8_t { bottleneck, basic, streamed };
/// What is added to what: nothing, x or the projection to the tail's outputs, or the tail's to the projection's.
enum class BlockAdds : std::uint8_t { nothing, x, projection, tail };

inline constexpr int kBlockTaps = 9;
inline constexpr int kBlockMaxUnits = 4;  ///< units of a bottleneck's outputs, and of x

/// Groups of four warps, which do iterations in turn; their registers limit the number of groups.
constexpr int block_groups(int element_bytes) {
  return element_bytes == 1 ? 4 : 3;
}

/// Barriers that copies of x take turns at, for those that arrive and for those that have been read. In a bottleneck a
/// group waits for its own copies while those of an iteration for each other group are still to come.
inline constexpr int kBlockTurns = 32;
static_assert((block_groups(1) + 1) * (kBlockMaxUnits + 1) <= kBlockTurns);
/// In iteration i of a basic block a group waits for x i to x i + lag. It would take an earlier tile for one that is
/// still to come if it had not seen the previous round end: after the tail of iteration i - groups it has seen all up
/// to x i - groups + lag, since heads have waited for them. Iterations below lag + groups, whose group has had no tail
/// before, must find their tiles in the first round.
constexpr bool has_turns(int lag, int groups) {
  return 2 * lag + groups <= kBlockTurns;
}

inline constexpr int kStreamedGroups = 4;  ///< of four warps; tiles of an iteration
/// Channels inside a streamed block, and bytes of a row of everything in shared memory.
inline constexpr int kStreamedInner = 128;
inline constexpr int kStreamedRing = 8;     ///< tiles that heads have computed, in shared memory
inline constexpr int kStreamedWeights = 3;  ///< stages of weights
inline constexpr int kStreamedX = 3;        ///< stages of x: kStreamedInner channels of an iteration's tiles
inline constexpr int kStreamedTileBytes = kUnitRows * kStreamedInner;
inline constexpr int kStreamedWeightBytes = kStreamedInner * kStreamedInner;
inline constexpr int kStreamedXBytes = kStreamedGroups * kStreamedTileBytes;

constexpr int block_inner(BlockForm form) {
  return form == BlockForm::streamed ? kStreamedInner : kUnitChannels;
}

/// Which convolution of the chain is what; -1: there is none.
struct BlockRoles {
  BlockForm form = BlockForm::bottleneck;
  int head = -1, window = -1, tail = -1, projection = -1;
};

inline bool is_basic_block(const ConvChainShape& shape) {
  if (shape.inputs.size() != 1 || shape.convs.size() != 2) return false;
  const ChainConv &head = shape.convs[0], &tail = shape.convs[1];
  for (const ChainConv* conv : {&head, &tail}) {
    if (!conv->window || conv->in_c != kUnitChannels || conv->out_c != kUnitChannels) return false;
  }
  return head.x == 0 && head.residual < 0 && tail.x == 1 && tail.residual <= 0;
}

/// The roles of the convolutions of a block of `inner` channels between its three convolutions.
inline std::optional<BlockRoles> bottleneck_roles(const ConvChainShape& shape, BlockForm form) {
  const auto count = static_cast<int>(shape.convs.size());
  if (shape.inputs.size() != 1 || count < 3 || count > 4) return std::nullopt;
  const int inner = block_inner(form);
  const auto conv = [&](int role) { return shape.convs[static_cast<std::size_t>(role)]; };
  const auto value = [](int role) { return role + 1; };  // values begin with x
  BlockRoles roles{form};
  const auto is_tail = [&](int c) { return roles.window >= 0 && conv(c).x == value(roles.window); };
  for (int c = 0; c < count; ++c) {
    int& role = conv(c).window                            ? roles.window
                : is_tail(c)                              ? roles.tail
                : conv(c).out_c == inner && c + 1 < count ? roles.head
                                                          : roles.projection;
    if (role >= 0 || (conv(c).residual >= 0 && c + 1 < count)) return std::nullopt;
    if (!conv(c).window && !is_tail(c) && conv(c).x != 0) return std::nullopt;
    role = c;
  }
  if (roles.head < 0 || roles.window < 0 || roles.tail < 0 || conv(roles.window).x != value(roles.head) ||
      conv(roles.window).out_c != inner)
    return std::nullopt;
  const int last = count - 1;
  const int other = roles.projection == last ? roles.tail : roles.projection;
  if (roles.projection >= 0 ? conv(last).residual != value(other) : conv(last).residual > 0)
    return std::nullopt;
  return roles;
}

/// Nothing where the chain is no block.
inline std::optional<BlockRoles> block_roles(const ConvChainShape& shape) {
  if (is_basic_block(shape)) return BlockRoles{BlockForm::basic, 0, -1, 1, -1};
  const std::optional<BlockRoles> roles = bottleneck_roles(shape, BlockForm::bottleneck);
  return roles ? roles : bottleneck_roles(shape, BlockForm::streamed);
}

/// Units are of inner() outputs, and elements of k; in a basic block a unit is a tap.
struct BlockPlan {
  BlockForm form = BlockForm::bottleneck;
  BlockAdds adds = BlockAdds::nothing;
  int element_bytes = 1;
  bool bf16 = false;  ///< of 2 bytes: else halves
  int in_units = 1, out_units = 1;
  int head_units = 1, weight_units = 0;      ///< of the head's weights, of all; in a streamed block stages
  int constant_units = 0;                    ///< of kUnitChannels
  int in_chunks = 1;                         ///< copies that bring x for a tile's head
  int width = 0, height = 0, positions = 0;  ///< of an image; of all
  int tiles = 0;
  int halo = 1;   ///< tiles before and after one that its window reads
  int lag = 0;    ///< iterations from a tile's head to the tail of the one it is a neighbour of
  int ring = 0;   ///< tiles that the head has computed, in shared memory
  int slots = 0;  ///< copies of x in shared memory
  int workers = 1;
  int least_tiles = 0,
      more_tiles = 0;  ///< of every worker; the first more_tiles have one more, the last may have fewer

  int inner() const { return block_inner(form); }
  bool projects() const { return adds >= BlockAdds::projection; }
  int threads() const { return block_groups(element_bytes) * 128 + 128; }
  int row_bytes() const { return inner() * element_bytes; }  ///< of a position in a unit
  int unit_bytes() const {
    return kUnitRows * row_bytes();
  }                         ///< of 64 outputs' weights, and of a tile of the ring
  int copy_bytes() const {  ///< of a position's channels of x
    return form == BlockForm::basic ? row_bytes() : kBlockChunkBytes;
  }
  /// Biases, in INT8 and multipliers.
  int constant_bytes() const { return constant_units * kUnitChannels * 4 * (element_bytes == 1 ? 2 : 1); }
  int shared_bytes() const {
    const int groups = form == BlockForm::streamed ? kStreamedGroups : 1;
    const int weights =
        form == BlockForm::streamed ? kStreamedWeights * kStreamedWeightBytes : weight_units * unit_bytes();
    return weights + ring * unit_bytes() + slots * groups * kUnitRows * copy_bytes() + constant_bytes() +
           row_bytes() + kBlockReserved;
  }
};

// What each form adds to a plan; the reason where it has no room for it.

inline std::optional<std::string> plan_basic(BlockPlan& plan) {
  plan.head_units = kBlockTaps;
  plan.weight_units = 2 * kBlockTaps;
  plan.constant_units = 2;
  plan.lag = 2 * plan.halo;
  // With a tile of both for every other group no group waits for room; the copies of two more of x are in flight
  // meanwhile. Weights in 16 bits leave less.
  const int least = plan.lag + 1, groups = block_groups(plan.element_bytes);
  if (!has_turns(plan.lag, groups)) return "rows are too long";
  plan.ring = least + groups - 1;
  plan.slots = least + groups + 1;
  while (plan.shared_bytes() > kBlockMaxShared) {
    int& more = plan.slots > plan.ring ? plan.slots : plan.ring;
    if (more <= least) return "shared memory has no room for weights and rows";
    --more;
  }
  return std::nullopt;
}

inline std::optional<std::string> plan_bottleneck(BlockPlan& plan) {
  if (plan.in_units > kBlockMaxUnits || plan.out_units > kBlockMaxUnits ||
      (plan.projects() && plan.in_units > 1))
    return "more channels than there is room for";
  plan.lag = 2 * plan.halo + 1;
  // With a tile for every group no group waits for room. Weights in 16 bits leave less.
  plan.ring = plan.lag + (plan.element_bytes == 1 ? block_groups(1) : 2);
  // A power of two.
  for (plan.slots = 8; plan.shared_bytes() > kBlockMaxShared; plan.slots /= 2) {
    if (plan.slots == 2) return "shared memory has no room for weights and rows";
  }
  return std::nullopt;
}

inline std::optional<std::string> plan_streamed(BlockPlan& plan) {
  if (plan.element_bytes != 1) return "only int8 is handled";
  if (plan.projects()) return "a projection is not handled";
  // A group whose heads are multiplied knows that the others have read what they take the place of (the kernel).
  if (plan.in_units + plan.out_units < kStreamedWeights) return "too few channels";
  if (2 * plan.halo > kStreamedGroups) return "rows are longer than the ring";
  plan.ring = kStreamedRing, plan.slots = kStreamedX;
  if (plan.shared_bytes() > kBlockMaxShared) return "its constants do not fit shared memory";
  return std::nullopt;
}

/// processors: of the GPU. The reason where there is no plan.
inline std::variant<BlockPlan, std::string> plan_block(const ConvChainShape& shape, const BlockRoles& roles,
                                                       int processors) {
  const ChainConv& tail = shape.convs[static_cast<std::size_t>(roles.tail)];
  const int inner = block_inner(roles.form);
  BlockPlan plan;
  plan.form = roles.form;
  plan.element_bytes = shape.element_bytes, plan.bf16 = shape.bf16;
  if (shape.inputs[0] % inner != 0 || tail.out_c % inner != 0)
    return "channels are no multiple of " + std::to_string(inner);
  plan.in_units = shape.inputs[0] / inner, plan.out_units = tail.out_c / inner;
  if (roles.projection >= 0) {
    plan.adds = roles.projection > roles.tail ? BlockAdds::tail : BlockAdds::projection;
  } else if (tail.residual >= 0) {
    plan.adds = BlockAdds::x;
  }
  plan.width = shape.width, plan.height = shape.height;
  const std::int64_t positions = std::int64_t{shape.images} * shape.height * shape.width;
  if (positions > (1 << 30)) return "more positions than are counted";
  plan.positions = static_cast<int>(positions);
  plan.tiles = (plan.positions + kUnitRows - 1) / kUnitRows;
  plan.halo = (plan.width + kUnitRows) / kUnitRows;
  const int last_units = plan.out_units * (plan.projects() ? 2 : 1);
  plan.head_units = plan.in_units;
  plan.weight_units = plan.in_units + kBlockTaps + last_units;
  plan.constant_units = (2 + last_units) * inner / kUnitChannels;
  plan.in_chunks = (plan.in_units * plan.row_bytes() + kBlockChunkBytes - 1) / kBlockChunkBytes;
  if (auto reason = plan.form == BlockForm::basic        ? plan_basic(plan)
                    : plan.form == BlockForm::bottleneck ? plan_bottleneck(plan)
                                                         : plan_streamed(plan))
    return *reason;
  const int most = std::max(processors, 1);
  if (plan.form == BlockForm::streamed) {
    const int iterations = (plan.tiles + kStreamedGroups - 1) / kStreamedGroups;
    plan.least_tiles = (iterations + most - 1) / most * kStreamedGroups;
    plan.workers = (plan.tiles + plan.least_tiles - 1) / plan.least_tiles;
  } else {
    plan.workers = std::min(most, plan.tiles);
    plan.least_tiles = plan.tiles / plan.workers;
    plan.more_tiles = plan.tiles % plan.workers;
  }
  return plan;
}

// What the candidate "resident_block" asks of its kernels.

struct ResidentBlockArgs {
  CUtensorMap x{};  ///< matrix_map of x, in boxes of a tile and copy_bytes()
  BlockPlan plan;
  const std::byte* weights =
      nullptr;  ///< units of head, window, tail, projection, in the order of append_units()
  const std::byte* constants = nullptr;  ///< in the same order
  const std::byte* residual = nullptr;   ///< x again
  std::byte* y = nullptr;
  PairBounds head, window, tail, projection;
  float residual_scale = 0;
  bool small_sums = true;  ///< of a streamed block: all are below kSmallSum
  PositionGrid grid;
  Divisor ring, slots;  ///< plan.ring, plan.slots

  ResidentBlockArgs() = default;
  explicit ResidentBlockArgs(const BlockPlan& planned)
      : plan(planned),
        grid{Divisor(plan.width * plan.height), Divisor(plan.width), plan.height, plan.positions},
        ring(plan.ring),
        slots(plan.slots) {}
};

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_resident_block(const ResidentBlockArgs& args);
/// After prepare_resident_block: launches only.
cudaError_t launch_resident_block(const ResidentBlockArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
