// What the warps of row_chain that do not multiply bring to shared memory, and when: weights, rows of neighbours.
#pragma once

#include <cstdint>
#include <type_traits>

#include "layers/cuda/conv/row_chain/plan.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda {

/// Beside the warps that multiply: one brings weights, one tells neighbours of rows, two bring theirs.
inline constexpr int kRowThreads = kRowWarps * 32 + 128;

namespace row_chain {

inline constexpr int kRingTurns = 16;  // chunks in the ring at most

/// Addresses in shared memory.
struct Places {
  std::uint32_t values, sums, constants, ring;
  std::uint32_t full, empty;  // of every chunk in the ring
  std::uint32_t ready;        // two, in turns: all outputs of a convolution that are sent are there
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

/// The order in which a lane visits the chunks of 16 bytes of the pixels of a row, `threads` together.
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

// A warp: the row above (side 0) or below (side 1) for every exchange. It is ahead of the warps that multiply by one
// exchange at most: neighbours cannot have the exchange after the next before they have this block's part of the next.
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

}  // namespace pipit::internal::cuda

namespace pipit::internal::cuda::row_chain {

// From sums to outputs in row_chain: fp16 and bf16 as in gemm_epilogue.cuh, INT8 as layers/ops/quantization.h
// specifies it, every operation rounded to f32.

template <int Words>
struct alignas(4 * Words) Packed {
  std::uint32_t word[Words];
};
template <int Words>
__device__ __forceinline__ Packed<Words> load_packed(std::uint32_t address) {
  Packed<Words> v;
  if constexpr (Words == 1) {
    asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(v.word[0]) : "r"(address) : "memory");
  } else if constexpr (Words == 2) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];\n"
                 : "=r"(v.word[0]), "=r"(v.word[1])
                 : "r"(address)
                 : "memory");
  } else {
    const uint4 four = load_four(address);
    v.word[0] = four.x, v.word[1] = four.y, v.word[2] = four.z, v.word[3] = four.w;
  }
  return v;
}

template <int Words>
__device__ __forceinline__ void store_packed(std::uint32_t address, const Packed<Words>& v) {
  if constexpr (Words == 1) {
    asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(address), "r"(v.word[0]) : "memory");
  } else if constexpr (Words == 2) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};\n" ::"r"(address), "r"(v.word[0]), "r"(v.word[1])
                 : "memory");
  } else {
    store_four(address, make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]));
  }
}

/// What 4 * Vecs neighbouring outputs of a pixel need beside their sums, and how they are stored.
template <typename Sum, int Vecs>
struct Outputs {
  using Element = NarrowOf<Sum>;
  using Stored = Packed<2 * Vecs>;
  uint4 bias[Vecs];
  // constants: of the part; output: the first in it.
  __device__ __forceinline__ void load(std::uint32_t constants, int output, int) {
#pragma unroll
    for (int v = 0; v < Vecs; ++v) bias[v] = load_four(constants + output * 4 + v * 16);
  }
  __device__ __forceinline__ Stored finish(const RowPart& part, const Sum (&sum)[4 * Vecs],
                                           Stored residual) const {
    const auto* added = reinterpret_cast<const float*>(bias);
    Stored y;
#pragma unroll
    for (int w = 0; w < 2 * Vecs; ++w) {
      float2 v = make_float2(sum[w * 2] + added[w * 2], sum[w * 2 + 1] + added[w * 2 + 1]);
      if (part.residual >= 0) {
        const float2 held = to_floats<Element>(residual.word[w]);
        v.x += held.x, v.y += held.y;
      }
      y.word[w] =
          to_word<Element>(clamp_value(v.x, part.low, part.high), clamp_value(v.y, part.low, part.high));
    }
    return y;
  }
};

