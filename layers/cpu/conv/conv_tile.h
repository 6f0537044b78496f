// Convolution on the register tile: candidate "tile" of Conv.
#pragma once

#include "engine/plan/registry.h"
#include "layers/cpu/tile/kept_steps.h"

namespace pipit::internal {

/// The steps of K that "tile" is left with, for a node that it accepts.
KeptSteps kept_by_conv_tile(const NodeSpec& spec);

}  // namespace pipit::internal
