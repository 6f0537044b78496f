/// @file
/// The exceptions of pipit.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "pipit/export.h"

namespace pipit {

/// Something went wrong at run time: a file, a value, a device. what() names the offending values and, where it can,
/// what to do about it.
class PIPIT_API Error : public std::runtime_error {
 public:
  /// The message is what(); a NUL in it (of a name, of a file), which would end that, is written as \\x00.
  explicit Error(const std::string& message) : std::runtime_error(without_nul(message)) {}

 private:
  static std::string without_nul(std::string text) {
    for (std::size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) text.replace(at, 1, "\\x00");
    return text;
  }
};

/// The input is well-formed but asks for something that pipit does not implement.
class PIPIT_API UnsupportedError : public Error {
 public:
  /// As Error().
  explicit UnsupportedError(const std::string& message) : Error(message) {}
};

/// The caller's mistake: options that contradict each other, values out of range or that are no enumerator, arrays of
/// another number, type or shape than the model's, names that are not there. Nothing was written.
class PIPIT_API ArgumentError : public Error {
 public:
  /// As Error().
  explicit ArgumentError(const std::string& message) : Error(message) {}
};

}  // namespace pipit
