// Dot products along channels, for convolutions of few outputs; included once per instruction set after Lanes.

template <int Pixels, int Outputs, bool Whole>
PIPIT_LANES void add_products(const DotTile& t, const float* x, const float* weights, int count,
                              Lanes::Vector (&sums)[Pixels][Outputs]) {
  Lanes::Vector v[Pixels];
#pragma GCC unroll 4
  for (int p = 0; p < Pixels; ++p)
    v[p] = Whole ? Lanes::load(x + p * t.x_step) : Lanes::load(x + p * t.x_step, count);
#pragma GCC unroll 4
  for (int o = 0; o < Outputs; ++o) {
    const float* from = weights + o * t.weights_output;
    const Lanes::Vector w = Whole ? Lanes::load(from) : Lanes::load(from, count);
#pragma GCC unroll 4
    for (int p = 0; p < Pixels; ++p) sums[p][o] = Lanes::multiply_add(sums[p][o], v[p], w);
  }
}

template <int Pixels, int Outputs>
void dot_tile(const DotTile& call) {
  const DotTile t = call;  // which no store can change
  Lanes::Vector sums[Pixels][Outputs];
#pragma GCC unroll 4
  for (int p = 0; p < Pixels; ++p) {
#pragma GCC unroll 4
    for (int o = 0; o < Outputs; ++o) sums[p][o] = Lanes::zero();
  }
  const std::int64_t whole = t.run / Lanes::kCount * Lanes::kCount;
  const int rest = static_cast<int>(t.run - whole);
  for (std::int64_t row = 0; row < t.rows; ++row) {
    for (std::int64_t run = 0; run < t.runs; ++run) {
      const float* x = t.x + row * t.x_row + run * t.x_run;
      const float* weights = t.weights + row * t.weights_row + run * t.run;
      for (std::int64_t k = 0; k < whole; k += Lanes::kCount)
        add_products<Pixels, Outputs, true>(t, x + k, weights + k, 0, sums);
      if (rest > 0) add_products<Pixels, Outputs, false>(t, x + whole, weights + whole, rest, sums);
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < Pixels; ++p) {
#pragma GCC unroll 4
    for (int o = 0; o < Outputs; ++o) t.y[p * t.y_step + o] = Lanes::sum(sums[p][o]) + t.bias[o];
  }
}

constexpr DotKernels dot_kernels() {
#define PIPIT_DOTS(pixels) \
  { dot_tile<pixels, 1>, dot_tile<pixels, 2>, dot_tile<pixels, 3>, dot_tile<pixels, 4> }
  return {{PIPIT_DOTS(1), PIPIT_DOTS(DotKernels::kPixels)}};
#undef PIPIT_DOTS
}
