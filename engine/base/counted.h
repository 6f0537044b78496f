// Numbers of things in messages.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace pipit::internal {

/// "1 image", "2 images"; `more` where the plural takes other words.
inline std::string counted(std::int64_t count, std::string_view one, std::string_view more = {}) {
  if (count == 1) return fmt::format("1 {}", one);
  return more.empty() ? fmt::format("{} {}s", count, one) : fmt::format("{} {}", count, more);
}

}  // namespace pipit::internal
