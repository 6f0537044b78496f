// Taps of a window over NHWC or NDHWC data, a register of channels at a time.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/platform/simd.h"
#include "layers/cpu/vector/taps.h"
#include "layers/ops/window.h"

namespace pipit::internal {

/// A register of AVX-512 and one of AVX2, for the two twins that simd<> takes of a loop. Never passed or returned by
/// value: how that is done depends on the instruction set.
using Vector = float __attribute__((vector_size(64)));
using ShortVector = float __attribute__((vector_size(32)));
/// The floats of a V: Vector, ShortVector or float.
template <typename V>
inline constexpr auto kLanes = static_cast<std::int64_t>(sizeof(V) / sizeof(float));

/// Reads or writes a V at any alignment.
template <typename T>
PIPIT_INLINE inline void load(const float* p, T& value) {
  std::memcpy(&value, p, sizeof value);
}
template <typename T>
PIPIT_INLINE inline void store(const T& value, float* p) {
  std::memcpy(p, &value, sizeof value);
}

/// The element of one of them.
template <typename T>
PIPIT_INLINE inline const T* tap_at(const Taps<T>& taps, std::int64_t slice, std::int64_t row,
                                    std::int64_t column) {
  return taps.data + slice * taps.slice_step + row * taps.row_step + column * taps.column_step;
}

/// The taps d x h x w of a three-dimensional window (as_3d) that lie inside an image [depth, height, width, channels].
template <typename T>
inline Taps<T> taps_of(const T* image, std::int64_t height, std::int64_t width, std::int64_t channels,
                       const Window& window, const TapRange& d, const TapRange& h, const TapRange& w) {
  const auto first = [&](const TapRange& range, std::size_t axis) {
    return range.start + range.begin * window.dilation[axis];
  };
  const std::int64_t row = width * channels;
  return {image + (first(d, 0) * height + first(h, 1)) * row + first(w, 2) * channels,
          window.dilation[0] * height * row,
          window.dilation[1] * row,
          window.dilation[2] * channels,
          d.count(),
          h.count(),
          w.count()};
}

}  // namespace pipit::internal
