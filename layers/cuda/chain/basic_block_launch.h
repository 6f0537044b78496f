// What the candidate "basic_block" asks of its kernels.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "layers/cuda/chain/basic_block_plan.h"
#include "layers/cuda/conv/pair_bounds.h"

namespace pipit::cuda {

struct BasicBlockArgs {
  CUtensorMap x{};  ///< matrix_map of x, in boxes of a tile
  BasicBlockPlan plan;
  const std::byte* weights = nullptr;    ///< units of the head and the tail, by taps
  const std::byte* constants = nullptr;  ///< of both
  std::byte* y = nullptr;
  PairBounds head, tail;
  float residual_scale = 0;
  int least_tiles = 0;  ///< of every worker; the first more_tiles have one more
  int more_tiles = 0;
  int workers = 1;
  PositionGrid grid;
  Divisor x_ring, ring;  ///< tiles of the rings
};

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_basic_block(const BasicBlockPlan& plan);
/// After prepare_basic_block: launches only.
cudaError_t launch_basic_block(const BasicBlockArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
