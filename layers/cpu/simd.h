// What lets plain loops become vector code for every x86-64 in one binary.
#pragma once

#include <cstdint>  // defines __GLIBC__ where it is the C library

// On a function: compiled for the baseline, AVX2 and AVX-512, the best one chosen when the program is loaded.
// Its loops and everything inlined into them are vectorised; nothing in it may be contracted into FMA
// (-ffp-contract=off), so that all versions compute the same bits. Needs GNU indirect functions, which run
// before sanitizers are set up. Only for functions of an unnamed namespace: GCC would export others whatever
// visibility they are given.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PIPIT_SIMD_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define PIPIT_SIMD_CLONES
#endif

// On helpers of such functions and the lambdas they take: a call would leave the vector code.
#define PIPIT_INLINE __attribute__((always_inline))

// Before a loop whose iterations do not read what others write: operands may be the same memory (in place).
// Clang's pragma demands vector code and warns where a loop calls the C library, so it is left to find out itself.
#if defined(__clang__)
#define PIPIT_INDEPENDENT
#else
#define PIPIT_INDEPENDENT _Pragma("GCC ivdep")
#endif
