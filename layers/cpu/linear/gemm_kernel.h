// The body of GemmIsa, included by gemm_<isa>.cpp after it has raised its instruction set, inside a namespace without a
// name. Its traits T provide
//   Vector, kLanes        a vector of floats
//   kRows, kVectors       rows and vectors of a register tile
//   broadcast(p)          the float at p in every lane
//   multiply_add(s, a, b) s + a * b
//   load(p, n), store(p, v, n) the first n lanes, which may be none
// PIPIT_GEMM_INLINE is how functions are inlined whatever the compiler thinks of it.

template <typename T>
inline constexpr std::int64_t kPanelColumns = T::kLanes* T::kVectors;

template <typename T>
PIPIT_GEMM_INLINE typename T::Vector load(const float* p) {
  typename T::Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Columns of the packed panel that begins at `column`: whole cache lines.
template <typename T>
PIPIT_GEMM_INLINE std::int64_t stored_columns(std::int64_t n, std::int64_t column) {
  const std::int64_t left = (n - column + kGemmPadding - 1) / kGemmPadding * kGemmPadding;
  return left < kPanelColumns<T> ? left : kPanelColumns<T>;
}

// What TransposedTile asks for in bytes.
constexpr std::int64_t bytes_of(std::int64_t floats) {
  return floats * static_cast<std::int64_t>(sizeof(float));
}

// to[r][c] = from[c][r].
inline void turn(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
                 float* to, std::int64_t to_stride) {
  transpose_of(sizeof(float))({reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                               bytes_of(to_stride), bytes_of(from_stride), rows, columns});
}

// Rows of B that are read side by side: more would be too many streams for a cache, fewer write too little at a time.
constexpr std::int64_t kPackedTogether = 8;

// Panel after panel, each [k][stored_columns]; zeros after the last column.
template <typename T>
void pack(const MatrixView& b, std::int64_t k, std::int64_t n, float* packed) {
  const std::int64_t whole = n / kPanelColumns<T> * kPanelColumns<T>;
  if (b.transposed) {
    for (std::int64_t column = 0; column < whole; column += kPanelColumns<T>)
      turn(b.data + column * b.stride, b.stride, k, kPanelColumns<T>, packed + column * k, kPanelColumns<T>);
  } else {
    for (std::int64_t j = 0; j < k; j += kPackedTogether) {
      const std::int64_t end = j + kPackedTogether < k ? j + kPackedTogether : k;
      for (std::int64_t column = 0; column < whole; column += kPanelColumns<T>) {
        for (std::int64_t i = j; i < end; ++i)
          std::memcpy(packed + column * k + i * kPanelColumns<T>, b.data + i * b.stride + column,
                      sizeof(float) * kPanelColumns<T>);
      }
    }
  }
  if (whole == n) return;
  float* const last = packed + whole * k;
  const std::int64_t stored = stored_columns<T>(n, whole), count = n - whole;
  if (b.transposed) turn(b.data + whole * b.stride, b.stride, k, count, last, stored);
  for (std::int64_t j = 0; j < k; ++j) {
    for (std::int64_t c = 0; !b.transposed && c < count; ++c)
      last[j * stored + c] = b.data[j * b.stride + whole + c];
    for (std::int64_t c = count; c < stored; ++c) last[j * stored + c] = 0;
  }
}

// Some rows of A times one packed panel.
struct GemmTile {
  std::int64_t k = 0;
  const float* a = nullptr;
  std::int64_t a_stride = 0;
  const float* panel = nullptr;
  std::int64_t stored = 0;  // columns of the panel
  float* c = nullptr;
  std::int64_t c_stride = 0;
  std::int64_t columns = 0;  // of C
  float alpha = 1;
};

// One step of k: sums[r][v] += a[r] * vector v of the panel's row.
template <typename T, int Rows, int Vectors>
PIPIT_GEMM_INLINE void add_products(typename T::Vector (&sums)[Rows][Vectors], const float* a,
                                    std::int64_t a_stride, const float* panel) {
  typename T::Vector b[Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) b[v] = load<T>(panel + v * T::kLanes);
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
    const typename T::Vector x = T::broadcast(a + r * a_stride);
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sums[r][v] = T::multiply_add(sums[r][v], x, b[v]);
  }
}

