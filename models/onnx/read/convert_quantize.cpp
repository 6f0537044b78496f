// QuantizeLinear and DequantizeLinear.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "layers/ops/binary.h"
#include "layers/ops/cast.h"
#include "layers/ops/dequantize_blocks.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "layers/ops/unary.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/quantized_operand.h"

namespace pipit::internal::onnx {

namespace {

constexpr std::int64_t kUndefined = 0;  // TensorProto.DataType
constexpr std::int64_t kFloat32 = 1;

// The dimension that scales lie along, and its elements per scale (0: its extent divided by the number of scales).
struct Along {
  std::int64_t axis;
  std::int64_t block;
};

Along read_along(NodeContext& node) {
  const std::int64_t axis = node.attributes().integer("axis", 1);
  const std::int64_t block = node.attributes().integer("block_size", 0);
  if (block < 0) fail("attribute 'block_size' is {}", block);
  return {axis, block};
}

// Scale and zero point (inputs 1 and 2) are computed at run time.
bool is_computed(NodeContext& node) {
  return node.known(1) == nullptr || (node.has_input(2) && node.known(2) == nullptr);
}

// The integers of a type, in f32: what they saturate to and where they lie.
struct IntegerType {
  double low, high;
  DType container;
  std::int32_t narrow;  // NarrowInteger's data type; 0: none
};

IntegerType integers_for(DType type, std::int32_t narrow) {
  if (const auto integer = narrow_integer(narrow))
    return {static_cast<double>(integer->low), static_cast<double>(integer->high), integer->container,
            narrow};
  if (type != DType::i8 && type != DType::u8)
    fail("the zero point is {}; expected u8 or i8", dtype_name(type));
  const double low = type == DType::i8 ? -128 : 0;
  return {low, low + 255, type, 0};
}

ValueId as_type(NodeContext& node, ValueId x, DType to, const char* part = nullptr) {
  if (node.desc(x).dtype == to) return x;
  return node.emit(std::make_shared<Cast>(CastAttributes{to}), {x}, part);
}

ValueId combine(NodeContext& node, BinaryKind kind, ValueId a, ValueId b, const char* part = nullptr) {
  return node.emit(std::make_shared<Binary>(BinaryAttributes{kind}), {a, b}, part);
}

ValueId in_shape(NodeContext& node, ValueId x, const Shape& shape, const char* part) {
  if (node.desc(x).shape == shape) return x;
  return node.emit(std::make_shared<Reshape>(ReshapeAttributes{shape}), {x}, part);
}

// Every entry of dimension `axis` `block` times, `extent` in all.
ValueId repeated(NodeContext& node, ValueId x, int axis, std::int64_t block, std::int64_t extent) {
  const Shape& shape = node.desc(x).shape;
  const std::int64_t blocks = shape[axis];
  if (block * blocks < extent || block * (blocks - 1) >= extent)
    fail("{} blocks of {} for {} elements", blocks, block, extent);
  std::int64_t outer = 1, inner = 1;
  for (int d = 0; d < axis; ++d) outer *= shape[d];
  for (int d = axis + 1; d < shape.rank(); ++d) inner *= shape[d];
  x = in_shape(node, x, Shape{outer, blocks, 1, inner}, "blocks");
  x = node.emit(std::make_shared<Expand>(ExpandAttributes{Shape{outer, blocks, block, inner}}), {x},
                "repeated");
  x = in_shape(node, x, Shape{outer, blocks * block, inner}, "elements");
  if (blocks * block != extent)
    x = node.emit(std::make_shared<Slice>(SliceAttributes{{0}, {extent}, {1}, {1}}), {x}, "cut");
  return x;
}

// Scale or zero point (input `index`) in f32, of a shape that broadcasts to that of x.
ValueId broadcastable(NodeContext& node, int index, Along along, const char* part) {
  ValueId value = as_type(node, node.input(index), DType::f32, part);
  const Shape x = node.input_shape(0);
  const Shape shape = node.desc(value).shape;
  if (shape.elements() == 1) return in_shape(node, value, Shape{}, part);
  const std::int64_t rank = x.rank();
  if (along.axis < -rank || along.axis >= rank) fail("axis {} of a tensor of shape {}", along.axis, x.str());
  const int axis = static_cast<int>(along.axis < 0 ? along.axis + rank : along.axis);
  std::array<std::int64_t, kMaxRank> dims{};
  if (shape.rank() == 1 && along.block == 0) {
    if (shape[0] != x[axis]) fail("{} scales for axis {} of {}", shape[0], axis, x.str());
    dims.fill(1);
    dims[static_cast<std::size_t>(axis)] = shape[0];
    return in_shape(node, value, Shape(std::span(dims).first(static_cast<std::size_t>(rank))), part);
  }
  bool fits = shape.rank() == rank;
  for (int d = 0; fits && d < rank; ++d) fits = d == axis || shape[d] == x[d];
  if (!fits || shape[axis] < 1)
    fail("scales of shape {} for blocks along axis {} of {}", shape.str(), axis, x.str());
  const std::int64_t block = along.block > 0 ? along.block : (x[axis] + shape[axis] - 1) / shape[axis];
  return in_shape(node, repeated(node, value, axis, block, x[axis]), x, part);
}

// The text of the operators in layers: for types without layers of their own, blocks, and scales that are not known.
ValueId quantized_in_steps(NodeContext& node, const IntegerType& to, Along along) {
  const ValueId x = as_type(node, node.input(0), DType::f32, "x");
  const ValueId steps = combine(node, BinaryKind::div, x, broadcastable(node, 1, along, "scale"), "steps");
  ValueId y = node.emit(std::make_shared<Unary>(UnaryAttributes{UnaryKind::round}), {steps}, "rounded");
  if (node.has_input(2))
    y = combine(node, BinaryKind::add, y, broadcastable(node, 2, along, "zero_point"), "shifted");
  const UnaryAttributes saturate{UnaryKind::clip, to.low, to.high};
  const ValueId real = node.emit(std::make_shared<Unary>(saturate), {y}, "saturated");
  const ValueId result = as_type(node, real, to.container);
  if (to.narrow != 0) {
    node.shared().note_type(result, to.narrow);
    node.shared().reals.emplace(result, real);
  }
  return result;
}

ValueId dequantized_in_steps(NodeContext& node, Along along) {
  const auto real = node.shared().reals.find(node.input(0));
  ValueId x =
      real != node.shared().reals.end() ? real->second : as_type(node, node.input(0), DType::f32, "x");
  if (node.has_input(2))
    x = combine(node, BinaryKind::sub, x, broadcastable(node, 2, along, "zero_point"), "steps");
  return combine(node, BinaryKind::mul, x, broadcastable(node, 1, along, "scale"));
}

// A tensor seen as [outer, extent, inner] around an axis whose extent is cut into blocks.
struct Blocks {
  std::int64_t extent, block, inner;

