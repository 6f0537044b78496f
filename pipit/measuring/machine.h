// What this machine gives pipit to work with.
#pragma once

#include <vector>

#include "pipit/machine.h"

namespace pipit::internal::detail {

using tools::Finding;

/// Of examine_machine().
std::vector<Finding> all_findings();

/// The findings that times depend on: pipit, the system, CPUs, instruction sets, caches, memory, clock and load, and
/// with `gpu` the GPU and its libraries.
std::vector<Finding> measuring_environment(bool gpu);

}  // namespace pipit::internal::detail
