// PTX: shared memory by address, copies, barriers, matrix products of a warp, and Hopper's bulk copies.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "layers/cuda/device/elements.cuh"

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

/// The same of bfloat16.
__device__ __forceinline__ void multiply(BfloatSum (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(c[0].value), "+f"(c[1].value), "+f"(c[2].value), "+f"(c[3].value)
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

// Hopper's bulk tensor copies and the barriers in shared memory that count their bytes (PTX ISA, "Tensor copy" and
// "mbarrier").

__device__ __forceinline__ void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Makes initialized barriers visible to the copy engine; a block barrier must follow.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
/// Arrives, and lets the phase wait for `bytes` bytes in addition.
__device__ __forceinline__ void arrive_expecting(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes)
               : "memory");
}
/// Waits until the phase of this parity has ended.
__device__ __forceinline__ void wait_barrier(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

/// After a wait for threads that have read shared memory with loads of their own, before copies that overwrite it: an
/// mbarrier alone does not order the copy engine's writes after their reads (PTX ISA, "Async proxy"), which shows as a
/// few wrong bytes now and then. What only the matrix unit has read needs no such fence.
__device__ __forceinline__ void let_copies_overwrite() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/// One warp more has come this far: what its threads read before stays readable until then. By one of its lanes, after
/// __syncwarp.
__device__ __forceinline__ void count_up(int* counter) {
  asm volatile("red.release.cta.shared::cta.add.s32 [%0], 1;\n" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(counter)))
               : "memory");
}
/// Waits until a counter in shared memory has reached `count`; copies may then overwrite what was read before.
__device__ __forceinline__ void wait_counter(const int* counter, int count) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(counter));
  int now = 0;
  do {
    asm volatile("ld.acquire.cta.shared::cta.s32 %0, [%1];\n" : "=r"(now) : "r"(address) : "memory");
  } while (now < count);
  let_copies_overwrite();
}

/// The same by a whole warp, each lane's counter and count, for warps that read and write there.
__device__ __forceinline__ void wait_counters(const int* counter, int count) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(counter));
  int now = 0;
  do {
    asm volatile("ld.acquire.cta.shared::cta.s32 %0, [%1];\n" : "=r"(now) : "r"(address) : "memory");
    if (__all_sync(0xFFFFFFFFU, now >= count)) break;
    __nanosleep(20);
  } while (true);
}

/// The map's box at (column, row) to shared memory; its bytes count on `barrier`.
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier,
                                         int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
      "[%2];\n" ::"r"(to),
      "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}
/// The map's box at (c, w, h, n) of a tensor of four dimensions.
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier,
                                         int c, int w, int h, int n) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6}], [%2];\n" ::"r"(to),
      "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n)
      : "memory");
}
/// The pixels of a row of patches, from the one at (c, w, h, n) on, each moved by the tap's offsets.
__device__ __forceinline__ void copy_pixels(std::uint32_t to, const CUtensorMap& map, std::uint32_t barrier,
                                            int c, int w, int h, int n, int offset_w, int offset_h) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, "
      "%6}], [%2], {%7, %8};\n" ::"r"(to),
      "l"(reinterpret_cast<std::uint64_t>(&map)), "r"(barrier), "r"(c), "r"(w), "r"(h), "r"(n),
      "h"(static_cast<std::uint16_t>(offset_w)), "h"(static_cast<std::uint16_t>(offset_h))
      : "memory");
}

// Shared memory of other blocks of a cluster, copies without a tensor map, and counters in memory that other blocks
// wait for (PTX ISA, "mapa", "st.async", "mbarrier", "cp.async.bulk", "red").

__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}
/// Where the block `rank` has what this one has at `address`.
__device__ __forceinline__ std::uint32_t in_block(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t there = 0;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
/// Stores in the shared memory of any block of the cluster; the bytes count on `barrier` there.
template <int Words>
__device__ __forceinline__ void send(std::uint32_t to, const std::uint32_t (&v)[Words],
                                     std::uint32_t barrier) {
  static_assert(Words == 1 || Words == 2 || Words == 4);
  if constexpr (Words == 1) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];\n" ::"r"(to),
                 "r"(v[0]), "r"(barrier)
                 : "memory");
  } else if constexpr (Words == 2) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%0], {%1, %2}, [%3];\n" ::"r"(to),
        "r"(v[0]), "r"(v[1]), "r"(barrier)
        : "memory");
  } else {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%0], {%1, %2, %3, %4}, [%5];\n" ::"r"(
            to),
        "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(barrier)
        : "memory");
  }
}
/// Waits until the phase of this parity has ended: what other blocks sent is there.
__device__ __forceinline__ void wait_cluster_barrier(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}
/// The two halves of a barrier of the cluster; what publish_barriers() made visible before the first is visible after
/// the second.
__device__ __forceinline__ void arrive_in_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void wait_in_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::
                   : "memory");
}

/// bytes: a multiple of 16; they count on `barrier`.
__device__ __forceinline__ void copy_bytes(std::uint32_t to, const void* from, int bytes,
                                           std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

/// The same to this address in every block of the cluster whose bit is set in `ranks`; the bytes count there, on the
/// barrier at the same address.
__device__ __forceinline__ void copy_bytes_to_all(std::uint32_t to, const void* from, int bytes,
                                                  std::uint32_t barrier, std::uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
      "[%3], %4;\n" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(ranks)
      : "memory");
}
/// Arrives at a barrier of any block of the cluster (in_block): what this thread has read by then may be overwritten.
/// That others see what it has stored would take a release in the cluster, which waits for more than half a
/// microsecond.
__device__ __forceinline__ void arrive_in_block(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

/// Counts up in memory; a thread that sees it also sees what was stored before.
__device__ __forceinline__ void count_up_on_gpu(std::uint32_t* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;\n" ::"l"(counter) : "memory");
}
/// Waits until the counter, which may wrap around, has reached `count`.
__device__ __forceinline__ void wait_on_gpu(const std::uint32_t* counter, std::uint32_t count) {
  std::uint32_t now = 0;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];\n" : "=r"(now) : "l"(counter) : "memory");
  } while (static_cast<std::int32_t>(now - count) < 0);
}

}  // namespace pipit::internal::cuda::ptx
