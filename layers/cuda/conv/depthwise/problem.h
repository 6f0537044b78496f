// What the candidates "depthwise_quads" of Conv and QConv take.
#pragma once

#include "engine/plan/registry.h"
#include "layers/cuda/conv/depthwise/plan.h"
#include "layers/ops/conv.h"

namespace pipit::internal::cuda {

/// Why kernels whose threads slide down rows do not compute the node: element types are left to the caller.
Refusal refuse_sliding_depthwise(const NodeSpec& spec, const ConvAttributes& attributes);

/// The geometry without what a thread computes.
DepthwiseGeometry depthwise_geometry(const NodeSpec& spec, const Window& window);

}  // namespace pipit::internal::cuda
