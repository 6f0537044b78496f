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

#include "layers/cpu/vector/activation_kernel.h"
#include "layers/cpu/vector/depthwise_kernel.h"
#include "layers/cpu/vector/dot_kernel.h"
#include "layers/cpu/vector/half_kernel.h"
#include "layers/cpu/vector/pool_kernel.h"
#include "layers/cpu/vector/window_kernel.h"

}  // namespace

const RowKernels row_kernels_avx512 = {Lanes::kCount,
                                       depthwise_kernels<float>(),
                                       depthwise_kernels<Half>(),
                                       depthwise_kernels<std::uint8_t>(),
                                       window_kernels(),
                                       window_storage<float>(),
                                       window_storage<Half>(),
                                       window_storage<std::uint8_t>(),
                                       dot_kernels(),
                                       activation_spans<float>(),
                                       activation_spans<Half>(),
                                       affine_span,
                                       convert_span<Half, float>,
                                       convert_span<float, Half>,
                                       pool_kernels<float>(),
                                       pool_kernels<Half>()};

}  // namespace pipit::internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
