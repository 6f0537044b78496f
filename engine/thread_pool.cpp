#include "engine/thread_pool.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/error.h"
#include "engine/float_mode.h"

namespace pipit {

namespace {

constexpr int kMaxThreads = 1024;
// How long a thread polls before it sleeps: longer than the serial stretches between the loops of a model, and than
// waking takes; shorter than anything a neighbour on the machine would notice.
constexpr std::chrono::microseconds kSpinTime{50};

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Polls `done` until it is true or kSpinTime has passed.
template <typename Done>
void spin_until(Done done) {
  const auto poll = [&] {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      pause();
    }
    return false;
  };
  if (poll()) return;
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  while (!poll() && std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace

struct ThreadPool::Impl {
  // The job, written by the caller while `gate` is closed and nobody is inside.
  Call call = nullptr;
  void* body = nullptr;
  std::int64_t count = 0;
  std::atomic<std::int64_t> next{0};
  FloatMode mode;  // the caller's: every index is computed alike, whoever claims it

  // Workers enter an open gate and leave it; the caller closes it when no index is left and waits only for
  // those inside. A worker that the system has not woken yet costs the caller nothing.
  static constexpr std::uint32_t kClosed = std::uint32_t{1} << 31;
  std::atomic<std::uint32_t> gate{kClosed};  // kClosed | number of workers inside
  std::atomic<std::uint32_t> epoch{0};       // moves when the gate opens; workers sleep on it
  std::atomic<bool> busy{false};
  std::atomic<bool> stop{false};
  std::mutex error_mutex;
  std::exception_ptr error;
  std::vector<std::thread> workers;

  void claim(int worker) {
    try {
      for (;;) {
        const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
        if (i >= count) return;
        call(body, i, worker);
      }
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      next.store(count, std::memory_order_relaxed);  // the rest of the loop is pointless
    }
  }

  bool enter() {
    std::uint32_t inside = gate.load(std::memory_order_relaxed);
    while ((inside & kClosed) == 0) {
      if (gate.compare_exchange_weak(inside, inside + 1, std::memory_order_acquire)) return true;
    }
    return false;
  }

  void leave() {
    if (gate.fetch_sub(1, std::memory_order_release) == (kClosed | 1)) gate.notify_one();
  }

  void work(int worker) {
    std::uint32_t seen = 0;
    for (;;) {
      spin_until([&] { return epoch.load(std::memory_order_acquire) != seen; });
      epoch.wait(seen, std::memory_order_acquire);
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      if (!enter()) continue;
      mode.apply();
      claim(worker);
      leave();
    }
  }

  void open() {
    next.store(0, std::memory_order_relaxed);
    gate.store(0, std::memory_order_release);
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  void close_and_wait() {
    std::uint32_t inside = gate.fetch_or(kClosed, std::memory_order_acquire) | kClosed;
    if (inside == kClosed) return;
    spin_until([&] { return gate.load(std::memory_order_acquire) == kClosed; });
    while ((inside = gate.load(std::memory_order_acquire)) != kClosed)
      gate.wait(inside, std::memory_order_acquire);
  }

  void shut_down() {
    stop = true;
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
    for (std::thread& t : workers) t.join();
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  if (threads < 0 || threads > kMaxThreads)
    fail("{} threads asked for: expected 0 to {}", threads, kMaxThreads);
  if (threads == 0) threads = available_cpus();
  try {
    for (int i = 1; i < threads; ++i) impl_->workers.emplace_back([impl = impl_.get(), i] { impl->work(i); });
  } catch (const std::system_error& e) {
    impl_->shut_down();
    fail("could not start {} threads: {}; use --threads with a smaller number", threads, e.what());
  }
}

ThreadPool::~ThreadPool() {
  impl_->shut_down();
}

int ThreadPool::size() const {
  return static_cast<int>(impl_->workers.size()) + 1;
}

void ThreadPool::run(std::int64_t count, Call call, void* body) {
  Impl& pool = *impl_;
  if (count <= 1 || pool.workers.empty() || pool.busy.exchange(true, std::memory_order_acquire)) {
    for (std::int64_t i = 0; i < count; ++i) call(body, i, 0);
    return;
  }
  pool.call = call;
  pool.body = body;
  pool.count = count;
  pool.mode = FloatMode::current();
  pool.open();
  pool.claim(0);
  pool.close_and_wait();
  std::exception_ptr error;
  std::swap(error, pool.error);
  pool.busy.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

std::shared_ptr<ThreadPool> shared_pool(int threads) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<ThreadPool>> pools;
  if (threads == 0) threads = available_cpus();
  const std::lock_guard lock(mutex);
  std::weak_ptr<ThreadPool>& known = pools[threads];
  std::shared_ptr<ThreadPool> pool = known.lock();
  if (!pool) known = pool = std::make_shared<ThreadPool>(threads);
  return pool;
}

}  // namespace pipit
