#include "layers/cpu/movement/strided_copy.h"

#include <cstring>
#include <utility>

#include "layers/common/dispatch.h"
#include "layers/cpu/work_sharing.h"

namespace pipit {

namespace {

// Tile of a transposition: at 8 bytes an element both sides of 32 x 32 fit the first-level cache.
constexpr std::int64_t kTile = 32;

template <std::size_t Bytes>
void copy_element(std::byte* target, const std::byte* source) {
  std::memcpy(target, source, Bytes);
}

// Neighbours that fill 16 bytes.
template <std::size_t Bytes>
struct Pack {
  static constexpr int kCount = static_cast<int>(16 / Bytes);
  using Vector __attribute__((vector_size(16))) = Element<Bytes>;
};

// The elements of two packs in turns, of their first or their second halves.
template <typename Vector, std::size_t... I>
Vector zip(Vector a, Vector b, bool second, std::index_sequence<I...>) {
  constexpr int kCount = sizeof...(I);
  return second ? __builtin_shufflevector(a, b, (kCount / 2 + int{I} / 2 + int{I} % 2 * kCount)...)
                : __builtin_shufflevector(a, b, (int{I} / 2 + int{I} % 2 * kCount)...);
}

// `Rows` neighbours of each of `Columns` columns of the source become neighbouring columns of as many rows. Where one
// of both is less than a pack holds the rest of it is not touched in memory.
template <std::size_t Bytes, int Rows, int Columns>
void transpose_pack(std::byte* to, std::int64_t to_step, const std::byte* from, std::int64_t from_step) {
  constexpr int kCount = Pack<Bytes>::kCount;
  using Vector = typename Pack<Bytes>::Vector;
  constexpr auto kIndices = std::make_index_sequence<kCount>();
  Vector packs[kCount] = {};
  for (int c = 0; c < Columns; ++c) std::memcpy(&packs[c], from + c * from_step, Rows * Bytes);
    // A perfect shuffle of all elements as often as their number has bits.
#pragma GCC unroll 4
  for (int step = 1; step < kCount; step *= 2) {
    Vector shuffled[kCount];
#pragma GCC unroll 8
    for (int i = 0; i < kCount / 2; ++i) {
      shuffled[2 * i] = zip(packs[i], packs[i + kCount / 2], false, kIndices);
      shuffled[2 * i + 1] = zip(packs[i], packs[i + kCount / 2], true, kIndices);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) packs[i] = shuffled[i];
  }
  for (int r = 0; r < Rows; ++r) std::memcpy(to + r * to_step, &packs[r], Columns * Bytes);
}

struct Tile {
  std::byte* to;
  const std::byte* from;
  std::int64_t to_step, from_step;  // bytes from row to row, from column to column
  std::int64_t rows, columns;
};

template <std::size_t Bytes>
void transpose_rest(const Tile& tile, std::int64_t first_row, std::int64_t first_column) {
  constexpr auto kBytes = static_cast<std::int64_t>(Bytes);
  for (std::int64_t r = first_row; r < tile.rows; ++r) {
    for (std::int64_t c = first_column; c < tile.columns; ++c)
      copy_element<Bytes>(tile.to + r * tile.to_step + c * kBytes,
                          tile.from + c * tile.from_step + r * kBytes);
  }
}

// Rows of the tile in packs of `Rows`, of columns in packs of `Columns`: returns how many were done.
template <std::size_t Bytes, int Rows, int Columns>
void transpose_packs(const Tile& tile, std::int64_t& rows, std::int64_t& columns) {
  constexpr auto kBytes = static_cast<std::int64_t>(Bytes);
  rows = tile.rows / Rows * Rows;
  columns = tile.columns / Columns * Columns;
  for (std::int64_t r = 0; r < rows; r += Rows) {
    for (std::int64_t c = 0; c < columns; c += Columns) {
      transpose_pack<Bytes, Rows, Columns>(tile.to + r * tile.to_step + c * kBytes, tile.to_step,
                                           tile.from + c * tile.from_step + r * kBytes, tile.from_step);
    }
  }
}

template <std::size_t Bytes>
void transpose_tile(const Tile& tile) {
  constexpr int kCount = Pack<Bytes>::kCount;
  std::int64_t rows = 0, columns = 0;
  // Images of three channels have packs of their own.
  if (Bytes == 4 && tile.columns == 3) {
    transpose_packs<Bytes, kCount, 3>(tile, rows, columns);
  } else if (Bytes == 4 && tile.rows == 3) {
    transpose_packs<Bytes, 3, kCount>(tile, rows, columns);
  } else {
    transpose_packs<Bytes, kCount, kCount>(tile, rows, columns);
  }
  transpose_rest<Bytes>({tile.to, tile.from, tile.to_step, tile.from_step, rows, tile.columns}, 0, columns);
  transpose_rest<Bytes>(tile, rows, 0);
}

}  // namespace

StridedCopy::StridedCopy(const StridedLoop<2>& loop, DType type) : type_(type), loop_(loop) {
  loop_.collapse();
  const int last = loop_.rank() - 1;
  if (last < 1 || loop_.strides(last)[0] != 1 || loop_.strides(last)[1] == 1) return;
  for (int d = 0; d < last; ++d) {
    if (loop_.strides(d)[1] == 1) source_dim_ = d;
  }
  for (int d = 0; d < last; ++d) {
    if (d != source_dim_) outer_.add(loop_.extent(d), loop_.strides(d));
  }
}

template <std::size_t Bytes>
void StridedCopy::copy_rows(std::byte* target, const std::byte* source, ThreadPool& pool) const {
  constexpr auto kBytes = static_cast<std::int64_t>(Bytes);
  const std::int64_t to_step = loop_.row_strides()[0];
  const std::int64_t from_step = loop_.row_strides()[1];
  parallel_chunks(pool, loop_.size(), kChunkBytes / kBytes, [&](std::int64_t begin, std::int64_t end) {
    loop_.for_each_run(begin, end, [&](const auto& at, std::int64_t count) {
      std::byte* to = target + at[0] * kBytes;
      const std::byte* from = source + at[1] * kBytes;
      if (to_step == 1 && from_step == 1) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * Bytes);
        return;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        copy_element<Bytes>(to + i * to_step * kBytes, from + i * from_step * kBytes);
      }
    });
  });
}

