// The ceilings of a GPU, measured.
#pragma once

#include "engine/platform/ceilings.h"

namespace pipit::internal {

/// Measures a GPU in some seconds, with kernels that do nothing else: multiply-adds of floats in registers, products of
/// halves and of bytes on tensor cores; the loops of STREAM on a quarter of the second-level cache and far beyond it;
/// kernels without work in a captured graph, and waiting for one. Takes up to 4 GiB of the card, given back at the end.
/// `progress` may be empty. Throws Error without such a GPU.
Ceilings measure_gpu_ceilings(int gpu, const CeilingsProgress& progress = {});

}  // namespace pipit::internal
