#include "quant/layer_difference.h"

#include <algorithm>
#include <limits>

#include "engine/graph/dtype.h"
#include "engine/graph/half.h"
#include "layers/common/dispatch.h"
#include "layers/ops/quantization.h"
#include "quant/calibration.h"

namespace pipit::internal {

namespace {

bool is_integer(DType dtype) {
  return dtype == DType::u8 || dtype == DType::i8;
}

// A view's data under another shape, in floating point.
std::vector<float> real_values(const ConstTensorView& view, const Quantization& q) {
  const Tensor rows = to_layout(view, Layout::row_major);
  std::vector<float> out(static_cast<std::size_t>(view.desc.elements()));
  const auto dequantize = [&](auto values) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(static_cast<int>(values[i]) - q.zero_point) * q.scale;
  };
  if (view.desc.dtype == DType::u8) {
    dequantize(rows.values<std::uint8_t>());
  } else if (view.desc.dtype == DType::i8) {
    dequantize(rows.values<std::int8_t>());
  } else if (is_stored_float(view.desc.dtype)) {
    with_stored_float(view.desc.dtype, [&]<typename T>(std::type_identity<T>) {
      std::ranges::transform(rows.values<T>(), out.begin(), [](T v) { return to_float(v); });
    });
  } else {
    const std::span<const float> values = rows.values<float>();
    out.assign(values.begin(), values.end());
  }
  return out;
}

// Per value of the plan's graph that a kernel writes: which layer's value it is, under whatever name; or -1.
std::vector<int> layer_slots(const Graph& graph, const std::vector<LayerDifference>& layers) {
  std::map<std::string_view, int> by_name;
  for (std::size_t l = 0; l < layers.size(); ++l) by_name.emplace(layers[l].tensor, static_cast<int>(l));
  const std::vector<ValueId> root = computed_values(graph);
  std::vector<int> slots(root.size(), -1);
  for (std::size_t v = 0; v < root.size(); ++v) {
    const auto found = by_name.find(graph.values()[v].name);
    if (found != by_name.end()) slots[index(root[v])] = found->second;
  }
  return slots;
}

// What a node of a quantized graph computes in. 16 bits tell by what it reads and writes: one of both may be f32.
Precision precision_of(const Graph& graph, const Node& node, bool output8) {
  if (output8 || node.layer->type().starts_with('Q')) return Precision::int8;
  for (const Precision stored : {Precision::fp16, Precision::bf16}) {
    const auto holds = [&](ValueId id) {
      return id != kNoValue && graph.value(id).desc.dtype == stored_type(stored);
    };
    if (std::ranges::any_of(node.inputs, holds) || std::ranges::any_of(node.outputs, holds)) return stored;
  }
  return Precision::fp32;
}

}  // namespace

std::vector<Quantization> value_quantizations(const Graph& graph) {
  std::vector<Quantization> all(graph.values().size());
  for (const Node& node : graph.nodes()) {
    Quantization& y = all[index(node.outputs[0])];
    if (const auto* quantized = dynamic_cast<const QuantizedOutput*>(node.layer.get())) {
      y = quantized->output_quantization();
    } else if (!node.inputs.empty() && node.inputs[0] != kNoValue &&
               is_integer(graph.value(node.outputs[0]).desc.dtype)) {
      for (const ValueId id : node.outputs) all[index(id)] = all[index(node.inputs[0])];
    }
  }
  return all;
}

class LayerComparison::ReferenceObserver final : public RunObserver {
 public:
  ReferenceObserver(LayerComparison& owner, const Graph& graph)
      : owner_(owner), graph_(graph), slots_(layer_slots(graph, owner.layers_)) {}

  void after_step(const Step& step, std::span<const ConstTensorView> /*inputs*/,
                  std::span<const TensorView> outputs) override {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(step.node)];
    const int slot = slots_[index(node.outputs[0])];
    if (slot >= 0) owner_.values_[static_cast<std::size_t>(slot)] = to_layout(outputs[0], Layout::row_major);
  }

 private:
  LayerComparison& owner_;
  const Graph& graph_;
  std::vector<int> slots_;
};

