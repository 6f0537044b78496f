// How much memory this process may still take.
#pragma once

#include <cstddef>

namespace pipit {

/// Bytes that can be allocated without swapping: MemAvailable, lowered by what the cgroup leaves. Physical memory
/// where neither is known.
std::size_t available_host_memory();

}  // namespace pipit
