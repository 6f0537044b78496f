// The arithmetic of layers/ops/quantization.h on a GPU, without conversion instructions where they can be avoided:
// those have a quarter of the rate of additions.
#pragma once

#include <cstdint>

#include "layers/cuda/epilogue/functions.h"

namespace pipit::internal::cuda {

/// 1.5 * 2^23: a float this large has a step of 1, and its low bits are a whole number in two's complement.
inline constexpr float kMagic = 12582912.0F;

/// The number s of a sum that was started with kMagicBits. |s| < 2^22 (kSmallSum): the exponent stays that of kMagic.
__device__ __forceinline__ float small_to_float(int sum) {
  return __fadd_rn(__int_as_float(sum), -kMagic);
}

/// The bits of 2^23.
inline constexpr std::uint32_t kByteBase = 0x4B000000U;
/// The same in a grid of one layer, which the assembler does not know: as a constant it takes the place of the one that
/// says which bytes are taken, and that is fetched into a register for every byte. For kernels that have one left.
__device__ __forceinline__ std::uint32_t byte_base() {
  return kByteBase + blockIdx.z;
}
/// A signed byte of a word whose bytes had their highest bits flipped. base: the above.
__device__ __forceinline__ float biased_to_float(std::uint32_t biased, int byte, std::uint32_t base) {
  // 2^23 + (byte + 128), less that offset.
  constexpr float kOffset = 8388608.0F + 128.0F;
  return __fadd_rn(__uint_as_float(__byte_perm(biased, base, 0x7440 + byte)), -kOffset);
}
/// The two signed bytes of a word of 16 bits.
__device__ __forceinline__ float2 bytes_to_float(std::uint16_t pair, std::uint32_t base) {
  const std::uint32_t biased = pair ^ 0x8080U;
  return make_float2(biased_to_float(biased, 0, base), biased_to_float(biased, 1, base));
}

/// requantize() with zero point 0: the result is the low byte. low and high lie within +-255; NaN becomes low.
__device__ __forceinline__ std::uint32_t requantize_bits(float v, float low, float high) {
  // The addition rounds to whole numbers, ties to even, as kMagic is even.
  return __float_as_uint(__fadd_rn(fminf(fmaxf(v, low), high), kMagic));
}

/// requantize() of four with zero point 0, as bytes of a word. No v reaches kMaxSteps in magnitude: two at a time are
/// clamped as whole numbers of 16 bits. Relu: the lower bound is 0.
template <bool Relu>
__device__ __forceinline__ std::uint32_t requantize_four(const float (&v)[4], const PairBounds& bounds) {
  std::uint32_t pair[2];
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    const std::uint32_t both = __byte_perm(__float_as_uint(__fadd_rn(v[p * 2], kMagic)),
                                           __float_as_uint(__fadd_rn(v[p * 2 + 1], kMagic)), 0x5410);
    pair[p] =
        Relu ? __vimin_s16x2_relu(both, bounds.high) : __vmins2(__vmaxs2(both, bounds.low), bounds.high);
  }
  return __byte_perm(pair[0], pair[1], 0x6420);
}

/// An element of an f32 image as i8: the result is the low byte. NaN becomes -127.
__device__ __forceinline__ std::uint32_t image_bits(float x, const ImageScale& scale) {
  return __float_as_uint(__fadd_rn(scale.quotient(fminf(fmaxf(x, -scale.bound), scale.bound)), kMagic));
}

/// The low bytes of four words.
__device__ __forceinline__ std::uint32_t low_bytes(const std::uint32_t (&bits)[4]) {
  return __byte_perm(__byte_perm(bits[0], bits[1], 0x0040), __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
}

}  // namespace pipit::internal::cuda
