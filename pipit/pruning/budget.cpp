// Pruning::budget(): selections of what is measured.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "pipit/pruning/candidates.h"

namespace pipit::internal::detail {

namespace {

constexpr double kMinFactor = 0.01;

// Option::kind; of rows their RowKind.
enum OptionKind : int { kChannels = static_cast<int>(RowKind::inputs) + 1, kBranch };

// Layers that are decided on together: one that shares nothing, or all that are tied by families or by a branch.
struct Component {
  std::set<std::string> nodes;
  std::vector<std::size_t> families;  // in Paths::channels
  std::string branch;                 // by its last node, where it is one; else empty
};

std::vector<Component> components_of(const Graph& graph, const Paths& paths,
                                     const std::vector<Branch>& branches) {
  const auto& nodes = graph.nodes();
  std::vector<int> root(nodes.size());
  std::iota(root.begin(), root.end(), 0);
  const auto find = [&](int n) {
    while (root[static_cast<std::size_t>(n)] != n) n = root[static_cast<std::size_t>(n)];
    return n;
  };
  for (const ChannelPath& path : paths.channels) {
    if (path.family.stream) continue;
    const int first = find(*path.family.writers.begin());
    for (const auto& set : {path.family.writers, path.family.readers}) {
      for (const int n : set) root[static_cast<std::size_t>(find(n))] = first;
    }
  }
  for (const Branch& branch : branches) {
    for (const int n : branch.nodes) root[static_cast<std::size_t>(find(n))] = find(branch.last);
  }
  std::map<int, Component> components;
  std::map<std::string, int> root_of;
  for (std::size_t n = 0; n < nodes.size(); ++n) root_of[nodes[n].name] = find(static_cast<int>(n));
  for (const PruningPath& path : paths.rows) components[root_of[path.node]];
  for (std::size_t f = 0; f < paths.channels.size(); ++f) {
    if (paths.channels[f].family.stream) continue;
    components[find(*paths.channels[f].family.writers.begin())].families.push_back(f);
  }
  for (const auto& [name, r] : root_of) {
    const auto found = components.find(r);
    if (found != components.end()) found->second.nodes.insert(name);
  }
  for (const Branch& branch : branches) {
    const auto found = components.find(find(branch.last));
    if (found != components.end() && found->second.nodes.size() == branch.nodes.size())
      found->second.branch = nodes[static_cast<std::size_t>(branch.last)].name;
  }
  std::vector<Component> all;
  for (auto& [r, component] : components) all.push_back(std::move(component));
  return all;
}

// Variants of a component, with what each keeps.
struct Ways {
  std::vector<Option> options;
  std::vector<Keeps> keeps;
};

// Adds the selections in which each layer of the component loses its best number of rows, by paths_of_kind(). A kind
// that no layer of the component has adds nothing, except RowKind::taps, which stands for the first path of each layer.
void add_rows(Ways& ways, const Paths& paths, const std::vector<StepTimes>& times,
              const std::map<std::string, double>& noise, const Component& component, RowKind kind) {
  std::vector<const PruningPath*> chosen;
  for (const PruningPath* path : paths_of_kind(paths.rows, kind)) {
    if (component.nodes.contains(path->node)) chosen.push_back(path);
  }
  if (chosen.empty()) return;
  std::vector<std::vector<Option>> layers;
  double rest = ways.options[0].ms;
  for (const PruningPath* path : chosen) {
    std::vector<Option>& options = layers.emplace_back();
    for (std::size_t s = 0; s < kShares.size(); ++s)
      options.push_back({time_of(times[s], path->node), noise.at(path->node) * path->loss_at(kShares[s]),
                         static_cast<int>(kind)});
    rest -= options[0].ms;
  }
  for (const Selection& selection : selections(layers)) {
    Keeps keeps;
    bool differs = kind == RowKind::taps;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const double share = kShares[selection.chosen[i]];
      keeps.rows[index(chosen[i]->kind())][chosen[i]->node] = share;
      differs = differs || (chosen[i]->kind() == kind && share < 1);
    }
    if (!differs) continue;
    ways.options.push_back({rest + selection.ms, selection.cost, static_cast<int>(kind)});
    ways.keeps.push_back(std::move(keeps));
  }
}

Ways ways_of(const Paths& paths, const Candidates& candidates, const Component& component) {
  const double ms = time_of(candidates.dense(), component.nodes);
  Ways ways;
  ways.options.push_back({ms, 0});
  ways.keeps.emplace_back();
  for (const RowKind kind : kRowKinds) {
    const std::vector<StepTimes>& times = candidates.rows[index(kind)];
    if (!times.empty()) add_rows(ways, paths, times, candidates.noise, component, kind);
  }
  for (std::size_t s = 1; s < kShares.size() && !component.families.empty(); ++s) {
    Option option{time_of(candidates.channels[s], component.nodes), 0, kChannels};
    Keeps keeps;
    for (const std::size_t f : component.families) {
      option.cost += candidates.channel_cost[f][s];
      keeps.channels[f] = kShares[s];
    }
    ways.options.push_back(option);
    ways.keeps.push_back(std::move(keeps));
  }
  if (candidates.without.contains(component.branch)) {
    ways.options.push_back({0, candidates.without.at(component.branch), kBranch});
    ways.keeps.emplace_back().branches.insert(component.branch);
  }
  return ways;
}

// What a stream makes of the times of layers that are decided on together.
double factor_of(const StreamCandidates& stream, std::size_t share, const Graph& graph,
                 const ChannelFamily& family, const StepTimes& dense, const std::set<std::string>& nodes) {
  const auto touches = [&](int n) { return nodes.contains(graph.nodes()[static_cast<std::size_t>(n)].name); };
  if (std::none_of(family.writers.begin(), family.writers.end(), touches) &&
      std::none_of(family.readers.begin(), family.readers.end(), touches))
    return 1;
  const double before = time_of(dense, nodes);
  return before > 0 ? std::max(time_of(stream.times[share], nodes) / before, kMinFactor) : 1;
}

}  // namespace

