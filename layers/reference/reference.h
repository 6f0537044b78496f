// Plain kernels, one file per layer family: the oracle for every other kernel and the last candidate of every
// layer. Written for clarity: loops over logical indices through strides, any layout, double accumulation.
#pragma once

#include "engine/plan/registry.h"

namespace pipit::internal {

void register_reference_conv(Registry& registry);
void register_reference_conv_transpose(Registry& registry);
void register_reference_pool(Registry& registry);
void register_reference_linear(Registry& registry);  // Gemm, MatMul
void register_reference_normalization(Registry& registry);
void register_reference_softmax(Registry& registry);
void register_reference_resize(Registry& registry);
void register_reference_grid_sample(Registry& registry);
void register_reference_unary(Registry& registry);
void register_reference_binary(Registry& registry);  // Binary, Where
void register_reference_reduce(Registry& registry);  // Reduce, ArgMax
void register_reference_recurrent(Registry& registry);
void register_reference_slicing(Registry& registry);
void register_reference_indexing(Registry& registry);  // GatherIndexed, ScatterIndexed, TopK, CumSum
void register_reference_reshaping(Registry& registry);
void register_reference_channel_shuffle(Registry& registry);
void register_reference_cast(Registry& registry);
void register_reference_normalize_image(Registry& registry);
void register_reference_weight_only(Registry& registry);   // WLinear, WConv
void register_reference_dynamic_int8(Registry& registry);  // DynamicQuantize, DynamicQConv
void register_reference_quantized(
    Registry& registry);  // Quantize, Dequantize, QConv, QAdd, QMul, QUnary, QAveragePool
void register_reference_quantize_axis(Registry& registry);

}  // namespace pipit::internal