template <std::size_t Bytes>
void StridedCopy::transpose(std::byte* target, const std::byte* source, ThreadPool& pool) const {
  constexpr auto kBytes = static_cast<std::int64_t>(Bytes);
  const std::int64_t rows = loop_.extent(source_dim_);  // neighbours in the source
  const std::int64_t columns = loop_.row();             // neighbours in the target
  const std::int64_t to_step = loop_.strides(source_dim_)[0] * kBytes;
  const std::int64_t from_step = loop_.row_strides()[1] * kBytes;
  const std::int64_t row_tiles = (rows + kTile - 1) / kTile;
  const std::int64_t column_tiles = (columns + kTile - 1) / kTile;

  // Tiles are claimed in groups worth claiming.
  const std::int64_t tiles = outer_.size() * row_tiles * column_tiles;
  const std::int64_t group = std::max<std::int64_t>(1, kChunkBytes / (kTile * kTile * kBytes));
  parallel_chunks(pool, tiles, group, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t first_column = tile % column_tiles * kTile;
      const std::int64_t first_row = tile / column_tiles % row_tiles * kTile;
      const std::int64_t outer = tile / column_tiles / row_tiles;
      const std::int64_t last_row = std::min(rows, first_row + kTile);
      const std::int64_t count = std::min(columns - first_column, kTile);
      outer_.for_each_run(outer, outer + 1, [&](const auto& at, std::int64_t /*count*/) {
        transpose_tile<Bytes>({target + at[0] * kBytes + first_row * to_step + first_column * kBytes,
                               source + at[1] * kBytes + first_row * kBytes + first_column * from_step,
                               to_step, from_step, last_row - first_row, count});
      });
    }
  });
}

void StridedCopy::run(std::byte* target, const std::byte* source, ThreadPool& pool) const {
  with_element_size(type_, [&](auto bytes) {
    if (source_dim_ >= 0) {
      transpose<decltype(bytes)::value>(target, source, pool);
    } else {
      copy_rows<decltype(bytes)::value>(target, source, pool);
    }
  });
}

}  // namespace pipit
