// Cutting [0, size) into fixed chunks for the thread pool.
#pragma once

#include <algorithm>

#include "engine/platform/thread_pool.h"

namespace pipit::internal {

/// Large enough to hide the cost of claiming a chunk (well under a microsecond), small enough to balance and
/// to stay in the first-level cache with its operands.
inline constexpr std::int64_t kChunkBytes = 1 << 14;

/// How many rows of `row` floats make one chunk: at least one.
inline std::int64_t rows_per_chunk(std::int64_t row) {
  return std::max<std::int64_t>(1, kChunkBytes / 4 / std::max<std::int64_t>(row, 1));
}

/// How far the scratch of one worker is from that of the next, which need `bytes` each. Prefetchers take what a core
/// reads towards the end of its scratch for a stream: they request the lines after it, which the next worker is
/// writing, and both wait for them. Depthwise layers that compute their input in a ring take 1.2 to 1.3 times as long
/// when rings follow each other, 1.06 to 1.09 times a page apart, 1.02 times two.
inline constexpr std::size_t worker_stride(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  return bytes == 0 ? 0 : (bytes + kPage - 1) / kPage * kPage + 2 * kPage;
}

/// True when workers share out the channels of an activation rather than its pixels: few pixels of many channels, of
/// which the pointwise convolutions around read more weights than values (TileSchedule). Layers between them do
/// the same, so that a worker reads what it wrote itself.
inline bool shares_channels(std::int64_t channels, std::int64_t pixels) {
  return channels > 8 * pixels;
}

/// Calls body(begin, end) for the chunks of at most `step` that make up [0, size), in any order. The chunks do
/// not depend on the number of threads.
template <typename Body>
void parallel_chunks(ThreadPool& pool, std::int64_t size, std::int64_t step, Body&& body) {
  pool.parallel_for((size + step - 1) / step, [&](std::int64_t chunk, int /*worker*/) {
    body(chunk * step, std::min(size, (chunk + 1) * step));
  });
}

}  // namespace pipit::internal
