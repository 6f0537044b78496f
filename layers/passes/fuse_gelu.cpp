// Gelu written out, as exporters do: 0.5 * x * (1 + erf(x / sqrt(2))), or its approximation with tanh.
#include <numbers>

#include "layers/passes/passes.h"
#include "layers/passes/patterns.h"

namespace pipit {

namespace {

struct Found {
  ValueId x = kNoValue;
  UnaryKind kind = UnaryKind::gelu;
};

class GeluMatcher {
 public:
  explicit GeluMatcher(const Rewriter& rewriter) : patterns_(rewriter) {}

  // The x of which the node computes the Gelu, and which; kNoValue where it does not.
  Found find(const Node& node) const {
    if (!Patterns::is_binary(node, BinaryKind::mul)) return {};
    for (const auto& [a, b] : Patterns::orders(node)) {
      // (x * (1 + f)) * 0.5
      const Node* product = patterns_.is_number(b, 0.5) ? patterns_.binary(a, BinaryKind::mul) : nullptr;
      if (product != nullptr) {
        for (const auto& [x, sum] : Patterns::orders(*product)) {
          const Found found = one_plus(sum);
          if (found.x != kNoValue && found.x == x) return found;
        }
      }
      // (x * 0.5) * (1 + f), x * ((1 + f) * 0.5)
      Found found = one_plus(b);
      if (found.x != kNoValue && patterns_.scaled(a, 0.5) == found.x) return found;
      found = one_plus(patterns_.scaled(b, 0.5));
      if (found.x != kNoValue && found.x == a) return found;
    }
    return {};
  }

 private:
  // x where the value is 1 + erf(x / sqrt(2)) or 1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)).
  Found one_plus(ValueId id) const {
    const Node* sum = id == kNoValue ? nullptr : patterns_.binary(id, BinaryKind::add);
    if (sum == nullptr) return {};
    for (const auto& [v, one] : Patterns::orders(*sum)) {
      if (!patterns_.is_number(one, 1)) continue;
      const ValueId of_erf = patterns_.argument(v, UnaryKind::erf);
      if (of_erf != kNoValue) return {patterns_.scaled(of_erf, 1 / std::numbers::sqrt2), UnaryKind::gelu};
      const ValueId of_tanh = patterns_.argument(v, UnaryKind::tanh);
      if (of_tanh != kNoValue) return {tanh_argument(of_tanh), UnaryKind::gelu_tanh};
    }
    return {};
  }

  ValueId tanh_argument(ValueId id) const {
    const ValueId inner = patterns_.scaled(id, std::sqrt(2 / std::numbers::pi));
    const Node* sum = inner == kNoValue ? nullptr : patterns_.binary(inner, BinaryKind::add);
    if (sum == nullptr) return kNoValue;
    for (const auto& [x, term] : Patterns::orders(*sum)) {
      const ValueId cube = patterns_.scaled(term, 0.044715);
      if (cube != kNoValue && patterns_.base(cube, 3) == x) return x;
    }
    return kNoValue;
  }

  Patterns patterns_;
};

}  // namespace

Rewritten fuse_gelu(const Graph& graph) {
  Rewriter rewriter(graph);
  const GeluMatcher matcher(rewriter);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const auto [x, kind] = matcher.find(node);
    // The constants may have made the result's rank larger than that of x.
    if (x == kNoValue || !(graph.value(x).desc == graph.value(node.outputs[0]).desc)) {
      rewriter.copy(node);
      continue;
    }
    rewriter.emit(node.name, std::make_shared<Unary>(UnaryAttributes{kind, 0, 0}), {rewriter.map(x)},
                  node.outputs);
    ++changes;
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit
