// The transforms of winograd_int8.h on vectors, included by winograd_int8_<isa>.cpp inside an anonymous namespace and
// under the instruction set's target pragma, after
//   Words, Ints: vectors of 16-bit and 32-bit integers, unsigned, so that sums wrap around;
//   InputChannels: which of a vector's channels exist;
//   widen<Whole>(const std::uint8_t*, InputChannels): those bytes as Words, zeros elsewhere; all of them if Whole.

constexpr int n = kByteWinogradInputs;
constexpr int m = kByteWinogradOutputs;

// Vectors that lie anywhere in memory of other types.
template <typename Vector>
using Loose __attribute__((aligned(1), may_alias)) = Vector;

// The part of [begin, end) of a tile's inputs that is inside the image.
struct Inside {
  std::int64_t begin, end;
  Inside(std::int64_t first, std::int64_t extent, std::int64_t inputs)
      : begin(first < 0 ? -first : 0), end(extent - first < inputs ? extent - first : inputs) {}
  bool has(std::int64_t i) const { return i >= begin && i < end; }
};

// F(e, 3) along one axis, derived as in winograd.h: rows of B^T, and A^T with what the denominators of G leave of 24.
template <int e>
struct Border {
  int input[e + 2][e + 2] = {};
  int output[e][e + 2] = {};

  constexpr Border() {
    constexpr int points[] = {0, 1, -1, 2, -2};
    constexpr int signs[] = {1, -1, -1, 1, 1};  // that transform_byte_filters gives them
    for (int i = 0; i <= e + 1; ++i) {          // e + 1 is infinity
      int* polynomial = input[i];
      polynomial[0] = 1;
      int denominator = 1;
      for (int j = 0; j <= e; ++j) {
        if (j == i) continue;
        for (int k = e + 1; k >= 0; --k)
          polynomial[k] = (k > 0 ? polynomial[k - 1] : 0) - points[j] * polynomial[k];
        if (i <= e) denominator *= points[i] - points[j];
      }
      if (i > e) {
        output[e - 1][i] = 24;
        continue;
      }
      int power = 24 / denominator * signs[i];
      for (int k = 0; k < e; ++k, power *= points[i]) output[k][i] = power;
    }
  }
};
template <int e>
inline constexpr Border<e> kBorder{};

// Row `row` of a matrix times x[columns].
template <int columns, typename Vector>
PIPIT_BYTES Vector product(const int (&row)[columns], const Vector* x) {
  Vector sum{};
#pragma GCC unroll 6
  for (int k = 0; k < columns; ++k) {
    if (row[k] == 1) {
      sum += x[k];
    } else if (row[k] == -1) {
      sum -= x[k];
    } else if (row[k] != 0) {
      sum += x[k] * static_cast<std::decay_t<decltype(x[k][0])>>(row[k]);
    }
  }
  return sum;
}

// B^T d of a tile with e outputs: d[e + 2] to v[e + 2].
template <int e>
PIPIT_BYTES void transform_input(const Words* d, Words* v) {
  if constexpr (e == m) {  // the matrix is in winograd.cpp
    const Words even = d[4] - (d[2] << 2);
    const Words odd = d[3] - (d[1] << 2);
    const Words even2 = d[4] - d[2];
    const Words odd2 = (d[3] - d[1]) << 1;
    v[0] = even2 - ((d[2] - d[0]) << 2);
    v[1] = even + odd;
    v[2] = even - odd;
    v[3] = even2 + odd2;
    v[4] = even2 - odd2;
    v[5] = (d[5] - d[3]) - (odd2 << 1);
  } else {
#pragma GCC unroll 6
    for (int i = 0; i < e + 2; ++i) v[i] = product(kBorder<e>.input[i], d);
  }
}

// A^T D m of a tile with e outputs: d[e + 2] to y[e].
template <int e>
PIPIT_BYTES void transform_output(const Ints* d, Ints* y) {
  if constexpr (e == m) {  // D = 6 4 4 1 1 24
    const Ints even = (d[1] + d[2]) << 2;
    const Ints odd = (d[1] - d[2]) << 2;
    const Ints even2 = d[3] + d[4];
    const Ints odd2 = d[3] - d[4];
    y[0] = d[0] * 6 + even + even2;
    y[1] = odd + (odd2 << 1);
    y[2] = even + (even2 << 2);
    y[3] = odd + (odd2 << 3) + d[5] * 24;
  } else {
#pragma GCC unroll 6
    for (int i = 0; i < e; ++i) y[i] = product(kBorder<e>.output[i], d);
  }
}

