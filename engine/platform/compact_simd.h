// The smaller twin of simd.h, for loops that few networks have.
#pragma once

#include "engine/platform/simd.h"

namespace pipit::internal {

namespace detail {

template <auto kLoop>
struct CompactSimd;

template <typename Result, typename... Parameters, Result (*kLoop)(Parameters...)>
struct CompactSimd<kLoop> {
  static Result run(Parameters... parameters) {
#if PIPIT_ISA_X86 && !defined(PIPIT_MINIMAL)
    if (chosen_isa() >= Isa::avx2) return Simd<kLoop, kLoop>::avx2(parameters...);
#endif
    return kLoop(parameters...);
  }
};

}  // namespace detail

/// simd<kLoop> without a version for AVX-512, a third of its code: such CPUs run the one for AVX2.
template <auto kLoop>
constexpr auto compact_simd = &detail::CompactSimd<kLoop>::run;

}  // namespace pipit::internal
