// The instruction sets that this build contains.
#pragma once

#include "engine/platform/isa_build.h"
#include "layers/cpu/linear/gemm.h"

namespace pipit {

extern const GemmIsa gemm_baseline;
extern const GemmIsa gemm_avx2;
extern const GemmIsa gemm_avx512;

}  // namespace pipit
