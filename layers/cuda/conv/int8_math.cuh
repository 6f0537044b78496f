// The arithmetic of layers/ops/quantization.h on a GPU, without conversion instructions where they can be avoided:
// those have a quarter of the rate of additions.
#pragma once

#include <cstdint>

#include "layers/cuda/conv/image_scale.h"

namespace pipit::cuda {

/// 1.5 * 2^23: a float this large has a step of 1, and its low bits are a whole number in two's complement.
inline constexpr float kMagic = 12582912.0F;
inline constexpr int kMagicBits = 0x4B400000;

/// The number s of a sum that was started with kMagicBits. |s| < 2^22 (kSmallSum): the exponent stays that of kMagic.
__device__ __forceinline__ float small_to_float(int sum) {
  return __fadd_rn(__int_as_float(sum), -kMagic);
}

/// A signed byte of a word whose bytes had their highest bits flipped.
__device__ __forceinline__ float biased_to_float(std::uint32_t biased, int byte) {
  // 2^23 + (byte + 128), less that offset.
  constexpr float kOffset = 8388608.0F + 128.0F;
  return __fadd_rn(__uint_as_float(__byte_perm(biased, 0x4B000000U, 0x7440 + byte)), -kOffset);
}
/// The two signed bytes of a word of 16 bits.
__device__ __forceinline__ float2 bytes_to_float(std::uint16_t pair) {
  const std::uint32_t biased = pair ^ 0x8080U;
  return make_float2(biased_to_float(biased, 0), biased_to_float(biased, 1));
}

/// requantize() with zero point 0: the result is the low byte. low and high lie within +-255; NaN becomes low.
__device__ __forceinline__ std::uint32_t requantize_bits(float v, float low, float high) {
  // The addition rounds to whole numbers, ties to even, as kMagic is even.
  return __float_as_uint(__fadd_rn(fminf(fmaxf(v, low), high), kMagic));
}

/// An element of an f32 image as i8: the result is the low byte. NaN becomes -127.
__device__ __forceinline__ std::uint32_t image_bits(float x, const ImageScale& scale) {
  return __float_as_uint(__fadd_rn(scale.quotient(fminf(fmaxf(x, -scale.bound), scale.bound)), kMagic));
}

/// The low bytes of four words.
__device__ __forceinline__ std::uint32_t low_bytes(const std::uint32_t (&bits)[4]) {
  return __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
}

}  // namespace pipit::cuda
