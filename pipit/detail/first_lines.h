// Messages of many lines made short.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace pipit::internal::detail {

/// The most lines of one message that are shown.
inline constexpr int kMaxMessageLines = 20;

/// The first `count` lines; "... and N more" stands for the others.
inline std::string first_lines(std::string_view text, int count = kMaxMessageLines) {
  std::size_t end = 0;
  for (int line = 0; line < count; ++line) {
    end = text.find('\n', end);
    if (end == std::string_view::npos) return std::string(text);
    ++end;
  }
  const auto more = std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), '\n') + 1;
  return fmt::format("{}  ... and {} more", text.substr(0, end), more);
}

}  // namespace pipit::internal::detail
