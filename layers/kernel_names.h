// Kernels as users name them.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plan/execution_plan.h"

namespace pipit::internal {

/// What "[TYPE=]NAME" stands for. TYPE is a layer type, with its forms in other precisions: Conv is also QConv,
/// DynamicQConv and WConv. NAME is that of a kernel, or what the names of several have in common before a '_':
/// "winograd" is winograd_f2x2 and winograd_f4x4. Throws Error that lists what there is instead.
std::vector<KernelName> kernels_named(std::string_view text, const Registry& registry);

/// What NAME may be for any type.
std::set<std::string> known_kernels(const Registry& registry);

}  // namespace pipit::internal
