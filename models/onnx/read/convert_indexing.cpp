// Operators that choose positions: TopK, GatherElements, GatherND, Scatter*, CumSum, OneHot, Trilu, Hardmax,
// ReverseSequence, MaxUnpool, Col2Im; and those whose results have as many elements as data says.
#include "layers/ops/indexing.h"

#include <numeric>

#include "layers/common/dispatch.h"
#include "layers/ops/operands.h"
#include "layers/ops/reshaping.h"
#include "layers/ops/slicing.h"
#include "models/onnx/read/operators.h"
#include "models/onnx/read/steps.h"

namespace pipit::internal::onnx {

namespace {

std::vector<ValueId> emit_top_k(NodeContext& node, std::int64_t k) {
  TopKAttributes attributes{.axis = node.attributes().integer("axis", -1), .k = k};
  attributes.largest = node.attributes().flag("largest", true);
  node.attributes().flag("sorted", true);  // sorted is one of the orders that are allowed without it
  return node.emit_all(std::make_shared<TopK>(attributes), {node.input(0)});
}

std::vector<ValueId> convert_top_k_of_attribute(NodeContext& node) {
  return emit_top_k(node, node.attributes().required_integer("k"));
}

std::vector<ValueId> convert_top_k(NodeContext& node) {
  const std::vector<std::int64_t> k = node.constant_integers(1, "k");
  if (k.size() != 1) fail("k has {} numbers, expected one", k.size());
  return emit_top_k(node, k[0]);
}

IndexedAttributes elements_along(NodeContext& node) {
  return {IndexForm::elements, node.attributes().integer("axis", 0), 0};
}

std::vector<ValueId> convert_gather_elements(NodeContext& node) {
  return {node.emit<GatherIndexed>({node.input(0), node.input(1)}, elements_along(node))};
}

std::vector<ValueId> convert_gather_nd(NodeContext& node) {
  const IndexedAttributes attributes{IndexForm::tuples, 0, node.attributes().integer("batch_dims", 0)};
  return {node.emit<GatherIndexed>({node.input(0), node.input(1)}, attributes)};
}

ScatterReduction read_reduction(NodeContext& node) {
  const std::string reduction = node.attributes().text("reduction", "none");
  if (reduction == "none") return ScatterReduction::none;
  if (reduction == "add") return ScatterReduction::add;
  if (reduction == "mul") return ScatterReduction::mul;
  if (reduction == "min") return ScatterReduction::min;
  if (reduction == "max") return ScatterReduction::max;
  fail("attribute 'reduction' is '{}', expected none, add, mul, min or max", reduction);
}

std::vector<ValueId> emit_scatter(NodeContext& node, const IndexedAttributes& indexed) {
  return {node.emit<ScatterIndexed>({node.input(0), node.input(1), node.input(2)},
                                    ScatterIndexedAttributes{indexed, read_reduction(node)})};
}

std::vector<ValueId> convert_scatter_elements(NodeContext& node) {
  return emit_scatter(node, elements_along(node));
}

std::vector<ValueId> convert_scatter_nd(NodeContext& node) {
  return emit_scatter(node, {IndexForm::tuples, 0, 0});
}

std::vector<ValueId> convert_cum_sum(NodeContext& node) {
  const std::vector<std::int64_t> axis = node.constant_integers(1, "axis");
  if (axis.size() != 1) fail("axis has {} numbers, expected one", axis.size());
  CumSumAttributes attributes{.axis = axis[0]};
  attributes.exclusive = node.attributes().flag("exclusive", false);
  attributes.reverse = node.attributes().flag("reverse", false);
  return {node.emit<CumSum>({node.input(0)}, attributes)};
}

// on where the position is the index or the index plus the depth, off elsewhere.
std::vector<ValueId> convert_one_hot(NodeContext& node) {
  Steps steps(node);
  const Shape& shape = node.input_shape(0);
  const double asked = node.constant_number(1, "depth");
  if (!(asked >= 1 && asked <= 1e9)) fail("depth is {}", asked);
  const auto depth = static_cast<std::int64_t>(asked);
  const int rank = shape.rank() + 1;
  if (rank > kMaxRank) fail_unsupported("{} dimensions; at most {} are supported", rank, kMaxRank);
  const int axis = normalize_axis(node.attributes().integer("axis", -1), rank, "OneHot");
  if (!(node.input_shape(2) == Shape{2}))
    fail("values are {}, expected off and on", node.input_shape(2).str());
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims.insert(dims.begin() + axis, 1);
  const ValueId index = steps.reshape(steps.cast(node.input(0), DType::i64), Shape(dims));
  const ValueId from_start = steps.binary(BinaryKind::equal, index, steps.iota(depth, axis, rank));
  const ValueId from_end = steps.binary(BinaryKind::equal, index, steps.iota(depth, axis, rank, -depth));
  const ValueId hot = steps.binary(BinaryKind::logical_or, from_start, from_end);
  const ValueId off = steps.reshape(steps.slice(node.input(2), 0, 0, 1), Shape{});
  const ValueId on = steps.reshape(steps.slice(node.input(2), 0, 1, 2), Shape{});
  return {node.emit<Where>({hot, on, off})};
}

std::vector<ValueId> convert_trilu(NodeContext& node) {
  Steps steps(node);
  const Shape& shape = node.input_shape(0);
  if (shape.rank() < 2) fail("input {} is no matrix", shape.str());
  const bool upper = node.attributes().flag("upper", true);
  const double diagonal = node.has_input(1) ? node.constant_number(1, "k") : 0;
  const std::int64_t columns = shape[shape.rank() - 1];
  Tensor kept = node.allocate(TensorDesc{Shape{shape[shape.rank() - 2], columns}, DType::boolean});
  std::int64_t at = 0;
  for (bool& keep : kept.values<bool>()) {
    const std::int64_t row = at / columns;
    const auto beyond = static_cast<double>(at % columns - row) - diagonal;
    keep = upper ? beyond >= 0 : beyond <= 0;
    ++at;
  }
  return {node.emit<Where>(
      {steps.constant(std::move(kept)), node.input(0), steps.number(steps.dtype(node.input(0)), 0)})};
}

// 1 at the first of the largest elements, 0 elsewhere.
std::vector<ValueId> convert_hardmax(NodeContext& node) {
  Steps steps(node);
  const bool flattens = node.opset() < 13;
  const Shape shape = node.input_shape(0);
  int axis = normalize_axis(node.attributes().integer("axis", flattens ? 1 : -1), shape.rank(), "Hardmax");
  ValueId x = node.input(0);
  if (flattens) {
    const auto split = static_cast<std::size_t>(axis);
    x = steps.reshape(
        x, Shape{Shape(shape.dims().first(split)).elements(), Shape(shape.dims().subspan(split)).elements()});
    axis = 1;
  }
  const Shape groups = steps.shape(x);
  if (groups[axis] == 0) return {node.input(0)};
  const ValueId best = steps.add<ArgMax>({x}, ArgMaxAttributes{.axis = axis});
  const ValueId hot = steps.binary(BinaryKind::equal, best, steps.iota(groups[axis], axis, groups.rank()));
  return {steps.reshape(steps.cast(hot, steps.dtype(x)), shape)};
}

// Position t of a sequence is length - 1 - t, and itself after the end.
std::vector<ValueId> convert_reverse_sequence(NodeContext& node) {
  Steps steps(node);
  const Shape& shape = node.input_shape(0);
  const int batch =
      normalize_axis(node.attributes().integer("batch_axis", 1), shape.rank(), "ReverseSequence");
  const int time = normalize_axis(node.attributes().integer("time_axis", 0), shape.rank(), "ReverseSequence");
  if (batch == time) fail("batch_axis and time_axis are both {}", batch);
  const std::int64_t samples = shape[batch];
  const std::int64_t length = shape[time];
  if (!(node.input_shape(1) == Shape{samples}))
    fail("sequence_lens is {}, expected {}", node.input_shape(1).str(), samples);
  std::vector<std::int64_t> order{batch, time};
  for (int d = 0; d < shape.rank(); ++d) {
    if (d != batch && d != time) order.push_back(d);
  }
  std::vector<std::int64_t> back(order.size());
  for (std::size_t d = 0; d < order.size(); ++d)
    back[static_cast<std::size_t>(order[d])] = static_cast<std::int64_t>(d);
  const ValueId lengths = steps.reshape(steps.cast(node.input(1), DType::i64), Shape{samples, 1});
  const ValueId position = steps.iota(length, 1, 2);
  const ValueId mirrored = steps.binary(
      BinaryKind::sub, steps.binary(BinaryKind::sub, lengths, steps.number(DType::i64, 1)), position);
  ValueId source = steps.where(steps.binary(BinaryKind::less, position, lengths), mirrored, position);
  source = steps.reshape(source, Shape{samples, length, 1});
  const ValueId reversed = steps.add<GatherIndexed>({steps.transpose(node.input(0), order), source},
                                                    IndexedAttributes{IndexForm::tuples, 0, 1});
  return {steps.transpose(reversed, back)};
}

// Per spatial dimension, as windows have them.
struct SpatialAttributes {
  std::vector<std::int64_t> dilations, strides, begin, end;
};

SpatialAttributes read_spatial(NodeContext& node, std::size_t rank, bool dilated) {
  const auto list = [&](const char* name, std::size_t count, std::int64_t fallback, std::int64_t low) {
    auto values = node.attributes().integers(name).value_or(std::vector<std::int64_t>(count, fallback));
    if (values.size() != count)
      fail("attribute '{}' has {} numbers, expected {}", name, values.size(), count);
    for (const std::int64_t value : values) {
      if (value < low || value > (1 << 30)) fail("attribute '{}' has {}", name, value);
    }
    return values;
  };
  SpatialAttributes spatial;
  spatial.dilations = dilated ? list("dilations", rank, 1, 1) : std::vector<std::int64_t>(rank, 1);
  spatial.strides = list("strides", rank, 1, 1);
  const std::vector<std::int64_t> pads = list("pads", 2 * rank, 0, 0);
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(rank);
  spatial.begin.assign(pads.begin(), middle);
  spatial.end.assign(middle, pads.end());
  return spatial;
}

// Every value goes to the element that its index names, counted over the whole output; others are 0.
std::vector<ValueId> convert_max_unpool(NodeContext& node) {
  Steps steps(node);
  const Shape& shape = node.input_shape(0);
  const auto kernel = node.attributes().integers("kernel_shape");
  if (shape.rank() < 3) fail("input {} has no spatial dimensions", shape.str());
  const auto rank = static_cast<std::size_t>(shape.rank() - 2);
  if (!kernel || kernel->size() != rank) fail("attribute 'kernel_shape' does not fit input {}", shape.str());
  const SpatialAttributes spatial = read_spatial(node, rank, false);
  std::vector<std::int64_t> dims{shape[0], shape[1]};
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t steps_before = shape[static_cast<int>(d) + 2] - 1;
    const std::int64_t reach =
        checked_add(checked_mul(steps_before, spatial.strides[d], "MaxUnpool"), (*kernel)[d], "MaxUnpool");
    dims.push_back(reach - spatial.begin[d] - spatial.end[d]);
  }
  const Shape inferred(dims);
  const std::int64_t count = shape.elements();
  const ValueId zeros = steps.number(steps.dtype(node.input(0)), 0, Shape{inferred.elements()});
  const ValueId indices = steps.reshape(node.input(1), Shape{count, 1});
  ValueId y =
      steps.add<ScatterIndexed>({zeros, indices, steps.reshape(node.input(0), Shape{count})},
                                ScatterIndexedAttributes{{IndexForm::tuples, 0, 0}, ScatterReduction::none});
  y = steps.reshape(y, inferred);
  if (!node.has_input(2)) return {y};
  const std::vector<std::int64_t> asked = node.constant_integers(2, "output_shape");
  if (asked.size() != dims.size())
    fail("output_shape has {} dimensions, input {}", asked.size(), shape.str());
  PadAttributes more;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    more.begin.push_back(0);
    more.end.push_back(asked[d] - dims[d]);
    if (more.end.back() < 0)
      fail("output_shape {} in dimension {}, but {} is unpooled", asked[d], d, inferred.str());
  }
  return {steps.add<Pad>({y}, std::move(more))};
}

