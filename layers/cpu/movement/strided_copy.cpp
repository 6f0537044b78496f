#include "layers/cpu/movement/strided_copy.h"

#include <cstring>
#include <utility>

#include "layers/common/dispatch.h"
#include "layers/cpu/vector/transpose.h"
#include "layers/cpu/work_sharing.h"

namespace pipit::internal {

namespace {

// Tile of a transposition: at 8 bytes an element both sides of 32 x 32 fit the first-level cache.
constexpr std::int64_t kTile = 32;

template <std::size_t Bytes>
void copy_element(std::byte* target, const std::byte* source) {
  std::memcpy(target, source, Bytes);
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

  const auto transpose_one = transpose_of(Bytes);

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
        transpose_one({target + at[0] * kBytes + first_row * to_step + first_column * kBytes,
                       source + at[1] * kBytes + first_row * kBytes + first_column * from_step, to_step,
                       from_step, last_row - first_row, count});
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

}  // namespace pipit::internal
