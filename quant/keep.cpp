#include "quant/keep.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "engine/error.h"
#include "layers/rearrange.h"
#include "quant/weighted_layer.h"

namespace pipit {

namespace {

// Levenshtein's distance: insertions, deletions and replacements of bytes.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

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
  fail("keep: the model has no node '{}'{}", name, nearest_names(name, nodes));
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
           nearest_names(kept.node, nodes));
  }
}

std::string nearest_names(std::string_view name, std::span<const std::string> candidates) {
  constexpr std::size_t kMost = 3;
  struct Near {
    bool apart;  // neither contains the other
    std::size_t distance;
    std::size_t index;
    auto operator<=>(const Near&) const = default;
  };
  std::vector<Near> near;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::string& candidate = candidates[i];
    const bool apart = name.empty() || (candidate.find(name) == std::string::npos &&
                                        name.find(candidate) == std::string_view::npos);
    const std::size_t distance = edit_distance(name, candidate);
    // More than half of the name wrong is another name.
    if (!apart || 2 * distance <= std::max(name.size(), candidate.size()))
      near.push_back({apart, distance, i});
  }
  std::sort(near.begin(), near.end());
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, near.size()); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "; did you mean " : ", ", candidates[near[i].index]);
  return text.empty() ? text : text + "?";
}

}  // namespace pipit
