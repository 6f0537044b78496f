#include "layers/cpu/conv/winograd.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/platform/simd.h"
#include "layers/cpu/vector/tap_grid.h"

namespace pipit::internal {

namespace {

// A^T = 1 1  1 0      G =  -1    0    0     B^T = -1  0  1  0
//       0 1 -1 1           1/2  1/2  1/2            0  1  1  0
//                          1/2 -1/2  1/2            0 -1  1  0
//                            0    0    1            0 -1  0  1
struct F2x2 {
  static constexpr const char* kName = "2x2";
  static constexpr int kOutputs = 2;
  static constexpr int kInputs = 4;

  template <typename T>
  PIPIT_INLINE static inline void filter(const T* g, T* u) {
    const T even = (g[0] + g[2]) * 0.5;
    const T odd = g[1] * 0.5;
    u[0] = -g[0];
    u[1] = even + odd;
    u[2] = even - odd;
    u[3] = g[2];
  }
  template <typename T>
  PIPIT_INLINE static inline void input(const T* d, T* v) {
    v[0] = d[2] - d[0];
    v[1] = d[2] + d[1];
    v[2] = d[2] - d[1];
    v[3] = d[3] - d[1];
  }
  template <typename T>
  PIPIT_INLINE static inline void output(const T* m, T* y) {
    y[0] = m[0] + (m[1] + m[2]);
    y[1] = (m[1] - m[2]) + m[3];
  }
};

// A^T = 1 1  1 1  1 0   G =   1/4     0    0    B^T = 4  0 -5  0 1 0
//       0 1 -1 2 -2 0        -1/6  -1/6 -1/6          0 -4 -4  1 1 0
//       0 1  1 4  4 0        -1/6   1/6 -1/6          0  4 -4 -1 1 0
//       0 1 -1 8 -8 1        1/24  1/12  1/6          0 -2 -1  2 1 0
//                            1/24 -1/12  1/6          0  2 -1 -2 1 0
//                               0     0    1          0  4  0 -5 0 1
struct F4x4 {
  static constexpr const char* kName = "4x4";
  static constexpr int kOutputs = 4;
  static constexpr int kInputs = 6;

