// Work that takes long: it runs in a thread of its own, while the thread that called it serves signals, progress and
// notes. So no Python code runs in threads of the library, Ctrl-C is noticed at once, and Python's other threads run.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pipit/progress.h"

namespace pipit::internal::python {

namespace nb = nanobind;

/// How far the work is.
struct Advance {
  std::string stage;       ///< the name of the part; may be empty
  std::int64_t done = 0;   ///< of `total`
  std::int64_t total = 0;  ///< of that part
  std::string found;       ///< in words, what was found so far; may be empty
};

/// What both threads share.
class LongWork {
 public:
  /// Called by the work. Throws Abandoned after the caller was interrupted.
  void advance(Advance advance);
  void note(const std::string& text);
  void finish();

  /// Called by the thread that waits. Calls `progress(stage, done, total, found)` and `note(text)` unless they are None
  /// until the work is finished. What these throw, and what handlers of signals throw, makes the work end at its next
  /// call of advance(), and is thrown from here soon after.
  void serve(const nb::object& progress, const nb::object& note);
  bool finished();

 private:
  struct News {
    std::optional<Advance> advance;
    std::vector<std::string> notes;
    bool finished = false;
  };
  News wait(std::chrono::milliseconds at_most);
  void abandon();

  std::mutex mutex_;
  std::condition_variable changed_;
  News news_;
  bool abandoned_ = false;
};

/// Callbacks of the library that tell `work` how far it is, and end it after the caller was interrupted.
inline tools::StageProgress stages_of(LongWork& work) {
  tools::StageProgress progress;
  progress.update = [&work](const std::string& stage, std::int64_t done, std::int64_t total) {
    work.advance({stage, done, total, {}});
  };
  return progress;
}

/// Runs `work(LongWork&)`, which must own all that it uses, and returns its result or throws what it threw. The caller
/// holds the GIL. Work that does not end soon after it was abandoned goes on without result until its next advance().
template <typename Work>
auto run_long(const nb::object& progress, const nb::object& note, Work work) {
  using Result = std::invoke_result_t<Work&, LongWork&>;
  const auto shared = std::make_shared<LongWork>();
  std::packaged_task<Result()> task(
      [work = std::move(work), shared]() mutable -> Result { return work(*shared); });
  std::future<Result> result = task.get_future();
  std::thread worker([task = std::move(task), shared]() mutable {
    task();
    shared->finish();
  });
  struct Leave {
    std::thread& thread;
    LongWork& work;
    ~Leave() {
      if (work.finished()) {
        const nb::gil_scoped_release release;
        thread.join();
      } else {
        thread.detach();
      }
    }
  };
  {
    const Leave leave{worker, *shared};
    shared->serve(progress, note);
  }
  return result.get();
}

}  // namespace pipit::internal::python
