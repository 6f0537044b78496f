#include "pipit/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

namespace pipit {

namespace {

// Levenshtein's distance: insertions, deletions and replacements of bytes.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string first_lines(std::string_view text, int count) {
  std::size_t end = 0;
  for (int line = 0; line < count; ++line) {
    end = text.find('\n', end);
    if (end == std::string_view::npos) return std::string(text);
    ++end;
  }
  const auto more = std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), '\n') + 1;
  return fmt::format("{}  ... and {} more", text.substr(0, end), more);
}

std::string counted(std::int64_t count, std::string_view one, std::string_view more) {
  if (count == 1) return fmt::format("1 {}", one);
  return more.empty() ? fmt::format("{} {}s", count, one) : fmt::format("{} {}", count, more);
}

std::string mebibytes(std::size_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / 1048576.0);
}

std::string near_names(std::string_view name, std::span<const std::string> candidates) {
  constexpr std::size_t kMax = 3;
  // The distance takes time by the product of the lengths, and names come from files.
  constexpr std::size_t kMaxLength = 500;
  if (name.size() > kMaxLength) return {};
  struct Near {
    bool apart;  // neither contains the other
    std::size_t distance;
    std::size_t index;
  };
  std::vector<Near> near;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::string& candidate = candidates[i];
    if (candidate.size() > kMaxLength) continue;
    const bool apart = name.empty() || (candidate.find(name) == std::string::npos &&
                                        name.find(candidate) == std::string_view::npos);
    const std::size_t distance = edit_distance(name, candidate);
    // More than half of the name wrong is another name.
    if (!apart || 2 * distance <= std::max(name.size(), candidate.size()))
      near.push_back({apart, distance, i});
  }
  std::ranges::sort(near, {}, [](const Near& n) { return std::tuple(n.apart, n.distance, n.index); });
  std::string text;
  for (std::size_t i = 0; i < std::min(kMax, near.size()); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "; did you mean " : ", ", candidates[near[i].index]);
  return text.empty() ? text : text + "?";
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace pipit
