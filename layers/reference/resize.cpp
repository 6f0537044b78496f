#include "layers/ops/resize.h"

#include <cstring>
#include <vector>

#include "layers/common/layer_kernel.h"
#include "layers/ops/operands.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

using Index = std::array<std::int64_t, kMaxRank>;

Index unravel(std::int64_t flat, const Shape& shape) {
  Index index{};
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[static_cast<std::size_t>(axis)] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

std::int64_t offset(const Index& index, const Strides& strides, int rank) {
  std::int64_t sum = 0;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis)
    sum += index[axis] * strides[axis];
  return sum;
}

// Calls body(input index, output offset) for every output element.
template <typename Body>
void for_each_output(const TensorDesc& output, ThreadPool& pool, Body&& body) {
  const Strides strides = output.strides();
  pool.parallel_for(output.elements(), [&](std::int64_t flat, int) {
    const Index index = unravel(flat, output.shape);
    body(index, offset(index, strides, output.shape.rank()));
  });
}

void nearest(const ResizeAttributes& a, const ConstTensorView& x, const TensorView& y, ThreadPool& pool) {
  const Strides strides = x.desc.strides();
  const std::size_t bytes = dtype_bytes(x.desc.dtype);
  for_each_output(y.desc, pool, [&](const Index& index, std::int64_t to) {
    Index from{};
    for (int axis = 0; axis < a.rank; ++axis) {
      const auto d = static_cast<std::size_t>(axis);
      from[d] = resizes_axis(a, axis, x.desc.shape[axis])
                    ? nearest_position(a, axis, index[d], x.desc.shape[axis], y.desc.shape[axis])
                    : index[d];
    }
    std::memcpy(y.data + static_cast<std::size_t>(to) * bytes,
                x.data + static_cast<std::size_t>(offset(from, strides, a.rank)) * bytes, bytes);
  });
}

template <typename T>
void linear(const ResizeAttributes& a, const ConstTensorView& x, const TensorView& y, ThreadPool& pool) {
  const Strides strides = x.desc.strides();
  const T* input = x.as<T>();
  T* output = y.as<T>();
  for_each_output(y.desc, pool, [&](const Index& index, std::int64_t to) {
    std::array<LinearTap, kMaxRank> taps;
    for (int axis = 0; axis < a.rank; ++axis) {
      const auto d = static_cast<std::size_t>(axis);
      const float at = source_coordinate(a, axis, index[d], x.desc.shape[axis], y.desc.shape[axis]);
      taps[d] = resizes_axis(a, axis, x.desc.shape[axis]) ? linear_tap(at, x.desc.shape[axis])
                                                          : LinearTap{index[d], index[d], 0};
    }
    double sum = 0;
    for (unsigned corner = 0; corner < 1U << a.rank; ++corner) {
      double weight = 1;
      std::int64_t from = 0;
      for (std::size_t d = 0; d < static_cast<std::size_t>(a.rank); ++d) {
        const bool high = ((corner >> d) & 1U) != 0;
        weight *= high ? static_cast<double>(taps[d].weight) : 1 - static_cast<double>(taps[d].weight);
        from += (high ? taps[d].high : taps[d].low) * strides[d];
      }
      if (weight != 0) sum += weight * input[from];
    }
    output[to] = static_cast<T>(sum);
  });
}

template <typename T>
void filtered(const ResizeAttributes& a, const ConstTensorView& x, const TensorView& y, ThreadPool& pool) {
  const Strides strides = x.desc.strides();
  const T* input = x.as<T>();
  T* output = y.as<T>();
  std::array<std::vector<ResizeTaps>, kMaxRank> all;
  for (int axis = 0; axis < a.rank; ++axis) {
    for (std::int64_t i = 0; i < y.desc.shape[axis]; ++i) {
      all[static_cast<std::size_t>(axis)].push_back(
          resize_taps(a, axis, i, x.desc.shape[axis], y.desc.shape[axis]));
    }
  }
  for_each_output(y.desc, pool, [&](const Index& index, std::int64_t to) {
    std::array<const ResizeTaps*, kMaxRank> taps{};
    std::int64_t count = 1;
    for (std::size_t d = 0; d < static_cast<std::size_t>(a.rank); ++d) {
      taps[d] = &all[d][static_cast<std::size_t>(index[d])];
      count *= std::ssize(taps[d]->weights);
    }
    double sum = 0;
    for (std::int64_t tap = 0; tap < count; ++tap) {
      double weight = 1;
      std::int64_t from = 0;
      std::int64_t rest = tap;
      for (std::size_t d = 0; d < static_cast<std::size_t>(a.rank); ++d) {
        const std::int64_t which = rest % std::ssize(taps[d]->weights);
        rest /= std::ssize(taps[d]->weights);
        weight *= taps[d]->weights[static_cast<std::size_t>(which)];
        from += (taps[d]->first + which) * strides[d];
      }
      if (weight != 0) sum += weight * input[from];
    }
    output[to] = static_cast<T>(sum);
  });
}

void run_resize(const Resize& layer, std::span<const ConstTensorView> inputs,
                std::span<const TensorView> outputs, const RunContext& context) {
  const ResizeAttributes& a = layer.attributes();
  if (a.mode == ResizeMode::nearest) {
    nearest(a, inputs[0], outputs[0], context.pool);
  } else if (is_filtered(a) && inputs[0].desc.dtype == DType::f64) {
    filtered<double>(a, inputs[0], outputs[0], context.pool);
  } else if (is_filtered(a)) {
    filtered<float>(a, inputs[0], outputs[0], context.pool);
  } else if (inputs[0].desc.dtype == DType::f64) {
    linear<double>(a, inputs[0], outputs[0], context.pool);
  } else {
    linear<float>(a, inputs[0], outputs[0], context.pool);
  }
}

}  // namespace

void register_reference_resize(Registry& registry) {
  add_layer_kernel<Resize>(registry, kReference, refuse_reduced_precision, run_resize);
}

}  // namespace pipit::internal