// Extents of the padded image, and how many blocks it has along each dimension.
struct BlockGrid {
  std::vector<std::int64_t> image;
  std::vector<std::int64_t> blocks;
};

// Adds the elements of blocks up where they overlap: sums into a padded image, of which the padding is cut off.
std::vector<ValueId> convert_col2im(NodeContext& node) {
  Steps steps(node);
  const Shape shape = node.input_shape(0);
  const std::vector<std::int64_t> image = node.constant_integers(1, "image_shape");
  const std::vector<std::int64_t> block = node.constant_integers(2, "block_shape");
  const std::size_t rank = image.size();
  if (shape.rank() != 3 || block.size() != rank || rank == 0 || rank + 2 > kMaxRank)
    fail("input {}, {} dimensions of the image and {} of a block", shape.str(), rank, block.size());
  const SpatialAttributes spatial = read_spatial(node, rank, true);
  BlockGrid grid;
  for (std::size_t d = 0; d < rank; ++d) {
    if (image[d] < 1 || block[d] < 1 || image[d] > (1 << 30) || block[d] > (1 << 30))
      fail("image extent {} and block extent {} in dimension {}", image[d], block[d], d);
    grid.image.push_back(image[d] + spatial.begin[d] + spatial.end[d]);
    const std::int64_t room = grid.image[d] - checked_mul(spatial.dilations[d], block[d] - 1, "Col2Im") - 1;
    if (room < 0) fail("a block reaches beyond the image in dimension {}", d);
    grid.blocks.push_back(room / spatial.strides[d] + 1);
  }
  const Shape padded(grid.image);
  const Shape blocks(grid.blocks);
  const Shape taps(block);
  const std::int64_t channels = taps.elements() == 0 ? 0 : shape[1] / taps.elements();
  if (channels * taps.elements() != shape[1] || blocks.elements() != shape[2])
    fail("input {}: expected [N, C x {}, {}]", shape.str(), taps.elements(), blocks.elements());
  Tensor positions = node.allocate(TensorDesc{Shape{shape[2] * taps.elements(), 1}, DType::i64});
  std::int64_t i = 0;
  for (std::int64_t& position : positions.values<std::int64_t>()) {
    std::int64_t tap = i / shape[2];
    std::int64_t at = i % shape[2];
    ++i;
    position = 0;
    std::int64_t step = 1;
    for (std::size_t d = rank; d-- > 0;) {
      position += step * (at % grid.blocks[d] * spatial.strides[d] + tap % block[d] * spatial.dilations[d]);
      step *= grid.image[d];
      at /= grid.blocks[d];
      tap /= block[d];
    }
  }
  const std::int64_t planes = shape[0] * channels;
  const ValueId columns =
      steps.transpose(steps.reshape(node.input(0), Shape{planes, taps.elements() * shape[2]}), {1, 0});
  const ValueId zeros = steps.number(steps.dtype(node.input(0)), 0, Shape{padded.elements(), planes});
  ValueId y =
      steps.add<ScatterIndexed>({zeros, steps.constant(std::move(positions)), columns},
                                ScatterIndexedAttributes{{IndexForm::tuples, 0, 0}, ScatterReduction::add});
  std::vector<std::int64_t> dims{shape[0], channels};
  dims.insert(dims.end(), grid.image.begin(), grid.image.end());
  y = steps.reshape(steps.transpose(y, {1, 0}), Shape(dims));
  for (std::size_t d = 0; d < rank; ++d)
    y = steps.slice(y, static_cast<int>(d) + 2, spatial.begin[d], spatial.begin[d] + image[d]);
  return {y};
}

