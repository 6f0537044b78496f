// What passes ask of a graph when they look for layers written out as several nodes.
#pragma once

#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "layers/ops/binary.h"
#include "layers/ops/unary.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

class Patterns {
 public:
  explicit Patterns(const Rewriter& rewriter) : rewriter_(rewriter) {}

  const Graph& graph() const { return rewriter_.source(); }
  /// The node that computes a value; null for inputs and constants.
  const Node* producer(ValueId id) const {
    const int n = rewriter_.producer(id);
    return n < 0 ? nullptr : &graph().nodes()[static_cast<std::size_t>(n)];
  }
  /// The only node that reads a value; null where another one or an output of the graph does too.
  const Node* only_consumer(ValueId id) const {
    const int n = rewriter_.only_consumer(id);
    return n < 0 ? nullptr : &graph().nodes()[static_cast<std::size_t>(n)];
  }

  static bool is_binary(const Node& node, BinaryKind kind) {
    const auto* binary = layer_if<Binary>(node);
    return binary != nullptr && binary->attributes().kind == kind &&
           binary->attributes().activation.is_identity();
  }
  /// The node that computes `id`, if it is such a one; else null.
  const Node* binary(ValueId id, BinaryKind kind) const {
    const Node* node = producer(id);
    return node != nullptr && is_binary(*node, kind) ? node : nullptr;
  }
  /// v where the value is f(v); kNoValue where it is not.
  ValueId argument(ValueId id, UnaryKind kind) const {
    const Node* node = producer(id);
    const auto* unary = node == nullptr ? nullptr : layer_if<Unary>(*node);
    return unary != nullptr && unary->attributes().kind == kind ? node->inputs[0] : kNoValue;
  }
  /// v where the value is v to the power of `exponent`, however written.
  ValueId base(ValueId id, double exponent) const {
    const Node* node = producer(id);
    if (node == nullptr) return kNoValue;
    if (const auto* unary = layer_if<Unary>(*node)) {
      const UnaryAttributes& a = unary->attributes();
      const bool same = (a.kind == UnaryKind::pow && a.alpha == exponent) ||
                        (a.kind == UnaryKind::sqrt && exponent == 0.5) ||
                        (a.kind == UnaryKind::reciprocal && exponent == -1);
      if (same) return node->inputs[0];
    }
    if (exponent == -1 && is_binary(*node, BinaryKind::div) && is_number(node->inputs[0], 1)) {
      return node->inputs[1];
    }
    if (!is_binary(*node, BinaryKind::mul)) return kNoValue;
    if (exponent == 2 && node->inputs[0] == node->inputs[1]) return node->inputs[0];
    if (exponent != 3) return kNoValue;
    for (const auto& [v, square] : orders(*node)) {
      if (base(square, 2) == v) return v;
    }
    return kNoValue;
  }

  /// A constant of one element.
  std::optional<double> number(ValueId id) const {
    const auto& constant = id == kNoValue ? nullptr : graph().value(id).constant;
    if (constant == nullptr || constant->desc().dtype != DType::f32 || constant->desc().elements() != 1) {
      return std::nullopt;
    }
    return static_cast<double>(constant->values<float>()[0]);
  }
  /// Such a constant, up to the rounding of f32.
  bool is_number(ValueId id, double wanted) const {
    const std::optional<double> value = number(id);
    return value && std::abs(*value - wanted) <= 0x1p-22 * std::abs(wanted);
  }
  /// v where the value is v * factor; kNoValue where it is not.
  ValueId scaled(ValueId id, double factor) const {
    const Node* node = producer(id);
    if (node == nullptr) return kNoValue;
    if (is_binary(*node, BinaryKind::div) && is_number(node->inputs[1], 1 / factor)) return node->inputs[0];
    if (!is_binary(*node, BinaryKind::mul)) return kNoValue;
    for (const auto& [v, constant] : orders(*node)) {
      if (is_number(constant, factor)) return v;
    }
    return kNoValue;
  }

  using Order = std::pair<ValueId, ValueId>;
  /// The operands of a node of two, in both orders.
  static std::array<Order, 2> orders(const Node& node) {
    return {Order{node.inputs[0], node.inputs[1]}, Order{node.inputs[1], node.inputs[0]}};
  }

 private:
  const Rewriter& rewriter_;
};

}  // namespace pipit::internal
