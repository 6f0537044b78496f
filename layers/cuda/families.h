// The registration functions of the GPU kernels, one per file. Candidates with estimates are ordered by these; for the
// others the order of the calls in register.cpp is the order of preference.
#pragma once

#include "engine/plan/registry.h"

namespace pipit::internal {

// The layers that are no matrix products.
void register_cuda_unary(Registry& registry);
void register_cuda_binary(Registry& registry);  // Binary, Where
void register_cuda_cast(Registry& registry);
void register_cuda_concat_rows(Registry& registry);  // directly before movement
void register_cuda_channel_shuffle(Registry& registry);
void register_cuda_split_rows(Registry& registry);  // directly before movement
void register_cuda_movement(
    Registry& registry);  // Reshape, Transpose, Concat, Split, Slice, Expand, Tile, ...
void register_cuda_pad_gather(Registry& registry);  // Pad, Gather
void register_cuda_indexing(Registry& registry);    // GatherIndexed, ScatterIndexed
void register_cuda_order(Registry& registry);       // TopK, CumSum
void register_cuda_grid_sample(Registry& registry);
void register_cuda_normalize_image(Registry& registry);
void register_cuda_small_windows(Registry& registry);  // Pool, QAveragePool: the usual windows
void register_cuda_pool(Registry& registry);
void register_cuda_normalization(Registry& registry);
void register_cuda_softmax(Registry& registry);
void register_cuda_reduce(Registry& registry);  // Reduce, ArgMax
void register_cuda_resize(Registry& registry);
void register_cuda_recurrent(Registry& registry);
void register_cuda_quantize_axis(Registry& registry);  // QuantizeAxis, DequantizeAxis

// Convolution: of Conv and QConv where neither is named.
void register_cuda_conv_rows(Registry& registry);  // 1x1 of one channel a group; of both
void register_cuda_depthwise_quads(Registry& registry);
void register_cuda_depthwise(Registry& registry);
void register_cuda_stem(Registry& registry);
void register_cuda_spread_gemm(Registry& registry);
void register_cuda_resident_gemm(Registry& registry);
void register_cuda_conv_implicit_gemm(Registry& registry);
void register_cuda_direct(Registry& registry);
void register_cuda_resident_block(Registry& registry);  // Conv and QConv; before row_chain
void register_cuda_projected_sum(Registry& registry);   // Conv and QConv; before row_chain
void register_cuda_pooled_stem(Registry& registry);     // Conv and QConv; no single node
void register_cuda_squeeze_excite(Registry& registry);  // Pool, QAveragePool; no single node
void register_cuda_row_chain(Registry& registry);       // Conv and QConv; no single node

// INT8.
void register_cuda_qconv_narrow(Registry& registry);
void register_cuda_qconv_pipelined(Registry& registry);
void register_cuda_qconv_implicit_gemm(Registry& registry);
void register_cuda_qconv_cudnn(Registry& registry);
void register_cuda_qelementwise(Registry& registry);  // Quantize, Dequantize, QAdd
void register_cuda_qfunctions(Registry& registry);    // QUnary, QMul
void register_cuda_qpool(Registry& registry);         // maxima of integers, QAveragePool

// INT8 with scales that are found at run time.
void register_cuda_dynamic_quantize(Registry& registry);
void register_cuda_dynamic_gemm(Registry& registry);  // DynamicQConv

// Weights in 8 and 4 bits.
void register_cuda_packed_gemm(Registry& registry);    // WLinear, WConv
void register_cuda_unpacked_gemm(Registry& registry);  // the same, through a library

// Through libraries.
void register_cuda_linear_skinny(Registry& registry);  // Gemm with few rows, without a library
void register_cuda_linear(Registry& registry);         // Gemm, MatMul
void register_cuda_conv_im2col(Registry& registry);
void register_cuda_conv_cudnn(Registry& registry);

}  // namespace pipit::internal
