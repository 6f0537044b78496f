// Kernels for the emulator's own tests: right as they are, and wrong in one respect each.
#pragma once

#include <cstdint>

#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::internal::test::emulation {

namespace ptx = cuda::ptx;

enum class Fault {
  none,
  // run_pipeline
  unordered_barriers,
  no_wait_for_full,
  no_wait_for_empty,
  no_fence_behind_reads,
  too_few_bytes,
  too_few_arrivals,
  too_many_arrivals,
  copy_behind_the_end,
  ends_early,
  // run_product
  no_proxy_fence,
  no_wgmma_fence,
  sums_read_early,
  sums_changed_early,
  operand_changed_early,
  // run_exchange
  no_barrier,
  missing_warp,
  behind_shared_memory,
  not_aligned,
  behind_global_memory,
  copies_not_waited_for,
  divergent_lanes,
  // run_registers
  too_many_registers,
  // run_sends
  sent_twice,
  ended_neighbour,
  unpublished_barriers,
};

constexpr int kSteps = 7, kSlots = 2, kSlotBytes = 2048;

/// y[step][thread] = sum of four words of x: a thread has the copy engine bring them, 128 others add them up.
template <Fault Broken>
__global__ void run_pipeline(const std::uint32_t* x, std::uint32_t* y) {
  extern __shared__ __align__(128) std::uint8_t slots[];
  __shared__ std::uint64_t barriers[2 * kSlots];
  const std::uint32_t full = ptx::shared_address(barriers), empty = full + kSlots * 8;
  const std::uint32_t at = ptx::shared_address(slots);
  if (threadIdx.x == 128) {
    for (int s = 0; s < kSlots; ++s) {
      ptx::init_barrier(full + s * 8, 1);
      ptx::init_barrier(empty + s * 8, Broken == Fault::too_many_arrivals  ? 3
                                       : Broken == Fault::too_few_arrivals ? 5
                                                                           : 4);
    }
    ptx::publish_barriers();
  }
  if (Broken != Fault::unordered_barriers) __syncthreads();
  if (threadIdx.x >= 128) {
    for (int i = 0; i < kSteps && threadIdx.x == 128; ++i) {
      const std::uint32_t slot = i % kSlots, use = i / kSlots;
      if (use > 0 && Broken != Fault::no_wait_for_empty) ptx::wait_barrier(empty + slot * 8, (use - 1) % 2);
      ptx::arrive_expecting(full + slot * 8, Broken == Fault::too_few_bytes ? kSlotBytes - 16 : kSlotBytes);
      const int step = Broken == Fault::copy_behind_the_end ? i + 1 : i;
      ptx::copy_bytes(at + slot * kSlotBytes, x + step * (kSlotBytes / 4), kSlotBytes, full + slot * 8);
    }
    return;
  }
  const int steps = Broken == Fault::ends_early ? kSteps - 1 : kSteps;
  for (int i = 0; i < steps; ++i) {
    const std::uint32_t slot = i % kSlots;
    if (Broken != Fault::no_wait_for_full) ptx::wait_barrier(full + slot * 8, i / kSlots % 2);
    const uint4 v = cuda::load_four(at + slot * kSlotBytes + threadIdx.x * 16);
    if (Broken != Fault::no_fence_behind_reads) ptx::publish_shared();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::arrive(empty + slot * 8);
    y[i * 128 + threadIdx.x] = v.x + v.y + v.z + v.w;
  }
}

