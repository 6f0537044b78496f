// The instruction sets that this build contains.
#pragma once

#include "layers/cpu/gemm.h"
#include "layers/cpu/isa_build.h"

namespace pipit {

extern const GemmIsa gemm_baseline;
extern const GemmIsa gemm_avx2;
extern const GemmIsa gemm_avx512;

}  // namespace pipit
