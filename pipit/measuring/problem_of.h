// What keeps one row of a sweep from being measured, while the sweep goes on.
#pragma once

#include <new>
#include <string>

#include "engine/base/error.h"

namespace pipit::internal::detail {

/// Why `work` was not done, empty where it was. `failed` becomes true where that is not because it asks for something
/// that there is not.
template <typename Work>
std::string problem_of(const Work& work, bool& failed) {
  try {
    work();
    return {};
  } catch (const UnsupportedError& e) {
    return e.what();
  } catch (const Error& e) {
    failed = true;
    return e.what();
  } catch (const std::bad_alloc&) {
    failed = true;
    return "out of memory";
  }
}

}  // namespace pipit::internal::detail
