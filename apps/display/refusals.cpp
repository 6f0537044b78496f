#include "apps/display/refusals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace pipit::internal::apps {

namespace {

std::string type_of(const ExecutionPlan& plan, const Step& step) {
  return std::string(plan.graph().nodes()[static_cast<std::size_t>(step.node)].layer->type());
}

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

Refusals::Refusals(const ExecutionPlan& plan) : plan_(plan) {
  Common<std::string> of_all;
  std::map<std::string, Common<std::pair<std::string, std::string>>> of_types;
  for (const Step& step : plan.steps()) {
    std::set<std::string> reasons;
    std::set<std::pair<std::string, std::string>> pairs;
    for (const RefusedCandidate& refused : step.refused) {
      reasons.insert(refused.reason);
      pairs.emplace(refused.name, refused.reason);
    }
    if (!reasons.empty()) of_all.add(reasons);
    of_types[type_of(plan, step)].add(pairs);
  }
  reasons_ = of_all.of_at_least_two();
  for (const auto& [type, common] : of_types) of_types_[type] = common.of_at_least_two();
}

bool Refusals::about_all(const std::string& type, const RefusedCandidate& refused) const {
  return reasons_.contains(refused.reason) || of_types_.at(type).contains({refused.name, refused.reason});
}

std::vector<RefusedCandidate> Refusals::of(const Step& step) const {
  std::vector<RefusedCandidate> left = step.refused;
  std::erase_if(left, [&, type = type_of(plan_, step)](const RefusedCandidate& refused) {
    return about_all(type, refused);
  });
  return left;
}

std::vector<std::string> Refusals::of_all() const {
  // Kernels by candidate and reason, in the order of the candidates.
  std::vector<std::pair<std::pair<std::string, std::string>, std::vector<std::string>>> lines;
  for (const Step& step : plan_.steps()) {
    const std::string type = type_of(plan_, step);
    for (const RefusedCandidate& refused : step.refused) {
      if (!about_all(type, refused)) continue;
      const std::pair key{reasons_.contains(refused.reason) ? "layer" : type, refused.reason};
      auto at = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == key; });
      if (at == lines.end()) at = lines.insert(lines.end(), {key, {}});
      if (std::find(at->second.begin(), at->second.end(), refused.name) == at->second.end())
        at->second.push_back(refused.name);
    }
  }
  std::vector<std::string> text;
  for (const auto& [key, names] : lines)
    text.push_back(fmt::format("every {}: not {}: {}", key.first, fmt::join(names, "; "), key.second));
  return text;
}

}  // namespace pipit::internal::apps
