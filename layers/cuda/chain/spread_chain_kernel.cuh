// The kernel of "spread_chain" (spread_chain_plan.h): blocks that stay, and go from convolution to convolution. Eight
// warps compute tiles. Three others have one thing to do each, which would keep the eight: one brings descriptions and
// weights ahead, one waits for what other blocks compute, one tells them what this one has computed.
#pragma once

#include <cstdint>

#include "layers/cuda/chain/spread_chain_launch.h"
#include "layers/cuda/conv/conv_spread_parts.cuh"

namespace pipit::cuda {

#ifdef PIPIT_WARPGROUP_MMA

namespace spread_chain {

inline constexpr int kWarps = kSpreadThreads / 32;

/// Barriers in shared memory. Pairs are taken in turns, by the convolutions that a block has tiles of, and by tiles.
struct Barriers {
  std::uint32_t have_sums;
  std::uint32_t have_weights, free_weights;  // of a tile
  std::uint32_t have_link, link_done;        // the description; and who computes has left it
  std::uint32_t have_x, all_before;          // of other blocks
  static constexpr int kCount = 13;

  __device__ __forceinline__ explicit Barriers(std::uint32_t first)
      : have_sums(first),
        have_weights(first + 8),
        free_weights(first + 24),
        have_link(first + 40),
        link_done(first + 56),
        have_x(first + 72),
        all_before(first + 88) {}
  /// One thread.
  __device__ __forceinline__ void init() const {
    const auto init = [](std::uint32_t pair, int arrivals) {
      ptx::init_barrier(pair, arrivals), ptx::init_barrier(pair + 8, arrivals);
    };
    ptx::init_barrier(have_sums, 1);
    init(have_weights, 1), init(free_weights, kWarps);
    init(have_link, 1), init(link_done, kWarps);
    init(have_x, 1), init(all_before, 1);
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

/// What everybody knows of every convolution.
struct Known {
  int blocks[kSpreadChainMostLinks];  // of threads that there is a tile or a slice of one for, one after the other
  int x_link[kSpreadChainMostLinks];
};

struct Shared {
  SpreadLink link[2];
  Known known;
  std::uint64_t barriers[Barriers::kCount];
};

__device__ __forceinline__ const std::byte* address_of(const SpreadChainArgs& p, const SpreadValue& v) {
  switch (v.kind) {
    case SpreadValue::Kind::input: return p.inputs[v.input];
    case SpreadValue::Kind::scratch: return p.scratch + v.offset;
    case SpreadValue::Kind::output: return p.y;
    default: return nullptr;
  }
}

/// use(convolution, n) for those that the block has a tile of, n = 0, 1, ...
template <typename Use>
__device__ __forceinline__ void for_links(const SpreadChainArgs& p, const Known& known, Use use) {
  int n = 0;
  for (int l = 0; l < p.count; ++l) {
    if (static_cast<int>(blockIdx.x) < known.blocks[l]) use(l, n++);
  }
}

/// One warp: descriptions and weights, as room for them is made.
__device__ __forceinline__ void supply(const SpreadChainArgs& p, Shared& shared, const Barriers& barriers,
                                       std::uint32_t weights) {
  constexpr int kChunks = sizeof(SpreadLink) / 16;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int tile = 0;
  for_links(p, shared.known, [&](int l, int n) {
    SpreadLink& link = shared.link[n % 2];
    if (n >= 2) Turn{barriers.link_done, n - 2}.wait();
    for (int c = lane; c < kChunks; c += 32)
      reinterpret_cast<uint4*>(&link)[c] = reinterpret_cast<const uint4*>(p.links + l)[c];
    __syncwarp();
    if (lane == 0) {
      ConvGemmArgs& args = link.args.conv;
      args.x = address_of(p, link.x), args.residual = address_of(p, link.residual);
      args.y = const_cast<std::byte*>(address_of(p, link.y));
      Turn{barriers.have_link, n}.arrive();
    }
    for (int block = static_cast<int>(blockIdx.x); block < shared.known.blocks[l];
         block += static_cast<int>(gridDim.x), ++tile) {
      if (tile >= 2) Turn{barriers.free_weights, tile - 2}.wait();
      if (lane == 0)
        spread::copy_weights(link.args, spread::Tile(link.args, block), weights + tile % 2 * p.weights_bytes,
                             Turn{barriers.have_weights, tile}.barrier());
    }
    __syncwarp();
  });
}

/// One thread: waits for other blocks.
__device__ __forceinline__ void watch(const SpreadChainArgs& p, const Known& known, const Barriers& barriers) {
  ptx::wait_for_previous_kernel();
  const std::uint32_t run = ++p.counters[blockIdx.x];
  const std::uint32_t* done = p.counters + gridDim.x;
  int until = -1;  // convolutions up to this one are done
  const auto wait_for = [&](int link) {
    if (link <= until) return;
    ptx::wait_on_gpu(done + link, run * min(known.blocks[link], static_cast<int>(gridDim.x)));
    until = link;
  };
  for_links(p, known, [&](int l, int n) {
    wait_for(known.x_link[l]);
    Turn{barriers.have_x, n}.arrive();
    wait_for(l - 1);
    Turn{barriers.all_before, n}.arrive();
  });
}

/// One thread: tells other blocks.
__device__ __forceinline__ void tell(const SpreadChainArgs& p, const Known& known, const Barriers& barriers) {
  std::uint32_t* done = p.counters + gridDim.x;
  for_links(p, known, [&](int l, int n) {
    Turn{barriers.link_done, n}.wait();
    ptx::count_up_on_gpu(done + l);
  });
}

/// Eight warps: tiles.
template <typename Sum, typename Epilogue>
__device__ __forceinline__ void compute(const SpreadChainArgs& p, Shared& shared, typename Epilogue::Columns& columns,
                                        const Barriers& barriers, std::uint32_t base) {
  ptx::wait_for_previous_kernel();
  int tiles = 0, received = 0;
  const bool leads = threadIdx.x % 32 == 0;
  for_links(p, shared.known, [&](int l, int n) {
    if (l + 1 == p.count) ptx::release_next_kernel();
    Turn{barriers.have_link, n}.wait();
    const SpreadArgs a = shared.link[n % 2].args;  // in registers, what is used of it
    const ConvGemmArgs& args = a.conv;
    const Turn have_x{barriers.have_x, n}, all_before{barriers.all_before, n};
    for (int block = static_cast<int>(blockIdx.x); block < shared.known.blocks[l];
         block += static_cast<int>(gridDim.x), ++tiles) {
      const spread::Rooms rooms{base + tiles % 2 * p.weights_bytes, base + p.x,    base + p.zeros,
                                base + p.places,                    base + p.sums, base + p.received};
      const spread::Tile tile(a, block);
      const spread::Finish finish(a, tile);
      Epilogue::load(args, tile.first_column, columns);
      spread::store_places(a, rooms);
      if (threadIdx.x == 0 && !finish.alone) ptx::arrive_expecting(barriers.have_sums, finish.received_bytes(a));
      const spread::Pixels pixels(a, tile, rooms);
      const spread::LaneRow row(a, tile, pixels, rooms);
      Sum sums[kSpreadColumns / 8][4] = {};
      spread::meet();
      spread::Products<Sum> products(a, rooms);
      products.find(row, 0);
      have_x.wait();
      pixels.copy(a);
      ptx::commit_copies();
      // Nobody sends or writes before everybody has finished what is in front.
      all_before.wait();
      typename Epilogue::Four held[spread::Finish::kQuads];
#pragma unroll
      for (int u = 0; u < spread::Finish::kQuads; ++u)
        held[u] = Epilogue::fetch_residual(args, finish.has(u), finish.at(u));
      ptx::wait_copies<0>();
      Turn{barriers.have_weights, tiles}.wait();
      spread::meet();
      products.multiply(row, sums);
      if (leads) Turn{barriers.free_weights, tiles}.arrive();
      spread::store_sums(rooms.sums, sums);
      const typename Epilogue::Constants constants = Epilogue::constants(args, columns, finish.channel);
      spread::meet();
#pragma unroll
      for (int u = 0; u < spread::Finish::kQuads; ++u) {
        Sum sum[4] = {};
        finish.add_groups(rooms, u, sum);
        if (!finish.alone) {
          finish.send(a, tile, rooms, u, sum, static_cast<int>(ptx::cluster_rank()) - tile.slice,
                      barriers.have_sums);
        } else if (finish.has(u)) {
          Epilogue::finish(args, columns, constants, sum, held[u], finish.at(u), finish.left);
        }
      }
      if (!finish.alone) {
        ptx::wait_cluster_barrier(barriers.have_sums, received++ % 2);
        if (finish.has(0)) {
          Sum sum[4] = {};
          finish.add_received(a, rooms, sum);
          Epilogue::finish(args, columns, constants, sum, held[0], finish.at(0), finish.left);
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
  const int warp = static_cast<int>(threadIdx.x) / 32 - spread_chain::kWarps;
  if (threadIdx.x == 0) barriers.init();
  for (int l = static_cast<int>(threadIdx.x); l < p.count; l += kSpreadChainThreads)
    shared.known.blocks[l] = p.links[l].blocks, shared.known.x_link[l] = p.links[l].x_link;
  __syncthreads();
  // Nobody sends before the cluster's blocks have their barriers.
  ptx::cluster_barrier();
  if (warp < 0) {
    spread_chain::compute<Sum, Epilogue>(p, shared, columns, barriers, base);
  } else if (warp == 0) {
    spread_chain::supply(p, shared, barriers, base);
  } else if (threadIdx.x % 32 == 0) {
    warp == 1 ? spread_chain::watch(p, shared.known, barriers) : spread_chain::tell(p, shared.known, barriers);
  }
#endif
}

}  // namespace pipit::cuda
