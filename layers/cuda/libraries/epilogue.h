// What a library's epilogue cannot do: y = clamp(y + addends), in place.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/graph/dtype.h"
#include "layers/ops/clamp.h"

namespace pipit::internal::cuda {

/// A matrix added element by element: data[row * row_step + column * column_step], times scale. Steps of 0 broadcast.
struct Addend {
  const void* data = nullptr;  ///< of the output's type; null: nothing is added
  std::int64_t row_step = 0;
  std::int64_t column_step = 0;
  float scale = 1;
};

/// y [rows, columns], row-major and dense, f32 or f16: y = clamp(y + first + second), fp32 inside. NaN stays NaN.
void apply_epilogue(void* y, DType type, std::int64_t rows, std::int64_t columns, const Addend& first,
                    const Addend& second, const Clamp& clamp, cudaStream_t stream);

}  // namespace pipit::internal::cuda
