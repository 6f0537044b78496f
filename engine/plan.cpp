#include "engine/plan.h"

#include <algorithm>

#include "engine/device.h"
#include "engine/plan_parts.h"

namespace pipit {

bool is_view(const Graph& graph, const Node& node) {
  return node.outputs.size() == 1 && !node.inputs.empty() && node.inputs[0] != kNoValue &&
         node.layer->is_view(graph.value(node.inputs[0]).desc, graph.value(node.outputs[0]).desc);
}

const Node& last_node(const Graph& graph, const Step& step) {
  return graph.nodes()[static_cast<std::size_t>(step.absorbed.empty() ? step.node : step.absorbed.back())];
}

const Node& Plan::last_node(const Step& step) const {
  return pipit::last_node(graph_, step);
}

std::shared_ptr<const Plan> Plan::build(Graph graph, const Registry& registry, const PlanOptions& options) {
  const std::shared_ptr<Plan> plan(new Plan());
  plan->graph_ = std::move(graph);
  plan->options_ = options;
  if (plan->options_.threads == 0) plan->options_.threads = available_cpus();
  if (options.device == DeviceKind::cuda) select_gpu(options.gpu);
  plan->steps_ = choose_kernels(plan->graph_, registry, plan->options_);
  PlacedValues placed = place_values(plan->graph_, plan->options_, plan->steps_);
  plan->outputs_ = std::move(placed.outputs);
  plan->arena_bytes_ = placed.arena_bytes;
  plan->peak_live_bytes_ = placed.peak_live_bytes;
  plan->activation_bytes_ = placed.activation_bytes;
  plan->view_nodes_ =
      static_cast<int>(std::count_if(plan->graph_.nodes().begin(), plan->graph_.nodes().end(),
                                     [&](const Node& node) { return is_view(plan->graph_, node); }));
  plan->options_.tuner.reset();
  return plan;
}

}  // namespace pipit
