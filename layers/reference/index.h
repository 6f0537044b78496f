// Multi-dimensional indices: the reference kernels that move elements say for each index where it comes from.
#pragma once

#include <array>
#include <cstring>

#include "layers/common/dispatch.h"

namespace pipit::internal {

/// One position per dimension; entries at and beyond the rank are 0.
using Index = std::array<std::int64_t, kMaxRank>;

/// Calls body(index) for every index of a shape, row-major.
template <typename Body>
void for_each_index(const Shape& shape, Body&& body) {
  Index index{};
  for (std::int64_t left = shape.elements(); left > 0; --left) {
    body(static_cast<const Index&>(index));
    for (int d = shape.rank() - 1; d >= 0; --d) {
      if (++index[static_cast<std::size_t>(d)] < shape[d]) break;
      index[static_cast<std::size_t>(d)] = 0;
    }
  }
}

/// The index of the element at a row-major position.
inline Index unravel(std::int64_t position, const Shape& shape) {
  Index index{};
  for (int d = shape.rank() - 1; d >= 0; --d) {
    index[static_cast<std::size_t>(d)] = position % shape[d];
    position /= shape[d];
  }
  return index;
}

/// Distance in elements from the start of a tensor with these strides.
inline std::int64_t offset_of(const Index& index, const Strides& strides, int rank) {
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(rank); ++d) offset += index[d] * strides[d];
  return offset;
}

/// out[to(i)] = in[from(i)] for every index i of `space`.
template <typename From, typename To>
void copy_elements(const Shape& space, const ConstTensorView& in, From from, const TensorView& out, To to) {
  const Strides in_strides = in.desc.strides();
  const Strides out_strides = out.desc.strides();
  with_element_size(in.desc.dtype, [&](auto size) {
    constexpr auto kBytes = static_cast<std::int64_t>(decltype(size)::value);
    for_each_index(space, [&](const Index& i) {
      std::memcpy(out.data + kBytes * offset_of(to(i), out_strides, out.desc.shape.rank()),
                  in.data + kBytes * offset_of(from(i), in_strides, in.desc.shape.rank()),
                  decltype(size)::value);
    });
  });
}

/// out[i] = in[from(i)] for every index i of the output.
template <typename From>
void copy_elements(const ConstTensorView& in, From from, const TensorView& out) {
  copy_elements(out.desc.shape, in, from, out, [](const Index& i) { return i; });
}

}  // namespace pipit::internal
