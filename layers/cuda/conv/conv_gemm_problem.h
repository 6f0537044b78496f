// A node as the implicit-GEMM kernels see it: what the candidates in fp16 and INT8 share.
#pragma once

#include <string>
#include <vector>

#include "engine/plan/registry.h"
#include "layers/cuda/conv/conv_tile.h"
#include "layers/ops/conv.h"

namespace pipit::cuda {

/// What no instance of the kernel handles: other dimensions, groups, operands at run time, outputs and residuals that
/// are not channels_last, empty tensors, offsets beyond 32 bits. `units`: channels of x as the kernel reads them, in
/// units of 16 bits.
Refusal refuse_conv_gemm(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units);

/// The geometry, with in_c = units.
ConvShape conv_gemm_shape(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units);

/// conv_variants() on the spec's GPU.
std::vector<ConvVariant> conv_gemm_variants(const ConvShape& shape, int gpu);

/// The one that the spec names, or the first. Throws Error when there is none of that name.
ConvVariant named_variant(const std::vector<ConvVariant>& variants, std::string_view name);
std::vector<std::string> names_of(const std::vector<ConvVariant>& variants);

}  // namespace pipit::cuda