  template <typename T>
  PIPIT_INLINE static inline void filter(const T* g, T* u) {
    const T even = (g[0] + g[2]) * (-1.0 / 6);
    const T odd = g[1] * (-1.0 / 6);
    const T even2 = g[0] * (1.0 / 24) + g[2] * (1.0 / 6);
    const T odd2 = g[1] * (1.0 / 12);
    u[0] = g[0] * 0.25;
    u[1] = even + odd;
    u[2] = even - odd;
    u[3] = even2 + odd2;
    u[4] = even2 - odd2;
    u[5] = g[2];
  }
  template <typename T>
  PIPIT_INLINE static inline void input(const T* d, T* v) {
    const T even = d[4] - d[2] * 4.0F;
    const T odd = d[3] - d[1] * 4.0F;
    const T even2 = d[4] - d[2];
    const T odd2 = (d[3] - d[1]) * 2.0F;
    v[0] = even2 - (d[2] - d[0]) * 4.0F;
    v[1] = even + odd;
    v[2] = even - odd;
    v[3] = even2 + odd2;
    v[4] = even2 - odd2;
    v[5] = (d[5] - d[3]) - odd2 * 2.0F;
  }
  template <typename T>
  PIPIT_INLINE static inline void output(const T* m, T* y) {
    const T even = m[1] + m[2];
    const T odd = m[1] - m[2];
    const T even2 = m[3] + m[4];
    const T odd2 = m[3] - m[4];
    y[0] = (m[0] + even) + even2;
    y[1] = odd + odd2 * 2.0F;
    y[2] = even + even2 * 4.0F;
    y[3] = (odd + odd2 * 8.0F) + m[5];
  }
};

// A register of channels at p, or the first `count` of them and zeros.
template <bool Whole, typename V>
PIPIT_INLINE inline void load_channels(const float* p, [[maybe_unused]] std::int64_t count, V& x) {
  if constexpr (Whole) {
    load(p, x);
  } else {
    x = V{};
    for (std::int64_t i = 0; i < count; ++i) x[i] = p[i];
  }
}

template <bool Whole, typename V>
PIPIT_INLINE inline void store_channels(const V& x, [[maybe_unused]] std::int64_t count, float* p) {
  if constexpr (Whole) {
    store(x, p);
  } else {
    for (std::int64_t i = 0; i < count; ++i) p[i] = x[i];
  }
}

// Positions [begin, end) of a tile's inputs that lie inside the image.
struct Inside {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Inside(std::int64_t first, std::int64_t inputs, std::int64_t extent)
      : begin(std::clamp<std::int64_t>(-first, 0, inputs)),
        end(std::clamp<std::int64_t>(extent - first, begin, inputs)) {}
};

// Up to a register of channels of a tile that starts at `corner` (which need not lie inside) of an image.
template <typename F, typename V, bool Whole>
PIPIT_INLINE inline void input_channels(const WinogradImage& image, std::int64_t corner, const Inside& rows,
                                        const Inside& columns, std::int64_t count, float* v,
                                        std::int64_t plane) {
  constexpr int n = F::kInputs;
  V half[n * n];
  const std::int64_t row_step = image.width * image.channels;
#pragma GCC unroll 1
  for (int j = 0; j < n; ++j) {
    V d[n];
    V t[n];
    const bool outside = j < columns.begin || j >= columns.end;
#pragma GCC unroll 6
    for (int i = 0; i < n; ++i) {
      if (outside || i < rows.begin || i >= rows.end) {
        d[i] = V{};
      } else {
        load_channels<Whole>(image.data + (corner + i * row_step + j * image.channels), count, d[i]);
      }
    }
    F::input(d, t);
#pragma GCC unroll 6
    for (int i = 0; i < n; ++i) half[i * n + j] = t[i];
  }
#pragma GCC unroll 1
  for (int i = 0; i < n; ++i) {
    V t[n];
    F::input(half + i * n, t);
#pragma GCC unroll 6
    for (int j = 0; j < n; ++j) store(t[j], v + (i * n + j) * plane);
  }
}

template <typename F, typename V>
PIPIT_INLINE inline void input_tile(const WinogradImage& image, std::int64_t row, std::int64_t column,
                                    float* v, std::int64_t plane) {
  const Inside rows(row, F::kInputs, image.height);
  const Inside columns(column, F::kInputs, image.width);
  const std::int64_t corner = (row * image.width + column) * image.channels;
  std::int64_t c = 0;
  for (; c + kLanes<V> <= image.channels; c += kLanes<V>) {
    input_channels<F, V, true>(image, corner + c, rows, columns, kLanes<V>, v + c, plane);
  }
  if (c < image.channels) {
    input_channels<F, V, false>(image, corner + c, rows, columns, image.channels - c, v + c, plane);
  }
}

template <typename F, typename V, bool Whole>
PIPIT_INLINE inline void output_channels(const float* m, std::int64_t plane, const WinogradOutput& output,
                                         std::int64_t c, std::int64_t count) {
  constexpr int n = F::kInputs;
  V half[F::kOutputs * n];
#pragma GCC unroll 1
  for (int j = 0; j < n; ++j) {
    V d[n];
    V t[F::kOutputs];
#pragma GCC unroll 6
    for (int i = 0; i < n; ++i) load(m + (i * n + j) * plane + c, d[i]);
    F::output(d, t);
#pragma GCC unroll 4
    for (int i = 0; i < F::kOutputs; ++i) half[i * n + j] = t[i];
  }
  V bias{};
  if (output.bias != nullptr) load_channels<Whole>(output.bias + c, count, bias);
  const V low = output.clamp.low - V{};
  const V high = output.clamp.high - V{};
#pragma GCC unroll 1
  for (int i = 0; i < output.rows; ++i) {
    V y[F::kOutputs];
    F::output(half + i * n, y);
#pragma GCC unroll 4
    for (int j = 0; j < F::kOutputs; ++j) {
      if (j >= output.columns) break;
      const std::int64_t at = i * output.row_step + j * output.pixel_step + c;
      y[j] += bias;
      if (output.residual != nullptr) {
        V residual;
        load_channels<Whole>(output.residual + at, count, residual);
        y[j] += residual;
      }
      y[j] = y[j] < low ? low : y[j];
      y[j] = y[j] > high ? high : y[j];
      store_channels<Whole>(y[j], count, output.data + at);
    }
  }
}

template <typename F, typename V>
PIPIT_INLINE inline void output_tile(const float* m, std::int64_t plane, const WinogradOutput& output) {
  std::int64_t c = 0;
  for (; c + kLanes<V> <= output.channels; c += kLanes<V>)
    output_channels<F, V, true>(m, plane, output, c, kLanes<V>);
  if (c < output.channels) output_channels<F, V, false>(m, plane, output, c, output.channels - c);
}

// Eight filters at a time.
template <typename F>
PIPIT_INLINE inline void filter_tiles(const float* g, std::int64_t count, float* u, std::int64_t plane) {
  constexpr int n = F::kInputs;
  constexpr std::int64_t kFilters = 8;
  using Doubles = double __attribute__((vector_size(64)));
  for (std::int64_t first = 0; first < count; first += kFilters) {
    const std::int64_t used = std::min(kFilters, count - first);
    Doubles taps[9] = {};
    for (std::int64_t f = 0; f < used; ++f) {
      for (int t = 0; t < 9; ++t) taps[t][f] = g[(first + f) * 9 + t];
    }
    Doubles half[n * 3];
    for (int j = 0; j < 3; ++j) {
      const Doubles d[3] = {taps[j], taps[3 + j], taps[6 + j]};
      Doubles t[n];
      F::filter(d, t);
      for (int i = 0; i < n; ++i) half[i * 3 + j] = t[i];
    }
    for (int i = 0; i < n; ++i) {
      Doubles t[n];
      F::filter(half + i * 3, t);
      for (int j = 0; j < n; ++j) {
        float* to = u + (i * n + j) * plane + first;
        for (std::int64_t f = 0; f < used; ++f) to[f] = static_cast<float>(t[j][f]);
      }
    }
  }
}

template <typename F>
constexpr WinogradTransforms kTransforms{F::kName,
                                         F::kOutputs,
                                         F::kInputs,
                                         simd<filter_tiles<F>>,
                                         simd<input_tile<F, ShortVector>, input_tile<F, Vector>>,
                                         simd<output_tile<F, ShortVector>, output_tile<F, Vector>>};

}  // namespace

const WinogradTransforms& winograd_transforms(int m) {
  if (m == kTransforms<F2x2>.outputs) return kTransforms<F2x2>;
  if (m == kTransforms<F4x4>.outputs) return kTransforms<F4x4>;
  fail("no Winograd transforms for tiles of {} outputs; 2 and 4 exist", m);
}

}  // namespace pipit::internal
