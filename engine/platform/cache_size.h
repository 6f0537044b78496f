// The size of a core's second-level cache.
#pragma once

#include <cstdint>

namespace pipit::internal {

/// Bytes; 1 MiB, the minimum of recent server cores, where the system does not say.
std::int64_t second_level_cache();

}  // namespace pipit::internal
