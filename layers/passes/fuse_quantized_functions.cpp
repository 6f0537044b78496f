#include <cmath>

#include "layers/ops/binary.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"
#include "layers/passes/passes.h"
#include "layers/passes/rewriter.h"

namespace pipit {

namespace {

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

  // From one scale to another, as in front of a Concat.
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

}  // namespace

Rewritten fuse_quantized_functions(const Graph& graph) {
  return FunctionFuser(graph).run();
}

}  // namespace pipit
