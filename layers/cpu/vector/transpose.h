// Transpositions of tiles that stay in the first-level cache, in registers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pipit::internal {

/// Element (r, c) at to + r * to_step + c elements and at from + c * from_step + r elements; steps are bytes.
struct TransposedTile {
  std::byte* to;
  const std::byte* from;
  std::int64_t to_step, from_step;
  std::int64_t rows, columns;
};

/// What copies tiles of elements of 1, 2, 4 or 8 bytes with the instruction set that was chosen. Reads and writes
/// nothing but the tile. Throws Error for other sizes.
void (*transpose_of(std::size_t element_bytes))(const TransposedTile& tile);

}  // namespace pipit::internal
