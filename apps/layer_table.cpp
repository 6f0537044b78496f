#include "apps/layer_table.h"

#include "apps/table.h"

namespace pipit::apps {

StepInfo step_info(const Plan& plan, const Step& step) {
  const Graph& graph = plan.graph();
  const Node& node = graph.nodes()[static_cast<std::size_t>(step.node)];
  const std::vector<const TensorDesc*> inputs = graph.input_descs(node);
  const std::vector<TensorDesc> outputs = graph.output_descs(node);
  StepInfo info;
  info.index = step.index;
  info.name = node.name;
  info.type = node.layer->type();
  info.kernel = step.kernel_name;
  info.geometry = node.layer->summary();
  if (!inputs.empty() && inputs[0] != nullptr) info.input = inputs[0]->shape;
  info.output = outputs[0].shape;
  if (node.inputs.size() > 3 && node.inputs[3] != kNoValue && info.type == "Conv") info.geometry += " +add";
  info.macs = node.layer->work(inputs, outputs).macs;
  return info;
}

namespace {

double gflops(std::int64_t macs, double ms) {
  return ms > 0 ? 2e-6 * static_cast<double>(macs) / ms : 0;
}

}  // namespace

std::string layer_table(const Plan& plan, const Profile& profile) {
  using enum Table::Align;
  Table table({{"#", right},
               {"layer"},
               {"type"},
               {"kernel"},
               {"input"},
               {"output"},
               {"geometry"},
               {"MACs", right},
               {"ms", right},
               {"share", right},
               {"GFLOP/s", right}});
  std::int64_t total_macs = 0;
  for (const StepTime& time : profile.steps) {
    const StepInfo info = step_info(plan, plan.steps()[static_cast<std::size_t>(time.step)]);
    total_macs += info.macs;
    table.add({fmt::format("{}", info.index), info.name, info.type, info.kernel, info.input.str(),
               info.output.str(), info.geometry,
               info.macs > 0 ? with_prefix(static_cast<double>(info.macs)) : "",
               fmt::format("{:.4f}", time.median_ms),
               fmt::format("{:.1f}%", 100 * time.median_ms / profile.layers_ms),
               info.macs > 0 ? fmt::format("{:.1f}", gflops(info.macs, time.median_ms)) : ""});
  }
  std::string text = table.str();
  text += fmt::format("sum of layers  {:9.4f} ms   {} MACs, {:.1f} GFLOP/s   (median of {} runs)\n",
                      profile.layers_ms, with_prefix(static_cast<double>(total_macs)),
                      gflops(total_macs, profile.layers_ms), profile.runs);
  const bool on_gpu = profile.graph_ms > 0;
  if (on_gpu)
    text += fmt::format("graph          {:9.4f} ms   device time of one replay\n", profile.graph_ms);
  text += fmt::format("end to end     {:9.4f} ms{}\n", profile.end_to_end_ms,
                      on_gpu ? "   with copies in and out" : "");
  if (!on_gpu) {
    text += fmt::format(
        "unexplained    {:9.4f} ms   {:.2f}% (of it about {:.4f} ms are the profiler's clock reads)\n",
        profile.residual_ms, 100 * profile.residual_ms / profile.end_to_end_ms, profile.overhead_ms);
  }
  return text;
}

nlohmann::ordered_json layer_json(const Plan& plan, const Profile& profile) {
  nlohmann::ordered_json json;
  json["runs"] = profile.runs;
  json["layers_ms"] = profile.layers_ms;
  json["end_to_end_ms"] = profile.end_to_end_ms;
  json["residual_ms"] = profile.residual_ms;
  json["profiler_overhead_ms"] = profile.overhead_ms;
  if (profile.graph_ms > 0) json["graph_ms"] = profile.graph_ms;
  json["layers"] = nlohmann::ordered_json::array();
  for (const StepTime& time : profile.steps) {
    const StepInfo info = step_info(plan, plan.steps()[static_cast<std::size_t>(time.step)]);
    json["layers"].push_back({{"index", info.index},
                              {"name", info.name},
                              {"type", info.type},
                              {"kernel", info.kernel},
                              {"input", info.input.dims()},
                              {"output", info.output.dims()},
                              {"geometry", info.geometry},
                              {"macs", info.macs},
                              {"median_ms", time.median_ms},
                              {"share", time.median_ms / profile.layers_ms},
                              {"gflops", gflops(info.macs, time.median_ms)}});
  }
  return json;
}

}  // namespace pipit::apps
