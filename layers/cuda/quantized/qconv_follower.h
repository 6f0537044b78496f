// The function of 8-bit results that an INT8 convolution computes as well (Candidate::fuses_epilogue).
#pragma once

#include "engine/cuda/runtime.h"
#include "engine/plan/registry.h"

namespace pipit::cuda {

/// Candidate::fuses_epilogue of kernels that pass the bytes they write through a table: one QUnary, unless the
/// convolution's own results are floating-point.
bool fuses_table(const NodeSpec& spec, const NodeSpec& next);

/// The follower's table (unary_table) on the GPU; empty where there is no follower.
DeviceBuffer follower_table(const NodeSpec& spec);

}  // namespace pipit::cuda
