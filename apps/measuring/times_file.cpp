#include "apps/measuring/times_file.h"

#include <algorithm>

#include "apps/measuring/json_documents.h"
#include "apps/measuring/timing.h"
#include "engine/base/error.h"
#include "engine/base/file.h"

namespace pipit::apps {

namespace {

constexpr std::uint64_t kMostTimesBytes = std::uint64_t{256} << 20;
constexpr int kMostTimesLevels = 12;

std::int64_t count_of(const JsonDocument& json, const char* key) {
  const JsonDocument& value = member_of(json, key);
  if (!value.is_number_unsigned()) fail("\"{}\" is {}; expected a count", key, shown(value));
  return value.get<std::int64_t>();
}

int threads_of(const JsonDocument& json, const char* key) {
  return static_cast<int>(std::min<std::int64_t>(count_of(json, key), 1 << 20));
}

TimedRuns::Layer layer_of(const JsonDocument& json) {
  TimedRuns::Layer layer;
  layer.name = text_of(json, "name");
  layer.type = text_of(json, "type");
  const JsonDocument& nodes = member_of(json, "nodes");
  if (!nodes.is_array()) fail("\"nodes\" is {}; expected a list of names", shown(nodes));
  for (const JsonDocument& node : nodes) {
    if (!node.is_string()) fail("\"nodes\" has {}; expected names", shown(node));
    layer.nodes.push_back(node.get<std::string>());
  }
  layer.processes.push_back(samples_ms_of(json));
  return layer;
}

// One row of bench, or one setting of profile. `document` has what rows of bench do not repeat.
TimedRuns runs_of(const JsonDocument& json, const JsonDocument& document) {
  TimedRuns runs;
  runs.command = text_of(document, "command");
  runs.model = text_of(json, "model");
  runs.device = text_of(json, "device");
  runs.precision = text_of(json, "precision");
  runs.machine = text_of(json.contains("machine") ? json : document, "machine");
  runs.batch = count_of(json, "batch");
  runs.threads = threads_of(json, "threads");
  if (json.contains("streams")) runs.streams = threads_of(json, "streams");
  runs.processes.push_back(samples_ms_of(json));
  if (!json.contains("layers")) return runs;
  if (!json["layers"].is_array()) fail("\"layers\" is {}; expected a list", shown(json["layers"]));
  for (const JsonDocument& layer : json["layers"]) runs.layers.push_back(layer_of(layer));
  return runs;
}

bool same_setting(const TimedRuns& a, const TimedRuns& b) {
  return a.model == b.model && a.device == b.device && a.precision == b.precision && a.batch == b.batch &&
         a.threads == b.threads && a.streams == b.streams;
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
  if (path.ends_with(".csv"))
    fail("{}: of profile and bench the JSON is read (--output FILE.json); CSV is where it is of a sweep",
         path);
  std::vector<TimedRuns> all;
  try {
    for_each_document(content, kMostTimesLevels, [&](const JsonDocument& json) { add_document(all, json); });
  } catch (const Error& e) {
    fail("{}: {}", path, e.what());
  }
  if (all.empty()) fail("{}: every row of it has an error", path);
  return all;
}

}  // namespace pipit::apps
