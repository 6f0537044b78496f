// Hopper's warpgroup matrix products (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").
#pragma once

#include <cstdint>

#include "layers/cuda/device/elements.cuh"

// Only the architecture-specific target has these instructions.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PIPIT_WARPGROUP_MMA 1
#endif

namespace pipit::internal::cuda::ptx {

#ifdef PIPIT_WARPGROUP_MMA

/// Describes a matrix in shared memory whose rows are 64 halves (128 bytes), 16-byte chunks swizzled as by
/// swizzled_chunk<8>. address: of row 0 (a multiple of 1024), plus 32 bytes for every 16 columns of k.
__device__ __forceinline__ std::uint64_t matrix_descriptor(std::uint32_t address) {
  constexpr std::uint64_t kEightRows = 1024 >> 4;  // distance between groups of eight rows
  constexpr std::uint64_t kSwizzle128 = 1;
  return static_cast<std::uint64_t>((address & 0x3FFFF) >> 4) | std::uint64_t{1} << 16 | kEightRows << 32 |
         kSwizzle128 << 62;
}

/// Makes this thread's writes to shared memory visible to the matrix unit; a barrier must follow.
__device__ __forceinline__ void publish_shared() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
/// Waits for all groups of products but the latest Pending.
template <int Pending = 0>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(Pending) : "memory");
}

/// Groups of four warps pass registers on: those that all of a group's threads leave others may take, in steps of 8.
template <int Count>
__device__ __forceinline__ void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(Count));
}
template <int Count>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(Count));
}

// Sums as operands, c: "+f" or "+r", of: the register of one; and as asm names them.
#define PIPIT_SUM(sum) sum
#define PIPIT_BFLOAT_SUM(sum) sum.value
#define PIPIT_SUMS_4(c, of, d, j) c(of(d[j][0])), c(of(d[j][1])), c(of(d[j][2])), c(of(d[j][3]))
#define PIPIT_SUMS_16(c, of, d, j)                                                         \
  PIPIT_SUMS_4(c, of, d, j), PIPIT_SUMS_4(c, of, d, j + 1), PIPIT_SUMS_4(c, of, d, j + 2), \
      PIPIT_SUMS_4(c, of, d, j + 3)
#define PIPIT_SUMS_32(c, of, d, j) PIPIT_SUMS_16(c, of, d, j), PIPIT_SUMS_16(c, of, d, j + 4)
#define PIPIT_SUMS_64(c, of, d, j) PIPIT_SUMS_32(c, of, d, j), PIPIT_SUMS_32(c, of, d, j + 8)
#define PIPIT_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define PIPIT_NAMES_32 \
  PIPIT_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PIPIT_NAMES_48 \
  PIPIT_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define PIPIT_NAMES_64 \
  PIPIT_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

// d += a (64 x 16) * b (16 x N), by 128 threads; a and b are descriptors, both with k innermost. Warp w of the four
// holds rows 16 w to 16 w + 15; d[j] are its columns 8 j to 8 j + 7 in the order of an m16n8 accumulator.
__device__ __forceinline__ void multiply_group(float (&d)[4][4], std::uint64_t a, std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" PIPIT_NAMES_16
               "}, %16, %17, 1, 1, 1, 0, 0;\n"
               : PIPIT_SUMS_16("+f", PIPIT_SUM, d, 0)
               : "l"(a), "l"(b));
}
__device__ __forceinline__ void multiply_group(float (&d)[8][4], std::uint64_t a, std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" PIPIT_NAMES_32
               "}, %32, %33, 1, 1, 1, 0, 0;\n"
               : PIPIT_SUMS_32("+f", PIPIT_SUM, d, 0)
               : "l"(a), "l"(b));
}
__device__ __forceinline__ void multiply_group(float (&d)[16][4], std::uint64_t a, std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" PIPIT_NAMES_64
               "}, %64, %65, 1, 1, 1, 0, 0;\n"
               : PIPIT_SUMS_64("+f", PIPIT_SUM, d, 0)
               : "l"(a), "l"(b));
}

