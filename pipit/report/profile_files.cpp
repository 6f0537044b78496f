#include "pipit/report/profile_files.h"

#include <fmt/format.h>

#include <numeric>

#include "pipit/report/json_csv.h"

namespace pipit::internal::detail {

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
    for (const Json& layer : result.at("layers")) {
      Json row = layer;
      for (const std::string& key : of_result) row[key] = result.at(key);
      if (!row.contains("kept")) row["kept"] = 1;
      std::string nodes;
      for (const Json& node : layer.at("nodes"))
        nodes += (nodes.empty() ? "" : " ") + node.get<std::string>();
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
    const bool gpu = result_.at("device") != "cpu";
    add_name("process_name",
             fmt::format("{}, {}, batch {}", result_.at("model").get<std::string>(),
                         result_.at("precision").get<std::string>(), result_.at("batch").dump()));
    add_name("thread_name",
             gpu ? "kernels on the GPU" : "kernels, " + result_.at("threads").dump() + " threads");
    const Json& run = result_.at("run");
    add_slice(fmt::format("run {}", run.at("index").dump()), "run", 0, run.at("ms"),
              {{"run", run.at("index")}, {"median_ms", result_.at("end_to_end_ms")}});
    add_micro_batches();
    for (const Json& call : run.at("calls")) add_call(call);
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
    const Json& calls = result_.at("run").at("calls");
    const std::size_t layers = result_.at("layers").size();
    const auto runs = result_.at("micro_batch").at("runs").get<std::size_t>();
    for (std::size_t b = 0; runs > 1 && (b + 1) * layers <= calls.size(); ++b) {
      const Json& first = calls[b * layers];
      const Json& last = calls[(b + 1) * layers - 1];
      const double begin = first.at("begin_ms");
      add_slice(fmt::format("micro-batch {}", b), "micro-batch", begin,
                last.at("begin_ms").get<double>() + last.at("ms").get<double>() - begin, Json::object());
    }
  }
  void add_call(const Json& call) {
    const auto index = call.at("layer").get<std::size_t>();
    const Json& layer = result_.at("layers").at(index);
    Json args;
    for (const char* key : {"index", "kernel", "variant", "geometry", "input", "output", "input_type",
                            "output_type", "macs", "bytes", "median_ms", "nodes"}) {
      if (layer.contains(key)) args[key] = layer[key];
    }
    add_slice(layer.at("name").get<std::string>(), layer.at("type"), call.at("begin_ms"), call.at("ms"),
              std::move(args));
    events_.push_back({{"ph", "C"},
                       {"name", "arena"},
                       {"pid", process_},
                       {"ts", microseconds(call.at("begin_ms"))},
                       {"args", {{"live bytes", result_.at("arena").at("live_bytes").at(index)}}}});
  }

  Json& events_;
  const Json& result_;
  int process_;
};

}  // namespace

std::string chrome_trace(const Json& document) {
  Json trace = {{"displayTimeUnit", "ms"}};
  trace["otherData"] = {{"pipit", document.at("pipit")}, {"measured_at", document.at("measured_at")}};
  for (const Json& finding : document.at("environment"))
    trace["otherData"][finding.at("name").get<std::string>()] = finding.at("value");
  Json& events = trace["traceEvents"] = Json::array();
  int process = 0;
  for (const Json& result : results_of(document)) TraceEvents(events, result, ++process).add();
  return compact(trace) + "\n";
}

std::string trtexec_profile(const Json& document) {
  std::vector<double> sums;
  for (const Json& layer : document.at("layers")) {
    const auto ms = layer.at("samples_ms").get<std::vector<double>>();
    sums.push_back(std::accumulate(ms.begin(), ms.end(), 0.0));
  }
  const double all = std::accumulate(sums.begin(), sums.end(), 0.0);
  const double runs = document.at("runs");
  std::string text = "[\n  " + compact({{"count", document.at("runs")}}) + "\n";
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const Json& layer = document.at("layers").at(i);
    text += ", " +
            compact({{"name", layer.at("name")},
                     {"timeMs", sums[i]},
                     {"averageMs", sums[i] / runs},
                     {"medianMs", layer.at("median_ms")},
                     {"percentage", all > 0 ? 100 * sums[i] / all : 0}}) +
            "\n";
  }
  return text + "]\n";
}

}  // namespace pipit::internal::detail
