#include "layers/passes/stored_weights.h"

#include <algorithm>
#include <map>

#include "layers/evaluate.h"
#include "layers/ops/binary.h"
#include "layers/ops/conv.h"
#include "layers/ops/dequantize_blocks.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/ops/weight_only.h"
#include "layers/passes/real_weights.h"
#include "layers/passes/rewriter.h"

namespace pipit::internal {

namespace {

bool given(const Node& node, std::size_t input) {
  return input < node.inputs.size() && node.inputs[input] != kNoValue;
}

// A constant bias of one f32 per output, or none.
bool has_plain_bias(const Graph& graph, const Node& node, std::int64_t outputs) {
  if (!given(node, 2)) return true;
  const Value& bias = graph.value(node.inputs[2]);
  const Shape& shape = bias.desc.shape;
  return bias.constant != nullptr && bias.desc.dtype == DType::f32 && shape.elements() == outputs &&
         shape.rank() > 0 && shape[shape.rank() - 1] == outputs;
}

// Which dimension of the weights is that of the inputs, where the layer can store them; -1 where it cannot.
int inputs_axis(const Graph& graph, const Node& node, const Shape& weights) {
  if (const auto* conv = layer_if<Conv>(node)) {
    const ConvAttributes& a = conv->attributes();
    return a.window.taps() == 1 && a.groups == 1 && has_plain_bias(graph, node, weights[0]) ? 1 : -1;
  }
  if (weights.rank() != 2) return -1;
  if (const auto* gemm = layer_if<Gemm>(node)) {
    const GemmAttributes& a = gemm->attributes();
    const int axis = a.transpose_b ? 1 : 0;
    const bool plain = !a.transpose_a && a.alpha == 1 && (a.beta == 1 || !given(node, 2));
    return plain && has_plain_bias(graph, node, weights[1 - axis]) ? axis : -1;
  }
  return layer_if<MatMul>(node) != nullptr ? 0 : -1;
}

const Node* blocks_of(const Rewriter& rewriter, ValueId id) {
  const int producer = id == kNoValue ? -1 : rewriter.producer(id);
  if (producer < 0) return nullptr;
  const Node& node = rewriter.source().nodes()[static_cast<std::size_t>(producer)];
  const bool constant = layer_if<DequantizeBlocks>(node) != nullptr &&
                        rewriter.source().value(node.inputs[0]).constant != nullptr;
  return constant ? &node : nullptr;
}

std::shared_ptr<const Tensor> folded(const Graph& graph, const Node& blocks) {
  const std::shared_ptr<const Tensor>& integers = graph.value(blocks.inputs[0]).constant;
  return std::make_shared<const Tensor>(std::move(evaluate(*blocks.layer, {&integers, 1}).at(0)));
}

class BlockFolder {
 public:
  explicit BlockFolder(const Graph& graph) : graph_(graph), rewriter_(graph) {
    for (const Value& value : graph.values()) {
      if (value.constant) movable_ += kMovesPerElement * value.desc.elements();
    }
  }

  Rewritten run() {
    for (const Node& node : graph_.nodes()) visit(node);
    for (const ValueId id : graph_.outputs()) {
      if (const auto made = real(id)) rewriter_.forward(id, constant(id, made));
    }
    return {rewriter_.finish(), changes_};
  }

 private:
  // As in fold_dequantized(): files with chains of Transpose exist to keep readers busy.
  static constexpr std::int64_t kMovesPerElement = 4;

  // The value in f32, where it is made of blocks alone; computed once.
  std::shared_ptr<const Tensor> real(ValueId id) {
    if (id == kNoValue) return nullptr;
    const auto found = real_.find(id);
    if (found != real_.end()) return found->second;
    const Node* blocks = blocks_of(rewriter_, id);
    return blocks != nullptr ? real_[id] = folded(graph_, *blocks) : nullptr;
  }

  ValueId constant(ValueId id, const std::shared_ptr<const Tensor>& tensor) {
    const auto [at, is_new] = constants_.try_emplace(id, kNoValue);
    if (is_new) {
      at->second = rewriter_.builder().add_constant(graph_.value(id).name, tensor);
      ++changes_;
    }
    return at->second;
  }

