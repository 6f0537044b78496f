// 16 bytes of shared memory, by address.
#pragma once

#include <cstdint>

namespace pipit::internal::cuda {

__device__ __forceinline__ uint4 load_four(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
/// 8 bytes of it, each time anew: what is read without `volatile` the assembler reads once for several uses, and moves
/// from register to register.
__device__ __forceinline__ uint2 load_two(std::uint32_t address) {
  uint2 v;
  asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];\n"
               : "=r"(v.x), "=r"(v.y)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_four(std::uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

}  // namespace pipit::internal::cuda

namespace pipit::internal::cuda::ptx {

// Instructions without an intrinsic: asynchronous copies, warp matrix products, overlapping launches.

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

/// Without this the compiler may compute a value anew wherever it is used, in the innermost loop even.
__device__ __forceinline__ void keep_in_register(int& value) {
  asm volatile("" : "+r"(value));
}

/// Lets the next kernel of the stream start its preparations once every block of this one has come here. Before
/// wait_for_previous_kernel() in kernels of a microsecond, which the next one's launch would outlast; after it in
/// those of tiles, so that at most one kernel waits beside the one that runs, and its blocks do not take room that
/// those of the next one need (Kernel::orders_prior_writes).
__device__ __forceinline__ void release_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n");
#endif
}

/// Waits until the kernels before this one have finished and their writes are visible.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

/// The caches that a copy goes through: what is read once takes no room in the first.
enum class Through { second_cache, both_caches };

/// Copies Bytes (8 or 16) to shared memory, or writes zeros. 8 bytes always go through both caches.
template <int Bytes, Through Caches = Through::second_cache>
__device__ __forceinline__ void copy_async(std::uint32_t to, const void* from, bool valid) {
  const int size = valid ? Bytes : 0;
  if constexpr (Bytes == 16 && Caches == Through::second_cache) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(size));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(to), "l"(from), "n"(Bytes),
                 "r"(size));
  }
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;\n");
}

template <int Pending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(Pending));
}

/// Four 8 x 8 matrices of halves; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

/// c += a (16 x 16) * b (16 x 8).
__device__ __forceinline__ void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// c += a (16 x 32) * b (32 x 8) of signed bytes: fragments of 16-byte rows, as those of halves.
__device__ __forceinline__ void multiply(int (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// d = a * b + c.
__device__ __forceinline__ void multiply(int (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1, uint4 c) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %12, %13};\n"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c.x), "r"(c.y), "r"(c.z), "r"(c.w));
}

}  // namespace pipit::internal::cuda::ptx
