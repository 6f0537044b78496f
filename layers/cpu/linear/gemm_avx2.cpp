#include "layers/cpu/linear/gemm_eigen_headers.h"

#if PIPIT_ISA_X86
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

// Neither pragma defines these in C++ (GCC does from version 13 on), and Eigen chooses its code by them.
#ifndef __AVX__
#define __AVX__ 1
#endif
#ifndef __AVX2__
#define __AVX2__ 1
#endif
#ifndef __FMA__
#define __FMA__ 1
#endif

#define Eigen pipit_eigen_avx2
#define PIPIT_GEMM_ISA avx2
#include "layers/cpu/linear/gemm_eigen.inc"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
