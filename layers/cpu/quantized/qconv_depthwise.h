// What the INT8 depthwise kernels have in common.
#pragma once

#include "engine/plan/registry.h"

namespace pipit {

/// Why a QConv is not a depthwise convolution of u8, NHWC, with constant weights, one output per channel, or nothing.
Refusal refuse_qconv_depthwise(const NodeSpec& spec);

}  // namespace pipit
