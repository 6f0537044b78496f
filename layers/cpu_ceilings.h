// The ceilings of the CPU, measured.
#pragma once

#include "engine/platform/ceilings.h"

namespace pipit::internal {

/// Measures what `threads` threads (0: default_threads()) reach together, in some seconds: independent multiply-adds in
/// registers, and the register tile of convolutions on operands in the first-level cache, for every instruction set
/// that this CPU has; reading and writing of each level of cache and of memory (up to a quarter of what is free, given
/// back at the end). Beside other load all of it is lower. `progress` may be empty.
Ceilings measure_cpu_ceilings(int threads, const CeilingsProgress& progress = {});

}  // namespace pipit::internal
