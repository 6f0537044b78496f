// The kernel of "spread_chain" (spread_chain_plan.h): blocks that stay, and go from convolution to convolution. Eight
// warps compute tiles. One more brings descriptions and weights ahead, another says which blocks of the cluster may be
// sent sums.
//
// Nobody counts who has finished: a word of a value that is not written yet is zero, and whoever reads it reads again.
// Written words are never zero, since values are stored with their bits flipped, so that zero is what no value becomes:
// -128 in INT8 (kept out by the plan), a NaN that no rounding makes in halves. Every value has its place in one of two
// sets, which runs take turns at; meanwhile the other set becomes zeros again.
#pragma once

#include <cstdint>
#include <type_traits>

#include "layers/cuda/chain/spread_chain_launch.h"
#include "layers/cuda/conv/conv_spread_parts.cuh"

namespace pipit::cuda {

#ifdef PIPIT_WARPGROUP_MMA

namespace spread_chain {

inline constexpr int kWarps = kSpreadThreads / 32;

/// Flips the bits of stored values.
template <typename Sum>
inline constexpr std::uint32_t kFlip = std::is_same_v<Sum, float> ? 0xFFFFFFFFU : 0x80808080U;

/// Barriers in shared memory, in pairs that are taken in turns.
struct Barriers {
  std::uint32_t have_weights, free_weights;  // by tiles
  std::uint32_t have_link, link_done;        // by convolutions that the block has tiles of
  std::uint32_t have_sums, may_send;         // by all convolutions
  static constexpr int kCount = 12;

  __device__ __forceinline__ explicit Barriers(std::uint32_t first)
      : have_weights(first),
        free_weights(first + 16),
        have_link(first + 32),
        link_done(first + 48),
        have_sums(first + 64),
        may_send(first + 80) {}
  /// One thread.
  __device__ __forceinline__ void init() const {
    const auto init = [](std::uint32_t pair, int arrivals) {
      ptx::init_barrier(pair, arrivals), ptx::init_barrier(pair + 8, arrivals);
    };
    init(have_weights, 1), init(free_weights, kWarps);
    init(have_link, 1), init(link_done, kWarps);
    init(have_sums, 1), init(may_send, kSpreadCluster);
    ptx::publish_barriers();
  }
};

/// A pair of them, the n-th time.
struct Turn {
  std::uint32_t pair;
  int n;

  __device__ __forceinline__ std::uint32_t barrier() const { return pair + n % 2 * 8; }
  __device__ __forceinline__ void wait() const { ptx::wait_barrier(barrier(), n / 2 % 2); }
  __device__ __forceinline__ void arrive() const { ptx::arrive(barrier()); }
};

struct Shared {
  SpreadLink link[2];  // that is computed, and the next one
  int blocks[kSpreadChainMostLinks];
  std::uint64_t barriers[Barriers::kCount];
  std::uint32_t run;
};

__device__ __forceinline__ const std::byte* address_of(const SpreadChainArgs& p, const SpreadValue& v,
                                                       std::uint32_t run) {
  switch (v.kind) {
    case SpreadValue::Kind::input: return p.inputs[v.input];
    case SpreadValue::Kind::inside: return p.values[run % 2] + v.offset;
    case SpreadValue::Kind::output: return p.y;
    default: return nullptr;
  }
}

/// Stored by another block meanwhile, perhaps.
template <typename Words>
__device__ __forceinline__ Words load_now(const void* from) {
  Words v;
  if constexpr (sizeof(Words) == 16) {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
  } else if constexpr (sizeof(Words) == 8) {
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];\n" : "=r"(v.x), "=r"(v.y) : "l"(from) : "memory");
  } else {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];\n" : "=r"(v) : "l"(from) : "memory");
  }
  return v;
}
__device__ __forceinline__ bool is_there(std::uint32_t v) {
  return v != 0;
}
__device__ __forceinline__ bool is_there(const uint2& v) {
  return v.x != 0 && v.y != 0;
}
__device__ __forceinline__ bool is_there(const uint4& v) {
  return v.x != 0 && v.y != 0 && v.z != 0 && v.w != 0;
}
__device__ __forceinline__ void flip(std::uint32_t& v, std::uint32_t bits) {
  v ^= bits;
}
__device__ __forceinline__ void flip(uint2& v, std::uint32_t bits) {
  v.x ^= bits, v.y ^= bits;
}

