#include <fmt/format.h>

#include <algorithm>

#include "apps/commands/sweep_report.h"
#include "apps/display/table.h"
#include "pipit/report.h"

namespace pipit::internal::apps {

namespace {

std::string_view mode_of(const tools::SparsityRow& row) {
  return row.mode ? tools::sparsity_mode_name(*row.mode) : "dense";
}

}  // namespace

std::string sparsity_table(const tools::SparsitySweep& sweep, int width) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {{"layer", left, 0, true},
                                        {"precision"},
                                        {"mode"},
                                        {"keep", right},
                                        {"ms", right},
                                        {"quartiles", right, 5},
                                        {"x dense", right},
                                        {"kernel", left, 2},
                                        {"MAE", right, 7},
                                        {"max", right, 6},
                                        {"rel. L2", right},
                                        {"top-10", right, 4},
                                        {"refit L2", right, 1},
                                        {"refit top-10", right, 3},
                                        {"problem", left, 0, true}};
  Table table(columns);
  for (const tools::SparsityRow& row : sweep.rows) {
    std::vector<std::string> cells{row.layer, std::string(precision_name(row.precision)),
                                   std::string(mode_of(row)), fmt::format("{:.2f}", row.keep)};
    if (!row.problem.empty()) {
      cells.resize(columns.size() - 1);
      cells.push_back(row.problem.substr(0, row.problem.find('\n')));
    } else {
      cells.insert(cells.end(), {fmt::format("{:.4f}", row.times.ms),
                                 fmt::format("{:.4f}-{:.4f}", row.times.low_ms, row.times.high_ms),
                                 fmt::format("{:.2f}", row.speedup.median), row.kernel,
                                 fmt::format("{:.3g}", row.error.mae), fmt::format("{:.3g}", row.error.max),
                                 fmt::format("{:.4f}", row.error.relative_l2),
                                 fmt::format("{:.1f}%", 100 * row.error.top10)});
      if (row.refit) {
        cells.push_back(fmt::format("{:.4f}", row.refit->relative_l2));
        cells.push_back(fmt::format("{:.1f}%", 100 * row.refit->top10));
      }
    }
    table.add(std::move(cells));
  }
  return table.str(0, width);
}

std::string sparsity_svg(const tools::SparsitySweep& sweep) {
  std::vector<tools::ParetoPoint> points;
  for (const tools::SparsityRow& row : sweep.rows) {
    if (!row.problem.empty()) continue;
    const tools::OutputError& error = row.refit ? *row.refit : row.error;
    points.push_back(
        {row.times.ms, 100 * (1 - error.relative_l2),
         fmt::format("{} {} {}, keep {:g}", row.layer, precision_name(row.precision), mode_of(row), row.keep),
         false, false, fmt::format("{} {}", row.layer, precision_name(row.precision))});
  }
  if (points.empty()) return {};
  for (tools::ParetoPoint& point : points) {
    point.pareto = std::none_of(points.begin(), points.end(), [&](const tools::ParetoPoint& other) {
      return other.front == point.front && other.ms <= point.ms && other.accuracy >= point.accuracy &&
             (other.ms < point.ms || other.accuracy > point.accuracy);
    });
  }
  return tools::pareto_svg("Structured sparsity: time and output kept", points, std::nullopt,
                           "of the output, % (1 - relative error)");
}

}  // namespace pipit::internal::apps
