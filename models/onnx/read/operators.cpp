#include "models/onnx/read/operators.h"

#include <algorithm>
#include <map>

namespace pipit::internal::onnx {

namespace {

using Table = std::multimap<std::string_view, Operator>;

const Table& table() {
  static const Table& all = *new Table([] {
    Table result;
    for (const auto family :
         {slicing_operators(),   attention_operators(), binary_operators(),    constant_operators(),
          conv_operators(),      einsum_operators(),    fused_operators(),     indexing_operators(),
          integer_operators(),   linear_operators(),    microsoft_operators(), normalization_operators(),
          pool_operators(),      qlinear_operators(),   quantize_operators(),  movement_operators(),
          recurrent_operators(), reduce_operators(),    reshape_operators(),   resize_operators(),
          sequence_operators(),  unary_operators()}) {
      for (const Operator& op : family) result.emplace(op.name, op);
    }
    return result;
  }());
  return all;
}

}  // namespace

const Operator& find_operator(const FlatNode& node) {
  const auto [begin, end] = table().equal_range(qualified_operator(*node.proto));
  if (begin == end) fail_unsupported("operator {} is not supported", qualified_operator(*node.proto));
  std::int64_t first = kLastOpset;
  std::int64_t last = 0;
  for (auto entry = begin; entry != end; ++entry) {
    const Operator& op = entry->second;
    if (node.opset < op.first_opset || node.opset > op.last_opset) {
      first = std::min(first, op.first_opset);
      last = std::max(last, op.last_opset);
      continue;
    }
    const int inputs = node.proto->input_size();
    if (inputs < op.min_inputs || inputs > op.max_inputs) {
      if (op.max_inputs == kVariadic) fail("{} inputs, expected at least {}", inputs, op.min_inputs);
      fail("{} inputs, expected {}", inputs,
           op.min_inputs == op.max_inputs ? fmt::format("{}", op.min_inputs)
                                          : fmt::format("{} to {}", op.min_inputs, op.max_inputs));
    }
    return op;
  }
  fail_unsupported("operator {} is supported in opsets {} to {}, not {}", node.proto->op_type(), first, last,
                   node.opset);
}

}  // namespace pipit::internal::onnx
