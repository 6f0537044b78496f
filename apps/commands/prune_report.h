// What pipit prune says.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/measuring/prune_search.h"

namespace pipit::internal::apps {

/// How it was pruned, for the report.
struct PruneSource {
  std::string output, svg;
  struct Rows {
    std::string taps;
    std::int64_t group = 1;
    std::int64_t panel = 0;
  };
  std::string mode, importance;
  std::optional<Rows> rows;           ///< where rows fall
  std::optional<std::int64_t> block;  ///< where blocks of channels fall
  bool refits = true;
  bool wide = false;  ///< its tables have all columns
};

/// For an outcome without a model (PruneOutcome::missed) both have what was measured.
nlohmann::ordered_json prune_json(nlohmann::ordered_json head, const PruneSource& source,
                                  const PruneGoal& goal, const PruneOutcome& outcome);
void print_pruned(const PruneSource& source, const PruneGoal& goal, const PruneOutcome& outcome);
/// pareto_svg() of the steps and the dense model.
std::string prune_svg(const std::string& model, const PruneGoal& goal, const PruneOutcome& outcome);

}  // namespace pipit::internal::apps
