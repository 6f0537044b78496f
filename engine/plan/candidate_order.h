// The order in which candidates are asked for a node.
#pragma once

#include <vector>

#include "engine/plan/registry.h"

namespace pipit {

/// In order of preference, those that yield for this node behind the next one that does not; of several such in a row
/// each yields to the next.
std::vector<const Candidate*> candidate_order(const std::vector<Candidate>& candidates, const NodeSpec& spec);

/// A Candidate::yields, which is asked about any node: `yields` only sees those that `refuse` lets pass, and may
/// assume what that has checked (ranks, extents, constants). A candidate that refuses yields. `refuse`: the
/// candidate's own, or, where that asks a library, the part of it that does not.
std::function<bool(const NodeSpec&)> yields_where_accepted(std::function<Refusal(const NodeSpec&)> refuse,
                                                           std::function<bool(const NodeSpec&)> yields);

}  // namespace pipit
