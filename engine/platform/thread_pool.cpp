#include "engine/platform/thread_pool.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/platform/cpu_placement.h"
#include "engine/platform/float_mode.h"

namespace pipit::internal {

namespace {

constexpr int kMaxThreads = 1024;
// How long a thread polls before it sleeps: longer than the serial stretches between the loops of a model, and than
// waking takes; shorter than anything a neighbour on the machine would notice.
constexpr std::chrono::microseconds kSpinTime{50};
// A worker moves itself at most this often, whatever the system does with it in between.
constexpr std::chrono::milliseconds kMoveInterval{5};

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
  // The indices that are a thread's own as long as it comes for them; others take what it leaves. On a line of its own:
  // claims of threads that keep to their share touch no memory of another core.
  struct alignas(64) Share {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };

  explicit Impl(int threads)
      : shares(static_cast<std::size_t>(threads)), cpus(static_cast<std::size_t>(threads)) {
    for (std::atomic<int>& cpu : cpus) cpu.store(-1, std::memory_order_relaxed);
  }

  // The job, written by the caller while `gate` is closed and no worker is inside.
  Call call = nullptr;
  void* body = nullptr;
  std::vector<Share> shares;  // of the caller, then of every worker
  FloatMode mode;             // the caller's: every index is computed alike by any worker

  // Workers enter an open gate and leave it; the caller closes it when no index is left and waits only for
  // those inside. A worker that the system has not woken yet costs the caller nothing.
  static constexpr std::uint32_t kClosed = std::uint32_t{1} << 31;
  std::atomic<std::uint32_t> gate{kClosed};  // kClosed | number of workers inside
  std::atomic<std::uint32_t> epoch{0};       // moves when the gate opens; workers sleep on it
  std::atomic<bool> busy{false};
  bool started = false;  // workers run; changed by the constructor, after fork(), and by the holder of `busy`
  std::atomic<bool> stop{false};
  std::mutex error_mutex;
  std::exception_ptr error;
  std::vector<std::thread> workers;
  std::vector<std::atomic<int>> cpus;  // of the last loop's caller, and where every worker last was

  void share_out(std::int64_t count) {
    const auto n = static_cast<std::int64_t>(shares.size());
    const std::int64_t part = count / n;
    const std::int64_t longer = count % n;  // this many shares have one index more
    std::int64_t begin = 0;
    for (std::int64_t w = 0; w < n; ++w) {
      Share& share = shares[static_cast<std::size_t>(w)];
      share.next.store(begin, std::memory_order_relaxed);
      share.end = begin += part + (w < longer ? 1 : 0);
    }
  }

