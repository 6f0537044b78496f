#include "layers/cpu_peak.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/base/clock.h"
#include "engine/graph/tensor.h"
#include "engine/platform/thread_pool.h"
#include "layers/cpu/tile/peak_probe.h"

namespace pipit {

namespace {

// The shortest of several parallel runs of work(index), one per thread, in seconds.
template <typename Work>
double best_seconds(ThreadPool& pool, int repeats, Work work) {
  double best = 1e30;
  for (int r = 0; r < repeats; ++r) {
    const Clock::time_point begin = Clock::now();
    pool.parallel_for(pool.size(), [&](std::int64_t index, int) { work(static_cast<std::size_t>(index)); });
    best = std::min(best, milliseconds_since(begin) / 1e3);
  }
  return best;
}

std::uint64_t sum_of(std::span<const std::uint64_t> words) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= words.size(); i += 8) {
    for (std::size_t k = 0; k < 8; ++k) sums[k] += words[i + k];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

double bytes_per_second(ThreadPool& pool) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  const std::size_t words = kBytes / sizeof(std::uint64_t) / static_cast<std::size_t>(pool.size());
  const HostBuffer buffer(kBytes);
  const auto* data = reinterpret_cast<const std::uint64_t*>(buffer.data());
  // Written by the thread that reads it: on machines with several memories it comes to lie near.
  pool.parallel_for(pool.size(), [&](std::int64_t i, int) {
    std::memset(buffer.data() + static_cast<std::size_t>(i) * words * sizeof(std::uint64_t), 1,
                words * sizeof(std::uint64_t));
  });
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(pool.size()));
  const double seconds = best_seconds(pool, 5, [&](std::size_t i) {
    sums[i] = sum_of({data + i * words, words});
  });
  return static_cast<double>(words * sizeof(std::uint64_t)) * pool.size() / seconds;
}

}  // namespace

MachinePeak measure_cpu_peak(int threads, Precision precision) {
  const std::shared_ptr<ThreadPool> pool = shared_pool(threads);
  MachinePeak peak;
  const bool integers = precision == Precision::int8 || precision == Precision::int8_dynamic;
  const TileKernels& tiles = integers                                                 ? u8s8_tiles()
                             : precision == Precision::fp16 && f16_tiles() != nullptr ? *f16_tiles()
                                                                                      : f32_tiles();
  peak.flops_per_second = measure_peak(*pool, tiles);
  peak.kernel_flops_per_second = measure_tile_rate(*pool, tiles);
  peak.bytes_per_second = bytes_per_second(*pool);
  return peak;
}

}  // namespace pipit
