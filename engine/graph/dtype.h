// Element types; here those that have no C++ type of their own.
#pragma once

#include "engine/graph/half.h"
#include "pipit/types.h"

namespace pipit {

template <>
struct DTypeOf<internal::Half> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<internal::BFloat16> {
  static constexpr DType value = DType::bf16;
};

namespace internal {

/// Whether elements are floating-point numbers of 16 bits, which are stored, not computed with.
constexpr bool is_stored_float(DType type) {
  return type == DType::f16 || type == DType::bf16;
}

/// Whether values of that precision are stored in 16 bits, and as what.
constexpr bool stores_16_bits(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::bf16;
}
constexpr DType stored_type(Precision precision) {
  return precision == Precision::fp16 ? DType::f16 : precision == Precision::bf16 ? DType::bf16 : DType::f32;
}

}  // namespace internal

}  // namespace pipit
