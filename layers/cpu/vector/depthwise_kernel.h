// The tiles of depthwise convolutions, included once per instruction set after Lanes.

// What the outputs of a register of channels from `c` on have in common in INT8.
struct ByteLanes {
  Lanes::Vector low;
  Lanes::Vector high;
  Lanes::Vector multiplier;
  Lanes::Vector minus_residual_zero_point;
  Lanes::Vector residual_scale;

  PIPIT_LANES ByteLanes(const DepthwiseTile<std::uint8_t>& t, std::int64_t c)
      : low(Lanes::broadcast(t.low)),
        high(Lanes::broadcast(t.high)),
        multiplier(Lanes::load(t.bytes.multiplier + c)),
        minus_residual_zero_point(Lanes::broadcast(-t.bytes.residual_zero_point)),
        residual_scale(Lanes::broadcast(t.bytes.residual_scale)) {}
};

// A register of sums, `at` elements into y. A value that is NaN becomes the lower bound of bytes, and stays in floats.
PIPIT_LANES void finish_byte_lanes(const DepthwiseTile<std::uint8_t>& t, const ByteLanes& lanes,
                                   Lanes::Vector sum, const std::int32_t* bias, std::int64_t at, int count) {
  Lanes::Vector v = Lanes::multiply(Lanes::add_integers(sum, bias), lanes.multiplier);
  if (t.residual != nullptr) {
    const Lanes::Vector r = Lanes::add(Lanes::load(t.residual + at, count), lanes.minus_residual_zero_point);
    v = Lanes::add(v, Lanes::multiply(r, lanes.residual_scale));
  }
  if (t.bytes.real != nullptr) {
    Lanes::store(t.bytes.real + at, Lanes::clamp(v, lanes.low, lanes.high), count);
  } else {
    Lanes::store_bytes(t.y + at, Lanes::clamp_numbers(v, lanes.low, lanes.high), t.bytes.zero_point, count);
  }
}

// A channel vector of outputs in INT8.
template <int Columns>
PIPIT_LANES void finish_bytes(const DepthwiseTile<std::uint8_t>& t, const Lanes::Vector* sums, std::int64_t c,
                              int count) {
  const ByteLanes lanes(t, c);
#pragma GCC unroll 8
  for (int i = 0; i < Columns; ++i) {
    if (i >= t.columns) break;
    finish_byte_lanes(t, lanes, sums[i], t.bytes.bias + c, i * t.y_step + c, count);
  }
}

// Fewer channels than a register holds, where Lanes::kLoadsParts<T> is false: once for all tiles, since moving elements
// one by one is long code.
template <typename T>
__attribute__((noinline)) void finish_part(const DepthwiseTile<T>& t, const Lanes::Vector* sums,
                                           std::int64_t c, int count) {
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    const ByteLanes lanes(t, c);
    for (int i = 0; i < t.columns; ++i)
      finish_byte_lanes(t, lanes, sums[i], t.bytes.bias + c, i * t.y_step + c, count);
  } else {
    const Lanes::Vector low = Lanes::broadcast(t.low);
    const Lanes::Vector high = Lanes::broadcast(t.high);
    for (int i = 0; i < t.columns; ++i) {
      Lanes::Vector v = sums[i];
      if (t.residual != nullptr) v = Lanes::add(v, Lanes::load(t.residual + i * t.y_step + c, count));
      Lanes::store(t.y + i * t.y_step + c, Lanes::clamp(v, low, high), count);
    }
  }
}

