#include "pipit/detail/step_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/graph/stored_type.h"

namespace pipit::internal::detail {

namespace {

// What the step must read and write: not what lies between the nodes that its kernel computes.
std::int64_t stored_bytes(const ExecutionPlan& plan, const Step& step) {
  const Graph& graph = plan.graph();
  const bool halves = is_stored_float(stored_type(plan.options().precision, plan.options().device));
  std::int64_t bytes = 0;
  const auto add_inputs = [&](int index, bool constants_only, double kept_weights) {
    const Node& node = graph.nodes()[static_cast<std::size_t>(index)];
    const auto weights = node.layer->traits().weights;
    // Scales of integers stay f32.
    const bool narrows = halves && !(weights && graph.value(node.inputs[*weights]).desc.dtype != DType::f32);
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      const Value& value = graph.value(id);
      if (constants_only && !value.is_constant()) continue;
      const bool packed =
          value.is_constant() && value.desc.dtype == DType::f32 && narrows;  // kernels keep a half of it
      const double kept = value.is_constant() ? kept_weights : 1;
      bytes += std::llround(static_cast<double>(value.desc.bytes()) * kept) / (packed ? 2 : 1);
    }
  };
  add_inputs(step.node, false, step.kernel->kept_share());
  for (const int next : step.fused) add_inputs(next, true, 1);
  for (const ValueId id : step.outside) bytes += static_cast<std::int64_t>(graph.value(id).desc.bytes());
  for (const ValueId id : plan.last_node(step).outputs)
    bytes += static_cast<std::int64_t>(graph.value(id).desc.bytes());
  return bytes;
}

}  // namespace

StepInfo step_info(const ExecutionPlan& plan, const Step& step) {
  const Graph& graph = plan.graph();
  const Node& node = graph.nodes()[static_cast<std::size_t>(step.node)];
  const std::vector<const TensorDesc*> inputs = graph.input_descs(node);
  const std::vector<TensorDesc> outputs = graph.output_descs(node);
  const LayerTraits traits = node.layer->traits();
  StepInfo info;
  info.index = step.index;
  info.name = node.name;
  info.nodes = {node.name};
  info.type = node.layer->type();
  info.family = traits.family;
  info.kernel = step.kernel_name;
  info.geometry = node.layer->summary();
  if (!inputs.empty() && inputs[0] != nullptr) info.input = inputs[0]->shape;
  info.output = graph.value(plan.last_node(step).outputs[0]).desc.shape;
  const std::size_t residual = traits.residual.value_or(node.inputs.size());
  if (residual < node.inputs.size() && node.inputs[residual] != kNoValue) info.geometry += " +add";
  info.kept = step.kernel->kept_share();
  if (info.kept < 1) info.geometry += fmt::format(" kept {:.1f} %", 100 * info.kept);
  info.macs = std::llround(static_cast<double>(node.layer->work(inputs, outputs).macs) * info.kept);
  std::vector<std::pair<std::string_view, int>> chained;  // layers by type, as they come first
  for (const int next : step.fused) {
    const Node& follower = graph.nodes()[static_cast<std::size_t>(next)];
    const Layer& layer = *follower.layer;
    info.nodes.push_back(follower.name);
    info.macs += layer.work(graph.input_descs(follower), graph.output_descs(follower)).macs;
    if (step.is_chain) {
      const auto known =
          std::ranges::find(chained, layer.type(), [](const auto& entry) { return entry.first; });
      if (known == chained.end()) {
        chained.emplace_back(layer.type(), 1);
      } else {
        ++known->second;
      }
      continue;
    }
    info.geometry +=
        fmt::format(" then {}{}{}", layer.type(), layer.summary().empty() ? "" : " ", layer.summary());
  }
  for (std::size_t t = 0; t < chained.size(); ++t)
    info.geometry += fmt::format("{} {} {}", t == 0 ? " then" : ",", chained[t].second, chained[t].first);
  info.bytes = stored_bytes(plan, step);
  info.work = step_work(plan, step, info.macs);
  return info;
}

}  // namespace pipit::internal::detail
