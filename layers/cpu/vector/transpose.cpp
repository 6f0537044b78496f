#include "layers/cpu/vector/transpose.h"

#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/platform/simd.h"
#include "layers/common/dispatch.h"

namespace pipit::internal {

namespace {

// Neighbours that fill 16 bytes.
template <std::size_t Bytes>
constexpr int kNeighbours = static_cast<int>(16 / Bytes);

// Lanes times 16 bytes.
template <std::size_t Bytes, int Lanes>
struct Pack {
  using Vector __attribute__((vector_size(16 * Lanes))) = Element<Bytes>;
};

// In every lane of 16 bytes the elements of both in turns: of their first halves into one, of their second into the
// other. Vectors go by reference: how one of 32 bytes is passed depends on the instruction set.
template <int Count, typename Vector, std::size_t... I>
PIPIT_INLINE inline void zip(const Vector& a, const Vector& b, Vector& first, Vector& second,
                             std::index_sequence<I...> /*all*/) {
  constexpr int kAll = sizeof...(I);
  first = __builtin_shufflevector(a, b, (int{I} / Count * Count + int{I} % Count / 2 + int{I} % 2 * kAll)...);
  second = __builtin_shufflevector(
      a, b, (int{I} / Count * Count + Count / 2 + int{I} % Count / 2 + int{I} % 2 * kAll)...);
}

template <typename Half, typename Vector, std::size_t... I>
PIPIT_INLINE inline void join(const Half& low, const Half& high, Vector& both,
                              std::index_sequence<I...> /*all*/) {
  both = __builtin_shufflevector(low, high, int{I}...);
}

// The first `Read` bytes of 16: pieces of them put together in memory would be waited for.
template <int Read, typename Half>
PIPIT_INLINE inline void load_half(const std::byte* from, Half& half) {
  if constexpr (Read == 12) {
    std::uint64_t low = 0;
    std::uint32_t high = 0;
    std::memcpy(&low, from, sizeof low);
    std::memcpy(&high, from + sizeof low, sizeof high);
    using Words __attribute__((vector_size(16))) = std::uint64_t;
    half = reinterpret_cast<Half>(Words{low, high});
  } else {
    static_assert(Read == 16);
    std::memcpy(&half, from, 16);
  }
}

template <int Written, typename Vector>
PIPIT_INLINE inline void store_pack(std::byte* to, const Vector& pack) {
  if constexpr (Written == 12) {
    using Words __attribute__((vector_size(16))) = std::uint64_t;
    const auto words = reinterpret_cast<Words>(pack);
    const std::uint64_t low = words[0];
    const auto high = static_cast<std::uint32_t>(words[1]);
    std::memcpy(to, &low, sizeof low);
    std::memcpy(to + sizeof low, &high, sizeof high);
  } else {
    static_assert(Written == sizeof(Vector));
    using Unaligned __attribute__((vector_size(sizeof(Vector)), aligned(1), may_alias)) = std::uint8_t;
    *reinterpret_cast<Unaligned*>(to) = reinterpret_cast<Unaligned>(pack);
  }
}

// `Rows` neighbours of each of `Columns` columns of the source, in every lane, become neighbouring columns of as many
// rows. Where one of both is less than a lane holds the rest of it is not touched in memory.
template <std::size_t Bytes, int Lanes, int Rows, int Columns>
PIPIT_INLINE inline void transpose_pack(std::byte* to, std::int64_t to_step, const std::byte* from,
                                        std::int64_t from_step) {
  constexpr int kCount = kNeighbours<Bytes>;
  constexpr auto kIndices = std::make_index_sequence<kCount * Lanes>();
  typename Pack<Bytes, Lanes>::Vector packs[kCount] = {};
#pragma GCC unroll 16
  for (int c = 0; c < Columns; ++c) {
    if constexpr (Lanes == 1) {
      load_half<Rows * Bytes>(from + c * from_step, packs[c]);
    } else {
      typename Pack<Bytes, 1>::Vector low, high;
      load_half<Rows * Bytes>(from + c * from_step, low);
      load_half<Rows * Bytes>(from + (c + kCount) * from_step, high);
      join(low, high, packs[c], kIndices);
    }
  }
  // A perfect shuffle of all elements as often as their number has bits.
#pragma GCC unroll 4
  for (int step = 1; step < kCount; step *= 2) {
    typename Pack<Bytes, Lanes>::Vector shuffled[kCount];
#pragma GCC unroll 8
    for (int i = 0; i < kCount / 2; ++i)
      zip<kCount>(packs[i], packs[i + kCount / 2], shuffled[2 * i], shuffled[2 * i + 1], kIndices);
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) packs[i] = shuffled[i];
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) store_pack<Columns * Bytes * Lanes>(to + r * to_step, packs[r]);
}

template <std::size_t Bytes>
PIPIT_INLINE inline void copy_element(std::byte* target, const std::byte* source) {
  std::memcpy(target, source, Bytes);
}

template <std::size_t Bytes>
PIPIT_INLINE inline void transpose_elements(const TransposedTile& tile) {
  constexpr auto kBytes = static_cast<std::int64_t>(Bytes);
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    for (std::int64_t c = 0; c < tile.columns; ++c)
      copy_element<Bytes>(tile.to + r * tile.to_step + c * kBytes,
                          tile.from + c * tile.from_step + r * kBytes);
  }
}

