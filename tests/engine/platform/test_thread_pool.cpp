#include "engine/platform/cpu_placement.h"
#include "engine/platform/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/platform/float_mode.h"

namespace pipit::internal {
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

TEST(ThreadPool, AThreadBeginsWithItsOwnPart) {
  ThreadPool pool(2);
  // The first thread waits for the other, so each has its own part to itself.
  std::vector<int> by(10, -1);
  std::atomic<int> arrived{0};
  pool.parallel_for(10, [&](std::int64_t i, int worker) {
    by[static_cast<std::size_t>(i)] = worker;
    if (i % 5 == 0) ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(by[0], 0);
  EXPECT_EQ(by[5], 1);
}

TEST(ThreadPool, TakesWhatASlowWorkerLeaves) {
  ThreadPool pool(3);
  constexpr int kCount = 300;
  std::vector<std::atomic<int>> calls(kCount);
  std::atomic<int> done{0};
  // The first index of the last part lasts until all others are done.
  pool.parallel_for(kCount, [&](std::int64_t i, int) {
    ++calls[static_cast<std::size_t>(i)];
    if (i == 200) {
      while (done < kCount - 1) std::this_thread::yield();
    }
    ++done;
  });
  for (const auto& c : calls) EXPECT_EQ(c, 1);
}

// The system may bring a thread back at any time, so only this is held: the mask stays what it was, the thread leaves
// (not twenty times in a row it is brought back before it looks), and where all CPUs are taken it stays.
TEST(MoveAway, LeavesACpuAndKeepsTheMask) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  if (CPU_COUNT(&mask) < 2) GTEST_SKIP() << "one CPU";
  const auto is = [](const void* taken, int cpu) { return *static_cast<const int*>(taken) == cpu; };
  bool left = false;
  for (int attempt = 0; attempt < 20 && !left; ++attempt) {
    const int here = current_cpu();
    EXPECT_TRUE(move_away(is, &here));
    left = current_cpu() != here;
  }
  EXPECT_TRUE(left);
  EXPECT_FALSE(move_away([](const void*, int) { return true; }, nullptr));
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&after, &mask));
}

