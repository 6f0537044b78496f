// From a float graph to one whose convolutions and fully connected layers compute in INT8 with scales of activations
// that are found at run time.
#pragma once

#include "layers/ops/dynamic_int8.h"
#include "layers/passes/passes.h"

namespace pipit::internal {

/// Rewrites a fused graph without layouts. Every Conv, Gemm and MatMul with constant weights reads its input through a
/// DynamicQuantize, shared by all that read the same value, and becomes a DynamicQConv, a matrix product as a
/// convolution of one tap over its rows. Weights: symmetric int8 per output channel; bias, residual and activation stay
/// in f32, and so do the activations between layers.
/// Stay in f32: convolutions of fewer than 4 channels in a group (depthwise ones above all: they are bound by reading
/// their f32 input, which quantizing would read twice more), products of vectors, and depths of 60,000 or more, whose
/// sums might leave int32. Where the integers are i8, as GPUs want them, also convolutions that are not of two
/// dimensions or have groups.
/// Weights that `graph` alone holds are freed one by one. Throws Error for a weight that is not finite.
Rewritten quantize_dynamically(Graph graph, const DynamicQuantizeAttributes& scales);

}  // namespace pipit::internal
