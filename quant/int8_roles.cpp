#include "quant/int8_roles.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/pool.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/qunary.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/moves_elements.h"
#include "layers/passes/rewriter.h"
#include "pipit/text.h"
#include "quant/kept_layers.h"
#include "quant/weighted_layer.h"

namespace pipit::internal {

namespace {

class RoleChooser {
 public:
  RoleChooser(const Graph& graph, const QuantizationPlan& plan)
      : graph_(graph),
        plan_(plan),
        roles_(graph.nodes().size(), Role::floating),
        group_(graph.values().size()),
        scale_(graph.values().size(), 0.0F) {}

  Roles run() {
    read_plan();
    choose();
    std::vector<float> scales(scale_.size());
    for (std::size_t v = 0; v < scales.size(); ++v) scales[v] = scale_[find(v)];
    return {std::move(roles_), std::move(scales), quantized_, kept_};
  }

 private:
  bool is_f32(ValueId id) const { return graph_.value(id).desc.dtype == DType::f32; }

  // A scale that no tensor takes is a name with a slip: its tensor would silently stay in floating point.
  void check_tensors() const {
    std::vector<std::string> names;
    for (const Value& value : graph_.values()) {
      if (!value.is_constant()) names.push_back(value.name);
    }
    const std::set<std::string_view> known(names.begin(), names.end());
    for (const TensorScale& tensor : plan_.tensors) {
      if (!known.contains(tensor.name))
        fail("the plan has a scale for tensor '{}', but the model has no such tensor{}", tensor.name,
             near_names(tensor.name, names));
    }
  }

  // What is only another arrangement of a value has its scale: Reshape and the like are not in the plan.
  void read_plan() {
    std::map<std::string_view, float> scales;
    for (const TensorScale& tensor : plan_.tensors) scales.emplace(tensor.name, tensor.scale);
    if (scales.empty()) fail("the plan has no scale for any tensor; calibrate this model");
    check_tensors();
    for (std::size_t v = 0; v < scale_.size(); ++v) {
      const auto found = scales.find(graph_.values()[v].name);
      if (found != scales.end()) scale_[v] = found->second;
    }
    for (const Node& node : graph_.nodes()) {
      if (!rearranges(node)) continue;
      for (const ValueId id : node.outputs) {
        float& scale = scale_[index(id)];
        if (scale == 0) scale = scale_[index(node.inputs[0])];
      }
    }
    check_kept_nodes(plan_, graph_);
    for (const QuantizationPlan::Kept& kept : plan_.keep) keep_.insert(kept.node);
    std::iota(group_.begin(), group_.end(), 0);
  }

  Role possible_role(const Node& node) const {
    for (const ValueId id : node.outputs) {
      if (!is_f32(id)) return Role::floating;
    }
    if (is_weighted_layer(graph_, node)) return Role::weighted;
    if (const auto* binary = layer_if<Binary>(node)) {
      const bool same = graph_.value(node.inputs[0]).desc.shape == graph_.value(node.inputs[1]).desc.shape;
      if (binary->attributes().kind == BinaryKind::add && same) return Role::add;
      return binary->attributes().kind == BinaryKind::mul && factors(graph_, node) ? Role::product
                                                                                   : Role::floating;
    }
    if (const auto* unary = layer_if<Unary>(node)) {
      return is_activation(unary->attributes().kind) ? Role::function : Role::floating;
    }
    if (const auto* pool = layer_if<Pool>(node)) {
      if (pool->attributes().kind == PoolKind::average) return Role::average;
      return pool->attributes().kind == PoolKind::max && !pool->attributes().indices ? Role::moving
                                                                                     : Role::floating;
    }
    if (const auto* mean = layer_if<Reduce>(node)) {
      const bool pools =
          mean->attributes().keep_dims && is_spatial_mean(*mean, graph_.value(node.inputs[0]).desc.shape);
      return pools ? Role::average : Role::floating;
    }
    if (layer_if<Concat>(node) != nullptr || rearranges(node)) return Role::moving;
    return Role::floating;
  }

  void choose() {
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
      const std::size_t residual = node.layer->traits().residual.value_or(node.inputs.size());
      const bool adds =
          role == Role::weighted && residual < node.inputs.size() && node.inputs[residual] != kNoValue;
      if (adds) fits = fits && (scale_of(node.inputs[residual]) > 0 || integer[index(node.inputs[residual])]);
      // What is only moved has its input's scale; what is computed needs one of its own.
      if (role != Role::moving) fits = fits && scale_of(node.outputs[0]) > 0;
      if (role == Role::product) fits = fits && has_normal_multiplier(node);
      if (!fits) {
        kept_ += role == Role::weighted ? 1 : 0;
        continue;
      }
      roles_[n] = role;
      for (const ValueId id : node.outputs) integer[index(id)] = true;
      if (role == Role::moving) {
        for (const ValueId id : node.inputs) join(id, node.outputs[0]);
        for (const ValueId id : node.outputs) join(id, node.outputs[0]);
      }
      ++quantized_;
    }
    leave_last();
  }

  // Functions, products and rearrangements that no INT8 layer reads are in f32, and so are those before them alone: the
  // layer that they read then writes f32, without rounding.
  void leave_last() {
    std::vector<bool> read(graph_.values().size(), false);
    for (std::size_t n = graph_.nodes().size(); n-- > 0;) {
      const Node& node = graph_.nodes()[n];
      const bool follows = roles_[n] == Role::function || roles_[n] == Role::product || rearranges(node);
      const bool is_read =
          std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return read[index(id)]; });
      if (roles_[n] != Role::floating && follows && !is_read) {
        roles_[n] = Role::floating;
        --quantized_;
      }
      if (roles_[n] == Role::floating) continue;
      for (const ValueId id : node.inputs) {
        if (id != kNoValue) read[index(id)] = true;
      }
    }
  }

  // A factor that is no normal number would be taken for zero, or make everything saturate.
  bool has_normal_multiplier(const Node& node) {
    const auto [a, b] = *factors(graph_, node);
    const Quantization y{scale_of(node.outputs[0]), 0, DType::i8};
    return std::isnormal(qmul_multiplier({{scale_of(a), 0, DType::i8}, {scale_of(b), 0, DType::i8}, y, {}}));
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

  const Graph& graph_;
  const QuantizationPlan& plan_;
  std::set<std::string_view> keep_;
  std::vector<Role> roles_;
  std::vector<std::size_t> group_;  // union-find of values that share a scale
  std::vector<float> scale_;        // of the group's root; 0: unknown
  int quantized_ = 0;
  int kept_ = 0;
};

}  // namespace

Roles choose_roles(const Graph& graph, const QuantizationPlan& plan) {
  return RoleChooser(graph, plan).run();
}

std::optional<std::pair<ValueId, ValueId>> factors(const Graph& graph, const Node& node) {
  const ValueId a = node.inputs[0];
  const ValueId b = node.inputs[1];
  const Shape& a_shape = graph.value(a).desc.shape;
  const Shape& b_shape = graph.value(b).desc.shape;
  if (graph.value(a).is_constant() || graph.value(b).is_constant()) return std::nullopt;
  if (qmul_fits(a_shape, b_shape)) return std::pair{a, b};
  if (qmul_fits(b_shape, a_shape)) return std::pair{b, a};
  return std::nullopt;
}

}  // namespace pipit::internal
