// Scales and zero points as ONNX's quantised operators give them: two more inputs per tensor.
#pragma once

#include "layers/quantize_axis.h"
#include "models/onnx/node_context.h"

namespace pipit::onnx {

/// The quantisation whose scale is input `scale` and whose zero point is input `zero_point` (absent: 0 of type
/// `absent`). Both must be constants; a list of scales holds along `axis`, which may be negative, of `shape`. Throws
/// UnsupportedError on scales of more than one dimension (blocks).
AxisQuantisation read_quantisation(NodeContext& node, int scale, int zero_point, DType absent,
                                   const Shape& shape, std::int64_t axis = 0);

/// Of a bias (i32) in units of the products of `weights` and an input with scale `factor`. Throws UnsupportedError
/// where such a product is no positive number of 32 bits.
AxisQuantisation bias_quantisation(AxisQuantisation weights, float factor);

/// Adds Dequantize or DequantizeAxis. Throws UnsupportedError on a denormal scale, unless the integers are constant.
ValueId dequantised(NodeContext& node, ValueId integers, const AxisQuantisation& q,
                    const char* part = nullptr);
/// dequantised() of input `x`, whose scale and zero point follow it.
ValueId dequantised_input(NodeContext& node, int x, const char* part, std::int64_t axis = 0);

/// Adds Quantize or QuantizeAxis. Throws UnsupportedError on a denormal scale.
ValueId quantised(NodeContext& node, ValueId real, const AxisQuantisation& q, const char* part = nullptr);
/// quantised() with the scale in input `scale` and the zero point in the one after it (absent: 0 of u8).
ValueId quantised_output(NodeContext& node, ValueId real, int scale);

}  // namespace pipit::onnx
