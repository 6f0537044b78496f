// Dequantize -> layer -> Quantize becomes one INT8 layer.
#include <fmt/format.h>

#include <algorithm>

#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"
#include "layers/ops/reduce.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/passes/moves_elements.h"
#include "layers/passes/passes.h"
#include "layers/passes/quantized_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

// Whether integers of `from` are those of `to`: one meaning, and none outside the range of `to`.
bool same_integers(const Quantization& from, const Quantization& to) {
  const QuantizedRange a = quantized_range(from);
  const QuantizedRange b = quantized_range(to);
  return from.scale == to.scale && from.zero_point == to.zero_point && from.dtype == to.dtype &&
         a.low >= b.low;
}

class QuantizedFuser {
 public:
  explicit QuantizedFuser(const Graph& graph)
      : graph_(graph),
        rewriter_(graph),
        done_(graph.nodes().size(), false),
        integers_(graph.values().size()),
        real_(graph.values().size(), kNoValue) {}

  Rewritten run() {
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (!done_[n]) visit(graph_.nodes()[n]);
    }
    for (const ValueId id : graph_.outputs()) {
      if (known(id)) rewriter_.forward(id, real(id));
    }
    return {rewriter_.finish(), changes_, std::move(notes_)};
  }

 private:
  // A floating-point value that is exactly these integers, dequantized.
  struct Integers {
    ValueId id = kNoValue;  // of the new graph
    Quantization q;
  };

  // --- values ---

  bool known(ValueId id) const {
    return integers_[index(id)].id != kNoValue || constant_behind(id).has_value();
  }

  std::optional<QuantizedConstant> constant_behind(ValueId id) const {
    const int producer = id == kNoValue ? -1 : rewriter_.producer(id);
    if (producer < 0) return std::nullopt;
    return quantized_constant(graph_, graph_.nodes()[static_cast<std::size_t>(producer)]);
  }

  const Integers* integers(ValueId id) const {
    return id != kNoValue && integers_[index(id)].id != kNoValue ? &integers_[index(id)] : nullptr;
  }

  // The value in floating point where it is a real number, made where only its integers exist so far.
  ValueId real(ValueId id) {
    if (id == kNoValue || !known(id)) return rewriter_.map(id);
    ValueId& made = real_[index(id)];
    if (made != kNoValue) return made;
    const std::string& name = graph_.value(id).name;
    if (const Integers* from = integers(id)) {
      const Node& producer = graph_.nodes()[static_cast<std::size_t>(rewriter_.producer(id))];
      const bool is_conversion = layer_if<Dequantize>(producer) != nullptr;
      made = rewriter_.builder().add1(is_conversion ? producer.name : name + ".dequantize",
                                      std::make_shared<Dequantize>(from->q), {from->id}, name);
    } else {
      made = rewriter_.constant(name, dequantize(*constant_behind(id)));
    }
    return made;
  }

  // The value's integers as `q` has them.
  ValueId requantized(ValueId id, const Quantization& q) {
    const Integers* from = integers(id);
    if (from != nullptr && same_integers(from->q, q)) return from->id;
    return rewriter_.builder().add1(graph_.value(id).name + ".requantize", std::make_shared<Quantize>(q),
                                    {real(id)});
  }

  // The Quantize that alone reads the value; null where something else does too.
  const Node* only_quantize(ValueId id) const {
    const int consumer = rewriter_.only_consumer(id);
    if (consumer < 0) return nullptr;
    const Node& node = graph_.nodes()[static_cast<std::size_t>(consumer)];
    return layer_if<Quantize>(node) != nullptr ? &node : nullptr;
  }

  // --- what is made ---

  // How the result of `node` is stored: as the Quantize after it says, else in f32.
  Quantization result_of(const Node& node) const {
    const Node* quantize = only_quantize(node.outputs[0]);
    return quantize != nullptr ? layer_if<Quantize>(*quantize)->y() : Quantization{};
  }
  // The name of the value that result_of() describes.
  const std::string& result_name(const Node& node) const {
    const Node* quantize = only_quantize(node.outputs[0]);
    return graph_.value(quantize != nullptr ? quantize->outputs[0] : node.outputs[0]).name;
  }
  // `made` replaces the node's output, or the result of the Quantize after it.
  void replace(const Node& node, ValueId made) {
    const Node* quantize = only_quantize(node.outputs[0]);
    rewriter_.forward(quantize != nullptr ? quantize->outputs[0] : node.outputs[0], made);
    if (quantize != nullptr) done_[static_cast<std::size_t>(quantize - graph_.nodes().data())] = true;
    ++changes_;
  }

  void visit(const Node& node) {
    if (visit_conversion(node)) return;
    const bool floats = node.outputs.size() == 1 && graph_.value(node.outputs[0]).desc.dtype == DType::f32;
    if (floats && (try_weighted(node) || try_add(node) || try_average(node) || try_concat(node))) return;
    if (try_moving(node)) return;
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(real(id));
    rewriter_.emit(node.name, node.layer, std::move(inputs), node.outputs);
  }

  bool visit_conversion(const Node& node) {
    if (constant_behind(node.outputs[0])) return true;
    if (const auto* layer = layer_if<Dequantize>(node)) {
      integers_[index(node.outputs[0])] = {rewriter_.map(node.inputs[0]), layer->x()};
      return true;
    }
    const auto* layer = layer_if<Quantize>(node);
    const Integers* from = layer != nullptr ? integers(node.inputs[0]) : nullptr;
    if (from == nullptr || !same_integers(from->q, layer->y())) return false;
    rewriter_.forward(node.outputs[0], from->id);
    ++changes_;
    return true;
  }

  // Convolutions and matrix products.
  bool try_weighted(const Node& node) {
    const auto* conv = layer_if<Conv>(node);
    const auto* gemm = layer_if<Gemm>(node);
    if (conv == nullptr && gemm == nullptr && layer_if<MatMul>(node) == nullptr) return false;
    const Integers* x = integers(node.inputs[0]);
    const std::optional<QuantizedConstant> weights = constant_behind(node.inputs[1]);
    if (x == nullptr || !weights) return false;
    const Shape& x_shape = graph_.value(node.inputs[0]).desc.shape;
    QConvConstants constants;
    std::optional<std::string> reason;
    if (conv == nullptr && (x_shape.rank() < 2 || (gemm != nullptr && gemm->attributes().transpose_a))) {
      reason = "its input is transposed or a vector";
    } else {
      const BiasSource bias = bias_of(node, reason);
      if (!reason) reason = make_qconv_constants(node, *weights, bias, x->q, constants);
      if (!reason) reason = scale_problem(node, *x, constants);
    }
    if (stays_float(node, reason)) return false;
    emit_weighted(node, *x, std::move(constants));
    return true;
  }

  // A factor that is no normal number would be taken for zero, or make everything saturate.
  std::optional<std::string> scale_problem(const Node& node, const Integers& x,
                                           const QConvConstants& constants) const {
    const Quantization y = result_of(node);
    for (const float scale : constants.scales) {
      if (!exact_multiplier(x.q.scale, scale, y))
        return fmt::format("{:.3g} * {:.3g} / {:.3g}, of its scales, leaves the normal numbers of 32 bits",
                           x.q.scale, scale, y.quantized() ? y.scale : 1.0F);
    }
    const bool adds = layer_if<Conv>(node) != nullptr && node.inputs.size() > 3;
    const Integers* residual = adds ? integers(node.inputs[3]) : nullptr;
    return residual == nullptr ? std::nullopt : ratio_problem(residual->q, y, 1);
  }
  static std::optional<std::string> ratio_problem(const Quantization& x, const Quantization& y,
                                                  float divisor) {
    const float y_scale = y.quantized() ? y.scale : 1.0F;
    if (exact_ratio(x.scale, y_scale * divisor)) return std::nullopt;
    return fmt::format("{:.3g} / {:.3g}, of its scales, leaves the normal numbers of 32 bits", x.scale,
                       y_scale * divisor);
  }
  // Notes the problem, if there is one.
  bool stays_float(const Node& node, const std::optional<std::string>& reason) {
    if (reason) notes_.push_back(fmt::format("'{}' computes in floating point: {}", node.name, *reason));
    return reason.has_value();
  }

  BiasSource bias_of(const Node& node, std::optional<std::string>& reason) const {
    BiasSource bias;
    const ValueId id = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
    if (id == kNoValue) return bias;
    bias.quantized = constant_behind(id);
    if (!bias.quantized) bias.real = graph_.value(id).constant;
    if (!bias.quantized && (!bias.real || bias.real->desc().dtype != DType::f32))
      reason = "its bias is no constant";
    if (const auto* gemm = layer_if<Gemm>(node)) bias.factor = gemm->attributes().beta;
    return bias;
  }

  void emit_weighted(const Node& node, const Integers& x, QConvConstants constants) {
    const auto* conv = layer_if<Conv>(node);
    const ValueId residual = conv != nullptr && node.inputs.size() > 3 ? node.inputs[3] : kNoValue;
    const Integers* residual_integers = integers(residual);
    const bool adds_after = residual != kNoValue && residual_integers == nullptr;
    QConvAttributes attributes;
    attributes.x = x.q;
    attributes.weight_scales = std::move(constants.scales);
    if (conv != nullptr) attributes.conv = conv->attributes();
    if (const auto* gemm = layer_if<Gemm>(node)) attributes.conv.activation = gemm->attributes().activation;
    const Clamp activation = attributes.conv.activation;
    if (adds_after) {
      attributes.conv.activation = Clamp{};
    } else {
      attributes.y = result_of(node);
    }
    std::vector<ValueId> inputs{conv != nullptr ? x.id : rows(node, x.id, constants.weights.shape()[1]),
                                rewriter_.constant(node.name + ".weights", std::move(constants.weights)),
                                rewriter_.constant(node.name + ".bias", std::move(constants.bias))};
    if (residual_integers != nullptr) {
      attributes.residual = residual_integers->q;
      inputs.push_back(residual_integers->id);
    }
    const auto layer = std::make_shared<QConv>(std::move(attributes));
    if (adds_after) {
      const ValueId sum = rewriter_.builder().add1(node.name, layer, std::move(inputs));
      const auto add = std::make_shared<Binary>(BinaryAttributes{BinaryKind::add, activation});
      rewriter_.emit(node.name + ".residual", add, {sum, real(residual)}, node.outputs);
      ++changes_;
      return;
    }
    const std::string& name = result_name(node);
    const ValueId y = rewriter_.builder().add1(node.name, layer, std::move(inputs),
                                               conv != nullptr ? name : node.name + ".columns");
    replace(node, conv != nullptr ? y : reshape(name, y, graph_.value(node.outputs[0]).desc.shape));
  }

  // A matrix product is a 1x1 convolution of its rows.
  ValueId rows(const Node& node, ValueId x, std::int64_t depth) {
    const std::int64_t elements = rewriter_.builder().value(x).desc.elements();
    return reshape(node.name + ".rows", x, Shape{elements / depth, depth, 1, 1});
  }
  ValueId reshape(const std::string& name, ValueId x, const Shape& shape) {
    return rewriter_.builder().add1(name + ".reshape", std::make_shared<Reshape>(ReshapeAttributes{shape}),
                                    {x}, name);
  }

  bool try_add(const Node& node) {
    const auto* add = layer_if<Binary>(node);
    if (add == nullptr || add->attributes().kind != BinaryKind::add) return false;
    const Integers* a = integers(node.inputs[0]);
    const Integers* b = integers(node.inputs[1]);
    const Quantization y = result_of(node);
    const bool same = graph_.value(node.inputs[0]).desc.shape == graph_.value(node.inputs[1]).desc.shape;
    if (a == nullptr || b == nullptr || !y.quantized() || !same) return false;
    if (stays_float(node, ratio_problem(a->q, y, 1)) || stays_float(node, ratio_problem(b->q, y, 1)))
      return false;
    const auto layer = std::make_shared<QAdd>(QAddAttributes{a->q, b->q, y, add->attributes().activation});
    replace(node, rewriter_.builder().add1(node.name, layer, {a->id, b->id}, result_name(node)));
    return true;
  }

  // Average pools, and the mean over all spatial dimensions.
  bool try_average(const Node& node) {
    const Integers* x = node.inputs.empty() ? nullptr : integers(node.inputs[0]);
    if (x == nullptr) return false;
    PoolAttributes attributes{.kind = PoolKind::average, .global = true};
    if (const auto* pool = layer_if<Pool>(node)) {
      if (pool->attributes().kind != PoolKind::average) return false;
      attributes = pool->attributes();
    } else if (const auto* mean = layer_if<Reduce>(node);
               mean == nullptr || !is_spatial_mean(*mean, graph_.value(node.inputs[0]).desc.shape)) {
      return false;
    }
    const auto most = static_cast<float>(graph_.value(node.inputs[0]).desc.elements());
    if (stays_float(node, ratio_problem(x->q, result_of(node), 1)) ||
        stays_float(node, ratio_problem(x->q, result_of(node), most)))
      return false;
    const auto layer =
        std::make_shared<QAveragePool>(QAveragePoolAttributes{attributes, x->q, result_of(node)});
    const Shape& shape = graph_.value(node.outputs[0]).desc.shape;
    const bool drops = shape.rank() < graph_.value(node.inputs[0]).desc.shape.rank();
    const std::string& name = result_name(node);
    const ValueId y = rewriter_.builder().add1(node.name, layer, {x->id}, drops ? node.name + ".kept" : name);
    replace(node, drops ? reshape(name, y, shape) : y);
    return true;
  }

  bool try_concat(const Node& node) {
    if (layer_if<Concat>(node) == nullptr) return false;
    for (const ValueId id : node.inputs) {
      if (integers(id) == nullptr) return false;
    }
    Quantization y = result_of(node);
    const bool quantized = y.quantized();
    if (!quantized) {
      y = integers(node.inputs[0])->q;
      for (const ValueId id : node.inputs) {
        if (!(integers(id)->q == y)) return false;
      }
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(requantized(id, y));
    const ValueId made =
        rewriter_.builder().add1(node.name, node.layer, std::move(inputs), result_name(node));
    if (quantized) return replace(node, made), true;
    integers_[index(node.outputs[0])] = {made, y};
    ++changes_;
    return true;
  }

  // Layers that hand on integers as they are.
  bool try_moving(const Node& node) {
    if (!moves_elements(node)) return false;
    const auto* pad = layer_if<Pad>(node);
    const Integers* from = integers(node.inputs[0]);
    if (from == nullptr) return false;
    const Integers x = *from;
    LayerPtr layer = node.layer;
    if (pad != nullptr && pad->attributes().mode == PadMode::constant) {
      if (pad->attributes().value != 0) return false;
      PadAttributes attributes = pad->attributes();
      attributes.value = x.q.zero_point;
      layer = std::make_shared<Pad>(std::move(attributes));
    }
    std::vector<std::string> names;
    for (const ValueId id : node.outputs) names.push_back(graph_.value(id).name + ".integers");
    std::vector<ValueId> inputs{x.id};
    for (std::size_t i = 1; i < node.inputs.size(); ++i) inputs.push_back(rewriter_.map(node.inputs[i]));
    const std::vector<ValueId> made = rewriter_.builder().add(node.name, layer, std::move(inputs), names);
    for (std::size_t o = 0; o < node.outputs.size(); ++o) integers_[index(node.outputs[o])] = {made[o], x.q};
    ++changes_;
    return true;
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::vector<bool> done_;          // nodes that are part of a layer made already
  std::vector<Integers> integers_;  // per value of the old graph
  std::vector<ValueId> real_;       // made by real()
  int changes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace

bool is_quantized(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const Node& node) {
    return node.layer->traits().arithmetic != Arithmetic::floating;
  });
}

Rewritten fuse_quantized(const Graph& graph) {
  return QuantizedFuser(graph).run();
}

}  // namespace pipit::internal
