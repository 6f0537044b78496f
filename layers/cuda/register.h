// GPU kernels, one file per family. Plain C++: kernels and CUDA headers stay in the .cu files.
#pragma once

#include "engine/registry.h"

namespace pipit {

/// Registers every GPU candidate, in order of preference; nothing in a build without CUDA (stub.cpp).
void register_cuda(Registry& registry);

}  // namespace pipit
