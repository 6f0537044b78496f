// ThreadPool: a few workers that claim loop iterations dynamically. The caller takes part.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace pipit::internal {

/// CPUs this process may use: the affinity mask, lowered by the CPU quotas of its cgroups (v1 or v2) and rounded up. At
/// least 1.
int available_cpus();

/// The number of threads if none is given: PIPIT_NUM_THREADS, at most available_cpus(); available_cpus() if that is not
/// set. Throws Error for a value outside [1, 1024].
int default_threads();

/// A fork() copies no threads: in the child a pool starts other workers when it first needs them. Only a loop that runs
/// in the thread that forks ends there with Error.
class ThreadPool {
 public:
  /// `threads` counts the caller; 0 means default_threads(). Throws Error outside [0, 1024].
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  /// Calls body(index, worker) once for every index in [0, count), worker in [0, size()). Which worker runs
  /// which index is unspecified, so bodies must not let results depend on it. As a rule worker w begins with the w-th
  /// of size() equal parts of the indices and takes from the others when that is done: what a loop wrote is in the
  /// caches of the worker that reads it where both loops count their indices alike through the data. Returns when all
  /// are done; the first exception of a body is rethrown here. Allocates nothing. When another thread is inside a loop
  /// of this pool, or a body calls in again, the loop runs serially in the caller as worker 0 of its own. Bodies run in
  /// the caller's floating-point mode (rounding, denormals).
  template <typename Body>
  void parallel_for(std::int64_t count, Body&& body) {
    using B = std::remove_reference_t<Body>;
    run(
        count, [](void* b, std::int64_t i, int w) { (*static_cast<B*>(b))(i, w); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* body, std::int64_t index, int worker);
  void run(std::int64_t count, Call call, void* body);
  friend std::shared_ptr<ThreadPool> shared_pool(int threads);
  struct Impl;
  struct Forking;
  std::unique_ptr<Impl> impl_;
};

/// The pool of `threads` threads, shared by all callers in this process that ask for as many. 0 means
/// default_threads(). It ends with its last user.
std::shared_ptr<ThreadPool> shared_pool(int threads = 0);

}  // namespace pipit::internal
