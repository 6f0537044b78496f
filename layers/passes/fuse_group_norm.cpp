// Group normalization as exporters write it: InstanceNorm of [N, groups, the rest] between two Reshapes, in a quantized
// model those of integers, with a Dequantize and a Quantize between.
#include <optional>

#include "layers/ops/normalization.h"
#include "layers/ops/quantize.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/passes.h"
#include "layers/passes/patterns.h"

namespace pipit {

namespace {

class GroupNormPass {
 public:
  explicit GroupNormPass(const Graph& graph) : rewriter_(graph), patterns_(rewriter_) {}

  Rewritten run() {
    const std::vector<Node>& nodes = rewriter_.source().nodes();
    std::vector<std::optional<GroupNorm>> norm_of(nodes.size());  // per Reshape behind one
    std::vector<bool> gone(nodes.size(), false);
    int changes = 0;
    const auto at = [&](const Node* node) { return static_cast<std::size_t>(node - nodes.data()); };
    for (const Node& node : nodes) {
      const std::optional<GroupNorm> found = group_norm(node);
      if (!found || norm_of[at(found->apart)]) continue;  // the Reshape behind another one
      norm_of[at(found->together)] = found;
      for (const Node* part : {found->apart, found->dequantize, found->norm, found->quantize}) {
        if (part != nullptr) gone[at(part)] = true;
      }
      ++changes;
    }
    for (const Node& node : nodes) {
      if (const std::optional<GroupNorm>& found = norm_of[at(&node)]) {
        emit(*found);
      } else if (!gone[at(&node)]) {
        rewriter_.copy(node);
      }
    }
    return {rewriter_.finish(), changes};
  }

 private:
  const Value& value(ValueId id) const { return rewriter_.source().value(id); }

  // In the order of the graph; dequantize and quantize may be null.
  struct GroupNorm {
    const Node *apart, *dequantize, *norm, *quantize, *together;
  };

  std::optional<GroupNorm> group_norm(const Node& node) const {
    const auto* norm = layer_if<InstanceNorm>(node);
    if (norm == nullptr || norm->attributes().groups != 0 || parameter(node, 1) == nullptr ||
        parameter(node, 2) == nullptr)
      return std::nullopt;
    GroupNorm found{only_source(node), nullptr, &node, nullptr, patterns_.only_consumer(node.outputs[0])};
    if (found.apart != nullptr && layer_if<Dequantize>(*found.apart) != nullptr) {
      found.dequantize = found.apart;
      found.apart = only_source(*found.dequantize);
    }
    if (found.together != nullptr && layer_if<Quantize>(*found.together) != nullptr) {
      found.quantize = found.together;
      found.together = patterns_.only_consumer(found.quantize->outputs[0]);
    }
    if (found.apart == nullptr || found.together == nullptr || layer_if<Reshape>(*found.apart) == nullptr ||
        layer_if<Reshape>(*found.together) == nullptr)
      return std::nullopt;
    const Shape& x = value(found.apart->inputs[0]).desc.shape;
    const Shape& groups = value(node.inputs[0]).desc.shape;
    const bool fits = x.rank() >= 3 && x == value(found.together->outputs[0]).desc.shape &&
                      x.elements() > 0 && groups[0] == x[0] && x[1] % groups[1] == 0;
    return fits ? std::optional(found) : std::nullopt;
  }
  // What computes input 0, for this node alone.
  const Node* only_source(const Node& node) const {
    const Node* source = patterns_.producer(node.inputs[0]);
    return source != nullptr && patterns_.only_consumer(node.inputs[0]) == &node ? source : nullptr;
  }
  const Tensor* parameter(const Node& node, std::size_t input) const {
    const Tensor* tensor = value(node.inputs[input]).constant.get();
    return tensor != nullptr && tensor->desc().dtype == DType::f32 ? tensor : nullptr;
  }

  void emit(const GroupNorm& found) {
    const Node& norm = *found.norm;
    const std::int64_t channels = value(found.together->outputs[0]).desc.shape[1];
    const std::int64_t groups = value(norm.inputs[0]).desc.shape[1];
    const auto of_channels = [&](std::size_t input, const char* part) {
      const std::span<const float> from = parameter(norm, input)->values<float>();
      Tensor tensor{TensorDesc{Shape{channels}}};
      const std::span<float> to = tensor.values<float>();
      for (std::size_t c = 0; c < to.size(); ++c) to[c] = from[c * from.size() / to.size()];
      return rewriter_.constant(norm.name + part, std::move(tensor));
    };
    const float epsilon = layer_if<InstanceNorm>(norm)->attributes().epsilon;
    ValueId x = rewriter_.map(found.apart->inputs[0]);
    if (found.dequantize != nullptr) x = inner(*found.dequantize, found.dequantize->layer, {x});
    const std::vector<ValueId> inputs{x, of_channels(1, ".scale"), of_channels(2, ".bias")};
    const LayerPtr layer = std::make_shared<InstanceNorm>(InstanceNormAttributes{epsilon, groups});
    if (found.quantize == nullptr) {
      rewriter_.emit(norm.name, layer, inputs, found.together->outputs);
    } else {
      rewriter_.emit(found.quantize->name, found.quantize->layer, {inner(norm, layer, inputs)},
                     found.together->outputs);
    }
  }
  // A value that only the nodes of one group normalization know.
  ValueId inner(const Node& node, const LayerPtr& layer, const std::vector<ValueId>& inputs) {
    return rewriter_.builder().add1(node.name, layer, inputs);
  }

  Rewriter rewriter_;
  Patterns patterns_;
};

}  // namespace

Rewritten fuse_group_norm(const Graph& graph) {
  return GroupNormPass(graph).run();
}

}  // namespace pipit
