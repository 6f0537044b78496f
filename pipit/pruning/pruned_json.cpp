#include "pipit/pruning/pruned_json.h"

#include "pipit/measuring/drop_json.h"

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

Json speed_json(const tools::Speedup& speedup) {
  return {{"speedup", speedup.median}, {"speedup_interval95", {speedup.low, speedup.high}}};
}

Json steps_json(const tools::PrunedModel& result) {
  Json steps = Json::array();
  for (const tools::PruneStep& step : result.steps) {
    Json entry = {{"ms", step.ms}};
    entry.update(speed_json(step.speedup));
    entry["predicted_speedup"] = or_null(step.predicted);
    entry.update(drop_json(step.drop));
    entry["expected_drop_points"] = step.expected_drop;
    entry["pareto"] = step.pareto;
    entry["chosen"] = step.chosen;
    steps.push_back(std::move(entry));
  }
  return steps;
}

Json selections_json(const tools::PrunedModel& result) {
  Json selections = Json::array();
  for (const tools::PruneSelection& selection : result.selections) {
    Json entry = {{"predicted_speedup", selection.predicted}};
    entry.update(speed_json(selection.speedup));
    entry["error"] = selection.error;
    selections.push_back(std::move(entry));
  }
  return selections;
}

Json layers_json(const tools::PrunedModel& result) {
  Json layers = Json::array();
  for (const tools::PrunedLayer& layer : result.layers) {
    Json entry = {{"name", layer.name},
                  {"kept", layer.kept},
                  {"dense_macs", layer.macs},
                  {"dense_ms", layer.dense_ms},
                  {"pruned_ms", layer.pruned_ms},
                  {"dense_kernel", layer.dense_kernel},
                  {"pruned_kernel", layer.pruned_kernel}};
    entry["error"] = or_null(layer.error);
    entry["rows"] = layer.rows ? Json(*layer.rows == tools::PrunedRows::channel ? "channel" : "tap") : Json();
    entry["panel"] = or_null(layer.panel);
    layers.push_back(std::move(entry));
  }
  return layers;
}

}  // namespace pipit::internal::detail
