// Convolutions, matrix products and pools as ONNX nodes.
#include <algorithm>
#include <limits>

#include "layers/ops/conv.h"
#include "layers/ops/conv_transpose.h"
#include "layers/ops/gemm.h"
#include "layers/ops/matmul.h"
#include "layers/ops/pool.h"
#include "layers/passes/rewriter.h"
#include "models/onnx/write/graph_writer.h"

namespace pipit::internal::onnx {

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

// ONNX Runtime takes pads below the extents of the kernel only, however far apart its taps are.
bool pads_reach_kernel(const Window& window) {
  for (std::size_t d = 0; d < static_cast<std::size_t>(window.rank); ++d) {
    if (std::max(window.pad_begin[d], window.pad_end[d]) >= window.kernel[d]) return true;
  }
  return false;
}

// The padding of a maximum as a node of its own; none is left to the window.
std::string pad_below_all(GraphWriter& writer, const Node& node, const std::string& x, Window& window) {
  if (window.ceil_mode)
    fail_unsupported("max pooling with ceil_mode whose padding reaches its kernel's extent");
  std::vector<std::int64_t> pads = {0, 0};  // of images and channels
  for (auto* of : {&window.pad_begin, &window.pad_end}) {
    if (of == &window.pad_end) pads.insert(pads.end(), 2, 0);
    pads.insert(pads.end(), of->begin(), of->begin() + window.rank);
    of->fill(0);
  }
  const std::string amounts = writer.integers(node.name + "/pads", pads);
  const std::string lowest = writer.number(node.name + "/lowest", -std::numeric_limits<float>::infinity());
  writer.add("Pad", node.name + "/pad", {x, amounts, lowest});
  return writer.last_result();
}

}  // namespace

void add_pool(GraphWriter& writer, const Node& node, const PoolAttributes& attributes) {
  static constexpr const char* kOperators[] = {"MaxPool", "AveragePool", "LpPool"};
  const std::string op = kOperators[static_cast<std::size_t>(attributes.kind)];
  std::string x = writer.operand(node.inputs[0]);
  const bool max = attributes.kind == PoolKind::max;
  Window window = attributes.window;
  if (max && !attributes.global && pads_reach_kernel(window)) {
    if (attributes.indices)
      fail_unsupported("max pooling with indices whose padding reaches its kernel's extent");
    x = pad_below_all(writer, node, x, window);
  }
  onnx_pb::NodeProto& pool =
      writer.add((attributes.global ? "Global" : "") + op, node.name, {x}, attributes.indices ? 2 : 1);
  if (attributes.kind == PoolKind::lp) set(pool, "p", attributes.p);
  if (attributes.global) return;
  set_window(pool, window);
  if (attributes.kind == PoolKind::average && attributes.count_include_pad)
    set(pool, "count_include_pad", std::int64_t{1});
  if (attributes.column_major_indices) set(pool, "storage_order", std::int64_t{1});
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
    if (node.outputs.size() > 1) writer.store(node.outputs[1], {}, 1);
    writer.store_moved(node);
  } else {
    return false;
  }
  return true;
}

}  // namespace pipit::internal::onnx
