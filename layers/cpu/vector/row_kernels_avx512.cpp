#include "layers/cpu/vector/row_kernels_isa.h"

#if PIPIT_ROWS_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,f16c"))), \
                             apply_to = function)
#else
// GCC's AVX-512 intrinsics start from values that they declare undefined (fixed in GCC 13).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,f16c")
#endif

namespace pipit::internal {

namespace {

#include "layers/cpu/vector/lanes_avx512.h"

#include "layers/cpu/vector/row_kernels_body.h"

}  // namespace

const RowKernels row_kernels_avx512 = kernels_of_lanes();

}  // namespace pipit::internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
