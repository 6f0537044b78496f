// What the candidate "projected_sum" asks of its kernels.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "layers/cuda/chain/projected_sum_plan.h"
#include "layers/cuda/conv/conv_tile.h"
#include "layers/cuda/conv/pair_bounds.h"

namespace pipit::cuda {

/// What a convolution reads: its pixels, one for every output position.
struct SumSource {
  CUtensorMap map{};  ///< matrix_map or patch_map, in boxes of a tile and a chunk
  bool plain = true;  ///< matrix_map: positions are the output's
  ConvShape shape;
  Divisor positions, out_width;  ///< of pixel_origin()
};

struct ProjectedSumArgs {
  SumSource sources[2];  ///< of what is added, of the other
  ProjectedSumPlan plan;
  const std::byte* weights = nullptr;  ///< pack_projected_sum()
  /// Of every slice: in INT8 of the units of what is added, then of the other's; in fp16 of the units of both.
  const std::byte* constants = nullptr;
  std::byte* y = nullptr;
  PairBounds added, bounds;
  float added_scale = 0;    ///< what the integers of what is added are multiplied by
  bool small_sums = false;  ///< INT8: of both (kSmallSum)
  int least_tiles = 0;      ///< of every worker; the first more_tiles have one more
  int more_tiles = 0;
};

/// Lets the kernel use its shared memory on the current GPU.
cudaError_t prepare_projected_sum(const ProjectedSumArgs& args);
/// After prepare_projected_sum: launches only.
cudaError_t launch_projected_sum(const ProjectedSumArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
