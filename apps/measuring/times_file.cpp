#include "apps/measuring/times_file.h"

#include <algorithm>
#include <cmath>

#include "apps/measuring/timing.h"
#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/parse_json.h"

namespace pipit::apps {

namespace {

constexpr std::uint64_t kMostTimesBytes = std::uint64_t{256} << 20;
constexpr int kMostTimesLevels = 12;

// Where the first JSON object of the text ends; all of it where none does.
std::size_t document_end(std::string_view text) {
  int open = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{') {
      ++open;
    } else if (c == '}' && --open == 0) {
      return i + 1;
    }
  }
  return text.size();
}

const JsonDocument& member(const JsonDocument& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end()) fail("there is no \"{}\"", key);
  return *found;
}

std::string text_of(const JsonDocument& json, const char* key) {
  const JsonDocument& value = member(json, key);
  if (!value.is_string()) fail("\"{}\" is {}; expected text", key, shown(value));
  return value.get<std::string>();
}

std::int64_t count_of(const JsonDocument& json, const char* key) {
  const JsonDocument& value = member(json, key);
  if (!value.is_number_unsigned()) fail("\"{}\" is {}; expected a count", key, shown(value));
  return value.get<std::int64_t>();
}

std::vector<double> times_of(const JsonDocument& json) {
  const JsonDocument& value = member(json, "samples_ms");
  if (!value.is_array() || value.empty())
    fail("\"samples_ms\" is {}; expected a list of times", shown(value));
  std::vector<double> times;
  for (const JsonDocument& entry : value) {
    if (!entry.is_number() || !std::isfinite(entry.get<double>()) || entry.get<double>() < 0)
      fail("\"samples_ms\" has {}; expected times", shown(entry));
    times.push_back(entry.get<double>());
  }
  return times;
}

TimedRuns::Layer layer_of(const JsonDocument& json) {
  TimedRuns::Layer layer;
  layer.name = text_of(json, "name");
  layer.type = text_of(json, "type");
  const JsonDocument& nodes = member(json, "nodes");
  if (!nodes.is_array()) fail("\"nodes\" is {}; expected a list of names", shown(nodes));
  for (const JsonDocument& node : nodes) {
    if (!node.is_string()) fail("\"nodes\" has {}; expected names", shown(node));
    layer.nodes.push_back(node.get<std::string>());
  }
  layer.processes.push_back(times_of(json));
  return layer;
}

// One row of bench, or one setting of profile. `document` has what rows of bench do not repeat.
TimedRuns runs_of(const JsonDocument& json, const JsonDocument& document) {
  TimedRuns runs;
  runs.model = text_of(json, "model");
  runs.device = text_of(json, "device");
  runs.precision = text_of(json, "precision");
  runs.machine = text_of(json.contains("machine") ? json : document, "machine");
  runs.batch = count_of(json, "batch");
  runs.threads = static_cast<int>(std::min<std::int64_t>(count_of(json, "threads"), 1 << 20));
  runs.processes.push_back(times_of(json));
  if (!json.contains("layers")) return runs;
  if (!json["layers"].is_array()) fail("\"layers\" is {}; expected a list", shown(json["layers"]));
  for (const JsonDocument& layer : json["layers"]) runs.layers.push_back(layer_of(layer));
  return runs;
}

bool same_setting(const TimedRuns& a, const TimedRuns& b) {
  return a.model == b.model && a.device == b.device && a.precision == b.precision && a.batch == b.batch &&
         a.threads == b.threads;
}

// Another process of the same. Its layers have to be the same too: what kernels fuse may depend on timing.
void add_process(TimedRuns& runs, TimedRuns more) {
  runs.processes.push_back(std::move(more.processes[0]));
  const auto same_nodes = [](const TimedRuns::Layer& a, const TimedRuns::Layer& b) {
    return a.nodes == b.nodes;
  };
  if (!std::ranges::equal(runs.layers, more.layers, same_nodes)) {
    runs.layers.clear();
    return;
  }
  for (std::size_t l = 0; l < runs.layers.size(); ++l)
    runs.layers[l].processes.push_back(std::move(more.layers[l].processes[0]));
}

void add_document(std::vector<TimedRuns>& all, const JsonDocument& json) {
  const std::string command = text_of(json, "command");
  if (command != "profile" && command != "bench")
    fail("it is of pipit {}; expected the JSON of profile or bench", command);
  if (count_of(json, "schema") != kTimesSchema)
    fail("its schema is {}; this version of pipit reads {}", shown(json["schema"]), kTimesSchema);
  const auto add = [&](const JsonDocument& row) {
    if (row.is_object() && row.contains("error")) return;
    TimedRuns runs = runs_of(row, json);
    const auto known = std::ranges::find_if(all, [&](const TimedRuns& r) { return same_setting(r, runs); });
    if (known == all.end()) {
      all.push_back(std::move(runs));
    } else {
      add_process(*known, std::move(runs));
    }
  };
  if (!json.contains("results")) return add(json);
  if (!json["results"].is_array()) fail("\"results\" is {}; expected a list", shown(json["results"]));
  for (const JsonDocument& row : json["results"]) add(row);
}

}  // namespace

std::vector<TimedRuns> read_times(const std::string& path) {
  const std::string content = read_file(path, kMostTimesBytes);
  std::vector<TimedRuns> all;
  try {
    std::string_view rest = content;
    do {
      const std::size_t end = document_end(rest);
      add_document(all, parse_json(rest.substr(0, end), kMostTimesLevels));
      rest.remove_prefix(end);
      rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
    } while (!rest.empty());
  } catch (const Error& e) {
    fail("{}: {}", path, e.what());
  }
  if (all.empty()) fail("{}: every row of it has an error", path);
  return all;
}

}  // namespace pipit::apps
