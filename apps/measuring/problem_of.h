// What keeps one row of a sweep from being measured, while the sweep goes on.
#pragma once

#include <new>
#include <string>

#include "engine/base/error.h"

namespace pipit::apps {

/// Why `work` was not done, empty where it was.
template <typename Work>
std::string problem_of(const Work& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  } catch (const std::bad_alloc&) {
    return "out of memory";
  }
  return {};
}

}  // namespace pipit::apps
