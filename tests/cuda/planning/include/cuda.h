// What planning needs of the CUDA driver's header, without the toolkit.
#pragma once

#include <cstdint>

struct CUtensorMap {
  alignas(64) std::uint64_t opaque[16];
};
