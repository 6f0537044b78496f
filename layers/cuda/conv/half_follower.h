// The function of its results that an fp16 convolution computes as well (Candidate::fuses_epilogue).
#pragma once

#include "engine/plan/registry.h"
#include "layers/cuda/conv/half_function.h"

namespace pipit::cuda {

/// Candidate::fuses_epilogue of kernels that have HalfFunction: one Unary of f16, of a kind that it describes.
bool fuses_function(const NodeSpec& spec, const NodeSpec& next);

/// The first follower's function; with HalfGate::none where there is none.
HalfFunction follower_function(const NodeSpec& spec);

}  // namespace pipit::cuda