// The same with a in registers: the m16k16 fragments of four warps. They must stay unchanged until the products are
// waited for.
__device__ __forceinline__ void multiply_group(float (&d)[4][4], const std::uint32_t (&a)[4],
                                               std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" PIPIT_NAMES_16
               "}, {%16, %17, %18, %19}, %20, 1, 1, 1, 0;\n"
               : PIPIT_SUMS_16("+f", PIPIT_SUM, d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void multiply_group(float (&d)[8][4], const std::uint32_t (&a)[4],
                                               std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" PIPIT_NAMES_32
               "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;\n"
               : PIPIT_SUMS_32("+f", PIPIT_SUM, d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void multiply_group(float (&d)[16][4], const std::uint32_t (&a)[4],
                                               std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" PIPIT_NAMES_64
               "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 0;\n"
               : PIPIT_SUMS_64("+f", PIPIT_SUM, d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// Both of bfloat16.
__device__ __forceinline__ void multiply_group(BfloatSum (&d)[4][4], std::uint64_t a, std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" PIPIT_NAMES_16
               "}, %16, %17, 1, 1, 1, 0, 0;\n"
               : PIPIT_SUMS_16("+f", PIPIT_BFLOAT_SUM, d, 0)
               : "l"(a), "l"(b));
}
__device__ __forceinline__ void multiply_group(BfloatSum (&d)[8][4], std::uint64_t a, std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" PIPIT_NAMES_32
               "}, %32, %33, 1, 1, 1, 0, 0;\n"
               : PIPIT_SUMS_32("+f", PIPIT_BFLOAT_SUM, d, 0)
               : "l"(a), "l"(b));
}
__device__ __forceinline__ void multiply_group(BfloatSum (&d)[16][4], std::uint64_t a, std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" PIPIT_NAMES_64
               "}, %64, %65, 1, 1, 1, 0, 0;\n"
               : PIPIT_SUMS_64("+f", PIPIT_BFLOAT_SUM, d, 0)
               : "l"(a), "l"(b));
}

__device__ __forceinline__ void multiply_group(BfloatSum (&d)[4][4], const std::uint32_t (&a)[4],
                                               std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" PIPIT_NAMES_16
               "}, {%16, %17, %18, %19}, %20, 1, 1, 1, 0;\n"
               : PIPIT_SUMS_16("+f", PIPIT_BFLOAT_SUM, d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void multiply_group(BfloatSum (&d)[8][4], const std::uint32_t (&a)[4],
                                               std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" PIPIT_NAMES_32
               "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;\n"
               : PIPIT_SUMS_32("+f", PIPIT_BFLOAT_SUM, d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void multiply_group(BfloatSum (&d)[16][4], const std::uint32_t (&a)[4],
                                               std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" PIPIT_NAMES_64
               "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 0;\n"
               : PIPIT_SUMS_64("+f", PIPIT_BFLOAT_SUM, d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// Signed bytes with int32 sums: a row of 128 bytes holds 128 bytes of k, and 32 of them are one product's depth.
__device__ __forceinline__ void multiply_group(int (&d)[4][4], std::uint64_t a, std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {" PIPIT_NAMES_16 "}, %16, %17, 1;\n"
               : PIPIT_SUMS_16("+r", PIPIT_SUM, d, 0)
               : "l"(a), "l"(b));
}
__device__ __forceinline__ void multiply_group(int (&d)[8][4], std::uint64_t a, std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {" PIPIT_NAMES_32 "}, %32, %33, 1;\n"
               : PIPIT_SUMS_32("+r", PIPIT_SUM, d, 0)
               : "l"(a), "l"(b));
}
__device__ __forceinline__ void multiply_group(int (&d)[16][4], std::uint64_t a, std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {" PIPIT_NAMES_64 "}, %64, %65, 1;\n"
               : PIPIT_SUMS_64("+r", PIPIT_SUM, d, 0)
               : "l"(a), "l"(b));
}

// The same with a in registers: the m16k32 fragments of four warps. They must stay unchanged until the products are
// waited for.
__device__ __forceinline__ void multiply_group(int (&d)[4][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {" PIPIT_NAMES_16
               "}, {%16, %17, %18, %19}, %20, 1;\n"
               : PIPIT_SUMS_16("+r", PIPIT_SUM, d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void multiply_group(int (&d)[8][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {" PIPIT_NAMES_32
               "}, {%32, %33, %34, %35}, %36, 1;\n"
               : PIPIT_SUMS_32("+r", PIPIT_SUM, d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void multiply_group(int (&d)[16][4], const std::uint32_t (&a)[4],
                                               std::uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {" PIPIT_NAMES_64
               "}, {%64, %65, %66, %67}, %68, 1;\n"
               : PIPIT_SUMS_64("+r", PIPIT_SUM, d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef PIPIT_SUM
#undef PIPIT_BFLOAT_SUM
#undef PIPIT_SUMS_4
#undef PIPIT_SUMS_16
#undef PIPIT_SUMS_32
#undef PIPIT_SUMS_64
#undef PIPIT_NAMES_16
#undef PIPIT_NAMES_32
#undef PIPIT_NAMES_48
#undef PIPIT_NAMES_64

#endif

}  // namespace pipit::internal::cuda::ptx
