// What the candidate "resident_block" asks of its kernels.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "layers/cuda/chain/resident_block_plan.h"
#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/conv/pair_bounds.h"

namespace pipit::cuda {

struct ResidentBlockArgs {
  CUtensorMap x{};  ///< matrix_map of x, in boxes of a tile and a chunk
  int in_chunks = 1;
  BlockPlan plan;
  const std::byte* weights = nullptr;    ///< units of head, window (by taps), tail, projection
  const std::byte* constants = nullptr;  ///< in the same order, window having one unit
  const std::byte* residual = nullptr;   ///< x again
  std::byte* y = nullptr;
  PairBounds head, window, tail, projection;
  float residual_scale = 0;
  int least_tiles = 0;  ///< of every worker; the first more_tiles have one more
  int more_tiles = 0;
  int workers = 1;
  PositionGrid grid;
  Divisor ring;  ///< tiles of the ring
};

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_resident_block(const BlockPlan& plan);
/// After prepare_resident_block: launches only.
cudaError_t launch_resident_block(const ResidentBlockArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
