// Layers with weights in 8 and 4 bits: floating-point ones whose weights come from one DequantizeLinear in blocks.
#include <cstring>
#include <vector>

#include "layers/ops/weight_only.h"
#include "layers/passes/rewriter.h"
#include "models/onnx/write/graph_writer.h"

namespace pipit::internal::onnx {

namespace {

const Tensor& constant(const GraphWriter& writer, const Node& node, std::size_t input) {
  const Tensor* tensor = writer.graph().value(node.inputs[input]).constant.get();
  if (tensor == nullptr) fail_unsupported("weights that are computed at run time");
  return *tensor;
}

// Where a matrix [outputs, depth] lies in the file: as it is, [depth, outputs], or [outputs, depth, 1...].
struct Place {
  bool outputs_last = false;
  int taps = 0;  // dimensions of 1 after it

  Shape shape(std::int64_t outputs, std::int64_t depth) const {
    std::vector<std::int64_t> dims{outputs_last ? depth : outputs, outputs_last ? outputs : depth};
    dims.insert(dims.end(), static_cast<std::size_t>(taps), 1);
    return Shape(dims);
  }
  std::size_t index(std::int64_t output, std::int64_t k, std::int64_t outputs, std::int64_t depth) const {
    return static_cast<std::size_t>(outputs_last ? k * outputs + output : output * depth + k);
  }
};

// The integers and their scales as initializers, and what dequantizes them. Returns the name of the real weights.
std::string add_weights(GraphWriter& writer, const Node& node, const WeightFormat& format, std::int64_t depth,
                        const Place& place) {
  const Tensor& stored = constant(writer, node, 1);
  const Tensor& scales = constant(writer, node, 2);
  const std::int64_t outputs = stored.shape()[0];
  const std::int64_t groups = format.groups(depth);
  Tensor integers(TensorDesc{place.shape(outputs, depth), DType::i8});
  Tensor turned(TensorDesc{place.shape(outputs, groups)});
  const std::byte* row = stored.view().data;
  for (std::int64_t o = 0; o < outputs; ++o, row += format.row_bytes(depth)) {
    for (std::int64_t k = 0; k < depth; ++k)
      integers.values<std::int8_t>()[place.index(o, k, outputs, depth)] =
          static_cast<std::int8_t>(format.at(row, k));
    for (std::int64_t g = 0; g < groups; ++g)
      turned.values<float>()[place.index(o, g, outputs, groups)] =
          scales.values<float>()[static_cast<std::size_t>(o * groups + g)];
  }
  const std::string name = writer.graph().value(node.inputs[1]).name;
  const std::string q =
      format.bits == 4 ? writer.int4_initializer(name, integers) : writer.initializer(name, integers);
  const std::string scale = writer.initializer(name + "/scale", turned);
  onnx_pb::NodeProto& proto = writer.add("DequantizeLinear", name + "/dequantize", {q, scale});
  set(proto, "axis", std::int64_t{place.outputs_last ? 0 : 1});
  set(proto, "block_size", format.group(depth));
  return proto.output(0);
}

std::string bias_of(GraphWriter& writer, const Node& node) {
  return node.inputs.size() > 3 ? writer.optional_operand(node.inputs[3]) : "";
}

void write_conv(GraphWriter& writer, const Node& node, const WConvAttributes& attributes) {
  const bool has_residual = node.inputs.size() > 4 && node.inputs[4] != kNoValue;
  const std::string residual = has_residual ? writer.operand(node.inputs[4]) : "";
  const std::string x = writer.operand(node.inputs[0]);
  const std::string weights =
      add_weights(writer, node, attributes.format, writer.desc(node.inputs[0]).shape[1],
                  {.taps = attributes.conv.window.rank});
  onnx_pb::NodeProto& conv = writer.add("Conv", node.name, {x, weights, bias_of(writer, node)});
  set_window(conv, attributes.conv.window);
  if (has_residual) writer.add("Add", node.name + "/add", {writer.last_result(), residual});
  writer.add_activation(node.name, attributes.conv.activation);
  writer.store(node.outputs[0]);
}

// A Gemm where x is a matrix, else a MatMul and the addition of the bias.
void write_linear(GraphWriter& writer, const Node& node, const WLinearAttributes& attributes) {
  const Shape& shape = writer.desc(node.inputs[0]).shape;
  const bool matrix = shape.rank() == 2;
  const std::string x = writer.operand(node.inputs[0]);
  const std::string weights =
      add_weights(writer, node, attributes.format, shape[shape.rank() - 1], {.outputs_last = !matrix});
  const std::string bias = bias_of(writer, node);
  if (matrix) {
    set(writer.add("Gemm", node.name, {x, weights, bias}), "transB", std::int64_t{1});
  } else {
    writer.add("MatMul", node.name, {x, weights});
    if (!bias.empty()) writer.add("Add", node.name + "/bias", {writer.last_result(), bias});
  }
  writer.add_activation(node.name, attributes.activation);
  writer.store(node.outputs[0]);
}

}  // namespace

bool write_stored_layer(GraphWriter& writer, const Node& node) {
  if (const auto* conv = layer_if<WConv>(node)) {
    write_conv(writer, node, conv->attributes());
  } else if (const auto* linear = layer_if<WLinear>(node)) {
    write_linear(writer, node, linear->attributes());
  } else {
    return false;
  }
  return true;
}

}  // namespace pipit::internal::onnx
