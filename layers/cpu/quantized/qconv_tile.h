// INT8 convolution on the register tile: candidate "tile" of QConv.
#pragma once

#include "engine/plan/registry.h"

namespace pipit {

/// Candidate::kept_share of "tile", for a node that it accepts.
double kept_by_qconv_tile(const NodeSpec& spec);

}  // namespace pipit
