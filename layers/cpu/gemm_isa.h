// The instruction sets that this build contains.
#pragma once

#include "layers/cpu/gemm.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define PIPIT_GEMM_X86 1
#else
#define PIPIT_GEMM_X86 0
#endif

namespace pipit {

extern const GemmIsa gemm_baseline;
extern const GemmIsa gemm_avx2;
extern const GemmIsa gemm_avx512;

}  // namespace pipit
