#include "sparsity/channel_path.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "engine/base/error.h"
#include "layers/ops/conv.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit {

namespace {

std::int64_t conv_groups(const Node& node) {
  const auto* conv = layer_if<Conv>(node);
  return conv == nullptr ? 1 : conv->attributes().groups;
}

const Node& node_at(const Graph& graph, int node) {
  return graph.nodes().at(static_cast<std::size_t>(node));
}

}  // namespace

std::vector<ChannelFamily> find_families(const Graph& graph, const ChannelGroups& found) {
  std::map<std::pair<std::set<int>, std::set<int>>, std::vector<int>> families;
  for (std::size_t g = 0; g < found.groups.size(); ++g) {
    const ChannelGroup& group = found.groups[g];
    if (!group.removable()) continue;
    std::set<int> writers, readers;
    for (const ChannelRun& run : group.outputs) writers.insert(run.node);
    for (const ChannelRun& run : group.inputs) {
      if (!writers.contains(run.node)) readers.insert(run.node);
    }
    const auto plain = [&](int n) { return conv_groups(node_at(graph, n)) == 1; };
    const bool one_writer = std::count_if(writers.begin(), writers.end(), plain) == 1;
    const auto readable = [&](int n) {
      const Shape shape = real_weights(graph, node_at(graph, n)).shape;
      return plain(n) && shape.elements() / shape[0] <= most_depth();
    };
    if (one_writer && !readers.empty() && std::all_of(readers.begin(), readers.end(), readable))
      families[{std::move(writers), std::move(readers)}].push_back(static_cast<int>(g));
  }
  std::vector<ChannelFamily> all;
  for (const auto& [nodes, groups] : families) all.push_back({groups, nodes.first, nodes.second});
  return all;
}

std::size_t ChannelPath::falling(double share, std::size_t multiple) const {
  if (!(share > 0 && share <= 1)) fail("a share of {} to keep: expected above 0 and at most 1", share);
  const auto all = static_cast<double>(family.groups.size());
  const auto step = static_cast<double>(std::max<std::size_t>(multiple, 1));
  const double stay = std::max(std::round(share * all / step) * step, std::min(step, all));
  return std::min(static_cast<std::size_t>(std::max(all - stay, 0.0)), order.size());
}

Elimination eliminate_channels(const Graph& graph, const ChannelGroups& found, const ChannelFamily& family,
                               int reader, const Gram& gram, const std::vector<double>& inverse,
                               const EliminationOptions& options) {
  const RealWeights weights = real_weights(graph, node_at(graph, reader));
  const auto taps = static_cast<std::int64_t>(gram.depth) / weights.shape[1];
  std::vector<std::vector<int>> columns;
  for (const int g : family.groups) {
    std::vector<int>& own = columns.emplace_back();
    for (const ChannelRun& run : found.groups[static_cast<std::size_t>(g)].inputs) {
      if (run.node != reader) continue;
      for (std::int64_t k = run.first * taps; k < (run.first + run.count) * taps; ++k)
        own.push_back(static_cast<int>(k));
    }
  }
  double variance = 0;
  for (std::size_t o = 0; o < gram.outputs; ++o) {
    const double mean = gram.xy[gram.depth * gram.outputs + o] / gram.count;
    variance += gram.yy[o] / gram.count - mean * mean;
  }
  Elimination path =
      eliminate(gram, inverse, {weights.values().begin(), weights.values().end()}, columns, options);
  for (double& loss : path.loss) loss = variance > 0 ? loss / variance : 0;
  return path;
}

ChannelPath join_readers(ChannelFamily family, const std::vector<Elimination>& readers) {
  ChannelPath path{std::move(family), {}, {}};
  const std::size_t groups = path.family.groups.size();
  std::vector<double> loss(groups, 0);
  std::vector<int> rank(groups, 0);
  std::size_t falling = groups;
  for (const Elimination& reader : readers) {
    falling = std::min(falling, reader.order.size());
    for (std::size_t i = 0; i < reader.order.size(); ++i) {
      loss[static_cast<std::size_t>(reader.order[i])] += reader.loss[i];
      rank[static_cast<std::size_t>(reader.order[i])] += static_cast<int>(i);
    }
    // What does not fall from one reader falls last.
    std::vector<bool> fell(groups, false);
    for (const int g : reader.order) fell[static_cast<std::size_t>(g)] = true;
    for (std::size_t g = 0; g < groups; ++g) {
      if (fell[g]) continue;
      loss[g] += reader.loss.empty() ? 0 : 10 * reader.loss.back();
      rank[g] += static_cast<int>(groups);
    }
  }
  std::vector<int> order(groups);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
    return readers.size() == 1 ? rank[x] < rank[y] : loss[x] < loss[y];
  });
  double sum = 0;
  for (std::size_t i = 0; i < falling; ++i) {
    const auto g = static_cast<std::size_t>(order[i]);
    sum += loss[g];
    path.order.push_back(path.family.groups[g]);
    path.loss.push_back(sum);
  }
  return path;
}

Removals removals_of(const Graph& graph, const ChannelGroups& found, const std::vector<bool>& removed) {
  if (removed.size() != found.groups.size())
    fail("{} marks for {} groups of channels", removed.size(), found.groups.size());
  Removals removals;
  const auto of = [&](int n) -> Removal& {
    const Node& node = node_at(graph, n);
    Removal& removal = removals[node.name];
    if (removal.weights.empty()) {
      const Shape shape = real_weights(graph, node).shape;
      removal.weights.assign(static_cast<std::size_t>(shape.elements()), 0);
      removal.outputs.assign(static_cast<std::size_t>(shape[0]), 0);
    }
    return removal;
  };
  for (std::size_t g = 0; g < removed.size(); ++g) {
    if (!removed[g]) continue;
    for (const ChannelRun& run : found.groups[g].outputs) {
      Removal& removal = of(run.node);
      const std::size_t depth = removal.weights.size() / removal.outputs.size();
      const auto first = static_cast<std::size_t>(run.first), count = static_cast<std::size_t>(run.count);
      std::fill_n(removal.outputs.begin() + run.first, count, 1);
      std::fill_n(removal.weights.begin() + static_cast<std::ptrdiff_t>(first * depth), count * depth, 1);
    }
    for (const ChannelRun& run : found.groups[g].inputs) {
      Removal& removal = of(run.node);
      const Shape shape = real_weights(graph, node_at(graph, run.node)).shape;
      const std::int64_t outputs = shape[0] / conv_groups(node_at(graph, run.node));
      const std::int64_t taps = shape.elements() / (shape[0] * shape[1]);
      for (std::int64_t c = run.first; c < run.first + run.count; ++c) {
        for (std::int64_t o = c / shape[1] * outputs; o < (c / shape[1] + 1) * outputs; ++o) {
          std::fill_n(removal.weights.begin() + (o * shape[1] + c % shape[1]) * taps, taps, 1);
        }
      }
    }
  }
  return removals;
}

}  // namespace pipit
