#include "quant/stored_statistics.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/base/error.h"
#include "layers/ops/normalization.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// x [N, C, ...], then scale, bias, mean and variance.
constexpr std::size_t kMean = 3;
constexpr std::size_t kVariance = 4;

std::vector<double> numbers(const Tensor& tensor) {
  const std::span<const float> values = tensor.values<float>();
  return {values.begin(), values.end()};
}

bool is_all(const std::vector<double>& values, double expected) {
  return std::ranges::all_of(values, [=](double value) { return value == expected; });
}

// Whether a value follows from an input of the graph, for each value.
std::vector<bool> decided_by_inputs(const Graph& graph) {
  std::vector<bool> marks(graph.values().size(), false);
  for (const ValueId id : graph.inputs()) marks[index(id)] = true;
  for (const Node& node : graph.nodes()) {
    const bool any =
        std::ranges::any_of(node.inputs, [&](ValueId id) { return id != kNoValue && marks[index(id)]; });
    for (const ValueId id : node.outputs) marks[index(id)] = any;
  }
  return marks;
}

// All inputs, and the nodes that `end` follows from.
Graph up_to(const Graph& graph, ValueId end) {
  std::vector<bool> needed(graph.values().size(), false);
  needed[index(end)] = true;
  std::vector<bool> copied(graph.nodes().size(), false);
  for (std::size_t n = graph.nodes().size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    copied[n] = std::ranges::any_of(node.outputs, [&](ValueId id) { return needed[index(id)]; });
    for (const ValueId id : node.inputs) {
      if (copied[n] && id != kNoValue) needed[index(id)] = true;
    }
  }
  GraphBuilder builder;
  std::vector<ValueId> known(graph.values().size(), kNoValue);
  for (const ValueId id : graph.inputs())
    known[index(id)] = builder.add_input(graph.value(id).name, graph.value(id).desc);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    if (!copied[n]) continue;
    const Node& node = graph.nodes()[n];
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) {
      if (id != kNoValue && known[index(id)] == kNoValue)
        known[index(id)] = builder.add_constant(graph.value(id).name, graph.value(id).constant);
      inputs.push_back(id == kNoValue ? kNoValue : known[index(id)]);
    }
    std::vector<std::string> names;
    for (const ValueId id : node.outputs) names.push_back(graph.value(id).name);
    const std::vector<ValueId> outputs = builder.add(node.name, node.layer, inputs, names);
    for (std::size_t o = 0; o < outputs.size(); ++o) known[index(node.outputs[o])] = outputs[o];
  }
  builder.mark_output(known[index(end)]);
  return builder.build();
}

}  // namespace

std::optional<StoredStatistics> first_stored_statistics(const Graph& graph) {
  const std::vector<bool> decided = decided_by_inputs(graph);
  const auto found = std::ranges::find_if(graph.nodes(), [&](const Node& node) {
    return layer_if<BatchNorm>(node) != nullptr && decided[index(node.inputs[0])];
  });
  if (found == graph.nodes().end()) return std::nullopt;
  for (const std::size_t operand : {std::size_t{0}, kMean, kVariance}) {
    const Value& value = graph.value(found->inputs[operand]);
    if (value.desc.dtype != DType::f32 || (operand > 0 && value.constant == nullptr)) return std::nullopt;
  }
  StoredStatistics stored;
  stored.means = numbers(*graph.value(found->inputs[kMean]).constant);
  stored.variances = numbers(*graph.value(found->inputs[kVariance]).constant);
  if (is_all(stored.means, 0) && is_all(stored.variances, 1)) return std::nullopt;
  stored.layer = found->name;
  stored.epsilon = layer_if<BatchNorm>(*found)->attributes().epsilon;
  stored.graph = up_to(graph, found->inputs[0]);
  return stored;
}

void ChannelMoments::add(const ConstTensorView& batch, std::int64_t images) {
  const Tensor rows = to_layout(batch, Layout::row_major);
  const Shape& shape = rows.shape();
  const auto channels = static_cast<std::size_t>(shape[1]);
  if (sums_.empty()) {
    sums_.assign(channels, 0);
    squares_.assign(channels, 0);
  }
  if (channels != sums_.size()) fail("{} channels after {}", channels, sums_.size());
  if (shape.elements() == 0) return;
  const std::size_t inner = static_cast<std::size_t>(shape.elements() / shape[0]) / channels;
  const std::span<const float> values = rows.values<float>();
  for (std::size_t plane = 0; plane < static_cast<std::size_t>(images) * channels; ++plane) {
    double sum = 0, squares = 0;
    for (const float x : values.subspan(plane * inner, inner)) {
      sum += x;
      squares += static_cast<double>(x) * x;
    }
    sums_[plane % channels] += sum;
    squares_[plane % channels] += squares;
  }
  images_ += images;
  count_ += static_cast<double>(images) * static_cast<double>(inner);
}

std::optional<StatisticsDifference> ChannelMoments::difference(const StoredStatistics& stored) const {
  if (count_ == 0) return std::nullopt;
  if (stored.means.size() != sums_.size())
    fail("statistics of {} channels for {}", stored.means.size(), sums_.size());
  double deviations = 0;
  std::vector<double> ratios;
  for (std::size_t c = 0; c < sums_.size(); ++c) {
    if (!(stored.variances[c] > stored.epsilon)) continue;
    const double mean = sums_[c] / count_;
    const double away = mean - stored.means[c];
    deviations += away * away / stored.variances[c];
    ratios.push_back(std::max(0.0, squares_[c] / count_ - mean * mean) / stored.variances[c]);
  }
  if (ratios.empty()) return std::nullopt;
  const auto middle = ratios.begin() + std::ssize(ratios) / 2;
  std::nth_element(ratios.begin(), middle, ratios.end());
  StatisticsDifference found;
  found.layer = stored.layer;
  found.images = images_;
  found.channels = std::ssize(ratios);
  found.mean_deviation = std::sqrt(deviations / static_cast<double>(ratios.size()));
  found.variance_ratio = *middle;
  return found;
}

}  // namespace pipit::internal
