#include "layers/cpu/vector/row_kernels_isa.h"

#if PIPIT_ROWS_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

namespace pipit::internal {

namespace {

#include "layers/cpu/vector/lanes_avx2.h"

#include "layers/cpu/vector/row_kernels_body.h"

}  // namespace

const RowKernels row_kernels_avx2 = kernels_of_lanes();

}  // namespace pipit::internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
