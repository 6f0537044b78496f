#include "sparsity/remove_channels.h"

#include <algorithm>

#include "engine/base/error.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/resize.h"
#include "layers/ops/slicing.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"
#include "sparsity/channel_constants.h"
#include "sparsity/kept_channels.h"

namespace pipit::internal {

namespace {

bool touches(const KeptChannels& kept, const Node& node) {
  const auto loses = [&](ValueId id) { return id != kNoValue && kept.loses(id); };
  return std::any_of(node.inputs.begin(), node.inputs.end(), loses) ||
         std::any_of(node.outputs.begin(), node.outputs.end(), loses);
}

// The constant's positions that stay, or those that do not.
std::vector<std::int64_t> positions(const Graph& graph, const KeptChannels& kept, const Node& node,
                                    const ChannelConstant& constant, bool staying) {
  const std::int64_t extent = graph.value(node.inputs[constant.input]).desc.shape[constant.axis];
  std::vector<std::int64_t> result;
  for (std::int64_t p = 0; p < extent; ++p) {
    if (kept.stays(constant.channels, p) == staying) result.push_back(p);
  }
  return result;
}

class ChannelRemover {
 public:
  ChannelRemover(const Graph& graph, const ChannelGroups& found, const KeptChannels& kept)
      : graph_(graph), found_(found), kept_(kept), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : graph_.nodes()) {
      for (const ValueId id : node.outputs) check(id);
      if (touches(kept_, node)) {
        rewriter_.emit(node.name, layer(node), inputs(node), node.outputs);
      } else {
        rewriter_.copy(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  const Shape& shape(ValueId id) const { return graph_.value(id).desc.shape; }
  std::int64_t left(ValueId id) const { return kept_.count(id, 0, kept_.extent(id)); }

  void check(ValueId id) const {
    if (kept_.loses(id) && left(id) == 0)
      fail("'{}' would be left without channels: of its {} at least one has to stay", graph_.value(id).name,
           kept_.channels(id).size());
  }

  std::vector<ValueId> inputs(const Node& node) {
    std::vector<std::shared_ptr<const Tensor>> cut(node.inputs.size());
    for (const ChannelConstant& constant : channel_constants(graph_, found_, node)) {
      if (!kept_.loses(constant.channels)) continue;
      std::shared_ptr<const Tensor>& tensor = cut[constant.input];
      if (!tensor) tensor = graph_.value(node.inputs[constant.input]).constant;
      tensor = std::make_shared<const Tensor>(
          take(*tensor, constant.axis, positions(graph_, kept_, node, constant, true)));
    }
    std::vector<ValueId> result;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      result.push_back(cut[i] ? rewriter_.builder().add_constant(graph_.value(node.inputs[i]).name, cut[i])
                              : rewriter_.map(node.inputs[i]));
    }
    if (reads_constants(node)) {
      result.resize(std::max<std::size_t>(result.size(), 3), kNoValue);
      const bool named = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
      result[2] = rewriter_.constant(named ? graph_.value(node.inputs[2]).name : node.name + ".bias",
                                     bias_with_constants(node));
    }
    return result;
  }

  // Whether removed channels that the node reads would be other than zero.
  bool reads_constants(const Node& node) const {
    if (!has_constant_weights(graph_, node)) return false;
    const ValueChannels& x = kept_.channels(node.inputs[0]);
    if (!x.rest) return false;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x.rest_of(i) != 0 && !kept_.stays(node.inputs[0], static_cast<std::int64_t>(i) * x.inner))
        return true;
    }
    return false;
  }

