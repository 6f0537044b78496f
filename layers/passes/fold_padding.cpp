// Padding written as a layer of its own moves into the windows of what reads it.
#include <algorithm>
#include <limits>
#include <optional>

#include "layers/ops/conv.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/slicing.h"
#include "layers/ops/unary.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// A value that is x with a border.
struct Padded {
  ValueId x = kNoValue;
  const PadAttributes* pad = nullptr;
};

const Node* producer(const Rewriter& rewriter, ValueId id) {
  const int n = rewriter.producer(id);
  return n < 0 ? nullptr : &rewriter.source().nodes()[static_cast<std::size_t>(n)];
}

std::optional<Padded> padded(const Rewriter& rewriter, ValueId id) {
  const Node* node = producer(rewriter, id);
  // Integers that are padded, quantized and dequantized again stay what they are.
  std::optional<Quantization> integers;
  if (const auto* dequantize = node == nullptr ? nullptr : layer_if<Dequantize>(*node)) {
    const Node* before = producer(rewriter, node->inputs[0]);
    const auto* quantize = before == nullptr ? nullptr : layer_if<Quantize>(*before);
    if (quantize == nullptr || !(quantize->y() == dequantize->x())) return std::nullopt;
    integers = dequantize->x();
    node = producer(rewriter, before->inputs[0]);
  }
  const auto* layer = node == nullptr ? nullptr : layer_if<Pad>(*node);
  if (layer == nullptr) return std::nullopt;
  const PadAttributes& pad = layer->attributes();
  if (pad.mode != PadMode::constant || pad.begin.size() < 3) return std::nullopt;
  for (std::size_t d = 0; d < pad.begin.size(); ++d) {
    const bool spatial = d >= 2;
    if (std::min(pad.begin[d], pad.end[d]) < 0 || (!spatial && std::max(pad.begin[d], pad.end[d]) > 0))
      return std::nullopt;
  }
  if (integers) {
    const Node* source = producer(rewriter, node->inputs[0]);
    const auto* dequantize = source == nullptr ? nullptr : layer_if<Dequantize>(*source);
    if (dequantize == nullptr || !(dequantize->x() == *integers)) return std::nullopt;
  }
  return Padded{node->inputs[0], &pad};
}

// The window with the border in it; none where numbers would grow too large.
std::optional<Window> with_border(Window window, const PadAttributes& pad) {
  constexpr std::int64_t kMax = (std::int64_t{1} << 31) - 1;
  if (pad.begin.size() != static_cast<std::size_t>(window.rank) + 2) return std::nullopt;
  for (std::size_t d = 0; d < static_cast<std::size_t>(window.rank); ++d) {
    if (pad.begin[d + 2] > kMax - window.pad_begin[d] || pad.end[d + 2] > kMax - window.pad_end[d])
      return std::nullopt;
    window.pad_begin[d] += pad.begin[d + 2];
    window.pad_end[d] += pad.end[d + 2];
  }
  return window;
}

bool never_negative(const Rewriter& rewriter, ValueId id) {
  const Node* node = producer(rewriter, id);
  if (node == nullptr) return false;
  if (const auto* dequantize = layer_if<Dequantize>(*node))
    return quantized_range(dequantize->x()).low >= dequantize->x().zero_point;
  const auto* unary = layer_if<Unary>(*node);
  if (unary == nullptr) return false;
  const UnaryKind kind = unary->attributes().kind;
  return kind == UnaryKind::relu || kind == UnaryKind::sigmoid || kind == UnaryKind::hard_sigmoid ||
         (kind == UnaryKind::clip && unary->attributes().alpha >= 0);
}

// Whether every window has a tap inside the input, as pools demand of their own border.
bool always_inside(const Window& window) {
  for (std::size_t d = 0; d < static_cast<std::size_t>(window.rank); ++d) {
    if (window.dilation[d] != 1 || std::max(window.pad_begin[d], window.pad_end[d]) >= window.kernel[d])
      return false;
  }
  return true;
}

bool has_padding(const Window& window) {
  const auto positive = [](std::int64_t n) { return n > 0; };
  return std::any_of(window.pad_begin.begin(), window.pad_begin.end(), positive) ||
         std::any_of(window.pad_end.begin(), window.pad_end.end(), positive);
}

// The pool of x that is the pool of its border and x; none where there is no such pool.
std::optional<PoolAttributes> with_border(const Rewriter& rewriter, PoolAttributes a, const Padded& source) {
  if (a.global || a.indices) return std::nullopt;
  const std::optional<Window> window = with_border(a.window, *source.pad);
  if (!window || !always_inside(*window)) return std::nullopt;
  const double value = source.pad->value;
  if (a.kind == PoolKind::max) {
    // Its own border counts as -infinity, which zero does as well for what is never negative.
    const bool lowest = value == -std::numeric_limits<double>::infinity();
    const bool zero = value == 0 && never_negative(rewriter, source.x);
    if (!lowest && !zero) return std::nullopt;
  } else if (a.kind == PoolKind::average) {
    if (value != 0 || (has_padding(a.window) && !a.count_include_pad)) return std::nullopt;
    a.count_include_pad = true;
  } else if (value != 0) {
    return std::nullopt;
  }
  a.window = *window;
  return a;
}

LayerPtr with_border(const Rewriter& rewriter, const Node& node, const Padded& source) {
  if (const auto* conv = layer_if<Conv>(node)) {
    ConvAttributes attributes = conv->attributes();
    const std::optional<Window> window = with_border(attributes.window, *source.pad);
    if (!window || source.pad->value != 0) return nullptr;
    attributes.window = *window;
    return std::make_shared<Conv>(attributes);
  }
  if (const auto* pool = layer_if<Pool>(node)) {
    const std::optional<PoolAttributes> attributes = with_border(rewriter, pool->attributes(), source);
    return attributes ? std::make_shared<Pool>(*attributes) : nullptr;
  }
  return nullptr;
}

// Rounding up may give windows that start in the border another end.
bool same_extents(const Graph& graph, const Node& node, const Layer& layer, ValueId x) {
  std::vector<const TensorDesc*> inputs = graph.input_descs(node);
  inputs[0] = &graph.value(x).desc;
  return layer.infer(inputs).at(0).shape == graph.value(node.outputs[0]).desc.shape;
}

}  // namespace

Rewritten fold_padding(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const bool window = layer_if<Conv>(node) != nullptr || layer_if<Pool>(node) != nullptr;
    const std::optional<Padded> source = window ? padded(rewriter, node.inputs[0]) : std::nullopt;
    const LayerPtr layer = source ? with_border(rewriter, node, *source) : nullptr;
    if (layer == nullptr || !same_extents(graph, node, *layer, source->x)) {
      rewriter.copy(node);
      continue;
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(rewriter.map(id));
    inputs[0] = rewriter.map(source->x);
    rewriter.emit(node.name, layer, std::move(inputs), node.outputs);
    ++changes;
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit::internal