/// sums[thread][i] of x (64 rows of 64 halves) times the first 32 rows of it, transposed, with k up to 16.
template <Fault Broken>
__global__ void run_product(const uint4* x, float* sums) {
  extern __shared__ std::uint8_t dynamic[];
  const std::uint32_t rows = (ptx::shared_address(dynamic) + 1023) & ~1023U;
  for (int i = static_cast<int>(threadIdx.x); i < 64 * 8; i += 128) cuda::store_four(rows + i * 16, x[i]);
  if (Broken != Fault::no_proxy_fence) ptx::publish_shared();
  __syncthreads();
  float d[4][4] = {};
  if (Broken != Fault::no_wgmma_fence) ptx::begin_products();
  ptx::multiply_group(d, ptx::matrix_descriptor(rows), ptx::matrix_descriptor(rows));
  ptx::end_products();
  if (Broken == Fault::operand_changed_early) cuda::store_four(rows + threadIdx.x * 16, uint4{1, 2, 3, 4});
  if (Broken == Fault::sums_changed_early) d[1][2] = 0;
  float early[16];
  for (int i = 0; i < 16; ++i) early[i] = d[i / 4][i % 4];
  ptx::wait_products();
  for (int i = 0; i < 16; ++i)
    sums[threadIdx.x * 16 + i] = Broken == Fault::sums_read_early ? early[i] : d[i / 4][i % 4];
}

/// y = x of the thread opposite, through shared memory.
template <Fault Broken>
__global__ void run_exchange(const uint4* x, uint4* y) {
  extern __shared__ __align__(16) std::uint8_t dynamic[];
  const std::uint32_t at = ptx::shared_address(dynamic);
  const unsigned thread = threadIdx.x, other = blockDim.x - 1 - thread;
  const std::uint32_t place = at + thread * 16 +
                              (Broken == Fault::behind_shared_memory ? 16
                               : Broken == Fault::not_aligned        ? 8
                                                                     : 0);
  if (Broken == Fault::copies_not_waited_for) {
    ptx::copy_async<16>(place, x + thread, true);
    ptx::commit_copies();
  } else {
    cuda::store_four(place, x[Broken == Fault::behind_global_memory ? thread + 1 : thread]);
  }
  if (Broken == Fault::divergent_lanes) {
    if (thread % 2 == 0)
      __syncwarp();
    else
      (void)__shfl_sync(0xFFFFFFFFU, thread, 0);
  }
  if (Broken == Fault::missing_warp && thread < 32) {
    asm volatile("bar.sync 1, %0;\n" ::"n"(96) : "memory");
  } else if (Broken != Fault::no_barrier) {
    __syncthreads();
  }
  y[thread] = cuda::load_four(at + other * 16);
}

/// One group of four warps leaves registers, the other takes more than those.
template <Fault Broken>
__global__ void run_registers() {
  if (threadIdx.x < 128) {
    ptx::leave_registers<40>();
  } else {
    ptx::take_registers<Broken == Fault::too_many_registers ? 224 : 208>();
  }
}

/// Two blocks: the first sends a word to the second, which stores it in y.
template <Fault Broken>
__global__ void run_sends(std::uint32_t* y) {
  __shared__ std::uint64_t barrier;
  __shared__ __align__(16) std::uint32_t word[4];
  const std::uint32_t at = ptx::shared_address(&barrier);
  if (threadIdx.x == 0) {
    ptx::init_barrier(at, 1);
    if (Broken != Fault::unpublished_barriers) ptx::publish_barriers();
  }
  ptx::arrive_in_cluster();
  ptx::wait_in_cluster();
  if (ptx::cluster_rank() == 0) {
    if (threadIdx.x != 0) return;
    for (std::uint32_t v = Broken == Fault::sent_twice ? 1 : 2; v <= 2; ++v) {
      const std::uint32_t words[1] = {v};
      ptx::send(ptx::in_block(ptx::shared_address(word), 1), words, ptx::in_block(at, 1));
    }
  } else if (Broken != Fault::ended_neighbour && threadIdx.x == 0) {
    ptx::arrive_expecting(at, Broken == Fault::sent_twice ? 8 : 4);
    ptx::wait_barrier(at, 0);
    *y = cuda::load_four(ptx::shared_address(word)).x;
  }
}

/// An instruction that is not emulated.
__global__ inline void run_unknown() {
  asm volatile("bar.red.popc.u32 %0, 0, %1;\n" ::"r"(1), "r"(2));
}

}  // namespace pipit::internal::test::emulation
