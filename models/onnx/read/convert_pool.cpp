// MaxPool, AveragePool, LpPool and their global forms.
#include "layers/ops/pool.h"

#include "models/onnx/read/operators.h"
#include "models/onnx/read/window_attributes.h"

namespace pipit::internal::onnx {

namespace {

std::vector<ValueId> convert_max_pool(NodeContext& node) {
  PoolAttributes attributes{.kind = PoolKind::max, .window = read_window(node, {}, "MaxPool")};
  attributes.column_major_indices = node.attributes().flag("storage_order", false);
  attributes.indices = node.wants_output(1);
  return node.emit_all(std::make_shared<Pool>(attributes), {node.input(0)});
}

std::vector<ValueId> convert_average_pool(NodeContext& node) {
  PoolAttributes attributes{.kind = PoolKind::average, .window = read_window(node, {}, "AveragePool")};
  attributes.count_include_pad = node.attributes().flag("count_include_pad", false);
  return {node.emit<Pool>({node.input(0)}, attributes)};
}

std::vector<ValueId> convert_lp_pool(NodeContext& node) {
  PoolAttributes attributes{.kind = PoolKind::lp, .window = read_window(node, {}, "LpPool")};
  attributes.p = node.attributes().integer("p", 2);
  return {node.emit<Pool>({node.input(0)}, attributes)};
}

template <PoolKind kind>
std::vector<ValueId> convert_global_pool(NodeContext& node) {
  PoolAttributes attributes{.kind = kind, .global = true};
  if (kind == PoolKind::lp) attributes.p = node.attributes().integer("p", 2);
  return {node.emit<Pool>({node.input(0)}, attributes)};
}

constexpr Operator kPoolOperators[] = {
    {"AveragePool", 7, kLastOpset, 1, 1, convert_average_pool},
    {"GlobalAveragePool", 1, kLastOpset, 1, 1, convert_global_pool<PoolKind::average>},
    {"GlobalLpPool", 2, kLastOpset, 1, 1, convert_global_pool<PoolKind::lp>},
    {"GlobalMaxPool", 1, kLastOpset, 1, 1, convert_global_pool<PoolKind::max>},
    {"LpPool", 2, kLastOpset, 1, 1, convert_lp_pool},
    {"MaxPool", 1, kLastOpset, 1, 1, convert_max_pool},
};

}  // namespace

std::span<const Operator> pool_operators() {
  return kPoolOperators;
}

}  // namespace pipit::internal::onnx
