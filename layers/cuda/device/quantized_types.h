// The operands of INT8 kernels whose types are known at run time. Plain C++.
#pragma once

#include <cstdint>

#include "layers/cuda/device/fast_division.h"
#include "layers/ops/quantization.h"

namespace pipit::internal::cuda {

/// 8-bit integers. Kernels read u8 with its highest bit flipped as i8 and a zero point that is 128 less: the same
/// values.
struct IntegerOperand {
  std::uint32_t flip = 0;  ///< 0x80808080 for u8
  int zero_point = 0;      ///< of the flipped bytes

  IntegerOperand() = default;
  explicit IntegerOperand(const Quantization& q)
      : flip(q.dtype == DType::u8 ? 0x80808080U : 0U),
        zero_point(q.zero_point - (q.dtype == DType::u8 ? 128 : 0)) {}
};

/// What results are stored as.
enum class StoredType : std::uint8_t { i8, u8, f16, bf16, f32 };

/// Whether that is a floating-point number.
PIPIT_HOST_DEVICE constexpr bool is_real(StoredType type) {
  return type >= StoredType::f16;
}

constexpr StoredType stored_type(DType type) {
  switch (type) {
    case DType::i8:
      return StoredType::i8;
    case DType::u8:
      return StoredType::u8;
    case DType::f16:
      return StoredType::f16;
    case DType::bf16:
      return StoredType::bf16;
    default:
      return StoredType::f32;
  }
}

}  // namespace pipit::internal::cuda
