// A node as the kernels for few channels see it: what the candidates in fp16 and INT8 share.
#pragma once

#include <string_view>

#include "engine/plan/registry.h"
#include "layers/cuda/conv/stem/plan.h"
#include "layers/ops/conv.h"

namespace pipit::cuda {

/// What no such kernel handles, but for its types.
Refusal refuse_stem_problem(const NodeSpec& spec, const ConvAttributes& attributes);

/// The ways to run a node, as Candidate::variants has them: a tile, with "+overlap" where the launch overlaps with the
/// kernel in front.
std::vector<std::string> stem_variants(const NodeSpec& spec, const ConvAttributes& attributes);

/// Of "stem" in the spec's variant, or the one that it chooses.
Estimate stem_estimate(const NodeSpec& spec, const ConvAttributes& attributes);

/// Arguments for the node in the way that it names, or by rule in the best: geometry, where the elements of x lie, type
/// of x, overlap. Throws Error when there is no such way.
StemArgs stem_args(const NodeSpec& spec, const ConvAttributes& attributes);

}  // namespace pipit::cuda
