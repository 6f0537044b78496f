// The ceilings of a GPU, measured.
#pragma once

#include "engine/plan/kernel.h"
#include "engine/platform/machine_peak.h"

namespace pipit {

/// Measures a GPU in about a second: copies within its memory, far larger than its caches, and square products of
/// random matrices through cuBLASLt in the precision (fp32 is true fp32, not TF32); the best of several rates each.
/// The copies take up to 2 GiB of the card, given back at the end. Throws Error for int8, without such a GPU and
/// without cuBLASLt.
MachinePeak measure_gpu_peak(int gpu, Precision precision);

}  // namespace pipit
