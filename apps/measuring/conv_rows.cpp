#include "apps/measuring/conv_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/measuring/json_documents.h"
#include "engine/base/error.h"
#include "pipit/report/csv.h"

namespace pipit::internal::apps {

namespace {

using Json = nlohmann::ordered_json;

Json base_json(const ConvBase& base) {
  Json json = {{"base", base.base}};
  if (!base.problem.empty()) {
    json["problem"] = base.problem;
    return json;
  }
  json["runs"] = base.runs;
  json["ms"] = base.ms;
  add_speedup(json, base.speedup);
  if (base.cached_ms > 0) {
    json["cached_ms"] = base.cached_ms;
    add_speedup(json, base.cached_speedup, "cached_");
  }
  return json;
}

ConvBase base_from(const Json& json) {
  ConvBase base;
  base.base = text_of(json, "base");
  if (json.contains("problem")) {
    base.problem = text_of(json, "problem");
    return base;
  }
  base.runs = text_of(json, "runs");
  base.ms = positive_of(json, "ms");
  base.speedup = speedup_of(json);
  if (json.contains("cached_ms")) {
    base.cached_ms = positive_of(json, "cached_ms");
    base.cached_speedup = speedup_of(json, "cached_");
  }
  return base;
}

// Empty where it was not measured.
std::string number_cell(double value) {
  return value > 0 ? fmt::format("{}", value) : "";
}

constexpr const char* kBaseTitles[] = {"runs",
                                       "ms",
                                       "speedup",
                                       "speedup_low",
                                       "speedup_high",
                                       "cached_ms",
                                       "cached_speedup",
                                       "cached_speedup_low",
                                       "cached_speedup_high"};
constexpr std::size_t kBaseColumns = std::size(kBaseTitles);

// With a comma after each.
std::string base_cells(const ConvBase* base) {
  if (base == nullptr || !base->problem.empty()) return std::string(kBaseColumns, ',');
  std::string cells = fmt::format("{},{},{},{},{},", detail::csv_cell(base->runs), base->ms,
                                  base->speedup.median, base->speedup.low, base->speedup.high);
  if (base->cached_ms == 0) return cells + ",,,,";
  const MedianInterval& cached = base->cached_speedup;
  return cells + fmt::format("{},{},{},{}", base->cached_ms, cached.median, cached.low, cached.high) + ",";
}

}  // namespace

std::string ConvRow::key() const {
  return fmt::format("{}|{}|{}", point.name(), precision, backend);
}

std::string ConvRow::how() const {
  return backend == "auto" ? precision : precision + ", " + backend;
}

const ConvBase* ConvRow::find(const std::string& base) const {
  const auto found = std::ranges::find(against, base, &ConvBase::base);
  return found == against.end() || !found->problem.empty() ? nullptr : &*found;
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
  add_times(json, times);
  if (cached_ms > 0) json["cached_ms"] = cached_ms;
  if (floor_ms > 0) {
    json["floor_ms"] = floor_ms;
    json["share_of_limit"] = floor_ms / times.ms;
    json["binds"] = binds;
  }
  json["against"] = Json::array();
  for (const ConvBase& base : against) json["against"].push_back(base_json(base));
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
  const auto number = [&](const char* name) { return count_of(json, name); };
  row.point = {number("n"), number("in"), number("out"), number("size"), number("kernel"), number("stride")};
  row.precision = text_of(json, "precision");
  row.backend = text_of(json, "backend");
  if (json.contains("problem")) {
    row.problem = text_of(json, "problem");
    return row;
  }
  row.runs = text_of(json, "runs");
  row.times = times_of(json);
  if (json.contains("cached_ms")) row.cached_ms = positive_of(json, "cached_ms");
  if (json.contains("floor_ms")) {
    row.floor_ms = positive_of(json, "floor_ms");
    row.binds = text_of(json, "binds");
  }
  for_each_entry(json, "against", [&](const Json& base) { row.against.push_back(base_from(base)); });
  row.error = {amount_of(json, "mae"), amount_of(json, "max_error"), amount_of(json, "relative_l2")};
  row.bytes = bytes_of(json, "bytes");
  row.arena_bytes = bytes_of(json, "arena_bytes");
  return row;
} catch (const Error& e) {
  fail("no row of a sweep: {}", e.what());
}

std::string conv_csv(const std::vector<ConvRow>& rows, const Json& settings,
                     const std::vector<std::string>& bases) {
  std::string csv =
      "device,threads,n,in,out,size,kernel,stride,precision,backend,runs,ms,ms_low,ms_high,turns,samples_ms,"
      "cached_ms,floor_ms,binds,";
  for (const std::string& base : bases) {
    for (const char* title : kBaseTitles) csv += fmt::format("{}_{},", base, title);
  }
  csv += "mae,max_error,relative_l2,macs,bytes,arena_bytes,problem\n";
  for (const ConvRow& row : rows) {
    const ConvPoint& p = row.point;
    csv += detail::csv_cell(settings.at("device").get<std::string>()) + "," + settings.at("threads").dump() +
           ",";
    csv += fmt::format("{},{},{},{},{},{},{},{},", p.batch, p.in, p.out, p.size, p.kernel, p.stride,
                       row.precision, detail::csv_cell(row.backend));
    if (!row.problem.empty()) {
      csv += std::string(15 + kBaseColumns * bases.size(), ',') +
             detail::csv_cell(detail::csv_name(row.problem)) + "\n";
      continue;
    }
    csv +=
        fmt::format("{},{},{},{},{},{},{},{},{},", detail::csv_cell(row.runs), row.times.ms, row.times.low_ms,
                    row.times.high_ms, row.times.turns, fmt::join(row.times.samples_ms, " "),
                    number_cell(row.cached_ms), number_cell(row.floor_ms), row.binds);
    for (const std::string& base : bases) csv += base_cells(row.find(base));
    csv += fmt::format("{},{},{},{},{},{},\n", row.error.mae, row.error.max, row.error.relative_l2, p.macs(),
                       row.bytes, row.arena_bytes);
  }
  return csv;
}

}  // namespace pipit::internal::apps
