#include "apps/display/refusals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace pipit::internal::apps {

namespace {

// What all of several sets hold.
template <typename T>
class Common {
 public:
  void add(const std::set<T>& one) {
    if (count_++ == 0) {
      all_ = one;
    } else {
      std::erase_if(all_, [&](const T& entry) { return !one.contains(entry); });
    }
  }
  std::set<T> of_at_least_two() const { return count_ >= 2 ? all_ : std::set<T>{}; }

 private:
  std::set<T> all_;
  int count_ = 0;
};

}  // namespace

Refusals::Refusals(const tools::InspectedModel& model) : model_(model) {
  Common<std::string> of_all;
  std::map<std::string, Common<std::pair<std::string, std::string>>> of_types;
  for (const tools::InspectedLayer& layer : model.layers) {
    std::set<std::string> reasons;
    std::set<std::pair<std::string, std::string>> pairs;
    for (const tools::RefusedKernel& refused : layer.refused) {
      reasons.insert(refused.why);
      pairs.emplace(refused.kernel, refused.why);
    }
    if (!reasons.empty()) of_all.add(reasons);
    of_types[layer.type].add(pairs);
  }
  reasons_ = of_all.of_at_least_two();
  for (const auto& [type, common] : of_types) of_types_[type] = common.of_at_least_two();
}

bool Refusals::about_all(const std::string& type, const tools::RefusedKernel& refused) const {
  return reasons_.contains(refused.why) || of_types_.at(type).contains({refused.kernel, refused.why});
}

std::vector<tools::RefusedKernel> Refusals::of(const tools::InspectedLayer& layer) const {
  std::vector<tools::RefusedKernel> left = layer.refused;
  std::erase_if(left, [&](const tools::RefusedKernel& refused) { return about_all(layer.type, refused); });
  return left;
}

std::vector<std::string> Refusals::of_all() const {
  // Kernels by candidate and reason, in the order of the candidates.
  std::vector<std::pair<std::pair<std::string, std::string>, std::vector<std::string>>> lines;
  for (const tools::InspectedLayer& layer : model_.layers) {
    for (const tools::RefusedKernel& refused : layer.refused) {
      if (!about_all(layer.type, refused)) continue;
      const std::pair key{reasons_.contains(refused.why) ? "layer" : layer.type, refused.why};
      auto at = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == key; });
      if (at == lines.end()) at = lines.insert(lines.end(), {key, {}});
      if (std::find(at->second.begin(), at->second.end(), refused.kernel) == at->second.end())
        at->second.push_back(refused.kernel);
    }
  }
  std::vector<std::string> text;
  for (const auto& [key, names] : lines)
    text.push_back(fmt::format("every {}: not {}: {}", key.first, fmt::join(names, "; "), key.second));
  return text;
}

}  // namespace pipit::internal::apps
