// The clock that runs are timed with.
#pragma once

#include <chrono>

namespace pipit::internal {

using Clock = std::chrono::steady_clock;

inline double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace pipit::internal
