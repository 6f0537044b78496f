// What the candidate "squeeze_excite" asks of its kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "layers/cuda/chain/squeeze_excite_plan.h"
#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/conv/half_function.h"

namespace pipit::cuda {

/// What a mean or a layer's result is clamped to, in INT8 in steps.
struct SqueezeBounds {
  float low = 0, high = 0;
};

struct SqueezeArgs {
  SqueezePlan plan;
  int block_bits = 0, slice_bits = 0;  ///< plan.blocks and plan.slices are powers of two
  Divisor slice_quads;                 ///< of a quarter of a slice's channels
  float factor = 1;                    ///< of a sum to a mean, in INT8 in steps
  SqueezeBounds mean;                  ///< in halves not used
  SqueezeBounds layers[2];
  HalfFunction functions[2];           ///< in halves; never HalfGate::none
  const std::byte* x = nullptr;        ///< NHWC
  const std::byte* weights = nullptr;  ///< pack_squeeze_excite()
  std::byte* y = nullptr;
};

/// All that follows from the plan.
inline SqueezeArgs squeeze_args(const SqueezePlan& plan) {
  SqueezeArgs args;
  args.plan = plan;
  while (1 << args.block_bits < plan.blocks) ++args.block_bits;
  while (1 << args.slice_bits < plan.slices) ++args.slice_bits;
  args.slice_quads = Divisor(plan.slice_vectors * (kSqueezeVector / 4));
  return args;
}

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_squeeze_excite(int element_bytes);
/// After prepare_squeeze_excite: launches only.
cudaError_t launch_squeeze_excite(const SqueezeArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