template <typename T, int Rows, int Vectors>
void multiply_tile(const GemmTile& tile) {
  using Vector = typename T::Vector;
  // Enough sums that do not depend on each other to hide what an addition takes.
  constexpr int Parts = Rows * Vectors >= 8 ? 1 : Rows * Vectors >= 4 ? 2 : 4;
  Vector parts[Parts][Rows][Vectors] = {};
  const float* a = tile.a;
  const float* panel = tile.panel;
  const std::int64_t a_stride = tile.a_stride, stored = tile.stored;
  std::int64_t steps = tile.k;
  for (; steps >= Parts; steps -= Parts) {
#pragma GCC unroll 4
    for (int p = 0; p < Parts; ++p, ++a, panel += stored) add_products<T>(parts[p], a, a_stride, panel);
  }
  for (; steps > 0; --steps, ++a, panel += stored) add_products<T>(parts[0], a, a_stride, panel);
  Vector(&sums)[Rows][Vectors] = parts[0];
#pragma GCC unroll 4
  for (int p = 1; p < Parts; ++p) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sums[r][v] = sums[r][v] + parts[p][r][v];
    }
  }
  const Vector alpha = T::broadcast(&tile.alpha);
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      float* const c = tile.c + r * tile.c_stride + v * T::kLanes;
      const std::int64_t left = tile.columns - v * T::kLanes;
      if (left >= T::kLanes) {
        const Vector sum = T::multiply_add(load<T>(c), alpha, sums[r][v]);
        std::memcpy(c, &sum, sizeof sum);
      } else {
        T::store(c, T::multiply_add(T::load(c, left), alpha, sums[r][v]), left);
      }
    }
  }
}

using MultiplyTile = void (*)(const GemmTile& tile);

template <typename T, int Vectors, int... Rows>
constexpr MultiplyTile tile_of_rows(int rows, std::integer_sequence<int, Rows...> /*all*/) {
  constexpr MultiplyTile kTiles[] = {multiply_tile<T, Rows + 1, Vectors>...};
  return kTiles[rows - 1];
}

template <typename T, int... Vectors>
constexpr MultiplyTile tile_of(int rows, int vectors, std::integer_sequence<int, Vectors...> /*all*/) {
  const MultiplyTile tiles[] = {
      tile_of_rows<T, Vectors + 1>(rows, std::make_integer_sequence<int, T::kRows>{})...};
  return tiles[vectors - 1];
}

// Rows of A that are turned, or lie so that they compete for the same lines of a cache, are copied.
constexpr std::int64_t kCollidingFloats = 512;

// `b_stride`: of B as it lies; 0: B is packed.
template <typename T>
void accumulate_panels(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const MatrixView& a,
                       const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride,
                       float* workspace) {
  GemmTile tile{.k = k, .a = a.data, .a_stride = a.stride, .c_stride = c_stride, .alpha = alpha};
  if (a.transposed) {
    turn(a.data, a.stride, m, k, workspace, k);
  } else if (m > 1 && a.stride % kCollidingFloats == 0) {
    for (std::int64_t r = 0; r < m; ++r)
      std::memcpy(workspace + r * k, a.data + r * a.stride, static_cast<std::size_t>(k) * sizeof(float));
  }
  if (a.transposed || (m > 1 && a.stride % kCollidingFloats == 0)) {
    tile.a = workspace;
    tile.a_stride = k;
  }
  const float* const rows_of_a = tile.a;
  for (std::int64_t column = 0; column < n; column += kPanelColumns<T>) {
    const std::int64_t panel_columns = stored_columns<T>(n, column);
    tile.panel = b_stride == 0 ? b + column * k : b + column;
    tile.stored = b_stride == 0 ? panel_columns : b_stride;
    tile.columns = n - column < panel_columns ? n - column : panel_columns;
    const auto vectors = static_cast<int>((tile.columns + T::kLanes - 1) / T::kLanes);
    for (std::int64_t row = 0; row < m;) {
      const std::int64_t tiles = (m - row + T::kRows - 1) / T::kRows;
      const std::int64_t rows = (m - row + tiles - 1) / tiles;  // nearly equal ones
      tile.a = rows_of_a + row * tile.a_stride;
      tile.c = c + row * c_stride + column;
      tile_of<T>(static_cast<int>(rows), vectors, std::make_integer_sequence<int, T::kVectors>{})(tile);
      row += rows;
    }
  }
}

template <typename T>
void accumulate(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const MatrixView& a,
                const float* packed_b, float* c, std::int64_t c_stride, float* workspace) {
  accumulate_panels<T>(m, n, k, alpha, a, packed_b, 0, c, c_stride, workspace);
}

template <typename T>
void accumulate_unpacked(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const MatrixView& a,
                         const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride,
                         float* workspace) {
  accumulate_panels<T>(m, n, k, alpha, a, b, b_stride, c, c_stride, workspace);
}
