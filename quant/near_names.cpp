#include "quant/near_names.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

#include "engine/base/error.h"

namespace pipit::internal {

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

}  // namespace pipit::internal
