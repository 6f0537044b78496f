// Runs another program and reads what it writes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pipit::internal::detail {

struct ChildResult {
  int exit_code = 0;
  std::string output;  ///< stdout by the time that it ended
};

/// Runs a program of PATH with these arguments, the first being its name, and waits for it, not for what it has started
/// and left. It has no stdin, and pipit's stderr. Throws Error when there is no such program, when a signal ends it, or
/// when it writes more than `most_bytes` (it is killed then).
ChildResult run_child(const std::vector<std::string>& command, std::size_t most_bytes);

}  // namespace pipit::internal::detail
