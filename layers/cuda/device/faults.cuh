// Kernels report here an operand value for which the layer has no result (Fault in engine/plan/kernel.h).
#pragma once

#include "engine/plan/kernel.h"

namespace pipit::internal::cuda {

/// Records one wrong value. If several threads report, any of their values may be kept.
__device__ inline void report(Fault* fault, std::int64_t value) {
  if (fault == nullptr) return;
  *const_cast<volatile std::int64_t*>(&fault->value) = value;
  *const_cast<volatile std::int64_t*>(&fault->found) = 1;
}

/// Indices of a layer: i32 or i64; negative ones count from the end.
struct Indices {
  const void* data = nullptr;
  bool wide = false;  ///< i64

  Indices() = default;
  explicit Indices(const ConstTensorView& view) : data(view.data), wide(view.desc.dtype == DType::i64) {}
  __device__ std::int64_t operator[](std::int64_t i) const {
    return wide ? static_cast<const std::int64_t*>(data)[i] : static_cast<const std::int32_t*>(data)[i];
  }
  /// Index `i` as a position in [0, extent). Reports an index out of range and returns -1.
  __device__ int position(std::int64_t i, int extent, Fault* fault) const {
    const std::int64_t index = (*this)[i];
    if (index >= -static_cast<std::int64_t>(extent) && index < extent)
      return static_cast<int>(index < 0 ? index + extent : index);
    report(fault, index);
    return -1;
  }
};

}  // namespace pipit::internal::cuda
