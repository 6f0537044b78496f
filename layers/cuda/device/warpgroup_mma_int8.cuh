// Hopper's warpgroup matrix products of signed bytes with int32 sums. Everything else is as in warpgroup_mma.cuh: a row
// of 128 bytes holds 128 bytes of k, and 32 of them are one product's depth.
#pragma once

#include <cstdint>

#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::cuda::ptx {

#ifdef PIPIT_WARPGROUP_MMA

// Four accumulators of an m16n8 fragment.
#define PIPIT_SUMS(d, j) "+r"(d[j][0]), "+r"(d[j][1]), "+r"(d[j][2]), "+r"(d[j][3])

// d += a (64 x 32) * b (32 x N); see multiply_group of halves.
__device__ __forceinline__ void multiply_group(int (&d)[4][4], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, 1;\n"
      : PIPIT_SUMS(d, 0), PIPIT_SUMS(d, 1), PIPIT_SUMS(d, 2), PIPIT_SUMS(d, 3)
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void multiply_group(int (&d)[8][4], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 1;\n"
      : PIPIT_SUMS(d, 0), PIPIT_SUMS(d, 1), PIPIT_SUMS(d, 2), PIPIT_SUMS(d, 3), PIPIT_SUMS(d, 4),
        PIPIT_SUMS(d, 5), PIPIT_SUMS(d, 6), PIPIT_SUMS(d, 7)
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void multiply_group(int (&d)[16][4], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, 1;\n"
      : PIPIT_SUMS(d, 0), PIPIT_SUMS(d, 1), PIPIT_SUMS(d, 2), PIPIT_SUMS(d, 3), PIPIT_SUMS(d, 4),
        PIPIT_SUMS(d, 5), PIPIT_SUMS(d, 6), PIPIT_SUMS(d, 7), PIPIT_SUMS(d, 8), PIPIT_SUMS(d, 9),
        PIPIT_SUMS(d, 10), PIPIT_SUMS(d, 11), PIPIT_SUMS(d, 12), PIPIT_SUMS(d, 13), PIPIT_SUMS(d, 14),
        PIPIT_SUMS(d, 15)
      : "l"(a), "l"(b));
}

// The same with a in registers: the m16k32 fragments of four warps. They must stay unchanged until the products are
// waited for.
__device__ __forceinline__ void multiply_group(int (&d)[4][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, 1;\n"
      : PIPIT_SUMS(d, 0), PIPIT_SUMS(d, 1), PIPIT_SUMS(d, 2), PIPIT_SUMS(d, 3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void multiply_group(int (&d)[8][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1;\n"
      : PIPIT_SUMS(d, 0), PIPIT_SUMS(d, 1), PIPIT_SUMS(d, 2), PIPIT_SUMS(d, 3), PIPIT_SUMS(d, 4),
        PIPIT_SUMS(d, 5), PIPIT_SUMS(d, 6), PIPIT_SUMS(d, 7)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void multiply_group(int (&d)[16][4], const std::uint32_t (&a)[4],
                                               std::uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1;\n"
      : PIPIT_SUMS(d, 0), PIPIT_SUMS(d, 1), PIPIT_SUMS(d, 2), PIPIT_SUMS(d, 3), PIPIT_SUMS(d, 4),
        PIPIT_SUMS(d, 5), PIPIT_SUMS(d, 6), PIPIT_SUMS(d, 7), PIPIT_SUMS(d, 8), PIPIT_SUMS(d, 9),
        PIPIT_SUMS(d, 10), PIPIT_SUMS(d, 11), PIPIT_SUMS(d, 12), PIPIT_SUMS(d, 13), PIPIT_SUMS(d, 14),
        PIPIT_SUMS(d, 15)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef PIPIT_SUMS
#endif

}  // namespace pipit::cuda::ptx