template <int Vecs>
struct Outputs<std::int32_t, Vecs> {
  using Stored = Packed<Vecs>;
  uint4 bias[Vecs], multiplier[Vecs];
  __device__ __forceinline__ void load(std::uint32_t constants, int output, int quads_log2) {
    const std::uint32_t at = constants + output * 4;
#pragma unroll
    for (int v = 0; v < Vecs; ++v) {
      bias[v] = load_four(at + v * 16);
      multiplier[v] = load_four(at + (128 << quads_log2) + v * 16);
    }
  }
  __device__ __forceinline__ Stored finish(const RowPart& part, const std::int32_t (&sum)[4 * Vecs],
                                           Stored residual) const {
    const auto* biases = reinterpret_cast<const std::int32_t*>(bias);
    const auto* multipliers = reinterpret_cast<const float*>(multiplier);
    Stored y;
#pragma unroll
    for (int w = 0; w < Vecs; ++w) {
      float v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        v[j] = scaled(sum[w * 4 + j] + biases[w * 4 + j], multipliers[w * 4 + j]);
        if (part.residual >= 0) {
          const auto held = static_cast<float>(static_cast<signed char>(residual.word[w] >> j % 4 * 8));
          v[j] = with_residual(v[j], held, part.residual_scale);
        }
      }
      y.word[w] = four_bytes(v, part.low, part.high);
    }
    return y;
  }
};

}  // namespace pipit::internal::cuda::row_chain

namespace pipit::internal::cuda {

// The kernel of a chain of convolutions at small batches: every cluster of blocks owns a row of the image through all
// of them. A block computes a share of the outputs of its row and sends them to the shared memory of all blocks of its
// cluster, so that between two convolutions there is a barrier in shared memory, not a launch. Only the rows above and
// below a 3x3 window come from other clusters, through memory and a counter. Weights do not depend on anything: a
// thread of its own has them copied ahead of their use into a ring, those of the next convolutions while this one
// waits.
//
// All clusters must run at once, since neighbours wait for each other: launches are cooperative.
//
// What a part does between two barriers is a few hundred instructions, each waiting for the previous one: that is why
// divisions are shifts here and whatever can be is loaded before the products.

namespace row_chain {

/// Sums of a tile of 16 pixels and a quad: [product][m16n8 fragment].
template <typename Sum>
using Tile = Sum[4][4];

/// sums += the warp's tile * its quad's weights of Count steps from `step` on, `depths` apart. pixel: the lane's, in
/// shared memory; places: of the part's steps; right: of the lane in the ring, whose unit `first` is that of a step 0.
template <int Count, typename Sum>
__device__ __forceinline__ void multiply_steps(std::uint32_t pixel, std::uint32_t places, std::uint32_t right,
                                               int ring_units, int first, int quads_log2, int step,
                                               int depths, Tile<Sum>& sums) {
  std::uint16_t place[Count];
#pragma unroll
  for (int u = 0; u < Count; ++u)
    asm volatile("ld.shared.u16 %0, [%1];\n"
                 : "=h"(place[u])
                 : "r"(places + (step + u * depths) * 2)
                 : "memory");
  uint4 b[Count][2];
#pragma unroll
  for (int u = 0; u < Count; ++u) {
    int unit = first + ((step + u * depths) << quads_log2);
    unit -= unit >= ring_units ? ring_units : 0;
    b[u][0] = load_four(right + unit * kRowUnit);
    b[u][1] = load_four(right + unit * kRowUnit + 512);
  }
  std::uint32_t a[Count][4];
#pragma unroll
  for (int u = 0; u < Count; ++u) ptx::load_matrices(a[u], pixel + place[u] * 16);
#pragma unroll
  for (int u = 0; u < Count; ++u) {
    ptx::multiply(sums[0], a[u], b[u][0].x, b[u][0].y);
    ptx::multiply(sums[1], a[u], b[u][0].z, b[u][0].w);
    ptx::multiply(sums[2], a[u], b[u][1].x, b[u][1].y);
    ptx::multiply(sums[3], a[u], b[u][1].z, b[u][1].w);
  }
}

/// A warp that multiplies, through all parts.
template <typename Sum>
struct Multiplier {
  static constexpr int kBytes = std::is_same_v<Sum, std::int32_t> ? 1 : 2;  // of an element
  const RowChainArgs& args;
  const Places& at;
  int row, rank;
  int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int head = 0, chunk = 0;  // in the ring: the unit, and how many chunks were there before
  int turn = 0;             // how many convolutions before have been sent

