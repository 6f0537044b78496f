// Convolutions, matrix products and pools as ONNX nodes.
#include <algorithm>

#include "layers/ops/conv.h"
#include "layers/ops/conv_transpose.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/pool.h"
#include "layers/passes/rewriter.h"
#include "models/onnx/write/graph_writer.h"

namespace pipit::onnx {

namespace {

void write_conv(GraphWriter& writer, const Node& node, const ConvAttributes& attributes) {
  const bool has_residual = node.inputs.size() > 3 && node.inputs[3] != kNoValue;
  const std::string residual = has_residual ? writer.operand(node.inputs[3]) : "";
  const std::string bias = node.inputs.size() > 2 ? writer.optional_operand(node.inputs[2]) : "";
  const std::string x = writer.operand(node.inputs[0]);
  const std::string weights = writer.operand(node.inputs[1]);
  onnx_pb::NodeProto& conv = writer.add("Conv", node.name, {x, weights, bias});
  set_window(conv, attributes.window);
  if (attributes.groups != 1) set(conv, "group", attributes.groups);
  if (has_residual) writer.add("Add", node.name + "/add", {writer.last_result(), residual});
  writer.add_activation(node.name, attributes.activation);
  writer.store(node.outputs[0]);
}

// One that lower_conv_transpose left as it was.
void write_conv_transpose(GraphWriter& writer, const Node& node, const ConvTransposeAttributes& attributes) {
  const std::string bias = node.inputs.size() > 2 ? writer.optional_operand(node.inputs[2]) : "";
  const std::string x = writer.operand(node.inputs[0]);
  const std::string weights = writer.operand(node.inputs[1]);
  onnx_pb::NodeProto& conv = writer.add("ConvTranspose", node.name, {x, weights, bias});
  Window window = attributes.window;
  window.ceil_mode = false;
  set_window(conv, window);
  const auto& padding = attributes.output_padding;
  set(conv, "output_padding", std::vector<std::int64_t>(padding.begin(), padding.begin() + window.rank));
  if (attributes.groups != 1) set(conv, "group", attributes.groups);
  writer.add_activation(node.name, attributes.activation);
  writer.store(node.outputs[0]);
}

void write_gemm(GraphWriter& writer, const Node& node, const GemmAttributes& attributes) {
  const std::string c = node.inputs.size() > 2 ? writer.optional_operand(node.inputs[2]) : "";
  const std::string a = writer.operand(node.inputs[0]);
  const std::string b = writer.operand(node.inputs[1]);
  onnx_pb::NodeProto& gemm = writer.add("Gemm", node.name, {a, b, c});
  if (attributes.alpha != 1) set(gemm, "alpha", attributes.alpha);
  if (attributes.beta != 1) set(gemm, "beta", attributes.beta);
  if (attributes.transpose_a) set(gemm, "transA", std::int64_t{1});
  if (attributes.transpose_b) set(gemm, "transB", std::int64_t{1});
  writer.add_activation(node.name, attributes.activation);
  writer.store(node.outputs[0]);
}

}  // namespace

void add_pool(GraphWriter& writer, const Node& node, const PoolAttributes& attributes) {
  if (attributes.kind == PoolKind::lp) fail_unsupported("pooling by a norm");
  if (attributes.indices) fail_unsupported("pooling with indices");
  const std::string x = writer.operand(node.inputs[0]);
  const bool max = attributes.kind == PoolKind::max;
  if (attributes.global) {
    writer.add(max ? "GlobalMaxPool" : "GlobalAveragePool", node.name, {x});
    return;
  }
  const auto& dilation = attributes.window.dilation;
  if (!max && std::any_of(dilation.begin(), dilation.end(), [](std::int64_t d) { return d != 1; }))
    fail_unsupported("average pooling with dilation, which opset 13 does not have");
  onnx_pb::NodeProto& pool = writer.add(max ? "MaxPool" : "AveragePool", node.name, {x});
  set_window(pool, attributes.window);
  if (!max && attributes.count_include_pad) set(pool, "count_include_pad", std::int64_t{1});
}

bool write_conv_layer(GraphWriter& writer, const Node& node) {
  if (const auto* conv = layer_if<Conv>(node)) {
    write_conv(writer, node, conv->attributes());
  } else if (const auto* transposed = layer_if<ConvTranspose>(node)) {
    write_conv_transpose(writer, node, transposed->attributes());
  } else if (const auto* gemm = layer_if<Gemm>(node)) {
    write_gemm(writer, node, gemm->attributes());
  } else if (layer_if<MatMul>(node) != nullptr) {
    const std::string a = writer.operand(node.inputs[0]);
    const std::string b = writer.operand(node.inputs[1]);
    writer.add("MatMul", node.name, {a, b});
    writer.store(node.outputs[0]);
  } else if (const auto* pool = layer_if<Pool>(node)) {
    add_pool(writer, node, pool->attributes());
    writer.store(node.outputs[0], writer.moved_quantization(node));
  } else {
    return false;
  }
  return true;
}

}  // namespace pipit::onnx
