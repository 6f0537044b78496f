#include "quant/dynamic_int8.h"

#include <utility>
#include <vector>

#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"
#include "quant/int8_weights.h"

namespace pipit::internal {

namespace {

constexpr std::int64_t kMaxDepth = 60'000;
constexpr std::int64_t kMinGroup = 4;

bool is_taken(const Graph& graph, const Node& node, DType type) {
  if (!has_constant_weights(graph, node)) return false;
  const Shape& weights = graph.value(node.inputs[1]).desc.shape;
  if (const auto* conv = layer_if<Conv>(node)) {
    // GPU kernels, which read i8, need one group and two dimensions.
    if (type == DType::i8 &&
        (conv->attributes().groups != 1 || conv->attributes().window.rank != 2 || adds_constant(graph, node)))
      return false;
    return weights.elements() / weights[0] < kMaxDepth &&
           (conv->attributes().groups == 1 || weights[1] >= kMinGroup);
  }
  const auto* gemm = layer_if<Gemm>(node);
  return weights[gemm != nullptr && gemm->attributes().transpose_b ? 1 : 0] < kMaxDepth &&
         graph.value(node.inputs[0]).desc.shape.rank() >= 2;
}

class DynamicQuantizer {
 public:
  DynamicQuantizer(Graph graph, const DynamicQuantizeAttributes& scales)
      : graph_(std::move(graph)),
        rewriter_(graph_),
        quantize_(std::make_shared<DynamicQuantize>(scales)),
        quantized_(graph_.values().size(), {kNoValue, kNoValue}) {}

  Rewritten run() {
    int changes = 0;
    for (const Node& node : graph_.nodes()) {
      if (is_taken(graph_, node, quantize_->attributes().type)) {
        emit(node);
        ++changes;
      } else {
        rewriter_.copy(node);
      }
    }
    return {rewriter_.finish(), changes};
  }

 private:
  // Integers and scales of a value.
  std::pair<ValueId, ValueId> quantized(ValueId id) {
    auto& made = quantized_[static_cast<std::size_t>(id)];
    if (made.first == kNoValue) {
      const std::string name = graph_.value(id).name;
      const std::vector<ValueId> both = rewriter_.builder().add(
          name + ".quantize", quantize_, {rewriter_.map(id)}, {name + ".quantize", name + ".scales"});
      made = {both[0], both[1]};
    }
    return made;
  }

  QuantizedWeights weights_of(const Node& node, const RealWeights& real) {
    try {
      return quantize_weights(real.shape, real.values(), {}, 1.0F, true);
    } catch (const Error& e) {
      fail("node '{}': {}", node.name, e.what());
    }
  }

  ValueId reshape(const std::string& name, ValueId x, const Shape& shape) {
    return rewriter_.builder().add1(name, std::make_shared<Reshape>(ReshapeAttributes{shape}), {x}, name);
  }

  void emit(const Node& node) {
    const auto* conv = layer_if<Conv>(node);
    const RealWeights real = real_weights(graph_, node);
    QuantizedWeights weights = weights_of(node, real);
    if (rewriter_.uses(node.inputs[1]) == 1) graph_.release_constant(node.inputs[1]);
    DynamicQConvAttributes attributes;
    attributes.weight_scales = std::move(weights.scales);
    if (conv != nullptr) attributes.conv = conv->attributes();
    if (const auto* gemm = layer_if<Gemm>(node)) attributes.conv.activation = gemm->attributes().activation;
    auto [x, scales] = quantized(node.inputs[0]);
    if (conv == nullptr) {
      const std::int64_t depth = real.shape[1];
      const Shape& shape = rewriter_.builder().value(x).desc.shape;
      x = reshape(node.name + ".rows", x, Shape{shape.elements() / depth, depth, 1, 1});
    }
    ValueId bias = kNoValue;
    if (!real.bias.empty()) {
      bias = rewriter_.constant(node.name + ".bias",
                                Tensor::from<float>(Shape{real.shape[0]}, std::span<const float>(real.bias)));
    }
    const ValueId residual =
        conv != nullptr && node.inputs.size() > 3 ? rewriter_.map(node.inputs[3]) : kNoValue;
    std::vector<ValueId> inputs{x, rewriter_.constant(node.name + ".weights", std::move(weights.weights)),
                                bias, residual, scales};
    const auto layer = std::make_shared<DynamicQConv>(std::move(attributes));
    if (conv != nullptr) {
      rewriter_.emit(node.name, layer, std::move(inputs), node.outputs);
      return;
    }
    const ValueId columns =
        rewriter_.builder().add1(node.name, layer, std::move(inputs), node.name + ".columns");
    const Value& y = graph_.value(node.outputs[0]);
    rewriter_.forward(node.outputs[0], reshape(y.name, columns, y.desc.shape));
  }

  Graph graph_;
  Rewriter rewriter_;
  std::shared_ptr<const DynamicQuantize> quantize_;
  std::vector<std::pair<ValueId, ValueId>> quantized_;  // by the value's old id
};

}  // namespace

Rewritten quantize_dynamically(Graph graph, const DynamicQuantizeAttributes& scales) {
  return DynamicQuantizer(std::move(graph), scales).run();
}

}  // namespace pipit::internal