  /// What is known of a part before its x is there.
  struct Setup {
    int depth, depths, sharing;
    int quad, pixel, in_part;
    std::uint32_t left;
  };
  __device__ __forceinline__ Setup prepare(const RowPart& part) const {
    Setup s;
    const int tiles_log2 = row_tiles_log2(args.width);
    s.quad = warp & ((1 << part.quads_log2) - 1);
    const int tile = (warp >> part.quads_log2) & ((1 << tiles_log2) - 1);
    s.sharing = part.quads_log2 + tiles_log2;
    s.depth = warp >> s.sharing;
    s.depths = kRowWarps >> s.sharing;
    // Two warps that share a depth finish eight of the sixteen pixels each, four of them half of their outputs.
    s.pixel = tile * 16 + lane / 4 + (s.depths > 1 ? s.depth % 2 * 8 : 0);
    s.in_part = s.quad * 32 + lane % 4 * 8 + (s.depths > 2 ? s.depth / 2 % 2 * 4 : 0);
    s.left = at.values + part.x + min(tile * 16 + lane % 16, args.width - 1) * part.x_pitch + lane / 16 * 16;
    // The part's first weights: most of the time they have been there for long.
    ptx::wait_barrier(at.full + chunk % kRingTurns * 8, chunk / kRingTurns % 2);
    return s;
  }

  /// The outputs of one pixel that a lane has: to memory, or to all blocks of the cluster and where neighbours find
  /// them.
  template <int Words>
  __device__ __forceinline__ void write(const RowPart& part, int pixel, int in_part, Packed<Words> y) const {
    if (pixel >= args.width) return;
    const int byte = rank * part.rank_bytes + part.first_byte + in_part * kBytes;
    const std::int64_t place =
        static_cast<std::int64_t>(row) * part.row_bytes + pixel * (part.rank_bytes * args.ranks) + byte;
    if (part.y_pitch == 0) {
      *reinterpret_cast<Packed<Words>*>(args.y + place) = y;
      return;
    }
    if (part.exchange >= 0) {
      *reinterpret_cast<Packed<Words>*>(args.rows + static_cast<std::int64_t>(part.exchange_at) * 256 +
                                        place) = y;
    }
    const std::uint32_t to = at.values + part.y + pixel * part.y_pitch + byte;
    store_packed(to, y);
    if (part.sent == 0) return;
    // Blocks can send 14 bytes a clock. Each begins with another one, so that not all send to one at a time.
    const std::uint32_t barrier = at.ready + turn % 2 * 8;
#pragma unroll 4
    for (int r = 1; r < args.ranks; ++r) {
      const int other = (rank + r) & (args.ranks - 1);
      ptx::send(ptx::in_block(to, other), y.word, ptx::in_block(barrier, other));
    }
  }

  /// Adds up what the warps of a depth have and writes it.
  template <int Vecs>
  __device__ __forceinline__ void finish_shared(const RowPart& part, const Setup& s) const {
    Outputs<Sum, Vecs> outputs;
    outputs.load(at.constants + part.constants, s.in_part, part.quads_log2);
    constexpr int kWords = sizeof(typename Outputs<Sum, Vecs>::Stored) / 4;
    Packed<kWords> residual = {};
    if (part.residual >= 0) {
      residual =
          load_packed<kWords>(at.values + part.residual + min(s.pixel, args.width - 1) * part.residual_pitch +
                              rank * part.rank_bytes + part.first_byte + s.in_part * kBytes);
    }
    multiplying_warps_meet();
    if (Vecs == 1 && s.depth >= 4) return;
    const int stride = 2048 << s.sharing;
    const std::uint32_t from = at.sums + (warp & ((1 << s.sharing) - 1)) * 2048 + s.depth % 2 * 1024 +
                               (Vecs == 1 ? s.depth / 2 * 512 : 0) + lane * 16;
    constexpr int kDepths = Vecs == 1 ? kRowWarps : 2;
    uint4 v[kDepths][Vecs];
#pragma unroll
    for (int d = 0; d < kDepths; ++d) {
      if (d >= s.depths) break;
#pragma unroll
      for (int w = 0; w < Vecs; ++w) v[d][w] = load_four(from + d * stride + w * 512);
    }
    Sum total[4 * Vecs] = {};
#pragma unroll
    for (int d = 0; d < kDepths; ++d) {
      if (d >= s.depths) break;
      const auto* sum = reinterpret_cast<const Sum*>(v[d]);
#pragma unroll
      for (int j = 0; j < 4 * Vecs; ++j) total[j] += sum[j];
    }
    const auto y = outputs.finish(part, total, residual);
    write(part, s.pixel, s.in_part, y);
  }

