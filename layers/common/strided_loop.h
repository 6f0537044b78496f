// Walking several tensors at once: an index space with one stride per dimension and operand.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "engine/graph/tensor.h"

namespace pipit::internal {

/// Dimensions of a loop: twice a tensor's, for layers that see every dimension as (outer, inner).
inline constexpr int kMaxLoopRank = 2 * kMaxRank;

/// A nest of loops, outermost first, over `Operands` tensors. Strides and offsets count elements and may be
/// zero (broadcast) or negative (reversed).
template <std::size_t Operands>
class StridedLoop {
 public:
  using Offsets = std::array<std::int64_t, Operands>;

  /// Appends a dimension inside the others. Throws Error beyond kMaxLoopRank.
  void add(std::int64_t extent, const Offsets& strides) {
    if (rank_ == kMaxLoopRank) fail("a loop of more than {} dimensions", kMaxLoopRank);
    dims_[static_cast<std::size_t>(rank_++)] = {extent, strides};
    size_ *= extent;
  }

  /// The same index space in the memory order of operand 0 with as few dimensions as possible: extents of 1
  /// are dropped, the rest sorted by operand 0's falling stride, and neighbours merged where every operand
  /// steps through both without a gap. Offsets of operand 0 must be distinct (an output).
  void collapse() {
    auto end =
        std::remove_if(dims_.begin(), dims_.begin() + rank_, [](const Dim& d) { return d.extent == 1; });
    std::stable_sort(dims_.begin(), end,
                     [](const Dim& a, const Dim& b) { return a.stride[0] > b.stride[0]; });
    rank_ = 0;
    for (auto d = dims_.begin(); d != end; ++d) {
      if (rank_ > 0 && continues(dims_[static_cast<std::size_t>(rank_ - 1)], *d)) {
        Dim& outer = dims_[static_cast<std::size_t>(rank_ - 1)];
        outer = {outer.extent * d->extent, d->stride};
      } else {
        dims_[static_cast<std::size_t>(rank_++)] = *d;
      }
    }
  }

  int rank() const { return rank_; }
  /// Points of the index space.
  std::int64_t size() const { return size_; }
  std::int64_t extent(int dim) const { return dims_[static_cast<std::size_t>(dim)].extent; }
  const Offsets& strides(int dim) const { return dims_[static_cast<std::size_t>(dim)].stride; }
  /// Extent of the innermost dimension (1 for a loop without dimensions), and its strides.
  std::int64_t row() const { return rank_ == 0 ? 1 : extent(rank_ - 1); }
  Offsets row_strides() const { return rank_ == 0 ? Offsets{} : strides(rank_ - 1); }
  /// Strides from one row to the next (0 where there is one row only).
  Offsets row_steps() const { return rank_ < 2 ? Offsets{} : strides(rank_ - 2); }

  /// Calls body(offsets, count) for the pieces of rows that make up points [begin, end) in loop order: `count`
  /// neighbours along the innermost dimension starting at `offsets`. Requires 0 <= begin <= end <= size().
  template <typename Body>
  void for_each_run(std::int64_t begin, std::int64_t end, Body&& body) const {
    for_each_rows(begin, end, [&](const Offsets& first, std::int64_t count, std::int64_t rows) {
      Offsets at = first;
      for (std::int64_t r = 0; r < rows; ++r) {
        if (r > 0) advance(at, rank_ - 2, 1);
        body(static_cast<const Offsets&>(at), count);
      }
    });
  }

