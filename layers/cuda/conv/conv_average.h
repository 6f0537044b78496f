// The global average of its results that "implicit_gemm" computes as well, and the Quantize behind that
// (Candidate::fuses_epilogue).
#pragma once

#include "engine/plan/registry.h"
#include "layers/cuda/conv/conv_gemm_launch.h"

namespace pipit::cuda {

/// Whether the node averages all positions of each channel, of f16 or f32.
bool is_average(const NodeSpec& node);

/// Whether an average that follows spec's convolution, and the function that is fused into it, is computed with it.
/// shape: the convolution as "implicit_gemm" computes it.
bool fuses_average(const NodeSpec& spec, const ConvShape& shape);
/// Whether `next` is the Quantize behind an average that is fused already.
bool quantizes_average(const NodeSpec& spec, const NodeSpec& next);

/// Whether an average is fused into the spec (ConvShape::averaged).
bool averages(const NodeSpec& spec);
/// ConvGemmArgs::average for such a spec and a tile that holds an image; without images for others.
ConvAverage average_args(const NodeSpec& spec, const ConvShape& shape, const ConvTile& tile);

}  // namespace pipit::cuda