  // The bias of the outputs that stay, with what the removed inputs add to it.
  Tensor bias_with_constants(const Node& node) const {
    const RealWeights real = real_weights(graph_, node);
    const ValueChannels& x = kept_.channels(node.inputs[0]);
    const auto* conv = layer_if<Conv>(node);
    const std::int64_t outputs_each = real.shape[0] / (conv != nullptr ? conv->attributes().groups : 1);
    const std::int64_t taps = real.shape.elements() / (real.shape[0] * real.shape[1]);
    std::vector<float> bias;
    for (std::int64_t o = 0; o < real.shape[0]; ++o) {
      if (!kept_.stays(node.outputs[0], o)) continue;
      double sum = real.bias.empty() ? 0 : static_cast<double>(real.bias[static_cast<std::size_t>(o)]);
      for (std::int64_t i = 0; i < real.shape[1]; ++i) {
        const std::int64_t channel = o / outputs_each * real.shape[1] + i;
        if (kept_.stays(node.inputs[0], channel)) continue;
        const float* w = real.values().data() + (o * real.shape[1] + i) * taps;
        for (std::int64_t tap = 0; tap < taps; ++tap)
          sum += x.rest_of(x.entry(channel)) * static_cast<double>(w[tap]);
      }
      bias.push_back(static_cast<float>(sum));
    }
    return Tensor::from<float>(Shape{std::ssize(bias)}, bias);
  }

  // The layer for what is left of its operands.
  LayerPtr layer(const Node& node) const {
    const ValueId x = node.inputs[0];
    const ValueId y = node.outputs[0];
    if (const auto* conv = layer_if<Conv>(node)) {
      ConvAttributes a = conv->attributes();
      const std::int64_t outputs = shape(y)[1];
      if (ties_whole_groups(a.groups, outputs)) a.groups = left(y) / (outputs / a.groups);
      return std::make_shared<Conv>(a);
    }
    if (const auto* gemm = layer_if<Gemm>(node); gemm != nullptr && reads_constants(node)) {
      GemmAttributes a = gemm->attributes();
      a.beta = 1;  // it is in the new bias
      return std::make_shared<Gemm>(a);
    }
    if (const auto* reshape = layer_if<Reshape>(node))
      return std::make_shared<Reshape>(ReshapeAttributes{smaller(reshape->attributes().shape, y)});
    if (const auto* expand = layer_if<Expand>(node))
      return std::make_shared<Expand>(ExpandAttributes{smaller(expand->attributes().shape, y)});
    if (const auto* resize = layer_if<Resize>(node)) {
      ResizeAttributes a = resize->attributes();
      std::int64_t& size = a.sizes[static_cast<std::size_t>(kept_.channels(x).axis)];
      if (size != 0) size = left(x);
      return std::make_shared<Resize>(a);
    }
    if (const auto* split = layer_if<Split>(node)) return smaller_split(node, split->attributes());
    if (const auto* slice = layer_if<Slice>(node)) return smaller_slice(node, slice->attributes());
    return node.layer;
  }

  Shape smaller(const Shape& target, ValueId y) const { return target.with(kept_.channels(y).axis, left(y)); }

  LayerPtr smaller_split(const Node& node, SplitAttributes a) const {
    const ValueId x = node.inputs[0];
    const int axis = normalize_axis(a.axis, shape(x).rank(), "Split");
    std::int64_t first = 0;
    for (std::int64_t& size : a.sizes) {
      const std::int64_t old = size;
      if (axis == kept_.channels(x).axis) size = kept_.count(x, first, old);
      first += old;
    }
    return std::make_shared<Split>(std::move(a));
  }

  LayerPtr smaller_slice(const Node& node, SliceAttributes a) const {
    const ValueId x = node.inputs[0];
    const ResolvedSlice slice = resolve_slice(a, shape(x));
    const int channels = kept_.channels(x).axis;
    for (std::size_t i = 0; i < a.axes.size(); ++i) {
      if (normalize_axis(a.axes[i], shape(x).rank(), "Slice") != channels) continue;
      const auto d = static_cast<std::size_t>(channels);
      a.starts[i] = kept_.count(x, 0, slice.start[d]);
      a.ends[i] = a.starts[i] + kept_.count(x, slice.start[d], slice.count[d]);
    }
    return std::make_shared<Slice>(std::move(a));
  }

  const Graph& graph_;
  const ChannelGroups& found_;
  const KeptChannels& kept_;
  Rewriter rewriter_;
};

}  // namespace

