// The registration functions of the CPU kernels, one per file. Within a layer the order of the calls in register.cpp is
// the order of preference.
#pragma once

#include "engine/plan/registry.h"

namespace pipit::internal {

void register_cpu_conv_tile(Registry& registry);       // any dense geometry, no patch matrix
void register_cpu_conv_im2col(Registry& registry);     // im2col + GEMM, 1x1 without im2col
void register_cpu_conv_depthwise(Registry& registry);  // direct depthwise
void register_cpu_conv_groups(Registry& registry);     // small groups, any window
void register_cpu_conv_few(Registry& registry);        // dot products for few outputs
void register_cpu_conv_gemv(Registry& registry);       // 16 bits: 1x1 of few pixels
void register_cpu_conv_winograd(Registry& registry);   // 3x3 of stride 1; directly before tile
void register_cpu_pool(Registry& registry);
void register_cpu_linear_tile(Registry& registry);  // Gemm, MatMul with constant weights
void register_cpu_linear(Registry& registry);       // Gemm, MatMul
void register_cpu_recurrent(Registry& registry);
void register_cpu_attention(Registry& registry);  // of Transpose, Binary and MatMul; after all of them
void register_cpu_normalization(Registry& registry);
void register_cpu_instance_norm(Registry& registry);  // called by register_cpu_normalization
void register_cpu_lrn(Registry& registry);            // likewise
void register_cpu_softmax(Registry& registry);
void register_cpu_resize(Registry& registry);
void register_cpu_filtered_resize(Registry& registry);  // cubic, antialiased
void register_cpu_grid_sample(Registry& registry);
void register_cpu_elementwise(Registry& registry);        // Unary, Binary
void register_cpu_typed_elementwise(Registry& registry);  // Unary, Binary of other types; Where, Cast
void register_cpu_normalize_image(Registry& registry);
void register_cpu_reduce(Registry& registry);
void register_cpu_concat(Registry& registry);  // along the channels of NHWC data
void register_cpu_channel_shuffle(Registry& registry);
void register_cpu_movement(
    Registry& registry);  // Concat, Split, Transpose, ToLayout, DepthToSpace, Gather by computed indices
void register_cpu_table_movement(
    Registry& registry);  // Pad, Slice, Expand, Tile, Gather, Resize to the nearest; before both
void register_cpu_narrow_cast(Registry& registry);  // Cast between f32 and 16 bits of one layout
void register_cpu_weight_only(Registry& registry);  // WLinear, WConv
void register_cpu_dynamic_quantize(Registry& registry);
void register_cpu_dynamic_conv(Registry& registry);  // DynamicQConv
void register_cpu_qconv_tile(Registry& registry);
void register_cpu_qconv_depthwise(Registry& registry);
void register_cpu_qconv_groups(Registry& registry);
void register_cpu_qconv_depthwise_quads(Registry& registry);
void register_cpu_qconv_winograd(Registry& registry);  // 3x3 of stride 1 by transforms
void register_cpu_qelementwise(Registry& registry);    // Quantize, Dequantize, QAdd, QMul, QUnary
void register_cpu_qpool(Registry& registry);           // QAveragePool, and Pool on i8 and u8

}  // namespace pipit::internal
