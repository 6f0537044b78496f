#include "pipit/report/times_csv.h"

#include <vector>

#include "pipit/report/json_csv.h"

namespace pipit::internal::detail {

using Json = nlohmann::ordered_json;

std::string bench_csv(const Json& document) {
  return json_csv(document.at("results").get<std::vector<Json>>(),
                  {"model",        "device",           "precision",
                   "batch",        "threads",          "streams",
                   "runs",         "median_ms",        "p90_ms",
                   "p99_ms",       "mean_ms",          "cv",
                   "images_per_s", "images_per_s_p10", "images_per_s_p90",
                   "graph_ms",     "load_ms",          "first_run_ms",
                   "arena_bytes",  "peak_rss_bytes",   "error"});
}

std::string compare_csv(const Json& document) {
  std::vector<Json> rows;
  const auto add = [&](const Json& whole, Json row, const std::string& what) {
    // A copy: a new member moves those that are there.
    if (const Json interval = row.value("interval95", Json()); interval.is_array()) {
      row["ratio_low"] = interval.at(0);
      row["ratio_high"] = interval.at(1);
    }
    row["first"] = whole.at("first");
    row["second"] = whole.at("second");
    row["row"] = what;
    rows.push_back(std::move(row));
  };
  for (const Json& comparison : document.at("comparisons")) {
    add(comparison, comparison, comparison.at("what").get<std::string>());
    if (!comparison.contains("layers")) continue;
    for (const Json& layer : comparison.at("layers")) add(comparison, layer, "layer");
  }
  return json_csv(rows, {"first", "second", "row", "name", "type", "first_ms", "second_ms", "ratio",
                         "ratio_low", "ratio_high", "verdict"});
}

}  // namespace pipit::internal::detail
