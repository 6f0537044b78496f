// How the calling thread rounds, whether it traps, and whether it treats denormal numbers as zero.
#pragma once

#include <cfenv>
#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace pipit::internal {

/// The floating-point mode of a thread: the direction of rounding and, on x86, all of MXCSR, which also holds the
/// exceptions that were raised so far. (The C library reads numbers from text in the direction of the x87 unit.)
class FloatMode {
 public:
  /// As threads start: rounding to nearest, no traps, denormals as IEEE 754 has them.
  FloatMode() = default;

  static FloatMode current() {
    FloatMode mode;
    mode.rounding_ = std::fegetround();
#if defined(__SSE__)
    mode.sse_ = _mm_getcsr();
#endif
    return mode;
  }
  /// The same with denormal results and operands taken for zero: arithmetic on them can be over a hundred times
  /// slower, and nothing in a network depends on values below 1.2e-38.
  FloatMode without_denormals() const {
    FloatMode mode = *this;
    mode.sse_ |= 0x8040U;  // FTZ and DAZ
    return mode;
  }
  void apply() const {
    if (std::fegetround() != rounding_) std::fesetround(rounding_);
#if defined(__SSE__)
    if (_mm_getcsr() != sse_) _mm_setcsr(sse_);
#endif
  }

 private:
  int rounding_ = FE_TONEAREST;
  std::uint32_t sse_ = 0x1F80;
};

/// A mode for the calling thread, and for the loops it runs in a ThreadPool, until the end of the scope. Whatever
/// loads, runs or measures a model has one, so that no answer depends on the mode of the caller.
class ScopedFloatMode {
 public:
  explicit ScopedFloatMode(FloatMode mode = FloatMode()) : before_(FloatMode::current()) { mode.apply(); }
  ~ScopedFloatMode() { before_.apply(); }
  ScopedFloatMode(const ScopedFloatMode&) = delete;
  ScopedFloatMode& operator=(const ScopedFloatMode&) = delete;

 private:
  FloatMode before_;
};

}  // namespace pipit::internal
