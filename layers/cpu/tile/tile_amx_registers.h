// Tile registers, included by tile_amx.cpp and tile_amx_bf16.cpp in a namespace of their own and under their target
// pragma: 32 pixels by 32 outputs, four registers of 16 x 16 sums. A panel is what AMX wants of weights: rows of one
// step, 4 bytes for each output. What is multiplied says a class with
//   kStep              elements of A in a step
//   multiply<Sums>()   adds to register number Sums, of 0 to 3, the products of its pixels and its weights; the numbers
//                      of registers must be written out, the compiler's functions take no others
//   finish_tile<Strips, Vectors>(sums, call, pixels)
//                      bias, epilogue and stores of a tile's sums[strip][pixel][vector]

using SumVector = int __attribute__((vector_size(64)));  // of 16 outputs

constexpr int kStrip = 16;
constexpr std::int64_t kRowBytes = 64;  // of sums and of weights: 16 outputs

// What the tile registers of this thread are shaped for. Number 2 s + v holds the sums of strip s and vector v, 4 + s
// the pixels of strip s, 6 + v the weights of vector v.
struct Shapes {
  int pixels = 0;
  std::int32_t run = 0;
  int steps = 0;  // of K in a register
};
thread_local Shapes shapes;

// As LDTILECFG reads it.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// LDTILECFG takes about as long as a short sum.
__attribute__((noinline)) void shape_registers(int pixels, std::int32_t run) {
  const int steps = amx_steps(run);
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    const bool reads_pixels = i == 4 || i == 5;
    config.row_bytes[i] = static_cast<std::uint16_t>(reads_pixels ? 4 * steps : kRowBytes);
    config.rows[i] = static_cast<std::uint8_t>(i < 6 ? pixels : steps);
  }
  __asm__ volatile("" : : "r"(&config) : "memory");  // the intrinsic does not say what it reads
  _tile_loadconfig(&config);
  shapes = {pixels, run, steps};
}

void release() {
  if (shapes.pixels == 0) return;
  _tile_release();
  shapes = {};
}

// What `count` steps are to fetch, every line once.
PIPIT_TILE_INLINE const std::byte* prefetch_lines(const std::byte* at, std::int64_t step, int count) {
  const std::byte* const end = at + count * step;
  const std::int64_t apart = step > 64 ? step : 64;
  for (; at < end; at += apart) __builtin_prefetch(at, 0, 2);
  return end;
}

// The sums of a tile to sums[strip][pixel][vector].
template <typename T, int Strips, int Vectors>
PIPIT_TILE_INLINE void multiply(const TileCall& call, int pixels, int steps, SumVector* sums) {
  constexpr std::int64_t kPanelRow = Vectors * kRowBytes;
  _tile_zero(0);
  if constexpr (Vectors > 1) _tile_zero(1);
  if constexpr (Strips > 1) _tile_zero(2);
  if constexpr (Strips > 1 && Vectors > 1) _tile_zero(3);

  const std::int64_t a_stride = call.a_stride;
  const std::byte* weights = call.weights;
  const std::byte* prefetch = call.prefetch;
  for (std::int32_t s = 0; s < call.segment_count; ++s) {
    const std::byte* a0 = call.a[0] + call.segments[s];
    const std::byte* a1 = Strips > 1 ? call.a[1] + call.segments[s] : nullptr;
    for (std::int32_t left = call.run; left > 0; left -= steps) {
      _tile_loadd(6, weights, kPanelRow);
      _tile_loadd(4, a0, a_stride);
      T::template multiply<0>();
      if constexpr (Vectors > 1) {
        _tile_loadd(7, weights + kRowBytes, kPanelRow);
        T::template multiply<1>();
      }
      if constexpr (Strips > 1) {
        _tile_loadd(5, a1, a_stride);
        T::template multiply<2>();
        if constexpr (Vectors > 1) T::template multiply<3>();
        a1 += 4 * steps;
      }
      a0 += 4 * steps;
      weights += steps * kPanelRow;
      if (call.prefetch_step != 0) prefetch = prefetch_lines(prefetch, call.prefetch_step, steps);
    }
  }
  _tile_stored(0, sums, kPanelRow);
  if constexpr (Vectors > 1) _tile_stored(1, sums + 1, kPanelRow);
  if constexpr (Strips > 1) {
    sums += pixels * Vectors;
    _tile_stored(2, sums, kPanelRow);
    if constexpr (Vectors > 1) _tile_stored(3, sums + 1, kPanelRow);
  }
}

template <typename T>
void spin_registers(std::int64_t steps) {
  shape_registers(kStrip, 16);
  for (; steps > 0; steps -= 16) {
    T::template multiply<0>();
    T::template multiply<1>();
    T::template multiply<2>();
    T::template multiply<3>();
  }
  release();
}

template <typename T, int Strips, int Vectors>
__attribute__((noinline)) void run(const TileCall& call, int pixels) {
  if (shapes.pixels != pixels || shapes.run != call.run) shape_registers(pixels, call.run);
  // The residual is usually in no cache nearby: prefetch it before the sums.
  for (int g = 0; g < Strips; ++g) {
    if (call.residual[g] == nullptr) continue;
#pragma GCC unroll 1
    for (int i = 0; i < pixels; ++i) __builtin_prefetch(call.residual[g] + i * call.residual_stride, 0, 3);
  }
  SumVector sums[Strips * kStrip * Vectors];
  multiply<T, Strips, Vectors>(call, pixels, shapes.steps, sums);
  T::template finish_tile<Strips, Vectors>(sums, call, pixels);
}

// One function for all numbers of pixels, which are rows of registers.
template <typename T, int Strips, int Pixels, int Vectors>
void tile_of(const TileCall& call) {
  run<T, Strips, Vectors>(call, Pixels);
}

template <typename T, int... Pixels>
constexpr TileKernels kernels_of(std::integer_sequence<int, Pixels...> /*pixels*/) {
  return {Isa::amx,
          16,
          kStrip,
          T::kStep,
          0,
          false,
          {{{tile_of<T, 1, Pixels + 1, 1>, tile_of<T, 1, Pixels + 1, 2>}...},
           {{tile_of<T, 2, Pixels + 1, 1>, tile_of<T, 2, Pixels + 1, 2>}...}},
          spin_registers<T>,
          release};
}
