// A node as the kernels for few channels see it: what the candidates in fp16 and INT8 share.
#pragma once

#include <string_view>

#include "engine/plan/registry.h"
#include "layers/cuda/conv/stem/plan.h"
#include "layers/ops/conv.h"

namespace pipit::internal::cuda {

/// What no such kernel handles, but for its types.
Refusal refuse_stem_problem(const NodeSpec& spec, const ConvAttributes& attributes);

/// The variants of a node (Candidate::variants): a tile, with "+overlap" where the launch overlaps with the previous
/// kernel.
std::vector<std::string> stem_variants(const NodeSpec& spec, const ConvAttributes& attributes);

/// The estimate of "stem" in the spec's variant, or the one that it chooses.
Estimate stem_estimate(const NodeSpec& spec, const ConvAttributes& attributes);

/// Arguments for the variant that the node names, or for the best by rule: geometry, where the elements of x lie, type
/// of x, overlap. Throws Error when there is no such variant.
StemArgs stem_args(const NodeSpec& spec, const ConvAttributes& attributes);

}  // namespace pipit::internal::cuda