/// use(convolution, n) for those that the block has a tile of, n = 0, 1, ...
template <typename Use>
__device__ __forceinline__ void for_links(const SpreadChainArgs& p, const Shared& shared, Use use) {
  int n = 0;
  for (int l = 0; l < p.count; ++l) {
    if (static_cast<int>(blockIdx.x) < shared.blocks[l]) use(l, n++);
  }
}

/// One warp: descriptions, with the places of the steps, and weights, as room for them is made.
struct Supply {
  const SpreadChainArgs& p;
  Shared& shared;
  const Barriers& barriers;
  std::uint32_t base;
  int tiles = 0;

  __device__ __forceinline__ bool leads() const { return threadIdx.x % 32 == 0; }
  __device__ __forceinline__ void describe(int l, int n) const {
    constexpr int kChunks = sizeof(SpreadLink) / 16;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    SpreadLink& link = shared.link[n % 2];
    for (int c = lane; c < kChunks; c += 32)
      reinterpret_cast<uint4*>(&link)[c] = reinterpret_cast<const uint4*>(p.links + l)[c];
    __syncwarp();
    for (int step = lane; step < link.args.plan.steps; step += 32)
      spread::store_pair(base + p.places + n % 2 * p.places_bytes + step * 8, spread::place_of(link.args, step));
  }
  __device__ __forceinline__ void bring_weights(int n, int block) {
    if (tiles >= 2) Turn{barriers.free_weights, tiles - 2}.wait();
    const SpreadArgs& args = shared.link[n % 2].args;
    if (leads())
      spread::copy_weights(args, spread::Tile(args, block), base + tiles % 2 * p.weights_bytes,
                           Turn{barriers.have_weights, tiles}.barrier());
    ++tiles;
  }
  /// What needs no other kernel: the first tile's.
  __device__ __forceinline__ void begin() {
    bool first = true;
    for_links(p, shared, [&](int l, int n) {
      if (!first) return;
      describe(l, n);
      bring_weights(n, static_cast<int>(blockIdx.x));
      first = false;
    });
  }
  __device__ __forceinline__ void run() {
    for_links(p, shared, [&](int l, int n) {
      if (n >= 2) Turn{barriers.link_done, n - 2}.wait();
      if (n > 0) describe(l, n);
      __syncwarp();
      if (leads()) {
        SpreadLink& link = shared.link[n % 2];
        ConvGemmArgs& args = link.args.conv;
        args.x = address_of(p, link.x, shared.run), args.residual = address_of(p, link.residual, shared.run);
        args.y = const_cast<std::byte*>(address_of(p, link.y, shared.run));
        Turn{barriers.have_link, n}.arrive();
      }
      for (int block = static_cast<int>(blockIdx.x); block < shared.blocks[l]; block += static_cast<int>(gridDim.x)) {
        if (n > 0 || block != static_cast<int>(blockIdx.x)) bring_weights(n, block);
      }
      __syncwarp();
    });
  }
};

/// One warp: zeros in the places of the next run's values; then, whenever this block has done a convolution, or has
/// nothing to do for it, all blocks of the cluster may send it what belongs to the next but one.
__device__ __forceinline__ void permit(const SpreadChainArgs& p, const Shared& shared, const Barriers& barriers) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto* zeros = reinterpret_cast<uint4*>(p.values[(shared.run + 1) % 2]);
  const auto count = static_cast<int>(p.values_bytes / 16);
  for (int i = static_cast<int>(blockIdx.x) * 32 + lane; i < count; i += static_cast<int>(gridDim.x) * 32)
    zeros[i] = make_uint4(0, 0, 0, 0);
  int n = 0;
  for (int l = 0; l < p.count; ++l) {
    if (static_cast<int>(blockIdx.x) < shared.blocks[l]) Turn{barriers.link_done, n++}.wait();
    if (lane < kSpreadCluster) ptx::arrive_in_block(ptx::in_block(Turn{barriers.may_send, l}.barrier(), lane));
  }
}

