// Constants that a quantized model stores as integers: kept as such where an INT8 kernel can take them, folded
// elsewhere.
#include <map>

#include "layers/evaluate.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/pool.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/passes.h"
#include "layers/passes/quantized_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// The axis of `before` that a Reshape to `after` leaves alone: as many elements before it, and as many in it.
std::optional<std::int64_t> axis_after(const Shape& before, std::int64_t axis, const Shape& after) {
  std::int64_t front = 1;
  for (int d = 0; d < axis; ++d) front *= before[d];
  std::int64_t passed = 1;
  for (int d = 0; d < after.rank(); ++d) {
    if (passed == front && after[d] == before[static_cast<int>(axis)]) return d;
    passed *= after[d];
  }
  return std::nullopt;
}

// The constant that a Transpose or Reshape reads, where the scales can follow.
std::optional<QuantizedConstant> moved(const Node& node, const QuantizedConstant& constant) {
  QuantizedConstant result = constant;
  if (const auto* transpose = layer_if<Transpose>(node)) {
    const std::vector<std::int64_t>& permutation = transpose->attributes().permutation;
    const auto at = std::find(permutation.begin(), permutation.end(), constant.q.axis);
    result.q.axis = at - permutation.begin();
  } else if (const auto* reshape = layer_if<Reshape>(node)) {
    if (!constant.q.per_tensor()) {
      const auto axis = axis_after(constant.integers->shape(), constant.q.axis, reshape->attributes().shape);
      if (!axis) return std::nullopt;
      result.q.axis = *axis;
    }
  } else {
    return std::nullopt;
  }
  result.integers =
      std::make_shared<const Tensor>(std::move(evaluate(*node.layer, {&constant.integers, 1}).at(0)));
  return result;
}

class Folder {
 public:
  explicit Folder(const Graph& graph)
      : graph_(graph), rewriter_(graph), integers_(graph.values().size(), false) {
    for (const Value& value : graph.values()) {
      if (value.constant) movable_ += kMovesPerElement * value.desc.elements();
    }
  }

  Rewritten run() {
    for (const Node& node : graph_.nodes()) visit(node);
    for (const ValueId id : graph_.outputs()) {
      if (constants_.contains(id)) rewriter_.forward(id, folded(id));
    }
    return {rewriter_.finish(), changes_, {}};
  }

 private:
  // Elements that may be moved ahead of time, per element of the constants: files with chains of Transpose exist to
  // keep readers busy.
  static constexpr std::int64_t kMovesPerElement = 4;

  struct Constant {
    QuantizedConstant value;
    std::string name;
    ValueId folded = kNoValue;
    ValueId kept = kNoValue;
  };

  void visit(const Node& node) {
    if (auto constant = quantized_constant(graph_, node)) {
      constants_[node.outputs[0]] = {std::move(*constant), node.name};
      return;
    }
    if (const auto found = constants_.find(node.inputs.empty() ? kNoValue : node.inputs[0]);
        found != constants_.end()) {
      const std::int64_t elements = found->second.value.integers->desc().elements();
      auto constant = elements <= movable_ ? moved(node, found->second.value) : std::nullopt;
      if (constant) {
        movable_ -= elements;
        constants_[node.outputs[0]] = {std::move(*constant), node.name};
        ++changes_;
        return;
      }
    }
    follow_integers(node);
    std::vector<ValueId> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue || !constants_.contains(id)) {
        inputs.push_back(rewriter_.map(id));
      } else {
        inputs.push_back(takes_integers(node, i) ? kept(id) : folded(id));
      }
    }
    rewriter_.emit(node.name, node.layer, std::move(inputs), node.outputs);
  }

  // Which values are integers in disguise: dequantized, and since then only moved.
  void follow_integers(const Node& node) {
    bool follows = layer_if<Dequantize>(node) != nullptr;
    const auto* pool = layer_if<Pool>(node);
    if (layer_if<Reshape>(node) || layer_if<Transpose>(node) || layer_if<Slice>(node) ||
        layer_if<Split>(node) || layer_if<Pad>(node) || layer_if<Concat>(node) ||
        (pool != nullptr && pool->attributes().kind == PoolKind::max)) {
      follows = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
        return id != kNoValue && integers_[static_cast<std::size_t>(id)];
      });
    }
    if (!follows) return;
    for (const ValueId id : node.outputs) integers_[static_cast<std::size_t>(id)] = true;
  }

  // Weights and bias of a layer whose input is quantized.
  bool takes_integers(const Node& node, std::size_t input) const {
    const bool weighted = layer_if<Conv>(node) || layer_if<Gemm>(node) || layer_if<MatMul>(node);
    return weighted && (input == 1 || input == 2) && integers_[static_cast<std::size_t>(node.inputs[0])];
  }

  ValueId folded(ValueId id) {
    Constant& c = constants_.at(id);
    if (c.folded == kNoValue) {
      try {
        c.folded = rewriter_.constant(graph_.value(id).name, dequantize(c.value));
      } catch (const Error& e) {
        fail("node '{}': {}", c.name, e.what());
      }
      ++changes_;
    }
    return c.folded;
  }

  ValueId kept(ValueId id) {
    Constant& c = constants_.at(id);
    if (c.kept == kNoValue) {
      const ValueId integers = rewriter_.builder().add_constant(c.name + ".integers", c.value.integers);
      c.kept = rewriter_.builder().add1(c.name, std::make_shared<DequantizeAxis>(c.value.q), {integers},
                                        graph_.value(id).name);
    }
    return c.kept;
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::map<ValueId, Constant> constants_;
  std::vector<bool> integers_;
  std::int64_t movable_ = 0;
  int changes_ = 0;
};

}  // namespace

Rewritten fold_dequantized(const Graph& graph) {
  return Folder(graph).run();
}

}  // namespace pipit::internal
