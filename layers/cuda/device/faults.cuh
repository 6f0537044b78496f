// How kernels report operands for which their layer has no result (Fault in engine/plan/kernel.h).
#pragma once

#include "engine/plan/kernel.h"

namespace pipit::internal::cuda {

/// One of the values that are wrong; which of several is left to chance.
__device__ inline void report(Fault* fault, std::int64_t value) {
  if (fault == nullptr) return;
  *const_cast<volatile std::int64_t*>(&fault->value) = value;
  *const_cast<volatile std::int64_t*>(&fault->found) = 1;
}

/// Positions as layers get them: i32 or i64, negative from the end.
struct Indices {
  const void* data = nullptr;
  bool wide = false;  ///< i64

  Indices() = default;
  explicit Indices(const ConstTensorView& view) : data(view.data), wide(view.desc.dtype == DType::i64) {}
  __device__ std::int64_t operator[](std::int64_t i) const {
    return wide ? static_cast<const std::int64_t*>(data)[i] : static_cast<const std::int32_t*>(data)[i];
  }
  /// Index `i` as a position in [0, extent), or -1 with a report.
  __device__ int position(std::int64_t i, int extent, Fault* fault) const {
    const std::int64_t index = (*this)[i];
    if (index >= -static_cast<std::int64_t>(extent) && index < extent)
      return static_cast<int>(index < 0 ? index + extent : index);
    report(fault, index);
    return -1;
  }
};

}  // namespace pipit::internal::cuda