// A channel vector of `columns` outputs, finished and stored. Whole: that fills a register.
template <int Columns, bool Whole, typename T>
PIPIT_LANES void finish_depthwise(const DepthwiseTile<T>& t, Lanes::Vector* sums, std::int64_t c, int count) {
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    finish_bytes<Columns>(t, sums, c, count);
    return;
  } else {
    const Lanes::Vector low = Lanes::broadcast(t.low);
    const Lanes::Vector high = Lanes::broadcast(t.high);
#pragma GCC unroll 8
    for (int i = 0; i < Columns; ++i) {
      if (i >= t.columns) break;
      Lanes::Vector v = sums[i];
      if (t.residual != nullptr) {
        const T* r = t.residual + i * t.y_step + c;
        v = Lanes::add(v, Whole ? Lanes::load(r) : Lanes::load(r, count));
      }
      v = Lanes::clamp(v, low, high);
      T* y = t.y + i * t.y_step + c;
      Lanes::own(y + Columns * t.y_step);  // the next tile's, as a rule
      if constexpr (Whole) {
        Lanes::store(y, v);
      } else {
        Lanes::store(y, v, count);
      }
    }
  }
}

// `count` activations, less their zero point.
template <bool Whole, typename T>
PIPIT_LANES Lanes::Vector load_input(const T* x, int count, Lanes::Vector minus_zero_point) {
  const Lanes::Vector v = Whole ? Lanes::load(x) : Lanes::load(x, count);
  return Lanes::keep(std::is_same_v<T, std::uint8_t> ? Lanes::add(v, minus_zero_point) : v);
}

// What sums start from: floats with their bias.
template <bool Whole, typename T>
PIPIT_LANES Lanes::Vector first_sum(const DepthwiseTile<T>& t, std::int64_t c, int count) {
  if (std::is_same_v<T, std::uint8_t> || t.bias == nullptr) return Lanes::zero();
  return Whole ? Lanes::load(t.bias + c) : Lanes::load(t.bias + c, count);
}

// Every pixel of a row of taps is loaded once and meets all the outputs that it belongs to.
template <int Kernel, int Stride, int Columns, bool Indirect, bool Whole, typename T>
PIPIT_LANES void depthwise_vector(const DepthwiseTile<T>& t, const float* weights, std::int64_t c,
                                  int count) {
  Lanes::Vector sums[Columns];
  const Lanes::Vector first = first_sum<Whole>(t, c, count);
#pragma GCC unroll 8
  for (int i = 0; i < Columns; ++i) sums[i] = first;
  const Lanes::Vector minus_zero_point = Lanes::broadcast(-t.bytes.x_zero_point);
  const T* const* pixels = t.pixels;
  constexpr int kPixels = (Columns - 1) * Stride + Kernel;
  constexpr bool kStaged = !Whole && !Lanes::kLoadsParts<T>;
  for (std::int64_t h = 0; h < t.rows; ++h) {
    const T* row = Indirect ? nullptr : t.row_starts[h] + t.first + c;
    Lanes::Vector staged[kStaged ? kPixels : 1];
    if constexpr (kStaged) {
#pragma GCC unroll 1
      for (int p = 0; p < kPixels; ++p)
        staged[p] =
            load_input<false>(Indirect ? pixels[p] + c : row + p * t.pixel_step, count, minus_zero_point);
    }
    Lanes::Vector w[Kernel];
#pragma GCC unroll 8
    for (int k = 0; k < Kernel; ++k) w[k] = Lanes::load(weights + k * Lanes::kCount);
#pragma GCC unroll 20
    for (int p = 0; p < kPixels; ++p) {
      Lanes::Vector x;
      if constexpr (kStaged) {
        x = Lanes::keep(staged[p]);
      } else {
        x = load_input<Whole>(Indirect ? pixels[p] + c : row + p * t.pixel_step, count, minus_zero_point);
      }
#pragma GCC unroll 8
      for (int k = 0; k < Kernel; ++k) {
        if ((p - k) % Stride != 0 || p < k || (p - k) / Stride >= Columns) continue;
        sums[(p - k) / Stride] = Lanes::multiply_add(sums[(p - k) / Stride], x, w[k]);
      }
    }
    weights += Kernel * Lanes::kCount;
    if (Indirect) pixels += t.row_pixels;
  }
  if constexpr (kStaged) {
    Lanes::Vector stored[Columns];
#pragma GCC unroll 8
    for (int i = 0; i < Columns; ++i) stored[i] = sums[i];
    finish_part(t, stored, c, count);
  } else {
    finish_depthwise<Columns, Whole>(t, sums, c, count);
  }
}

