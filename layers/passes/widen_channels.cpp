// Channels of weights of zeros that make images' channels a multiple of what kernels read at once. What they hold does
// not matter as long as all values are finite.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/base/ceil_div.h"
#include "layers/ops/channel_shuffle.h"
#include "layers/ops/conv.h"
#include "layers/ops/operands.h"
#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/resize.h"
#include "layers/ops/slicing.h"
#include "layers/passes/image_values.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kMultiple = 8;
constexpr std::int64_t kMaxAnyChannels = 16;          // up to here kernels take every number of channels
constexpr std::int64_t kMaxWidenedProducts = 60'000;  // of an INT8 sum, far enough from what QConv refuses

// Sets of values that have the same channels, as the layers between them keep them.
class Families {
 public:
  explicit Families(const Graph& graph) : graph_(graph), parent_(graph.values().size()) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    facts_.resize(parent_.size());
    for (std::size_t v = 0; v < parent_.size(); ++v) {
      const Shape& shape = graph.values()[v].desc.shape;
      // Kernels have 31-bit offsets; what they took must not become too large for them.
      constexpr std::int64_t kMaxElements = std::int64_t{1} << 30;
      facts_[v].fixed =
          shape.rank() < 3 || graph.values()[v].is_constant() || shape.elements() > kMaxElements;
      if (!facts_[v].fixed) facts_[v].image = shape.elements() > shape[0] * shape[1];
    }
  }

  void fix(ValueId id) {
    if (id != kNoValue) facts_[root(id)].fixed = true;
  }
  /// What a convolution or a pool of windows reads, a convolution writes, and a ChannelShuffle reads.
  void read(ValueId id) { facts_[root(id)].read = true; }
  void write(ValueId id) { facts_[root(id)].written = true; }
  void shuffle(ValueId id) { facts_[root(id)].shuffled = true; }
  void join(ValueId a, ValueId b) {
    const std::size_t from = root(b), to = root(a);
    if (from == to) return;
    parent_[from] = to;
    facts_[to].fixed |= facts_[from].fixed;
    facts_[to].read |= facts_[from].read;
    facts_[to].written |= facts_[from].written;
    facts_[to].shuffled |= facts_[from].shuffled;
    facts_[to].image |= facts_[from].image;
  }
  /// The channels that the value gets; those it has where nothing is won.
  std::int64_t width(ValueId id) {
    const Shape& shape = graph_.value(id).desc.shape;
    if (shape.rank() < 2) return 0;
    const Facts& facts = facts_[root(id)];
    const bool wins = facts.read || (facts.written && facts.shuffled);
    const bool widen = !facts.fixed && wins && facts.image && shape[1] > kMaxAnyChannels;
    return widen ? round_up(shape[1], kMultiple) : shape[1];
  }
  bool widens(ValueId id) { return id != kNoValue && width(id) != channels(id); }
  std::int64_t channels(ValueId id) const {
    const Shape& shape = graph_.value(id).desc.shape;
    return shape.rank() < 2 ? 0 : shape[1];
  }

 private:
  struct Facts {
    bool fixed = false, read = false, written = false, shuffled = false;
    bool image = false;  // more than one position: gates of single pixels have kernels of their own
  };
  std::size_t root(ValueId id) {
    auto v = static_cast<std::size_t>(id);
    while (parent_[v] != v) v = parent_[v] = parent_[parent_[v]];
    return v;
  }

  const Graph& graph_;
  std::vector<std::size_t> parent_;
  std::vector<Facts> facts_;
};

const ConvAttributes* convolution(const Node& node) {
  if (const auto* conv = layer_if<Conv>(node)) return &conv->attributes();
  const auto* qconv = layer_if<QConv>(node);
  return qconv != nullptr ? &qconv->attributes().conv : nullptr;
}

// Pools of windows that are not the whole image.
bool slides(const Node& node) {
  if (const auto* pool = layer_if<Pool>(node)) return !pool->attributes().global;
  const auto* average = layer_if<QAveragePool>(node);
  return average != nullptr && !average->attributes().pool.global;
}

