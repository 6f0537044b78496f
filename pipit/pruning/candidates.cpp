#include "pipit/pruning/candidates.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "layers/ops/matmul.h"
#include "layers/passes/rewriter.h"
#include "pipit/measuring/timing.h"
#include "sparsity/remove_channels.h"
#include "sparsity/replace_weights.h"

namespace pipit::internal::detail {

namespace {

constexpr double kProbed = 0.5;    // the share that a layer keeps to measure what its loss does to the output
constexpr double kMaxNoise = 0.5;  // of the output, over its variance: worse ones are not looked at

// What the output loses without a branch, nothing refitted, once those have gone that cost less for their time:
// branches near each other stand in for each other, and single losses say nothing of the loss of both. A loss that was
// measured with fewer gone is taken as a lower bound, so that few are measured again. Branches without
// which little is left of the output have no cost.
std::map<std::string, double> cost_of_branches(
    const Graph& graph, const std::vector<Branch>& branches, const StepTimes& times,
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
  while (!left.empty() && noise < kMaxNoise) {
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

class Measuring {
 public:
  Measuring(const Pruning& pruning, const std::vector<Branch>& branches, PreparedImages& probe,
            const ImagesDone& progress)
      : pruning_(pruning),
        graph_(pruning.dense()),
        paths_(pruning.paths()),
        branches_(branches),
        probe_(probe),
        progress_(progress),
        first_(first_batch(probe)),
        batch_(views_of(first_)),
        reference_(run_outputs(pruning.compiler().in_fp32(graph_), probe)),
        times_(pruning.compiler().for_times(graph_), batch_) {
    if (!paths_.rows.empty()) kinds_.insert(RowKind::taps);
    for (const PruningPath& path : paths_.rows) {
      if (!probed_.insert(path.node).second) kinds_.insert(path.kind());
    }
    for (std::size_t f = 0; f < paths_.channels.size(); ++f) {
      const ChannelFamily& family = paths_.channels[f].family;
      inner_ = inner_ || !family.stream;
      if (family.stream) {
        candidates_.streams.push_back({f, {}, {}, {}});
        continue;
      }
      for (const int reader : family.readers) probed_.insert(name(reader));
    }
    total_ = static_cast<std::int64_t>((kinds_.size() + 1) * kShares.size() + 2 * probed_.size() +
                                       branches_.size() + candidates_.streams.size() * (kShares.size() + 1));
  }

  Candidates run() {
    time_ladder();
    for (StreamCandidates& stream : candidates_.streams) time_shares(stream);
    probe_layers();
    candidates_.without = cost_of_branches(
        graph_, branches_, candidates_.dense(),
        [&](const std::set<std::string>& last) { return noise_of(remove_branches(graph_, last)); },
        [&] { step(); });
    for (const ChannelPath& path : paths_.channels) weigh(path);
    return std::move(candidates_);
  }

 private:
  const std::string& name(int node) const { return graph_.nodes()[static_cast<std::size_t>(node)].name; }
  void step() {
    ++done_;
    progress_(done_, std::max(total_, done_));
  }

  StepTimes time(const Graph& graph) { return times_(pruning_.compiler().for_times(graph)); }
  StepTimes time_of_channels(const Keeps& keeps) {
    const std::vector<bool> removed = pruning_.removed_channels(keeps);
    return time(removed.empty() ? graph_ : remove_channels(graph_, paths_.groups, removed));
  }

  // The noise of the output, over its variance.
  double noise_of(const Graph& graph) const {
    return relative_noise(run_outputs(pruning_.compiler().in_fp32(graph), probe_), reference_);
  }

  // Times models in which everything but streams keeps one share.
  void time_ladder() {
    for (const double share : kShares) {
      for (const RowKind kind : kinds_) {
        candidates_.rows[index(kind)].push_back(
            time(apply_mask(graph_, pruning_.mask_of(pruning_.uniform(share, kind)))));
        step();
      }
      Keeps keeps = pruning_.uniform(share);
      std::erase_if(keeps.channels,
                    [&](const auto& kept) { return paths_.channels[kept.first].family.stream; });
      if (inner_ || paths_.rows.empty()) candidates_.channels.push_back(time_of_channels(keeps));
      step();
    }
  }

  // Every layer alone loses half of its rows, or what reads a stream some of its channels, and is refitted on the dense
  // network's inputs: the error that it is left with, and what that makes of the output.
  void probe_layers() {
    std::map<std::string, NewWeights> alone;
    std::map<std::string, double> losses;
    std::vector<Removals> removals;
    std::vector<std::map<std::string, NewWeights>> without(candidates_.streams.size());
    for (const StreamCandidates& stream : candidates_.streams)
      removals.push_back(
          stream.shares.empty()
              ? Removals()
              : removals_of(graph_, paths_.groups, pruning_.removed_channels(probed_share(stream))));
    const std::shared_ptr<ThreadPool> pool = shared_pool(pruning_.options().removal.walk.threads);
    const auto visit = [&](const WalkedLayer& layer) -> std::optional<NewWeights> {
      const Node& node = layer.node();
      const bool probed = probed_.contains(node.name);
      std::vector<std::size_t> streams;
      for (std::size_t s = 0; s < removals.size(); ++s) {
        const auto found = removals[s].find(node.name);
        if (found != removals[s].end() && reads(candidates_.streams[s], node)) streams.push_back(s);
      }
      if (!probed && streams.empty()) return std::nullopt;
      const NewWeights dense = weights_of(graph_, node);
      const bool with_bias = layer_if<MatMul>(node) == nullptr;
      const std::vector<Gram> sums = layer.sums();
      const auto fitted = [&](const std::vector<std::uint8_t>& removed) {
        return refit(sums, dense, removed, {}, with_bias, pruning_.options().removal.refit, *pool);
      };
      for (const std::size_t s : streams)
        without[s].emplace(node.name, fitted(removals[s].at(node.name).weights));
      if (probed) {
        NewWeights made = fitted(half_of(node, dense));
        losses[node.name] = sums.at(0).relative_error(made.weights.values<float>(), made.bias);
        alone.emplace(node.name, std::move(made));
        step();
      }
      return std::nullopt;
    };
    walk_layers(graph_, pruning_.sketch_inputs(), pruning_.sketch_walk(), visit);
    for (const std::string& node : probed_) {
      std::map<std::string, NewWeights> one;
      one.insert(alone.extract(node));
      candidates_.noise[node] =
          losses.at(node) > 0 ? noise_of(replace_weights(graph_, std::move(one))) / losses.at(node) : 0;
      step();
    }
    for (std::size_t s = 0; s < without.size(); ++s)
      weigh(candidates_.streams[s],
            without[s].empty() ? 0 : noise_of(replace_weights(graph_, std::move(without[s]))));
  }

  Keeps probed_share(const StreamCandidates& stream) const {
    return {.channels = {{stream.family, stream.shares[stream.shares.size() / 2]}}};
  }
  bool reads(const StreamCandidates& stream, const Node& node) const {
    return paths_.channels[stream.family].family.readers.contains(
        static_cast<int>(&node - graph_.nodes().data()));
  }

  std::vector<std::uint8_t> half_of(const Node& node, const NewWeights& dense) const {
    const auto path = std::find_if(paths_.rows.begin(), paths_.rows.end(),
                                   [&](const PruningPath& p) { return p.node == node.name; });
    if (path != paths_.rows.end()) return removals_of(graph_, {path->keep(kProbed)}).at(node.name).weights;
    // Any rows will do.
    std::vector<std::uint8_t> removed(static_cast<std::size_t>(dense.weights.shape().elements()), 0);
    const std::size_t depth = removed.size() / static_cast<std::size_t>(dense.weights.shape()[0]);
    for (std::size_t i = 0; i < removed.size(); ++i) removed[i] = i % depth % 2 == 0;
    return removed;
  }

  void weigh(const ChannelPath& path) {
    std::vector<double>& losses = candidates_.channel_cost.emplace_back();
    if (path.family.stream) return;
    double noise = 0;
    for (const int reader : path.family.readers) noise = std::max(noise, candidates_.noise.at(name(reader)));
    for (const double share : kShares)
      losses.push_back(noise * path.loss_after(path.falling(share, pruning_.options().multiple)));
  }

  std::size_t falling(const StreamCandidates& stream, double share) const {
    return paths_.channels[stream.family].falling(share, pruning_.options().multiple);
  }

  void time_shares(StreamCandidates& stream) {
    std::size_t last = 0;
    for (const double share : kShares) {
      const std::size_t falls = falling(stream, share);
      if (falls > last) {
        stream.shares.push_back(share);
        stream.times.push_back(time_of_channels({.channels = {{stream.family, share}}}));
      }
      last = falls;
      step();
    }
  }

  void weigh(StreamCandidates& stream, double noise) {
    if (stream.shares.empty()) return;
    const ChannelPath& path = paths_.channels[stream.family];
    const double loss = path.loss_after(falling(stream, stream.shares[stream.shares.size() / 2]));
    for (const double share : stream.shares)
      stream.cost.push_back(loss > 0 ? noise * path.loss_after(falling(stream, share)) / loss : noise);
    step();
  }

  const Pruning& pruning_;
  const Graph& graph_;
  const Paths& paths_;
  const std::vector<Branch>& branches_;
  PreparedImages& probe_;
  const ImagesDone& progress_;
  std::vector<Tensor> first_;
  std::vector<ConstTensorView> batch_;  // of first_
  ImageOutputs reference_;
  ComparableStepTimes times_;
  Candidates candidates_;
  std::set<std::string> probed_;
  std::set<RowKind> kinds_;  // of Candidates::rows
  bool inner_ = false;       // whether there are channels that one layer writes
  std::int64_t done_ = 0, total_ = 0;
};

}  // namespace

double time_of(const StepTimes& times, const std::string& node) {
  const auto found = times.find(node);
  return found == times.end() ? 0 : found->second;
}

double time_of(const StepTimes& times, const std::set<std::string>& nodes) {
  double ms = 0;
  for (const std::string& node : nodes) ms += time_of(times, node);
  return ms;
}

Candidates measure_candidates(const Pruning& pruning, const std::vector<Branch>& branches,
                              PreparedImages& probe, const ImagesDone& progress) {
  return Measuring(pruning, branches, probe, progress).run();
}

}  // namespace pipit::internal::detail
