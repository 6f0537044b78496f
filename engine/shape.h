// Shape: the extents of a tensor, fixed capacity, no heap.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace pipit {

inline constexpr int kMaxRank = 6;

/// One number per dimension; entries at and beyond the rank are unspecified.
using Strides = std::array<std::int64_t, kMaxRank>;

/// Extents in logical (ONNX) order, for images N, C, H, W. Rank 0 is a scalar of one element.
/// An extent may be 0 (an empty tensor) but never negative; the element count never overflows int64.
class Shape {
 public:
  Shape() = default;
  /// Throws Error on more than kMaxRank dimensions, a negative extent, or an element count above 2^62.
  explicit Shape(std::span<const std::int64_t> dims);
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  /// Product of the extents; 1 for a scalar.
  std::int64_t elements() const { return elements_; }
  std::span<const std::int64_t> dims() const { return {dims_.data(), static_cast<std::size_t>(rank_)}; }
  /// A copy with one extent replaced.
  Shape with(int axis, std::int64_t extent) const;
  /// "1x3x224x224"; "scalar" for rank 0.
  std::string str() const;

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
  std::int64_t elements_ = 1;
};

/// Maps an axis in [-rank, rank) to [0, rank); throws Error naming `what` otherwise.
int normalize_axis(std::int64_t axis, int rank, const char* what);

/// ONNX multidirectional (NumPy) broadcasting of two shapes; throws Error when they do not match.
Shape broadcast_shapes(const Shape& a, const Shape& b);

}  // namespace pipit
