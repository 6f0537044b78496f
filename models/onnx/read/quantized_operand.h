// Scales and zero points as ONNX's quantized operators give them: two more inputs per tensor.
#pragma once

#include "layers/ops/quantize_axis.h"
#include "models/onnx/read/node_context.h"

namespace pipit::internal::onnx {

/// The quantization whose scale is input `scale` and whose zero point is input `zero_point` (absent: 0 of type
/// `absent`). Both must be constants; a list of scales holds along `axis`, which may be negative, of `shape`. Throws
/// UnsupportedError on scales of more than one dimension (blocks), Error on a scale that is negative or not finite.
AxisQuantization read_quantization(NodeContext& node, int scale, int zero_point, DType absent,
                                   const Shape& shape, std::int64_t axis = 0);

/// The quantization of a bias (i32) in units of the products of `weights` and an input with scale `factor`. Throws
/// UnsupportedError where such a product is no positive number of 32 bits.
AxisQuantization bias_quantization(AxisQuantization weights, float factor);

/// Adds Dequantize or DequantizeAxis. A constant whose scale is 0 or denormal becomes numbers too small to change a
/// sum. Throws UnsupportedError naming tensor and channel on such a scale of what is computed at run time.
ValueId dequantized(NodeContext& node, ValueId integers, const AxisQuantization& given,
                    const char* part = nullptr);
/// dequantized() of input `x`, whose scale and zero point follow it.
ValueId dequantized_input(NodeContext& node, int x, const char* part, std::int64_t axis = 0);

/// Adds Quantize or QuantizeAxis, with the same rules.
ValueId quantized(NodeContext& node, ValueId real, const AxisQuantization& given, const char* part = nullptr);
/// quantized() with the scale in input `scale` and the zero point in the one after it (absent: 0 of u8).
ValueId quantized_output(NodeContext& node, ValueId real, int scale);

/// What DynamicQuantizeLinear makes of `x`: u8, the scale (f32) and the zero point (u8). `part`: what is put after the
/// node's name for the first, as NodeContext::emit_all() has it.
std::vector<ValueId> dynamically_quantized(NodeContext& node, ValueId x, const char* part);

}  // namespace pipit::internal::onnx
