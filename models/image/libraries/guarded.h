// Calling C libraries that report errors by longjmp. Internal to models/image/libraries.
#pragma once

#include <csetjmp>

namespace pipit::internal::detail {

/// Runs `steps` and says whether they came to their end; false when one of them jumped to `out`. What the jump
/// leaves, `steps` and what it calls, must hold nothing that has a destructor. No variable of the caller that
/// `steps` changes may be read after a jump, unless it is reached through a pointer.
template <typename Steps>
bool guarded(std::jmp_buf& out, const Steps& steps) {
  if (setjmp(out) != 0) return false;
  steps();
  return true;
}

}  // namespace pipit::internal::detail
