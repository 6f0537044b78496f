// The GPU kernels, registered in one call. They and the CUDA headers they include stay in layers/cuda/.
#pragma once

#include "engine/plan/registry.h"

namespace pipit::internal {

/// Registers every GPU candidate, in order of preference; nothing in a build without CUDA (stub.cpp).
void register_cuda(Registry& registry);

}  // namespace pipit::internal
