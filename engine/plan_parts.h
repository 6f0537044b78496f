// The two halves of Plan::build.
#pragma once

#include <vector>

#include "engine/plan.h"

namespace pipit {

/// Whether the node only shows its first input under another desc: it has no kernel and no memory of its own.
bool is_view(const Graph& graph, const Node& node);

/// The node whose outputs the step writes.
const Node& last_node(const Graph& graph, const Step& step);

/// Chooses a candidate for every node that is not a view, makes the kernels and offers them the nodes that follow.
/// The steps lack placements only. Constants that every reader has packed are freed in `graph`.
std::vector<Step> choose_kernels(Graph& graph, const Registry& registry, const PlanOptions& options);

struct PlacedValues {
  std::vector<Placement> outputs;  ///< one per graph output
  std::size_t arena_bytes = 0;
  std::size_t peak_live_bytes = 0;
};

/// Finds the live range of every value, lets nodes write over inputs that die with them, packs the arena and fills
/// the steps' placements. Frees what no kernel reads.
PlacedValues place_values(Graph& graph, const PlanOptions& options, std::vector<Step>& steps);

/// Throws Error when the options or the machine allow no arena of so many bytes.
void check_arena(std::size_t bytes, const PlanOptions& options);

}  // namespace pipit
