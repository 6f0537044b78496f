#include "pipit/measuring/model_json.h"

#include <nlohmann/json.hpp>

#include "pipit/detail/load.h"
#include "pipit/detail/step_info.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/runner.h"

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;

Json described(std::span<const TensorInfo> infos) {
  Json list = Json::array();
  for (const TensorInfo& info : infos)
    list.push_back({{"name", info.name}, {"dtype", dtype_name(info.dtype)}, {"shape", info.shape.dims()}});
  return list;
}

}  // namespace

std::string profile_json(const CompiledModel& model, const tools::ModelProfile& profile) {
  Json json = json_header("profile", model.name(), *model.state().plans[0]);
  json["arena_bytes"] = model.arena_bytes();
  json["runs"] = profile.runs;
  json["layers_ms"] = profile.layers_ms;
  json["end_to_end_ms"] = profile.end_to_end_ms;
  json["residual_ms"] = profile.residual_ms;
  if (profile.graph_ms > 0) json["graph_ms"] = profile.graph_ms;
  json["layers"] = Json::array();
  for (const tools::LayerTime& layer : profile.layers) {
    const double ms = layer.median_ms;
    json["layers"].push_back({{"index", json["layers"].size()},
                              {"name", layer.name},
                              {"type", layer.type},
                              {"kernel", layer.kernel},
                              {"input", layer.input.dims()},
                              {"output", layer.output.dims()},
                              {"geometry", layer.geometry},
                              {"macs", layer.macs},
                              {"median_ms", ms},
                              {"share", profile.layers_ms > 0 ? ms / profile.layers_ms : 0},
                              {"gflops", ms > 0 ? 2e-6 * static_cast<double>(layer.macs) / ms : 0},
                              {"bytes", layer.bytes}});
  }
  return json_text(json);
}

std::string inspect_json(const CompiledModel& model) {
  const ExecutionPlan& plan = *model.state().plans[0];
  Json json = json_header("inspect", model.name(), *model.state().plans[0]);
  json["inputs"] = described(model.inputs());
  json["outputs"] = described(model.outputs());
  json["notes"] = model.notes();
  json["layers"] = Json::array();
  std::int64_t macs = 0;
  for (const Step& step : plan.steps()) {
    const StepInfo info = step_info(plan, step);
    macs += info.macs;
    json["layers"].push_back({{"index", info.index},
                              {"name", info.name},
                              {"type", info.type},
                              {"kernel", info.kernel},
                              {"input", info.input.dims()},
                              {"output", info.output.dims()},
                              {"geometry", info.geometry},
                              {"macs", info.macs},
                              {"chosen", chosen_by_name(step.choice.by)}});
  }
  json["macs"] = macs;
  json["arena_bytes"] = plan.arena_bytes();
  json["peak_live_bytes"] = plan.peak_live_bytes();
  json["activation_bytes"] = plan.activation_bytes();
  json["view_nodes"] = plan.view_nodes();
  return json_text(json);
}

}  // namespace pipit::internal::detail
