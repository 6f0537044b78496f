// What becomes of a kernel's sums, as the kernel gets it. No CUDA. The functions that fp16 convolutions compute
// of their results; conv/gemm_problem.h decides about them.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/graph/half.h"
#include "layers/cuda/device/fast_division.h"
#include "layers/cuda/device/quantized_types.h"
#include "layers/ops/quantization.h"

namespace pipit::internal::cuda {

/// What x is multiplied by, or what takes its place.
enum class HalfGate : std::uint8_t {
  none,      ///< 1: there is no function
  logistic,  ///< 1 / (1 + 2^(slope x))
  linear,    ///< slope x + offset, clamped to [0, 1]
  sign,      ///< slope where x < 0, else 1
};

/// f(x) = x * gate(x) where times_x, else gate(x).
struct HalfFunction {
  HalfGate gate = HalfGate::none;
  bool times_x = true;
  float slope = 0, offset = 0;  ///< finite
};

// What the short arithmetic of stores.cuh counts on, and the bounds of what is rounded to 16 bits and clamped two at
// a time.

/// The bits of 1.5 * 2^23 (kMagic in stores.cuh), with which small sums begin.
inline constexpr int kMagicBits = 0x4B400000;
/// Sums of this magnitude and above need a conversion instruction.
inline constexpr std::int64_t kSmallSum = std::int64_t{1} << 22;
/// Results in steps that stay below this in magnitude have room in 16 bits when they are rounded.
inline constexpr double kMaxSteps = (1 << 15) - 1;

/// Both halves of a word hold the same bound: a half, or a whole number of steps.
struct PairBounds {
  std::uint32_t low = 0, high = 0;

  static std::uint32_t pair_of(std::uint16_t bits) { return bits * 0x10001U; }
  /// Rounding keeps the order, so that results may be rounded first and clamped to rounded bounds.
  static PairBounds of(const StepBounds& bounds) {
    const auto whole = [](float v) {
      return pair_of(static_cast<std::uint16_t>(static_cast<std::int16_t>(std::nearbyint(v))));
    };
    return {whole(bounds.low), whole(bounds.high)};
  }
};

// How a float image becomes i8 while a convolution reads it: the quotients of layers/ops/quantization.h without
// divisions. Plain C++ apart from the function qualifiers, so that it is tested without a GPU.

struct ImageScale {
  float scale = 1;
  float reciprocal = 1;   ///< 1 / scale, rounded to nearest
  float bound = 127.25F;  ///< of x: larger values are clamped to 127

  ImageScale() = default;
  explicit ImageScale(float s) : scale(s), reciprocal(1 / s), bound(127.25F * s) {}

  /// Whether nothing that matters overflows, or is too small for a normal number, in the computation of a quotient.
  static bool takes(float s) { return s >= 0x1p-60F && s <= 0x1p60F; }

  /// x / scale rounded to nearest as long as it is at least 2^-20; what is smaller stays smaller. |x| <= bound.
  /// The first step makes a quotient that is off by less than its last bit, the second makes of such a one the nearest
  /// float (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990).
  PIPIT_HOST_DEVICE float quotient(float x) const {
#ifdef __CUDA_ARCH__
    float q = __fmul_rn(x, reciprocal);
    q = __fmaf_rn(__fmaf_rn(-scale, q, x), reciprocal, q);
    return __fmaf_rn(__fmaf_rn(-scale, q, x), reciprocal, q);
#else
    float q = x * reciprocal;
    q = std::fma(std::fma(-scale, q, x), reciprocal, q);
    return std::fma(std::fma(-scale, q, x), reciprocal, q);
#endif
  }
};

// What a global average is stored as, by itself or as the Quantize after it makes it. Plain C++.

struct AverageResult {
  StoredType type = StoredType::f32;     ///< integers: what the Quantize makes of it
  StoredType read_as = StoredType::f32;  ///< what that Quantize reads
  int zero_point = 0;                    ///< of integers, like all that follows
  float scale = 1;
  float low = 0, high = 0;

  AverageResult() = default;
  /// average: the type of the average itself; quantized: what the Quantize makes, or null where there is none.
  AverageResult(DType average, const Quantization* quantized) : type(stored_type(average)) {
    if (quantized == nullptr) return;
    const StepBounds bounds = step_bounds(*quantized, -INFINITY, INFINITY);
    type = stored_type(quantized->dtype), read_as = stored_type(average);
    zero_point = quantized->zero_point, scale = quantized->scale;
    low = bounds.low, high = bounds.high;
  }
};

}  // namespace pipit::internal::cuda
