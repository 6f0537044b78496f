// Reduce* and ArgMax, ArgMin.
#include "layers/ops/reduce.h"

#include "models/onnx/read/operators.h"

namespace pipit::internal::onnx {

namespace {

// For these a reduction over no dimensions is the identity.
constexpr bool passes_single_elements(ReduceKind kind) {
  return kind == ReduceKind::sum || kind == ReduceKind::mean || kind == ReduceKind::max ||
         kind == ReduceKind::min || kind == ReduceKind::prod;
}

template <ReduceKind kind>
std::vector<ValueId> emit_reduce(NodeContext& node, std::vector<std::int64_t> axes) {
  const bool keep_dims = node.attributes().flag("keepdims", true);
  return {node.emit<Reduce>({node.input(0)}, ReduceAttributes{kind, std::move(axes), keep_dims})};
}

template <ReduceKind kind>
std::vector<ValueId> convert_reduce_of_attribute(NodeContext& node) {
  return emit_reduce<kind>(node, node.attributes().integers("axes").value_or(std::vector<std::int64_t>{}));
}

template <ReduceKind kind>
std::vector<ValueId> convert_reduce_of_input(NodeContext& node) {
  std::vector<std::int64_t> axes = node.optional_integers(1, "axes").value_or(std::vector<std::int64_t>{});
  if (node.attributes().flag("noop_with_empty_axes", false) && axes.empty()) {
    if (!passes_single_elements(kind)) {
      fail_unsupported("attribute 'noop_with_empty_axes' on {}", reduce_name(kind));
    }
    node.attributes().ignore({"keepdims"});
    return {node.input(0)};
  }
  return emit_reduce<kind>(node, std::move(axes));
}

template <bool minimum>
std::vector<ValueId> convert_arg_max(NodeContext& node) {
  ArgMaxAttributes attributes{.minimum = minimum};
  attributes.axis = node.attributes().integer("axis", 0);
  attributes.keep_dims = node.attributes().flag("keepdims", true);
  attributes.select_last = node.attributes().flag("select_last_index", false);
  return {node.emit<ArgMax>({node.input(0)}, attributes)};
}

// The axes became an input in opset 18, for ReduceSum in 13.
template <ReduceKind kind>
constexpr Operator attribute_form(std::string_view name) {
  return {name, 1, kind == ReduceKind::sum ? 12 : 17, 1, 1, convert_reduce_of_attribute<kind>};
}
template <ReduceKind kind>
constexpr Operator input_form(std::string_view name) {
  return {name, kind == ReduceKind::sum ? 13 : 18, kLastOpset, 1, 2, convert_reduce_of_input<kind>};
}

constexpr Operator kReduceOperators[] = {
    {"ArgMax", 1, kLastOpset, 1, 1, convert_arg_max<false>},
    {"ArgMin", 1, kLastOpset, 1, 1, convert_arg_max<true>},
    attribute_form<ReduceKind::l1>("ReduceL1"),
    input_form<ReduceKind::l1>("ReduceL1"),
    attribute_form<ReduceKind::l2>("ReduceL2"),
    input_form<ReduceKind::l2>("ReduceL2"),
    attribute_form<ReduceKind::log_sum>("ReduceLogSum"),
    input_form<ReduceKind::log_sum>("ReduceLogSum"),
    attribute_form<ReduceKind::log_sum_exp>("ReduceLogSumExp"),
    input_form<ReduceKind::log_sum_exp>("ReduceLogSumExp"),
    attribute_form<ReduceKind::max>("ReduceMax"),
    input_form<ReduceKind::max>("ReduceMax"),
    attribute_form<ReduceKind::mean>("ReduceMean"),
    input_form<ReduceKind::mean>("ReduceMean"),
    attribute_form<ReduceKind::min>("ReduceMin"),
    input_form<ReduceKind::min>("ReduceMin"),
    attribute_form<ReduceKind::prod>("ReduceProd"),
    input_form<ReduceKind::prod>("ReduceProd"),
    attribute_form<ReduceKind::sum>("ReduceSum"),
    input_form<ReduceKind::sum>("ReduceSum"),
    attribute_form<ReduceKind::sum_square>("ReduceSumSquare"),
    input_form<ReduceKind::sum_square>("ReduceSumSquare"),
};

}  // namespace

std::span<const Operator> reduce_operators() {
  return kReduceOperators;
}

}  // namespace pipit::internal::onnx
