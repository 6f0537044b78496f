#include "python/src/long_work.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <vector>

namespace pipit::internal::python {

namespace {

using std::chrono::milliseconds;

// How often signals are looked at and progress is shown, and how long abandoned work may take to end.
constexpr milliseconds kTurn{40};
constexpr milliseconds kGrace{60};

struct Abandoned : std::runtime_error {
  Abandoned() : std::runtime_error("the work was abandoned") {}
};

using KeptObjects = std::vector<std::pair<std::shared_ptr<LongWork>, std::shared_ptr<const void>>>;

// Guarded by the GIL. Never destroyed: abandoned work may outlast Python.
KeptObjects& kept_objects() {
  static auto& all = *new KeptObjects;
  return all;
}

}  // namespace

void keep_until_ended(std::shared_ptr<LongWork> work, std::shared_ptr<const void> kept) {
  if (kept) kept_objects().emplace_back(std::move(work), std::move(kept));
}

void free_ended_work() {
  KeptObjects& all = kept_objects();
  const auto ended =
      std::stable_partition(all.begin(), all.end(), [](const auto& kept) { return !kept.first->finished(); });
  // Freed after the list is whole again: destructors of Python's objects may begin other work.
  const KeptObjects freed(ended, all.end());
  all.erase(ended, all.end());
}

void LongWork::advance(Advance advance) {
  const std::lock_guard lock(mutex_);
  if (abandoned_) throw Abandoned();
  news_.advance = std::move(advance);
}

void LongWork::note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (abandoned_) throw Abandoned();
  news_.notes.push_back(text);
}

void LongWork::finish() {
  const std::lock_guard lock(mutex_);
  news_.finished = true;
  changed_.notify_all();
}

bool LongWork::finished() {
  const std::lock_guard lock(mutex_);
  return news_.finished;
}

bool LongWork::abandon() {
  const nb::gil_scoped_release release;
  std::unique_lock lock(mutex_);
  abandoned_ = true;
  return changed_.wait_for(lock, kGrace, [&] { return news_.finished; });
}

LongWork::News LongWork::wait(milliseconds at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] { return news_.finished; });
  News news = std::exchange(news_, {});
  news_.finished = news.finished;
  return news;
}

void LongWork::serve(const nb::object& progress, const nb::object& note) {
  for (bool finished = false; !finished;) {
    News news;
    {
      const nb::gil_scoped_release release;
      news = wait(kTurn);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!note.is_none())
      for (const std::string& text : news.notes) note(text);
    if (!progress.is_none() && news.advance)
      progress(news.advance->stage, news.advance->done, news.advance->total, news.advance->found);
    finished = news.finished;
  }
}

}  // namespace pipit::internal::python
