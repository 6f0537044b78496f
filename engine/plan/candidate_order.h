// The order in which candidates are asked for a node.
#pragma once

#include <vector>

#include "engine/plan/registry.h"

namespace pipit {

/// In order of preference, those that yield for this node behind the next one that does not; of several such in a row
/// each yields to the next.
std::vector<const Candidate*> candidate_order(const std::vector<Candidate>& candidates, const NodeSpec& spec);

}  // namespace pipit
