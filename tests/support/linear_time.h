// Holds that work grows in proportion to its input.
#pragma once

#include <gtest/gtest.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>

namespace pipit::internal::test {

/// The least CPU time of a few calls, in seconds: other load makes single calls slower, never faster.
template <typename Run>
double least_cpu_seconds(Run&& run) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const double start = now();
    run();
    least = std::min(least, now() - start);
  }
  return least;
}

/// From here on freed memory stays with the process. Without it every call gets its larger blocks from the system anew,
/// and the first touch of each page, which costs up to half of such a call, is a share that grows with the size.
inline void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

/// `make(n)` makes an input of a size proportional to n, `run(input)` works on it. Fails where doubling the input takes
/// more than 2.5 times the time, on average over three doublings: what leaves a cache as it grows may take twice as
/// long. n grows from `first` until its time can be measured.
template <typename Make, typename Run>
void expect_linear_time(int first, Make&& make, Run&& run) {
  constexpr double kMeasurable = 0.01;
  constexpr int kDoublings = 3;
  constexpr int kAttempts = 3;
  keep_freed_memory();
  const auto seconds = [&](int n) {
    const auto input = make(n);
    return least_cpu_seconds([&] { run(input); });
  };
  int n = first;
  while (seconds(n) < kMeasurable) n *= 2;
  double factor = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    factor = std::pow(seconds(n << kDoublings) / seconds(n), 1.0 / kDoublings);
    if (factor <= 2.5) return;
  }
  ADD_FAILURE() << "from size " << n << " on doubling it takes " << factor << " times as long";
}

}  // namespace pipit::internal::test