Keeps Pruning::Budget::keeps_of(const Selection& selection) const {
  Keeps keeps;
  const auto add = [&keeps](Keeps own) {
    for (std::size_t kind = 0; kind < kRowKinds.size(); ++kind) keeps.rows[kind].merge(own.rows[kind]);
    keeps.channels.merge(own.channels);
    keeps.branches.merge(own.branches);
  };
  for (std::size_t c = 0; c < option_keeps.size(); ++c) add(option_keeps[c][selection.chosen[c]]);
  for (std::size_t s = 0; s < shared_keeps.size(); ++s) add(shared_keeps[s][selection.shared[s]]);
  return keeps;
}

Pruning::Budget Pruning::budget(PreparedImages& probe, const ImagesDone& progress) const {
  const std::vector<Branch> branches = options_.branches ? find_branches(dense_) : std::vector<Branch>();
  const Candidates candidates = measure_candidates(*this, branches, probe, progress);
  Budget budget;
  std::vector<std::set<std::string>> nodes;
  std::set<std::string> others;
  for (const auto& [node, ms] : candidates.dense()) others.insert(node);
  for (const Component& component : components_of(dense_, paths_, branches)) {
    Ways ways = ways_of(paths_, candidates, component);
    budget.options.push_back(std::move(ways.options));
    budget.option_keeps.push_back(std::move(ways.keeps));
    nodes.push_back(component.nodes);
    for (const std::string& node : component.nodes) others.erase(node);
  }
  budget.options.push_back({{time_of(candidates.dense(), others), 0}});
  budget.option_keeps.push_back({{}});
  nodes.push_back(std::move(others));
  for (const StreamCandidates& stream : candidates.streams) {
    std::vector<SharedOption>& all = budget.shared.emplace_back();
    std::vector<Keeps>& keeps = budget.shared_keeps.emplace_back();
    all.push_back({0, std::vector<double>(nodes.size(), 1)});
    keeps.emplace_back();
    for (std::size_t s = 0; s < stream.shares.size(); ++s) {
      all.push_back({stream.cost[s], {}});
      for (const std::set<std::string>& some : nodes)
        all.back().factors.push_back(
            factor_of(stream, s, dense_, paths_.channels[stream.family].family, candidates.dense(), some));
      keeps.emplace_back().channels[stream.family] = stream.shares[s];
    }
  }
  return budget;
}

}  // namespace pipit::internal::detail
