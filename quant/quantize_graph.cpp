#include "quant/quantize_graph.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"
#include "quant/equalize.h"
#include "quant/int8_roles.h"
#include "quant/int8_weights.h"

namespace pipit::internal {

namespace {

class Quantizer {
 public:
  Quantizer(const Graph& graph, const QuantizationPlan& plan, const QuantizeOptions& options,
            std::map<std::string, QuantizedWeights> rounded)
      : graph_(graph),
        plan_(plan),
        options_(options),
        rounded_(std::move(rounded)),
        rewriter_(graph),
        roles_(choose_roles(graph, plan)),
        integer_(graph.values().size(), kNoValue),
        real_(graph.values().size(), kNoValue) {}

  Quantized run() {
    find_wanted();
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) emit(n);
    for (const ValueId id : graph_.outputs()) {
      if (!graph_.value(id).is_constant() && is_f32(id)) rewriter_.forward(id, real(id));
    }
    return {rewriter_.finish(), roles_.quantized, roles_.kept};
  }

 private:
  bool is_f32(ValueId id) const { return graph_.value(id).desc.dtype == DType::f32; }

  void find_wanted() {
    wanted_.assign(graph_.values().size(), false);
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (roles_.of_node[n] == Role::floating) continue;
      for (const ValueId id : graph_.nodes()[n].inputs) {
        if (id != kNoValue) wanted_[index(id)] = true;
      }
    }
  }

  Quantization quantization(ValueId id) const {
    return {roles_.scale[index(id)], options_.activations == DType::u8 ? 128 : 0, options_.activations};
  }
  // f32 where no INT8 node reads the value.
  Quantization output_quantization(ValueId id) {
    return wanted_[index(id)] ? quantization(id) : Quantization{};
  }

  ValueId integer(ValueId id) {
    ValueId& made = integer_[index(id)];
    if (made == kNoValue) {
      made = rewriter_.builder().add1(graph_.value(id).name + ".quantize",
                                      std::make_shared<Quantize>(quantization(id)), {real(id)});
    }
    return made;
  }
  ValueId real(ValueId id) {
    if (id == kNoValue) return kNoValue;
    ValueId& made = real_[index(id)];
    if (made == kNoValue) {
      made = integer_[index(id)] == kNoValue
                 ? rewriter_.map(id)
                 : rewriter_.builder().add1(graph_.value(id).name + ".dequantize",
                                            std::make_shared<Dequantize>(quantization(id)),
                                            {integer_[index(id)]});
    }
    return made;
  }

  void made(ValueId old, ValueId now, const Quantization& q) {
    (q.quantized() ? integer_ : real_)[index(old)] = now;
  }

  void emit(std::size_t n) {
    const Node& node = graph_.nodes()[n];
    switch (roles_.of_node[n]) {
      case Role::weighted:
        return emit_weighted(node);
      case Role::add:
        return emit_add(node);
      case Role::product:
        return emit_product(node);
      case Role::function:
        return emit_function(node);
      case Role::average:
        return emit_average(node);
      case Role::moving:
        return emit_moving(node);
      case Role::floating:
        break;
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) {
      const bool activation = id != kNoValue && !graph_.value(id).is_constant();
      inputs.push_back(activation ? real(id) : rewriter_.map(id));
    }
    const std::vector<ValueId> outputs = rewriter_.emit(node.name, node.layer, inputs, node.outputs);
    for (std::size_t o = 0; o < node.outputs.size(); ++o) real_[index(node.outputs[o])] = outputs[o];
  }

  void correct_bias(const Node& node, RealWeights& weights) const {
    for (const QuantizationPlan::Corrected& corrected : plan_.corrected) {
      if (corrected.node != node.name) continue;
      const auto outputs = static_cast<std::size_t>(weights.shape[0]);
      if (corrected.deltas.size() != outputs)
        fail("node '{}': the plan corrects {} biases of {}", node.name, corrected.deltas.size(), outputs);
      weights.bias.resize(outputs, 0.0F);
      for (std::size_t o = 0; o < outputs; ++o) weights.bias[o] += corrected.deltas[o];
    }
  }

  // Those that are given, or the nearest.
  QuantizedWeights integers_of(const Node& node, float input_scale) {
    if (const auto given = rounded_.find(node.name); given != rounded_.end()) return std::move(given->second);
    RealWeights weights = real_weights(graph_, node);
    correct_bias(node, weights);
    try {
      return quantize_weights(weights.shape, weights.values(), weights.bias, input_scale,
                              plan_.weights_per_channel, options_.in_4_bits.contains(node.name) ? 4 : 8);
    } catch (const Error& e) {
      fail("node '{}': {}", node.name, e.what());
    }
  }

