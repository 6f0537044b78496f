// Guarded allocations, and faults of kernels as errors.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>

namespace pipit::internal::test::emulation {

/// An error unless all bytes lie in one Global.
void check_global(const void* p, std::size_t bytes, const char* what);

/// While it lives, a fault in a thread of a kernel ends the run with an error.
class FaultsAreErrors {
 public:
  FaultsAreErrors();
  FaultsAreErrors(const FaultsAreErrors&) = delete;
  FaultsAreErrors& operator=(const FaultsAreErrors&) = delete;
  ~FaultsAreErrors();

 private:
  std::array<struct sigaction, 3> before_{};
  stack_t stack_before_{};
};

}  // namespace pipit::internal::test::emulation
