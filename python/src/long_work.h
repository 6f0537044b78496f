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
  /// until the work is finished. Throws what these throw, and what handlers of signals throw.
  void serve(const nb::object& progress, const nb::object& note);
  /// Called by the thread that waits, with the GIL: the work ends at its next call of advance(). Waits a moment for
  /// that, and returns whether it has ended.
  bool abandon();
  bool finished();

 private:
  struct News {
    std::optional<Advance> advance;
    std::vector<std::string> notes;
    bool finished = false;
  };
  News wait(std::chrono::milliseconds at_most);

  std::mutex mutex_;
  std::condition_variable changed_;
  News news_;
  bool abandoned_ = false;
};

/// Keeps what abandoned work still reads. Only a thread with the GIL may free it: the next one that begins long work
/// after the abandoned work has ended.
void keep_until_ended(std::shared_ptr<LongWork> work, std::shared_ptr<const void> kept);
void free_ended_work();

/// Callbacks of the library that tell `work` how far it is, and end it after the caller was interrupted.
inline tools::StageProgress stages_of(LongWork& work) {
  tools::StageProgress progress;
  progress.update = [&work](const std::string& stage, std::int64_t done, std::int64_t total) {
    work.advance({stage, done, total, {}});
  };
  return progress;
}

/// Work that has begun. Everything but the work itself happens with the GIL, in threads of Python.
template <typename Result>
class StartedWork {
 public:
  /// Begins `work(LongWork&)`, which must own all that it uses except for `kept`: what it reads of Python's objects.
  /// That stays as long as this object, and until the work has ended.
  template <typename Work>
  explicit StartedWork(Work work, std::shared_ptr<const void> kept = nullptr)
      : kept_(std::move(kept)), shared_(std::make_shared<LongWork>()) {
    free_ended_work();
    std::packaged_task<Result()> task(
        [work = std::move(work), shared = shared_]() mutable -> Result { return work(*shared); });
    result_ = task.get_future();
    thread_ = std::thread([task = std::move(task), shared = shared_]() mutable {
      task();
      shared->finish();
    });
  }
  StartedWork(const StartedWork&) = delete;
  StartedWork& operator=(const StartedWork&) = delete;
  ~StartedWork() { stop(); }

  /// Returns the result, or throws what the work threw, or what LongWork::serve() throws; once.
  Result wait(const nb::object& progress, const nb::object& note) {
    shared_->serve(progress, note);
    stop();
    return result_.get();
  }

  /// Abandons what has not ended; whether it has ended then, which it otherwise does at its next call of advance().
  bool stop() {
    if (!thread_.joinable()) return shared_->finished();
    const bool finished = shared_->finished() || shared_->abandon();
    if (finished) {
      const nb::gil_scoped_release release;
      thread_.join();
    } else {
      thread_.detach();
      keep_until_ended(shared_, std::move(kept_));
    }
    return finished;
  }

 private:
  std::shared_ptr<const void> kept_;
  std::shared_ptr<LongWork> shared_;
  std::future<Result> result_;
  std::thread thread_;
};

/// Runs `work(LongWork&)`, which must own all that it uses, and returns its result or throws what it threw. The caller
/// holds the GIL. Work that does not end soon after it was abandoned goes on without result until its next advance().
template <typename Work>
auto run_long(const nb::object& progress, const nb::object& note, Work work) {
  return StartedWork<std::invoke_result_t<Work&, LongWork&>>(std::move(work)).wait(progress, note);
}

}  // namespace pipit::internal::python