  void emit_weighted(const Node& node) {
    const auto* conv = layer_if<Conv>(node);
    QConvAttributes attributes;
    attributes.x = quantization(node.inputs[0]);
    attributes.y = output_quantization(node.outputs[0]);
    if (conv != nullptr) attributes.conv = conv->attributes();
    if (const auto* gemm = layer_if<Gemm>(node)) attributes.conv.activation = gemm->attributes().activation;
    QuantizedWeights q = integers_of(node, attributes.x.scale);
    const std::int64_t depth = q.weights.shape()[1];
    attributes.weight_scales = std::move(q.scales);
    ValueId x = integer(node.inputs[0]);
    const Shape x_shape = rewriter_.builder().value(x).desc.shape;
    if (conv == nullptr) {
      // A matrix product is a 1x1 convolution of its rows.
      x = reshape(node.name + ".rows", x, Shape{x_shape.elements() / depth, depth, 1, 1});
    }
    std::vector<ValueId> inputs{x, rewriter_.constant(node.name + ".weights", std::move(q.weights)),
                                rewriter_.constant(node.name + ".bias", std::move(q.bias))};
    if (conv != nullptr && node.inputs.size() > 3 && node.inputs[3] != kNoValue) {
      attributes.residual = quantization(node.inputs[3]);
      inputs.push_back(integer(node.inputs[3]));
    }
    const Quantization y = attributes.y;
    const auto layer = std::make_shared<QConv>(std::move(attributes));
    ValueId out = kNoValue;
    if (conv != nullptr) {
      out = rewriter_.emit(node.name, layer, std::move(inputs), node.outputs)[0];
    } else {
      out = rewriter_.builder().add1(node.name, layer, std::move(inputs), node.name + ".columns");
      out = reshape(graph_.value(node.outputs[0]).name, out, graph_.value(node.outputs[0]).desc.shape);
    }
    made(node.outputs[0], out, y);
  }

  ValueId reshape(const std::string& name, ValueId x, const Shape& shape) {
    return rewriter_.builder().add1(name, std::make_shared<Reshape>(ReshapeAttributes{shape}), {x}, name);
  }

  void emit_add(const Node& node) {
    const Clamp& activation = layer_if<Binary>(node)->attributes().activation;
    // The sum itself is always an integer; floating-point readers get it dequantized.
    const Quantization y = quantization(node.outputs[0]);
    const QAddAttributes attributes{quantization(node.inputs[0]), quantization(node.inputs[1]), y,
                                    activation};
    made(node.outputs[0],
         rewriter_.emit(node.name, std::make_shared<QAdd>(attributes),
                        {integer(node.inputs[0]), integer(node.inputs[1])}, node.outputs)[0],
         y);
  }

  void emit_product(const Node& node) {
    const auto [a, b] = *factors(graph_, node);
    const Quantization y = quantization(node.outputs[0]);
    const QMulAttributes attributes{quantization(a), quantization(b), y,
                                    layer_if<Binary>(node)->attributes().activation};
    made(node.outputs[0],
         rewriter_.emit(node.name, std::make_shared<QMul>(attributes), {integer(a), integer(b)},
                        node.outputs)[0],
         y);
  }

  void emit_function(const Node& node) {
    const Quantization y = quantization(node.outputs[0]);
    const QUnaryAttributes attributes{layer_if<Unary>(node)->attributes(), quantization(node.inputs[0]), y};
    made(node.outputs[0],
         rewriter_.emit(node.name, std::make_shared<QUnary>(attributes), {integer(node.inputs[0])},
                        node.outputs)[0],
         y);
  }

  void emit_average(const Node& node) {
    const Quantization y = output_quantization(node.outputs[0]);
    const auto* pool = layer_if<Pool>(node);  // else a mean over all positions
    const QAveragePoolAttributes attributes{
        pool != nullptr ? pool->attributes() : PoolAttributes{.kind = PoolKind::average, .global = true},
        quantization(node.inputs[0]), y};
    made(node.outputs[0],
         rewriter_.emit(node.name, std::make_shared<QAveragePool>(attributes), {integer(node.inputs[0])},
                        node.outputs)[0],
         y);
  }

  void emit_moving(const Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(integer(id));
    const std::vector<ValueId> outputs =
        rewriter_.emit(node.name, node.layer, std::move(inputs), node.outputs);
    for (std::size_t o = 0; o < outputs.size(); ++o)
      made(node.outputs[o], outputs[o], quantization(node.outputs[o]));
  }

  const Graph& graph_;
  const QuantizationPlan& plan_;
  const QuantizeOptions& options_;
  std::map<std::string, QuantizedWeights> rounded_;
  Rewriter rewriter_;
  const Roles roles_;
  std::vector<bool> wanted_;      // read by a node that computes in INT8
  std::vector<ValueId> integer_;  // the new graph's value, where it exists
  std::vector<ValueId> real_;
};

}  // namespace

std::set<std::string> worth_4_bits(const Graph& graph) {
  constexpr std::int64_t kLeastDepth = 32, kShare = 10;
  struct Weighted {
    const Node* node;
    std::int64_t depth, weights;
  };
  std::vector<Weighted> layers;
  std::int64_t all = 0;
  for (const Node& node : graph.nodes()) {
    if (!has_constant_weights(graph, node)) continue;
    const Shape shape = real_weights(graph, node).shape;
    layers.push_back({&node, shape.elements() / shape[0], shape.elements()});
    all += shape.elements();
  }
  std::ranges::stable_sort(layers, std::greater<>(), &Weighted::weights);
  std::set<std::string> names;
  std::int64_t left = all;
  for (const Weighted& layer : layers) {
    if (left <= all / kShare) break;
    left -= layer.weights;
    if (layer.depth >= kLeastDepth) names.insert(layer.node->name);
  }
  return names;
}

Quantized quantize_graph(const Graph& graph, const QuantizationPlan& plan, const QuantizeOptions& options,
                         std::map<std::string, QuantizedWeights> rounded) {
  const Graph equal = equalize(graph, plan.equalized);
  return Quantizer(equal, plan, options, std::move(rounded)).run();
}

}  // namespace pipit::internal
