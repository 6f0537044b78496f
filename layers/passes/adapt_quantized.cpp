// Quantized layers in the forms that a device has kernels for.
#include <algorithm>
#include <cmath>
#include <concepts>
#include <set>

#include "layers/ops/binary.h"
#include "layers/ops/qconv.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/moves_elements.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// The Quantize that alone reads what the node reshapes; null where there is none.
const Node* quantize_behind(const Rewriter& rewriter, const Node& node) {
  const int next = layer_if<Reshape>(node) != nullptr ? rewriter.only_consumer(node.outputs[0]) : -1;
  if (next < 0) return nullptr;
  const Node& reader = rewriter.source().nodes()[static_cast<std::size_t>(next)];
  return layer_if<Quantize>(reader) != nullptr ? &reader : nullptr;
}

// Quantize moves to before a Reshape that hands its values to nothing else, to the layer that computes them: its kernel
// may then quantize them, too.
Rewritten raise_quantize(const Graph& graph) {
  Rewriter rewriter(graph);
  std::set<const Node*> raised;
  for (const Node& node : graph.nodes()) {
    if (raised.contains(&node)) continue;
    const Node* quantize = quantize_behind(rewriter, node);
    if (quantize == nullptr) {
      rewriter.copy(node);
      continue;
    }
    const ValueId integers =
        rewriter.builder().add1(quantize->name, quantize->layer, {rewriter.map(node.inputs[0])});
    rewriter.emit(node.name, node.layer, {integers}, quantize->outputs);
    raised.insert(quantize);
  }
  return {rewriter.finish(), static_cast<int>(raised.size())};
}

// Dequantize -> function of one tensor -> Quantize becomes QUnary, also without a function between, and a product of
// two dequantized tensors QMul.
class FunctionFuser {
 public:
  explicit FunctionFuser(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Rewritten run() {
    for (const Node& node : graph_.nodes()) {
      // What comes before a Quantize is left out by build() where nothing else reads it.
      if (!try_requantization(node) && !try_function(node) && !try_product(node)) rewriter_.copy(node);
    }
    return {rewriter_.finish(), changes_};
  }

 private:
  const Node* producer(ValueId id) const {
    const int n = id == kNoValue ? -1 : rewriter_.producer(id);
    return n < 0 ? nullptr : &graph_.nodes()[static_cast<std::size_t>(n)];
  }

  // The Dequantize that a value comes from.
  const Node* dequantize(ValueId id) const {
    const Node* node = producer(id);
    return node != nullptr && layer_if<Dequantize>(*node) != nullptr ? node : nullptr;
  }

  // The node that `quantize` alone rounds, if it is one.
  const Node* rounded(const Node& quantize) const {
    if (layer_if<Quantize>(quantize) == nullptr || rewriter_.uses(quantize.inputs[0]) != 1) return nullptr;
    return producer(quantize.inputs[0]);
  }

  // From one scale to another, as before a Concat.
  bool try_requantization(const Node& node) {
    const auto* quantize = layer_if<Quantize>(node);
    const Node* before = quantize != nullptr ? dequantize(node.inputs[0]) : nullptr;
    if (before == nullptr) return false;
    const auto layer =
        std::make_shared<QUnary>(requantization(layer_if<Dequantize>(*before)->x(), quantize->y()));
    rewriter_.emit(node.name, layer, {rewriter_.map(before->inputs[0])}, node.outputs);
    ++changes_;
    return true;
  }

  bool try_function(const Node& quantize) {
    const Node* node = rounded(quantize);
    const auto* unary = node != nullptr ? layer_if<Unary>(*node) : nullptr;
    const Node* before = unary != nullptr ? dequantize(node->inputs[0]) : nullptr;
    if (before == nullptr) return false;
    const QUnaryAttributes attributes{unary->attributes(), layer_if<Dequantize>(*before)->x(),
                                      layer_if<Quantize>(quantize)->y()};
    rewriter_.emit(node->name, std::make_shared<QUnary>(attributes), {rewriter_.map(before->inputs[0])},
                   quantize.outputs);
    ++changes_;
    return true;
  }

  bool try_product(const Node& quantize) {
    const Node* node = rounded(quantize);
    const auto* binary = node != nullptr ? layer_if<Binary>(*node) : nullptr;
    if (binary == nullptr || binary->attributes().kind != BinaryKind::mul) return false;
    const Node* a = dequantize(node->inputs[0]);
    const Node* b = dequantize(node->inputs[1]);
    if (a == nullptr || b == nullptr) return false;
    const auto shape = [&](const Node* operand) { return graph_.value(operand->inputs[0]).desc.shape; };
    if (!qmul_fits(shape(a), shape(b))) std::swap(a, b);
    if (!qmul_fits(shape(a), shape(b))) return false;
    const QMulAttributes attributes{layer_if<Dequantize>(*a)->x(), layer_if<Dequantize>(*b)->x(),
                                    layer_if<Quantize>(quantize)->y(), binary->attributes().activation};
    if (!std::isnormal(qmul_multiplier(attributes))) return false;
    rewriter_.emit(node->name, std::make_shared<QMul>(attributes),
                   {rewriter_.map(a->inputs[0]), rewriter_.map(b->inputs[0])}, quantize.outputs);
    ++changes_;
    return true;
  }

  const Graph& graph_;
  Rewriter rewriter_;
  int changes_ = 0;
};

// Activations in i8 with zero point z that convolutions read, and what they are made of, become u8 with zero point
// z + 128, which hold the same values. The graph's own inputs and outputs keep their type.
Quantization as_unsigned(Quantization q) {
  q.dtype = DType::u8;
  q.zero_point += 128;
  return q;
}

class UnsignedActivations {
 public:
  explicit UnsignedActivations(const Graph& graph)
      : graph_(graph),
        rewriter_(graph),
        wanted_(graph.values().size(), false),
        signed_(graph.values().size(), kNoValue),
        unsigned_(graph.values().size(), kNoValue) {}

