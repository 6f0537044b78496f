/// @file
/// The exceptions of pipit.
#pragma once

#include <stdexcept>
#include <string>

namespace pipit {

/// Something went wrong at run time: a file, a value, a device. what() names the offending values and, where it can,
/// what to do about it.
class Error : public std::runtime_error {
 public:
  /// The message is what() verbatim.
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

/// The input is well-formed but asks for something that pipit does not implement.
class UnsupportedError : public Error {
 public:
  /// The message is what() verbatim.
  explicit UnsupportedError(const std::string& message) : Error(message) {}
};

}  // namespace pipit
