// Copies of boxes that tensor maps describe (PTX ISA, "Tensors": tiled mode and im2col mode).
#include <algorithm>
#include <bit>
#include <utility>

#include "tests/cuda/emulation/barriers.h"
#include "tests/cuda/emulation/copy_engine.h"
#include "tests/cuda/emulation/fibers.h"
#include "tests/cuda/emulation/global_memory.h"
#include "tests/cuda/emulation/order.h"
#include "tests/cuda/emulation/report.h"
#include "tests/cuda/emulation/shared_memory.h"
#include "tests/cuda/emulation/tensor_map.h"

namespace pipit::internal::test::emulation {

namespace {

// A row of the box's first dimension: where it begins, from the map's base; or zeros.
struct BoxRow {
  std::int64_t from;
  bool exists;
};

std::vector<BoxRow> tile_rows(const TensorMap& m, const int* at) {
  std::array<std::uint32_t, 5> count{1, 1, 1, 1, 1};
  std::uint32_t all = 1;
  for (std::size_t d = 1; d < m.rank; ++d) {
    count[d] = (m.box[d] + m.step[d] - 1U) / m.step[d];
    all *= count[d];
  }
  std::vector<BoxRow> rows;
  for (std::uint32_t r = 0; r < all; ++r) {
    BoxRow row{std::int64_t{at[0]} * m.element, true};
    std::uint32_t rest = r;
    for (std::size_t d = 1; d < m.rank; ++d) {
      const std::int64_t x = at[d] + std::int64_t{rest % count[d]} * m.step[d];
      rest /= count[d];
      if (x < 0 || x >= m.extent[d]) row.exists = false;
      row.from += x * static_cast<std::int64_t>(m.stride[d - 1]);
    }
    rows.push_back(row);
  }
  return rows;
}

// Pixels go on from (w, h, n) through the bounding box of each image, which im2col's corners give; a tap's offsets are
// added to each.
std::vector<BoxRow> pixel_rows(const TensorMap& m, const int* at, const int* offsets) {
  if (m.rank != 4) fail("im2col copies of {} dimensions are not emulated, only of 4", m.rank);
  const int first_w = m.lower[0], first_h = m.lower[1];
  const int last_w = static_cast<int>(m.extent[1]) - 1 + m.upper[0],
            last_h = static_cast<int>(m.extent[2]) - 1 + m.upper[1];
  int w = at[1], h = at[2], n = at[3];
  if (w < first_w || w > last_w || h < first_h || h > last_h)
    fail("im2col: pixel ({}, {}) lies outside of the bounding box [{}, {}] x [{}, {}]", w, h, first_w, last_w,
         first_h, last_h);
  const auto inside = [&](int x, std::size_t d) { return x >= 0 && x < static_cast<int>(m.extent[d]); };
  std::vector<BoxRow> rows;
  for (int p = 0; p < m.box[1]; ++p) {
    const int x = w + offsets[0], y = h + offsets[1];
    const auto far = [&](int steps, std::size_t d) { return steps * static_cast<std::int64_t>(m.stride[d]); };
    rows.push_back({std::int64_t{at[0]} * m.element + far(x, 0) + far(y, 1) + far(n, 2),
                    inside(x, 1) && inside(y, 2) && inside(n, 3)});
    w += m.step[1];
    if (w <= last_w) continue;
    w = first_w;
    h += m.step[2];
    if (h > last_h) h = first_h, ++n;
  }
  return rows;
}

const TensorMap& map_at(const void* p, int rank, bool im2col) {
  const auto& m = *static_cast<const TensorMap*>(p);
  if (reinterpret_cast<std::uintptr_t>(p) % 64 != 0)
    fail("the tensor map at {} is not aligned to 64 bytes", p);
  if (m.mark != kIsTensorMap) fail("what lies at {} is no tensor map of the emulated driver", p);
  if (m.rank != rank || (m.im2col != 0) != im2col)
    fail("a copy of {} dimensions{} by a tensor map of {}{}", rank, im2col ? " (im2col)" : "", m.rank,
         m.im2col != 0 ? " (im2col)" : "");
  if (m.step[0] != 1) fail("a step of {} in the first dimension is not emulated", m.step[0]);
  return m;
}

}  // namespace

void copy_tensor(std::uint32_t to, const void* map, std::uint32_t barrier, const int* at, int rank,
                 bool im2col, const int* offsets) {
  PIPIT_EMULATES("cp.async.bulk.tensor");
  perhaps_fall_behind(8);
  const TensorMap& m = map_at(map, rank, im2col);
  const std::vector<BoxRow> rows = im2col ? pixel_rows(m, at, offsets) : tile_rows(m, at);
  const std::uint32_t row_bytes = std::uint32_t{m.box[0]} * m.element;
  const std::uint32_t bytes = row_bytes * static_cast<std::uint32_t>(rows.size());
  Block& b = block_of(to);
  checked(b, to, bytes, "cp.async.bulk.tensor", 128);
  Mbarrier& counts = mbarrier_at(barrier, "cp.async.bulk.tensor");
  if (&block_of(barrier) != &b)
    fail("cp.async.bulk.tensor counts on the mbarrier of another block than it goes to");
  engine_writes(b, to, bytes, counts, "the copy");
  auto c = std::make_unique<Copy>();
  c->block = &b;
  c->barrier = &counts;
  const std::int64_t extent = std::int64_t{m.extent[0]} * m.element;
  std::uint32_t target = local(to);
  for (const BoxRow& row : rows) {
    for (std::uint32_t byte = 0; byte < row_bytes; byte += 16, target += 16) {
      std::byte* chunk = b.memory + (swizzled(target, m.swizzle) - kWindow);
      const std::int64_t column = std::int64_t{at[0]} * m.element + byte;
      if (column < 0 && column > -16)
        fail("a box that begins {} bytes before a row is not emulated", -column);
      if (!row.exists || column < 0 || column >= extent) {
        c->pieces.push_back({chunk, nullptr, 16});
        continue;
      }
      const auto there = static_cast<std::uint32_t>(std::min<std::int64_t>(16, extent - column));
      const auto* from = std::bit_cast<const std::byte*>(m.base) + row.from + byte;
      check_global(from, there, "cp.async.bulk.tensor");
      c->pieces.push_back({chunk, from, there});
      if (there < 16) c->pieces.push_back({chunk + there, nullptr, 16 - there});
    }
  }
  begin_copy(std::move(c), bytes);
}

}  // namespace pipit::internal::test::emulation
