#include "engine/plan/tuning_cache.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/file.h"
#include "engine/base/json_problem.h"
#include "engine/base/parse_json.h"

namespace pipit::internal {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::string_view kFormat = "pipit tuning cache 3";
// Some hundred times what a model needs.
constexpr std::uintmax_t kMaxBytes = std::uintmax_t{16} << 20;
constexpr int kMaxLevels = 6;

double milliseconds(const JsonDocument& value) {
  const double ms = value.get<double>();
  if (!std::isfinite(ms) || ms < 0) fail("a time of {} ms", ms);
  return ms;
}

Tuner::Decision decision_of(const JsonDocument& entry) {
  Tuner::Decision decision;
  decision.kernel = entry.at("kernel").get<std::string>();
  decision.variant = entry.at("variant").get<std::string>();
  for (const JsonDocument& timed : entry.at("timed")) {
    TimedKernel kernel{timed.at("kernel").get<std::string>(), timed.at("variant").get<std::string>(), 0, {}};
    if (timed.contains("problem")) {
      kernel.problem = timed.at("problem").get<std::string>();
    } else {
      kernel.ms = milliseconds(timed.at("ms"));
    }
    decision.timed.push_back(std::move(kernel));
  }
  return decision;
}

json to_json(const Tuner::Decision& decision) {
  json timed = json::array();
  for (const TimedKernel& kernel : decision.timed) {
    json entry = {{"kernel", kernel.name}, {"variant", kernel.variant}};
    if (kernel.problem.empty()) {
      entry["ms"] = kernel.ms;
    } else {
      entry["problem"] = kernel.problem;
    }
    timed.push_back(std::move(entry));
  }
  return {{"kernel", decision.kernel}, {"variant", decision.variant}, {"timed", std::move(timed)}};
}

}  // namespace

TuningCache read_tuning_cache(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return {};
  if (status.type() == fs::file_type::none) fail("{}: {}", path.string(), error.message());
  const std::string text = read_file(path, kMaxBytes);
  TuningCache cache;
  try {
    const JsonDocument document = parse_json(text, kMaxLevels);
    if (!document.is_object() || !document.contains("format") || !document.contains("devices"))
      fail("it is not an object with format and devices; delete it, or name another file");
    if (document.at("format").get<std::string>() != kFormat)
      fail("its format is {}, not \"{}\"; delete it, or name another file", shown(document.at("format")),
           kFormat);
    for (const auto& [device, decisions] : document.at("devices").items()) {
      for (const auto& [key, entry] : decisions.items()) cache[device][key] = decision_of(entry);
    }
  } catch (const json::exception& e) {
    fail("{}: not a tuning cache: {}", path.string(), json_problem(e.what()));
  } catch (const Error& e) {
    fail("{}: not a tuning cache: {}", path.string(), e.what());
  }
  return cache;
}

std::string merge_tuning_cache(const fs::path& path, const TuningCache& decisions) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) fail("{}: its folder cannot be made: {}", path.string(), error.message());
  const FileLock lock(path);
  TuningCache all;
  try {
    all = read_tuning_cache(path);
  } catch (const Error&) {
    all.clear();
  }
  json devices = json::object();
  for (const auto& [device, fresh] : decisions) {
    for (const auto& [key, decision] : fresh) all[device].insert_or_assign(key, decision);
  }
  for (const auto& [device, entries] : all) {
    json& list = devices[device] = json::object();
    for (const auto& [key, decision] : entries) list[key] = to_json(decision);
  }
  const json document = {{"format", kFormat}, {"devices", std::move(devices)}};
  write_file(path, document.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
  return lock.problem();
}

}  // namespace pipit::internal
