// Group normalization as exporters write it: InstanceNorm of [N, groups, the rest] between two Reshapes.
#include "layers/ops/normalization.h"
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
    std::vector<const Node*> norm_of(nodes.size(), nullptr);  // per Reshape behind one
    std::vector<bool> gone(nodes.size(), false);
    int changes = 0;
    const auto at = [&](const Node* node) { return static_cast<std::size_t>(node - nodes.data()); };
    for (const Node& node : nodes) {
      if (!is_group_norm(node)) continue;
      const std::size_t apart = at(patterns_.producer(node.inputs[0]));
      if (norm_of[apart] != nullptr) continue;  // the Reshape behind another one
      norm_of[at(patterns_.only_consumer(node.outputs[0]))] = &node;
      gone[at(&node)] = gone[apart] = true;
      ++changes;
    }
    for (const Node& node : nodes) {
      if (const Node* norm = norm_of[at(&node)]) {
        emit(*norm, node);
      } else if (!gone[at(&node)]) {
        rewriter_.copy(node);
      }
    }
    return {rewriter_.finish(), changes};
  }

 private:
  const Value& value(ValueId id) const { return rewriter_.source().value(id); }

  bool is_group_norm(const Node& node) const {
    const auto* norm = layer_if<InstanceNorm>(node);
    if (norm == nullptr || norm->attributes().groups != 0) return false;
    const Node* apart = patterns_.producer(node.inputs[0]);
    const Node* together = patterns_.only_consumer(node.outputs[0]);
    if (apart == nullptr || together == nullptr || layer_if<Reshape>(*apart) == nullptr ||
        layer_if<Reshape>(*together) == nullptr || patterns_.only_consumer(node.inputs[0]) != &node ||
        parameter(node, 1) == nullptr || parameter(node, 2) == nullptr)
      return false;
    const Shape& x = value(apart->inputs[0]).desc.shape;
    const Shape& groups = value(node.inputs[0]).desc.shape;
    return x.rank() >= 3 && x == value(together->outputs[0]).desc.shape && x.elements() > 0 &&
           groups[0] == x[0] && x[1] % groups[1] == 0;
  }
  const Tensor* parameter(const Node& node, std::size_t input) const {
    const Tensor* tensor = value(node.inputs[input]).constant.get();
    return tensor != nullptr && tensor->desc().dtype == DType::f32 ? tensor : nullptr;
  }

  void emit(const Node& norm, const Node& together) {
    const Node& apart = *patterns_.producer(norm.inputs[0]);
    const std::int64_t channels = value(together.outputs[0]).desc.shape[1];
    const std::int64_t groups = value(norm.inputs[0]).desc.shape[1];
    const auto of_channels = [&](std::size_t input, const char* part) {
      const std::span<const float> from = parameter(norm, input)->values<float>();
      Tensor tensor{TensorDesc{Shape{channels}}};
      const std::span<float> to = tensor.values<float>();
      for (std::size_t c = 0; c < to.size(); ++c) to[c] = from[c * from.size() / to.size()];
      return rewriter_.constant(norm.name + part, std::move(tensor));
    };
    const float epsilon = layer_if<InstanceNorm>(norm)->attributes().epsilon;
    rewriter_.emit(norm.name, std::make_shared<InstanceNorm>(InstanceNormAttributes{epsilon, groups}),
                   {rewriter_.map(apart.inputs[0]), of_channels(1, ".scale"), of_channels(2, ".bias")},
                   together.outputs);
  }

  Rewriter rewriter_;
  Patterns patterns_;
};

}  // namespace

Rewritten fuse_group_norm(const Graph& graph) {
  return GroupNormPass(graph).run();
}

}  // namespace pipit
