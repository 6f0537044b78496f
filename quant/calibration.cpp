#include "quant/calibration.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "layers/ops/binary.h"
#include "layers/ops/pool.h"
#include "layers/ops/qunary.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

bool takes_int8(const Graph& graph, const Node& node) {
  if (const auto* binary = layer_if<Binary>(node)) {
    const BinaryKind kind = binary->attributes().kind;
    const bool constant =
        graph.value(node.inputs[0]).is_constant() || graph.value(node.inputs[1]).is_constant();
    return kind == BinaryKind::add || (kind == BinaryKind::mul && !constant);
  }
  if (const auto* unary = layer_if<Unary>(node)) return is_activation(unary->attributes().kind);
  return node.layer->traits().family != LayerFamily::other || layer_if<Pool>(node) != nullptr ||
         layer_if<Concat>(node) != nullptr;
}

// Views and changes of layout: the same numbers under another name.
bool keeps_values(const Graph& graph, const Node& node) {
  if (node.outputs.size() != 1 || node.inputs.empty() || node.inputs[0] == kNoValue) return false;
  return node.layer->type() == ToLayout::kType ||
         node.layer->is_view(graph.value(node.inputs[0]).desc, graph.value(node.outputs[0]).desc);
}

}  // namespace

std::vector<ValueId> computed_values(const Graph& graph) {
  std::vector<ValueId> root(graph.values().size());
  std::iota(root.begin(), root.end(), 0);
  for (const Node& node : graph.nodes()) {
    if (keeps_values(graph, node))
      root[static_cast<std::size_t>(node.outputs[0])] = root[static_cast<std::size_t>(node.inputs[0])];
  }
  return root;
}

std::vector<ValueId> calibrated_values(const Graph& graph) {
  const std::vector<ValueId> root = computed_values(graph);
  std::vector<bool> wanted(root.size(), false);
  const auto want = [&](ValueId id) {
    if (id == kNoValue) return;
    const Value& value = graph.value(id);
    if (!value.is_constant() && value.desc.dtype == DType::f32)
      wanted[static_cast<std::size_t>(root[static_cast<std::size_t>(id)])] = true;
  };
  for (const Node& node : graph.nodes()) {
    if (!takes_int8(graph, node)) continue;
    for (const ValueId id : node.inputs) want(id);
    for (const ValueId id : node.outputs) want(id);
  }
  std::vector<ValueId> values;
  for (std::size_t v = 0; v < wanted.size(); ++v)
    if (wanted[v]) values.push_back(static_cast<ValueId>(v));
  return values;
}

CalibrationObserver::CalibrationObserver(const ExecutionPlan& plan, ThreadPool& pool)
    : graph_(plan.graph()), pool_(pool) {
  if (plan.options().device != DeviceKind::cpu || plan.options().precision != Precision::fp32) {
    fail("calibration observes fp32 on the CPU, not {} on {}", precision_name(plan.options().precision),
         device_name(plan.options().device));
  }
  if (!plan.options().keep_every_value) fail("calibration needs a plan that keeps every value");
  slot_.assign(graph_.values().size(), -1);
  for (const ValueId id : calibrated_values(graph_)) {
    slot_[static_cast<std::size_t>(id)] = static_cast<int>(observed_.size());
    observed_.push_back({graph_.value(id).name, {}});
    peaks_.push_back({graph_.value(id).name, {}});
  }
  const Shape& shape = graph_.value(graph_.inputs().at(0)).desc.shape;
  if (shape.rank() > 0) batch_ = shape[0];
}

void CalibrationObserver::begin(std::span<const ConstTensorView> inputs, std::int64_t images) {
  if (images < 1 || images > batch_) fail("{} images in a batch of {}", images, batch_);
  images_ = images;
  for (TensorPeaks& tensor : peaks_)
    tensor.peaks.resize(tensor.peaks.size() + static_cast<std::size_t>(images), 0);
  for (std::size_t i = 0; i < inputs.size(); ++i) count(graph_.inputs()[i], inputs[i]);
}

void CalibrationObserver::after_step(const Step& step, std::span<const ConstTensorView> /*inputs*/,
                                     std::span<const TensorView> outputs) {
  const Node& node = graph_.nodes()[static_cast<std::size_t>(step.node)];
  for (std::size_t o = 0; o < outputs.size(); ++o) count(node.outputs[o], outputs[o]);
}

void CalibrationObserver::count(ValueId id, const ConstTensorView& view) {
  const int slot = slot_[static_cast<std::size_t>(id)];
  if (slot < 0) return;
  auto elements = static_cast<std::size_t>(view.desc.elements());
  std::size_t rows = 1;  // of images; values that are of no image are of the first
  // Images lie one after the other in both layouts.
  const Shape& shape = view.desc.shape;
  if (shape.rank() > 0 && shape[0] == batch_) {
    rows = static_cast<std::size_t>(images_);
    elements = elements / static_cast<std::size_t>(batch_) * rows;
  }
  Observed& observed = observed_[static_cast<std::size_t>(slot)];
  try {
    observed.histogram.add({view.as<float>(), elements}, pool_);
  } catch (const Error& e) {
    fail("tensor '{}': {}", observed.name, e.what());
  }
  std::vector<float>& peaks = peaks_[static_cast<std::size_t>(slot)].peaks;
  const float* values = view.as<float>();
  for (std::size_t r = 0; r < rows; ++r) {
    float& peak = peaks[peaks.size() - static_cast<std::size_t>(images_) + r];
    for (std::size_t i = 0; i < elements / rows; ++i)
      peak = std::max(peak, std::abs(values[r * (elements / rows) + i]));
  }
}

}  // namespace pipit::internal
