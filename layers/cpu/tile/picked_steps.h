// Weights that say which input they meet: scattered zeros, left out on vector registers.
//
// A *picked* step of K loads a block of A, as many neighbours as a register holds, and every output of a panel picks
// one of them: a permutation in registers. So a block takes as many steps as that output has weights there that has
// the most, and outputs need not keep the same rows. A mask that keeps N of every M = `lanes` neighbours for each
// output (N:M sparsity, Mishra et al., "Accelerating sparse deep neural networks", 2021) takes N steps; N may differ
// from block to block and from panel to panel.
//
// Which element a weight picks is in its last four bits: a permutation looks at no others of its indices, so a weight
// is its own index. That moves a weight by at most 8 units in its last place, 2^-20 of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "layers/cpu/tile/tile_pack.h"

namespace pipit::internal {

/// The first steps of blocks that cover K in its order. `segments` and `run` as ConvInput has them: where steps that
/// follow each other in K do so in memory, blocks start `lanes` steps apart, the last may overlap the one before.
/// Empty where fewer than `lanes` steps lie together: what follows them must not be read.
std::vector<std::int32_t> pick_blocks(std::span<const std::int32_t> segments, std::int64_t run, int lanes);

/// The block of each of the picked steps that panel p takes, in the order of K. Nothing where a weight is an infinity
/// or a NaN: with other last bits it would be something else.
std::optional<std::vector<std::int32_t>> picked_steps(const TilePanels& panels, std::int64_t p,
                                                      const WeightView& weights,
                                                      std::span<const std::int32_t> blocks);

/// Writes panel p: [steps.size()][vectors * lanes]. `steps` as picked_steps() gives them. Outputs that have fewer
/// weights in a block are filled up with zeros, which pick its first element.
void pack_picked_panel(const TilePanels& panels, std::int64_t p, const WeightView& weights,
                       std::span<const std::int32_t> steps, std::byte* to);

/// The float whose last bits are `index` that is the fewest units in the last place from `weight`, which is finite;
/// `lanes`, a power of two, is how many indices there are. It has the same sign.
float with_index(float weight, std::uint32_t index, std::uint32_t lanes);

/// Whether enough of these weights are zero, by a sample, for picked steps to pay.
bool many_zeros(const TilePanels& panels, std::int64_t groups, const WeightView& weights);

}  // namespace pipit::internal