  // Its own share, then what is left of the others'.
  void claim(int worker) {
    try {
      const std::size_t n = shares.size();
      for (std::size_t k = 0, s = static_cast<std::size_t>(worker); k < n; ++k, s = s + 1 < n ? s + 1 : 0) {
        Share& share = shares[s];
        // Only read what may be empty: a write would take the line from its owner.
        while (share.next.load(std::memory_order_relaxed) < share.end) {
          const std::int64_t i = share.next.fetch_add(1, std::memory_order_relaxed);
          if (i >= share.end) break;
          call(body, i, worker);
        }
      }
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      // The rest of the loop is pointless.
      for (Share& share : shares) share.next.store(share.end, std::memory_order_relaxed);
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

  // Threads that share a CPU take turns of milliseconds, and loops take microseconds. The system may leave threads
  // together for tenths of a second, also beside an idle CPU, when they were woken while that one was busy. So a worker
  // that finds the caller or an earlier worker on its CPU moves to another one.
  struct Crowd {
    const Impl* pool;
    int worker;
    static bool taken(const void* self, int cpu) {
      const auto& [pool, worker] = *static_cast<const Crowd*>(self);
      for (std::size_t w = 0; w < static_cast<std::size_t>(worker); ++w) {
        if (pool->cpus[w].load(std::memory_order_relaxed) == cpu) return true;
      }
      return false;
    }
  };

  void keep_apart(int worker, std::chrono::steady_clock::time_point& moved) {
    const Crowd crowd{this, worker};
    int cpu = current_cpu();
    if (Crowd::taken(&crowd, cpu)) {
      const auto now = std::chrono::steady_clock::now();
      if (now - moved >= kMoveInterval) {
        moved = now;
        if (move_away(Crowd::taken, &crowd)) cpu = current_cpu();
      }
    }
    note_cpu(worker, cpu);
  }

  // Written only when it changes: all threads read it.
  void note_cpu(int worker, int cpu) {
    std::atomic<int>& noted = cpus[static_cast<std::size_t>(worker)];
    if (noted.load(std::memory_order_relaxed) != cpu) noted.store(cpu, std::memory_order_relaxed);
  }

  void work(int worker) {
    std::uint32_t seen = 0;
    std::chrono::steady_clock::time_point moved{};
    for (;;) {
      spin_until([&] { return epoch.load(std::memory_order_acquire) != seen; });
      epoch.wait(seen, std::memory_order_acquire);
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      keep_apart(worker, moved);
      if (!enter()) continue;
      mode.apply();
      claim(worker);
      leave();
    }
  }

  void open() {
    note_cpu(0, current_cpu());
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

  void start();

  void shut_down() {
    stop = true;
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
    for (std::thread& t : workers) t.join();
    workers.clear();
    stop = false;
  }

  // In the child of a fork(), where the workers do not exist: ends the loop that the thread which forked may be inside.
  void abandon() {
    error = std::make_exception_ptr(Error("the process was forked inside of a parallel loop"));
    gate.store(kClosed, std::memory_order_relaxed);
  }
};

void ThreadPool::Impl::start() {
  const std::size_t threads = shares.size();
  try {
    for (std::size_t i = 1; i < threads; ++i) workers.emplace_back([this, i] { work(static_cast<int>(i)); });
  } catch (const std::system_error& e) {
    shut_down();
    fail("could not start {} threads: {}; use --threads with a smaller number", threads, e.what());
  }
  started = true;
}

// All pools of the process, for a child that fork() makes of it.
struct ThreadPool::Forking {
  std::mutex mutex;
  std::vector<ThreadPool*> pools;
  std::vector<Impl*> left_behind;  // never destroyed
  std::mutex sharing;              // of shared_pool(), taken before `mutex`
  std::map<int, std::weak_ptr<ThreadPool>> shared;

  // Never destroyed, here and elsewhere in the library: destructors of static objects and detached threads may load and
  // run models while the process ends.
  static Forking& state() {
    static auto& state = *new Forking;
    static const int failed = pthread_atfork(lock, unlock, renew);
    if (failed != 0) fail("out of memory: the process cannot prepare for fork()");
    return state;
  }

  void add(ThreadPool* pool) {
    const std::lock_guard guard(mutex);
    pools.push_back(pool);
  }
  void remove(ThreadPool* pool) {
    const std::lock_guard guard(mutex);
    std::erase(pools, pool);
  }

  static void lock() {
    state().sharing.lock();
    state().mutex.lock();
  }
  static void unlock() {
    state().mutex.unlock();
    state().sharing.unlock();
  }
  // The state of each pool may be in the middle of anything, and its threads cannot be joined: it is left behind.
  static void renew() {
    for (ThreadPool* pool : state().pools) {
      Impl* lost = pool->impl_.release();
      lost->abandon();
      state().left_behind.push_back(lost);
      pool->impl_ = std::make_unique<Impl>(static_cast<int>(lost->shares.size()));
    }
    unlock();
  }
};

ThreadPool::ThreadPool(int threads) {
  if (threads < 0 || threads > kMaxThreads)
    fail("{} threads asked for: expected 0 to {}", threads, kMaxThreads);
  if (threads == 0) threads = default_threads();
  impl_ = std::make_unique<Impl>(threads);
  Forking::state().add(this);
  try {
    impl_->start();
  } catch (...) {
    Forking::state().remove(this);
    throw;
  }
}

ThreadPool::~ThreadPool() {
  Forking::state().remove(this);
  impl_->shut_down();
}

int ThreadPool::size() const {
  return static_cast<int>(impl_->shares.size());
}

void ThreadPool::run(std::int64_t count, Call call, void* body) {
  Impl& pool = *impl_;
  if (count <= 1 || pool.shares.size() == 1 || pool.busy.exchange(true, std::memory_order_acquire)) {
    for (std::int64_t i = 0; i < count; ++i) call(body, i, 0);
    return;
  }
  if (!pool.started) {
    try {
      pool.start();
    } catch (...) {
      pool.busy.store(false, std::memory_order_release);
      throw;
    }
  }
  pool.call = call;
  pool.body = body;
  pool.share_out(count);
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
  ThreadPool::Forking& forking = ThreadPool::Forking::state();
  if (threads == 0) threads = default_threads();
  const std::lock_guard lock(forking.sharing);
  std::weak_ptr<ThreadPool>& known = forking.shared[threads];
  std::shared_ptr<ThreadPool> pool = known.lock();
  if (!pool) known = pool = std::make_shared<ThreadPool>(threads);
  return pool;
}

}  // namespace pipit::internal
