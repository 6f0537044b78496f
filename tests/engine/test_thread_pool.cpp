#include "engine/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/error.h"

namespace pipit {
namespace {

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
      pool.parallel_for(count, [&](std::int64_t i, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        ++calls[static_cast<std::size_t>(i)];
      });
      for (const auto& c : calls) ASSERT_EQ(c, 1);
    }
  }
}

TEST(ThreadPool, SurvivesManyShortLoopsAndSleep) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> sum{0};
  for (int round = 0; round < 3000; ++round) pool.parallel_for(3, [&](std::int64_t i, int) { sum += i; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // past the spin: workers sleep
  pool.parallel_for(3, [&](std::int64_t i, int) { sum += i; });
  EXPECT_EQ(sum, 3001 * 3);
}

TEST(ThreadPool, UsesItsWorkers) {
  ThreadPool pool(2);
  // Two bodies that wait for each other can only end when two threads run them.
  std::atomic<int> arrived{0};
  pool.parallel_for(2, [&](std::int64_t, int) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(4);
  EXPECT_THROW(pool.parallel_for(100,
                                 [](std::int64_t i, int) {
                                   if (i == 42) throw std::runtime_error("42");
                                 }),
               std::runtime_error);
  std::atomic<int> calls{0};
  pool.parallel_for(100, [&](std::int64_t, int) { ++calls; });
  EXPECT_EQ(calls, 100);
}

TEST(ThreadPool, NestedAndConcurrentLoopsRunSerially) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  const auto nested = [&] {
    for (int round = 0; round < 200; ++round) {
      pool.parallel_for(
          4, [&](std::int64_t, int) { pool.parallel_for(5, [&](std::int64_t, int) { ++calls; }); });
    }
  };
  std::thread other(nested);
  nested();
  other.join();
  EXPECT_EQ(calls, 2 * 200 * 4 * 5);
}

TEST(ThreadPool, RefusesAbsurdCounts) {
  EXPECT_THROW(ThreadPool(-1), Error);
  EXPECT_THROW(ThreadPool(1025), Error);
  EXPECT_GE(available_cpus(), 1);
}

}  // namespace
}  // namespace pipit
