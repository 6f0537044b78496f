// mbarriers, and what barriers need of threads that end.
#pragma once

#include <cstdint>

#include "tests/cuda/emulation/machine.h"

namespace pipit::internal::test::emulation {

/// The mbarrier at the address, whose initialization must come before the running warp in the order of threads.
Mbarrier& mbarrier_at(std::uint32_t address, const char* what);
/// Bytes of a copy have come.
void complete(Mbarrier& m, std::uint32_t bytes);
/// The running thread has ended: barriers that wait for all threads wait for one less.
void leave_barriers(Block& b);

}  // namespace pipit::internal::test::emulation
