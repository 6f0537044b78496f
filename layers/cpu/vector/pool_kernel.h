// Reductions of windows, included once per instruction set after Lanes. Sums of a row of taps are added up before they
// join those of other rows: the rounding error of a global average stays at (slices * rows + columns) instead of
// (slices * rows * columns) epsilon.

struct PoolSum {
  static constexpr float kNone = 0;
  PIPIT_LANES static Lanes::Vector tap(Lanes::Vector v) { return v; }
  PIPIT_LANES static Lanes::Vector join(Lanes::Vector a, Lanes::Vector b) { return Lanes::add(a, b); }
  PIPIT_LANES static Lanes::Vector finish(Lanes::Vector v, Lanes::Vector factor) {
    return Lanes::multiply(v, factor);
  }
};

struct PoolSumAbsolute : PoolSum {
  PIPIT_LANES static Lanes::Vector tap(Lanes::Vector v) { return Lanes::copy_sign(v, Lanes::zero()); }
};

struct PoolSumSquares : PoolSum {
  PIPIT_LANES static Lanes::Vector tap(Lanes::Vector v) { return Lanes::multiply(v, v); }
};

struct PoolMax {
  static constexpr float kNone = -INFINITY;
  PIPIT_LANES static Lanes::Vector tap(Lanes::Vector v) { return v; }
  PIPIT_LANES static Lanes::Vector join(Lanes::Vector a, Lanes::Vector b) { return Lanes::larger(a, b); }
  PIPIT_LANES static Lanes::Vector finish(Lanes::Vector v, Lanes::Vector /*factor*/) { return v; }
};

// The taps of one row, of which there is one at least, for `Count` registers, or for `rest` lanes of one.
template <typename Reduction, int Count, bool Whole, typename T>
PIPIT_LANES void pool_line(const T* x, std::int64_t step, std::int64_t taps, int rest,
                           Lanes::Vector (&result)[Count]) {
  const auto value = [&](int i) {
    const T* at = x + i * Lanes::kCount;
    return Reduction::tap(Whole ? Lanes::load(at) : Lanes::load(at, rest));
  };
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) result[i] = value(i);
  for (std::int64_t tap = 1; tap < taps; ++tap) {
    x += step;
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) result[i] = Reduction::join(result[i], value(i));
  }
}

// The elements of one output from `c` on.
template <typename Reduction, int Count, bool Whole, typename T>
PIPIT_LANES void pool_box(const Taps<T>& taps, const T* x, std::int64_t c, int rest, Lanes::Vector factor,
                          float* y) {
  Lanes::Vector result[Count];
  pool_line<Reduction, Count, Whole>(x + c, taps.column_step, taps.columns, rest, result);
  std::int64_t first = 1;
  for (std::int64_t slice = 0; slice < taps.slices; ++slice, first = 0) {
    for (std::int64_t row = first; row < taps.rows; ++row) {
      Lanes::Vector line[Count];
      pool_line<Reduction, Count, Whole>(x + slice * taps.slice_step + row * taps.row_step + c,
                                         taps.column_step, taps.columns, rest, line);
#pragma GCC unroll 8
      for (int i = 0; i < Count; ++i) result[i] = Reduction::join(result[i], line[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) {
    const Lanes::Vector v = Reduction::finish(result[i], factor);
    if (Whole) {
      Lanes::store(y + c + i * Lanes::kCount, v);
    } else {
      Lanes::store(y + c, v, rest);
    }
  }
}

template <typename Reduction, typename T>
void pool_row(const PoolRow<T>& call) {
  const PoolRow<T> r = call;  // which no store can change
  std::int64_t outputs = r.outputs;
  std::int64_t count = r.count;
  if (r.x_step == count && r.y_step == count) {  // one long output
    count *= outputs;
    outputs = outputs > 0 ? 1 : 0;
  }
  const bool none = r.taps.slices <= 0 || r.taps.rows <= 0 || r.taps.columns <= 0;
  const Lanes::Vector factor = Lanes::broadcast(r.factor);
  constexpr int kMax = Lanes::kRegisters >= 32 ? 8 : 4;
  const T* x = r.taps.data;
  float* y = r.y;
  for (std::int64_t output = 0; output < outputs; ++output, x += r.x_step, y += r.y_step) {
    std::int64_t c = 0;
    if (none) {
      for (; c < count; ++c) y[c] = Reduction::kNone;
      continue;
    }
    for (; c + kMax * Lanes::kCount <= count; c += kMax * Lanes::kCount)
      pool_box<Reduction, kMax, true>(r.taps, x, c, 0, factor, y);
    if (kMax > 4 && c + 4 * Lanes::kCount <= count) {
      pool_box<Reduction, 4, true>(r.taps, x, c, 0, factor, y);
      c += 4 * Lanes::kCount;
    }
    if (c + 2 * Lanes::kCount <= count) {
      pool_box<Reduction, 2, true>(r.taps, x, c, 0, factor, y);
      c += 2 * Lanes::kCount;
    }
    if (c + Lanes::kCount <= count) {
      pool_box<Reduction, 1, true>(r.taps, x, c, 0, factor, y);
      c += Lanes::kCount;
    }
    if (c < count) pool_box<Reduction, 1, false>(r.taps, x, c, static_cast<int>(count - c), factor, y);
  }
}

template <typename T>
constexpr PoolKernels<T> pool_kernels() {
  return {pool_row<PoolMax, T>, pool_row<PoolSum, T>, pool_row<PoolSumAbsolute, T>,
          pool_row<PoolSumSquares, T>};
}
