#include "pipit/sweeping/conv_rows.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "pipit/measuring/json_documents.h"
#include "pipit/sweeping/layer_times.h"

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;
using tools::ConvBase;

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

}  // namespace

std::string key_of(const tools::ConvRow& row) {
  return fmt::format("{}|{}|{}", row.point.name(), precision_name(row.precision), row.backend);
}

Json conv_row_json(const tools::ConvRow& row) {
  const tools::ConvPoint& point = row.point;
  Json json = {{"n", point.batch},
               {"in", point.in},
               {"out", point.out},
               {"size", point.size},
               {"kernel", point.kernel},
               {"stride", point.stride},
               {"precision", precision_name(row.precision)},
               {"backend", row.backend}};
  if (!row.problem.empty()) {
    json["problem"] = row.problem;
    return json;
  }
  json["runs"] = row.runs;
  add_times(json, row.times);
  if (row.cached_ms > 0) json["cached_ms"] = row.cached_ms;
  if (row.floor_ms > 0) {
    json["floor_ms"] = row.floor_ms;
    json["share_of_limit"] = row.floor_ms / row.times.ms;
    json["binds"] = row.binds;
  }
  json["against"] = Json::array();
  for (const ConvBase& base : row.against) json["against"].push_back(base_json(base));
  json["mae"] = row.mae;
  json["max_error"] = row.max_error;
  json["relative_l2"] = row.relative_l2;
  json["macs"] = point.macs();
  json["bytes"] = row.bytes;
  json["arena_bytes"] = row.arena_bytes;
  return json;
}

tools::ConvRow conv_row_from(const Json& json) try {
  tools::ConvRow row;
  const auto number = [&](const char* name) { return count_of(json, name); };
  row.point = {number("n"), number("in"), number("out"), number("size"), number("kernel"), number("stride")};
  row.precision = precision_of(json);
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
  row.mae = amount_of(json, "mae");
  row.max_error = amount_of(json, "max_error");
  row.relative_l2 = amount_of(json, "relative_l2");
  row.bytes = static_cast<std::int64_t>(bytes_of(json, "bytes"));
  row.arena_bytes = static_cast<std::int64_t>(bytes_of(json, "arena_bytes"));
  return row;
} catch (const Error& e) {
  fail("no row of a sweep: {}", e.what());
}

}  // namespace pipit::internal::detail
