// The kernel of "spread_gemm" (conv_spread_plan.h): everything that does not depend on the kernel in front, weights
// included, is done before the wait for it. Behind it a block reads its pixels once, multiplies without waiting for
// anything, and sends its sums to those blocks of its cluster that finish them.
#pragma once

#include <cstdint>

#include "layers/cuda/conv/conv_spread_parts.cuh"

namespace pipit::cuda {

/// Sum: float for halves, std::int32_t for bytes. Epilogue: SpreadHalf or SpreadInt8.
template <typename Sum, typename Epilogue>
__global__ void __launch_bounds__(kSpreadThreads, 2) spread_gemm(const __grid_constant__ SpreadArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  extern __shared__ __align__(128) std::uint8_t dynamic[];
  __shared__ __align__(16) typename Epilogue::Columns columns;
  __shared__ __align__(8) std::uint64_t barriers[2];
  const ConvGemmArgs& args = p.conv;
  const std::uint32_t base = ptx::shared_address(dynamic);
  const std::uint32_t have_weights = ptx::shared_address(barriers), have_sums = have_weights + 8;
  const spread::Rooms rooms{base,
                            base + p.plan.x_at(),
                            base + p.plan.zeros_at(),
                            base + p.plan.places_at(),
                            base + p.plan.sums_at(),
                            base + p.plan.received_at()};
  const spread::Tile tile(p, static_cast<int>(blockIdx.x));
  const spread::Finish finish(p, tile);
  if (threadIdx.x == 0) {
    ptx::init_barrier(have_weights, 1);
    ptx::init_barrier(have_sums, 1);
    ptx::publish_barriers();
    spread::copy_weights(p, tile, rooms.weights, have_weights);
    ptx::arrive_expecting(have_sums, finish.received_bytes(p));
  }
  // Nobody sends before all have their barriers, which publish_barriers() has made visible.
  if (!finish.alone) ptx::arrive_in_cluster();
  Epilogue::load(args, tile.first_column, columns);
  spread::store_places(p, rooms);
  const spread::Pixels pixels(p, tile, rooms);
  const spread::LaneRow row(p, tile, pixels, rooms);
  Sum sums[kSpreadColumns / 8][4] = {};
  __syncthreads();
  spread::Products<Sum> products(p, rooms);
  products.find(row, 0);

  typename Epilogue::Four held[spread::Finish::kQuads];
  const auto fetch_residual = [&] {
#pragma unroll
    for (int u = 0; u < spread::Finish::kQuads; ++u)
      held[u] = Epilogue::fetch_residual(args, finish.has(u), finish.at(u));
  };
  const auto wait = [] {
    ptx::wait_for_previous_kernel();
    ptx::release_next_kernel();
  };
  // Where x is settled only what is added to it, and y, have to wait.
  if (!p.x_is_settled) wait();
  pixels.copy(p);
  ptx::commit_copies();
  if (!p.x_is_settled) fetch_residual();
  if (!finish.alone) ptx::wait_in_cluster();
  ptx::wait_copies<0>();
  ptx::wait_barrier(have_weights, 0);
  __syncthreads();
  products.multiply(row, sums);
  if (p.x_is_settled) {
    wait();
    fetch_residual();
  }
  spread::store_sums(rooms.sums, sums);
  const typename Epilogue::Constants constants = Epilogue::constants(args, columns, finish.channel);
  __syncthreads();
#pragma unroll
  for (int u = 0; u < spread::Finish::kQuads; ++u) {
    Sum sum[4] = {};
    finish.add_groups(rooms, u, sum);
    if (!finish.alone) {
      finish.send(p, tile, rooms, u, sum, 0, have_sums);
    } else if (finish.has(u)) {
      Epilogue::finish(args, columns, constants, sum, held[u], finish.at(u), finish.left);
    }
  }
  if (finish.alone || !finish.has(0)) return;
  ptx::wait_barrier(have_sums, 0);
  Sum sum[4] = {};
  finish.add_received(p, rooms, sum);
  Epilogue::finish(args, columns, constants, sum, held[0], finish.at(0), finish.left);
#endif
}

}  // namespace pipit::cuda
