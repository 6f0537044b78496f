// Accuracy against time as a picture.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pipit::internal::apps {

struct ParetoPoint {
  double ms = 0;
  double accuracy = 0;  ///< in percent
  std::string label;
  bool pareto = false;
  bool chosen = false;
  std::string front = {};  ///< which one it belongs to, where there are several
};

/// An SVG document: one mark per point (its label as a tooltip, and beside the chosen one), a line through those of
/// each Pareto front (where there are several in colours, with numbers at their fastest points that a list below
/// explains), a dashed line at `least` percent. `what`: of accuracies (tune and prune compare models by their expected
/// drops, which vary less than those of the images). Text is escaped; nothing is loaded from elsewhere.
std::string pareto_svg(const std::string& title, const std::vector<ParetoPoint>& points,
                       std::optional<double> least, const std::string& what);

}  // namespace pipit::internal::apps
