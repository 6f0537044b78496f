// Reshape, Transpose and Reshape that put channels in another order, with a Concat in front and a Split, or Slices,
// behind.
#include <algorithm>
#include <map>
#include <numeric>

#include "layers/ops/channel_shuffle.h"
#include "layers/ops/operands.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/image_values.h"
#include "layers/passes/passes.h"
#include "layers/passes/patterns.h"

namespace pipit {

namespace {

class ChannelShufflePass {
 public:
  explicit ChannelShufflePass(const Graph& graph)
      : rewriter_(graph),
        patterns_(rewriter_),
        images_(graph.values().size(), false),
        readers_(graph.values().size()) {
    for (const Node& node : graph.nodes()) {
      for (const ValueId id : node.inputs) {
        if (id != kNoValue) readers_[static_cast<std::size_t>(id)].push_back(&node);
      }
    }
  }

  Rewritten run() {
    const std::vector<Node>& nodes = rewriter_.source().nodes();
    std::vector<const Match*> replaces(nodes.size(), nullptr);
    std::vector<bool> gone(nodes.size(), false);
    const auto at = [&](const Node* node) { return static_cast<std::size_t>(node - nodes.data()); };
    std::vector<Match> matches;
    std::vector<bool> shuffles(nodes.size(), false);  // what a match ends in
    for (const Node& node : nodes) {
      if (std::optional<Match> match = match_around(node)) {
        shuffles[at(match->together)] = true;
        matches.push_back(std::move(*match));
      }
      const bool image = shuffles[at(&node)] || makes_image(node, images_);
      for (const ValueId id : node.outputs) images_[static_cast<std::size_t>(id)] = image;
    }
    // No node belongs to two: a Reshape between them would have more channels in front than behind.
    for (const Match& m : matches) {
      for (const Node* node : {m.concat, m.apart, m.turned}) {
        if (node != nullptr) gone[at(node)] = true;
      }
      for (const Node* node : m.pieces) gone[at(node)] = true;
      replaces[at(m.together)] = &m;
    }
    for (const Node& node : nodes) {
      if (const Match* m = replaces[at(&node)]) {
        emit(*m);
      } else if (!gone[at(&node)]) {
        rewriter_.copy(node);
      }
    }
    return {rewriter_.finish(), static_cast<int>(matches.size())};
  }

 private:
  static constexpr std::size_t kMax = ChannelShuffle::kMax;

  struct Match {
    const Node *concat = nullptr, *apart = nullptr, *turned = nullptr, *together = nullptr;
    std::vector<const Node*> pieces;  // a Split, or Slices in their order
    std::vector<ValueId> outputs;
    std::int64_t groups = 1;
  };

  const Shape& shape(ValueId id) const { return rewriter_.source().value(id).desc.shape; }

