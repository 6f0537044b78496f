// Accuracy against time as a picture.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pipit::apps {

struct ParetoPoint {
  double ms = 0;
  double accuracy = 0;  ///< in percent
  std::string label;
  bool pareto = false;
  bool chosen = false;
};

/// An SVG document: one mark per point (its label as a tooltip, and beside the chosen one), a line through those of the
/// Pareto front, a dashed line at `least` percent. `what`: of accuracies. Text is escaped; nothing is loaded from
/// elsewhere.
std::string pareto_svg(const std::string& title, const std::vector<ParetoPoint>& points,
                       std::optional<double> least, const std::string& what = "top-1, %");

}  // namespace pipit::apps
