// Constants of the GPU kernels on the cards on which layers were recorded.
#pragma once

#include <span>

#include "layers/cuda/cost/launch_cost.h"

namespace pipit::cuda {

/// Sorted by name. Of an H100.
std::span<const KernelConstants> card_constants();

}  // namespace pipit::cuda
