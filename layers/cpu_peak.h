// The ceilings of the CPU, measured.
#pragma once

#include "engine/plan/kernel.h"
#include "engine/platform/machine_peak.h"

namespace pipit {

/// Measures what `threads` threads (0: available_cpus()) reach together, in about half a second: independent fused
/// multiply-adds in registers, with the widest vectors of chosen_isa(), on halves for fp16 where that multiplies them,
/// on 8-bit integers for int8, and else on floats; the register tile of convolutions on operands in the first-level
/// cache; and reading of memory far larger than most caches (256 MiB, given back at the end); the best of several rates
/// each. What a layer reads may come from a cache, so small layers can be faster than memory lets them.
MachinePeak measure_cpu_peak(int threads, Precision precision = Precision::fp32);

}  // namespace pipit
