// What a global average is stored as, by itself or as the Quantize after it makes it. Plain C++.
#pragma once

#include <cmath>

#include "layers/cuda/device/quantized_types.h"

namespace pipit::internal::cuda {

struct AverageResult {
  StoredType type = StoredType::f32;  ///< integers: what the Quantize makes of it
  bool as_half = false;               ///< that Quantize reads halves
  int zero_point = 0;                 ///< of integers, like all that follows
  float scale = 1;
  float low = 0, high = 0;

  AverageResult() = default;
  /// average: the type of the average itself; quantized: what the Quantize makes, or null where there is none.
  AverageResult(DType average, const Quantization* quantized) : type(stored_type(average)) {
    if (quantized == nullptr) return;
    const StepBounds bounds = step_bounds(*quantized, -INFINITY, INFINITY);
    type = stored_type(quantized->dtype), as_half = average == DType::f16;
    zero_point = quantized->zero_point, scale = quantized->scale;
    low = bounds.low, high = bounds.high;
  }
};

}  // namespace pipit::internal::cuda
