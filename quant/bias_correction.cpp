#include "quant/bias_correction.h"

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "layers/ops/conv.h"
#include "layers/ops/matmul.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"
#include "quant/calibration.h"
#include "quant/int8_weights.h"
#include "quant/weighted_layer.h"

namespace pipit::internal {

namespace {

// A constant that was released still marks a layer with weights; only Conv and Gemm have a bias to correct.
bool reads_weights(const Graph& graph, const Node& node) {
  return node.inputs.size() > 1 && node.inputs[1] != kNoValue && graph.value(node.inputs[1]).is_constant() &&
         graph.value(node.inputs[0]).desc.shape.rank() >= 2;
}

}  // namespace

ChannelMeans::ChannelMeans(const Graph& graph) : graph_(graph), slot_(graph.values().size(), -1) {
  const std::vector<ValueId> root = computed_values(graph);
  for (const Node& node : graph.nodes()) {
    if (!reads_weights(graph, node)) continue;
    // The operand may be a view of what was computed; the channels are those of the latter.
    const Value& value = graph.value(root[index(node.inputs[0])]);
    int& slot = slot_[index(root[index(node.inputs[0])])];
    if (slot >= 0 || value.desc.shape.rank() < 2 || value.desc.dtype != DType::f32) continue;
    slot = static_cast<int>(sums_.size());
    sums_.push_back({value.name, std::vector<double>(static_cast<std::size_t>(value.desc.shape[1]), 0.0), 0});
  }
  const Shape& shape = graph.value(graph.inputs().at(0)).desc.shape;
  if (shape.rank() > 0) batch_ = shape[0];
}

void ChannelMeans::begin(std::span<const ConstTensorView> inputs, std::int64_t images) {
  images_ = images;
  for (std::size_t i = 0; i < inputs.size(); ++i) add(graph_.inputs()[i], inputs[i]);
}

void ChannelMeans::after_step(const Step& step, std::span<const ConstTensorView> /*inputs*/,
                              std::span<const TensorView> outputs) {
  const Node& node = graph_.nodes()[static_cast<std::size_t>(step.node)];
  for (std::size_t o = 0; o < outputs.size(); ++o) add(node.outputs[o], outputs[o]);
}

void ChannelMeans::add(ValueId id, const ConstTensorView& view) {
  const int slot = slot_[index(id)];
  if (slot < 0) return;
  Sums& sums = sums_[static_cast<std::size_t>(slot)];
  const Tensor rows = to_layout(view, Layout::row_major);
  const Shape& shape = rows.shape();
  const std::int64_t images = shape[0] == batch_ ? images_ : shape[0];
  const std::size_t channels = sums.channels.size();
  const std::size_t inner = static_cast<std::size_t>(shape.elements() / shape[0]) / channels;
  const std::span<const float> values = rows.values<float>();
  for (std::size_t plane = 0; plane < static_cast<std::size_t>(images) * channels; ++plane) {
    double sum = 0;
    for (const float x : values.subspan(plane * inner, inner)) sum += x;
    sums.channels[plane % channels] += sum;
  }
  sums.count += static_cast<double>(images) * static_cast<double>(inner);
}

std::vector<double> ChannelMeans::means(const std::string& name) const {
  for (const Sums& sums : sums_) {
    if (sums.name != name || sums.count == 0) continue;
    std::vector<double> means = sums.channels;
    for (double& mean : means) mean /= sums.count;
    return means;
  }
  return {};
}

std::vector<QuantizationPlan::Corrected> bias_correction(const Graph& fused, const QuantizationPlan& plan,
                                                         const ChannelMeans& means) {
  std::map<std::string_view, float> scales;
  for (const TensorScale& tensor : plan.tensors) scales.emplace(tensor.name, tensor.scale);
  const std::vector<ValueId> root = computed_values(fused);
  std::vector<QuantizationPlan::Corrected> all;
  for (const Node& node : fused.nodes()) {
    if (!is_weighted_layer(fused, node) || layer_if<MatMul>(node) != nullptr) continue;
    const std::string& input = fused.value(root[index(node.inputs[0])]).name;
    const auto scale = scales.find(input);
    const std::vector<double> mean = means.means(input);
    if (scale == scales.end() || mean.empty()) continue;
    const RealWeights weights = real_weights(fused, node);
    const QuantizedWeights q = quantize_weights(weights.shape, weights.values(), weights.bias, scale->second,
                                                plan.weights_per_channel);
    const auto outputs = static_cast<std::size_t>(weights.shape[0]);
    const auto in_group = static_cast<std::size_t>(weights.shape[1]);
    const std::size_t depth = weights.values().size() / outputs;
    const std::size_t taps = depth / in_group;
    const auto* conv = layer_if<Conv>(node);
    const std::size_t groups = conv != nullptr ? static_cast<std::size_t>(conv->attributes().groups) : 1;
    // A flattened input has its positions among the columns: the mean of a channel holds for all of its columns.
    const std::size_t columns = in_group * groups / mean.size();
    if (columns * mean.size() != in_group * groups) continue;
    QuantizationPlan::Corrected corrected{node.name, {}};
    for (std::size_t o = 0; o < outputs; ++o) {
      const std::size_t first = o / (outputs / groups) * in_group;
      double shift = 0;
      for (std::size_t i = 0; i < depth; ++i) {
        const double rounded =
            static_cast<double>(q.weights.values<std::int8_t>()[o * depth + i]) * q.scales[o];
        shift += (rounded - weights.values()[o * depth + i]) * mean[(first + i / taps) / columns];
      }
      corrected.deltas.push_back(static_cast<float>(-shift));
    }
    all.push_back(std::move(corrected));
  }
  return all;
}

}  // namespace pipit::internal
