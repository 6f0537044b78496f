// Throwing the exceptions of pipit with formatted values.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

#include "pipit/error.h"

namespace pipit::internal {

/// Throws Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws UnsupportedError with a formatted message.
template <typename... Args>
[[noreturn]] void fail_unsupported(fmt::format_string<Args...> format, Args&&... args) {
  throw UnsupportedError(fmt::format(format, std::forward<Args>(args)...));
}

/// What `act` returns; errors that it throws begin with `name`, the file or model they are about, and keep their kind.
template <typename Act>
auto naming(const std::string& name, Act act) {
  try {
    return act();
  } catch (const ArgumentError& e) {
    throw ArgumentError(name + ": " + e.what());
  } catch (const UnsupportedError& e) {
    throw UnsupportedError(name + ": " + e.what());
  } catch (const Error& e) {
    throw Error(name + ": " + e.what());
  }
}

}  // namespace pipit::internal
