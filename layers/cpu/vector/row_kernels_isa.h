// What row_kernels_<isa>.cpp are made of. Everything is in unnamed namespaces, so that no function of one instruction
// set can be linked into another's code.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>

#include "engine/platform/simd.h"
#include "layers/cpu/vector/row_kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define PIPIT_ROWS_X86 1
#include <immintrin.h>
#else
#define PIPIT_ROWS_X86 0
#endif

#define PIPIT_LANES __attribute__((always_inline)) inline

namespace pipit::internal {

extern const RowKernels row_kernels_baseline;
extern const RowKernels row_kernels_avx2;
extern const RowKernels row_kernels_avx512;

}  // namespace pipit::internal