// The place among six of point i of those that a tile with `outputs` takes along an axis.
PIPIT_BYTES std::int64_t point(std::int64_t i, std::int64_t outputs) {
  return i <= outputs ? i : n - 1;
}

// Calls run with `outputs`, 1 to 4, as a constant.
template <typename Run>
PIPIT_BYTES void with_outputs(std::int64_t outputs, Run&& run) {
  switch (outputs) {
    case 1:
      return run(std::integral_constant<int, 1>{});
    case 2:
      return run(std::integral_constant<int, 2>{});
    case 3:
      return run(std::integral_constant<int, 3>{});
    default:
      return run(std::integral_constant<int, m>{});
  }
}

// Tiles inside the image have all outputs: a constant, so that their code is separate from that of border tiles.
using All = std::integral_constant<int, m>;
template <typename Run>
PIPIT_BYTES void with_outputs(All outputs, Run&& run) {
  run(outputs);
}

// Where a tile's inputs are in the image, and how many outputs it has: All or std::int64_t.
template <typename Outputs>
struct InputTile {
  Inside inside_rows, inside_columns;
  Outputs rows, columns;

  InputTile(const ByteImage& image, std::int64_t row, std::int64_t column, Outputs outputs_down,
            Outputs outputs_along)
      : inside_rows(row, image.height, outputs_down + 2),
        inside_columns(column, image.width, outputs_along + 2),
        rows(outputs_down),
        columns(outputs_along) {}
};

// Down the columns of a tile's inputs: half[i * n + j] for point i of them.
template <int Rows, bool Whole, typename Outputs>
PIPIT_BYTES void input_columns(const ByteImage& image, std::int64_t corner, const InputTile<Outputs>& tile,
                               InputChannels channels, Words* half) {
  const std::int64_t row_step = image.width * image.channels;
  const auto zero_point = static_cast<unsigned short>(image.zero_point);
  const std::int64_t count = tile.columns + 2;
#pragma GCC unroll 1
  for (std::int64_t j = 0; j < count; ++j) {
    Words d[Rows + 2];
    Words t[Rows + 2];
    const bool outside = !tile.inside_columns.has(j);
#pragma GCC unroll 6
    for (int i = 0; i < Rows + 2; ++i) {
      d[i] = Words{};
      if (outside || !tile.inside_rows.has(i)) continue;
      d[i] = widen<Whole>(image.data + (corner + i * row_step + j * image.channels), channels) - zero_point;
    }
    transform_input<Rows>(d, t);
#pragma GCC unroll 6
    for (int i = 0; i < Rows + 2; ++i) half[i * n + j] = t[i];
  }
}

// Along the rows of the half transformed ones, to v.
template <int Columns, typename Outputs>
PIPIT_BYTES void input_rows(const Words* half, Outputs rows, std::byte* v, std::int64_t plane) {
  const std::int64_t count = rows + 2;
#pragma GCC unroll 1
  for (std::int64_t i = 0; i < count; ++i) {
    Words t[Columns + 2];
    transform_input<Columns>(half + i * n, t);
    std::byte* to = v + point(i, rows) * n * plane;
#pragma GCC unroll 6
    for (int j = 0; j < Columns + 2; ++j)
      *reinterpret_cast<Loose<Words>*>(to + point(j, Columns) * plane) = t[j];
  }
}

template <bool Whole, typename Outputs>
PIPIT_BYTES void input_channels(const ByteImage& image, std::int64_t corner, const InputTile<Outputs>& tile,
                                InputChannels channels, std::byte* v, std::int64_t plane) {
  Words half[n * n];
  with_outputs(tile.rows,
               [&](auto rows) { input_columns<rows, Whole>(image, corner, tile, channels, half); });
  with_outputs(tile.columns, [&](auto columns) { input_rows<columns>(half, tile.rows, v, plane); });
}

// Down the columns of a tile's products: half[i * n + j] for row i of its outputs.
template <int Rows, typename Outputs>
PIPIT_BYTES void output_columns(const std::byte* products, std::int64_t plane, Outputs columns, Ints* half) {
  const std::int64_t count = columns + 2;
#pragma GCC unroll 1
  for (std::int64_t j = 0; j < count; ++j) {
    Ints d[Rows + 2];
    Ints t[Rows];
    const std::byte* from = products + point(j, columns) * plane;
#pragma GCC unroll 6
    for (int i = 0; i < Rows + 2; ++i)
      d[i] = *reinterpret_cast<const Loose<Ints>*>(from + point(i, Rows) * n * plane);
    transform_output<Rows>(d, t);
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) half[i * n + j] = t[i];
  }
}
