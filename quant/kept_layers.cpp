#include "quant/kept_layers.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "layers/ops/pool.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/rewriter.h"
#include "pipit/text.h"
#include "quant/weighted_layer.h"

namespace pipit::internal {

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

// One value per channel and image.
bool one_position(const Shape& shape) {
  int large = 0;
  for (int d = 1; d < shape.rank(); ++d) large += shape[d] > 1 ? 1 : 0;
  return large <= 1;
}

// For each value, whether it and all that is computed from it have one position.
std::vector<bool> made_of_channels(const Graph& graph) {
  std::vector<bool> last;
  for (const Value& value : graph.values()) last.push_back(one_position(value.desc.shape));
  for (std::size_t n = graph.nodes().size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    const bool behind = std::all_of(node.outputs.begin(), node.outputs.end(),
                                    [&](ValueId id) { return last[static_cast<std::size_t>(id)]; });
    for (const ValueId id : node.inputs) {
      if (id != kNoValue && !behind) last[static_cast<std::size_t>(id)] = false;
    }
  }
  return last;
}

// An average over many positions that could compute in INT8.
bool averages_all_positions(const Graph& graph, const Node& node) {
  const auto* pool = layer_if<Pool>(node);
  const auto* mean = layer_if<Reduce>(node);
  const bool averages = (pool != nullptr && pool->attributes().kind == PoolKind::average) ||
                        (mean != nullptr && mean->attributes().keep_dims &&
                         is_spatial_mean(*mean, graph.value(node.inputs[0]).desc.shape));
  return averages && !one_position(graph.value(node.inputs[0]).desc.shape);
}

bool is_word(const std::string& name) {
  return name == "first" || name == "last";
}

// The layer that the word means where no node has it for a name; empty where there is none.
std::string layer_of(const std::string& word, const Graph& graph) {
  const std::vector<std::string> weighted = weighted_layers(graph);
  if (weighted.empty()) return {};
  return word == "first" ? weighted.front() : weighted.back();
}

std::string resolve(const std::string& name, const std::vector<std::string>& nodes, const Graph& graph,
                    std::vector<std::string>& notes) {
  if (contains(nodes, name)) {
    const std::string other = is_word(name) ? layer_of(name, graph) : "";
    if (!other.empty() && other != name)
      notes.push_back(
          fmt::format("keep: '{}' is the node of that name; the model's {} convolution or fully connected "
                      "layer is '{}'",
                      name, name, other));
    return name;
  }
  if (!is_word(name)) fail("keep: the model has no node '{}'{}", name, near_names(name, nodes));
  std::string layer = layer_of(name, graph);
  if (layer.empty()) fail("keep {}: the model has no layer that could compute in INT8", name);
  return layer;
}

}  // namespace

std::vector<QuantizationPlan::Kept> kept_by_default(const Graph& graph) {
  const std::vector<bool> last = made_of_channels(graph);
  std::vector<QuantizationPlan::Kept> kept;
  for (const Node& node : graph.nodes()) {
    if (averages_all_positions(graph, node) && last[static_cast<std::size_t>(node.outputs[0])])
      kept.push_back(
          {node.name, "fp32",
           "the scores are made of its averages: rounding what it averages costs accuracy, floating point "
           "no measurable time"});
  }
  return kept;
}

bool is_kept_precision(std::string_view name) {
  return name == "fp32" || name == "fp16" || name == "bf16";
}

void keep_defaults_as(Precision precision, QuantizationPlan& plan, const Graph& graph) {
  const std::vector<QuantizationPlan::Kept> defaults = kept_by_default(graph);
  for (QuantizationPlan::Kept& kept : plan.keep) {
    if (std::ranges::find(defaults, kept) != defaults.end()) kept.precision = precision_name(precision);
  }
}

QuantizationPlan::Kept parse_keep(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  const std::string_view precision =
      equals == std::string_view::npos ? std::string_view{} : text.substr(equals + 1);
  if (equals == 0 || (!is_kept_precision(precision) && precision != "int8"))
    throw ArgumentError(fmt::format("'{}' is not NAME=fp32, NAME=fp16, NAME=bf16 or NAME=int8", text));
  return {std::string(text.substr(0, equals)), std::string(precision)};
}

std::vector<std::string> keep_nodes(QuantizationPlan& plan, const Graph& graph,
                                    std::span<const QuantizationPlan::Kept> requests) {
  std::vector<std::string> notes;
  if (requests.empty()) return notes;
  const std::vector<std::string> nodes = node_names(graph);
  std::map<std::string, std::string> asked;
  for (const QuantizationPlan::Kept& request : requests) {
    const std::string node = resolve(request.node, nodes, graph, notes);
    const auto& precision = asked.emplace(node, request.precision).first->second;
    if (precision != request.precision)
      fail("keep: node '{}' is asked for in {} and in {}; say one of them", node, precision,
           request.precision);
    const auto known = std::find_if(plan.keep.begin(), plan.keep.end(),
                                    [&](const QuantizationPlan::Kept& kept) { return kept.node == node; });
    if (request.precision == "int8") {
      if (known != plan.keep.end()) plan.keep.erase(known);
    } else if (known == plan.keep.end()) {
      plan.keep.push_back({node, request.precision});
    } else {
      *known = {node, request.precision};
    }
  }
  return notes;
}

void check_kept_nodes(const QuantizationPlan& plan, const Graph& graph) {
  const std::vector<std::string> nodes = node_names(graph);
  const std::set<std::string_view> known(nodes.begin(), nodes.end());
  for (const QuantizationPlan::Kept& kept : plan.keep) {
    if (!known.contains(kept.node))
      fail("the plan keeps node '{}' in {}, but the model has none{}", kept.node, kept.precision,
           near_names(kept.node, nodes));
  }
}

}  // namespace pipit::internal
