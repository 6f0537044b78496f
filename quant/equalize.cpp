#include "quant/equalize.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/error.h"
#include "layers/ops/conv.h"
#include "layers/passes/rewriter.h"
#include "quant/weighted_layer.h"

namespace pipit::internal {

namespace {

constexpr int kMaxRounds = 50;
constexpr double kSettled = 1e-3;  // relative change of a factor in one round
// Beyond this a channel is dead in one of the two layers, and all factors stay far from overflow.
constexpr double kMaxFactor = 1 << 20;

struct Pair {
  std::size_t first = 0;  // nodes
  std::size_t second = 0;
};

bool scales_along(const Clamp& activation) {
  return activation.is_identity() || activation == Clamp::relu();
}

std::vector<Pair> find_pairs(const Graph& graph) {
  const Rewriter uses(graph);
  std::vector<Pair> pairs;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const auto* conv = layer_if<Conv>(node);
    if (conv == nullptr || !is_weighted_layer(graph, node) || !scales_along(conv->attributes().activation))
      continue;
    if (node.inputs.size() > 3 && node.inputs[3] != kNoValue) continue;
    const int next = uses.only_consumer(node.outputs[0]);
    if (next < 0) continue;
    const Node& follower = graph.nodes()[static_cast<std::size_t>(next)];
    if (layer_if<Conv>(follower) == nullptr || !is_weighted_layer(graph, follower)) continue;
    if (follower.inputs[0] == node.outputs[0]) pairs.push_back({n, static_cast<std::size_t>(next)});
  }
  return pairs;
}

// Weights of a convolution and which channels an element belongs to.
class Weights {
 public:
  Weights(const Graph& graph, const Node& node) {
    const Tensor& tensor = *graph.value(node.inputs[1]).constant;
    shape_ = tensor.shape();
    groups_ = layer_if<Conv>(node)->attributes().groups;
    values_.assign(tensor.values<float>().begin(), tensor.values<float>().end());
    if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
      const std::span<const float> bias = graph.value(node.inputs[2]).constant->values<float>();
      bias_.assign(bias.begin(), bias.end());
    }
  }
  std::size_t outputs() const { return static_cast<std::size_t>(shape_[0]); }
  std::size_t inputs() const { return static_cast<std::size_t>(shape_[1] * groups_); }
  std::size_t output_of(std::size_t i) const { return i / (values_.size() / outputs()); }
  std::size_t input_of(std::size_t i) const {
    const auto in_group = static_cast<std::size_t>(shape_[1]);
    const std::size_t taps = values_.size() / outputs() / in_group;
    const std::size_t group = output_of(i) / (outputs() / static_cast<std::size_t>(groups_));
    return group * in_group + i / taps % in_group;
  }
  std::vector<double> output_ranges() const {
    std::vector<double> ranges(outputs(), 0);
    for (std::size_t i = 0; i < values_.size(); ++i)
      ranges[output_of(i)] = std::max(ranges[output_of(i)], std::abs(values_[i]));
    return ranges;
  }
  std::vector<double> input_ranges() const {
    std::vector<double> ranges(inputs(), 0);
    for (std::size_t i = 0; i < values_.size(); ++i)
      ranges[input_of(i)] = std::max(ranges[input_of(i)], std::abs(values_[i]));
    return ranges;
  }
  void divide_outputs(std::span<const double> factors) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] /= factors[output_of(i)];
    for (std::size_t o = 0; o < bias_.size(); ++o) bias_[o] /= factors[o];
  }
  void multiply_inputs(std::span<const double> factors) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] *= factors[input_of(i)];
  }
  Tensor weights() const { return narrow(shape_, values_); }
  Tensor bias() const { return narrow(Shape{static_cast<std::int64_t>(bias_.size())}, bias_); }

 private:
  static Tensor narrow(const Shape& shape, const std::vector<double>& values) {
    const std::vector<float> narrow(values.begin(), values.end());
    return Tensor::from<float>(shape, std::span<const float>(narrow));
  }
  Shape shape_;
  std::int64_t groups_ = 1;
  std::vector<double> values_, bias_;
};

}  // namespace

