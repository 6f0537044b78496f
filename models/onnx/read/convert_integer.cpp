// ConvInteger, MatMulInteger and DynamicQuantizeLinear. The first two become a DynamicQConv with scales of 1, whose
// sums are rounded to f32, to what the Cast to float that follows them in models would make of them;
// fuse_dynamic_scales gives it what comes after. What it does not take is summed up in f32.
#include <algorithm>
#include <optional>

#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/conv.h"
#include "layers/ops/dynamic_int8.h"
#include "layers/ops/matmul.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/unary.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/quantized_operand.h"
#include "models/onnx/read/window_attributes.h"

namespace pipit::internal::onnx {

namespace {

ValueId cast(NodeContext& node, ValueId x, DType to, const char* part = nullptr) {
  return node.emit(std::make_shared<Cast>(CastAttributes{to}), {x}, part);
}

ValueId binary(NodeContext& node, BinaryKind kind, ValueId a, ValueId b, const char* part) {
  return node.emit(std::make_shared<Binary>(BinaryAttributes{kind}), {a, b}, part);
}

// Input `x` less its zero point, in f32. A list of zero points holds along `axis`.
ValueId steps(NodeContext& node, int x, int zero_point, const char* part, std::int64_t axis) {
  const TensorDesc& desc = node.desc(node.input(x));
  if (!node.has_input(zero_point) || node.known(zero_point) != nullptr) {
    AxisQuantization q{desc.dtype, {1.0F}, {0}, 0};
    if (node.has_input(zero_point)) {
      const auto zero = node.known(zero_point);
      if (zero->desc().dtype != desc.dtype)
        fail("the zero point is {}, the tensor {}", dtype_name(zero->desc().dtype), dtype_name(desc.dtype));
      if (zero->shape().rank() > 1 && zero->shape().elements() != 1)
        fail_unsupported("zero points of shape {}", zero->shape().str());
      q.zero_points.clear();
      for (std::int64_t i = 0; i < zero->shape().elements(); ++i) {
        const auto at = static_cast<std::size_t>(i);
        q.zero_points.push_back(desc.dtype == DType::i8 ? zero->values<std::int8_t>()[at]
                                                        : int{zero->values<std::uint8_t>()[at]});
      }
      q.scales.assign(q.zero_points.size(), 1.0F);
      q.axis = axis;
    }
    return dequantized(node, node.input(x), q, part);
  }
  if (node.input_shape(zero_point).elements() != 1)
    fail_unsupported("zero points of shape {} that are computed at run time",
                     node.input_shape(zero_point).str());
  const std::string name = part;
  const ValueId zero = cast(node, node.input(zero_point), DType::f32, (name + "_zero_point").c_str());
  return binary(node, BinaryKind::sub, cast(node, node.input(x), DType::f32, (name + "_real").c_str()), zero,
                part);
}

// The zero points of weights that are constants, one or one for each of `outputs`; none where DynamicQConv does not
// take them, or the layer.
std::optional<std::vector<int>> whole_weights(NodeContext& node, std::int64_t outputs, std::int64_t depth) {
  const auto is_byte = [](DType type) { return type == DType::i8 || type == DType::u8; };
  const bool given = node.has_input(3);
  if (!node.is_constant(1) || outputs == 0 || depth == 0 || depth >= kMaxAffineDepth) return std::nullopt;
  if (node.desc(node.input(0)).elements() == 0 || !is_byte(node.desc(node.input(0)).dtype))
    return std::nullopt;
  if (node.has_input(2) && (node.input_shape(2).elements() != 1 ||
                            node.desc(node.input(2)).dtype != node.desc(node.input(0)).dtype))
    return std::nullopt;
  std::vector<int> zero_points;
  if (!given) return zero_points;
  const auto zero = node.known(3);
  const DType type = node.desc(node.input(1)).dtype;
  if (zero == nullptr || zero->desc().dtype != type || zero->shape().rank() > 1) return std::nullopt;
  const std::int64_t count = zero->shape().elements();
  if (count != 1 && count != outputs) return std::nullopt;
  for (std::int64_t i = 0; i < count; ++i) zero_points.push_back(byte_at(zero->view(), i));
  const bool none = std::all_of(zero_points.begin(), zero_points.end(), [](int z) { return z == 0; });
  return none ? std::vector<int>{} : zero_points;
}

// In f32.
ValueId whole_sums(NodeContext& node, const ConvAttributes& conv, std::vector<int> zero_points, ValueId x,
                   ValueId weights) {
  const DType type = node.desc(x).dtype;
  Tensor none(TensorDesc{Shape{}, type});
  none.view().data[0] = std::byte{0};
  const ValueId zero_point =
      node.has_input(2) ? node.input(2) : node.add_constant(std::move(none), "no_zero_point");
  const ValueId scale = node.add_constant(Tensor::scalar(1.0F), "one");
  DynamicQConvAttributes attributes{conv, {1.0F}, std::move(zero_points)};
  return node.emit(std::make_shared<DynamicQConv>(std::move(attributes)),
                   {x, weights, kNoValue, kNoValue, scale, zero_point});
}

std::vector<ValueId> convert_conv_integer(NodeContext& node) {
  // Depthwise convolutions are as fast in f32, and have kernels for more windows there.
  constexpr std::int64_t kMinGroup = 4;
  const Shape& weights = node.input_shape(1);
  if (weights.rank() < 3) fail("weights {}: expected [output, input / group, kernel...]", weights.str());
  ConvAttributes attributes;
  attributes.window = read_window(node, weights.dims().subspan(2), "ConvInteger");
  attributes.groups = node.attributes().integer("group", 1);
  if (attributes.groups == 1 || weights[1] >= kMinGroup) {
    if (auto zero_points =
            whole_weights(node, weights[0], weights.elements() / std::max<std::int64_t>(weights[0], 1)))
      return {cast(node, whole_sums(node, attributes, std::move(*zero_points), node.input(0), node.input(1)),
                   DType::i32, "sums")};
  }
  const ValueId x = steps(node, 0, 2, "x", 0);
  const ValueId w = steps(node, 1, 3, "w", 0);
  // Winograd's sums are not whole numbers, and Cast drops what is after the point.
  const ValueId sums = node.emit(std::make_shared<Unary>(UnaryAttributes{UnaryKind::round}),
                                 {node.emit<Conv>({x, w}, attributes)}, "whole");
  return {cast(node, sums, DType::i32, "sums")};
}

// [K, N] to filters of one tap [N, K, 1, 1].
Tensor filters_of(NodeContext& node, const Tensor& matrix) {
  const std::int64_t depth = matrix.shape()[0], outputs = matrix.shape()[1];
  Tensor filters = node.allocate({Shape{outputs, depth, 1, 1}, matrix.desc().dtype});
  const std::byte* from = matrix.view().data;
  std::byte* to = filters.view().data;
  constexpr std::int64_t kBlock = 64;
  for (std::int64_t block = 0; block < outputs; block += kBlock) {
    for (std::int64_t k = 0; k < depth; ++k) {
      for (std::int64_t o = block; o < std::min(block + kBlock, outputs); ++o)
        to[o * depth + k] = from[k * outputs + o];
    }
  }
  return filters;
}

std::vector<ValueId> convert_matmul_integer(NodeContext& node) {
  const Shape a_shape = node.input_shape(0);
  const Shape b_shape = node.input_shape(1);
  if (a_shape.rank() >= 1 && b_shape.rank() == 2 && a_shape[a_shape.rank() - 1] == b_shape[0]) {
    if (auto zero_points = whole_weights(node, b_shape[1], b_shape[0])) {
      const ValueId rows = node.emit(std::make_shared<Reshape>(ReshapeAttributes{
                                         Shape{a_shape.elements() / b_shape[0], b_shape[0], 1, 1}}),
                                     {node.input(0)}, "rows");
      const ValueId filters = node.add_constant(filters_of(node, *node.known(1)), "filters");
      const ValueId columns = whole_sums(node, {}, std::move(*zero_points), rows, filters);
      const ValueId sums = cast(node, columns, DType::i32, "columns");
      return {node.emit(
          std::make_shared<Reshape>(ReshapeAttributes{a_shape.with(a_shape.rank() - 1, b_shape[1])}), {sums},
          "shaped")};
    }
  }
  const std::int64_t a_rank = node.input_shape(0).rank();
  const std::int64_t b_rank = node.input_shape(1).rank();
  const ValueId a = steps(node, 0, 2, "a", std::max<std::int64_t>(a_rank - 2, 0));
  const ValueId b = steps(node, 1, 3, "b", std::max<std::int64_t>(b_rank - 1, 0));
  return {cast(node, node.emit<MatMul>({a, b}), DType::i32, "sums")};
}

std::vector<ValueId> convert_dynamic_quantize(NodeContext& node) {
  return dynamically_quantized(node, node.input(0), nullptr);
}

constexpr Operator kIntegerOperators[] = {
    {"ConvInteger", 10, kLastOpset, 2, 4, convert_conv_integer},
    {"DynamicQuantizeLinear", 11, kLastOpset, 1, 1, convert_dynamic_quantize},
    {"MatMulInteger", 10, kLastOpset, 2, 4, convert_matmul_integer},
};

}  // namespace

std::vector<ValueId> dynamically_quantized(NodeContext& node, ValueId x, const char* part) {
  DynamicQuantizeAttributes attributes;
  attributes.affine = true;
  return node.emit_all(std::make_shared<DynamicQuantize>(attributes), {x}, part);
}

std::span<const Operator> integer_operators() {
  return kIntegerOperators;
}

}  // namespace pipit::internal::onnx
