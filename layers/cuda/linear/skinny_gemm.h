// A product with a few rows, as a classifier's last layer at small batches: bound by reading the weights once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/graph/half.h"

namespace pipit::cuda {

inline constexpr int kSkinnyRows = 8;  ///< most rows of A

/// y = clamp(alpha * A * B' + bias): A [m, k] and B [n, k] are f16 with k a multiple of 8, both on 16 bytes; y [m, n]
/// is f16 where y_half, else f32. fp32 arithmetic; the order of additions depends on k only.
struct SkinnyGemm {
  int m = 1, n = 1, k = 8;
  const Half* a = nullptr;
  const Half* b = nullptr;
  const float* bias = nullptr;  ///< [n]
  void* y = nullptr;
  bool y_half = true;
  float alpha = 1;
  float low = 0, high = 0;
  /// Start while the kernel in front still runs, and read the weights meanwhile.
  bool overlap = false;
};

/// Whether the kernel that the current GPU runs was compiled for overlapping launches (9.0 and later).
cudaError_t skinny_gemm_overlaps(bool& result);
cudaError_t launch_skinny_gemm(const SkinnyGemm& gemm, cudaStream_t stream);

}  // namespace pipit::cuda
