#include "layers/ops/indexing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "layers/common/integer.h"
#include "layers/common/layer_kernel.h"
#include "layers/ops/operands.h"
#include "layers/ops/reshaping.h"
#include "layers/reference/group_loops.h"
#include "layers/reference/index.h"
#include "layers/reference/reference.h"

namespace pipit::internal {

namespace {

// Where element `i` of what the indices name lies in the data.
class NamedPosition {
 public:
  NamedPosition(const IndexedAttributes& attributes, const Shape& data, const ConstTensorView& indices)
      : data_(data), indices_(indices), strides_(indices.desc.strides()) {
    rank_ = indices.desc.shape.rank();
    if (attributes.form == IndexForm::elements) {
      axis_ = normalize_axis(attributes.axis, data.rank(), "GatherIndexed");
    } else {
      batch_ = static_cast<std::size_t>(attributes.batch_dims);
      tuple_ = indices.desc.shape[rank_ - 1];
    }
  }

  Index operator()(const Index& i) const {
    if (axis_ >= 0) {
      Index at = i;
      at[static_cast<std::size_t>(axis_)] =
          gathered_position(indices_, offset_of(i, strides_, rank_), data_[axis_]);
      return at;
    }
    const std::int64_t first = offset_of(i, strides_, rank_ - 1);
    const std::int64_t step = strides_[static_cast<std::size_t>(rank_ - 1)];
    Index at{};
    std::copy_n(i.begin(), batch_, at.begin());
    std::size_t d = batch_;
    for (std::int64_t k = 0; k < tuple_; ++k, ++d)
      at[d] = gathered_position(indices_, first + k * step, data_[static_cast<int>(d)]);
    const auto rest = static_cast<std::size_t>(data_.rank()) - d;
    std::copy_n(i.begin() + rank_ - 1, rest, at.begin() + static_cast<std::ptrdiff_t>(d));
    return at;
  }

 private:
  Shape data_;
  ConstTensorView indices_;
  Strides strides_;
  int rank_ = 0;
  int axis_ = -1;
  std::size_t batch_ = 0;
  std::int64_t tuple_ = 0;
};

void run_gather_indexed(const GatherIndexed& layer, std::span<const ConstTensorView> inputs,
                        std::span<const TensorView> outputs, const RunContext& /*context*/) {
  copy_elements(inputs[0], NamedPosition(layer.attributes(), inputs[0].desc.shape, inputs[1]), outputs[0]);
}

template <typename T>
T reduced_with(ScatterReduction reduction, T old, T update) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(old)) return old;
    if (std::isnan(update)) return update;
  }
  switch (reduction) {
    case ScatterReduction::add:
      if constexpr (std::is_integral_v<T>) return static_cast<T>(wrapping::add(old, update));
      return static_cast<T>(old + update);
    case ScatterReduction::mul:
      if constexpr (std::is_integral_v<T>) return static_cast<T>(wrapping::multiply(old, update));
      return static_cast<T>(old * update);
    case ScatterReduction::min:
      return std::min(old, update);
    case ScatterReduction::max:
      return std::max(old, update);
    case ScatterReduction::none:
      break;
  }
  return update;
}

void run_scatter_indexed(const ScatterIndexed& layer, std::span<const ConstTensorView> inputs,
                         std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const ScatterIndexedAttributes& a = layer.attributes();
  const TensorView& y = outputs[0];
  const Shape& shape = y.desc.shape;
  const ConstTensorView& updates = inputs[2];
  const NamedPosition position(a.indexed, shape, inputs[1]);
  const auto same = [](const Index& i) { return i; };
  copy_elements(inputs[0], same, y);
  if (a.reduction == ScatterReduction::none)
    return copy_elements(updates.desc.shape, updates, same, y, position);
  const Strides to = y.desc.strides();
  const Strides from = updates.desc.strides();
  with_dtype(y.desc.dtype, [&]<typename T>(std::type_identity<T>) {
    for_each_index(updates.desc.shape, [&](const Index& i) {
      T& element = y.as<T>()[offset_of(position(i), to, shape.rank())];
      element =
          reduced_with(a.reduction, element, updates.as<T>()[offset_of(i, from, updates.desc.shape.rank())]);
    });
  });
}

template <typename T>
bool is_above(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  }
  return a > b;
}

void run_top_k(const TopK& layer, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const TopKAttributes& a = layer.attributes();
  const TensorDesc& desc = inputs[0].desc;
  const int axis = normalize_axis(a.axis, desc.shape.rank(), "TopK");
  const auto d = static_cast<std::size_t>(axis);
  const std::array strides{outputs[0].desc.strides(), desc.strides(), outputs[1].desc.strides()};
  const GroupLoops<3> loops = group_loops<3>(desc.shape, axis, axis + 1, strides);
  std::vector<std::int64_t> order(static_cast<std::size_t>(desc.shape[axis]));
  with_dtype(desc.dtype, [&]<typename T>(std::type_identity<T>) {
    loops.groups.for_each([&](const auto& at) {
      const T* x = inputs[0].as<T>() + at[1];
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + a.k, order.end(), [&](std::int64_t i, std::int64_t j) {
        const T u = x[i * strides[1][d]];
        const T v = x[j * strides[1][d]];
        if (is_above(u, v)) return a.largest;
        if (is_above(v, u)) return !a.largest;
        return i < j;
      });
      for (std::int64_t i = 0; i < a.k; ++i) {
        const std::int64_t position = order[static_cast<std::size_t>(i)];
        outputs[0].as<T>()[at[0] + i * strides[0][d]] = x[position * strides[1][d]];
        outputs[1].as<std::int64_t>()[at[2] + i * strides[2][d]] = position;
      }
    });
  });
}

void run_cum_sum(const CumSum& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& /*context*/) {
  const CumSumAttributes& a = layer.attributes();
  const TensorDesc& desc = inputs[0].desc;
  const int axis = normalize_axis(a.axis, desc.shape.rank(), "CumSum");
  const auto d = static_cast<std::size_t>(axis);
  const std::array strides{outputs[0].desc.strides(), desc.strides()};
  const GroupLoops<2> loops = group_loops<2>(desc.shape, axis, axis + 1, strides);
  const std::int64_t extent = desc.shape[axis];
  with_dtype(desc.dtype, [&]<typename T>(std::type_identity<T>) {
    using Sum = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
    loops.groups.for_each([&](const auto& at) {
      Sum sum = 0;
      for (std::int64_t step = 0; step < extent; ++step) {
        const std::int64_t i = a.reverse ? extent - 1 - step : step;
        const auto x = static_cast<Sum>(inputs[0].as<T>()[at[1] + i * strides[1][d]]);
        const Sum before = sum;
        if constexpr (std::is_floating_point_v<T>) {
          sum += x;
        } else {
          sum = wrapping::add(sum, x);
        }
        outputs[0].as<T>()[at[0] + i * strides[0][d]] = static_cast<T>(a.exclusive ? before : sum);
      }
    });
  });
}

}  // namespace

void register_reference_indexing(Registry& registry) {
  add_layer_kernel<GatherIndexed>(registry, kReference, refuse_reduced_precision, run_gather_indexed);
  add_layer_kernel<ScatterIndexed>(registry, kReference, refuse_reduced_precision, run_scatter_indexed);
  add_layer_kernel<TopK>(registry, kReference, refuse_reduced_precision, run_top_k);
  add_layer_kernel<CumSum>(registry, kReference, refuse_reduced_precision, run_cum_sum);
}

}  // namespace pipit::internal
