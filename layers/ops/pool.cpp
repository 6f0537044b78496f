#include "layers/ops/pool.h"

#include "layers/ops/inference_checks.h"
#include "layers/ops/samples.h"

namespace pipit::internal {

namespace {

const char* kind_name(PoolKind kind) {
  switch (kind) {
    case PoolKind::max:
      return "max";
    case PoolKind::average:
      return "average";
    case PoolKind::lp:
      return "lp";
  }
  return "?";
}

}  // namespace

Pool::Pool(PoolAttributes attributes) : LayerOf(attributes) {
  if (attributes_.indices && attributes_.kind != PoolKind::max) {
    fail("Pool: indices are defined for max pooling only, not for {}", kind_name(attributes_.kind));
  }
  if (attributes_.kind == PoolKind::lp && attributes_.p < 1) {
    fail("Pool: norm of order {}; expected at least 1", attributes_.p);
  }
  if (attributes_.global) return;
  const Window& window = attributes_.window;
  check_window(window, "Pool");
  for (int axis = 0; axis < window.rank; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (window.pad_begin[i] >= window.span(axis) || window.pad_end[i] >= window.span(axis)) {
      fail("Pool: padding {} and {} along spatial dimension {} leaves windows of span {} without any input",
           window.pad_begin[i], window.pad_end[i], axis, window.span(axis));
    }
  }
}

Window pool_window(const PoolAttributes& attributes, const Shape& input) {
  if (!attributes.global) return attributes.window;
  Window window;
  window.rank = input.rank() - 2;
  if (window.rank < 1 || window.rank > kMaxSpatial) {
    fail("Pool: global pooling of {}: 1 to {} spatial dimensions are supported", input.str(), kMaxSpatial);
  }
  for (int axis = 0; axis < window.rank; ++axis) {
    window.kernel[static_cast<std::size_t>(axis)] = input[axis + 2];
  }
  check_window(window, "Pool");
  return window;
}

std::int64_t average_divisor(const Window& window, bool count_include_pad,
                             const std::array<std::int64_t, kMaxSpatial>& output,
                             const std::array<std::int64_t, kMaxSpatial>& input_extent) {
  Window counted = window;
  std::int64_t divisor = 1;
  for (std::size_t axis = 0; axis < kMaxSpatial; ++axis) {
    std::int64_t extent = input_extent[axis];
    if (count_include_pad) {
      // In coordinates of the padded input the window starts at output * stride.
      counted.pad_begin[axis] = 0;
      extent += window.pad_begin[axis] + window.pad_end[axis];
    }
    divisor *= taps_inside(counted, static_cast<int>(axis), output[axis], extent).count();
  }
  return divisor;
}

std::vector<TensorDesc> Pool::infer(std::span<const TensorDesc* const> inputs) const {
  check_inputs(inputs, kType, 1);
  const TensorDesc& x = *inputs[0];
  const bool small_integer = x.dtype == DType::i8 || x.dtype == DType::u8;
  if (!(attributes_.kind == PoolKind::max && small_integer)) check_float(x, kType, "x");
  const Window window = pool_window(attributes_, x.shape);
  const std::int64_t channels = x.shape.rank() > 1 ? x.shape[1] : 0;
  std::vector<TensorDesc> outputs{
      {window_output_shape(window, x.shape, channels), x.dtype, Layout::row_major}};
  if (attributes_.indices) outputs.push_back({outputs[0].shape, DType::i64, Layout::row_major});
  return outputs;
}

bool Pool::is_batch_independent(const SampledInputs& inputs) const {
  return sampled_exactly(inputs, {0}) && !attributes_.indices;  // these count through the whole batch
}

Work Pool::work(std::span<const TensorDesc* const> inputs, std::span<const TensorDesc> /*outputs*/) const {
  return {0, window_read_share(pool_window(attributes_, inputs[0]->shape), inputs[0]->shape)};
}

std::string Pool::summary() const {
  std::string text = attributes_.global ? "global " : "";
  text += kind_name(attributes_.kind);
  if (!attributes_.global) text += " " + attributes_.window.str();
  return text;
}

}  // namespace pipit::internal
