#include "apps/display/profile_files.h"

#include <fmt/format.h>

#include <numeric>

#include "apps/display/json_csv.h"

namespace pipit::internal::apps {

namespace {

using Json = nlohmann::ordered_json;

// Without blanks; names may hold bytes that are not UTF-8.
std::string compact(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::vector<Json> results_of(const Json& document) {
  const auto found = document.find("results");
  if (found == document.end()) return {document};
  return found->get<std::vector<Json>>();
}

std::string profile_csv(const Json& document) {
  const std::vector<std::string> of_result = {"model", "device", "precision", "batch", "threads"};
  std::vector<Json> rows;
  for (const Json& result : results_of(document)) {
    for (const Json& layer : result["layers"]) {
      Json row = layer;
      for (const std::string& key : of_result) row[key] = result[key];
      if (!row.contains("kept")) row["kept"] = 1;
      std::string nodes;
      for (const Json& node : layer["nodes"]) nodes += (nodes.empty() ? "" : " ") + node.get<std::string>();
      row["nodes"] = nodes;
      rows.push_back(std::move(row));
    }
  }
  std::vector<std::string> keys = of_result;
  for (const char* key :
       {"index",     "name",       "type",           "kernel",        "variant",      "input",
        "output",    "input_type", "output_type",    "geometry",      "macs",         "bytes",
        "kept",      "median_ms",  "p10_ms",         "p90_ms",        "share",        "gflops",
        "done_macs", "products",   "moved_bytes",    "flop_per_byte", "weight_bytes", "workspace_bytes",
        "floor_us",  "x_floor",    "share_of_limit", "bound",         "nodes"})
    keys.emplace_back(key);
  return json_csv(rows, keys);
}

namespace {

// One result is one process of the trace.
class TraceEvents {
 public:
  TraceEvents(Json& events, const Json& result, int process)
      : events_(events), result_(result), process_(process) {}

  void add() {
    const bool gpu = result_["device"] != "cpu";
    add_name("process_name", fmt::format("{}, {}, batch {}", result_["model"].get<std::string>(),
                                         result_["precision"].get<std::string>(), result_["batch"].dump()));
    add_name("thread_name",
             gpu ? "kernels on the GPU" : "kernels, " + result_["threads"].dump() + " threads");
    const Json& run = result_["run"];
    add_slice(fmt::format("run {}", run["index"].dump()), "run", 0, run["ms"],
              {{"run", run["index"]}, {"median_ms", result_["end_to_end_ms"]}});
    add_micro_batches();
    for (const Json& call : run["calls"]) add_call(call);
  }

 private:
  static double microseconds(const Json& ms) { return 1e3 * ms.get<double>(); }

  void add_name(const char* what, const std::string& name) {
    events_.push_back(
        {{"ph", "M"}, {"name", what}, {"pid", process_}, {"tid", 1}, {"args", {{"name", name}}}});
  }
  void add_slice(const std::string& name, const Json& category, const Json& begin_ms, const Json& ms,
                 Json args) {
    events_.push_back({{"ph", "X"},
                       {"name", name},
                       {"cat", category},
                       {"pid", process_},
                       {"tid", 1},
                       {"ts", microseconds(begin_ms)},
                       {"dur", microseconds(ms)},
                       {"args", std::move(args)}});
  }
  void add_micro_batches() {
    const Json& calls = result_["run"]["calls"];
    const std::size_t layers = result_["layers"].size();
    const auto runs = result_["micro_batch"]["runs"].get<std::size_t>();
    for (std::size_t b = 0; runs > 1 && (b + 1) * layers <= calls.size(); ++b) {
      const Json& first = calls[b * layers];
      const Json& last = calls[(b + 1) * layers - 1];
      const double begin = first["begin_ms"];
      add_slice(fmt::format("micro-batch {}", b), "micro-batch", begin,
                last["begin_ms"].get<double>() + last["ms"].get<double>() - begin, Json::object());
    }
  }
  void add_call(const Json& call) {
    const auto index = call["layer"].get<std::size_t>();
    const Json& layer = result_["layers"][index];
    Json args;
    for (const char* key : {"index", "kernel", "variant", "geometry", "input", "output", "input_type",
                            "output_type", "macs", "bytes", "median_ms", "nodes"}) {
      if (layer.contains(key)) args[key] = layer[key];
    }
    add_slice(layer["name"].get<std::string>(), layer["type"], call["begin_ms"], call["ms"], std::move(args));
    events_.push_back({{"ph", "C"},
                       {"name", "arena"},
                       {"pid", process_},
                       {"ts", microseconds(call["begin_ms"])},
                       {"args", {{"live bytes", result_["arena"]["live_bytes"][index]}}}});
  }

  Json& events_;
  const Json& result_;
  int process_;
};

}  // namespace

std::string chrome_trace(const Json& document) {
  Json trace = {{"displayTimeUnit", "ms"}};
  trace["otherData"] = {{"pipit", document["pipit"]}, {"measured_at", document["measured_at"]}};
  for (const Json& finding : document["environment"])
    trace["otherData"][finding["name"].get<std::string>()] = finding["value"];
  Json& events = trace["traceEvents"] = Json::array();
  int process = 0;
  for (const Json& result : results_of(document)) TraceEvents(events, result, ++process).add();
  return compact(trace) + "\n";
}

std::string trtexec_profile(const Json& document) {
  std::vector<double> sums;
  for (const Json& layer : document["layers"]) {
    const auto ms = layer["samples_ms"].get<std::vector<double>>();
    sums.push_back(std::accumulate(ms.begin(), ms.end(), 0.0));
  }
  const double all = std::accumulate(sums.begin(), sums.end(), 0.0);
  const double runs = document["runs"];
  std::string text = "[\n  " + compact({{"count", document["runs"]}}) + "\n";
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const Json& layer = document["layers"][i];
    text += ", " +
            compact({{"name", layer["name"]},
                     {"timeMs", sums[i]},
                     {"averageMs", sums[i] / runs},
                     {"medianMs", layer["median_ms"]},
                     {"percentage", all > 0 ? 100 * sums[i] / all : 0}}) +
            "\n";
  }
  return text + "]\n";
}

}  // namespace pipit::internal::apps
