// Constant, ConstantOfShape, Range, EyeLike, Shape, Size, and Cast: values known while reading, mostly.
#include <algorithm>
#include <cmath>

#include "layers/ops/cast.h"
#include "layers/ops/reshaping.h"
#include "models/onnx/read/operators.h"

namespace pipit::internal::onnx {

namespace {

template <typename T>
Tensor list(const std::vector<T>& values) {
  return Tensor::from<T>(Shape{static_cast<std::int64_t>(values.size())}, values);
}

Tensor read_constant(NodeContext& node) {
  AttributeReader& attributes = node.attributes();
  if (const auto* tensor = attributes.tensor("value")) return node.read_tensor(*tensor);
  if (attributes.has("value_float")) return Tensor::scalar(attributes.number("value_float", 0));
  if (attributes.has("value_int")) return Tensor::scalar(attributes.integer("value_int", 0));
  if (const auto values = attributes.numbers("value_floats")) return list(*values);
  if (const auto values = attributes.integers("value_ints")) return list(*values);
  attributes.check_all_read();  // sparse_value, value_string(s)
  fail("no value is given");
}

std::vector<ValueId> convert_constant(NodeContext& node) {
  return {node.add_constant(read_constant(node))};
}

std::vector<ValueId> convert_constant_of_shape(NodeContext& node) {
  const Shape shape = shape_from_onnx(node.constant_integers(0, "shape"));
  const auto* proto = node.attributes().tensor("value");
  Tensor value = proto == nullptr ? Tensor::scalar(0.0F) : node.read_tensor(*proto);
  if (value.desc().elements() != 1) fail("attribute 'value' is {}, expected one element", value.desc().str());
  // A value of shape [1] would not broadcast to a scalar.
  const ValueId element = node.emit(std::make_shared<Reshape>(ReshapeAttributes{Shape{}}),
                                    {node.add_constant(std::move(value), "value")}, "element");
  return {node.emit<Expand>({element}, ExpandAttributes{shape})};
}

// max(ceil((limit - start) / delta), 0), by the definition of Range; delta is not 0. Throws Error on more
// elements than any memory holds.
template <typename T>
std::int64_t range_count(T start, T limit, T delta) {
  constexpr double kMaxCount = 1e15;
  double count = 0;
  if constexpr (std::is_integral_v<T>) {
    const bool rises = delta > 0;
    if (rises ? start < limit : start > limit) {
      // Unsigned differences are exact where signed ones would overflow.
      const auto from = static_cast<std::uint64_t>(rises ? start : limit);
      const auto to = static_cast<std::uint64_t>(rises ? limit : start);
      const auto step = rises ? static_cast<std::uint64_t>(delta) : 0 - static_cast<std::uint64_t>(delta);
      const std::uint64_t steps = (to - from - 1) / step;
      count = static_cast<double>(steps + 1);
    }
  } else {
    const auto first = static_cast<double>(start);
    count = std::ceil((static_cast<double>(limit) - first) / static_cast<double>(delta));
  }
  if (!(count < kMaxCount)) fail("a range from {} to {} in steps of {}", start, limit, delta);
  return static_cast<std::int64_t>(std::max(count, 0.0));
}

template <typename T>
ValueId add_range(NodeContext& node, T start, T limit, T delta) {
  if (delta == 0) fail("delta is 0");
  Tensor tensor = node.allocate(TensorDesc{Shape{range_count(start, limit, delta)}, DTypeOf<T>::value});
  std::int64_t i = 0;
  for (T& value : tensor.values<T>()) {
    if constexpr (std::is_integral_v<T>) {
      // In unsigned numbers, as the product alone may be too large.
      using Unsigned = std::make_unsigned_t<T>;
      value = static_cast<T>(static_cast<Unsigned>(start) +
                             static_cast<Unsigned>(i) * static_cast<Unsigned>(delta));
    } else {
      value =
          static_cast<T>(static_cast<double>(start) + static_cast<double>(i) * static_cast<double>(delta));
    }
    ++i;
  }
  return node.add_constant(std::move(tensor));
}

std::vector<ValueId> convert_range(NodeContext& node) {
  node.attributes().ignore({"stash_type"});  // since opset 27: how halves are counted, which are f32 here
  const char* const names[] = {"start", "limit", "delta"};
  std::shared_ptr<const Tensor> operands[3];
  for (int i = 0; i < 3; ++i) {
    operands[i] = node.constant(i, names[i]);
    if (operands[i]->desc().elements() != 1) fail("{} is {}", names[i], operands[i]->desc().str());
  }
  const auto add = [&]<typename T>(T /*type*/) -> std::vector<ValueId> {
    const auto number = [&](std::size_t i) { return operands[i]->template values<T>()[0]; };
    return {add_range(node, number(0), number(1), number(2))};
  };
  switch (const DType type = operands[0]->desc().dtype) {
    case DType::f32:
      return add(float{});
    case DType::f64:
      return add(double{});
    case DType::i32:
      return add(std::int32_t{});
    case DType::i64:
      return add(std::int64_t{});
    default:
      fail("Range is not defined on {}", dtype_name(type));
  }
}

std::vector<ValueId> convert_eye_like(NodeContext& node) {
  const TensorDesc& x = node.desc(node.input(0));
  if (x.shape.rank() != 2) fail("input {}: expected a matrix", x.shape.str());
  const std::int64_t rows = x.shape[0];
  const std::int64_t columns = x.shape[1];
  const std::int64_t diagonal = node.attributes().integer("k", 0);
  const DType type = node.attributes().has("dtype")
                         ? dtype_from_onnx(static_cast<std::int32_t>(node.attributes().integer("dtype", 1)))
                         : x.dtype;
  Tensor eye = node.allocate(TensorDesc{x.shape, DType::u8});
  std::ranges::fill(eye.values<std::uint8_t>(), std::uint8_t{0});
  if (diagonal > -rows && diagonal < columns) {
    for (std::int64_t row = std::max<std::int64_t>(0, -diagonal); row < rows && row + diagonal < columns;
         ++row) {
      eye.view().as<std::uint8_t>()[row * columns + row + diagonal] = 1;
    }
  }
  return {node.emit<Cast>({node.add_constant(std::move(eye), "u8")}, CastAttributes{type})};
}

// Slice positions: negative from the end, clamped.
std::size_t clamp_position(std::int64_t position, int rank) {
  const std::int64_t from_start = position < 0 ? position + rank : position;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(from_start, 0, rank));
}

std::vector<ValueId> convert_shape(NodeContext& node) {
  const Shape& shape = node.input_shape(0);
  const std::size_t start = clamp_position(node.attributes().integer("start", 0), shape.rank());
  const std::size_t end = clamp_position(node.attributes().integer("end", shape.rank()), shape.rank());
  const auto dims = shape.dims().subspan(start, std::max(start, end) - start);
  return {node.add_constant(list(std::vector<std::int64_t>(dims.begin(), dims.end())))};
}

std::vector<ValueId> convert_size(NodeContext& node) {
  return {node.add_constant(Tensor::scalar(node.input_shape(0).elements()))};
}

std::vector<ValueId> emit_cast(NodeContext& node, DType to) {
  node.attributes().ignore({"saturate"});  // for 8-bit floating point only
  return {node.emit<Cast>({node.input(0)}, CastAttributes{to})};
}

std::vector<ValueId> convert_cast(NodeContext& node) {
  const std::int64_t to = node.attributes().required_integer("to");
  if (to < 0 || to > std::numeric_limits<std::int32_t>::max()) fail("attribute 'to' is {}", to);
  return emit_cast(node, dtype_from_onnx(static_cast<std::int32_t>(to)));
}

std::vector<ValueId> convert_cast_like(NodeContext& node) {
  return emit_cast(node, node.desc(node.input(1)).dtype);
}

constexpr Operator kConstantOperators[] = {
    {"Cast", 6, kLastOpset, 1, 1, convert_cast},
    {"CastLike", 15, kLastOpset, 2, 2, convert_cast_like},
    {"Constant", 1, kLastOpset, 0, 0, convert_constant},
    {"ConstantOfShape", 9, kLastOpset, 1, 1, convert_constant_of_shape},
    {"EyeLike", 9, kLastOpset, 1, 1, convert_eye_like},
    {"Range", 11, kLastOpset, 3, 3, convert_range},
    {"Shape", 1, kLastOpset, 1, 1, convert_shape},
    {"Size", 1, kLastOpset, 1, 1, convert_size},
};

}  // namespace

std::span<const Operator> constant_operators() {
  return kConstantOperators;
}

}  // namespace pipit::internal::onnx
