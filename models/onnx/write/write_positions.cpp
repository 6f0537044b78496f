// Layers whose positions are data or an order, and recurrent ones, as ONNX nodes.
#include <algorithm>

#include "layers/ops/indexing.h"
#include "layers/ops/recurrent.h"
#include "layers/passes/rewriter.h"
#include "models/onnx/write/graph_writer.h"

namespace pipit::internal::onnx {

namespace {

bool is_elements(const IndexedAttributes& attributes) {
  return attributes.form == IndexForm::elements;
}

void write_gather(GraphWriter& writer, const Node& node, const IndexedAttributes& attributes) {
  const GraphWriter::Names inputs{writer.operand(node.inputs[0]), writer.operand(node.inputs[1])};
  if (is_elements(attributes)) {
    set(writer.add("GatherElements", node.name, inputs), "axis", attributes.axis);
  } else {
    set(writer.add("GatherND", node.name, inputs), "batch_dims", attributes.batch_dims);
  }
  writer.store_moved(node);
}

void write_scatter(GraphWriter& writer, const Node& node, const ScatterIndexedAttributes& attributes) {
  static constexpr const char* kReductions[] = {"none", "add", "mul", "min", "max"};
  GraphWriter::Names inputs;
  for (const ValueId id : node.inputs) inputs.push_back(writer.operand(id));
  const bool elements = is_elements(attributes.indexed);
  onnx_pb::NodeProto& proto = writer.add(elements ? "ScatterElements" : "ScatterND", node.name, inputs);
  if (elements) set(proto, "axis", attributes.indexed.axis);
  if (attributes.reduction != ScatterReduction::none)
    set(proto, "reduction", kReductions[static_cast<std::size_t>(attributes.reduction)]);
  writer.store(node.outputs[0]);
}

void write_top_k(GraphWriter& writer, const Node& node, const TopKAttributes& attributes) {
  const std::string x = writer.operand(node.inputs[0]);
  const std::string k = writer.integers(node.name + "/k", {attributes.k});
  onnx_pb::NodeProto& proto = writer.add("TopK", node.name, {x, k}, 2);
  set(proto, "axis", attributes.axis);
  set(proto, "largest", std::int64_t{attributes.largest});
  for (std::size_t o = 0; o < node.outputs.size(); ++o)
    writer.store(node.outputs[o], {}, static_cast<int>(o));
}

void write_cum_sum(GraphWriter& writer, const Node& node, const CumSumAttributes& attributes) {
  const std::string x = writer.operand(node.inputs[0]);
  const std::string axis = writer.initializer(
      node.name + "/axis", Tensor::from<std::int64_t>(Shape{}, std::vector<std::int64_t>{attributes.axis}));
  onnx_pb::NodeProto& proto = writer.add("CumSum", node.name, {x, axis});
  if (attributes.exclusive) set(proto, "exclusive", std::int64_t{1});
  if (attributes.reverse) set(proto, "reverse", std::int64_t{1});
  writer.store(node.outputs[0]);
}

const char* activation_name(UnaryKind kind) {
  if (kind == UnaryKind::sigmoid) return "Sigmoid";
  if (kind == UnaryKind::tanh) return "Tanh";
  if (kind == UnaryKind::relu) return "Relu";
  if (kind == UnaryKind::softplus) return "Softplus";
  if (kind == UnaryKind::softsign) return "Softsign";
  if (kind == UnaryKind::elu) return "Elu";
  if (kind == UnaryKind::leaky_relu) return "LeakyRelu";
  if (kind == UnaryKind::thresholded_relu) return "ThresholdedRelu";
  if (kind == UnaryKind::hard_sigmoid) return "HardSigmoid";
  fail_unsupported("a recurrent layer with {}", unary_name(kind));
}

// Operators compute of x what the layer gets: their W takes it as it is, which the reader recognizes.
Tensor rows_of_identity(std::int64_t directions, std::int64_t rows) {
  Tensor weights{TensorDesc{Shape{directions, rows, directions * rows}}};
  std::span<float> values = weights.values<float>();
  std::fill(values.begin(), values.end(), 0.0F);
  for (std::int64_t r = 0; r < directions * rows; ++r)
    values[static_cast<std::size_t>(r * (directions * rows + 1))] = 1;
  return weights;
}

// The biases of x, which are in what the layer gets already, and those of the recurrent product.
std::string recurrent_bias(GraphWriter& writer, const Node& node, std::int64_t directions,
                           std::int64_t hidden) {
  if (node.inputs[Recurrent::kHiddenBias] == kNoValue) return "";
  const Value& bias = writer.graph().value(node.inputs[Recurrent::kHiddenBias]);
  if (!bias.is_constant()) fail_unsupported("GRU with a bias that is computed at run time");
  Tensor all{TensorDesc{Shape{directions, 6 * hidden}}};
  std::span<float> values = all.values<float>();
  std::fill(values.begin(), values.end(), 0.0F);
  const std::span<const float> from = bias.constant->values<float>();
  for (std::int64_t d = 0; d < directions; ++d)
    std::copy_n(from.begin() + d * hidden, hidden, values.begin() + (d * 6 + 5) * hidden);
  return writer.initializer(node.name + "/bias", all);
}

void write_recurrent(GraphWriter& writer, const Node& node, const RecurrentAttributes& attributes) {
  if (attributes.rounds_state) fail_unsupported("DynamicQuantizeLSTM");
  const RecurrentGeometry g(attributes, writer.desc(node.inputs[Recurrent::kGates]).shape,
                            writer.desc(node.inputs[Recurrent::kWeights]).shape);
  const auto input = [&](std::size_t i) {
    return i < node.inputs.size() ? writer.optional_operand(node.inputs[i]) : std::string();
  };
  GraphWriter::Names inputs{
      input(Recurrent::kGates),
      writer.initializer(node.name + "/identity", rows_of_identity(g.directions, g.gates * g.hidden)),
      input(Recurrent::kWeights)};
  inputs.push_back(node.inputs.size() > Recurrent::kHiddenBias
                       ? recurrent_bias(writer, node, g.directions, g.hidden)
                       : "");
  std::string lengths = input(Recurrent::kLengths);
  if (!lengths.empty() && writer.desc(node.inputs[Recurrent::kLengths]).dtype != DType::i32) {
    set(writer.add("Cast", node.name + "/lengths", {lengths}), "to", std::int64_t{data_type(DType::i32)});
    lengths = writer.last_result();
  }
  inputs.push_back(lengths);
  inputs.push_back(input(Recurrent::kFirstHidden));
  const bool is_lstm = attributes.kind == RecurrentKind::lstm;
  if (is_lstm) inputs.push_back(input(Recurrent::kFirstCell));
  if (is_lstm) inputs.push_back(input(Recurrent::kPeepholes));
  while (inputs.back().empty()) inputs.pop_back();
  static constexpr const char* kOperators[] = {"RNN", "GRU", "LSTM"};
  static constexpr const char* kDirections[] = {"forward", "reverse", "bidirectional"};
  std::vector<const char*> activations;
  std::vector<float> alphas, betas;  // of those that have one
  for (const UnaryAttributes& a : attributes.activations) {
    activations.push_back(activation_name(a.kind));
    const bool hard = a.kind == UnaryKind::hard_sigmoid;
    if (hard || a.kind == UnaryKind::elu || a.kind == UnaryKind::leaky_relu ||
        a.kind == UnaryKind::thresholded_relu)
      alphas.push_back(static_cast<float>(a.alpha));
    if (hard) betas.push_back(static_cast<float>(a.beta));
  }
  onnx_pb::NodeProto& proto = writer.add(kOperators[static_cast<std::size_t>(attributes.kind)], node.name,
                                         inputs, static_cast<int>(node.outputs.size()));
  set(proto, "hidden_size", g.hidden);
  set(proto, "direction", kDirections[static_cast<std::size_t>(attributes.direction)]);
  set(proto, "activations", activations);
  if (!alphas.empty()) set(proto, "activation_alpha", alphas);
  if (!betas.empty()) set(proto, "activation_beta", betas);
  if (attributes.clip > 0) set(proto, "clip", static_cast<float>(attributes.clip));
  if (attributes.linear_before_reset) set(proto, "linear_before_reset", std::int64_t{1});
  if (attributes.input_forget) set(proto, "input_forget", std::int64_t{1});
  for (std::size_t o = 0; o < node.outputs.size(); ++o)
    writer.store(node.outputs[o], {}, static_cast<int>(o));
}

}  // namespace

bool write_position_layer(GraphWriter& writer, const Node& node) {
  if (const auto* gather = layer_if<GatherIndexed>(node)) {
    write_gather(writer, node, gather->attributes());
  } else if (const auto* scatter = layer_if<ScatterIndexed>(node)) {
    write_scatter(writer, node, scatter->attributes());
  } else if (const auto* top_k = layer_if<TopK>(node)) {
    write_top_k(writer, node, top_k->attributes());
  } else if (const auto* cum_sum = layer_if<CumSum>(node)) {
    write_cum_sum(writer, node, cum_sum->attributes());
  } else if (const auto* recurrent = layer_if<Recurrent>(node)) {
    write_recurrent(writer, node, recurrent->attributes());
  } else {
    return false;
  }
  return true;
}

}  // namespace pipit::internal::onnx
