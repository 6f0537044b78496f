#include "engine/plan/registry.h"

namespace pipit::internal {

void Registry::add(std::string_view layer_type, DeviceKind device, Candidate candidate) {
  auto& list = candidates_[{std::string(layer_type), device}];
  for (const Candidate& other : list) {
    if (other.name == candidate.name)
      fail("kernel '{}' of {} is registered twice", candidate.name, layer_type);
  }
  list.push_back(std::move(candidate));
}

const std::vector<Candidate>& Registry::candidates(std::string_view layer_type, DeviceKind device) const {
  static const auto& none = *new std::vector<Candidate>;
  const auto found = candidates_.find(std::pair{std::string(layer_type), device});
  return found == candidates_.end() ? none : found->second;
}

std::vector<std::string> Registry::layer_types(DeviceKind device) const {
  std::vector<std::string> types;
  for (const auto& [key, list] : candidates_) {
    if (key.second == device) types.push_back(key.first);
  }
  return types;
}

std::set<std::string> Registry::kernel_names(std::string_view layer_type) const {
  std::set<std::string> names;
  for (const auto& [key, list] : candidates_) {
    if (!layer_type.empty() && key.first != layer_type) continue;
    for (const Candidate& candidate : list) names.insert(candidate.name);
  }
  return names;
}

}  // namespace pipit::internal
