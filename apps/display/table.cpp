#include "apps/display/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "apps/display/terminal.h"

namespace pipit::internal::apps {

namespace {

constexpr std::size_t kGap = 2;       // between columns
constexpr std::size_t kMinName = 20;  // names are not cut below this as long as a column can go instead
constexpr std::size_t kShortest = 5;

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

// Columns of text: code points, not bytes. Combining and wide characters are not told apart.
std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

// The byte at which code point `count` of the text begins.
std::size_t offset_of(const std::string& text, std::size_t count) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (begins_character(text[at]) && count-- == 0) break;
  }
  return at;
}

}  // namespace

std::string shortened(const std::string& text, std::size_t width) {
  const std::size_t all = display_width(text);
  const std::size_t kept = std::max(width, kShortest) - 3;
  if (all <= kept + 3) return text;
  const std::size_t front = (kept + 1) / 2;
  return text.substr(0, offset_of(text, front)) + "..." + text.substr(offset_of(text, all - (kept - front)));
}

namespace {

// "..." stands for what is before the last columns.
std::string end_of(const std::string& text, std::size_t width) {
  const std::size_t all = display_width(text);
  return all <= width ? text : "..." + text.substr(offset_of(text, all - (std::max(width, kShortest) - 3)));
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t indent, int width) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    while (width > 0 && display_width(line) > static_cast<std::size_t>(width)) {
      std::size_t space = line.rfind(' ', offset_of(line, static_cast<std::size_t>(width)));
      if (space == line.npos || space <= indent) space = line.find(' ', indent + 1);  // after a long word
      if (space == line.npos) break;
      lines += line.substr(0, line.find_last_not_of(' ', space) + 1) + "\n";
      line = std::string(indent, ' ') + line.substr(space + 1);
    }
    lines += line + "\n";
  }
  return lines;
}

void Table::add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::str(int indent, int width) const {
  if (width == 0) return format(indent, true, natural_widths());
  return format(indent, true, fitting_widths(static_cast<std::size_t>(std::max(width - indent, 1))));
}

std::string Table::rows(int indent) const {
  return format(indent, false, natural_widths());
}

// 0 for columns without content.
std::vector<std::size_t> Table::natural_widths() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = 0;
    for (const auto& row : rows_) width = std::max(width, c < row.size() ? display_width(row[c]) : 0);
    if (width > 0 || rows_.empty()) width = std::max(width, display_width(columns_[c].title));
    widths.push_back(width);
  }
  return widths;
}

// 0 for columns that have gone.
std::vector<std::size_t> Table::fitting_widths(std::size_t room) const {
  std::vector<std::size_t> widths = natural_widths();
  const auto excess = [&](const std::vector<std::size_t>& of) {
    std::size_t sum = 0;
    for (const std::size_t width : of) sum += width == 0 ? 0 : width + kGap;
    return sum > room + kGap ? sum - room - kGap : 0;
  };
  // The longest names first, as far as they must, each to `least` at the lowest.
  const auto with_short_names = [&](std::size_t least) {
    std::vector<std::size_t> narrow = widths;
    for (std::size_t over = excess(narrow); over > 0; --over) {
      std::size_t longest = columns_.size();
      for (std::size_t c = 0; c < columns_.size(); ++c) {
        const std::size_t limit = std::max(least, display_width(columns_[c].title));
        if (columns_[c].name && narrow[c] > limit &&
            (longest == columns_.size() || narrow[c] > narrow[longest])) {
          longest = c;
        }
      }
      if (longest == columns_.size()) break;
      --narrow[longest];
    }
    return narrow;
  };
  for (;;) {
    std::vector<std::size_t> narrow = with_short_names(kMinName);
    if (excess(narrow) == 0) return narrow;
    std::size_t last = columns_.size();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (widths[c] == 0 || columns_[c].rank == 0) continue;
      if (last == columns_.size() || columns_[c].rank > columns_[last].rank) last = c;
    }
    if (last == columns_.size()) return with_short_names(kShortest);
    widths[last] = 0;
  }
}

bool Table::differ_at_ends(std::size_t column, std::size_t width) const {
  std::set<std::string> middles_out, ends;
  for (const auto& row : rows_) {
    if (column >= row.size()) continue;
    middles_out.insert(shortened(row[column], width));
    ends.insert(end_of(row[column], width));
  }
  return ends.size() > middles_out.size();
}

std::string Table::format(int indent, bool titles, const std::vector<std::size_t>& widths) const {
  std::vector<bool> by_ends;
  for (std::size_t c = 0; c < columns_.size(); ++c)
    by_ends.push_back(columns_[c].name && differ_at_ends(c, widths[c]));
  std::string text;
  const auto line = [&](const auto& cell) {
    std::string row(static_cast<std::size_t>(indent), ' ');
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (widths[c] == 0) continue;
      const std::string value = !columns_[c].name ? cell(c)
                                : by_ends[c]      ? end_of(cell(c), widths[c])
                                                  : shortened(cell(c), widths[c]);
      const std::size_t width = display_width(value);
      const std::string blanks(widths[c] > width ? widths[c] - width : 0, ' ');
      row += columns_[c].align == Align::right ? blanks + value : value + blanks;
      row.append(kGap, ' ');
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

}  // namespace pipit::internal::apps
