#include "layers/kernel_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "pipit/text.h"

namespace pipit::internal {

namespace {

// Layer types begin with these where a graph computes an operator in another precision.
constexpr std::string_view kPrecisionPrefixes[] = {"", "Q", "DynamicQ", "W"};

std::set<std::string> all_layer_types(const Registry& registry) {
  std::set<std::string> types;
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    for (std::string& type : registry.layer_types(device)) types.insert(std::move(type));
  }
  return types;
}

// By what users may call them: the kernels.
using NamedKernels = std::map<std::string, std::set<std::string>>;

NamedKernels named_kernels(const Registry& registry, const std::set<std::string>& types) {
  std::set<std::string> names;
  for (const std::string& type : types) {
    for (const std::string& name : registry.kernel_names(type)) names.insert(name.substr(0, name.find(", ")));
  }
  NamedKernels named, families;
  for (const std::string& name : names) {
    named[name] = {name};
    for (std::size_t end = name.find('_'); end != std::string::npos; end = name.find('_', end + 1))
      families[name.substr(0, end)].insert(name);
  }
  for (auto& [family, members] : families) {
    if (members.size() > 1) named.try_emplace(family, std::move(members));
  }
  return named;
}

// Those of one layer type are few enough to be listed.
[[noreturn]] void fail_unknown(std::string_view text, const NamedKernels& named, bool of_type) {
  std::vector<std::string> names;
  for (const auto& [name, unused] : named) names.push_back(name);
  if (of_type)
    throw ArgumentError(fmt::format("there is no kernel '{}'; there are {}", text, fmt::join(names, ", ")));
  const std::string near = near_names(text, names);
  throw ArgumentError(fmt::format("there is no kernel '{}'{} pipit inspect --why names those of every layer",
                                  text, near.empty() ? ";" : near));
}

}  // namespace

std::vector<KernelName> kernels_named(std::string_view text, const Registry& registry) {
  const std::set<std::string> all = all_layer_types(registry);
  const std::size_t equals = text.find('=');
  std::set<std::string> types;
  if (equals != std::string_view::npos) {
    for (const std::string_view prefix : kPrecisionPrefixes) {
      std::string type = fmt::format("{}{}", prefix, text.substr(0, equals));
      if (all.contains(type)) types.insert(std::move(type));
    }
    if (types.empty())
      throw ArgumentError(fmt::format("there is no layer type '{}'; there are {}", text.substr(0, equals),
                                      fmt::join(all, ", ")));
    text.remove_prefix(equals + 1);
  }
  const NamedKernels named = named_kernels(registry, types.empty() ? all : types);
  const auto found = named.find(std::string(text));
  if (found == named.end()) fail_unknown(text, named, !types.empty());
  std::vector<KernelName> kernels;
  for (const std::string& name : found->second) {
    if (types.empty()) kernels.push_back({name});
    for (const std::string& type : types) kernels.push_back({name, type});
  }
  return kernels;
}

std::set<std::string> known_kernels(const Registry& registry) {
  std::set<std::string> names;
  for (const auto& [name, unused] : named_kernels(registry, all_layer_types(registry))) names.insert(name);
  return names;
}

}  // namespace pipit::internal
