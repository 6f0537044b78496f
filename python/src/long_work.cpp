#include "python/src/long_work.h"

#include <nanobind/stl/string.h>

#include <stdexcept>

namespace pipit::internal::python {

namespace {

using std::chrono::milliseconds;

// How often signals are looked at and progress is shown, and how long abandoned work may take to end.
constexpr milliseconds kTurn{40};
constexpr milliseconds kGrace{60};

struct Abandoned : std::runtime_error {
  Abandoned() : std::runtime_error("the work was abandoned") {}
};

}  // namespace

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

void LongWork::abandon() {
  std::unique_lock lock(mutex_);
  abandoned_ = true;
  changed_.wait_for(lock, kGrace, [&] { return news_.finished; });
}

LongWork::News LongWork::wait(milliseconds at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] { return news_.finished; });
  News news = std::exchange(news_, {});
  news_.finished = news.finished;
  return news;
}

void LongWork::serve(const nb::object& progress, const nb::object& note) {
  try {
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
  } catch (...) {
    const nb::gil_scoped_release release;
    abandon();
    throw;
  }
}

}  // namespace pipit::internal::python