[[noreturn]] void refuse_open_extents(NodeContext& node, int input) {
  fail_unsupported(
      "how many elements the result has depends on the values of '{}', which are computed at run time",
      node.value(node.input(input)).name);
}

// The positions of what is not 0, [rank, count].
std::vector<ValueId> convert_non_zero(NodeContext& node) {
  const auto x = node.known(0);
  if (x == nullptr) refuse_open_extents(node, 0);
  const Shape& shape = x->shape();
  std::vector<std::int64_t> found;
  with_dtype(x->desc().dtype, [&]<typename T>(std::type_identity<T>) {
    std::int64_t i = 0;
    for (const T value : x->values<T>()) {
      if (value != T{}) found.push_back(i);
      ++i;
    }
  });
  const auto count = static_cast<std::int64_t>(found.size());
  Tensor y = node.allocate(TensorDesc{Shape{shape.rank(), count}, DType::i64});
  std::int64_t step = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    std::int64_t* row = y.values<std::int64_t>().data() + d * count;
    for (std::int64_t i = 0; i < count; ++i) row[i] = found[static_cast<std::size_t>(i)] / step % shape[d];
    step *= shape[d];
  }
  return {node.add_constant(std::move(y))};
}

// What a condition that is known keeps along an axis, or of all elements.
std::vector<ValueId> convert_compress(NodeContext& node) {
  Steps steps(node);
  const auto condition = node.known(1);
  if (condition == nullptr) refuse_open_extents(node, 1);
  if (condition->desc().dtype != DType::boolean || condition->shape().rank() != 1)
    fail("condition is {}, expected a list of bool", condition->desc().str());
  const bool flat = !node.attributes().has("axis");
  const Shape& shape = node.input_shape(0);
  const ValueId x = flat ? steps.reshape(node.input(0), Shape{shape.elements()}) : node.input(0);
  const int axis = flat ? 0 : normalize_axis(node.attributes().integer("axis", 0), shape.rank(), "Compress");
  std::vector<std::int64_t> kept;
  for (std::int64_t i = 0; i < condition->shape()[0]; ++i) {
    if (condition->values<bool>()[static_cast<std::size_t>(i)]) kept.push_back(i);
  }
  if (!kept.empty() && kept.back() >= steps.shape(x)[axis])
    fail("condition has {} elements for {} along axis {}", condition->shape()[0], steps.shape(x).str(), axis);
  const Shape count{static_cast<std::int64_t>(kept.size())};
  const ValueId positions = steps.constant(Tensor::from<std::int64_t>(count, kept));
  return {node.emit<Gather>({x, positions}, GatherAttributes{axis})};
}

