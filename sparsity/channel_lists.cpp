#include "sparsity/channel_lists.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/error.h"
#include "layers/passes/real_weights.h"
#include "sparsity/kept_channels.h"

namespace pipit {

namespace {

// The nodes of the runs, each once, ascending.
std::vector<int> nodes_of(const std::vector<ChannelRun>& runs) {
  std::vector<int> nodes;
  for (const ChannelRun& run : runs) nodes.push_back(run.node);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

bool is_inner(const Graph& graph, const ChannelList& list) {
  std::vector<int> makers;
  std::set_difference(list.writers.begin(), list.writers.end(), list.readers.begin(), list.readers.end(),
                      std::back_inserter(makers));
  if (makers.size() != 1) return false;
  const ValueId input = graph.nodes()[static_cast<std::size_t>(makers[0])].inputs[0];
  return std::find(graph.inputs().begin(), graph.inputs().end(), input) == graph.inputs().end();
}

}  // namespace

std::vector<ChannelList> channel_lists(const Graph& graph, const ChannelGroups& found) {
  std::vector<ChannelList> lists;
  std::map<std::vector<int>, std::size_t> at;  // by writers, then -1, then readers
  for (std::size_t g = 0; g < found.groups.size(); ++g) {
    const ChannelGroup& group = found.groups[g];
    if (!group.removable()) continue;
    ChannelList list{{}, nodes_of(group.outputs), nodes_of(group.inputs), false};
    std::vector<int> key = list.writers;
    key.push_back(-1);
    key.insert(key.end(), list.readers.begin(), list.readers.end());
    const auto [place, fresh] = at.emplace(std::move(key), lists.size());
    if (fresh) {
      list.inner = is_inner(graph, list);
      lists.push_back(std::move(list));
    }
    lists[place->second].groups.push_back(static_cast<int>(g));
  }
  return lists;
}

std::vector<double> channel_norms(const Graph& graph, const ChannelGroups& found, ChannelNorm norm) {
  // Per node, of each of its outputs.
  std::vector<std::vector<double>> rows(graph.nodes().size());
  for (std::size_t n = 0; n < rows.size(); ++n) {
    if (!has_constant_weights(graph, graph.nodes()[n])) continue;
    const RealWeights real = real_weights(graph, graph.nodes()[n]);
    rows[n].assign(static_cast<std::size_t>(real.shape[0]), 0);
    const std::size_t length = real.values().size() / rows[n].size();
    for (std::size_t i = 0; i < real.values().size(); ++i) {
      const double w = static_cast<double>(real.values()[i]);
      rows[n][i / length] += norm == ChannelNorm::l1 ? std::abs(w) : w * w;
    }
  }
  std::vector<double> norms;
  for (const ChannelGroup& group : found.groups) {
    double sum = 0;
    for (const ChannelRun& run : group.outputs) {
      for (std::int64_t i = 0; i < run.count; ++i)
        sum += rows[static_cast<std::size_t>(run.node)][static_cast<std::size_t>(run.first + i)];
    }
    norms.push_back(sum);
  }
  return norms;
}

std::int64_t channels_kept(std::int64_t count, double share, std::int64_t multiple) {
  if (!(share >= 0 && share <= 1) || multiple < 1)
    fail("a share of {} of the channels, in multiples of {}", share, multiple);
  const std::int64_t step = std::min(multiple, std::max<std::int64_t>(count, 1));
  const auto steps = static_cast<std::int64_t>(
      std::floor(share * static_cast<double>(count) / static_cast<double>(step) + 0.5));
  return std::clamp(steps * step, std::min(step, count), count);
}

void remove_least(const ChannelList& list, std::span<const double> importance, std::int64_t kept,
                  std::vector<bool>& removed) {
  std::vector<int> order = list.groups;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return importance[static_cast<std::size_t>(a)] < importance[static_cast<std::size_t>(b)];
  });
  const std::int64_t falling = std::max<std::int64_t>(std::ssize(order) - kept, 0);
  for (std::int64_t i = 0; i < falling; ++i)
    removed.at(static_cast<std::size_t>(order[static_cast<std::size_t>(i)])) = true;
}

PruningMask channel_mask(const Graph& graph, const ChannelGroups& found, const std::vector<bool>& removed) {
  const KeptChannels kept(graph, found, removed);
  PruningMask mask;
  for (const Node& node : graph.nodes()) {
    if (!has_constant_weights(graph, node) || !kept.loses(node.outputs[0])) continue;
    LayerMask layer{node.name, MaskMode::channel, 1, 0, {}};
    for (std::int64_t o = 0; o < kept.extent(node.outputs[0]); ++o)
      layer.removed.push_back(kept.stays(node.outputs[0], o) ? 0 : 1);
    mask.push_back(std::move(layer));
  }
  return mask;
}

}  // namespace pipit