  __device__ __forceinline__ void compute(const RowPart& part, const Setup& s) {
    Tile<Sum> sums = {};
    const std::uint32_t places = at.constants + part.places, right = at.ring + lane * 16;
    int mine = s.depth;
#pragma unroll 1
    for (int step = 0; step < part.steps;) {
      const int steps = row_chunk(part, step);
      if (step > 0) ptx::wait_barrier(at.full + chunk % kRingTurns * 8, chunk / kRingTurns % 2);
      if (part.awaited >= 0 && step == part.inner_steps && args.height > 1)
        ptx::wait_barrier(at.around + part.awaited % 2 * 8, part.awaited / 2 % 2);
      const int first = head - (step << part.quads_log2) + s.quad;
      const int end = step + steps;
#pragma unroll 1
      for (; mine + 3 * s.depths < end; mine += 4 * s.depths)
        multiply_steps<4>(s.left, places, right, args.ring_units, first, part.quads_log2, mine, s.depths,
                          sums);
      if (mine + s.depths < end) {
        multiply_steps<2>(s.left, places, right, args.ring_units, first, part.quads_log2, mine, s.depths,
                          sums);
        mine += 2 * s.depths;
      }
      if (mine < end) {
        multiply_steps<1>(s.left, places, right, args.ring_units, first, part.quads_log2, mine, s.depths,
                          sums);
        mine += s.depths;
      }
      __syncwarp();
      if (lane == 0) ptx::arrive(at.empty + chunk % kRingTurns * 8);
      head += steps << part.quads_log2;
      head -= head >= args.ring_units ? args.ring_units : 0;
      ++chunk;
      step = end;
    }
    if (s.depths > 1) {
      const std::uint32_t own = at.sums + warp * 2048 + lane * 16;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint4 v[2];
        auto* sum = reinterpret_cast<Sum*>(v);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j * 2] = sums[j][half * 2], sum[j * 2 + 1] = sums[j][half * 2 + 1];
        store_four(own + half * 1024, v[0]);
        store_four(own + half * 1024 + 512, v[1]);
      }
      s.depths == 2 ? finish_shared<2>(part, s) : finish_shared<1>(part, s);
    } else {
      Outputs<Sum, 2> outputs;
      constexpr int kWords = sizeof(typename Outputs<Sum, 2>::Stored) / 4;
      outputs.load(at.constants + part.constants, s.in_part, part.quads_log2);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int pixel = s.pixel + half * 8;
        Packed<kWords> residual = {};
        if (part.residual >= 0) {
          residual = load_packed<kWords>(at.values + part.residual +
                                         min(pixel, args.width - 1) * part.residual_pitch +
                                         rank * part.rank_bytes + part.first_byte + s.in_part * kBytes);
        }
        Sum total[8];
#pragma unroll
        for (int j = 0; j < 4; ++j)
          total[j * 2] = sums[j][half * 2], total[j * 2 + 1] = sums[j][half * 2 + 1];
        write(part, pixel, s.in_part, outputs.finish(part, total, residual));
      }
    }
  }

  __device__ __forceinline__ void run_all(const RowPart* parts) {
    RowPart part = parts[0];
    Setup setup = prepare(part);
#pragma unroll 1
    for (int p = 0; p < args.part_count; ++p) {
      const bool sends = part.finishes > 0 && part.sent > 0;
      if (sends && threadIdx.x == 0) {
        ptx::arrive_expecting(at.ready + turn % 2 * 8, part.row_bytes - args.width * part.rank_bytes);
      }
      compute(part, setup);
      if (p + 1 == args.part_count) break;
      if (sends) {
        __syncwarp();
        if (lane == 0) ptx::arrive(at.ready + turn % 2 * 8);
        if (part.exchange >= 0) announce_rows();
      }
      part = parts[p + 1];
      setup = prepare(part);
      if (sends) {
        ptx::wait_cluster_barrier(at.ready + turn % 2 * 8, turn / 2 % 2);
        ++turn;
      } else {
        multiplying_warps_meet();  // before the next part's sums, and after residuals are stored
      }
    }
  }
};

}  // namespace row_chain

