// What the candidate "rows" of Concat (concat_rows.cpp) asks of its kernels (rows.cu).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pipit::internal::cuda {

inline constexpr int kConcatMaxParts = 64;  ///< of a launch

/// What becomes of what was copied, channel by channel.
enum class ConcatThen : std::uint8_t {
  nothing,
  halves,   ///< low <= x * factors[c] + shifts[c] <= high, in f32
  bfloats,  ///< the same
  floats,   ///< the same
  bytes,    ///< x * weights[c] + biases[c], requantized by multipliers[c] (layers/ops/quantization.h)
};

/// Rows of x that become columns [first, end) of y's, in bytes.
struct ConcatPart {
  const void* x = nullptr;
  int first = 0, end = 0;
};

/// The arrays begin with the channel of y's column 0.
struct ConcatRowsArgs {
  void* y = nullptr;
  int count = 0, columns = 0;  ///< parts, and the bytes of a row that they fill
  std::int64_t pitch = 0;      ///< bytes from one row of y to the next
  int rows = 0;
  int processors = 1;  ///< of the GPU
  const float* factors = nullptr;
  const float* shifts = nullptr;
  const std::int32_t* weights = nullptr;
  const std::int32_t* biases = nullptr;
  const float* multipliers = nullptr;
  float low = 0, high = 0;
  ConcatPart part[kConcatMaxParts];
};

/// Whether launches may overlap on the current GPU.
cudaError_t concat_rows_overlaps(bool& result);
cudaError_t launch_concat_rows(ConcatThen then, const ConcatRowsArgs& args, bool overlap,
                               cudaStream_t stream);

}  // namespace pipit::internal::cuda
