// Errors, and the places that they name.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "tests/cuda/emulation/machine.h"

namespace pipit::internal::test::emulation {

/// Ends a run: thrown by whatever finds an error, kept where the thread's fiber began, and thrown on from there.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Adds the seed, the thread that runs and where it is.
[[noreturn]] void stop(const std::string& message);

template <typename... Arguments>
[[noreturn]] void fail(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  stop(fmt::format(format, std::forward<Arguments>(arguments)...));
}

/// The functions and lines that an address in the code belongs to, one a line; empty where addr2line is missing.
std::string lines_of(const void* code);
/// Addresses in the code in 32 bits, and back.
std::uint32_t code_offset(const void* code);
const void* code_at(std::uint32_t offset);
/// An address in shared memory by what lies there.
std::string place(std::uint32_t address);
/// What every thread that has not ended waits for, and where; equal lines together.
std::string states();

}  // namespace pipit::internal::test::emulation
