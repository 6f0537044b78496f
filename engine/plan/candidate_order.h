// The order in which candidates are asked for a node.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/plan/registry.h"

namespace pipit::internal {

struct OrderedCandidate {
  const Candidate* candidate = nullptr;
  /// What it would take for the node and its followers, in the unit of Estimate::time; nothing without an estimate.
  std::optional<double> time;
};

/// How many of the nodes that follow are fused into the candidate's kernel: of the numbers that it can fuse
/// (Fusions::epilogue) the one with the least time, including separate kernels for the other nodes. Without an
/// estimate: all that it can fuse.
std::size_t fused_followers(const Registry& registry, DeviceKind device, const Candidate& candidate,
                            const NodeSpec& spec, std::span<const NodeSpec* const> followers);

/// How many of them it can fuse.
std::size_t fusable_followers(const Candidate& candidate, NodeSpec spec,
                              std::span<const NodeSpec* const> followers);

/// The candidates of the node's layer type. Those with an estimate share their places in the order of registration so
/// that the least comes first; the others keep theirs. followers: nodes that may be fused, each into the one before
/// (Fusion::followers); what a candidate does not fuse (fused_followers()) is added as a kernel of
/// its own.
std::vector<OrderedCandidate> candidate_order(const Registry& registry, DeviceKind device,
                                              const NodeSpec& spec,
                                              std::span<const NodeSpec* const> followers = {});

}  // namespace pipit::internal
