// Pruning::budget(): what every candidate takes, measured, and what it costs.
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>

#include "apps/measuring/pruning.h"
#include "apps/measuring/timing.h"
#include "layers/ops/matmul.h"
#include "layers/passes/rewriter.h"
#include "sparsity/remove_channels.h"
#include "sparsity/replace_weights.h"

namespace pipit::apps {

namespace {

constexpr std::array kShares{1.0, 0.85, 0.75, 0.65, 0.5, 0.35, 0.25, 0.15};
constexpr double kProbed = 0.5;  // the share that a layer keeps to measure what its loss does to the output
constexpr double kMostNoise = 0.5;  // of the output, over its variance: worse ones are not looked at

using Times = std::map<std::string, double>;

double time_of(const Times& times, const std::string& node) {
  const auto found = times.find(node);
  return found == times.end() ? 0 : found->second;
}

// Layers that are decided on together: one that shares nothing, or all that are tied by families or by a branch.
struct Component {
  std::set<std::string> nodes;
  std::vector<std::size_t> rows;      // in Paths::rows
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
  for (std::size_t p = 0; p < paths.rows.size(); ++p)
    components[root_of[paths.rows[p].node]].rows.push_back(p);
  for (std::size_t f = 0; f < paths.channels.size(); ++f)
    components[find(*paths.channels[f].family.writers.begin())].families.push_back(f);
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

// Ways to have a component, with what each keeps.
struct Ways {
  std::vector<Option> options;
  std::vector<Keeps> keeps;
};

struct Candidates {
  const Paths& paths;
  std::vector<Times> rows, channels;              // per share; channels may be empty
  std::map<std::string, double> noise;            // of the output, per loss of a layer
  std::vector<std::vector<double>> channel_loss;  // per family and share, weighted by the noise
  std::map<std::string, double> without;          // noise of the output without a branch
};

// What the output loses without a branch, once those have gone that cost less for their time: branches near each other
// stand in for each other, and single losses say nothing of the loss of both. A loss that was measured with fewer gone
// is taken for the least that it can be, so that few are measured again. Branches without which little is left of the
// output have no cost.
std::map<std::string, double> cost_of_branches(
    const Graph& graph, const std::vector<Branch>& branches, const Times& times,
    const std::function<double(const std::set<std::string>&)>& noise_without,
    const std::function<void()>& progress) {
  struct Candidate {
    double ratio = 0;  // of noise to time
    double noise = 0;  // without this one and those gone
    std::size_t branch = 0;
    bool operator>(const Candidate& other) const {
      return std::tie(ratio, branch) > std::tie(other.ratio, other.branch);
    }
  };
  std::set<std::string> gone;
  double noise = 0;
  std::vector<double> ms(branches.size(), 0);
  const auto name = [&](std::size_t b) {
    return graph.nodes()[static_cast<std::size_t>(branches[b].last)].name;
  };
  const auto measured = [&](std::size_t b) {
    std::set<std::string> with = gone;
    with.insert(name(b));
    const double without = noise_without(with);
    return Candidate{std::max(without - noise, 0.0) / ms[b], without, b};
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> left;
  for (std::size_t b = 0; b < branches.size(); ++b) {
    for (const int n : branches[b].nodes)
      ms[b] += time_of(times, graph.nodes()[static_cast<std::size_t>(n)].name);
    if (ms[b] > 0) left.push(measured(b));
    progress();
  }
  std::map<std::string, double> costs;
  double worst = 0;  // ratios rise, as those of options have to
  while (!left.empty() && noise < kMostNoise) {
    Candidate next = measured(left.top().branch);
    left.pop();
    if (!left.empty() && next > left.top()) {
      left.push(next);
      continue;
    }
    worst = std::max(worst, next.ratio);
    costs[name(next.branch)] = worst * ms[next.branch];
    gone.insert(name(next.branch));
    noise = next.noise;
  }
  return costs;
}

Ways ways_of(const Candidates& candidates, const Component& component) {
  const Times& dense = candidates.rows.empty() ? candidates.channels[0] : candidates.rows[0];
  double ms = 0;
  for (const std::string& node : component.nodes) ms += time_of(dense, node);
  Ways ways;
  ways.options.push_back({ms, 0});
  ways.keeps.emplace_back();
  std::vector<std::vector<Option>> layers;
  double rest = ms;
  for (const std::size_t p : component.rows) {
    const PruningPath& path = candidates.paths.rows[p];
    std::vector<Option>& options = layers.emplace_back();
    for (std::size_t s = 0; s < kShares.size(); ++s)
      options.push_back({time_of(candidates.rows[s], path.node),
                         candidates.noise.at(path.node) * path.loss_at(kShares[s])});
    rest -= options[0].ms;
  }
  if (!layers.empty()) {
    for (const Selection& selection : selections(layers)) {
      ways.options.push_back({rest + selection.ms, selection.cost});
      Keeps& keeps = ways.keeps.emplace_back();
      for (std::size_t i = 0; i < component.rows.size(); ++i)
        keeps.rows[candidates.paths.rows[component.rows[i]].node] = kShares[selection.chosen[i]];
    }
  }
  for (std::size_t s = 1; s < kShares.size() && !component.families.empty(); ++s) {
    Option option;
    Keeps keeps;
    for (const std::string& node : component.nodes) option.ms += time_of(candidates.channels[s], node);
    for (const std::size_t f : component.families) {
      option.cost += candidates.channel_loss[f][s];
      keeps.channels[f] = kShares[s];
    }
    ways.options.push_back(option);
    ways.keeps.push_back(std::move(keeps));
  }
  if (candidates.without.contains(component.branch)) {
    ways.options.push_back({0, candidates.without.at(component.branch)});
    ways.keeps.emplace_back().branches.insert(component.branch);
  }
  return ways;
}

}  // namespace

Pruning::Budget Pruning::budget(PreparedImages& probe, const ProgressReport& progress) const {
  const Tensor batch = first_batch(probe);
  const ImageOutputs reference = run_outputs(compiler_.in_fp32(dense_), probe);
  std::set<std::string> probed;
  for (const PruningPath& path : paths_.rows) probed.insert(path.node);
  for (const ChannelPath& path : paths_.channels) {
    for (const int reader : path.family.readers)
      probed.insert(dense_.nodes()[static_cast<std::size_t>(reader)].name);
  }
  const std::vector<Branch> branches = options_.branches ? find_branches(dense_) : std::vector<Branch>();
  const auto total = static_cast<std::int64_t>(2 * kShares.size() + 2 * probed.size() + branches.size());
  std::int64_t done = 0;
  Candidates candidates{paths_, {}, {}, {}, {}, {}};
  ComparableStepTimes times(compiler_.for_times(dense_), batch.view());
  const auto time = [&](const Graph& graph) { return times(compiler_.for_times(graph)); };
  for (const double share : kShares) {
    const Keeps keeps = uniform(share);
    if (!paths_.rows.empty()) candidates.rows.push_back(time(apply_mask(dense_, mask_of(keeps))));
    progress(++done, total);
    if (!paths_.channels.empty()) {
      const std::vector<bool> removed = removed_channels(keeps);
      candidates.channels.push_back(
          time(removed.empty() ? dense_ : remove_channels(dense_, paths_.groups, removed)));
    }
    progress(++done, total);
  }

  // Every layer alone loses half of its rows and is refitted on the dense network's inputs: the error that it is left
  // with, and what that makes of the output.
  std::map<std::string, NewWeights> alone;
  std::map<std::string, double> losses;
  const std::shared_ptr<ThreadPool> pool = shared_pool(options_.removal.walk.threads);
  const auto visit = [&](const WalkedLayer& layer) -> std::optional<NewWeights> {
    const Node& node = layer.node();
    if (!probed.contains(node.name)) return std::nullopt;
    const NewWeights dense = weights_of(dense_, node);
    const auto path = std::find_if(paths_.rows.begin(), paths_.rows.end(),
                                   [&](const PruningPath& p) { return p.node == node.name; });
    std::vector<std::uint8_t> removed(static_cast<std::size_t>(dense.weights.shape().elements()), 0);
    if (path != paths_.rows.end()) {
      removed = removals_of(dense_, {path->keep(kProbed)}).at(node.name).weights;
    } else {  // any rows will do
      const std::size_t depth = removed.size() / static_cast<std::size_t>(dense.weights.shape()[0]);
      for (std::size_t i = 0; i < removed.size(); ++i) removed[i] = i % depth % 2 == 0;
    }
    const std::vector<Gram> sums = layer.sums();
    const bool with_bias = layer_if<MatMul>(node) == nullptr;
    NewWeights made = refit(sums, dense, removed, {}, with_bias, options_.removal.refit, *pool);
    losses[node.name] = sums.at(0).relative_error(made.weights.values<float>(), made.bias);
    alone.emplace(node.name, std::move(made));
    progress(++done, total);
    return std::nullopt;
  };
  walk_layers(dense_, inputs(), options_.removal.walk, visit);
  for (const std::string& name : probed) {
    std::map<std::string, NewWeights> one;
    one.insert(alone.extract(name));
    const ImageOutputs outputs =
        run_outputs(compiler_.in_fp32(replace_weights(dense_, std::move(one))), probe);
    candidates.noise[name] = losses.at(name) > 0 ? relative_noise(outputs, reference) / losses.at(name) : 0;
    progress(++done, total);
  }
  const auto noise_without = [&](const std::set<std::string>& last) {
    return relative_noise(run_outputs(compiler_.in_fp32(remove_branches(dense_, last)), probe), reference);
  };
  const Times& as_it_was = candidates.rows.empty() ? candidates.channels.at(0) : candidates.rows[0];
  candidates.without =
      cost_of_branches(dense_, branches, as_it_was, noise_without, [&] { progress(++done, total); });
  for (const ChannelPath& path : paths_.channels) {
    double noise = 0;
    for (const int reader : path.family.readers)
      noise = std::max(noise, candidates.noise.at(dense_.nodes()[static_cast<std::size_t>(reader)].name));
    std::vector<double>& losses_of_family = candidates.channel_loss.emplace_back();
    for (const double share : kShares)
      losses_of_family.push_back(noise * path.loss_after(path.falling(share, options_.multiple)));
  }

  Budget budget;
  const Times& dense = candidates.rows.empty() ? candidates.channels.at(0) : candidates.rows[0];
  for (const auto& [node, ms] : dense) budget.dense_ms += ms;
  budget.others_ms = budget.dense_ms;
  std::vector<Ways> ways;
  std::vector<std::vector<Option>> options;
  for (const Component& component : components_of(dense_, paths_, branches)) {
    ways.push_back(ways_of(candidates, component));
    options.push_back(ways.back().options);
    budget.others_ms -= options.back()[0].ms;
  }
  budget.selections = selections(options);
  for (const Selection& selection : budget.selections) {
    Keeps& keeps = budget.keeps.emplace_back();
    for (std::size_t c = 0; c < ways.size(); ++c) {
      Keeps own = ways[c].keeps[selection.chosen[c]];
      keeps.rows.merge(own.rows);
      keeps.channels.merge(own.channels);
      keeps.branches.merge(own.branches);
    }
  }
  return budget;
}

}  // namespace pipit::apps
