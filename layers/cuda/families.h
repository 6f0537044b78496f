// The registration functions of the GPU kernels, one per file. Within a layer the order of the calls in register.cpp
// is the order of preference.
#pragma once

#include "engine/registry.h"

namespace pipit {}  // namespace pipit
