#include "layers/cpu/peak_probe.h"

#include <algorithm>
#include <chrono>

namespace pipit {

namespace {

constexpr double kRoundSeconds = 0.008;
constexpr int kRounds = 6;

double seconds_of(ThreadPool& pool, const TileKernels& kernels, std::int64_t steps) {
  const auto start = std::chrono::steady_clock::now();
  // One task per worker, each far longer than it takes to wake one.
  pool.parallel_for(pool.size(), [&](std::int64_t /*task*/, int /*worker*/) { kernels.spin(steps); });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double measure_peak(ThreadPool& pool, const TileKernels& kernels) {
  // Long enough to tell how many steps a round takes, and to leave low clock rates behind.
  std::int64_t steps = 1000;
  double seconds = seconds_of(pool, kernels, steps);
  while (seconds < kRoundSeconds / 2) {
    steps *= 2;
    seconds = seconds_of(pool, kernels, steps);
  }
  for (int round = 0; round < kRounds; ++round) seconds = std::min(seconds, seconds_of(pool, kernels, steps));
  return 2.0 * static_cast<double>(pool.size()) * static_cast<double>(steps) * kernels.step_macs() / seconds;
}

}  // namespace pipit
