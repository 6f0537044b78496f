// What the candidates "spread_gemm" (conv_spread.cpp, qconv_spread.cpp) ask of their kernels (conv_spread.cu,
// qconv_spread.cu).
#pragma once

#include "layers/cuda/conv/conv_gemm_launch.h"
#include "layers/cuda/conv/conv_spread_plan.h"

namespace pipit::cuda {

struct SpreadArgs {
  ConvGemmArgs conv;  ///< weights: pack_spread; of its depth nothing counts
  SpreadPlan plan;
  int slice_bits = 0;                  ///< plan.slices is a power of two
  bool x_is_settled = false;           ///< x may be read before the kernel in front has finished (RunContext)
  Divisor column_tiles, steps_of_tap;  ///< of conv.column_tiles, and of the steps that a slice's channels are
};

/// All but pointers and what the epilogue reads.
inline SpreadArgs spread_args(const ConvShape& shape, const SpreadPlan& plan) {
  SpreadArgs args;
  args.conv = conv_gemm_args(shape, KeptDepth(shape), {kSpreadRows, kSpreadColumns, 1});
  args.plan = plan;
  while (1 << args.slice_bits < plan.slices) ++args.slice_bits;
  args.column_tiles = Divisor(args.conv.column_tiles);
  args.steps_of_tap = Divisor(plan.slice_bytes / kSpreadStepBytes);
  return args;
}

/// Lets the kernel use its shared memory on the current GPU; of args only whether there is a function or, in INT8, a
/// table and what y is stored as count.
cudaError_t prepare_spread_gemm(const SpreadArgs& args);
/// After prepare_spread_gemm: launches only.
cudaError_t launch_spread_gemm(const SpreadArgs& args, cudaStream_t stream);
/// The same in INT8.
cudaError_t prepare_qspread_gemm(const SpreadArgs& args);
cudaError_t launch_qspread_gemm(const SpreadArgs& args, cudaStream_t stream);

}  // namespace pipit::cuda
