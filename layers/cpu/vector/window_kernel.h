// Convolutions of small groups with any window, included once per instruction set after the tiles of depthwise
// convolutions.

template <int Columns, int Taps, bool Permuted>
void window_chain(const WindowTile& call) {
  const WindowTile t = call;  // which no store can change
  float* results = t.sums;
  for (const WindowJob* job = t.jobs; job != t.jobs + t.job_count; ++job) {
    Lanes::Vector sums[Columns];
#pragma GCC unroll 16
    for (int i = 0; i < Columns; ++i)
      sums[i] = t.more ? Lanes::load(results + i * Lanes::kCount) : Lanes::zero();
    for (std::int64_t link = 0; link < t.links; ++link) {
      const std::int64_t offset = job->x + t.x_offset + link * t.x_link;
      const float* row_weights = t.weights + job->weights + link * t.weights_link;
      for (std::int64_t r = 0; r < t.row_count; ++r, row_weights += t.weights_row) {
        const float* x = t.rows[r] + offset;
        const float* weights = row_weights;
        const std::int32_t* lanes = t.lanes;
        for (std::int64_t pass = 0; pass < (Permuted ? t.passes : 1); ++pass, weights += Lanes::kCount) {
          Lanes::Index index{};
          if constexpr (Permuted) index = Lanes::load_index(lanes);
          Lanes::Vector w[Taps];
#pragma GCC unroll 8
          for (int k = 0; k < Taps; ++k) w[k] = Lanes::load(weights + k * t.weights_step);
#pragma GCC unroll 24
          for (int p = 0; p < Columns + Taps - 1; ++p) {
            Lanes::Vector v = Lanes::load(x + p * t.x_step);
            if constexpr (Permuted) v = Lanes::permute(v, index);
            v = Lanes::keep(v);
#pragma GCC unroll 8
            for (int k = 0; k < Taps; ++k) {
              if (p < k || p - k >= Columns) continue;
              sums[p - k] = Lanes::multiply_add(sums[p - k], v, w[k]);
            }
          }
          lanes += Lanes::kCount;
        }
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < Columns; ++i) Lanes::store(results + i * Lanes::kCount, sums[i]);
    results += Columns * Lanes::kCount;
  }
}

// Weights of a chain stay in registers, as sums do.
constexpr int kChainTaps = Lanes::kRegisters >= 32 ? 7 : 5;
constexpr int kTileColumns[WindowKernels::kWidths] = {
    Lanes::kRegisters >= 32 ? 14 : 7, Lanes::kRegisters >= 32 ? 7 : 4, Lanes::kRegisters >= 32 ? 4 : 0};

template <int Columns, int... Taps>
constexpr void fill_width(WindowKernels& kernels, int width, std::integer_sequence<int, Taps...> /*taps*/) {
  if constexpr (Columns > 0) {
    ((kernels.chain[width][Taps + 1][0] = window_chain<Columns, Taps + 1, false>), ...);
    ((kernels.chain[width][Taps + 1][1] = window_chain<Columns, Taps + 1, true>), ...);
  }
  kernels.columns[width] = Columns;
}

constexpr WindowKernels window_kernels() {
  WindowKernels kernels{};
  kernels.taps = kChainTaps;
  constexpr auto kTaps = std::make_integer_sequence<int, kChainTaps>();
  fill_width<kTileColumns[0]>(kernels, 0, kTaps);
  fill_width<kTileColumns[1]>(kernels, 1, kTaps);
  fill_width<kTileColumns[2]>(kernels, 2, kTaps);
  return kernels;
}

template <typename T>
void stage_pixels(const StagedPixels<T>& call) {
  const StagedPixels<T> s = call;
  const Lanes::Vector minus_zero_point = Lanes::broadcast(-s.zero_point);
  for (std::int64_t i = 0; i < s.pixels; ++i) {
    const T* x = s.x + i * s.x_step;
    float* y = s.y + i * s.y_step;
    std::int64_t c = 0;
    for (; c + Lanes::kCount <= s.channels; c += Lanes::kCount)
      Lanes::store(y + c, load_input<true>(x + c, Lanes::kCount, minus_zero_point));
    if (c == s.channels) continue;
    const int count = static_cast<int>(s.channels - c);
    Lanes::store(y + c, load_input<false>(x + c, count, minus_zero_point), count);
  }
}

// The sums of one job in floats.
template <bool Whole, typename T>
PIPIT_LANES void finish_floats(const DepthwiseTile<T>& t, const WindowJob& job, const float* sums) {
  const int count = static_cast<int>(job.count);
  const Lanes::Vector low = Lanes::broadcast(t.low);
  const Lanes::Vector high = Lanes::broadcast(t.high);
  Lanes::Vector bias = Lanes::zero();
  if (t.bias != nullptr)
    bias = Whole ? Lanes::load(t.bias + job.channel) : Lanes::load(t.bias + job.channel, count);
  T* y = t.y + job.y;
  const T* residual = t.residual == nullptr ? nullptr : t.residual + job.y;
  for (std::int64_t i = 0; i < t.columns; ++i, y += t.y_step) {
    Lanes::Vector v = Lanes::add(Lanes::load(sums + i * Lanes::kCount), bias);
    if (residual != nullptr) {
      v = Lanes::add(v, Whole ? Lanes::load(residual) : Lanes::load(residual, count));
      residual += t.y_step;
    }
    v = Lanes::clamp(v, low, high);
    Lanes::own(y + t.columns * t.y_step);  // the next tile's, as a rule
    if (Whole) {
      Lanes::store(y, v);
    } else {
      Lanes::store(y, v, count);
    }
  }
}

// The sums of one job in bytes; `whole` as WindowOutput has it.
PIPIT_LANES void finish_bytes(const DepthwiseTile<std::uint8_t>& t, const WindowJob& job, const float* sums,
                              const std::int32_t* whole, int count) {
  const ByteLanes lanes(t, job.channel);
  const std::int32_t* own = t.bytes.bias + job.channel;
  for (std::int64_t i = 0; i < t.columns; ++i) {
    const Lanes::Vector sum = Lanes::load(sums + i * Lanes::kCount);
    const std::int64_t at = job.y + i * t.y_step;
    if (whole == nullptr) {
      finish_byte_lanes(t, lanes, sum, own, at, count);
      continue;
    }
    std::int32_t bias[Lanes::kCount];
    for (int l = 0; l < Lanes::kCount; ++l)
      bias[l] = static_cast<std::int32_t>(static_cast<std::uint32_t>(own[l]) +
                                          static_cast<std::uint32_t>(whole[i * Lanes::kCount + l]));
    finish_byte_lanes(t, lanes, sum, bias, at, count);
  }
}

template <typename T>
void finish_window(const WindowOutput<T>& output) {
  const WindowOutput<T> o = output;  // which no store can change
  const float* sums = o.sums;
  for (const WindowJob* job = o.jobs; job != o.jobs + o.job_count; ++job, sums += o.sums_step) {
    const bool all = job->count == Lanes::kCount;
    if constexpr (std::is_same_v<T, std::uint8_t>) {
      if (all) {
        finish_bytes(o.tile, *job, sums, o.whole, Lanes::kCount);
      } else {
        finish_bytes(o.tile, *job, sums, o.whole, static_cast<int>(job->count));
      }
    } else if (all) {
      finish_floats<true>(o.tile, *job, sums);
    } else {
      finish_floats<false>(o.tile, *job, sums);
    }
  }
}

template <typename T>
constexpr WindowStorage<T> window_storage() {
  return {stage_pixels<T>, finish_window<T>};
}