/// The pixels of a tile, when they are there. inside: the chain computes them. between(): is done while the first ones
/// are under way.
template <typename Sum, typename Between>
__device__ __forceinline__ void bring_pixels(const SpreadArgs& a, const spread::Pixels& pixels, bool inside,
                                             Between between) {
  const ConvShape& s = a.conv.shape;
  constexpr int kAtOnce = 4;
  const auto address = [&](int i) {
    int pixel = i - pixels.mine;
    if (a.plan.held == SpreadPixels::gathered) {
      const PixelOrigin o = pixel_origin(s, a.conv.positions, a.conv.out_width, pixels.first + i);
      pixel = (o.image * s.in_h + o.h) * s.in_w + o.w;
    }
    return pixels.from + static_cast<std::int64_t>(pixel) * (s.in_c * 2);
  };
  const std::uint32_t bits = inside ? kFlip<Sum> : 0;
  uint4 v[kAtOnce];
  const auto load = [&](int first) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      v[u] = make_uint4(bits, bits, bits, bits);  // zeros, which channels beyond a pixel's are
      if (first + u * pixels.stride < pixels.count && pixels.there) v[u] = load_now<uint4>(address(first + u * pixels.stride));
    }
  };
  load(pixels.mine);
  between();
  for (int first = pixels.mine; first < pixels.count;) {
    if (inside) {
      bool missing = true;
      while (missing) {
        missing = false;
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
          if (!is_there(v[u])) v[u] = load_now<uint4>(address(first + u * pixels.stride)), missing = true;
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (first + u * pixels.stride < pixels.count)
        spread::store_words(pixels.to + (first - pixels.mine + u * pixels.stride) * a.plan.pitch, v[u].x ^ bits,
                            v[u].y ^ bits, v[u].z ^ bits, v[u].w ^ bits);
    }
    first += kAtOnce * pixels.stride;
    if (first < pixels.count) load(first);
  }
}

