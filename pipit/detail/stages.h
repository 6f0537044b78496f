// Progress of work in stages, whose callbacks may end it.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "pipit/progress.h"

namespace pipit::internal::detail {

inline constexpr char kReading[] = "reading";
inline constexpr char kCompiling[] = "compiling";

inline void plan_stages(const tools::StageProgress& progress, const std::vector<tools::Stage>& stages) {
  if (progress.planned) progress.planned(stages);
}
inline void report_stage(const tools::StageProgress& progress, const std::string& stage, std::int64_t done,
                         std::int64_t total) {
  if (progress.update) progress.update(stage, done, total);
}

/// An exception of a callback on its way through naming() and the tuner, which would take an Error for their own.
struct Stopped {
  std::exception_ptr why;
};
/// Calls a callback inside of these.
template <typename Call>
void stopping(const Call& call) {
  try {
    call();
  } catch (...) {
    throw Stopped{std::current_exception()};
  }
}
/// What `act` returns; a Stopped from it becomes the exception of the callback again.
template <typename Act>
auto passing_stops(const Act& act) {
  try {
    return act();
  } catch (const Stopped& stopped) {
    std::rethrow_exception(stopped.why);
  }
}

}  // namespace pipit::internal::detail
