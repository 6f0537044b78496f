// Cross-layer equalization (Nagel et al. 2019, "Data-free quantization through weight equalization and bias
// correction", section 4.1): neighbouring convolutions share their ranges out evenly among the channels between them.
#pragma once

#include <span>
#include <vector>

#include "engine/graph/graph.h"
#include "quant/quantization_plan.h"

namespace pipit::internal {

/// Factors for every pair of convolutions of a fused graph where the first one's output is read by the second alone,
/// without an activation between them or with Relu: relu(s x) = s relu(x) for s > 0. Clip and Relu6 are left out, for
/// their upper bound does not scale along; so are outputs with a residual. Channel c of the first is divided by its
/// factor, the inputs of the second that read it are multiplied, so that the largest weights of both are the same:
/// factor = sqrt(r1 / r2). Repeated over all pairs until nothing changes much. 1 where either range is 0.
std::vector<QuantizationPlan::Equalized> equalization(const Graph& fused);

/// The graph with those factors in its weights and biases: up to rounding the same function. Throws Error when a pair
/// is not in the graph or has another number of channels.
Graph equalize(const Graph& fused, std::span<const QuantizationPlan::Equalized> pairs);

}  // namespace pipit::internal
