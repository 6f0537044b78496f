// The function of its results that an fp16 convolution computes as well (Candidate::fuses_epilogue).
#pragma once

#include <optional>

#include "engine/plan/registry.h"
#include "layers/cuda/conv/half_function.h"

namespace pipit::cuda {

/// Candidate::fuses_epilogue of kernels that have HalfFunction: one Unary of f16, of a kind that it describes.
bool fuses_function(const NodeSpec& spec, const NodeSpec& next);

/// Of a Unary; nothing where HalfFunction does not describe it.
std::optional<HalfFunction> half_function_of(const NodeSpec& unary);

/// The first follower's function; with HalfGate::none where there is none.
HalfFunction follower_function(const NodeSpec& spec);

}  // namespace pipit::cuda
