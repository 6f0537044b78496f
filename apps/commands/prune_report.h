// What pipit prune says.
#pragma once

#include <string>

#include "apps/commands/prune_options.h"

namespace pipit::internal::apps {

/// Of a result without a file (PrunedModel::problem) it has what was measured.
void print_pruned(const PruneOptions& options, const tools::PrunedModel& pruned);
/// pareto_svg() of the steps and the dense model.
std::string prune_svg(const PruneOptions& options, const tools::PrunedModel& pruned);

}  // namespace pipit::internal::apps
