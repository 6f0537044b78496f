// A node as the implicit-GEMM kernels see it: what the candidates in fp16 and INT8 share.
#pragma once

#include <string>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/plan/registry.h"
#include "layers/cuda/conv/conv_gemm_launch.h"
#include "layers/ops/conv.h"

namespace pipit::cuda {

/// Several groups.
Refusal refuse_groups(const ConvAttributes& attributes);
/// What no instance of the kernel handles: other dimensions, groups, operands at run time, outputs and residuals that
/// are not channels_last, empty tensors, offsets beyond 32 bits. `units`: channels of x as the kernel reads them, in
/// units of 16 bits.
Refusal refuse_conv_gemm(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units);

/// The same for a kernel that takes lists of blocks: groups are weights that are zero. Not depthwise convolutions.
Refusal refuse_grouped_conv_gemm(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units);

/// The geometry, with in_c = units.
ConvShape conv_gemm_shape(const NodeSpec& spec, const ConvAttributes& attributes, std::int64_t units);

/// The blocks of k that the spec's constant weights (f32, or i8 where two channels are a unit) keep.
KeptDepth blocks_with_weights(const NodeSpec& spec, const ConvShape& shape);
/// The same, or all where leaving the others out would take "implicit_gemm" longer or the shape is averaged.
KeptDepth kept_depth(const NodeSpec& spec, const ConvShape& shape);
/// Kernel::kept_share() of the kernel that would be made.
double kept_share(const NodeSpec& spec, const ConvShape& shape);
/// kept_cost() on a GPU.
double kept_cost(const ConvShape& shape, int gpu);
/// average_pays() on a GPU.
bool average_pays(const ConvShape& shape, int gpu);

/// The blocks of every column tile on the GPU; nothing where all are kept: finding those without a list is faster in
/// short kernels (ResNet-50 at batch 1 took 6 % longer with lists of all blocks).
class DepthOnGpu {
 public:
  DepthOnGpu() = default;
  DepthOnGpu(const ConvShape& shape, const KeptDepth& depth, int columns);
  /// Sets what the kernel reads of them.
  void set(ConvGemmArgs& args) const;
  std::size_t bytes() const { return blocks_.bytes() + steps_.bytes(); }

 private:
  DeviceBuffer blocks_;
  DeviceBuffer steps_;  ///< empty where all tiles have the same number
  int tile_blocks_ = 0;
};

/// conv_variants() on the spec's GPU.
std::vector<ConvVariant> conv_gemm_variants(const ConvShape& shape, int gpu);

/// Of "implicit_gemm" in the spec's variant, or the one that it chooses. copies: x is brought into another form first.
Estimate conv_gemm_estimate(const NodeSpec& spec, const ConvShape& shape, bool copies);

/// The one that the spec names, or the first. Throws Error when there is none of that name.
ConvVariant named_variant(const std::vector<ConvVariant>& variants, std::string_view name);
/// The same of conv_gemm_variants(). What was timed without its average may have no kernel with it: then the first.
ConvVariant chosen_variant(const NodeSpec& spec, const ConvShape& shape);
std::vector<std::string> names_of(const std::vector<ConvVariant>& variants);

}  // namespace pipit::cuda
