#include "sparsity/channel_path.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "engine/base/error.h"
#include "layers/ops/conv.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kMaxHeld = 3 * most_depth() * most_depth();

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
  const auto plain = [&](int n) { return conv_groups(node_at(graph, n)) == 1; };
  for (std::size_t g = 0; g < found.groups.size(); ++g) {
    const ChannelGroup& group = found.groups[g];
    if (!group.removable()) continue;
    std::set<int> writers, readers;
    for (const ChannelRun& run : group.outputs) writers.insert(run.node);
    // A depthwise convolution only passes on what it reads; a layer that adds to what it reads does both.
    for (const ChannelRun& run : group.inputs) {
      if (plain(run.node) || !writers.contains(run.node)) readers.insert(run.node);
    }
    std::int64_t held = 0;  // what order_channels() has to hold of all readers at once
    const auto readable = [&](int n) {
      const Shape shape = real_weights(graph, node_at(graph, n)).shape;
      const std::int64_t depth = shape.elements() / shape[0];
      held += depth * depth;
      return plain(n) && depth <= most_depth();
    };
    if (std::any_of(writers.begin(), writers.end(), plain) && !readers.empty() &&
        std::all_of(readers.begin(), readers.end(), readable) && held <= kMaxHeld)
      families[{std::move(writers), std::move(readers)}].push_back(static_cast<int>(g));
  }
  std::vector<ChannelFamily> all;
  for (const auto& [nodes, groups] : families) {
    const bool stream = std::count_if(nodes.first.begin(), nodes.first.end(), plain) > 1;
    all.push_back({groups, nodes.first, nodes.second, stream});
  }
  return all;
}

std::size_t ChannelPath::falling(double share, std::size_t multiple) const {
  if (!(share > 0 && share <= 1)) fail("a share of {} to keep: expected above 0 and at most 1", share);
  const auto all = static_cast<double>(family.groups.size());
  if (block > 1) {
    const auto block_at = [&](std::size_t i) {
      const auto at = std::lower_bound(family.groups.begin(), family.groups.end(), order[i]);
      return static_cast<std::size_t>(at - family.groups.begin()) / block;
    };
    std::size_t best = 0;
    const auto off = [&](std::size_t falls) {
      return std::abs(all - static_cast<double>(falls) - share * all);
    };
    for (std::size_t i = 1; i <= order.size(); ++i) {
      const bool whole = i == order.size() || block_at(i) != block_at(i - 1);
      if (whole && off(i) < off(best)) best = i;
    }
    return best;
  }
  const auto step = static_cast<double>(std::max<std::size_t>(multiple, 1));
  const double stay = std::max(std::round(share * all / step) * step, std::min(step, all));
  return std::min(static_cast<std::size_t>(std::max(all - stay, 0.0)), order.size());
}

EliminationPart channels_in(const Graph& graph, const ChannelGroups& found, const ChannelFamily& family,
                            int reader, const Gram& gram, std::vector<double> inverse) {
  const RealWeights weights = real_weights(graph, node_at(graph, reader));
  const auto taps = static_cast<std::int64_t>(gram.depth) / weights.shape[1];
  EliminationPart part{
      std::move(inverse), mean_squares(gram), {weights.values().begin(), weights.values().end()}, {}, 1};
  for (const int g : family.groups) {
    std::vector<int>& own = part.groups.emplace_back();
    for (const ChannelRun& run : found.groups[static_cast<std::size_t>(g)].inputs) {
      if (run.node != reader) continue;
      for (std::int64_t k = run.first * taps; k < (run.first + run.count) * taps; ++k)
        own.push_back(static_cast<int>(k));
    }
  }
  const double variance = gram.variance();
  part.scale = variance > 0 ? 1 / variance : 0;
  return part;
}

ChannelPath order_channels(ChannelFamily family, std::vector<EliminationPart> readers,
                           const EliminationOptions& options, std::size_t block) {
  for (EliminationPart& part : readers) {
    std::vector<std::vector<int>> blocks;
    for (std::size_t g = 0; g < part.groups.size(); ++g) {
      if (g % block == 0) blocks.emplace_back();
      blocks.back().insert(blocks.back().end(), part.groups[g].begin(), part.groups[g].end());
    }
    part.groups = std::move(blocks);
  }
  const Elimination found = eliminate(std::move(readers), options);
  ChannelPath path{std::move(family), {}, {}, block};
  double loss = 0;
  for (std::size_t i = 0; i < found.order.size(); ++i) {
    const std::size_t first = static_cast<std::size_t>(found.order[i]) * block;
    const std::size_t last = std::min(first + block, path.family.groups.size());
    for (std::size_t g = first; g < last; ++g) {
      loss += found.loss[i] / static_cast<double>(last - first);
      path.order.push_back(path.family.groups[g]);
      path.loss.push_back(loss);
    }
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

}  // namespace pipit::internal