  // The block of an element, both by their places in memory.
  std::size_t of(std::size_t element) const {
    const auto at = static_cast<std::int64_t>(element);
    const std::int64_t blocks = (extent + block - 1) / block, outer = at / inner / extent;
    return static_cast<std::size_t>((outer * blocks + at / inner % extent / block) * inner + at % inner);
  }
};

// Integers less their zero points (null: 0), where i8 holds them.
template <typename T>
std::optional<Tensor> shifted(NodeContext& node, const Tensor& integers, const Tensor* zero_points,
                              const Blocks& blocks) {
  Tensor result = node.allocate(TensorDesc{integers.shape(), DType::i8});
  const std::span<const T> from = integers.values<T>();
  for (std::size_t i = 0; i < from.size(); ++i) {
    const int zero = zero_points != nullptr ? int{zero_points->values<T>()[blocks.of(i)]} : 0;
    const int value = int{from[i]} - zero;
    if (value < -128 || value > 127) return std::nullopt;
    result.values<std::int8_t>()[i] = static_cast<std::int8_t>(value);
  }
  return result;
}

// Constants in blocks stay integers, which a layer may store. Nothing where they cannot: dequantized_in_steps() takes
// them all, or says what is wrong with them.
std::optional<ValueId> dequantized_blocks(NodeContext& node, Along along) {
  const Shape x = node.input_shape(0);
  const std::int64_t rank = x.rank();
  if (along.block == 0 || along.axis < -rank || along.axis >= rank) return std::nullopt;
  if (!node.is_constant(0) || is_computed(node)) return std::nullopt;
  const auto axis = static_cast<int>(along.axis < 0 ? along.axis + rank : along.axis);
  const std::int64_t block = std::min(along.block, std::max<std::int64_t>(1, x[axis]));
  const auto integers = node.known(0), scales = node.known(1),
             zeros = node.has_input(2) ? node.known(2) : nullptr;
  const DType type = integers->desc().dtype;
  if (scales->desc().dtype != DType::f32 || (type != DType::i8 && type != DType::u8)) return std::nullopt;
  bool fits = scales->shape().rank() == rank && x.elements() > 0;
  for (int d = 0; fits && d < rank; ++d)
    fits = scales->shape()[d] == (d == axis ? (x[d] + block - 1) / block : x[d]);
  if (!fits || (zeros != nullptr && !(zeros->desc().dtype == type && zeros->shape() == scales->shape())))
    return std::nullopt;
  const std::span<const float> list = scales->values<float>();
  if (!std::ranges::all_of(list, [](float scale) { return std::isfinite(scale); })) return std::nullopt;
  ValueId q = node.input(0);
  if (type == DType::u8 || zeros != nullptr) {
    Blocks blocks{x[axis], block, 1};
    for (int d = axis + 1; d < rank; ++d) blocks.inner *= x[d];
    std::optional<Tensor> moved = type == DType::u8
                                      ? shifted<std::uint8_t>(node, *integers, zeros.get(), blocks)
                                      : shifted<std::int8_t>(node, *integers, zeros.get(), blocks);
    if (!moved) return std::nullopt;
    q = node.add_computed(std::move(*moved), "integers");
  }
  BlockQuantization attributes{{list.begin(), list.end()}, axis, block};
  return node.emit(std::make_shared<DequantizeBlocks>(std::move(attributes)), {q});
}

// Layers with a scale take these only as they are in the file, one or a list of them.
bool needs_steps(NodeContext& node, Along along) {
  return along.block != 0 || is_computed(node) ||
         (node.input_shape(1).rank() > 1 && node.input_shape(1).elements() != 1);
}

std::vector<ValueId> convert_quantize(NodeContext& node) {
  const Along along = read_along(node);
  node.attributes().ignore({"saturate"});  // says something about 8-bit floats only
  if (const std::int64_t precision = node.attributes().integer("precision", kUndefined);
      precision != kUndefined && precision != kFloat32)
    fail_unsupported("attribute 'precision' is {}; division in float32 is supported", precision);
  const std::int64_t type = node.attributes().integer("output_dtype", kUndefined);
  if (type < 0 || type > std::numeric_limits<std::int32_t>::max())
    fail("attribute 'output_dtype' is {}", type);
  const auto given = static_cast<std::int32_t>(type);
  const DType absent = type == kUndefined ? DType::u8 : container_of(given);
  const bool has_zero = node.has_input(2);
  const DType to = has_zero ? node.desc(node.input(2)).dtype : absent;
  const std::int32_t narrow = has_zero ? node.narrow_type(2) : narrow_integer(given) ? given : 0;
  if (type != kUndefined && (to != absent || (narrow_integer(given) ? given : 0) != narrow))
    fail("attribute 'output_dtype' is {}, but the zero point is {}", dtype_name(absent), dtype_name(to));
  if (to == DType::i32 && narrow == 0) fail("the zero point is i32; expected u8 or i8");
  if (narrow != 0 || needs_steps(node, along))
    return {quantized_in_steps(node, integers_for(to, narrow), along)};
  const AxisQuantization q = read_quantization(node, 1, 2, absent, node.input_shape(0), along.axis);
  return {quantized(node, as_type(node, node.input(0), DType::f32, "x"), q)};
}

std::vector<ValueId> convert_dequantize(NodeContext& node) {
  const Along along = read_along(node);
  if (const std::int64_t type = node.attributes().integer("output_dtype", kUndefined);
      type != kUndefined && type != kFloat32)
    fail_unsupported("attribute 'output_dtype' is {}; float32 is supported", type);
  const TensorDesc& x = node.desc(node.input(0));
  if (const auto blocks = dequantized_blocks(node, along)) return {*blocks};
  const bool wide = node.narrow_type(0) != 0 && x.dtype == DType::i32;
  if (wide || needs_steps(node, along)) return {dequantized_in_steps(node, along)};
  return {dequantized(node, node.input(0), read_quantization(node, 1, 2, x.dtype, x.shape, along.axis))};
}

constexpr Operator kQuantizeOperators[] = {
    {"DequantizeLinear", 10, kLastOpset, 2, 3, convert_dequantize},
    {"QuantizeLinear", 10, kLastOpset, 2, 3, convert_quantize},
    // ONNX Runtime's own, from before ONNX had all their types.
    {"com.microsoft::DequantizeLinear", 1, kLastOpset, 2, 3, convert_dequantize},
    {"com.microsoft::QuantizeLinear", 1, kLastOpset, 2, 3, convert_quantize},
};

}  // namespace

std::span<const Operator> quantize_operators() {
  return kQuantizeOperators;
}

}  // namespace pipit::internal::onnx
