// What the CPU's arithmetic units can do: the ceiling that kernels are compared with.
#pragma once

#include "engine/platform/measured_rate.h"
#include "layers/cpu/tile/tile_kernel.h"

namespace pipit::internal {

/// Operations per second (a multiply-accumulate is two) of all workers of the pool together, on registers only, with
/// the instructions of these tile kernels: f32_tiles() for FLOP/s, u8s8_tiles() for int8. Another load on the machine
/// lowers it.
MeasuredRate measure_peak(ThreadPool& pool, const TileKernels& kernels);

/// The same for the largest tile as convolutions call it, on operands that stay in the first-level cache: what no layer
/// can exceed. Reading operands costs clock rate besides time: 15 % of the peak on Emerald Rapids.
MeasuredRate measure_tile_rate(ThreadPool& pool, const TileKernels& kernels);

}  // namespace pipit::internal
