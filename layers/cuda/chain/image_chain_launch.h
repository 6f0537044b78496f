// What the candidate "image_chain" asks of its kernels.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "layers/cuda/chain/image_chain_plan.h"
#include "layers/cuda/conv/pair_bounds.h"

namespace pipit::cuda {

/// Of a residual block.
struct ImageChainBounds {
  PairBounds head, window, tail;
  float residual_scale = 0;
};

struct ImageChainArgs {
  CUtensorMap x{};  ///< matrix_map of x, in boxes of a rank's positions and kImageStageDepth channels
  ImageChainPlan plan;
  Divisor image, row;  ///< positions of an image and of a row
  int clusters = 1;
  const std::byte* weights = nullptr;    ///< append_image_weights() of every block
  const std::byte* constants = nullptr;  ///< of the units of head, window and tail, of every block
  std::byte* y = nullptr;
  ImageChainBounds bounds[kImageMostBlocks];
  bool small_sums =
      false;  ///< of all convolutions (kSmallSum); constants then have kMagicBits in their biases
};

/// Clusters of the plan that the current GPU holds at a time; 0: it lacks what the kernels need. Lets them use their
/// shared memory.
cudaError_t image_chain_clusters(const ImageChainPlan& plan, int& clusters);
/// After image_chain_clusters: launches only.
cudaError_t launch_image_chain(const ImageChainArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
