// HardSigmoid and HardSwish written out: min(max(x + 3, 0), 6) / 6, and x times that.
#include "layers/passes/passes.h"
#include "layers/passes/patterns.h"

namespace pipit {

namespace {

class HardSwishMatcher {
 public:
  explicit HardSwishMatcher(const Rewriter& rewriter) : patterns_(rewriter) {}

  struct Match {
    ValueId x = kNoValue;
    UnaryAttributes function;
  };

  // What the node computes, if it is one of the two.
  Match match(const Node& node) const {
    const UnaryAttributes hard_swish{UnaryKind::hard_swish, 0, 0};
    if (const ValueId whole = patterns_.scaled(node.outputs[0], 1.0 / 6); whole != kNoValue) {
      if (const ValueId x = ramp(whole); x != kNoValue) return {x, {UnaryKind::hard_sigmoid, 1.0F / 6, 0.5}};
      return {product_with_ramp(whole), hard_swish};
    }
    // (x / 6) * ramp
    if (!Patterns::is_binary(node, BinaryKind::mul)) return {};
    for (const auto& [a, b] : Patterns::orders(node)) {
      const ValueId x = ramp(a);
      if (x != kNoValue && patterns_.scaled(b, 1.0 / 6) == x) return {x, hard_swish};
    }
    return {};
  }

 private:
  // x where the value is x * ramp(x).
  ValueId product_with_ramp(ValueId id) const {
    const Node* node = patterns_.binary(id, BinaryKind::mul);
    if (node == nullptr) return kNoValue;
    for (const auto& [a, b] : Patterns::orders(*node)) {
      if (ramp(a) == b) return b;
    }
    return kNoValue;
  }
  // x where the value is min(max(x + 3, 0), 6).
  ValueId ramp(ValueId id) const {
    const ValueId inside = clipped(id);
    if (inside == kNoValue) return kNoValue;
    const Node* difference = patterns_.binary(inside, BinaryKind::sub);
    if (difference != nullptr && patterns_.is_number(difference->inputs[1], -3)) return difference->inputs[0];
    const Node* sum = patterns_.binary(inside, BinaryKind::add);
    if (sum == nullptr) return kNoValue;
    for (const auto& [x, constant] : Patterns::orders(*sum)) {
      if (patterns_.is_number(constant, 3)) return x;
    }
    return kNoValue;
  }
  // v where the value is min(max(v, 0), 6), as one node or as one for either bound.
  ValueId clipped(ValueId id) const {
    const Bound outer = bound(id);
    if (outer.of == kNoValue || (outer.low && outer.high)) return outer.of;
    const Bound inner = bound(outer.of);
    return (outer.low || inner.low) && (outer.high || inner.high) ? inner.of : kNoValue;
  }
  // A value that is `of` bounded by 0, by 6 or by both, and by nothing else.
  struct Bound {
    ValueId of = kNoValue;
    bool low = false;
    bool high = false;
  };
  Bound bound(ValueId id) const {
    const Node* node = patterns_.producer(id);
    if (node == nullptr) return {};
    if (const auto* unary = layer_if<Unary>(*node)) {
      constexpr double kMax = 3e38;
      const UnaryAttributes& a = unary->attributes();
      if (a.kind == UnaryKind::relu) return {node->inputs[0], true, false};
      const bool low = a.alpha == 0;
      const bool high = a.beta == 6;
      const bool nothing_else = (low || a.alpha < -kMax) && (high || a.beta > kMax);
      return a.kind == UnaryKind::clip && nothing_else ? Bound{node->inputs[0], low, high} : Bound{};
    }
    for (const bool high : {false, true}) {
      if (!Patterns::is_binary(*node, high ? BinaryKind::min : BinaryKind::max)) continue;
      for (const auto& [v, constant] : Patterns::orders(*node)) {
        if (patterns_.is_number(constant, high ? 6 : 0)) return {v, !high, high};
      }
    }
    return {};
  }

  Patterns patterns_;
};

}  // namespace

Rewritten fuse_hard_swish(const Graph& graph) {
  Rewriter rewriter(graph);
  const HardSwishMatcher matcher(rewriter);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const HardSwishMatcher::Match match = matcher.match(node);
    // The constants may have made the result's rank larger than that of x.
    if (match.x == kNoValue || !(graph.value(match.x).desc == graph.value(node.outputs[0]).desc)) {
      rewriter.copy(node);
      continue;
    }
    rewriter.emit(node.name, std::make_shared<Unary>(match.function), {rewriter.map(match.x)}, node.outputs);
    ++changes;
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit
