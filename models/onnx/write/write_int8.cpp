// INT8 layers as floating-point ones between DequantizeLinear and QuantizeLinear.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "layers/ops/pool.h"
#include "layers/ops/qconv.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"
#include "layers/ops/reshaping.h"
#include "layers/passes/rewriter.h"
#include "models/onnx/write/graph_writer.h"

namespace pipit::internal::onnx {

namespace {

const Tensor& constant(const GraphWriter& writer, const Node& node, std::size_t input, const char* what) {
  const Tensor* tensor = writer.graph().value(node.inputs[input]).constant.get();
  if (tensor == nullptr) fail_unsupported("{} that are computed at run time", what);
  return *tensor;
}

Tensor reshaped(const Tensor& tensor, const Shape& shape) {
  Tensor result(TensorDesc{shape, tensor.desc().dtype});
  std::memcpy(result.view().data, tensor.view().data, tensor.desc().bytes());
  return result;
}

bool fits_int4(const Tensor& integers) {
  return integers.desc().dtype == DType::i8 &&
         std::ranges::all_of(integers.values<std::int8_t>(), [](int v) { return v >= -8 && v <= 7; });
}

// The integers as an initializer, dequantized per output (or per tensor). Returns the name of the real values.
std::string add_dequantized(GraphWriter& writer, const std::string& name, const Tensor& integers,
                            const std::vector<float>& scales) {
  const auto count = static_cast<std::int64_t>(scales.size());
  const Shape list = count == 1 ? Shape{} : Shape{count};
  const bool narrow = writer.form().int4_weights && fits_int4(integers);
  const std::string q = narrow ? writer.int4_initializer(name, integers) : writer.initializer(name, integers);
  const std::string scale = writer.initializer(name + "/scale", Tensor::from<float>(list, scales));
  GraphWriter::Names inputs{q, scale};
  if (integers.desc().dtype == DType::i8) {
    const Tensor zeros = Tensor::from<std::int8_t>(list, std::vector<std::int8_t>(scales.size(), 0));
    const std::string zero = name + "/zero_point";
    inputs.push_back(narrow ? writer.int4_initializer(zero, zeros) : writer.initializer(zero, zeros));
  }
  onnx_pb::NodeProto& node = writer.add("DequantizeLinear", name + "/dequantize", inputs);
  if (count != 1) set(node, "axis", std::int64_t{0});
  return node.output(0);
}

// A matrix product in disguise: a QConv of one tap over [N, K] rows, which are given two more dimensions for it and
// lose them after it.
struct MatrixProduct {
  ValueId rows = kNoValue;
  ValueId result = kNoValue;
};

std::optional<MatrixProduct> matrix_product(const GraphWriter& writer, const Node& node) {
  const Node* before = writer.producer(node.inputs[0]);
  const Node* after = writer.only_reader(node.outputs[0]);
  if (before == nullptr || after == nullptr || node.inputs.size() > 3) return std::nullopt;
  if (layer_if<Reshape>(*before) == nullptr || layer_if<Reshape>(*after) == nullptr) return std::nullopt;
  const MatrixProduct product{before->inputs[0], after->outputs[0]};
  const Shape& x = writer.desc(product.rows).shape;
  const Shape& y = writer.desc(product.result).shape;
  const Shape& weights = writer.desc(node.inputs[1]).shape;
  if (x.rank() != 2 || y.rank() != 2 || writer.only_reader(node.inputs[0]) != &node) return std::nullopt;
  if (!(writer.desc(node.inputs[0]).shape == Shape{x[0], x[1], 1, 1})) return std::nullopt;
  if (!(weights == Shape{y[1], x[1], 1, 1}) || y[0] != x[0]) return std::nullopt;
  return product;
}

// The Reshapes around a matrix product are not written.
bool belongs_to_matrix_product(const GraphWriter& writer, const Node& node) {
  if (layer_if<Reshape>(node) == nullptr) return false;
  for (const Node* other : {writer.only_reader(node.outputs[0]), writer.producer(node.inputs[0])}) {
    if (other != nullptr && layer_if<QConv>(*other) != nullptr && matrix_product(writer, *other)) return true;
  }
  return false;
}

// The biases of a layer as they are read: their integers dequantized, or the same values as numbers.
std::string add_bias(GraphWriter& writer, const Node& node, const std::vector<float>& scales) {
  const Tensor& integers = constant(writer, node, 2, "biases");
  const std::string name = node.name + ".bias";
  if (!writer.form().float_bias) return add_dequantized(writer, name, integers, scales);
  Tensor values(TensorDesc{integers.shape(), DType::f32});
  const auto from = integers.values<std::int32_t>();
  for (std::size_t o = 0; o < from.size(); ++o)
    values.values<float>()[o] = static_cast<float>(from[o]) * scales[scales.size() == 1 ? 0 : o];
  return writer.initializer(name, values);
}

// The least value that an INT8 value can have: 0 after a Relu, also through pools and what moves elements.
float least_value(const GraphWriter& writer, ValueId id) {
  constexpr float kAny = -std::numeric_limits<float>::infinity();
  const Node* node = writer.producer(id);
  if (node == nullptr) return kAny;
  if (const auto* conv = layer_if<QConv>(*node)) return conv->attributes().conv.activation.low;
  if (const auto* add = layer_if<QAdd>(*node)) return add->attributes().activation.low;
  if (const auto* mul = layer_if<QMul>(*node)) return mul->attributes().activation.low;
  const bool keeps = layer_if<Pool>(*node) != nullptr || layer_if<QAveragePool>(*node) != nullptr ||
                     layer_if<Reshape>(*node) != nullptr;
  return keeps ? std::min(0.0F, least_value(writer, node->inputs[0])) : kAny;
}

// What a convolution is rounded to before its residual is added. The sum is clipped to what y and the activation hold,
// so that nothing beyond that less the residual is seen in it: this range in 127 steps needs no observation.
Quantization before_residual(const GraphWriter& writer, const Node& node, const QConvAttributes& attributes) {
  const auto bounds = [](const Quantization& q, float low) {
    const QuantizedRange range = quantized_range(q);
    return std::pair{std::max(low, q.scale * static_cast<float>(range.low - q.zero_point)),
                     q.scale * static_cast<float>(range.high - q.zero_point)};
  };
  const auto [low, high] = bounds(attributes.y, attributes.conv.activation.low);
  const auto [least, most] = bounds(attributes.residual, least_value(writer, node.inputs[3]));
  Quantization q = attributes.y;
  q.scale =
      std::max(std::abs(low - most), std::abs(std::min(high, attributes.conv.activation.high) - least)) / 127;
  return q;
}

void write_qconv(GraphWriter& writer, const Node& node, const QConvAttributes& attributes) {
  const bool has_residual = node.inputs.size() > 3 && node.inputs[3] != kNoValue;
  const std::optional<MatrixProduct> product = matrix_product(writer, node);
  const Tensor& weights = constant(writer, node, 1, "weights");
  std::vector<float> bias_scales = attributes.weight_scales;
  for (float& scale : bias_scales) scale *= attributes.x.scale;
  const std::string x = writer.operand(product ? product->rows : node.inputs[0]);
  const std::string residual = has_residual ? writer.operand(node.inputs[3]) : "";
  const Tensor matrix = product ? reshaped(weights, Shape{weights.shape()[0], weights.shape()[1]}) : Tensor{};
  const std::string w =
      add_dequantized(writer, node.name + ".weights", product ? matrix : weights, attributes.weight_scales);
  std::string bias;
  if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) bias = add_bias(writer, node, bias_scales);
  onnx_pb::NodeProto& proto = writer.add(product ? "Gemm" : "Conv", node.name, {x, w, bias});
  if (product) {
    set(proto, "transB", std::int64_t{1});
  } else {
    set_window(proto, attributes.conv.window);
    if (attributes.conv.groups != 1) set(proto, "group", attributes.conv.groups);
  }
  const bool rounds_twice = has_residual && writer.form().rounded_residual && attributes.y.quantized();
  if (rounds_twice) writer.add_rounding(node.name + "/conv", before_residual(writer, node, attributes));
  if (has_residual) writer.add("Add", node.name + "/add", {writer.last_result(), residual});
  writer.add_activation(node.name, attributes.conv.activation,
                        has_residual && !rounds_twice ? Quantization{} : attributes.y);
  const ValueId result = product ? product->result : node.outputs[0];
  const Node* reader = writer.only_reader(result);
  const bool joins_function =
      !writer.form().rounded_function && reader != nullptr && layer_if<QUnary>(*reader) != nullptr;
  if (joins_function && attributes.y.quantized()) return writer.store_real(result, attributes.y);
  writer.store(result, attributes.y);
}

void write_qadd(GraphWriter& writer, const Node& node, const QAddAttributes& attributes) {
  const std::string a = writer.operand(node.inputs[0]);
  const std::string b = writer.operand(node.inputs[1]);
  writer.add("Add", node.name, {a, b});
  writer.add_activation(node.name, attributes.activation, attributes.y);
  writer.store(node.outputs[0], attributes.y);
}

void write_qmul(GraphWriter& writer, const Node& node, const QMulAttributes& attributes) {
  const std::string a = writer.operand(node.inputs[0]);
  const std::string b = writer.operand(node.inputs[1]);
  writer.add("Mul", node.name, {a, b});
  writer.add_activation(node.name, attributes.activation, attributes.y);
  writer.store(node.outputs[0], attributes.y);
}

void write_qunary(GraphWriter& writer, const Node& node, const QUnaryAttributes& attributes) {
  add_unary(writer, node, attributes.function);
  writer.store(node.outputs[0], attributes.y);
}

void write_qaverage_pool(GraphWriter& writer, const Node& node, const QAveragePoolAttributes& attributes) {
  add_pool(writer, node, attributes.pool);
  writer.store(node.outputs[0], attributes.y);
}

}  // namespace

bool write_int8_layer(GraphWriter& writer, const Node& node) {
  if (belongs_to_matrix_product(writer, node)) return true;
  if (const auto* qconv = layer_if<QConv>(node)) {
    write_qconv(writer, node, qconv->attributes());
  } else if (const auto* qadd = layer_if<QAdd>(node)) {
    write_qadd(writer, node, qadd->attributes());
  } else if (const auto* qmul = layer_if<QMul>(node)) {
    write_qmul(writer, node, qmul->attributes());
  } else if (const auto* qunary = layer_if<QUnary>(node)) {
    write_qunary(writer, node, qunary->attributes());
  } else if (const auto* pool = layer_if<QAveragePool>(node)) {
    write_qaverage_pool(writer, node, pool->attributes());
  } else if (const auto* quantize = layer_if<Quantize>(node)) {
    writer.quantize(node, quantize->y());
  } else if (layer_if<Dequantize>(node) != nullptr) {
    writer.dequantize(node);
  } else {
    return false;
  }
  return true;
}

}  // namespace pipit::internal::onnx
