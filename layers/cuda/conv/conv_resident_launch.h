// What the candidates "resident_gemm" (conv_resident.cpp, qconv_resident.cpp) ask of their kernels (conv_resident.cu,
// qconv_resident.cu).
#pragma once

#include <cuda.h>

#include "layers/cuda/conv/conv_gemm_launch.h"
#include "layers/cuda/conv/conv_resident_plan.h"

namespace pipit::cuda {

struct ResidentArgs {
  ConvGemmArgs conv;  ///< without x and weights; of its depth nothing counts
  CUtensorMap x{};    ///< row_map of x
  CUtensorMap weights{};
  ResidentPlan plan;
  const int* places = nullptr;  ///< resident_places
  const int* tile_blocks =
      nullptr;  ///< resident_blocks of every column tile, or null where all have `blocks`
  int blocks = 0;
  bool paired = false;  ///< places_are_paired
  int workers = 1;      ///< blocks that share the tiles of one column tile
  int least_tiles = 0;  ///< of kResidentRows positions, for every worker; the first more_tiles have one more
  int more_tiles = 0;
  Divisor ring, barriers;  ///< plan.ring_rows, and twice that
};

/// Lets the kernel use its shared memory on the current GPU; of args only the plan and whether there is a function
/// or, in INT8, a table count.
cudaError_t prepare_resident_gemm(const ResidentArgs& args);
/// After prepare_resident_gemm: launches only.
cudaError_t launch_resident_gemm(const ResidentArgs& args, cudaStream_t stream);
/// The same in INT8.
cudaError_t prepare_qresident_gemm(const ResidentArgs& args);
cudaError_t launch_qresident_gemm(const ResidentArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
