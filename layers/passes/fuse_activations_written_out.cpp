// Activation functions that exporters write out as several nodes: HardSigmoid, HardSwish, Silu, Swish and Gelu.
#include <array>
#include <cmath>
#include <numbers>
#include <optional>

#include "layers/passes/passes.h"
#include "layers/passes/patterns.h"

namespace pipit::internal {

namespace {

// A function and what it is applied to; kNoValue where nothing was recognized.
struct WrittenFunction {
  ValueId x = kNoValue;
  UnaryAttributes function;
};

// HardSigmoid and HardSwish: min(max(x + 3, 0), 6) / 6, and x times that, however it is ordered.
class HardSwishMatcher {
 public:
  explicit HardSwishMatcher(const Rewriter& rewriter) : patterns_(rewriter) {}

  WrittenFunction find(const Node& node) const {
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

// Gelu: 0.5 * x * (1 + erf(x / sqrt(2))), or its approximation with tanh.
class GeluMatcher {
 public:
  explicit GeluMatcher(const Rewriter& rewriter) : patterns_(rewriter) {}

  WrittenFunction find(const Node& node) const {
    if (!Patterns::is_binary(node, BinaryKind::mul)) return {};
    for (const auto& [a, b] : Patterns::orders(node)) {
      // (x * (1 + f)) * 0.5
      const Node* product = patterns_.is_number(b, 0.5) ? patterns_.binary(a, BinaryKind::mul) : nullptr;
      if (product != nullptr) {
        for (const auto& [x, sum] : Patterns::orders(*product)) {
          if (const auto function = one_plus(sum, x)) return {x, *function};
        }
      }
      // (x * 0.5) * (1 + f), x * ((1 + f) * 0.5)
      const ValueId half = patterns_.scaled(a, 0.5);
      if (const auto function = one_plus(b, half)) return {half, *function};
      if (const auto function = one_plus(patterns_.scaled(b, 0.5), a)) return {a, *function};
    }
    return {};
  }

 private:
  // Whose half times x the value 1 + erf(x / sqrt(2)) or 1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)) is a part of.
  std::optional<UnaryAttributes> one_plus(ValueId id, ValueId x) const {
    const Node* sum = id == kNoValue || x == kNoValue ? nullptr : patterns_.binary(id, BinaryKind::add);
    if (sum == nullptr) return std::nullopt;
    for (const auto& [v, one] : Patterns::orders(*sum)) {
      if (!patterns_.is_number(one, 1)) continue;
      const ValueId of_erf = patterns_.argument(v, UnaryKind::erf);
      if (of_erf != kNoValue && patterns_.scaled(of_erf, 1 / std::numbers::sqrt2) == x)
        return UnaryAttributes{UnaryKind::gelu};
      const ValueId of_tanh = patterns_.argument(v, UnaryKind::tanh);
      if (of_tanh != kNoValue && is_tanh_argument(of_tanh, x)) return UnaryAttributes{UnaryKind::gelu_tanh};
    }
    return std::nullopt;
  }

  bool is_tanh_argument(ValueId id, ValueId x) const {
    const double factor = std::sqrt(2 / std::numbers::pi);
    const std::optional<Cubic> p = cubic(id, x, kMaxDepth);
    const auto near = [](double value, double wanted) {
      return std::abs(value - wanted) <= 0x1p-20 * std::abs(wanted);
    };
    return p && (*p)[0] == 0 && near((*p)[1], factor) && (*p)[2] == 0 && near((*p)[3], factor * 0.044715);
  }

  // The value as a polynomial in x, by powers; however its sums and products are ordered.
  using Cubic = std::array<double, 4>;
  static constexpr int kMaxDepth = 6;
  std::optional<Cubic> cubic(ValueId id, ValueId x, int depth) const {
    if (id == x) return Cubic{0, 1};
    if (const std::optional<double> number = patterns_.number(id)) return Cubic{*number};
    const Node* node = depth == 0 ? nullptr : patterns_.producer(id);
    if (node == nullptr) return std::nullopt;
    const auto operand = [&](std::size_t i) { return cubic(node->inputs[i], x, depth - 1); };
    if (const auto* unary = layer_if<Unary>(*node)) {
      const UnaryAttributes& f = unary->attributes();
      if (f.kind != UnaryKind::pow || (f.alpha != 2 && f.alpha != 3)) return std::nullopt;
      const std::optional<Cubic> base = operand(0);
      const std::optional<Cubic> square = times(base, base);
      return f.alpha == 2 ? square : times(square, base);
    }
    if (Patterns::is_binary(*node, BinaryKind::mul)) return times(operand(0), operand(1));
    if (!Patterns::is_binary(*node, BinaryKind::add)) return std::nullopt;
    std::optional<Cubic> sum = operand(0);
    const std::optional<Cubic> other = sum ? operand(1) : std::nullopt;
    if (!other) return std::nullopt;
    for (std::size_t i = 0; i < sum->size(); ++i) (*sum)[i] += (*other)[i];
    return sum;
  }

  // Nothing where the degree is above 3.
  static std::optional<Cubic> times(const std::optional<Cubic>& a, const std::optional<Cubic>& b) {
    if (!a || !b) return std::nullopt;
    Cubic product{};
    for (std::size_t i = 0; i < a->size(); ++i) {
      for (std::size_t j = 0; j < b->size(); ++j) {
        const double term = (*a)[i] * (*b)[j];
        if (term == 0) continue;
        if (i + j >= product.size()) return std::nullopt;
        product[i + j] += term;
      }
    }
    return product;
  }

  Patterns patterns_;
};

// Silu, Swish and HardSwish as x times a gate: Sigmoid of x or of alpha x, or HardSigmoid of x.
class GateMatcher {
 public:
  GateMatcher(const Rewriter& rewriter, const HardSwishMatcher& hard_swish)
      : patterns_(rewriter), hard_swish_(hard_swish) {}

  WrittenFunction find(const Node& node) const {
    if (!Patterns::is_binary(node, BinaryKind::mul)) return {};
    for (const auto& [x, gate] : Patterns::orders(node)) {
      if (const std::optional<UnaryAttributes> function = gated(x, gate)) return {x, *function};
    }
    return {};
  }

 private:
  // What x times this gate is, where that is one function of x.
  std::optional<UnaryAttributes> gated(ValueId x, ValueId gate) const {
    const Node* node = patterns_.producer(gate);
    if (node == nullptr) return std::nullopt;
    const auto* unary = layer_if<Unary>(*node);
    const WrittenFunction f =
        unary != nullptr ? WrittenFunction{node->inputs[0], unary->attributes()} : hard_swish_.find(*node);
    if (f.function.kind == UnaryKind::sigmoid) {
      if (f.x == x) return swish(1);
      const std::optional<double> alpha = factor(f.x, x);
      return alpha ? std::optional(swish(*alpha)) : std::nullopt;
    }
    // Exporters write a sixth in six digits or more.
    const bool hard_swish = f.function.kind == UnaryKind::hard_sigmoid && f.function.beta == 0.5 &&
                            std::abs(f.function.alpha * 6 - 1) <= 0x1p-20;
    return hard_swish && f.x == x ? std::optional(UnaryAttributes{UnaryKind::hard_swish}) : std::nullopt;
  }
  // The constant number that `product` is x times.
  std::optional<double> factor(ValueId product, ValueId x) const {
    const Node* node = patterns_.producer(product);
    if (node == nullptr) return std::nullopt;
    if (Patterns::is_binary(*node, BinaryKind::div)) {
      const std::optional<double> divisor = patterns_.number(node->inputs[1]);
      return node->inputs[0] == x && divisor ? std::optional(1 / *divisor) : std::nullopt;
    }
    if (!Patterns::is_binary(*node, BinaryKind::mul)) return std::nullopt;
    for (const auto& [v, number] : Patterns::orders(*node)) {
      if (v == x && patterns_.number(number)) return patterns_.number(number);
    }
    return std::nullopt;
  }

  Patterns patterns_;
  const HardSwishMatcher& hard_swish_;
};

class WrittenFunctions {
 public:
  explicit WrittenFunctions(const Rewriter& rewriter)
      : graph_(rewriter.source()), hard_swish_(rewriter), gates_(rewriter, hard_swish_), gelu_(rewriter) {}
  WrittenFunctions(const WrittenFunctions&) = delete;
  WrittenFunctions& operator=(const WrittenFunctions&) = delete;

  WrittenFunction find(const Node& node) const {
    for (const WrittenFunction& found : {hard_swish_.find(node), gates_.find(node), gelu_.find(node)}) {
      // The constants may have made the result's rank larger than that of x.
      if (found.x != kNoValue && graph_.value(found.x).desc == graph_.value(node.outputs[0]).desc)
        return found;
    }
    return {};
  }

 private:
  const Graph& graph_;
  HardSwishMatcher hard_swish_;
  GateMatcher gates_;
  GeluMatcher gelu_;
};

}  // namespace

Rewritten fuse_activations_written_out(const Graph& graph) {
  Rewriter rewriter(graph);
  const WrittenFunctions functions(rewriter);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const auto [x, function] = functions.find(node);
    if (x == kNoValue) {
      rewriter.copy(node);
      continue;
    }
    // What is inside goes with it unless something else reads it: build() drops what no output needs.
    rewriter.emit(node.name, std::make_shared<Unary>(function), {rewriter.map(x)}, node.outputs);
    ++changes;
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit::internal