// [O, I, ...] or [O] with zeros after the channels of both.
Tensor padded(const Tensor& tensor, std::int64_t outputs, std::int64_t inputs) {
  const Shape& from = tensor.shape();
  Shape to = from.with(0, outputs);
  if (from.rank() > 1) to = to.with(1, inputs);
  Tensor result(TensorDesc{to, tensor.desc().dtype});
  std::byte* const data = result.view().data;
  std::memset(data, 0, result.desc().bytes());
  const auto row = [&](const Shape& shape) {
    return static_cast<std::size_t>(shape.elements() / shape[0]) * dtype_bytes(tensor.desc().dtype);
  };
  for (std::int64_t o = 0; o < from[0]; ++o) {
    const auto n = static_cast<std::size_t>(o);
    std::memcpy(data + n * row(to), tensor.view().data + n * row(from), row(from));
  }
  return result;
}

class WidenPass {
 public:
  explicit WidenPass(const Graph& graph) : rewriter_(graph), families_(graph), images_(image_values(graph)) {}

  Rewritten run() {
    const Graph& graph = rewriter_.source();
    for (const ValueId id : graph.inputs()) families_.fix(id);
    for (const ValueId id : graph.outputs()) families_.fix(id);
    for (const Node& node : graph.nodes()) look_at(node);
    for (const Node& node : graph.nodes()) {
      if (moves_channels(node) && is_widened(node)) shuffle_inputs(node);
    }
    int changes = 0;
    for (const Node& node : graph.nodes()) {
      if (!is_widened(node)) {
        rewriter_.copy(node);
      } else if (const ConvAttributes* conv = convolution(node)) {
        emit_convolution(node, *conv);
        ++changes;
      } else if (moves_channels(node)) {
        emit_shuffle(node);
      } else if (const auto* resize = layer_if<Resize>(node)) {
        ResizeAttributes attributes = resize->attributes();
        if (attributes.sizes[1] != 0) attributes.sizes[1] = families_.width(node.outputs[0]);
        emit(node, std::make_shared<Resize>(attributes), mapped(node));
      } else {
        emit(node, node.layer, mapped(node));
      }
    }
    return {rewriter_.finish(), changes};
  }

 private:
  void look_at(const Node& node) {
    if (const ConvAttributes* conv = convolution(node)) return look_at(node, *conv);
    if (moves_channels(node)) {
      const auto* shuffle = layer_if<ChannelShuffle>(node);
      if (shuffle != nullptr && !shuffle->attributes().taken.empty())
        return fix_all(node);  // widened already
      // A Concat alone is better left as it is, with what it takes along of what follows.
      if (shuffle != nullptr) shuffle_inputs(node);
      return;
    }
    // Every operand has the channels of the result where the result has them, or is a number.
    const Shape& y = shape(node.outputs[0]);
    const bool same = node.layer->traits().channelwise && std::ranges::all_of(node.inputs, [&](ValueId id) {
                        if (id == kNoValue) return true;
                        if (is_number(id)) return shape(id).rank() <= y.rank();
                        return shape(id).rank() == y.rank() && y.rank() > 1 && shape(id)[1] == y[1];
                      });
    if (!same) return fix_all(node);
    for (const ValueId id : node.inputs) {
      if (id != kNoValue && !is_number(id)) families_.join(node.outputs[0], id);
    }
    if (slides(node)) families_.read(node.inputs[0]);
  }

  void look_at(const Node& node, const ConvAttributes& conv) {
    const ValueId x = node.inputs[0], y = node.outputs[0];
    const ValueId residual = node.inputs.size() > 3 ? node.inputs[3] : kNoValue;
    const bool constant = std::ranges::all_of(std::array{1, 2}, [&](std::size_t i) {
      return i >= node.inputs.size() || node.inputs[i] == kNoValue ||
             rewriter_.source().value(node.inputs[i]).is_constant();
    });
    const bool depthwise = is_depthwise(node, conv);
    if (!constant || (conv.groups != 1 && !depthwise)) return fix_all(node);
    if (residual != kNoValue) families_.join(y, residual);
    // INT8 sums of more products may wrap around.
    if (!depthwise && layer_if<QConv>(node) != nullptr &&
        shape(node.inputs[1]).elements() > kMaxWidenedProducts * shape(y)[1])
      families_.fix(x);
    families_.read(x);
    families_.write(y);
    if (depthwise && conv.groups != 1) families_.join(y, x);
  }

  bool is_widened(const Node& node) {
    const auto widens = [&](ValueId id) { return families_.widens(id); };
    return std::ranges::any_of(node.inputs, widens) || std::ranges::any_of(node.outputs, widens);
  }
  void shuffle_inputs(const Node& node) {
    for (const ValueId id : node.inputs) families_.shuffle(id);
  }
  bool is_depthwise(const Node& node, const ConvAttributes& conv) const {
    return conv.groups == families_.channels(node.inputs[0]) &&
           conv.groups == families_.channels(node.outputs[0]);
  }
  const Shape& shape(ValueId id) const { return rewriter_.source().value(id).desc.shape; }
  void fix_all(const Node& node) {
    for (const ValueId id : node.inputs) families_.fix(id);
    for (const ValueId id : node.outputs) families_.fix(id);
  }
  // A finite one: what it meets in channels that are made up stays finite.
  bool is_number(ValueId id) const {
    const Value& value = rewriter_.source().value(id);
    return value.is_constant() && value.desc.elements() == 1 && value.desc.dtype == DType::f32 &&
           std::isfinite(value.constant->values<float>()[0]);
  }
  // Layers that put channels side by side, in whatever order: what ChannelShuffle does.
  bool moves_channels(const Node& node) const {
    if (layer_if<ChannelShuffle>(node) != nullptr) return true;
    const auto channels_of = [&](std::int64_t axis, ValueId whole) {
      const int rank = shape(whole).rank();
      return rank > 2 && images_[static_cast<std::size_t>(whole)] && normalize_axis(axis, rank, "axis") == 1;
    };
    const auto computed = [&](ValueId id) { return !rewriter_.source().value(id).is_constant(); };
    if (const auto* concat = layer_if<Concat>(node))
      return node.inputs.size() <= ChannelShuffle::kMax && std::ranges::all_of(node.inputs, computed) &&
             channels_of(concat->attributes().axis, node.outputs[0]);
    const auto* split = layer_if<Split>(node);
    return split != nullptr && node.outputs.size() <= ChannelShuffle::kMax &&
           channels_of(split->attributes().axis, node.inputs[0]);
  }

  std::vector<ValueId> mapped(const Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(rewriter_.map(id));
    return inputs;
  }
  void emit(const Node& node, LayerPtr layer, std::vector<ValueId> inputs) {
    rewriter_.emit(node.name, std::move(layer), std::move(inputs), node.outputs);
  }

  void emit_convolution(const Node& node, const ConvAttributes& conv) {
    const std::int64_t outputs = families_.width(node.outputs[0]);
    const bool depthwise = conv.groups != 1;
    std::vector<ValueId> inputs = mapped(node);
    for (const std::size_t i : {1, 2}) {
      if (i >= node.inputs.size() || node.inputs[i] == kNoValue) continue;
      const Value& value = rewriter_.source().value(node.inputs[i]);
      inputs[i] = rewriter_.constant(
          value.name, padded(*value.constant, outputs, depthwise ? 1 : families_.width(node.inputs[0])));
    }
    ConvAttributes attributes = conv;
    if (depthwise) attributes.groups = outputs;
    const auto* qconv = layer_if<QConv>(node);
    if (qconv == nullptr) return emit(node, std::make_shared<Conv>(attributes), std::move(inputs));
    QConvAttributes quantized = qconv->attributes();
    quantized.conv = attributes;
    if (quantized.weight_scales.size() > 1)
      quantized.weight_scales.resize(static_cast<std::size_t>(outputs), quantized.weight_scales[0]);
    emit(node, std::make_shared<QConv>(std::move(quantized)), std::move(inputs));
  }

  void emit_shuffle(const Node& node) {
    ChannelShuffleAttributes attributes;
    if (const auto* shuffle = layer_if<ChannelShuffle>(node)) attributes = shuffle->attributes();
    attributes.sizes.clear();
    for (const ValueId id : node.inputs) attributes.taken.push_back(families_.channels(id));
    for (const ValueId id : node.outputs) {
      attributes.sizes.push_back(families_.channels(id));
      attributes.widths.push_back(families_.width(id));
    }
    emit(node, std::make_shared<ChannelShuffle>(std::move(attributes)), mapped(node));
  }

  Rewriter rewriter_;
  Families families_;
  std::vector<bool> images_;
};

}  // namespace

Rewritten widen_channels(const Graph& graph) {
  return WidenPass(graph).run();
}

}  // namespace pipit::internal