  /// The same with neighbouring whole rows at once: body(offsets, count, rows), the offsets those of the first and
  /// row_steps() apart.
  template <typename Body>
  void for_each_rows(std::int64_t begin, std::int64_t end, Body&& body) const {
    if (begin >= end) return;
    std::array<std::int64_t, kMaxLoopRank> index{};
    Offsets at{};
    std::int64_t rest = begin;
    for (int d = rank_ - 1; d >= 0; --d) {
      const std::int64_t i = rest % extent(d);
      rest /= extent(d);
      index[static_cast<std::size_t>(d)] = i;
      advance(at, d, i);
    }
    for (std::int64_t left = end - begin;;) {
      const std::int64_t position = rank_ == 0 ? 0 : index[static_cast<std::size_t>(rank_ - 1)];
      const std::int64_t count = std::min(left, row() - position);
      std::int64_t rows = 1;
      if (rank_ > 1 && position == 0 && left >= row())
        rows = std::min(left / row(), extent(rank_ - 2) - index[static_cast<std::size_t>(rank_ - 2)]);
      body(static_cast<const Offsets&>(at), count, rows);
      left -= count * rows;
      if (left == 0) return;
      // Back to the start of the row (only the first may begin inside one), then carry.
      advance(at, rank_ - 1, -position);
      index[static_cast<std::size_t>(rank_ - 1)] = 0;
      for (int d = rank_ - 2; d >= 0; --d, rows = 1) {
        advance(at, d, rows);
        if ((index[static_cast<std::size_t>(d)] += rows) < extent(d)) break;
        advance(at, d, -extent(d));
        index[static_cast<std::size_t>(d)] = 0;
      }
    }
  }

  /// Calls body(offsets) once for every point.
  template <typename Body>
  void for_each(Body&& body) const {
    const Offsets step = row_strides();
    for_each_run(0, size_, [&](Offsets at, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        body(static_cast<const Offsets&>(at));
        for (std::size_t k = 0; k < Operands; ++k) at[k] += step[k];
      }
    });
  }

 private:
  struct Dim {
    std::int64_t extent = 1;
    Offsets stride{};
  };

  static bool continues(const Dim& outer, const Dim& inner) {
    for (std::size_t k = 0; k < Operands; ++k) {
      if (outer.stride[k] != inner.stride[k] * inner.extent) return false;
    }
    return true;
  }
  void advance(Offsets& at, int dim, std::int64_t steps) const {
    for (std::size_t k = 0; k < Operands; ++k) at[k] += strides(dim)[k] * steps;
  }

  std::array<Dim, kMaxLoopRank> dims_{};
  int rank_ = 0;
  std::int64_t size_ = 1;
};

/// Strides that read a tensor as if it had the shape it is broadcast to (0 along repeated dimensions).
/// Requires that it does broadcast to `shape`.
inline Strides broadcast_strides(const TensorDesc& desc, const Shape& shape) {
  const Strides own = desc.strides();
  Strides strides{};
  const int missing = shape.rank() - desc.shape.rank();
  for (int d = 0; d < desc.shape.rank(); ++d) {
    if (desc.shape[d] != 1) strides[static_cast<std::size_t>(d + missing)] = own[static_cast<std::size_t>(d)];
  }
  return strides;
}

/// The collapsed loop over all dimensions of `shape` but `axis`, for operands with these strides.
template <std::size_t Operands>
StridedLoop<Operands> loop_beside(int axis, const Shape& shape,
                                  const std::array<Strides, Operands>& strides) {
  StridedLoop<Operands> loop;
  for (int d = 0; d < shape.rank(); ++d) {
    typename StridedLoop<Operands>::Offsets step;
    for (std::size_t k = 0; k < Operands; ++k) step[k] = strides[k][static_cast<std::size_t>(d)];
    if (d != axis) loop.add(shape[d], step);
  }
  loop.collapse();
  return loop;
}

/// The collapsed loop over descs[0] (the output) with every operand broadcast to its shape, whatever the
/// layouts.
template <std::size_t Operands>
StridedLoop<Operands> broadcast_loop(const std::array<const TensorDesc*, Operands>& descs) {
  const Shape& shape = descs[0]->shape;
  std::array<Strides, Operands> strides;
  for (std::size_t k = 0; k < Operands; ++k) strides[k] = broadcast_strides(*descs[k], shape);
  StridedLoop<Operands> loop;
  for (int d = 0; d < shape.rank(); ++d) {
    typename StridedLoop<Operands>::Offsets step;
    for (std::size_t k = 0; k < Operands; ++k) step[k] = strides[k][static_cast<std::size_t>(d)];
    loop.add(shape[d], step);
  }
  loop.collapse();
  return loop;
}

}  // namespace pipit::internal
