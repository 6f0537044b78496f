// The function of its results that an fp16 convolution computes as well (Candidate::fuses_epilogue).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/cuda/runtime.h"
#include "engine/plan/registry.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

/// Candidate::fuses_epilogue of kernels that have HalfFunction: one Unary of f16, of a kind that it describes.
bool fuses_function(const NodeSpec& spec, const NodeSpec& next);

/// The function of a Unary; nothing where HalfFunction does not describe it.
std::optional<HalfFunction> half_function_of(const NodeSpec& unary);

/// The first follower's function; with HalfGate::none where there is none.
HalfFunction follower_function(const NodeSpec& spec);

// The function of 8-bit results that an INT8 convolution computes as well (Candidate::fuses_epilogue).

/// Candidate::fuses_epilogue of kernels that pass the bytes they write through a table: one QUnary, unless the
/// convolution's own results are floating-point.
bool fuses_table(const NodeSpec& spec, const NodeSpec& next);

using ByteTable = std::array<std::uint8_t, 256>;

/// The follower's table (unary_table); nothing where there is none.
std::optional<ByteTable> follower_table(const NodeSpec& spec);

/// On the GPU; empty where there is none.
DeviceBuffer upload_table(const std::optional<ByteTable>& table);

// The global average of its results that "implicit_gemm" computes as well, and the Quantize after that
// (Candidate::fuses_epilogue).

/// Whether the node averages all positions of each channel, of f16 or f32.
bool is_average(const NodeSpec& node);

/// Whether an average that follows spec's convolution, and the function that is fused into it, is computed with it.
/// shape: the convolution as "implicit_gemm" computes it.
bool fuses_average(const NodeSpec& spec, const ConvShape& shape);
/// Whether `next` is the Quantize after an average that is fused already.
bool quantizes_average(const NodeSpec& spec, const NodeSpec& next);

/// Whether an average is fused into the spec (ConvShape::averaged).
bool averages(const NodeSpec& spec);
/// ConvGemmArgs::average for such a spec and a tile that holds an image; without images for others.
ConvAverage average_args(const NodeSpec& spec, const ConvShape& shape, const ConvTile& tile);

}  // namespace pipit::internal::cuda
