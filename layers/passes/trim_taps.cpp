// Dilated convolutions of small images: outer taps that read nothing but padding.
#include <algorithm>
#include <array>

#include "layers/evaluate.h"
#include "layers/ops/conv.h"
#include "layers/ops/qconv.h"
#include "layers/ops/slicing.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// Whether tap `tap` of any of `outputs` windows lies inside `inputs` positions.
bool reads_input(const Window& window, std::size_t axis, std::int64_t tap, std::int64_t outputs,
                 std::int64_t inputs) {
  const std::int64_t stride = window.stride[axis];
  const std::int64_t at = tap * window.dilation[axis] - window.pad_begin[axis];  // of window 0
  const std::int64_t first = at >= 0 ? 0 : (-at + stride - 1) / stride;
  return first < outputs && at + first * stride < inputs;
}

// Outer taps to leave out along one axis, as far as there is padding to leave out with them.
struct Trim {
  std::int64_t front = 0;
  std::int64_t back = 0;
};
Trim trim_of(const Window& window, std::size_t axis, std::int64_t outputs, std::int64_t inputs) {
  const std::int64_t taps = window.kernel[axis];
  const std::int64_t step = window.dilation[axis];
  Trim trim;
  while (trim.front + 1 < taps && (trim.front + 1) * step <= window.pad_begin[axis] &&
         !reads_input(window, axis, trim.front, outputs, inputs))
    ++trim.front;
  while (trim.front + trim.back + 1 < taps && (trim.back + 1) * step <= window.pad_end[axis] &&
         !reads_input(window, axis, taps - 1 - trim.back, outputs, inputs))
    ++trim.back;
  return trim;
}

struct Trimmed {
  Window window;
  SliceAttributes weights;  // what is left of them
};
Trimmed trimmed(Window window, const Shape& x, const Shape& y) {
  Trimmed result;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(window.rank); ++axis) {
    const int dim = static_cast<int>(axis) + 2;
    const Trim trim = trim_of(window, axis, y[dim], x[dim]);
    if (trim.front + trim.back > 0) {
      result.weights.starts.push_back(trim.front);
      result.weights.ends.push_back(window.kernel[axis] - trim.back);
      result.weights.axes.push_back(dim);
      result.weights.steps.push_back(1);
    }
    window.kernel[axis] -= trim.front + trim.back;
    window.pad_begin[axis] -= trim.front * window.dilation[axis];
    window.pad_end[axis] -= trim.back * window.dilation[axis];
    if (window.kernel[axis] == 1) window.dilation[axis] = 1;
  }
  result.window = window;
  return result;
}

const Window* window_of(const Node& node) {
  if (const auto* conv = layer_if<Conv>(node)) return &conv->attributes().window;
  const auto* qconv = layer_if<QConv>(node);
  return qconv != nullptr ? &qconv->attributes().conv.window : nullptr;
}

LayerPtr with_window(const Node& node, const Window& window) {
  if (const auto* conv = layer_if<Conv>(node)) {
    ConvAttributes attributes = conv->attributes();
    attributes.window = window;
    return std::make_shared<Conv>(attributes);
  }
  QConvAttributes attributes = layer_as<QConv>(*node.layer).attributes();
  attributes.conv.window = window;
  return std::make_shared<QConv>(std::move(attributes));
}

}  // namespace

Rewritten trim_taps(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const Window* window = window_of(node);
    const auto& weights = window != nullptr ? graph.value(node.inputs[1]).constant : nullptr;
    Trimmed trim;
    if (weights != nullptr)
      trim =
          trimmed(*window, graph.value(node.inputs[0]).desc.shape, graph.value(node.outputs[0]).desc.shape);
    if (weights == nullptr || trim.window == *window) {
      rewriter.copy(node);
      continue;
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(rewriter.map(id));
    if (!trim.weights.axes.empty()) {
      inputs[1] = rewriter.constant(graph.value(node.inputs[1]).name,
                                    std::move(evaluate(Slice(trim.weights), std::array{weights}).at(0)));
    }
    rewriter.emit(node.name, with_window(node, trim.window), std::move(inputs), node.outputs);
    ++changes;
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit::internal