  Rewritten run() {
    find_wanted();
    for (const Node& node : graph_.nodes()) visit(node);
    for (const ValueId id : graph_.outputs()) rewriter_.forward(id, as_it_was(id));
    return {rewriter_.finish(), changes_};
  }

 private:
  bool is_signed(ValueId id) const { return id != kNoValue && graph_.value(id).desc.dtype == DType::i8; }

  // What convolutions read, and what comes before it unchanged.
  void find_wanted() {
    for (std::size_t n = graph_.nodes().size(); n-- > 0;) {
      const Node& node = graph_.nodes()[n];
      if (layer_if<QConv>(node)) {
        for (const std::size_t operand : {0, 3}) {
          if (operand < node.inputs.size()) want(node.inputs[operand]);
        }
      } else if (layer_if<Concat>(node) && wanted_[index(node.outputs[0])]) {
        for (const ValueId id : node.inputs) want(id);
      } else if (moves_elements(node)) {
        for (const ValueId id : node.outputs) {
          if (wanted_[index(id)]) want(node.inputs[0]);
        }
      }
    }
  }
  void want(ValueId id) {
    if (is_signed(id)) wanted_[index(id)] = true;
  }

  // --- values ---

  // The value with its 128 added to every element, or taken off.
  ValueId converted(ValueId id, ValueId from, DType to) {
    const Quantization i8{1, 0, DType::i8, true};
    const Quantization u8 = as_unsigned(i8);
    const bool is_unsigned = to == DType::u8;
    return rewriter_.builder().add1(
        graph_.value(id).name + (is_unsigned ? ".unsigned" : ".signed"),
        std::make_shared<QUnary>(requantization(is_unsigned ? i8 : u8, is_unsigned ? u8 : i8)), {from});
  }
  ValueId as_it_was(ValueId id) {
    if (id == kNoValue || unsigned_[index(id)] == kNoValue) return rewriter_.map(id);
    ValueId& made = signed_[index(id)];
    if (made == kNoValue) made = converted(id, unsigned_[index(id)], DType::i8);
    return made;
  }
  ValueId as_unsigned_bytes(ValueId id) {
    ValueId& made = unsigned_[index(id)];
    if (made == kNoValue) {
      signed_[index(id)] = rewriter_.map(id);
      made = converted(id, signed_[index(id)], DType::u8);
    }
    return made;
  }
  void made_unsigned(ValueId id, ValueId made) {
    unsigned_[index(id)] = made;
    ++changes_;
  }

  // --- nodes ---

