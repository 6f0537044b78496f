// What follows the sums of ConvInteger and MatMulInteger in models with scales that are found at run time.
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "layers/ops/cast.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/passes.h"
#include "layers/passes/patterns.h"

namespace pipit::internal {

namespace {

// A DynamicQConv whose sums are left as they are, and what is computed of them.
struct ScaledSums {
  const Node* conv = nullptr;
  const Node* last = nullptr;
  std::vector<const Node*> between;  // all nodes but the last
  bool reshaped = false;  // results are of another shape, with the outputs along the last dimension
  ValueId sum_bias = kNoValue;
  ValueId scale = kNoValue;
  std::vector<float> weight_scales{1.0F};
  std::vector<float> bias;
};

class DynamicScales {
 public:
  explicit DynamicScales(const Graph& graph) : graph_(graph), rewriter_(graph), patterns_(rewriter_) {}

  Rewritten run() {
    std::unordered_map<const Node*, ScaledSums> ends;
    std::set<const Node*> left_out;
    for (const Node& node : graph_.nodes()) {
      std::optional<ScaledSums> found = follow(node);
      if (!found) continue;
      left_out.insert(found->between.begin(), found->between.end());
      ends.emplace(found->last, std::move(*found));
    }
    for (const Node& node : graph_.nodes()) {
      if (const auto end = ends.find(&node); end != ends.end()) {
        emit(end->second);
      } else if (!left_out.contains(&node)) {
        rewriter_.copy(node);
      }
    }
    return {rewriter_.finish(), static_cast<int>(ends.size())};
  }

 private:
  const TensorDesc& desc(ValueId id) const { return graph_.value(id).desc; }
  std::int64_t outputs_of(const ScaledSums& s) const { return desc(s.conv->outputs[0]).shape[1]; }

  bool is_plain(const Node& node) const {
    const auto* layer = layer_if<DynamicQConv>(node);
    if (layer == nullptr || node.inputs.size() <= DynamicQConv::kZeroPoint) return false;
    const DynamicQConvAttributes& a = layer->attributes();
    const auto absent = [&](std::size_t i) { return i >= node.inputs.size() || node.inputs[i] == kNoValue; };
    return a.weight_scales == std::vector<float>{1.0F} && a.conv.activation.is_identity() && absent(2) &&
           absent(DynamicQConv::kResidual) && absent(DynamicQConv::kSumBias) &&
           patterns_.number(node.inputs[DynamicQConv::kScales]) == 1.0;
  }

  // The only reader of the last node's result becomes the last.
  void advance(ScaledSums& s, const Node* next) const {
    s.between.push_back(s.last);
    s.last = next;
  }
  const Node* next_of(const ScaledSums& s) const { return patterns_.only_consumer(s.last->outputs[0]); }
  bool take_cast(ScaledSums& s, DType to) const {
    const Node* next = next_of(s);
    const auto* cast = next == nullptr ? nullptr : layer_if<Cast>(*next);
    if (cast == nullptr || cast->attributes().to != to) return false;
    advance(s, next);
    return true;
  }
  void take_reshape(ScaledSums& s) const {
    const Node* next = next_of(s);
    if (next == nullptr || layer_if<Reshape>(*next) == nullptr) return;
    const Shape& from = desc(s.conv->outputs[0]).shape;
    const Shape& to = desc(next->outputs[0]).shape;
    if (from.elements() != from[0] * from[1] || to.rank() == 0 || to[to.rank() - 1] != from[1]) return;
    s.reshaped = true;
    advance(s, next);
  }

  // The other operand of the next node, if that is such a binary one.
  ValueId other_operand(const ScaledSums& s, BinaryKind kind) const {
    const Node* next = next_of(s);
    if (next == nullptr || !Patterns::is_binary(*next, kind)) return kNoValue;
    const ValueId x = s.last->outputs[0];
    const ValueId other = next->inputs[next->inputs[0] == x ? 1 : 0];
    const bool spreads = !(desc(next->outputs[0]).shape == desc(x).shape);
    return other == x || spreads ? kNoValue : other;
  }
  // Whether a value has one element for each output.
  bool is_per_output(const ScaledSums& s, ValueId id) const {
    const Shape& results = desc(s.last->outputs[0]).shape;
    const Shape& shape = desc(id).shape;
    const std::int64_t outputs = outputs_of(s);
    const int axis = (s.reshaped ? results.rank() - 1 : 1) - (results.rank() - shape.rank());
    if (shape.elements() != outputs) return false;
    return outputs == 1 || (axis >= 0 && axis < shape.rank() && shape[axis] == outputs);
  }
  // A list for each output, or of one.
  std::optional<std::vector<float>> constants_of(const ScaledSums& s, ValueId id) const {
    const auto& constant = graph_.value(id).constant;
    if (constant == nullptr || constant->desc().dtype != DType::f32) return std::nullopt;
    if (constant->desc().elements() != 1 && !is_per_output(s, id)) return std::nullopt;
    const auto values = constant->values<float>();
    return std::vector<float>(values.begin(), values.end());
  }

