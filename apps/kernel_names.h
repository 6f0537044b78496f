// The names that --kernel takes.
#pragma once

#include <set>
#include <string>

namespace pipit::apps {

/// The kernels of all layers on all devices. A model need not have a layer for each: preferring a kernel that
/// it has no use for is no mistake, preferring one that nothing has is.
std::set<std::string> kernel_names();

}  // namespace pipit::apps
