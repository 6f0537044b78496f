// Convolution on the register tile: candidate "tile" of Conv.
#pragma once

#include "engine/plan/registry.h"

namespace pipit {

/// Candidate::kept_share of "tile", for a node that it accepts.
double kept_by_conv_tile(const NodeSpec& spec);

}  // namespace pipit
