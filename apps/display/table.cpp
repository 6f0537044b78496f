#include "apps/display/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "apps/display/terminal.h"

namespace pipit::apps {

namespace {

// Columns of text: code points, not bytes. Combining and wide characters are not told apart.
std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::str(int indent) const {
  return format(indent, true);
}

std::string Table::rows(int indent) const {
  return format(indent, false);
}

std::string Table::format(int indent, bool titles) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = display_width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, c < row.size() ? display_width(row[c]) : 0);
    widths.push_back(width);
  }
  std::string text;
  const auto line = [&](const auto& cell) {
    std::string row(static_cast<std::size_t>(indent), ' ');
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::string value = cell(c);
      const std::string blanks(widths[c] - display_width(value), ' ');
      row += columns_[c].align == Align::right ? blanks + value : value + blanks;
      row += "  ";
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  };
  if (titles) line([&](std::size_t c) { return columns_[c].title; });
  for (const auto& row : rows_) {
    line([&](std::size_t c) { return c < row.size() ? row[c] : std::string{}; });
  }
  return text;
}

std::string with_prefix(double value) {
  constexpr std::array kPrefixes = {"", " k", " M", " G", " T"};
  std::size_t p = 0;
  while (std::abs(value) >= 999.5 && p + 1 < kPrefixes.size()) {
    value /= 1000;
    ++p;
  }
  const int decimals = p == 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, decimals, kPrefixes[p]);
}

std::string counted(std::int64_t count, std::string_view one, std::string_view more) {
  if (count == 1) return fmt::format("1 {}", one);
  return more.empty() ? fmt::format("{} {}s", count, one) : fmt::format("{} {}", count, more);
}

}  // namespace pipit::apps
