// Variants of kernels that a library builds: its heuristic's proposals in their order, the best guess first.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"

namespace pipit::cuda {

/// "proposal 0" to "proposal N-1". There may be fewer; creating one of the others then fails.
inline std::vector<std::string> proposals(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("proposal " + std::to_string(i));
  return names;
}

/// The number in such a name; 0 for an empty one.
inline int proposal_number(std::string_view variant) {
  constexpr std::string_view kPrefix = "proposal ";
  if (variant.empty()) return 0;
  int number = -1;
  if (variant.starts_with(kPrefix)) {
    const std::string_view digits = variant.substr(kPrefix.size());
    const char* end = digits.data() + digits.size();
    if (std::from_chars(digits.data(), end, number).ptr != end) number = -1;
  }
  if (number < 0) fail("there is no variant '{}'", variant);
  return number;
}

}  // namespace pipit::cuda
