// Gelu written out with Erf, as exporters do: 0.5 * x * (1 + erf(x / sqrt(2))).
#include <array>
#include <cmath>
#include <utility>

#include "layers/binary.h"
#include "layers/fuse/passes.h"
#include "layers/fuse/rewriter.h"
#include "layers/unary.h"

namespace pipit {

namespace {

class GeluMatcher {
 public:
  explicit GeluMatcher(const Rewriter& rewriter) : rewriter_(rewriter) {}

  // The x of which the node computes the Gelu; kNoValue where it does not.
  ValueId argument(const Node& node) const {
    if (!is_binary(node, BinaryKind::mul)) return kNoValue;
    for (const auto& [a, b] : orders(node)) {
      // (x * (1 + erf)) * 0.5
      if (is_constant(b, 0.5)) {
        const Node* product = producer(a);
        if (product == nullptr || !is_binary(*product, BinaryKind::mul)) continue;
        for (const auto& [x, sum] : orders(*product)) {
          if (one_plus_erf_argument(sum) == x) return x;
        }
      }
      // (x * 0.5) * (1 + erf)
      const ValueId x = one_plus_erf_argument(b);
      if (x != kNoValue && scaled(a, 0.5) == x) return x;
    }
    return kNoValue;
  }

 private:
  using Order = std::pair<ValueId, ValueId>;
  static std::array<Order, 2> orders(const Node& node) {
    return {Order{node.inputs[0], node.inputs[1]}, Order{node.inputs[1], node.inputs[0]}};
  }

  const Node* producer(ValueId id) const {
    const int n = rewriter_.producer(id);
    return n < 0 ? nullptr : &rewriter_.source().nodes()[static_cast<std::size_t>(n)];
  }
  static bool is_binary(const Node& node, BinaryKind kind) {
    const auto* binary = layer_if<Binary>(node);
    return binary != nullptr && binary->attributes().kind == kind &&
           binary->attributes().activation.is_identity();
  }
  // A scalar, up to the rounding of f32.
  bool is_constant(ValueId id, double wanted) const {
    const auto& constant = rewriter_.source().value(id).constant;
    return constant != nullptr && constant->desc().dtype == DType::f32 && constant->desc().elements() == 1 &&
           std::abs(static_cast<double>(constant->values<float>()[0]) - wanted) <= 0x1p-22 * wanted;
  }
  // v where the value is v * factor; kNoValue where it is not.
  ValueId scaled(ValueId id, double factor) const {
    const Node* node = producer(id);
    if (node == nullptr) return kNoValue;
    if (is_binary(*node, BinaryKind::div) && is_constant(node->inputs[1], 1 / factor)) return node->inputs[0];
    if (!is_binary(*node, BinaryKind::mul)) return kNoValue;
    for (const auto& [v, constant] : orders(*node)) {
      if (is_constant(constant, factor)) return v;
    }
    return kNoValue;
  }
  // x where the value is 1 + erf(x / sqrt(2)).
  ValueId one_plus_erf_argument(ValueId id) const {
    const Node* sum = producer(id);
    if (sum == nullptr || !is_binary(*sum, BinaryKind::add)) return kNoValue;
    for (const auto& [v, one] : orders(*sum)) {
      const Node* erf = producer(v);
      const auto* unary = erf == nullptr ? nullptr : layer_if<Unary>(*erf);
      if (unary != nullptr && unary->attributes().kind == UnaryKind::erf && is_constant(one, 1)) {
        return scaled(erf->inputs[0], std::sqrt(0.5));
      }
    }
    return kNoValue;
  }

  const Rewriter& rewriter_;
};

}  // namespace

Rewritten fuse_gelu(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const ValueId x = GeluMatcher(rewriter).argument(node);
    // The constants may have made the result's rank larger than that of x.
    if (x == kNoValue || !(graph.value(x).desc == graph.value(node.outputs[0]).desc)) {
      rewriter.copy(node);
      continue;
    }
    rewriter.emit(node.name, std::make_shared<Unary>(UnaryAttributes{UnaryKind::gelu, 0, 0}),
                  {rewriter.map(x)}, node.outputs);
    ++changes;
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit
