#include "pipit/measuring/times_file.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "pipit/measuring/json_documents.h"
#include "pipit/measuring/timing.h"
#include "pipit/text.h"

namespace pipit::internal::detail {

namespace {

constexpr std::uint64_t kMaxTimesBytes = std::uint64_t{256} << 20;
constexpr int kMaxTimesLevels = 12;

int threads_of(const JsonDocument& json, const char* key) {
  return static_cast<int>(count_of(json, key));
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
  layer.processes.push_back(layer_samples_ms_of(json));
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
  for_each_entry(json, "layers", [&](const JsonDocument& layer) { runs.layers.push_back(layer_of(layer)); });
  return runs;
}

bool same_setting(const TimedRuns& a, const TimedRuns& b) {
  return a.model == b.model && a.device == b.device && a.precision == b.precision && a.batch == b.batch &&
         a.threads == b.threads && a.streams == b.streams;
}

TimedRuns without_times(TimedRuns runs) {
  runs.processes.clear();
  runs.layers.clear();
  return runs;
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
  std::vector<TimedRuns> of_document;
  const auto add = [&](const JsonDocument& row) {
    if (row.is_object() && row.contains("error")) return;
    TimedRuns runs = runs_of(row, json);
    // One process: twice in the file, its runs would count as those of two.
    if (std::ranges::any_of(of_document, [&](const TimedRuns& r) { return same_setting(r, runs); }))
      fail("{}, {}, is there twice", runs.text(), printable(runs.device));
    of_document.push_back(without_times(runs));
    const auto known = std::ranges::find_if(all, [&](const TimedRuns& r) { return same_setting(r, runs); });
    if (known == all.end()) {
      all.push_back(std::move(runs));
    } else {
      add_process(*known, std::move(runs));
    }
  };
  if (!json.contains("results")) return add(json);
  for_each_entry(json, "results", add);
}

}  // namespace

std::vector<TimedRuns> read_times(const std::string& path) {
  const std::string content = read_file(path, kMaxTimesBytes);
  if (path.ends_with(".csv"))
    fail("{}: for profile and bench give the JSON (--output FILE.json); CSV is read only for sweeps", path);
  std::vector<TimedRuns> all;
  try {
    for_each_document(content, kMaxTimesLevels, [&](const JsonDocument& json) { add_document(all, json); });
  } catch (const Error& e) {
    fail("{}: {}", path, e.what());
  }
  if (all.empty()) fail("{}: every row has an error", path);
  return all;
}

}  // namespace pipit::internal::detail
