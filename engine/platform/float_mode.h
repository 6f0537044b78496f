// How the calling thread rounds, and whether it treats denormal numbers as zero.
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace pipit {

/// The floating-point mode of a thread. On x86 that is MXCSR; elsewhere there is nothing to set.
class FloatMode {
 public:
  static FloatMode current() {
    FloatMode mode;
#if defined(__SSE__)
    mode.bits_ = _mm_getcsr();
#endif
    return mode;
  }
  /// The same with denormal results and operands taken for zero: arithmetic on them can be over a hundred times
  /// slower, and nothing in a network depends on values below 1.2e-38.
  FloatMode without_denormals() const {
    FloatMode mode = *this;
    mode.bits_ |= 0x8040U;  // FTZ and DAZ
    return mode;
  }
  void apply() const {
#if defined(__SSE__)
    if (_mm_getcsr() != bits_) _mm_setcsr(bits_);
#endif
  }

 private:
  std::uint32_t bits_ = 0x1F80;  // the state in which threads start
};

/// Denormals are zero for the calling thread, and for the loops it runs in a ThreadPool, until the end of the scope.
class WithoutDenormals {
 public:
  WithoutDenormals() : before_(FloatMode::current()) { before_.without_denormals().apply(); }
  ~WithoutDenormals() { before_.apply(); }
  WithoutDenormals(const WithoutDenormals&) = delete;
  WithoutDenormals& operator=(const WithoutDenormals&) = delete;

 private:
  FloatMode before_;
};

}  // namespace pipit