TEST(ThreadPool, WorksWhereAllShareOneCpu) {
  ThreadPool pool(2);
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  int first = 0;
  while (!CPU_ISSET(first, &mask)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  // Two bodies that wait for each other run in two threads.
  const auto in_both = [&](auto&& body) {
    std::atomic<int> arrived{0};
    pool.parallel_for(2, [&](std::int64_t, int) {
      body();
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
  };
  in_both([&] { ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0); });
  for (int round = 0; round < 3; ++round) in_both([&] { EXPECT_EQ(sched_getcpu(), first); });
  in_both([&] { ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0); });
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

TEST(ThreadPool, IsSharedByAllWhoAskForAsMany) {
  const std::shared_ptr<ThreadPool> two = shared_pool(2);
  EXPECT_EQ(two->size(), 2);
  EXPECT_EQ(shared_pool(2), two);
  EXPECT_NE(shared_pool(3), two);
  EXPECT_EQ(shared_pool()->size(), available_cpus());
}

#if defined(__SSE__)
TEST(ThreadPool, WorkersComputeInTheCallersMode) {
  ThreadPool pool(2);
  volatile float half_of_smallest = std::numeric_limits<float>::min();
  // Both threads take part: each body waits for the other.
  const auto products = [&] {
    std::vector<float> result(2);
    std::atomic<int> arrived{0};
    pool.parallel_for(2, [&](std::int64_t i, int) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
      result[static_cast<std::size_t>(i)] = half_of_smallest * 0.5F;
    });
    return result;
  };
  const std::vector<float> denormal(2, std::numeric_limits<float>::min() / 2);
  EXPECT_EQ(products(), denormal);
  {
    const ScopedFloatMode mode(FloatMode().without_denormals());
    EXPECT_EQ(products(), std::vector<float>(2, 0.0F));
  }
  EXPECT_EQ(products(), denormal);
}
#endif

// Runs `child` in a child of this process and returns its exit code; -1 where it did not end by itself in a minute.
int exit_code_of_child(const std::function<int()>& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    _exit(child());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// 0 when all threads of `pool` run a loop together, as in UsesItsWorkers.
int all_threads_run(ThreadPool& pool) {
  std::atomic<int> arrived{0};
  pool.parallel_for(pool.size(), [&](std::int64_t, int) {
    ++arrived;
    while (arrived < pool.size()) std::this_thread::yield();
  });
  return arrived == pool.size() ? 0 : 1;
}

TEST(ThreadPoolAndFork, AChildStartsWorkersOfItsOwn) {
  ThreadPool pool(2);
  EXPECT_EQ(all_threads_run(pool), 0);
  EXPECT_EQ(exit_code_of_child([&] {
              if (all_threads_run(pool) != 0 || all_threads_run(pool) != 0) return 1;
              // Also in a child of the child.
              return exit_code_of_child([&] { return all_threads_run(pool); });
            }),
            0);
  EXPECT_EQ(all_threads_run(pool), 0);
}

TEST(ThreadPoolAndFork, AChildEndsPoolsThatItNeverUsed) {
  auto pool = std::make_unique<ThreadPool>(3);
  std::shared_ptr<ThreadPool> shared = shared_pool(3);
  // Workers that have started: AddressSanitizer's locks of one that just starts would stay locked in the child.
  EXPECT_EQ(all_threads_run(*pool) + all_threads_run(*shared), 0);
  EXPECT_EQ(exit_code_of_child([&] {
              pool.reset();
              shared.reset();
              return all_threads_run(*shared_pool(3)) + all_threads_run(*shared_pool(2));
            }),
            0);
}

TEST(ThreadPoolAndFork, AChildTakesAPoolThatAnotherThreadWasUsing) {
  ThreadPool pool(2);
  std::atomic<bool> inside{false}, go_on{false};
  std::thread other([&] {
    pool.parallel_for(2, [&](std::int64_t, int) {
      inside = true;
      while (!go_on) std::this_thread::yield();
    });
  });
  while (!inside) std::this_thread::yield();
  EXPECT_EQ(exit_code_of_child([&] { return all_threads_run(pool); }), 0);
  go_on = true;
  other.join();
}

TEST(ThreadPoolAndFork, ALoopThatForksIsAnErrorInTheChild) {
  ThreadPool pool(2);
  // In a child, so that only one process goes on with the tests.
  EXPECT_EQ(exit_code_of_child([&] {
              const std::thread::id caller = std::this_thread::get_id();
              std::atomic<int> arrived{0};
              pid_t inside = -1;
              try {
                pool.parallel_for(2, [&](std::int64_t, int) {
                  ++arrived;
                  while (arrived < 2) std::this_thread::yield();
                  if (std::this_thread::get_id() == caller) inside = fork();
                });
              } catch (const Error&) {
                return inside == 0 ? 7 : 1;
              }
              if (inside <= 0) return 2;
              int status = 0;
              waitpid(inside, &status, 0);
              return WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 0 : 3;
            }),
            0);
}

class ThreadsFromEnvironment : public testing::Test {
 protected:
  void TearDown() override { unsetenv("PIPIT_NUM_THREADS"); }
};

TEST_F(ThreadsFromEnvironment, AreAtMostTheCpus) {
  EXPECT_EQ(default_threads(), available_cpus());
  setenv("PIPIT_NUM_THREADS", "", 1);
  EXPECT_EQ(default_threads(), available_cpus());
  setenv("PIPIT_NUM_THREADS", "1", 1);
  EXPECT_EQ(default_threads(), 1);
  EXPECT_EQ(ThreadPool().size(), 1);
  EXPECT_EQ(shared_pool()->size(), 1);
  EXPECT_EQ(ThreadPool(3).size(), 3) << "a number that is asked for goes before it";
  setenv("PIPIT_NUM_THREADS", "1024", 1);
  EXPECT_EQ(default_threads(), available_cpus());
}

TEST_F(ThreadsFromEnvironment, AreANumber) {
  for (const char* text : {"0", "-1", "1025", "two", "2x", " 2", "99999999999"}) {
    setenv("PIPIT_NUM_THREADS", text, 1);
    try {
      default_threads();
      FAIL() << text;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()),
                "PIPIT_NUM_THREADS is '" + std::string(text) + "'; expected 1 to 1024");
    }
  }
}

TEST(ThreadPool, RefusesAbsurdCounts) {
  EXPECT_THROW(ThreadPool(-1), Error);
  EXPECT_THROW(ThreadPool(1025), Error);
  EXPECT_GE(available_cpus(), 1);
}

}  // namespace
}  // namespace pipit::internal
