#include "apps/measuring/sweep_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/display/table.h"
#include "apps/measuring/json_documents.h"
#include "apps/measuring/sweep_file.h"
#include "engine/base/error.h"
#include "pipit/report.h"
#include "pipit/report/csv.h"

namespace pipit::internal::apps {

namespace {

using Json = nlohmann::ordered_json;

Json error_json(const LayerError& error) {
  return {{"mae", error.mae},
          {"max_error", error.max},
          {"relative_l2", error.relative_l2},
          {"top10", error.top10}};
}

LayerError error_from(const Json& json) {
  return {amount_of(json, "mae"), amount_of(json, "max_error"), amount_of(json, "relative_l2"),
          share_of(json, "top10")};
}

}  // namespace

std::string SweepRow::key() const {
  return fmt::format("{}|{}|{}|{:.6f}", layer, precision, mode, keep);
}

Json SweepRow::json() const {
  Json json = {{"layer", layer}, {"precision", precision}, {"mode", mode}, {"keep", keep}};
  if (!problem.empty()) {
    json["problem"] = problem;
    return json;
  }
  json["kept"] = kept;
  json["kernel"] = kernel;
  json["dense_kernel"] = dense_kernel;
  add_times(json, times, "dense_ms");
  json["error"] = error_json(error);
  if (refit) json["refit"] = error_json(*refit);
  return json;
}

SweepRow SweepRow::from_json(const Json& json) try {
  SweepRow row;
  row.layer = text_of(json, "layer");
  row.precision = text_of(json, "precision");
  row.mode = text_of(json, "mode");
  row.keep = share_of(json, "keep");
  if (json.contains("problem")) {
    row.problem = text_of(json, "problem");
    return row;
  }
  row.kept = share_of(json, "kept");
  row.kernel = text_of(json, "kernel");
  row.dense_kernel = text_of(json, "dense_kernel");
  row.times = times_of(json, "dense_ms");
  row.error = error_from(object_of(json, "error"));
  if (json.contains("refit")) row.refit = error_from(object_of(json, "refit"));
  return row;
} catch (const Error& e) {
  fail("no row of a sweep: {}", e.what());
}

std::string sweep_table(const std::vector<SweepRow>& rows, int width) {
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
  for (const SweepRow& row : rows) {
    std::vector<std::string> cells{row.layer, row.precision, row.mode, fmt::format("{:.2f}", row.keep)};
    if (!row.problem.empty()) {
      cells.resize(columns.size() - 1);
      cells.push_back(row.problem.substr(0, row.problem.find('\n')));
    } else {
      cells.insert(cells.end(), {fmt::format("{:.4f}", row.times.ms),
                                 fmt::format("{:.4f}-{:.4f}", row.times.low_ms, row.times.high_ms),
                                 fmt::format("{:.2f}", row.times.speedup.median), row.kernel,
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

std::string sweep_csv(const std::vector<SweepRow>& rows, const Json& settings) {
  std::string csv =
      "device,threads,layer,precision,mode,keep,kept,kernel,dense_kernel," + times_csv_titles("dense_ms") +
      ",mae,max_error,relative_l2,top10,refit_mae,refit_max_error,refit_relative_l2,refit_top10,"
      "problem\n";
  const auto errors = [](const LayerError& e) {
    return fmt::format(",{},{},{},{}", e.mae, e.max, e.relative_l2, e.top10);
  };
  for (const SweepRow& row : rows) {
    csv += detail::csv_cell(settings.at("device").get<std::string>()) + "," + settings.at("threads").dump() +
           ",";
    csv += fmt::format("{},{},{},{},", detail::csv_cell(detail::csv_name(row.layer)), row.precision, row.mode,
                       row.keep);
    if (!row.problem.empty()) {
      csv += std::string(11 + kTimesCsvColumns, ',') + detail::csv_cell(detail::csv_name(row.problem)) + "\n";
      continue;
    }
    csv += fmt::format("{},{},{},{}", row.kept, detail::csv_cell(row.kernel),
                       detail::csv_cell(row.dense_kernel), times_csv(row.times));
    csv += errors(row.error) + (row.refit ? errors(*row.refit) : ",,,,") + ",\n";
  }
  return csv;
}

std::string sweep_svg(const std::vector<SweepRow>& rows) {
  std::vector<tools::ParetoPoint> points;
  for (const SweepRow& row : rows) {
    if (!row.problem.empty()) continue;
    const LayerError& error = row.refit ? *row.refit : row.error;
    points.push_back({row.times.ms, 100 * (1 - error.relative_l2),
                      fmt::format("{} {} {}, keep {:g}", row.layer, row.precision, row.mode, row.keep), false,
                      false, fmt::format("{} {}", row.layer, row.precision)});
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

SweepFile::SweepFile(std::string path, const Json& settings, bool resume) : lines_(path, settings, resume) {
  for (std::size_t i = 0; i < lines_.found().size(); ++i) {
    try {
      rows_.push_back(SweepRow::from_json(lines_.found()[i]));
      if (!keys_.insert(rows_.back().key()).second) fail_repeated(rows_.back().key());
    } catch (const Error& e) {
      fail("{}: line {}: {}", path, i + 2, e.what());
    }
  }
}

void SweepFile::append(SweepRow row) {
  lines_.append(row.json());
  keys_.insert(row.key());
  rows_.push_back(std::move(row));
}

}  // namespace pipit::internal::apps
