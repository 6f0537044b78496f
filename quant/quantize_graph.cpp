#include "quant/quantize_graph.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "layers/arrange.h"
#include "layers/binary.h"
#include "layers/conv.h"
#include "layers/fuse/rewriter.h"
#include "layers/gemm.h"
#include "layers/pool.h"
#include "layers/qconv.h"
#include "layers/qelementwise.h"
#include "layers/quantize.h"
#include "layers/rearrange.h"
#include "quant/equalise.h"
#include "quant/keep.h"
#include "quant/qweights.h"
#include "quant/real_weights.h"
#include "quant/weighted_layer.h"

namespace pipit {

namespace {

std::size_t index(ValueId id) {
  return static_cast<std::size_t>(id);
}

enum class Role {
  floating,  ///< computes in f32
  weighted,  ///< becomes a QConv
  add,
  average,
  moving,  ///< keeps integers as they are: max pool, Concat, Reshape
};

class Quantiser {
 public:
  Quantiser(const Graph& graph, const PrecisionPlan& plan, const QuantizeOptions& options)
      : graph_(graph),
        plan_(plan),
        options_(options),
        rewriter_(graph),
        roles_(graph.nodes().size(), Role::floating),
        group_(graph.values().size()),
        scale_(graph.values().size(), 0.0F),
        integer_(graph.values().size(), kNoValue),
        real_(graph.values().size(), kNoValue) {}

  Quantized run() {
    read_plan();
    choose_roles();
    share_scales();
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) emit(n);
    for (const ValueId id : graph_.outputs()) {
      if (!graph_.value(id).is_constant() && is_f32(id)) rewriter_.forward(id, real(id));
    }
    return {rewriter_.finish(), quantised_, kept_};
  }

 private:
  bool is_f32(ValueId id) const { return graph_.value(id).desc.dtype == DType::f32; }

  // A value that only renames another has its scale: Reshape and the like are not in the plan.
  void read_plan() {
    std::map<std::string_view, float> scales;
    for (const TensorScale& tensor : plan_.tensors) scales.emplace(tensor.name, tensor.scale);
    int known = 0;
    for (std::size_t v = 0; v < scale_.size(); ++v) {
      const auto found = scales.find(graph_.values()[v].name);
      if (found == scales.end()) continue;
      scale_[v] = found->second;
      ++known;
    }
    for (const Node& node : graph_.nodes()) {
      if (layer_if<Reshape>(node) == nullptr) continue;
      float& scale = scale_[index(node.outputs[0])];
      if (scale == 0) scale = scale_[index(node.inputs[0])];
    }
    if (known == 0) fail("the plan has no scale for any tensor of this model; calibrate this model");
    check_kept_nodes(plan_, graph_);
    for (const PrecisionPlan::Kept& kept : plan_.keep) keep_.insert(kept.node);
    std::iota(group_.begin(), group_.end(), 0);
  }

  Role possible_role(const Node& node) const {
    for (const ValueId id : node.outputs) {
      if (!is_f32(id)) return Role::floating;
    }
    if (is_weighted_layer(graph_, node)) return Role::weighted;
    if (const auto* binary = layer_if<Binary>(node)) {
      const bool same = graph_.value(node.inputs[0]).desc.shape == graph_.value(node.inputs[1]).desc.shape;
      return binary->attributes().kind == BinaryKind::add && same ? Role::add : Role::floating;
    }
    if (const auto* pool = layer_if<Pool>(node)) {
      if (pool->attributes().kind == PoolKind::average) return Role::average;
      return pool->attributes().kind == PoolKind::max && !pool->attributes().indices ? Role::moving
                                                                                     : Role::floating;
    }
    if (layer_if<Concat>(node) != nullptr || layer_if<Reshape>(node) != nullptr) return Role::moving;
    return Role::floating;
  }

  void choose_roles() {
    std::vector<bool> integer(graph_.values().size(), false);  // written by a node that computes in INT8
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      const Role role = possible_role(node);
      if (role == Role::floating) continue;
      bool fits = !keep_.contains(node.name);
      const std::size_t operands = role == Role::weighted ? 1 : node.inputs.size();
      for (std::size_t i = 0; i < operands; ++i) {
        const ValueId id = node.inputs[i];
        const bool follows = role != Role::weighted;
        fits =
            fits && id != kNoValue && (follows ? integer[index(id)] : scale_of(id) > 0 || integer[index(id)]);
      }
      const bool adds = role == Role::weighted && layer_if<Conv>(node) != nullptr && node.inputs.size() > 3 &&
                        node.inputs[3] != kNoValue;
      if (adds) fits = fits && (scale_of(node.inputs[3]) > 0 || integer[index(node.inputs[3])]);
      // What is only moved has its input's scale; what is computed needs one of its own.
      if (role == Role::add || role == Role::average || role == Role::weighted)
        fits = fits && scale_of(node.outputs[0]) > 0;
      if (!fits) {
        kept_ += role == Role::weighted ? 1 : 0;
        continue;
      }
      roles_[n] = role;
      for (const ValueId id : node.outputs) integer[index(id)] = true;
      if (role == Role::moving) {
        for (const ValueId id : node.inputs) join(id, node.outputs[0]);
      }
      ++quantised_;
    }
  }

  std::size_t find(std::size_t v) {
    while (group_[v] != v) v = group_[v] = group_[group_[v]];
    return v;
  }
  float scale_of(ValueId id) { return scale_[find(index(id))]; }
  void join(ValueId a, ValueId b) {
    const std::size_t from = find(index(a));
    const std::size_t to = find(index(b));
    if (from == to) return;
    group_[from] = to;
    scale_[to] = std::max(scale_[to], scale_[from]);
  }

