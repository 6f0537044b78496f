// The implicit-GEMM kernel: output positions x output channels on the tensor cores, in fp16 with fp32 sums or in INT8
// with int32 sums.
#pragma once

#include <cstdint>
#include <type_traits>

#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/gemm_tile.cuh"
#include "layers/cuda/conv/implicit_gemm/average.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::internal::cuda {

/// Listed: only blocks of k that have weights (ConvGemmArgs::blocks): a kernel of its own, since one that could also
/// walk through all of them would make every launch slower. Epilogue: HalfEpilogue, Int8Epilogue, or of averages
/// HalfAverage or Int8Average, of the same traits.
template <typename T, bool Listed, typename Epilogue>
__global__ void __launch_bounds__(T::kThreads, T::kBlocks)
    conv_gemm(const __grid_constant__ ConvGemmArgs args) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const int warp = threadIdx.x / 32;
  const int row_tile = blockIdx.x / args.column_tiles;
  const int first_row = row_tile * (Epilogue::kAverages ? args.average.rows : T::kRows);
  const int column_tile = blockIdx.x - row_tile * args.column_tiles;
  const int first_column = column_tile * T::kColumns;
  const int split = blockIdx.y;
  int tile_steps = args.steps;
  if constexpr (Listed) {
    if (args.tile_steps != nullptr) tile_steps = args.tile_steps[column_tile];
  }
  const int first_step = tile_steps * split / args.splits;
  const int steps = tile_steps * (split + 1) / args.splits - first_step;

  using Loader = ConvGemmLoader<T, Listed, Epilogue::kAverages>;
  Loader loader(args, first_row, column_tile, first_step);
  // Listed blocks are read a step ahead.
  typename Loader::Blocks ahead[T::kStages];
  if constexpr (Listed) {
#pragma unroll
    for (int s = 0; s < T::kStages; ++s) {
      if (s < steps) ahead[s] = loader.listed(s);
    }
  }
  const std::uint32_t base = ptx::shared_address(shared);
  // Only the weights may be read before the previous kernel has finished.
#pragma unroll
  for (int s = 0; s < T::kStages - 1; ++s) {
    if (s < steps) loader.load_right(base + s * T::kStageBytes);
  }
  __shared__ typename Epilogue::Columns columns;
  Epilogue::load(args, first_column, columns);
  ConvGemmFragments<T> fragments;
  Epilogue::start(args, fragments, first_column, split);
  // In this order at most one kernel waits beside the one that runs: if it were released before the wait, the kernel
  // after the next would begin as well, and its blocks would take the room that those of the next one need.
  ptx::wait_for_previous_kernel();
  ptx::release_next_kernel();
  // The residual takes the buffer of the step after the last, as soon as that one is free.
  const bool staged = Epilogue::stages_residual(args);
  const int tile_stage = steps % T::kStages;
  const auto load_left = [&](int step, int stage, const typename Loader::Blocks& blocks) {
    if (step < steps) {
      loader.load_left(base + stage * T::kStageBytes, blocks);
    } else if (step == steps && staged) {
      load_residual<T>(args, base + stage * T::kStageBytes, first_row, first_column);
    }
  };
#pragma unroll
  for (int s = 0; s < T::kStages - 1; ++s) {
    load_left(s, s, ahead[s]);
    ptx::commit_copies();
  }
  typename Loader::Blocks next = ahead[T::kStages - 1];
  using Writer =
      std::conditional_t<Epilogue::kAverages, ConvGemmAverage<T, Epilogue>, ConvGemmShare<T, Epilogue>>;
  Writer writer(args, first_row, first_column);
  if (Epilogue::kAverages || args.splits > 1) writer.fetch_residual();

  int stage = 0;
  int next_stage = T::kStages - 1;
  for (int step = 0; step < steps; ++step) {
    ptx::wait_copies<T::kStages - 2>();
#ifdef PIPIT_WARPGROUP_MMA
    ptx::publish_shared();
#endif
    __syncthreads();
    const std::uint32_t left = base + stage * T::kStageBytes;
    fragments.multiply_step(left, left + T::kRows * T::kRowBytes, warp);
    // All threads have passed the barrier, so the stage before this one is free.
    load_left(step + T::kStages - 1, next_stage, next);
    if constexpr (Listed) {
      if (step + T::kStages < steps) next = loader.listed(step + T::kStages);
    }
    if (step + T::kStages - 1 < steps) loader.load_right(base + next_stage * T::kStageBytes);
    ptx::commit_copies();
    fragments.finish();
    stage = stage + 1 == T::kStages ? 0 : stage + 1;
    next_stage = next_stage + 1 == T::kStages ? 0 : next_stage + 1;
  }
  if constexpr (Epilogue::kAverages) {
    writer.write(fragments, shared, columns, row_tile * args.average.images);
  } else if (args.splits == 1) {
    // The last products read other stages, so the tile's may be written at once.
    if (staged) {
      ptx::wait_copies<0>();
      __syncthreads();
    }
    Epilogue::write_tile(args, fragments, shared + tile_stage * T::kStageBytes, columns, staged, first_row,
                         first_column);
  } else {
    // The sums go through shared memory, within reach of the cluster.
    __syncthreads();
    auto* tile = reinterpret_cast<typename T::Sum*>(shared);
    fragments.store(tile, warp);
    writer.write(tile, columns);
  }
}

}  // namespace pipit::internal::cuda