  void visit(const Node& node) {
    if (layer_if<DequantizeBlocks>(node) != nullptr && blocks_of(rewriter_, node.outputs[0]) != nullptr)
      return;
    const bool moves = layer_if<Transpose>(node) != nullptr || layer_if<Reshape>(node) != nullptr;
    if (moves && graph_.value(node.inputs[0]).desc.elements() <= movable_) {
      if (const auto from = real(node.inputs[0])) {
        movable_ -= from->desc().elements();
        real_[node.outputs[0]] =
            std::make_shared<const Tensor>(std::move(evaluate(*node.layer, {&from, 1}).at(0)));
        return;
      }
    }
    std::vector<ValueId> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      const Node* blocks = blocks_of(rewriter_, id);
      if (i == 1 && blocks != nullptr && can_store(graph_, node, *blocks)) {
        inputs.push_back(kept(*blocks));
      } else if (const auto made = real(id)) {
        inputs.push_back(constant(id, made));
      } else {
        inputs.push_back(rewriter_.map(id));
      }
    }
    rewriter_.emit(node.name, node.layer, std::move(inputs), node.outputs);
  }

  ValueId kept(const Node& blocks) {
    const auto [at, is_new] = kept_.try_emplace(blocks.outputs[0], kNoValue);
    if (is_new) {
      at->second = rewriter_.builder().add1(blocks.name, blocks.layer, {rewriter_.map(blocks.inputs[0])},
                                            graph_.value(blocks.outputs[0]).name);
    }
    return at->second;
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::map<ValueId, std::shared_ptr<const Tensor>> real_;
  std::map<ValueId, ValueId> constants_, kept_;
  std::int64_t movable_ = 0;
  int changes_ = 0;
};

// Integers and scales as WConv and WLinear hold them.
struct Stored {
  WeightFormat format;
  Tensor integers;
  Tensor scales;
};

Stored stored_from(const Graph& graph, const Node& node, const Node& blocks) {
  const Tensor& from = *graph.value(blocks.inputs[0]).constant;
  const BlockQuantization& q = layer_as<DequantizeBlocks>(*blocks.layer).x();
  const bool inputs_last = inputs_axis(graph, node, from.shape()) == 1;
  const std::int64_t outputs = from.shape()[inputs_last ? 0 : 1], depth = from.shape()[inputs_last ? 1 : 0];
  const std::span<const std::int8_t> values = from.values<std::int8_t>();
  const auto [low, high] = std::ranges::minmax(values);
  Stored stored;
  stored.format = {low >= -8 && high <= 7 ? 4 : 8, q.block >= depth ? 0 : q.block};
  const std::int64_t row_bytes = stored.format.row_bytes(depth), groups = stored.format.groups(depth);
  stored.integers =
      Tensor(TensorDesc{Shape{outputs, row_bytes}, stored.format.bits == 4 ? DType::u8 : DType::i8});
  stored.scales = Tensor(TensorDesc{Shape{outputs, groups}});
  std::byte* row = stored.integers.view().data;
  std::fill_n(row, outputs * row_bytes, std::byte{0});
  for (std::int64_t o = 0; o < outputs; ++o, row += row_bytes) {
    for (std::int64_t k = 0; k < depth; ++k)
      stored.format.set(row, k,
                        values[static_cast<std::size_t>(inputs_last ? o * depth + k : k * outputs + o)]);
    for (std::int64_t g = 0; g < groups; ++g)
      stored.scales.values<float>()[static_cast<std::size_t>(o * groups + g)] =
          q.scales[static_cast<std::size_t>(inputs_last ? o * groups + g : g * outputs + o)];
  }
  return stored;
}

void emit_stored(Rewriter& rewriter, const Node& node, const Node& blocks) {
  const Graph& graph = rewriter.source();
  Stored stored = stored_from(graph, node, blocks);
  const std::int64_t outputs = stored.scales.shape()[0];
  const std::string& name = graph.value(node.inputs[1]).name;
  std::vector<ValueId> inputs{rewriter.map(node.inputs[0]),
                              rewriter.constant(name, std::move(stored.integers)),
                              rewriter.constant(name + ".scales", std::move(stored.scales)), kNoValue};
  if (given(node, 2) && layer_if<MatMul>(node) == nullptr) {
    const Value& bias = graph.value(node.inputs[2]);
    inputs[3] =
        rewriter.constant(bias.name, Tensor::from<float>(Shape{outputs}, bias.constant->values<float>()));
  }
  LayerPtr layer;
  if (const auto* conv = layer_if<Conv>(node)) {
    layer = std::make_shared<WConv>(WConvAttributes{stored.format, conv->attributes()});
    if (given(node, 3)) inputs.push_back(rewriter.map(node.inputs[3]));
  } else {
    const auto* gemm = layer_if<Gemm>(node);
    layer = std::make_shared<WLinear>(
        WLinearAttributes{stored.format, gemm != nullptr ? gemm->attributes().activation : Clamp{}});
  }
  rewriter.emit(node.name, layer, std::move(inputs), node.outputs);
}

// The weights of a WConv or WLinear as [outputs, depth], or turned.
Tensor real_matrix(const Graph& graph, const Node& node, const WeightFormat& format, std::int64_t depth,
                   const Shape& shape, bool turned) {
  const Tensor& integers = *graph.value(node.inputs[1]).constant;
  const std::span<const float> scales = graph.value(node.inputs[2]).constant->values<float>();
  const std::int64_t outputs = integers.shape()[0], group = format.group(depth),
                     groups = format.groups(depth);
  Tensor real(TensorDesc{shape});
  const std::byte* row = integers.view().data;
  for (std::int64_t o = 0; o < outputs; ++o, row += format.row_bytes(depth)) {
    for (std::int64_t k = 0; k < depth; ++k)
      real.values<float>()[static_cast<std::size_t>(turned ? k * outputs + o : o * depth + k)] =
          static_cast<float>(format.at(row, k)) * scales[static_cast<std::size_t>(o * groups + k / group)];
  }
  return real;
}

void write_out_conv(Rewriter& rewriter, const Node& node, const WConvAttributes& attributes) {
  const Graph& graph = rewriter.source();
  const std::int64_t depth = graph.value(node.inputs[0]).desc.shape[1];
  std::vector<std::int64_t> dims{graph.value(node.inputs[1]).desc.shape[0], depth};
  dims.insert(dims.end(), static_cast<std::size_t>(attributes.conv.window.rank), 1);
  Tensor weights = real_matrix(graph, node, attributes.format, depth, Shape(dims), false);
  std::vector<ValueId> inputs{rewriter.map(node.inputs[0]),
                              rewriter.constant(graph.value(node.inputs[1]).name, std::move(weights))};
  for (std::size_t i = 3; i < node.inputs.size(); ++i) inputs.push_back(rewriter.map(node.inputs[i]));
  rewriter.emit(node.name, std::make_shared<Conv>(attributes.conv), std::move(inputs), node.outputs);
}

// A Gemm where x is a matrix and nothing follows it that only a Gemm has; else a MatMul, a sum and a clamp.
void write_out_linear(Rewriter& rewriter, const Node& node, const WLinearAttributes& attributes) {
  const Graph& graph = rewriter.source();
  const Shape& x = graph.value(node.inputs[0]).desc.shape;
  const std::int64_t depth = x[x.rank() - 1], outputs = graph.value(node.inputs[1]).desc.shape[0];
  const std::string& name = graph.value(node.inputs[1]).name;
  const bool matrix = x.rank() == 2;
  const Shape shape = matrix ? Shape{outputs, depth} : Shape{depth, outputs};
  const ValueId weights =
      rewriter.constant(name, real_matrix(graph, node, attributes.format, depth, shape, !matrix));
  std::vector<ValueId> inputs{rewriter.map(node.inputs[0]), weights};
  const bool has_bias = given(node, 3);
  if (matrix) {
    if (has_bias) inputs.push_back(rewriter.map(node.inputs[3]));
    const GemmAttributes gemm{.transpose_b = true, .activation = attributes.activation};
    rewriter.emit(node.name, std::make_shared<Gemm>(gemm), std::move(inputs), node.outputs);
    return;
  }
  if (!has_bias && attributes.activation.is_identity()) {
    rewriter.emit(node.name, std::make_shared<MatMul>(), std::move(inputs), node.outputs);
    return;
  }
  const std::string part = node.name + "/product";
  const ValueId product = rewriter.builder().add1(part, std::make_shared<MatMul>(), std::move(inputs), part);
  const ValueId bias =
      has_bias ? rewriter.map(node.inputs[3]) : rewriter.constant(node.name + "/zero", Tensor::scalar(0.0F));
  const BinaryAttributes sum{.kind = BinaryKind::add, .activation = attributes.activation};
  rewriter.emit(node.name, std::make_shared<Binary>(sum), {product, bias}, node.outputs);
}

}  // namespace

bool can_store(const Graph& graph, const Node& node, const Node& weights) {
  const BlockQuantization& q = layer_as<DequantizeBlocks>(*weights.layer).x();
  const Shape& shape = graph.value(weights.inputs[0]).desc.shape;
  const Value& x = graph.value(node.inputs[0]);
  if (shape.rank() < 2 || shape.elements() == 0 || x.is_constant() || x.desc.dtype != DType::f32)
    return false;
  if (x.desc.shape.rank() == 0) return false;
  const int axis = inputs_axis(graph, node, shape);
  return axis >= 0 && q.axis == axis && (q.block % 8 == 0 || q.block >= shape[axis]);
}

bool is_quantized_beyond_weights(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const Node& node) {
    return node.layer->traits().arithmetic != Arithmetic::floating &&
           layer_if<DequantizeBlocks>(node) == nullptr;
  });
}

Rewritten fold_blocks(const Graph& graph) {
  return BlockFolder(graph).run();
}

Rewritten store_blocks(const Graph& graph) {
  Rewriter rewriter(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const Node* own = blocks_of(rewriter, node.outputs[0]);
    if (own == &node) continue;
    const Node* blocks = node.inputs.size() > 1 ? blocks_of(rewriter, node.inputs[1]) : nullptr;
    if (blocks != nullptr && can_store(graph, node, *blocks)) {
      emit_stored(rewriter, node, *blocks);
      ++changes;
      continue;
    }
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) {
      const Node* read = blocks_of(rewriter, id);
      inputs.push_back(read == nullptr
                           ? rewriter.map(id)
                           : rewriter.builder().add_constant(graph.value(id).name, folded(graph, *read)));
    }
    rewriter.emit(node.name, node.layer, std::move(inputs), node.outputs);
  }
  return {rewriter.finish(), changes};
}

bool gpu_decodes(const Graph& graph, const Node& node) {
  const auto* conv = layer_if<WConv>(node);
  const WeightFormat& format =
      conv != nullptr ? conv->attributes().format : layer_as<WLinear>(*node.layer).attributes().format;
  const Shape& x = graph.value(node.inputs[0]).desc.shape;
  const std::int64_t depth = conv != nullptr ? x[1] : x[x.rank() - 1];
  const std::int64_t group = format.group(depth);
  const bool decodes =
      format.groups(depth) == 1 || (format.bits == 4 && (group == 32 || group == 64 || group % 128 == 0));
  return decodes && !adds_constant(graph, node);
}

Rewritten write_out_stored(const Graph& graph, bool (*keeps)(const Graph&, const Node&)) {
  Rewriter rewriter(graph);
  int changes = 0;
  for (const Node& node : graph.nodes()) {
    const bool stored = layer_if<WConv>(node) != nullptr || layer_if<WLinear>(node) != nullptr;
    if (stored && keeps != nullptr && keeps(graph, node)) {
      rewriter.copy(node);
      continue;
    }
    if (const auto* conv = layer_if<WConv>(node)) {
      write_out_conv(rewriter, node, conv->attributes());
    } else if (const auto* linear = layer_if<WLinear>(node)) {
      write_out_linear(rewriter, node, linear->attributes());
    } else {
      rewriter.copy(node);
      continue;
    }
    ++changes;
  }
  return {rewriter.finish(), changes};
}

}  // namespace pipit::internal
