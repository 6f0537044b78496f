#include "apps/measuring/conv_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "apps/display/csv.h"
#include "apps/display/heat_map.h"
#include "apps/display/table.h"
#include "engine/base/error.h"
#include "engine/base/time_ratio.h"

namespace pipit::apps {

namespace {

using Json = nlohmann::ordered_json;

std::string what_ran(const ConvSummary& summary) {
  return summary.backend == "auto" ? summary.precision : summary.precision + ", " + summary.backend;
}

std::string speedup_text(const MedianInterval& speedup) {
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", speedup.median, speedup.low, speedup.high);
}

std::vector<const ConvRow*> fastest_first(const std::vector<ConvRow>& rows) {
  std::vector<const ConvRow*> order;
  for (const ConvRow& row : rows) {
    if (row.problem.empty()) order.push_back(&row);
  }
  std::stable_sort(order.begin(), order.end(), [](const ConvRow* a, const ConvRow* b) {
    return a->times.speedup.median > b->times.speedup.median;
  });
  return order;
}

}  // namespace

std::string ConvRow::key() const {
  return fmt::format("{}|{}|{}", point.name(), precision, backend);
}

Json ConvRow::json() const {
  Json json = {{"n", point.batch},       {"in", point.in},         {"out", point.out},
               {"size", point.size},     {"kernel", point.kernel}, {"stride", point.stride},
               {"precision", precision}, {"backend", backend}};
  if (!problem.empty()) {
    json["problem"] = problem;
    return json;
  }
  json["runs"] = runs;
  json["base_runs"] = base_runs;
  add_times(json, times, "base_ms");
  json["mae"] = error.mae;
  json["max_error"] = error.max;
  json["relative_l2"] = error.relative_l2;
  json["macs"] = point.macs();
  json["bytes"] = bytes;
  json["arena_bytes"] = arena_bytes;
  return json;
}

ConvRow ConvRow::from_json(const Json& json) try {
  ConvRow row;
  const auto number = [&](const char* name) { return json.at(name).get<std::int64_t>(); };
  row.point = {number("n"), number("in"), number("out"), number("size"), number("kernel"), number("stride")};
  row.precision = json.at("precision").get<std::string>();
  row.backend = json.at("backend").get<std::string>();
  if (json.contains("problem")) {
    row.problem = json.at("problem").get<std::string>();
    return row;
  }
  const auto real = [&](const char* name) { return json.at(name).get<double>(); };
  row.runs = json.at("runs").get<std::string>();
  row.base_runs = json.at("base_runs").get<std::string>();
  row.times = times_of(json, "base_ms");
  row.error = {real("mae"), real("max_error"), real("relative_l2")};
  row.bytes = json.at("bytes").get<std::size_t>();
  row.arena_bytes = json.at("arena_bytes").get<std::size_t>();
  return row;
} catch (const nlohmann::json::exception& e) {
  fail("no row of a sweep: {}", e.what());
}

std::vector<ConvSummary> summaries(const std::vector<ConvRow>& rows) {
  std::vector<ConvSummary> all;
  for (const ConvRow& row : rows) {
    auto at = std::find_if(all.begin(), all.end(), [&](const ConvSummary& s) {
      return s.precision == row.precision && s.backend == row.backend;
    });
    if (at == all.end()) at = all.insert(all.end(), {row.precision, row.backend});
    if (!row.problem.empty()) {
      ++at->problems;
      continue;
    }
    ++at->rows;
    at->geometric_mean += std::log(row.times.speedup.median);
    at->faster += row.times.speedup.low > 1 + kPlaceEffect ? 1 : 0;
    at->slower += row.times.speedup.high < 1 / (1 + kPlaceEffect) ? 1 : 0;
    const auto best = std::find_if(at->best.begin(), at->best.end(),
                                   [&](const ConvRow& b) { return b.point.size == row.point.size; });
    if (best == at->best.end()) {
      at->best.push_back(row);
    } else if (best->times.speedup.median < row.times.speedup.median) {
      *best = row;
    }
  }
  for (ConvSummary& s : all) {
    if (s.rows > 0) s.geometric_mean = std::exp(s.geometric_mean / static_cast<double>(s.rows));
    std::sort(s.best.begin(), s.best.end(),
              [](const ConvRow& a, const ConvRow& b) { return a.point.size < b.point.size; });
  }
  return all;
}

std::string conv_table(const std::vector<ConvRow>& rows, const std::string& base, std::size_t top,
                       int width) {
  using enum Table::Align;
  std::string text;
  for (const ConvSummary& s : summaries(rows)) {
    std::string line = fmt::format("{} against {}: {}", what_ran(s), base,
                                   counted(static_cast<std::int64_t>(s.rows), "layer"));
    if (s.rows > 0)
      line +=
          fmt::format(", {:.2f} times as fast in the geometric mean; {} faster, {} slower, {} not certain",
                      s.geometric_mean, s.faster, s.slower, s.rows - s.faster - s.slower);
    if (s.problems > 0) line += fmt::format("; {} did not run", s.problems);
    text += wrapped(line + "\n", 2, width);
    for (const ConvRow& best : s.best) {
      text += fmt::format("  {:>4} x {:<4} at best {} times, {}\n", best.point.size, best.point.size,
                          speedup_text(best.times.speedup), best.point.name());
    }
  }
  Table table({{"layer", left, 0, true},
               {"runs", left, 1},
               {"precision"},
               {"ms", right},
               {"quartiles", right, 3},
               {base + " ms", right},
               {"x [95 %]", right},
               {"MAE", right, 4},
               {"max", right, 5},
               {"rel. L2", right, 2}});
  const std::vector<const ConvRow*> order = fastest_first(rows);
  for (const ConvRow* row : std::span(order).first(std::min(top, order.size()))) {
    table.add({row->point.name(), row->runs, row->precision, fmt::format("{:.4f}", row->times.ms),
               fmt::format("{:.4f}-{:.4f}", row->times.low_ms, row->times.high_ms),
               fmt::format("{:.4f}", row->times.base_ms), speedup_text(row->times.speedup),
               fmt::format("{:.3g}", row->error.mae), fmt::format("{:.3g}", row->error.max),
               fmt::format("{:.4f}", row->error.relative_l2)});
  }
  if (!order.empty() && top > 0) text += "\n" + table.str(0, width);
  std::map<std::string, std::size_t> problems;
  for (const ConvRow& row : rows) {
    if (!row.problem.empty()) ++problems[row.problem.substr(0, row.problem.find('\n'))];
  }
  for (const auto& [problem, count] : problems)
    text += wrapped(
        fmt::format("{} did not run: {}\n", counted(static_cast<std::int64_t>(count), "layer"), problem), 2,
        width);
  return text;
}

Json summaries_json(const std::vector<ConvRow>& rows) {
  Json json = Json::array();
  for (const ConvSummary& s : summaries(rows)) {
    Json best = Json::array();
    for (const ConvRow& row : s.best) best.push_back(row.json());
    json.push_back({{"precision", s.precision},
                    {"backend", s.backend},
                    {"layers", s.rows},
                    {"did_not_run", s.problems},
                    {"speedup_geometric_mean", s.rows > 0 ? Json(s.geometric_mean) : Json()},
                    {"faster", s.faster},
                    {"slower", s.slower},
                    {"best_by_size", std::move(best)}});
  }
  return json;
}

std::string conv_csv(const std::vector<ConvRow>& rows, const Json& settings) {
  std::string csv = "device,threads,n,in,out,size,kernel,stride,precision,backend,runs,base_runs," +
                    times_csv_titles("base_ms") +
                    ",mae,max_error,relative_l2,macs,bytes,arena_bytes,problem\n";
  for (const ConvRow& row : rows) {
    const ConvPoint& p = row.point;
    csv += csv_cell(settings.at("device").get<std::string>()) + "," + settings.at("threads").dump() + ",";
    csv += fmt::format("{},{},{},{},{},{},{},{},", p.batch, p.in, p.out, p.size, p.kernel, p.stride,
                       row.precision, csv_cell(row.backend));
    if (!row.problem.empty()) {
      csv += std::string(8 + kTimesCsvColumns, ',') + csv_cell(row.problem) + "\n";
      continue;
    }
    csv += fmt::format("{},{},{},", csv_cell(row.runs), csv_cell(row.base_runs), times_csv(row.times));
    csv += fmt::format("{},{},{},{},{},{},\n", row.error.mae, row.error.max, row.error.relative_l2, p.macs(),
                       row.bytes, row.arena_bytes);
  }
  return csv;
}

std::string conv_svg(const std::vector<ConvRow>& rows, const std::string& base) {
  std::set<std::int64_t> sizes, channels;
  for (const ConvRow& row : rows) {
    sizes.insert(row.point.size);
    channels.insert(row.point.in);
  }
  std::vector<HeatMap> maps;
  for (const ConvSummary& s : summaries(rows)) {
    if (s.rows == 0) continue;
    HeatMap map;
    map.title = fmt::format("{}: times as fast as {}, geometric mean {:.2f} of {}", what_ran(s), base,
                            s.geometric_mean, s.rows);
    map.columns_are = "image size";
    map.rows_are = "input channels";
    for (const std::int64_t size : sizes) map.columns.push_back(std::to_string(size));
    for (const std::int64_t in : channels) {
      map.rows.push_back(std::to_string(in));
      std::vector<std::optional<double>>& ratios = map.ratios.emplace_back();
      for (const std::int64_t size : sizes) {
        double sum = 0;
        int count = 0;
        for (const ConvRow& row : rows) {
          if (row.precision != s.precision || row.backend != s.backend || !row.problem.empty()) continue;
          if (row.point.size != size || row.point.in != in) continue;
          sum += std::log(row.times.speedup.median);
          ++count;
        }
        ratios.push_back(count > 0 ? std::optional(std::exp(sum / count)) : std::nullopt);
      }
    }
    maps.push_back(std::move(map));
  }
  return maps.empty() ? std::string() : heat_map_svg(maps);
}

}  // namespace pipit::apps
