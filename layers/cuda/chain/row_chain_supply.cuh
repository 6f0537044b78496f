// What the warps of row_chain that do not multiply bring to shared memory, and when: weights, rows of neighbours.
#pragma once

#include <cstdint>

#include "layers/cuda/chain/row_chain_launch.h"
#include "layers/cuda/device/async_ptx.cuh"
#include "layers/cuda/device/cluster_ptx.cuh"
#include "layers/cuda/device/tensor_copy.cuh"

namespace pipit::cuda {

/// Beside the warps that multiply: one brings weights, one tells neighbours of rows, two bring theirs.
inline constexpr int kRowThreads = kRowWarps * 32 + 128;

namespace row_chain {

inline constexpr int kRingTurns = 16;  // chunks in the ring at most

/// Addresses in shared memory.
struct Places {
  std::uint32_t values, sums, constants, ring;
  std::uint32_t full, empty;  // of every chunk in the ring
  std::uint32_t ready;        // two, in turns: all outputs of a convolution are there
  std::uint32_t around;       // two, in turns: the rows above and below are there
};

/// Goes through the chunks of all parts in the order in which they are multiplied.
struct Chunks {
  const RowPart* parts;
  int count;
  int part = 0, step = 0;
  // The units of the next one; 0: there is none.
  __device__ __forceinline__ int next() {
    if (part == count) return 0;
    const RowPart& p = parts[part];
    const int steps = row_chunk(p, step);
    step += steps;
    if (step == p.steps) step = 0, ++part;
    return steps << p.quads_log2;
  }
};

// One thread: all weights of the block, as room for them is made.
__device__ __forceinline__ void bring_weights(const RowChainArgs& args, const RowPart* parts,
                                              const Places& at, int rank) {
  const std::byte* from = args.weights + rank * args.stream_bytes;
  Chunks wanted{parts, args.part_count}, done{parts, args.part_count};
  int room = args.ring_units, head = 0, freed = 0, brought = 0;
#pragma unroll 1
  for (int units = wanted.next(); units > 0; units = wanted.next(), ++brought) {
    while (room < units || brought - freed == kRingTurns) {
      ptx::wait_barrier(at.empty + freed % kRingTurns * 8, freed / kRingTurns % 2);
      room += done.next();
      ++freed;
      ptx::let_copies_overwrite();
    }
    room -= units;
    const std::uint32_t barrier = at.full + brought % kRingTurns * 8;
    ptx::arrive_expecting(barrier, units * kRowUnit);
    const int straight = min(units, args.ring_units - head);
    ptx::copy_bytes(at.ring + head * kRowUnit, from, straight * kRowUnit, barrier);
    if (straight < units)
      ptx::copy_bytes(at.ring, from + straight * kRowUnit, (units - straight) * kRowUnit, barrier);
    from += units * kRowUnit;
    head += units;
    head -= head >= args.ring_units ? args.ring_units : 0;
  }
}

/// A lane's way through the chunks of 16 bytes of the pixels of a row, `threads` together.
struct Walk {
  int chunks, pixels_on, chunks_on;
  int pixel, chunk;
  __device__ __forceinline__ Walk(int pixel_bytes, int threads, int thread) : chunks(pixel_bytes / 16) {
    pixels_on = threads / chunks;
    chunks_on = threads - pixels_on * chunks;
    pixel = thread / chunks;
    chunk = thread - pixel * chunks;
  }
  __device__ __forceinline__ void advance() {
    pixel += pixels_on;
    chunk += chunks_on;
    if (chunk >= chunks) chunk -= chunks, ++pixel;
  }
};

// A warp: the row above (side 0) or below (side 1) for every exchange. It is ahead of those who multiply by one
// exchange at most: neighbours cannot have the one behind the next before they have this block's part of the next.
__device__ __forceinline__ void bring_rows(const RowChainArgs& args, const Places& at, int row,
                                           std::uint32_t run, int side) {
  const int h = row % args.height;
  const int rows = args.images * args.height;
  if (side == 0 ? h == 0 : h + 1 == args.height) return;  // what is outside of the image stays zero
  const int other = row + side * 2 - 1;
  const std::uint32_t* written = args.counters + rows * args.ranks + other;
  const std::uint32_t count = run * static_cast<std::uint32_t>(args.ranks);
#pragma unroll 1
  for (int e = 0; e < args.exchange_count; ++e) {
    const RowExchange exchange = args.exchanges[e];
    Walk walk(exchange.bytes, 32, static_cast<int>(threadIdx.x) % 32);
    const std::byte* from = args.rows + static_cast<std::int64_t>(exchange.at) * 256 +
                            static_cast<std::int64_t>(other) * args.width * exchange.bytes +
                            threadIdx.x % 32 * 16;
    const std::uint32_t to = at.values + (side == 0 ? exchange.above : exchange.below);
    ptx::wait_on_gpu(written + e * rows, count);
#pragma unroll 4
    for (; walk.pixel < args.width; from += 512) {
      ptx::copy_async<16>(to + walk.pixel * exchange.pitch + walk.chunk * 16, from, true);
      walk.advance();
    }
    ptx::commit_copies();
    ptx::wait_copies<0>();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::arrive(at.around + e % 2 * 8);
  }
}

// All warps that multiply have written their part of an exchange.
__device__ __forceinline__ void announce_rows() {
  asm volatile("bar.arrive 2, %0;\n" ::"n"(kRowWarps * 32 + 32) : "memory");
}
// A warp: neighbours may read the rows of this block's outputs.
__device__ __forceinline__ void tell_neighbours(const RowChainArgs& args, int row) {
  const int rows = args.images * args.height;
  for (int e = 0; e < args.exchange_count; ++e) {
    asm volatile("bar.sync 2, %0;\n" ::"n"(kRowWarps * 32 + 32) : "memory");
    if (threadIdx.x % 32 == 0) ptx::count_up_on_gpu(args.counters + rows * (args.ranks + e) + row);
  }
}

// All threads that multiply: the rows of what the chain reads.
__device__ __forceinline__ void bring_inputs(const RowChainArgs& args, const Places& at, int row, int rank) {
  const int h = row % args.height;
  for (int i = 0; i < args.input_count; ++i) {
    const RowInput& input = args.inputs[i];
    const int first = input.read == input.bytes ? 0 : rank * input.read;
    for (int side = -1; side <= 1; ++side) {
      const int place = side < 0 ? input.above : side > 0 ? input.below : input.at;
      if (place < 0 || h + side < 0 || h + side >= args.height) continue;  // zeros are there
      Walk walk(input.read, kRowWarps * 32, static_cast<int>(threadIdx.x));
      const std::byte* from =
          args.x[i] + static_cast<std::int64_t>(row + side) * args.width * input.bytes + first;
      const std::uint32_t to = at.values + place + first;
      while (walk.pixel < args.width) {
        ptx::copy_async<16>(to + walk.pixel * input.pitch + walk.chunk * 16,
                            from + walk.pixel * input.bytes + walk.chunk * 16, true);
        walk.advance();
      }
    }
  }
  ptx::commit_copies();
  ptx::wait_copies<0>();
}

__device__ __forceinline__ void multiplying_warps_meet() {
  asm volatile("bar.sync 1, %0;\n" ::"n"(kRowWarps * 32) : "memory");
}

}  // namespace row_chain

}  // namespace pipit::cuda