template <int Kernel, int Stride, int Columns, bool Indirect, typename T>
void depthwise_tile(const DepthwiseTile<T>& call) {
  DepthwiseTile<T> t = call;  // which no store can change
  for (std::int64_t tile = 0;; ++tile) {
    const float* weights = t.weights;
    std::int64_t c = 0;
    for (; c + Lanes::kCount <= t.channels; c += Lanes::kCount, weights += t.weights_step) {
      depthwise_vector<Kernel, Stride, Columns, Indirect, true>(t, weights, c, Lanes::kCount);
    }
    if (c < t.channels) {
      depthwise_vector<Kernel, Stride, Columns, Indirect, false>(t, weights, c,
                                                                 static_cast<int>(t.channels - c));
    }
    if (Indirect || tile + 1 >= t.tiles) return;
    t.first += Columns * Stride * t.pixel_step;
    t.y += Columns * t.y_step;
    if (t.residual != nullptr) t.residual += Columns * t.y_step;
    if (t.bytes.real != nullptr) t.bytes.real += Columns * t.y_step;
  }
}

template <typename T>
void depthwise_general(const DepthwiseTile<T>& t) {
  const float* panel = t.weights;
  const Lanes::Vector minus_zero_point = Lanes::broadcast(-t.bytes.x_zero_point);
  for (std::int64_t c = 0; c < t.channels; c += Lanes::kCount, panel += t.weights_step) {
    const int count = static_cast<int>(t.channels - c < Lanes::kCount ? t.channels - c : Lanes::kCount);
    const bool whole = count == Lanes::kCount;
    Lanes::Vector sums[kWideTile];
#pragma GCC unroll 8
    for (int i = 0; i < kWideTile; ++i)
      sums[i] = whole ? first_sum<true>(t, c, count) : first_sum<false>(t, c, count);
    const float* weights = panel;
    for (std::int64_t h = 0; h < t.rows; ++h) {
      for (std::int64_t k = 0; k < t.kernel; ++k, weights += Lanes::kCount) {
        const T* const* pixels = t.pixels + h * t.row_pixels + k * kWideTile;
        const Lanes::Vector w = Lanes::load(weights);
#pragma GCC unroll 8
        for (int i = 0; i < kWideTile; ++i) {
          const T* x = pixels[i] + c;
          const Lanes::Vector v = whole ? load_input<true>(x, count, minus_zero_point)
                                        : load_input<false>(x, count, minus_zero_point);
          sums[i] = Lanes::multiply_add(sums[i], v, w);
        }
      }
    }
    if (whole) {
      finish_depthwise<kWideTile, true>(t, sums, c, count);
    } else {
      finish_depthwise<kWideTile, false>(t, sums, c, count);
    }
  }
}

template <typename T>
constexpr DepthwiseKernels<T> depthwise_kernels() {
#define PIPIT_TILE(k, s)                                                                      \
  {                                                                                           \
    {depthwise_tile<k, s, kWideTile, false, T>, depthwise_tile<k, s, kWideTile, true, T>}, {  \
      depthwise_tile<k, s, kNarrowTile, false, T>, depthwise_tile<k, s, kNarrowTile, true, T> \
    }                                                                                         \
  }
  return {{{PIPIT_TILE(3, 1), PIPIT_TILE(3, 2)},
           {PIPIT_TILE(5, 1), PIPIT_TILE(5, 2)},
           {PIPIT_TILE(7, 1), PIPIT_TILE(7, 2)}},
          depthwise_general<T>};
#undef PIPIT_TILE
}
