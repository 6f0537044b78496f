// What the candidate "streamed_block" asks of its kernels.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "layers/cuda/chain/streamed_block_plan.h"
#include "layers/cuda/conv/pair_bounds.h"

namespace pipit::cuda {

struct StreamedBlockArgs {
  CUtensorMap x{};  ///< matrix_map of x, in boxes of a tile and kStreamedInner channels
  StreamedPlan plan;
  PositionGrid grid;
  const std::byte* weights = nullptr;    ///< pack_streamed_weights()
  const std::byte* constants = nullptr;  ///< of the units of head, window, tail
  std::byte* y = nullptr;
  PairBounds head, window, tail;
  float residual_scale = 0;
  bool small_sums = false;  ///< of all three (kSmallSum)
};

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_streamed_block(const StreamedBlockArgs& args);
/// After prepare_streamed_block: launches only.
cudaError_t launch_streamed_block(const StreamedBlockArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
