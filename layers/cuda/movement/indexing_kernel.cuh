// GatherIndexed and ScatterIndexed: elements at positions that are data.
#pragma once

#include "layers/cuda/device/faults.cuh"
#include "layers/cuda/device/operands.cuh"
#include "layers/ops/indexing.h"

namespace pipit::internal::cuda {

/// Maps points (elements of the gathered output, or of the updates) to elements of row-major data.
struct NamedElements {
  unsigned points = 0;
  int count = 1;  ///< indices of a point
  int extent[kMaxRank] = {}, stride[kMaxRank] = {};
  bool tuples = false;
  DeviceLoop<2> others;  ///< of elements: points, and where the other positions lie in the data
  Divisor inside;        ///< of tuples: elements that one tuple names
  Divisor of_batch;      ///< tuples of an entry of the dimensions that are shared
  int batch_stride = 0;
  /// From one point to the next that may name the same element.
  unsigned step = 1;

  NamedElements(const IndexedAttributes& attributes, const Shape& data, const Shape& indices)
      : others(StridedLoop<2>()) {
    const Strides strides = TensorDesc{data}.strides();
    const auto at_least_1 = [](std::int64_t n) {
      return static_cast<unsigned>(std::max<std::int64_t>(n, 1));
    };
    tuples = attributes.form == IndexForm::tuples;
    if (!tuples) {
      const int axis = normalize_axis(attributes.axis, data.rank(), "GatherIndexed");
      const Strides of_point = TensorDesc{indices}.strides();
      StridedLoop<2> loop;
      for (int d = 0; d < data.rank(); ++d) {
        const auto u = static_cast<std::size_t>(d);
        loop.add(indices[d], {of_point[u], d == axis ? 0 : strides[u]});
      }
      loop.collapse();
      others = DeviceLoop<2>(loop);
      extent[0] = static_cast<int>(data[axis]);
      stride[0] = static_cast<int>(strides[static_cast<std::size_t>(axis)]);
      step = at_least_1(of_point[static_cast<std::size_t>(axis)]);
      points = static_cast<unsigned>(indices.elements());
      return;
    }
    const auto batch = static_cast<int>(attributes.batch_dims);
    count = static_cast<int>(indices[indices.rank() - 1]);
    std::int64_t inner = 1, shared = 1, all = 1, rows = 1;
    for (int d = 0; d < data.rank(); ++d) {
      all *= data[d];
      if (d < batch) shared *= data[d];
      if (d >= batch + count) inner *= data[d];
      if (d < batch || d >= batch + count) continue;
      extent[d - batch] = static_cast<int>(data[d]);
      stride[d - batch] = static_cast<int>(strides[static_cast<std::size_t>(d)]);
    }
    for (int d = 0; d + 1 < indices.rank(); ++d) rows *= indices[d];
    batch_stride = static_cast<int>(shared == 0 ? 0 : all / shared);
    of_batch = Divisor(at_least_1(shared == 0 ? 0 : rows / shared));
    inside = Divisor(at_least_1(inner));
    step = at_least_1(inner);
    points = static_cast<unsigned>(rows * inner);
  }

  /// The element of the data that a point names, or -1 with a report where an index is out of range.
  __device__ int element(unsigned point, const Indices& indices, Fault* fault) const {
    int at;
    std::int64_t first = point;
    if (tuples) {
      const unsigned row = inside.divide(point);
      first = static_cast<std::int64_t>(row) * count;
      at = static_cast<int>(of_batch.divide(row)) * batch_stride +
           static_cast<int>(point - row * inside.value);
    } else {
      int offsets[2];
      others.offsets(point, offsets);
      at = offsets[1];
    }
    for (int k = 0; k < count; ++k) {
      const int position = indices.position(first + k, extent[k], fault);
      if (position < 0) return -1;
      at += position * stride[k];
    }
    return at;
  }
};

/// y[i] = x[j] for elements of the size of T.
template <typename T>
struct MovedElements {
  T* y;
  const T* x;
  __device__ void move(std::int64_t to, std::int64_t from) const { y[to] = x[from]; }
  __device__ void clear(std::int64_t to) const { y[to] = T{}; }
};

/// The same, with conversion between floats and halves.
struct ConvertedElements {
  Out y;
  In x;
  __device__ void move(std::int64_t to, std::int64_t from) const {
    store<float>(y, to, load<float>(x, from));
  }
  __device__ void clear(std::int64_t to) const { store<float>(y, to, 0.0F); }
};

template <typename Elements>
__global__ void gather_indexed(NamedElements named, Indices indices, Elements elements, Fault* fault) {
  const unsigned i = thread_index();
  if (i >= named.points) return;
  const int from = named.element(i, indices, fault);
  if (from < 0) return elements.clear(i);
  elements.move(i, from);
}

/// For each element, the points that write it: the last one; for reductions also the first one, and their number minus
/// 1. -1: none. Each array has one entry for each element.
struct Writers {
  int* last = nullptr;
  unsigned* first = nullptr;
  int* count = nullptr;
};

static __global__ void find_writers(NamedElements named, Indices indices, Writers writers, Fault* fault) {
  const unsigned i = thread_index();
  if (i >= named.points) return;
  const int to = named.element(i, indices, fault);
  if (to < 0) return;
  atomicMax(writers.last + to, static_cast<int>(i));
  if (writers.first == nullptr) return;
  atomicMin(writers.first + to, i);
  atomicAdd(writers.count + to, 1);
}

template <typename Elements>
__global__ void scatter_last(unsigned size, Writers writers, Elements data, Elements updates) {
  const unsigned i = thread_index();
  if (i >= size) return;
  const int from = writers.last[i];
  if (from < 0) {
    data.move(i, i);
  } else {
    updates.move(i, from);
  }
}

template <typename W>
__device__ W scattered(ScatterReduction reduction, W old, W update) {
  if (old != old) return old;  // NaN
  if (update != update) return update;
  if constexpr (std::is_same_v<W, std::int64_t>) {
    const auto a = static_cast<std::uint64_t>(old), b = static_cast<std::uint64_t>(update);
    if (reduction == ScatterReduction::add) return static_cast<W>(a + b);
    if (reduction == ScatterReduction::mul) return static_cast<W>(a * b);
  }
  switch (reduction) {
    case ScatterReduction::add:
      return old + update;
    case ScatterReduction::mul:
      return old * update;
    case ScatterReduction::min:
      return update < old ? update : old;
    case ScatterReduction::max:
      return old < update ? update : old;
    default:
      return update;
  }
}

/// Applies updates in their order, whatever the order of the threads. If more than two write the same element, the
/// points between the first and the last are searched for the others.
template <typename W>
__global__ void scatter_reduced(NamedElements named, Indices indices, unsigned size, Writers writers,
                                ScatterReduction reduction, Out y, In data, In updates) {
  const unsigned i = thread_index();
  if (i >= size) return;
  W value = load<W>(data, i);
  const int last = writers.last[i];
  if (last >= 0) {
    const unsigned first = writers.first[i];
    value = scattered(reduction, value, load<W>(updates, first));
    if (writers.count[i] > 1) {
      for (unsigned at = first + named.step; at < static_cast<unsigned>(last); at += named.step) {
        if (named.element(at, indices, nullptr) == static_cast<int>(i))
          value = scattered(reduction, value, load<W>(updates, at));
      }
    }
    if (static_cast<unsigned>(last) != first) value = scattered(reduction, value, load<W>(updates, last));
  }
  store<W>(y, i, value);
}

}  // namespace pipit::internal::cuda