// The rest of the tile from `row` and `column` on.
template <std::size_t Bytes>
PIPIT_INLINE inline TransposedTile part_of(const TransposedTile& tile, std::int64_t row,
                                           std::int64_t column) {
  constexpr auto kBytes = static_cast<std::int64_t>(Bytes);
  return {tile.to + row * tile.to_step + column * kBytes,
          tile.from + column * tile.from_step + row * kBytes,
          tile.to_step,
          tile.from_step,
          tile.rows - row,
          tile.columns - column};
}

// Rows of the target this many bytes apart, or a multiple, share two sets of a first-level cache or one.
constexpr std::int64_t kConflictBytes = 2048;

// `rows` and `columns` of the tile in packs of `Rows` and of `Columns` a lane, of which they must be multiples. Columns
// go outermost, so that little is read at a time, unless the rows push each other out of the cache before they are
// complete.
template <std::size_t Bytes, int Lanes, int Rows, int Columns>
PIPIT_INLINE inline void transpose_packs(const TransposedTile tile, std::int64_t rows, std::int64_t columns) {
  constexpr auto kBytes = static_cast<std::int64_t>(Bytes);
  const auto pack = [&](std::int64_t r, std::int64_t c) PIPIT_INLINE {
    transpose_pack<Bytes, Lanes, Rows, Columns>(tile.to + r * tile.to_step + c * kBytes, tile.to_step,
                                                tile.from + c * tile.from_step + r * kBytes, tile.from_step);
  };
  if (tile.to_step % kConflictBytes == 0) {
    for (std::int64_t r = 0; r < rows; r += Rows) {
      for (std::int64_t c = 0; c < columns; c += Columns * Lanes) pack(r, c);
    }
  } else {
    for (std::int64_t c = 0; c < columns; c += Columns * Lanes) {
      for (std::int64_t r = 0; r < rows; r += Rows) pack(r, c);
    }
  }
}

// Packs of `Lanes` lanes, then of one lane, then single elements.
template <std::size_t Bytes, int Lanes>
PIPIT_INLINE inline void transpose_lanes(const TransposedTile& tile) {
  constexpr int kCount = kNeighbours<Bytes>;
  const std::int64_t rows = tile.rows / kCount * kCount;
  const std::int64_t wide = tile.columns / (kCount * Lanes) * (kCount * Lanes);
  transpose_packs<Bytes, Lanes, kCount, kCount>(tile, rows, wide);
  const std::int64_t columns = tile.columns / kCount * kCount;
  if (columns > wide)
    transpose_packs<Bytes, 1, kCount, kCount>(part_of<Bytes>(tile, 0, wide), rows, columns - wide);
  TransposedTile right = part_of<Bytes>(tile, 0, columns);
  right.rows = rows;
  transpose_elements<Bytes>(right);
  transpose_elements<Bytes>(part_of<Bytes>(tile, rows, 0));
}

template <std::size_t Bytes, int Lanes>
PIPIT_INLINE inline void transpose_tile(const TransposedTile& tile) {
  // Images of three channels have packs of their own.
  if constexpr (Bytes == 4) {
    if (tile.columns == 3) {
      const std::int64_t rows = tile.rows / 4 * 4;
      transpose_packs<Bytes, 1, 4, 3>(tile, rows, 3);
      return transpose_elements<Bytes>(part_of<Bytes>(tile, rows, 0));
    }
    if (tile.rows == 3) {
      const std::int64_t columns = tile.columns / 4 * 4;
      transpose_packs<Bytes, 1, 3, 4>(tile, 3, columns);
      return transpose_elements<Bytes>(part_of<Bytes>(tile, 0, columns));
    }
  }
  transpose_lanes<Bytes, Lanes>(tile);
}

#if PIPIT_ISA_X86
template <std::size_t Bytes>
__attribute__((target("avx2"))) void transpose_tile_avx2(const TransposedTile& tile) {
  transpose_tile<Bytes, 2>(tile);
}
#endif

template <std::size_t Bytes>
void transpose_tile_baseline(const TransposedTile& tile) {
  transpose_tile<Bytes, 1>(tile);
}

using Transpose = void (*)(const TransposedTile& tile);

template <std::size_t Bytes>
Transpose chosen_transpose() {
#if PIPIT_ISA_X86
  if (chosen_isa() >= Isa::avx2) return &transpose_tile_avx2<Bytes>;
#endif
  return &transpose_tile_baseline<Bytes>;
}

}  // namespace

Transpose transpose_of(std::size_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return chosen_transpose<1>();
    case 2:
      return chosen_transpose<2>();
    case 4:
      return chosen_transpose<4>();
    case 8:
      return chosen_transpose<8>();
    default:
      fail("no element is {} bytes large", element_bytes);
  }
}

}  // namespace pipit::internal