  // What a Transpose of the channels' groups is the middle of.
  std::optional<Match> match_around(const Node& node) const {
    if (!swaps_groups(node)) return std::nullopt;
    Match m;
    m.turned = &node;
    m.apart = patterns_.producer(node.inputs[0]);
    m.together = patterns_.only_consumer(node.outputs[0]);
    if (m.apart == nullptr || m.together == nullptr || layer_if<Reshape>(*m.apart) == nullptr ||
        layer_if<Reshape>(*m.together) == nullptr || patterns_.only_consumer(node.inputs[0]) != &node)
      return std::nullopt;
    const Shape& x = shape(m.apart->inputs[0]);
    const Shape& groups = shape(node.inputs[0]);
    // In other tensors, of tokens say, what moves are blocks, as they lie.
    const bool image = x.rank() > 2 && images_[static_cast<std::size_t>(m.apart->inputs[0])];
    if ((x.rank() != 2 && !image) || x != shape(m.together->outputs[0]) || x.elements() == 0 ||
        groups[0] != x[0] || groups[1] * groups[2] != x[1] || groups[1] == 1 || groups[2] == 1 ||
        groups[1] > ChannelShuffle::kMaxGroups)
      return std::nullopt;
    m.groups = groups[1];
    m.concat = concat_in_front(m.apart->inputs[0]);
    m.outputs = m.together->outputs;
    if (!take_split(m)) take_slices(m);
    return m;
  }
  static bool swaps_groups(const Node& node) {
    const auto* layer = layer_if<Transpose>(node);
    if (layer == nullptr || layer->attributes().permutation.size() < 3) return false;
    std::vector<std::int64_t> wanted(layer->attributes().permutation.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    std::swap(wanted[1], wanted[2]);
    return layer->attributes().permutation == wanted;
  }
  const Node* concat_in_front(ValueId id) const {
    const Node* node = patterns_.producer(id);
    const auto* layer = node == nullptr ? nullptr : layer_if<Concat>(*node);
    if (layer == nullptr || patterns_.only_consumer(id) == nullptr || node->inputs.size() > kMax ||
        normalize_axis(layer->attributes().axis, shape(id).rank(), "Concat") != 1)
      return nullptr;
    const bool computed = std::ranges::none_of(
        node->inputs, [&](ValueId input) { return rewriter_.source().value(input).is_constant(); });
    return computed ? node : nullptr;
  }
  bool take_split(Match& m) const {
    const ValueId y = m.together->outputs[0];
    const Node* node = patterns_.only_consumer(y);
    const auto* layer = node == nullptr ? nullptr : layer_if<Split>(*node);
    if (layer == nullptr || node->outputs.size() > kMax ||
        normalize_axis(layer->attributes().axis, shape(y).rank(), "Split") != 1)
      return false;
    m.pieces = {node};
    m.outputs = node->outputs;
    return true;
  }
  // Slices that each channel belongs to one of, as exporters write chunks.
  void take_slices(Match& m) const {
    const ValueId y = m.together->outputs[0];
    const std::vector<ValueId>& graph_outputs = rewriter_.source().outputs();
    if (std::ranges::find(graph_outputs, y) != graph_outputs.end()) return;
    std::map<std::int64_t, const Node*> slices;  // by the channel that they begin with
    for (const Node* node : readers_[static_cast<std::size_t>(y)]) {
      const auto* layer = layer_if<Slice>(*node);
      if (layer == nullptr) return;
      const ResolvedSlice s = resolve_slice(layer->attributes(), shape(y));
      for (int d = 0; d < shape(y).rank(); ++d) {
        if (d != 1 && s.count[static_cast<std::size_t>(d)] != shape(y)[d]) return;
        if (s.step[static_cast<std::size_t>(d)] != 1) return;
      }
      if (!slices.emplace(s.start[1], node).second) return;
    }
    std::int64_t end = 0;
    for (const auto& [start, node] : slices) {
      if (start != end) return;
      end += shape(node->outputs[0])[1];
    }
    if (end != shape(y)[1] || slices.size() > kMax) return;
    m.outputs.clear();
    for (const auto& [start, node] : slices) {
      m.pieces.push_back(node);
      m.outputs.push_back(node->outputs[0]);
    }
  }

  void emit(const Match& m) {
    ChannelShuffleAttributes attributes{m.groups, {}};
    for (const ValueId y : m.outputs) attributes.sizes.push_back(shape(y)[1]);
    std::vector<ValueId> inputs;
    for (const ValueId x : m.concat != nullptr ? m.concat->inputs : m.apart->inputs)
      inputs.push_back(rewriter_.map(x));
    rewriter_.emit(m.turned->name, std::make_shared<ChannelShuffle>(std::move(attributes)), std::move(inputs),
                   m.outputs);
  }

  Rewriter rewriter_;
  Patterns patterns_;
  std::vector<bool> images_;                       // per value, of the nodes seen so far
  std::vector<std::vector<const Node*>> readers_;  // per value
};

}  // namespace

Rewritten fuse_channel_shuffle(const Graph& graph) {
  return ChannelShufflePass(graph).run();
}

}  // namespace pipit
