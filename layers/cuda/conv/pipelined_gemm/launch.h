// What the candidate "pipelined_gemm" asks of its kernels.
#pragma once

#include <cuda.h>

#include "layers/cuda/conv/gemm_args.h"

namespace pipit::internal::cuda {

inline constexpr int kPipelinedRows = 128;   ///< of a tile
inline constexpr int kPipelinedDepth = 128;  ///< bytes of k in a step; a step stays within one tap

struct PipelinedArgs {
  ConvGemmArgs conv;  ///< without x and weights; steps counts kPipelinedDepth; splits is 1
  CUtensorMap x{};    ///< the matrix of x, or its patches
  CUtensorMap weights{};
  CUtensorMap residual{};   ///< where adds_tiles, the matrix of conv.residual
  bool adds_tiles = false;  ///< there is a residual, and every tile's columns, 128 of them, are y's
  bool plain = true;        ///< 1x1, stride 1, no padding: x is the matrix
  int tap_steps = 1;        ///< steps of one tap
  int workers = 1;          ///< blocks that share the row tiles of one column tile
};

/// Lets the kernel use its shared memory; blocks of it that the current GPU runs at once. columns: 64 or 128; of args
/// only adds_tiles and whether there is a table count.
cudaError_t prepare_pipelined_gemm(int columns, const PipelinedArgs& args, int& resident_blocks);
/// After prepare_pipelined_gemm: launches only.
cudaError_t launch_pipelined_gemm(int columns, const PipelinedArgs& args, cudaStream_t stream);

}  // namespace pipit::internal::cuda