  void share_scales() {
    wanted_.assign(graph_.values().size(), false);
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (roles_[n] == Role::floating) continue;
      for (const ValueId id : graph_.nodes()[n].inputs) {
        if (id != kNoValue) wanted_[index(id)] = true;
      }
    }
  }

  Quantisation quantisation(ValueId id) {
    return {scale_of(id), options_.activations == DType::u8 ? 128 : 0, options_.activations};
  }
  // f32 where no INT8 node reads the value.
  Quantisation output_quantisation(ValueId id) {
    return wanted_[index(id)] ? quantisation(id) : Quantisation{};
  }

  ValueId integer(ValueId id) {
    ValueId& made = integer_[index(id)];
    if (made == kNoValue) {
      made = rewriter_.builder().add1(graph_.value(id).name + ".quantize",
                                      std::make_shared<Quantize>(quantisation(id)), {real(id)});
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
                                            std::make_shared<Dequantize>(quantisation(id)),
                                            {integer_[index(id)]});
    }
    return made;
  }

  void made(ValueId old, ValueId now, const Quantisation& q) {
    (q.quantised() ? integer_ : real_)[index(old)] = now;
  }

  void emit(std::size_t n) {
    const Node& node = graph_.nodes()[n];
    switch (roles_[n]) {
      case Role::weighted:
        return emit_weighted(node);
      case Role::add:
        return emit_add(node);
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
    for (const PrecisionPlan::Corrected& corrected : plan_.corrected) {
      if (corrected.node != node.name) continue;
      const auto outputs = static_cast<std::size_t>(weights.shape[0]);
      if (corrected.deltas.size() != outputs)
        fail("node '{}': the plan corrects {} biases of {}", node.name, corrected.deltas.size(), outputs);
      weights.bias.resize(outputs, 0.0F);
      for (std::size_t o = 0; o < outputs; ++o) weights.bias[o] += corrected.deltas[o];
    }
  }

  void emit_weighted(const Node& node) {
    const auto* conv = layer_if<Conv>(node);
    QConvAttributes attributes;
    attributes.x = quantisation(node.inputs[0]);
    attributes.y = output_quantisation(node.outputs[0]);
    if (conv != nullptr) attributes.conv = conv->attributes();
    if (const auto* gemm = layer_if<Gemm>(node)) attributes.conv.activation = gemm->attributes().activation;
    RealWeights weights = real_weights(graph_, node);
    correct_bias(node, weights);
    QuantizedWeights q;
    try {
      q = quantize_weights(weights.shape, weights.values(), weights.bias, attributes.x.scale,
                           plan_.weights_per_channel);
    } catch (const Error& e) {
      fail("node '{}': {}", node.name, e.what());
    }
    attributes.weight_scales = std::move(q.scales);
    ValueId x = integer(node.inputs[0]);
    const Shape x_shape = rewriter_.builder().value(x).desc.shape;
    if (conv == nullptr) {
      // A matrix product is a 1x1 convolution of its rows.
      const std::int64_t depth = weights.shape[1];
      x = reshape(node.name + ".rows", x, Shape{x_shape.elements() / depth, depth, 1, 1});
    }
    std::vector<ValueId> inputs{x, rewriter_.constant(node.name + ".weights", std::move(q.weights)),
                                rewriter_.constant(node.name + ".bias", std::move(q.bias))};
    if (conv != nullptr && node.inputs.size() > 3 && node.inputs[3] != kNoValue) {
      attributes.residual = quantisation(node.inputs[3]);
      inputs.push_back(integer(node.inputs[3]));
    }
    const Quantisation y = attributes.y;
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
    // The sum itself is always an integer; floating-point readers get it dequantised.
    const Quantisation y = quantisation(node.outputs[0]);
    const QAddAttributes attributes{quantisation(node.inputs[0]), quantisation(node.inputs[1]), y,
                                    activation};
    made(node.outputs[0],
         rewriter_.emit(node.name, std::make_shared<QAdd>(attributes),
                        {integer(node.inputs[0]), integer(node.inputs[1])}, node.outputs)[0],
         y);
  }

  void emit_average(const Node& node) {
    const Quantisation y = output_quantisation(node.outputs[0]);
    const QAveragePoolAttributes attributes{layer_if<Pool>(node)->attributes(), quantisation(node.inputs[0]),
                                            y};
    made(node.outputs[0],
         rewriter_.emit(node.name, std::make_shared<QAveragePool>(attributes), {integer(node.inputs[0])},
                        node.outputs)[0],
         y);
  }

  void emit_moving(const Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(integer(id));
    made(node.outputs[0], rewriter_.emit(node.name, node.layer, std::move(inputs), node.outputs)[0],
         quantisation(node.outputs[0]));
  }

  const Graph& graph_;
  const PrecisionPlan& plan_;
  const QuantizeOptions& options_;
  Rewriter rewriter_;
  std::set<std::string_view> keep_;
  std::vector<Role> roles_;
  std::vector<std::size_t> group_;  // union-find of values that share a scale
  std::vector<float> scale_;        // of the group's root; 0: unknown
  std::vector<bool> wanted_;        // read by a node that computes in INT8
  std::vector<ValueId> integer_;    // the new graph's value, where it exists
  std::vector<ValueId> real_;
  int quantised_ = 0;
  int kept_ = 0;
};

}  // namespace

Quantized quantize_graph(const Graph& graph, const PrecisionPlan& plan, const QuantizeOptions& options) {
  const Graph equal = equalise(graph, plan.equalised);
  return Quantiser(equal, plan, options).run();
}

}  // namespace pipit
