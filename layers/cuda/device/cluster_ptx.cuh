// Shared memory of other blocks of a cluster, copies without a tensor map, and counters in memory that other blocks
// wait for (PTX ISA, "mapa", "st.async", "mbarrier", "cp.async.bulk", "red").
#pragma once

#include <cstdint>

namespace pipit::cuda::ptx {

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
/// The two halves of a barrier of the cluster; what publish_barriers() made visible before the first is so behind the
/// second.
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

/// Counts up in memory; who sees it sees what was stored before.
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

}  // namespace pipit::cuda::ptx
