// What lets plain loops become vector code for every x86-64 in one binary.
#pragma once

#include "engine/platform/isa.h"
#include "engine/platform/isa_build.h"

// On loops that simd<> compiles, on their helpers and on the lambdas they take: a call would leave the vector code.
#define PIPIT_INLINE __attribute__((always_inline))

// Before a loop whose iterations do not read what others write: operands may be the same memory (in place).
// Clang's pragma demands vector code and warns where a loop calls the C library, so it is left to find out itself.
#if defined(__clang__)
#define PIPIT_INDEPENDENT
#else
#define PIPIT_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace pipit::internal {

namespace detail {

template <auto kLoop, auto kWide>
struct Simd;

template <typename Result, typename... Parameters, Result (*kLoop)(Parameters...),
          Result (*kWide)(Parameters...)>
struct Simd<kLoop, kWide> {
#if PIPIT_ISA_X86 && !defined(PIPIT_MINIMAL)
  __attribute__((target("avx2"))) static Result avx2(Parameters... parameters) {
    return kLoop(parameters...);
  }
  __attribute__((target("avx512f"))) static Result avx512(Parameters... parameters) {
    return kWide(parameters...);
  }
#endif
  static Result run(Parameters... parameters) {
#if defined(PIPIT_MINIMAL) && defined(__AVX512F__)
    return kWide(parameters...);  // compiled for this instruction set alone
#elif PIPIT_ISA_X86 && !defined(PIPIT_MINIMAL)
    if (chosen_isa() >= Isa::avx512) return avx512(parameters...);
    if (chosen_isa() >= Isa::avx2) return avx2(parameters...);
#endif
    return kLoop(parameters...);
  }
};

}  // namespace detail

/// The function kLoop, which is PIPIT_INLINE, compiled for the baseline, AVX2 and AVX-512: runs the one that
/// chosen_isa() asks for. Its loops and everything inlined into them are vectorized; nothing in it may be contracted
/// into FMA (-ffp-contract=off), so that all versions compute the same bits. kWide is what AVX-512 runs, where a loop
/// over vectors of 8 floats has a twin over vectors of 16. A vector that is wider than the registers is kept in memory
/// and copied there in pieces, which takes several times as long.
template <auto kLoop, auto kWide = kLoop>
constexpr auto simd = &detail::Simd<kLoop, kWide>::run;

}  // namespace pipit::internal
