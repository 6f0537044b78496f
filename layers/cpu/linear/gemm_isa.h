// What the gemm_<isa>.cpp files share. Included before a file raises its target instruction set, with every standard
// header that it needs: inline functions of the standard library compiled for that instruction set could be merged by
// the linker with the copies of all other files.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "engine/platform/isa_build.h"
#include "layers/cpu/linear/gemm.h"
#include "layers/cpu/vector/transpose.h"

#if PIPIT_ISA_X86
#include <immintrin.h>
#endif

#define PIPIT_GEMM_INLINE __attribute__((always_inline)) static inline

namespace pipit::internal {

extern const GemmIsa gemm_baseline;
extern const GemmIsa gemm_avx2;
extern const GemmIsa gemm_avx512;

}  // namespace pipit::internal
