// Channels in groups, which exporters write as Reshapes: group normalization, and channel shuffles.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "layers/ops/channel_shuffle.h"
#include "layers/ops/normalization.h"
#include "layers/ops/operands.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/image_values.h"
#include "layers/passes/passes.h"
#include "layers/passes/patterns.h"

namespace pipit::internal {

namespace {

// InstanceNorm of [N, groups, the rest] between two Reshapes, in a quantized model those of integers, with a Dequantize
// and a Quantize between, becomes one of groups of channels.
class GroupNormPass {
 public:
  explicit GroupNormPass(const Graph& graph) : rewriter_(graph), patterns_(rewriter_) {}

  Rewritten run() {
    const std::vector<Node>& nodes = rewriter_.source().nodes();
    std::vector<std::optional<GroupNorm>> norm_of(nodes.size());  // per Reshape after one
    std::vector<bool> gone(nodes.size(), false);
    int changes = 0;
    const auto at = [&](const Node* node) { return static_cast<std::size_t>(node - nodes.data()); };
    for (const Node& node : nodes) {
      const std::optional<GroupNorm> found = group_norm(node);
      if (!found || norm_of[at(found->apart)]) continue;  // the Reshape after another one
      norm_of[at(found->together)] = found;
      for (const Node* part : {found->apart, found->dequantize, found->norm, found->quantize}) {
        if (part != nullptr) gone[at(part)] = true;
      }
      ++changes;
    }
    for (const Node& node : nodes) {
      if (const std::optional<GroupNorm>& found = norm_of[at(&node)]) {
        emit(*found);
      } else if (!gone[at(&node)]) {
        rewriter_.copy(node);
      }
    }
    return {rewriter_.finish(), changes};
  }

 private:
  const Value& value(ValueId id) const { return rewriter_.source().value(id); }

  // In the order of the graph; dequantize and quantize may be null.
  struct GroupNorm {
    const Node *apart, *dequantize, *norm, *quantize, *together;
  };

  std::optional<GroupNorm> group_norm(const Node& node) const {
    const auto* norm = layer_if<InstanceNorm>(node);
    if (norm == nullptr || norm->attributes().groups != 0 || parameter(node, 1) == nullptr ||
        parameter(node, 2) == nullptr)
      return std::nullopt;
    GroupNorm found{only_source(node), nullptr, &node, nullptr, patterns_.only_consumer(node.outputs[0])};
    if (found.apart != nullptr && layer_if<Dequantize>(*found.apart) != nullptr) {
      found.dequantize = found.apart;
      found.apart = only_source(*found.dequantize);
    }
    if (found.together != nullptr && layer_if<Quantize>(*found.together) != nullptr) {
      found.quantize = found.together;
      found.together = patterns_.only_consumer(found.quantize->outputs[0]);
    }
    if (found.apart == nullptr || found.together == nullptr || layer_if<Reshape>(*found.apart) == nullptr ||
        layer_if<Reshape>(*found.together) == nullptr)
      return std::nullopt;
    const Shape& x = value(found.apart->inputs[0]).desc.shape;
    const Shape& groups = value(node.inputs[0]).desc.shape;
    const bool fits = x.rank() >= 3 && x == value(found.together->outputs[0]).desc.shape &&
                      x.elements() > 0 && groups[0] == x[0] && x[1] % groups[1] == 0;
    return fits ? std::optional(found) : std::nullopt;
  }
  // What computes input 0, for this node alone.
  const Node* only_source(const Node& node) const {
    const Node* source = patterns_.producer(node.inputs[0]);
    return source != nullptr && patterns_.only_consumer(node.inputs[0]) == &node ? source : nullptr;
  }
  const Tensor* parameter(const Node& node, std::size_t input) const {
    const Tensor* tensor = value(node.inputs[input]).constant.get();
    return tensor != nullptr && tensor->desc().dtype == DType::f32 ? tensor : nullptr;
  }

  void emit(const GroupNorm& found) {
    const Node& norm = *found.norm;
    const std::int64_t channels = value(found.together->outputs[0]).desc.shape[1];
    const std::int64_t groups = value(norm.inputs[0]).desc.shape[1];
    const auto of_channels = [&](std::size_t input, const char* part) {
      const std::span<const float> from = parameter(norm, input)->values<float>();
      Tensor tensor{TensorDesc{Shape{channels}}};
      const std::span<float> to = tensor.values<float>();
      for (std::size_t c = 0; c < to.size(); ++c) to[c] = from[c * from.size() / to.size()];
      return rewriter_.constant(norm.name + part, std::move(tensor));
    };
    const float epsilon = layer_if<InstanceNorm>(norm)->attributes().epsilon;
    ValueId x = rewriter_.map(found.apart->inputs[0]);
    if (found.dequantize != nullptr) x = inner(*found.dequantize, found.dequantize->layer, {x});
    const std::vector<ValueId> inputs{x, of_channels(1, ".scale"), of_channels(2, ".bias")};
    const LayerPtr layer = std::make_shared<InstanceNorm>(InstanceNormAttributes{epsilon, groups});
    if (found.quantize == nullptr) {
      rewriter_.emit(norm.name, layer, inputs, found.together->outputs);
    } else {
      rewriter_.emit(found.quantize->name, found.quantize->layer, {inner(norm, layer, inputs)},
                     found.together->outputs);
    }
  }
  // A value that only the nodes of one group normalization know.
  ValueId inner(const Node& node, const LayerPtr& layer, const std::vector<ValueId>& inputs) {
    return rewriter_.builder().add1(node.name, layer, inputs);
  }

  Rewriter rewriter_;
  Patterns patterns_;
};

// Reshape, Transpose and Reshape that put channels in another order, with a Concat before and a Split, or Slices,
// after, become ChannelShuffle.
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
    // No node belongs to two: a Reshape between them would have more channels before it than after it.
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

Rewritten fuse_channel_groups(const Graph& graph, DeviceKind device) {
  const Rewritten norms = device == DeviceKind::cpu ? GroupNormPass(graph).run() : Rewritten{graph};
  Rewritten shuffles = ChannelShufflePass(norms.graph).run();
  shuffles.changes += norms.changes;
  return shuffles;
}

}  // namespace pipit::internal
