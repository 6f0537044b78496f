#include "layers/ops/reduce.h"

#include <fmt/format.h>

#include "layers/ops/operands.h"
#include "layers/ops/samples.h"
#include "layers/ops/window.h"

namespace pipit::internal {

namespace {

// `shape` with the marked dimensions as 1 or left out.
Shape reduced_shape(const Shape& shape, const std::array<bool, kMaxRank>& reduced, bool keep_dims) {
  std::array<std::int64_t, kMaxRank> dims{};
  std::size_t rank = 0;
  for (int d = 0; d < shape.rank(); ++d) {
    const bool drop = reduced[static_cast<std::size_t>(d)];
    if (!drop) dims[rank++] = shape[d];
    if (drop && keep_dims) dims[rank++] = 1;
  }
  return Shape(std::span(dims.data(), rank));
}

bool needs_floats(ReduceKind kind) {
  return kind == ReduceKind::l2 || kind == ReduceKind::log_sum || kind == ReduceKind::log_sum_exp;
}

}  // namespace

std::string_view reduce_name(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum:
      return "sum";
    case ReduceKind::mean:
      return "mean";
    case ReduceKind::max:
      return "max";
    case ReduceKind::min:
      return "min";
    case ReduceKind::prod:
      return "prod";
    case ReduceKind::l1:
      return "l1";
    case ReduceKind::l2:
      return "l2";
    case ReduceKind::sum_square:
      return "sum_square";
    case ReduceKind::log_sum:
      return "log_sum";
    case ReduceKind::log_sum_exp:
      return "log_sum_exp";
  }
  return "?";
}

std::array<bool, kMaxRank> reduced_dims(const ReduceAttributes& attributes, const Shape& input) {
  std::array<bool, kMaxRank> reduced{};
  if (attributes.axes.empty()) {
    for (int d = 0; d < input.rank(); ++d) reduced[static_cast<std::size_t>(d)] = true;
  }
  for (const std::int64_t axis : attributes.axes) {
    bool& mark = reduced[static_cast<std::size_t>(normalize_axis(axis, input.rank(), "Reduce"))];
    if (mark) fail("Reduce: axis {} is given twice", axis);
    mark = true;
  }
  return reduced;
}

std::vector<TensorDesc> Reduce::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  const ReduceKind kind = attributes_.kind;
  const bool order_only = kind == ReduceKind::max || kind == ReduceKind::min;
  if ((x.dtype == DType::boolean && !order_only) || (needs_floats(kind) && !is_floating(x.dtype))) {
    fail_unsupported("Reduce {}: not supported on {}; cast to f32 first", reduce_name(kind),
                     dtype_name(x.dtype));
  }
  const auto reduced = reduced_dims(attributes_, x.shape);
  const Shape shape = reduced_shape(x.shape, reduced, attributes_.keep_dims);
  const bool has_neutral = is_floating(x.dtype) || (!order_only && kind != ReduceKind::mean);
  if (x.elements() == 0 && shape.elements() > 0 && !has_neutral) {
    fail("Reduce {}: {} has no elements to reduce", reduce_name(kind), x.str());
  }
  return {{shape, x.dtype}};
}

bool Reduce::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && !reduced_dims(attributes_, inputs.descs[0]->shape)[0];
}

LayoutPreference Reduce::layout_preference() const {
  return attributes_.keep_dims ? LayoutPreference::any : LayoutPreference::row_major;
}

bool is_spatial_mean(const Reduce& layer, const Shape& x) {
  if (layer.attributes().kind != ReduceKind::mean) return false;
  if (x.rank() < 3 || x.rank() > 2 + kMaxSpatial || x.elements() == 0) return false;
  const auto reduced = reduced_dims(layer.attributes(), x);
  for (int d = 0; d < x.rank(); ++d) {
    if (reduced[static_cast<std::size_t>(d)] != (d >= 2)) return false;
  }
  return true;
}

std::string Reduce::summary() const {
  if (attributes_.axes.empty()) return fmt::format("{} of all", reduce_name(attributes_.kind));
  return fmt::format("{} axes {}", reduce_name(attributes_.kind), fmt::join(attributes_.axes, ","));
}

std::vector<TensorDesc> ArgMax::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  if (x.dtype == DType::boolean) fail("ArgMax: not defined on bool");
  std::array<bool, kMaxRank> reduced{};
  const int axis = normalize_axis(attributes_.axis, x.shape.rank(), "ArgMax");
  reduced[static_cast<std::size_t>(axis)] = true;
  const Shape shape = reduced_shape(x.shape, reduced, attributes_.keep_dims);
  if (x.shape[axis] == 0 && shape.elements() > 0) {
    fail("ArgMax: dimension {} of {} has no elements to choose from", axis, x.str());
  }
  return {{shape, DType::i64}};
}

bool ArgMax::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) &&
         normalize_axis(attributes_.axis, inputs.descs[0]->shape.rank(), "ArgMax") > 0;
}

std::string ArgMax::summary() const {
  return fmt::format("{} axis {}", attributes_.minimum ? "min" : "max", attributes_.axis);
}

}  // namespace pipit::internal
