// Taps of a window over NHWC data, a register of channels at a time.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/platform/simd.h"
#include "layers/ops/window.h"

namespace pipit {

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

/// A rectangle of taps; steps from row to row and from column to column in floats.
struct TapGrid {
  const float* data = nullptr;
  std::int64_t row_step = 0;
  std::int64_t column_step = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  PIPIT_INLINE const float* at(std::int64_t row, std::int64_t column) const {
    return data + row * row_step + column * column_step;
  }
};

/// The taps h x w of a two-dimensional window that lie inside an image [height, width, channels].
inline TapGrid tap_grid(const float* image, std::int64_t width, std::int64_t channels, const Window& window,
                        const TapRange& h, const TapRange& w) {
  const std::int64_t row = h.start + h.begin * window.dilation[0];
  const std::int64_t column = w.start + w.begin * window.dilation[1];
  return {image + (row * width + column) * channels, window.dilation[0] * width * channels,
          window.dilation[1] * channels, h.count(), w.count()};
}

}  // namespace pipit