Graph remove_channels(const Graph& graph, const ChannelGroups& found, const std::vector<bool>& removed) {
  const KeptChannels kept(graph, found, removed);
  return ChannelRemover(graph, found, kept).run();
}

Graph zero_channels(const Graph& graph, const ChannelGroups& found, const std::vector<bool>& removed) {
  const KeptChannels kept(graph, found, removed);
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(rewriter.map(id));
    for (const ChannelConstant& constant : channel_constants(graph, found, node)) {
      if (!constant.writes || !kept.loses(constant.channels)) continue;
      const Value& value = graph.value(node.inputs[constant.input]);
      inputs[constant.input] = rewriter.constant(
          value.name, zeroed(*value.constant, constant.axis, positions(graph, kept, node, constant, false)));
    }
    rewriter.emit(node.name, node.layer, std::move(inputs), node.outputs);
  }
  return rewriter.finish();
}

void spare_last_channels(const ChannelGroups& found, std::vector<bool>& removed) {
  for (const ValueChannels& channels : found.values) {
    if (!channels.known() || channels.size() == 0) continue;
    const std::vector<int>& groups = *channels.groups;
    const bool all = std::all_of(groups.begin(), groups.end(), [&](int group) {
      return group >= 0 && removed.at(static_cast<std::size_t>(group));
    });
    if (all) removed[static_cast<std::size_t>(groups[0])] = false;
  }
}

namespace {

// Per position along the axis, whether there is anything but zeros.
std::vector<bool> anything_at(const Tensor& tensor, int axis) {
  const Tensor plain = to_layout(tensor.view(), Layout::row_major);
  const std::span<const float> values = plain.values<float>();
  std::vector<bool> result(static_cast<std::size_t>(plain.shape()[axis]), false);
  std::size_t behind = 1;
  for (int d = axis + 1; d < plain.shape().rank(); ++d) behind *= static_cast<std::size_t>(plain.shape()[d]);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] == 0)) result[i / behind % result.size()] = true;
  }
  return result;
}

// Channels that a layer adds up are read without weights.
bool adds_channels(const ChannelGroups& found, const Graph& graph, const Node& node) {
  const auto* reduce = layer_if<Reduce>(node);
  if (reduce == nullptr || !found.values[index(node.inputs[0])].known()) return false;
  const auto axis = static_cast<std::size_t>(found.values[index(node.inputs[0])].axis);
  return reduced_dims(reduce->attributes(), graph.value(node.inputs[0]).desc.shape)[axis];
}

}  // namespace

std::vector<bool> find_dead_groups(const Graph& graph, const ChannelGroups& found) {
  std::vector<bool> written(found.groups.size(), false);
  std::vector<bool> read(found.groups.size(), false);
  const auto mark = [&](std::vector<bool>& marks, const ValueChannels& channels, std::int64_t position) {
    const int group = (*channels.groups)[channels.entry(position)];
    if (group >= 0) marks[static_cast<std::size_t>(group)] = true;
  };
  for (const Node& node : graph.nodes()) {
    for (const ChannelConstant& constant : channel_constants(graph, found, node)) {
      if (!constant.writes && !constant.reads) continue;
      const std::vector<bool> anything =
          anything_at(*graph.value(node.inputs[constant.input]).constant, constant.axis);
      const ValueChannels& channels = found.values[index(constant.channels)];
      for (std::size_t p = 0; p < anything.size(); ++p) {
        if (anything[p]) mark(constant.writes ? written : read, channels, static_cast<std::int64_t>(p));
      }
    }
    if (adds_channels(found, graph, node)) {
      const ValueChannels& channels = found.values[index(node.inputs[0])];
      for (std::size_t i = 0; i < channels.size(); ++i)
        mark(read, channels, static_cast<std::int64_t>(i) * channels.inner);
    }
  }
  std::vector<bool> dead(found.groups.size(), false);
  for (std::size_t g = 0; g < dead.size(); ++g)
    dead[g] = found.groups[g].removable() && (!written[g] || !read[g]);
  spare_last_channels(found, dead);
  return dead;
}

}  // namespace pipit::internal