class LayerComparison::QuantizedObserver final : public RunObserver {
 public:
  QuantizedObserver(LayerComparison& owner, const Graph& graph)
      : owner_(owner),
        graph_(graph),
        quantizations_(value_quantizations(graph)),
        slots_(layer_slots(graph, owner.layers_)) {}

  void after_step(const Step& step, std::span<const ConstTensorView> /*inputs*/,
                  std::span<const TensorView> outputs) override {
    const ValueId id = graph_.nodes()[static_cast<std::size_t>(step.node)].outputs[0];
    const int slot = slots_[index(id)];
    if (slot < 0) return;
    LayerDifference& layer = owner_.layers_[static_cast<std::size_t>(slot)];
    const Tensor& reference = owner_.values_[static_cast<std::size_t>(slot)];
    const Quantization& q = quantizations_[index(id)];
    const std::vector<float> values = real_values(outputs[0], q);
    if (reference.desc().elements() != static_cast<std::int64_t>(values.size()))
      fail("node '{}': {} values in fp32 and {} in INT8: run the reference first", layer.node,
           reference.desc().elements(), values.size());
    // Past the last image a batch holds filling.
    Shape shape = layer.shape;
    std::size_t count = values.size();
    if (shape.rank() > 0 && shape[0] == owner_.batch_) {
      count = count / static_cast<std::size_t>(owner_.batch_) * static_cast<std::size_t>(owner_.images_);
      shape = shape.with(0, owner_.images_);
    }
    const float reach = q.quantized() ? 127.0F * q.scale : std::numeric_limits<float>::infinity();
    layer.difference.add(shape, reference.values<float>().first(count), std::span(values).first(count),
                         reach);
  }

 private:
  LayerComparison& owner_;
  const Graph& graph_;
  std::vector<Quantization> quantizations_;
  std::vector<int> slots_;
};

LayerComparison::LayerComparison(const ExecutionPlan& reference, const ExecutionPlan& quantized) {
  if (!reference.options().keep_every_value || !quantized.options().keep_every_value)
    fail("a comparison layer by layer needs plans that keep every value");
  const Graph& graph = reference.graph();
  const std::vector<ValueId> root = computed_values(graph);
  for (const Node& node : graph.nodes()) {
    const Value& value = graph.value(node.outputs[0]);
    if (root[index(node.outputs[0])] != node.outputs[0] || value.desc.dtype != DType::f32) continue;
    LayerDifference layer;
    layer.node = node.name;
    layer.type = node.layer->type();
    layer.tensor = value.name;
    layer.shape = value.desc.shape;
    layers_.push_back(std::move(layer));
  }
  const std::vector<Quantization> quantizations = value_quantizations(quantized.graph());
  std::map<std::string_view, const Node*> nodes;
  for (const Node& node : quantized.graph().nodes()) nodes.emplace(node.name, &node);
  for (LayerDifference& layer : layers_) {
    const auto found = nodes.find(layer.node);
    if (found == nodes.end()) fail("the INT8 graph has no node '{}'", layer.node);
    const Node& node = *found->second;
    layer.output8 = quantizations[index(node.outputs[0])].quantized();
    layer.precision = precision_of(quantized.graph(), node, layer.output8);
  }
  const Shape& shape = graph.value(graph.inputs().at(0)).desc.shape;
  if (shape.rank() > 0) batch_ = shape[0];
  images_ = batch_;
  values_.resize(layers_.size());
  reference_ = std::make_unique<ReferenceObserver>(*this, reference.graph());
  quantized_ = std::make_unique<QuantizedObserver>(*this, quantized.graph());
}

LayerComparison::~LayerComparison() = default;

void LayerComparison::begin(std::int64_t images) {
  if (images < 1 || images > batch_) fail("{} images in a batch of {}", images, batch_);
  images_ = images;
}

RunObserver& LayerComparison::reference() {
  return *reference_;
}

RunObserver& LayerComparison::quantized() {
  return *quantized_;
}

}  // namespace pipit::internal