/// Sum: float for halves, BfloatSum for bfloat16, std::int32_t for bytes.
template <typename Sum>
__global__ void __launch_bounds__(kRowThreads, 1) run_row_chain(const __grid_constant__ RowChainArgs args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::uint8_t shared[];
  __shared__ std::uint64_t barriers[2 * row_chain::kRingTurns + 4];
  __shared__ RowPart parts[kRowMaxParts];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int rank = static_cast<int>(ptx::cluster_rank());
  const int row = static_cast<int>(blockIdx.x) / args.ranks;
  row_chain::Places at;
  at.values = ptx::shared_address(shared);
  at.sums = at.values + args.sums;
  at.constants = at.values + args.constants;
  at.ring = at.values + args.ring;
  at.full = ptx::shared_address(barriers);
  at.empty = at.full + row_chain::kRingTurns * 8;
  at.ready = at.empty + row_chain::kRingTurns * 8;
  at.around = at.ready + 16;
  if (threadIdx.x == 0) {
    for (int c = 0; c < row_chain::kRingTurns; ++c) {
      ptx::init_barrier(at.full + c * 8, 1);
      ptx::init_barrier(at.empty + c * 8, kRowWarps);
    }
    // The block's own warps, and one that says how many bytes others send.
    ptx::init_barrier(at.ready, kRowWarps + 1);
    ptx::init_barrier(at.ready + 8, kRowWarps + 1);
    const int h = row % args.height;
    const int neighbours = (h > 0 ? 1 : 0) + (h + 1 < args.height ? 1 : 0);
    for (int turn = 0; turn < 2; ++turn) ptx::init_barrier(at.around + turn * 8, max(neighbours, 1));
    ptx::publish_barriers();
  }
  const auto copy = [&](std::uint32_t to, const void* from, int bytes) {
    for (int i = static_cast<int>(threadIdx.x) * 16; i < bytes; i += kRowThreads * 16)
      ptx::copy_async<16>(to + i, static_cast<const std::byte*>(from) + i, true);
  };
  copy(ptx::shared_address(parts), args.parts, args.part_count * static_cast<int>(sizeof(RowPart)));
  copy(at.constants, args.of_outputs + rank * args.constants_bytes, args.constants_bytes);
  ptx::commit_copies();
  for (int i = static_cast<int>(threadIdx.x) * 16; i < args.values_bytes; i += kRowThreads * 16)
    store_four(at.values + i, uint4{});
  ptx::wait_copies<0>();
  // Blocks write into each other's memory from here on.
  ptx::cluster_barrier();
  if (warp == kRowWarps) {
    if (threadIdx.x % 32 == 0) row_chain::bring_weights(args, parts, at, rank);
    return;
  }
  ptx::wait_for_previous_kernel();
  if (warp < kRowWarps) {
    row_chain::bring_inputs(args, at, row, rank);
    row_chain::multiplying_warps_meet();
    row_chain::Multiplier<Sum>{args, at, row, rank}.run_all(parts);
  } else if (warp == kRowWarps + 1) {
    ptx::release_next_kernel();
    row_chain::tell_neighbours(args, row);
  } else {
    // Both warps read the number of this run before it is counted.
    std::uint32_t* const runs = args.counters + blockIdx.x;
    const std::uint32_t run = *runs + 1;
    asm volatile("bar.sync 3, 64;\n" ::: "memory");
    if (threadIdx.x == (kRowWarps + 2) * 32) *runs = run;
    row_chain::bring_rows(args, at, row, run, warp - (kRowWarps + 2));
  }
#endif
}

}  // namespace pipit::internal::cuda