  void visit(const Node& node) {
    if (retype<QConv, QConvAttributes>(node, {{0, &QConvAttributes::x}, {3, &QConvAttributes::residual}}) ||
        retype<QAdd, QAddAttributes>(node, {{0, &QAddAttributes::a}, {1, &QAddAttributes::b}}) ||
        retype<QMul, QMulAttributes>(node, {{0, &QMulAttributes::a}, {1, &QMulAttributes::b}}) ||
        retype<QUnary, QUnaryAttributes>(node, {{0, &QUnaryAttributes::x}}) ||
        retype<QAveragePool, QAveragePoolAttributes>(node, {{0, &QAveragePoolAttributes::x}}) ||
        try_conversion(node) || try_moving(node))
      return;
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(as_it_was(id));
    rewriter_.emit(node.name, node.layer, std::move(inputs), node.outputs);
  }

  // A layer that has attributes for the quantization of each operand and of its output y.
  template <typename L, typename A>
  bool retype(const Node& node, std::initializer_list<std::pair<std::size_t, Quantization A::*>> operands) {
    const auto* layer = layer_if<L>(node);
    if (layer == nullptr) return false;
    A attributes = layer->attributes();
    std::vector<ValueId> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      const auto operand =
          std::find_if(operands.begin(), operands.end(), [&](const auto& o) { return o.first == i; });
      const bool shifts = operand != operands.end() && is_signed(id) &&
                          (std::same_as<L, QConv> || unsigned_[index(id)] != kNoValue);
      if (shifts) attributes.*operand->second = as_unsigned(attributes.*operand->second);
      inputs.push_back(shifts ? as_unsigned_bytes(id) : as_it_was(id));
    }
    const ValueId y = node.outputs[0];
    if (wanted_[index(y)]) attributes.y = as_unsigned(attributes.y);
    emit(node, std::make_shared<L>(std::move(attributes)), std::move(inputs));
    return true;
  }

  bool try_conversion(const Node& node) {
    if (const auto* quantize = layer_if<Quantize>(node)) {
      const bool wanted = wanted_[index(node.outputs[0])];
      emit(node, wanted ? std::make_shared<Quantize>(as_unsigned(quantize->y())) : node.layer,
           {rewriter_.map(node.inputs[0])});
      return true;
    }
    const auto* dequantize = layer_if<Dequantize>(node);
    if (dequantize == nullptr || unsigned_[index(node.inputs[0])] == kNoValue) return false;
    emit(node, std::make_shared<Dequantize>(as_unsigned(dequantize->x())),
         {unsigned_[index(node.inputs[0])]});
    return true;
  }

  bool try_moving(const Node& node) {
    const bool concat = layer_if<Concat>(node) != nullptr;
    if ((!concat && !moves_elements(node)) || !is_signed(node.inputs[0])) return false;
    // Pieces of one value: all of them, or none.
    if (!wanted_[index(node.inputs[0])] || !is_signed(node.outputs[0])) return false;
    LayerPtr layer = node.layer;
    if (const auto* pad = layer_if<Pad>(node)) {
      PadAttributes attributes = pad->attributes();
      attributes.value += 128;
      layer = std::make_shared<Pad>(std::move(attributes));
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) {
      const bool moved = concat || inputs.empty();  // else indices
      inputs.push_back(moved ? as_unsigned_bytes(id) : rewriter_.map(id));
    }
    for (const ValueId id : node.outputs) wanted_[index(id)] = true;
    emit(node, layer, std::move(inputs));
    return true;
  }

  // A node whose outputs are unsigned where that is wanted.
  void emit(const Node& node, LayerPtr layer, std::vector<ValueId> inputs) {
    const std::vector<ValueId> made =
        rewriter_.emit(node.name, std::move(layer), std::move(inputs), node.outputs);
    for (std::size_t o = 0; o < node.outputs.size(); ++o) {
      if (wanted_[index(node.outputs[o])]) made_unsigned(node.outputs[o], made[o]);
    }
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<bool> wanted_;       // i8 values of the old graph that are to be u8
  std::vector<ValueId> signed_;    // the new graph's values, where there are both
  std::vector<ValueId> unsigned_;  // and where there is the second
  int changes_ = 0;
};

}  // namespace

Rewritten adapt_quantized(const Graph& graph, DeviceKind device) {
  const bool gpu = device == DeviceKind::cuda;
  Rewritten raised = gpu ? raise_quantize(graph) : Rewritten{graph};
  const Rewritten functions = FunctionFuser(raised.graph).run();
  raised.changes += functions.changes;
  if (gpu) return {functions.graph, raised.changes};
  Rewritten result = UnsignedActivations(functions.graph).run();
  result.changes += raised.changes;
  return result;
}

}  // namespace pipit::internal
