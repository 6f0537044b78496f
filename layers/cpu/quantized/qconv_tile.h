// INT8 convolution on the register tile: candidate "tile" of QConv.
#pragma once

#include "engine/plan/registry.h"
#include "layers/cpu/tile/kept_steps.h"

namespace pipit::internal {

/// The tiles of "tile" and the steps of K that they are left with, for a node that it accepts.
KeptForTiles kept_by_qconv_tile(const NodeSpec& spec);

}  // namespace pipit::internal
