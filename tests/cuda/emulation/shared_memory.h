// Addresses of shared memory.
#pragma once

#include <cstdint>

#include "tests/cuda/emulation/machine.h"

namespace pipit::internal::test::emulation {

/// Whose shared memory the address is in.
Block& block_of(std::uint32_t address);
/// What lies there; what: to say so where it is out of range or not aligned.
std::byte* checked(Block& b, std::uint32_t address, std::uint32_t bytes, const char* what,
                   std::uint32_t alignment);

}  // namespace pipit::internal::test::emulation