std::vector<QuantizationPlan::Equalized> equalization(const Graph& fused) {
  const std::vector<Pair> pairs = find_pairs(fused);
  std::map<std::size_t, Weights> weights;
  for (const Pair& pair : pairs) {
    for (const std::size_t n : {pair.first, pair.second}) weights.try_emplace(n, fused, fused.nodes()[n]);
  }
  std::vector<std::vector<double>> total;
  for (const Pair& pair : pairs) total.emplace_back(weights.at(pair.first).outputs(), 1.0);
  double change = 1;
  for (int round = 0; round < kMaxRounds && change > kSettled; ++round) {
    change = 0;
    for (std::size_t p = 0; p < pairs.size(); ++p) {
      Weights& first = weights.at(pairs[p].first);
      Weights& second = weights.at(pairs[p].second);
      const std::vector<double> r1 = first.output_ranges();
      const std::vector<double> r2 = second.input_ranges();
      std::vector<double> factors(r1.size(), 1.0);
      for (std::size_t c = 0; c < factors.size(); ++c) {
        if (!(r1[c] > 0) || !(r2[c] > 0) || !std::isfinite(r1[c]) || !std::isfinite(r2[c])) continue;
        const double wanted = std::clamp(total[p][c] * std::sqrt(r1[c] / r2[c]), 1 / kMaxFactor, kMaxFactor);
        factors[c] = wanted / total[p][c];
        total[p][c] = wanted;
        change = std::max(change, std::abs(factors[c] - 1));
      }
      first.divide_outputs(factors);
      second.multiply_inputs(factors);
    }
  }
  std::vector<QuantizationPlan::Equalized> result;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    result.push_back({fused.nodes()[pairs[p].first].name,
                      fused.nodes()[pairs[p].second].name,
                      {total[p].begin(), total[p].end()}});
  }
  return result;
}

Graph equalize(const Graph& fused, std::span<const QuantizationPlan::Equalized> pairs) {
  if (pairs.empty()) return fused;
  const std::vector<Pair> known = find_pairs(fused);
  std::map<std::size_t, Weights> changed;
  for (const QuantizationPlan::Equalized& pair : pairs) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const Pair& p) {
      return fused.nodes()[p.first].name == pair.first && fused.nodes()[p.second].name == pair.second;
    });
    if (found == known.end())
      fail("equalization: '{}' and '{}' are no neighbouring convolutions of this model", pair.first,
           pair.second);
    Weights& first = changed.try_emplace(found->first, fused, fused.nodes()[found->first]).first->second;
    Weights& second = changed.try_emplace(found->second, fused, fused.nodes()[found->second]).first->second;
    if (pair.factors.size() != first.outputs())
      fail("equalization: {} factors between '{}' and '{}', which share {} channels", pair.factors.size(),
           pair.first, pair.second, first.outputs());
    const std::vector<double> factors(pair.factors.begin(), pair.factors.end());
    first.divide_outputs(factors);
    second.multiply_inputs(factors);
  }
  Rewriter rewriter(fused);
  for (std::size_t n = 0; n < fused.nodes().size(); ++n) {
    const Node& node = fused.nodes()[n];
    const auto own = changed.find(n);
    if (own == changed.end()) {
      rewriter.copy(node);
      continue;
    }
    std::vector<ValueId> inputs{rewriter.map(node.inputs[0]),
                                rewriter.constant(node.name + ".equalized", own->second.weights())};
    for (std::size_t i = 2; i < node.inputs.size(); ++i) {
      inputs.push_back(i == 2 && node.inputs[2] != kNoValue
                           ? rewriter.constant(node.name + ".equalized_bias", own->second.bias())
                           : rewriter.map(node.inputs[i]));
    }
    rewriter.emit(node.name, node.layer, std::move(inputs), node.outputs);
  }
  return rewriter.finish();
}

}  // namespace pipit::internal
