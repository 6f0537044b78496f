// The table of supported ONNX operators. docs/operators.md says the same to users.
#pragma once

#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "models/onnx/read/node_context.h"

namespace pipit::internal::onnx {

/// The operator sets that were checked. From 22 to 28 the operators of the table only gained element types
/// and attributes that are refused when they occur. Before 7 an operator is in the table where it means the
/// same as later; broadcasting along an 'axis' does not.
inline constexpr std::int64_t kFirstOpset = 1;
inline constexpr std::int64_t kLastOpset = 28;

inline constexpr int kVariadic = std::numeric_limits<int>::max();

/// Adds the layers of one node and returns the values of its outputs. Outputs that no one reads may be left
/// out at the end. An output may be one of the inputs (Identity).
using Converter = std::vector<ValueId> (*)(NodeContext&);

/// One operator over a range of opsets; an operator whose inputs changed has several entries.
struct Operator {
  std::string_view name;  ///< with the domain where it is another than ONNX's own: "com.microsoft::QGemm"
  std::int64_t first_opset;
  std::int64_t last_opset;
  int min_inputs;
  int max_inputs;
  Converter convert;
  bool takes_sequence = false;  ///< input 0 may be a sequence (NodeContext::sequence)
};

/// The entry for a node. Throws UnsupportedError on an operator, domain or opset that is not in the table,
/// Error on a number of inputs that the operator does not take.
const Operator& find_operator(const FlatNode& node);

// The entries of one family each, in convert_<family>.cpp.
std::span<const Operator> slicing_operators();
std::span<const Operator> attention_operators();
std::span<const Operator> binary_operators();
std::span<const Operator> constant_operators();
std::span<const Operator> conv_operators();
std::span<const Operator> einsum_operators();
std::span<const Operator> fused_operators();
std::span<const Operator> indexing_operators();
std::span<const Operator> integer_operators();
std::span<const Operator> linear_operators();
std::span<const Operator> microsoft_operators();
std::span<const Operator> normalization_operators();
std::span<const Operator> pool_operators();
std::span<const Operator> qlinear_operators();
std::span<const Operator> quantize_operators();
std::span<const Operator> movement_operators();
std::span<const Operator> recurrent_operators();
std::span<const Operator> reduce_operators();
std::span<const Operator> reshape_operators();
std::span<const Operator> resize_operators();
std::span<const Operator> sequence_operators();
std::span<const Operator> unary_operators();

}  // namespace pipit::internal::onnx
