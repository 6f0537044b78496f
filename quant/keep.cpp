#include "quant/keep.h"

#include <algorithm>
#include <set>

#include "engine/error.h"
#include "layers/rearrange.h"
#include "quant/near_names.h"
#include "quant/weighted_layer.h"

namespace pipit {

namespace {

std::vector<std::string> node_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) {
    // Made by the layout pass: no node of the model.
    if (node.layer->type() != ToLayout::kType) names.push_back(node.name);
  }
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string resolve(const std::string& name, const std::vector<std::string>& nodes, const Graph& graph) {
  if (contains(nodes, name)) return name;
  if (name == "first" || name == "last") {
    const std::vector<std::string> weighted = weighted_layers(graph);
    if (weighted.empty())
      fail("keep: there is no {} layer: the model has none that could compute in INT8", name);
    return name == "first" ? weighted.front() : weighted.back();
  }
  fail("keep: the model has no node '{}'{}", name, near_names(name, nodes));
}

}  // namespace

PrecisionPlan::Kept parse_keep(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  const std::string_view precision =
      equals == std::string_view::npos ? std::string_view{} : text.substr(equals + 1);
  if (equals == 0 || (precision != "fp32" && precision != "fp16"))
    fail("'{}' is not NAME=fp32 or NAME=fp16", text);
  return {std::string(text.substr(0, equals)), std::string(precision)};
}

void keep_nodes(PrecisionPlan& plan, const Graph& graph, std::span<const PrecisionPlan::Kept> requests) {
  if (requests.empty()) return;
  const std::vector<std::string> nodes = node_names(graph);
  for (const PrecisionPlan::Kept& request : requests) {
    const std::string node = resolve(request.node, nodes, graph);
    const auto known = std::find_if(plan.keep.begin(), plan.keep.end(),
                                    [&](const PrecisionPlan::Kept& kept) { return kept.node == node; });
    if (known == plan.keep.end()) {
      plan.keep.push_back({node, request.precision});
    } else {
      known->precision = request.precision;
    }
  }
}

void check_kept_nodes(const PrecisionPlan& plan, const Graph& graph) {
  const std::vector<std::string> nodes = node_names(graph);
  const std::set<std::string_view> known(nodes.begin(), nodes.end());
  for (const PrecisionPlan::Kept& kept : plan.keep) {
    if (!known.contains(kept.node))
      fail("the plan keeps node '{}' in {}, but the model has none{}", kept.node, kept.precision,
           near_names(kept.node, nodes));
  }
}

}  // namespace pipit
