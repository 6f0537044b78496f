// linear_algebra.h compiled for AVX2 with FMA.
#pragma once

#include "engine/platform/isa_build.h"
#include "sparsity/linear_algebra.h"

#if PIPIT_ISA_X86
namespace pipit::internal {

const LinearAlgebra& linear_algebra_avx2();

}  // namespace pipit::internal
#endif
