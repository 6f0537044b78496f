// A matrix product without libraries: tiles in shared memory, fp32 arithmetic.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/graph/dtype.h"
#include "layers/cuda/libraries/lt_gemm.h"
#include "layers/ops/clamp.h"

namespace pipit::internal::cuda {

/// D[b] = clamp(alpha * A[b] * B[b] + addend): D [m, n] row-major and dense, the matrices of a batch m * n apart. A and
/// B lie in any order given by their steps, in elements. Extents may be 0 (a sum over k = 0 is 0).
struct SimpleGemm {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  std::int64_t a_row = 0;
  std::int64_t a_column = 0;
  std::int64_t a_step = 0;
  std::int64_t b_row = 0;
  std::int64_t b_column = 0;
  std::int64_t b_step = 0;
  float alpha = 1;
  Clamp clamp;
};

/// A and B are of `type`, the addend and D of `output`, on the GPU: both f32, both f16 or bf16, or f32 of f16 or bf16.
void simple_gemm(const SimpleGemm& gemm, DType type, DType output, const void* a, const void* b,
                 const Addend& addend, void* d, cudaStream_t stream);

// A product with a few rows, as a classifier's last layer at small batches: bound by reading the weights once.

inline constexpr int kSkinnyRows = 8;  ///< most rows of A

/// y = clamp(alpha * A * B' + bias): A [m, k] and B [n, k] are f16 or bf16 with k a multiple of 8, both on 16 bytes; y
/// [m, n] is of their type where y_half, else f32. fp32 arithmetic; the order of additions depends on k only.
struct SkinnyGemm {
  int m = 1, n = 1, k = 8;
  bool bf16 = false;
  const void* a = nullptr;
  const void* b = nullptr;
  const float* bias = nullptr;  ///< [n]
  void* y = nullptr;
  bool y_half = true;
  float alpha = 1;
  float low = 0, high = 0;
  /// Start while the previous kernel still runs, and read the weights meanwhile.
  bool overlap = false;
};

/// Whether the kernels that the current GPU runs were compiled for overlapping launches (9.0 and later).
cudaError_t skinny_gemm_overlaps(bool& result);
cudaError_t launch_skinny_gemm(const SkinnyGemm& gemm, cudaStream_t stream);

}  // namespace pipit::internal::cuda