/// Eight warps: tiles.
template <typename Sum, typename Epilogue>
__device__ __forceinline__ void compute(const SpreadChainArgs& p, Shared& shared, typename Epilogue::Columns& columns,
                                        const Barriers& barriers, std::uint32_t base) {
  using Four = typename Epilogue::Four;
  int tiles = 0, received[2] = {};
  const bool leads = threadIdx.x % 32 == 0;
  for_links(p, shared, [&](int l, int n) {
    if (l + 1 == p.count) ptx::release_next_kernel();
    Turn{barriers.have_link, n}.wait();
    const SpreadLink& link = shared.link[n % 2];
    const SpreadArgs a = link.args;  // in registers, what is used of it
    const ConvGemmArgs& args = a.conv;
    const bool x_inside = link.x.kind == SpreadValue::Kind::inside;
    const bool residual_inside = link.residual.kind == SpreadValue::Kind::inside;
    const std::uint32_t y_bits = link.y.kind == SpreadValue::Kind::inside ? kFlip<Sum> : 0;
    const std::uint32_t have_sums = Turn{barriers.have_sums, l}.barrier();
    for (int block = static_cast<int>(blockIdx.x); block < shared.blocks[l];
         block += static_cast<int>(gridDim.x), ++tiles) {
      const spread::Rooms rooms{base + tiles % 2 * p.weights_bytes,
                                base + p.x,
                                base + p.zeros,
                                base + p.places + n % 2 * p.places_bytes,
                                base + p.sums,
                                base + p.received + l % 2 * (kSpreadRows * kSpreadColumns * 4)};
      const spread::Tile tile(a, block);
      const spread::Finish finish(a, tile);
      const spread::Pixels pixels(a, tile, rooms);
      Epilogue::load(args, tile.first_column, columns);
      ptx::commit_copies();
      if (threadIdx.x == 0 && !finish.alone) ptx::arrive_expecting(have_sums, finish.received_bytes(a));
      Sum sums[kSpreadColumns / 8][4] = {};
      spread::Products<Sum> products(a, rooms);
      const spread::LaneRow row(a, tile, pixels, rooms);
      bring_pixels<Sum>(a, pixels, x_inside, [&] { products.find(row, 0); });
      Four held[spread::Finish::kQuads] = {};
      const auto fetch = [&](int u) {
        return load_now<Four>(static_cast<const std::uint8_t*>(args.residual) +
                              finish.at(u) * (sizeof(Four) / 4));
      };
      if (args.residual != nullptr) {
#pragma unroll
        for (int u = 0; u < spread::Finish::kQuads; ++u) {
          if (finish.has(u)) held[u] = fetch(u);
        }
      }
      ptx::wait_copies<0>();
      Turn{barriers.have_weights, tiles}.wait();
      spread::meet();
      products.multiply(row, sums);
      if (leads) Turn{barriers.free_weights, tiles}.arrive();
      spread::store_sums(rooms.sums, sums);
      const typename Epilogue::Constants constants = Epilogue::constants(args, columns, finish.channel);
      if (residual_inside) {
#pragma unroll
        for (int u = 0; u < spread::Finish::kQuads; ++u) {
          while (finish.has(u) && !is_there(held[u])) held[u] = fetch(u);
          flip(held[u], kFlip<Sum>);
        }
      }
      spread::meet();
      if (!finish.alone && l >= 2) ptx::wait_cluster_barrier(Turn{barriers.may_send, l}.barrier(), (l / 2 - 1) % 2);
#pragma unroll
      for (int u = 0; u < spread::Finish::kQuads; ++u) {
        Sum sum[4] = {};
        finish.add_groups(rooms, u, sum);
        if (!finish.alone) {
          finish.send(a, tile, rooms, u, sum, static_cast<int>(ptx::cluster_rank()) - tile.slice, have_sums);
        } else if (finish.has(u)) {
          Epilogue::finish(args, columns, constants, sum, held[u], finish.at(u), finish.left, y_bits);
        }
      }
      if (!finish.alone) {
        ptx::wait_cluster_barrier(have_sums, l % 2 == 0 ? received[0]++ % 2 : received[1]++ % 2);
        if (finish.has(0)) {
          Sum sum[4] = {};
          finish.add_received(a, rooms, sum);
          Epilogue::finish(args, columns, constants, sum, held[0], finish.at(0), finish.left, y_bits);
        }
      }
    }
    __syncwarp();
    if (leads) Turn{barriers.link_done, n}.arrive();
  });
}

}  // namespace spread_chain

#endif

/// Sum: float for halves, std::int32_t for bytes. Epilogue: SpreadHalf or SpreadInt8.
template <typename Sum, typename Epilogue>
__global__ void __launch_bounds__(kSpreadChainThreads, 1) run_spread_chain(const __grid_constant__ SpreadChainArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  extern __shared__ __align__(128) std::uint8_t dynamic[];
  __shared__ spread_chain::Shared shared;
  __shared__ __align__(16) typename Epilogue::Columns columns;
  const spread_chain::Barriers barriers(ptx::shared_address(shared.barriers));
  const std::uint32_t base = ptx::shared_address(dynamic);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) barriers.init();
  if (threadIdx.x < kSpreadStepBytes / 16) spread::store_words(base + p.zeros + threadIdx.x * 16, 0, 0, 0, 0);
  for (int l = static_cast<int>(threadIdx.x); l < p.count; l += kSpreadChainThreads)
    shared.blocks[l] = p.links[l].blocks;
  __syncthreads();
  ptx::arrive_in_cluster();
  spread_chain::Supply supply{p, shared, barriers, base};
  if (warp == spread_chain::kWarps) supply.begin();
  __syncwarp();
  ptx::wait_for_previous_kernel();
  if (threadIdx.x == 0) shared.run = ++p.runs[blockIdx.x];
  // Nobody sends before the cluster's blocks have their barriers.
  ptx::wait_in_cluster();
  __syncthreads();
  if (warp < spread_chain::kWarps) {
    spread_chain::compute<Sum, Epilogue>(p, shared, columns, barriers, base);
  } else if (warp == spread_chain::kWarps) {
    supply.run();
  } else {
    spread_chain::permit(p, shared, barriers);
  }
  // Nobody leaves before all that others tell him has arrived.
  __syncwarp();
  ptx::cluster_barrier();
#endif
}

}  // namespace pipit::cuda