std::vector<ValueId> convert_open_extents(NodeContext& node) {
  refuse_open_extents(node, 0);
}

constexpr Operator kIndexingOperators[] = {
    {"Col2Im", 18, kLastOpset, 3, 3, convert_col2im},
    {"Compress", 9, kLastOpset, 2, 2, convert_compress},
    {"CumSum", 11, kLastOpset, 2, 2, convert_cum_sum},
    {"GatherElements", 11, kLastOpset, 2, 2, convert_gather_elements},
    {"GatherND", 11, kLastOpset, 2, 2, convert_gather_nd},
    {"Hardmax", 1, kLastOpset, 1, 1, convert_hardmax},
    {"MaxUnpool", 9, kLastOpset, 2, 3, convert_max_unpool},
    {"NonMaxSuppression", 10, kLastOpset, 2, 5, convert_open_extents},
    {"NonZero", 9, kLastOpset, 1, 1, convert_non_zero},
    {"OneHot", 9, kLastOpset, 3, 3, convert_one_hot},
    {"ReverseSequence", 10, kLastOpset, 2, 2, convert_reverse_sequence},
    {"Scatter", 9, 10, 3, 3, convert_scatter_elements},
    {"ScatterElements", 11, kLastOpset, 3, 3, convert_scatter_elements},
    {"ScatterND", 11, kLastOpset, 3, 3, convert_scatter_nd},
    {"TopK", 1, 9, 1, 1, convert_top_k_of_attribute},
    {"TopK", 10, kLastOpset, 2, 2, convert_top_k},
    {"Trilu", 14, kLastOpset, 1, 2, convert_trilu},
    {"Unique", 11, kLastOpset, 1, 1, convert_open_extents},
};

}  // namespace

std::span<const Operator> indexing_operators() {
  return kIndexingOperators;
}

}  // namespace pipit::internal::onnx