  static bool are_scales(const std::vector<float>& scales) {
    return std::all_of(scales.begin(), scales.end(), [](float f) { return f > 0 && std::isfinite(f); });
  }
  bool multiply(ScaledSums& s, const std::vector<float>& by) const {
    std::vector<float> scales = s.weight_scales;
    if (scales.size() < by.size()) scales.resize(by.size(), scales[0]);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] *= by[by.size() == 1 ? 0 : i];
    if (!are_scales(scales)) return false;
    s.weight_scales = std::move(scales);
    return true;
  }
  // A factor: a constant, one number, or the product of both.
  bool scale_by(ScaledSums& s, ValueId id, bool looks_into_products = true) const {
    if (const auto constants = constants_of(s, id)) return multiply(s, *constants);
    if (looks_into_products) {
      if (const Node* product = patterns_.binary(id, BinaryKind::mul)) {
        ScaledSums both = s;
        if (scale_by(both, product->inputs[0], false) && scale_by(both, product->inputs[1], false)) {
          s = both;
          return true;
        }
      }
    }
    if (desc(id).elements() != 1 || desc(id).shape.rank() > 1 || s.scale != kNoValue) return false;
    s.scale = id;
    return true;
  }

  std::optional<ScaledSums> follow(const Node& node) const {
    if (!is_plain(node)) return std::nullopt;
    ScaledSums s;
    s.conv = s.last = &node;
    if (!take_cast(s, DType::i32)) return std::nullopt;
    take_reshape(s);
    if (const ValueId bias = other_operand(s, BinaryKind::add); bias != kNoValue) {
      if (desc(bias).dtype != DType::i32 || !is_per_output(s, bias)) return std::nullopt;
      s.sum_bias = bias;
      advance(s, next_of(s));
    }
    if (!take_cast(s, DType::f32)) return std::nullopt;
    bool scaled = false;
    for (ValueId factor = other_operand(s, BinaryKind::mul); factor != kNoValue && scale_by(s, factor);
         factor = other_operand(s, BinaryKind::mul)) {
      advance(s, next_of(s));
      scaled = true;
    }
    if (!scaled) return std::nullopt;
    if (const ValueId bias = other_operand(s, BinaryKind::add); bias != kNoValue) {
      if (const auto values = constants_of(s, bias)) {
        s.bias = *values;
        s.bias.resize(static_cast<std::size_t>(outputs_of(s)), values->front());
        advance(s, next_of(s));
      }
    }
    return s;
  }

  void emit(const ScaledSums& s) {
    const Node& conv = *s.conv;
    const Shape per_output{outputs_of(s)};
    DynamicQConvAttributes attributes = layer_if<DynamicQConv>(conv)->attributes();
    attributes.weight_scales = s.weight_scales;
    const auto mapped = [&](std::size_t i) { return rewriter_.map(conv.inputs[i]); };
    const std::string& name = graph_.value(s.last->outputs[0]).name;
    ValueId bias = kNoValue;
    if (!s.bias.empty())
      bias = rewriter_.constant(conv.name + ".bias",
                                Tensor::from<float>(per_output, std::span<const float>(s.bias)));
    ValueId sum_bias = rewriter_.map(s.sum_bias);
    if (sum_bias != kNoValue && !(desc(s.sum_bias).shape == per_output))
      sum_bias = rewriter_.builder().add1(conv.name + "/sum_bias",
                                          std::make_shared<Reshape>(ReshapeAttributes{per_output}),
                                          {sum_bias}, name + ".sum_bias");
    std::vector<ValueId> inputs{mapped(0),
                                mapped(1),
                                bias,
                                kNoValue,
                                s.scale == kNoValue ? mapped(DynamicQConv::kScales) : rewriter_.map(s.scale),
                                mapped(DynamicQConv::kZeroPoint)};
    if (sum_bias != kNoValue) inputs.push_back(sum_bias);
    const auto layer = std::make_shared<DynamicQConv>(std::move(attributes));
    if (!s.reshaped) {
      rewriter_.emit(conv.name, layer, std::move(inputs), s.last->outputs);
      return;
    }
    const ValueId columns = rewriter_.builder().add1(conv.name, layer, std::move(inputs), name + ".columns");
    rewriter_.emit(conv.name + "/shape",
                   std::make_shared<Reshape>(ReshapeAttributes{desc(s.last->outputs[0]).shape}), {columns},
                   s.last->outputs);
  }

  const Graph& graph_;
  Rewriter rewriter_;
  Patterns patterns_;
};

}  // namespace

Rewritten fuse_dynamic_scales(const Graph& graph) {
  return DynamicScales(graph).run();
}

}  // namespace pipit::internal
