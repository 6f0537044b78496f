// The implicit-GEMM kernel: output positions x output channels on the tensor cores, in fp16 with fp32 sums or in INT8
// with int32 sums.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/gemm_tile.cuh"
#include "layers/cuda/conv/implicit_gemm/average.cuh"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::cuda {

/// Listed: only blocks of k that have weights (ConvGemmArgs::blocks): in one kernel with the walk through all of them
/// every launch would take 0.4 us longer. Epilogue: HalfEpilogue, Int8Epilogue, or of averages HalfAverage or
/// Int8Average, of the same traits.
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
  // Only the weights may be read before the kernel in front has finished.
#pragma unroll
  for (int s = 0; s < T::kStages - 1; ++s) {
    if (s < steps) loader.load_right(base + s * T::kStageBytes);
  }
  __shared__ typename Epilogue::Columns columns;
  Epilogue::load(args, first_column, columns);
  ConvGemmFragments<T> fragments;
  Epilogue::start(args, fragments, first_column, split);
  // In this order at most one kernel waits beside the one that runs: released before the wait, the kernel behind the
  // next begins as well, and its blocks take the room that the next one's need.
  ptx::wait_for_previous_kernel();
  ptx::release_next_kernel();
  // The residual takes the buffer of the step behind the last, as soon as that one is free.
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
    // Everybody has passed the barrier, so the stage before this one is free.
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

// Compiled instances of the implicit-GEMM kernel and their launch.

/// One compiled instance of the kernel.
struct ConvGemmInstance {
  int rows, columns, vector;
  bool listed;
  int threads;
  int shared;  // bytes with all stages
  int stages;
  int stage_bytes;
  int sum_bytes;   // of the tile of sums that a cluster exchanges
  int tile_bytes;  // of the tile of residual and y
  const void* function;
};

template <typename T, bool Listed, template <typename> typename Epilogue>
ConvGemmInstance instance() {
  return {T::kRows,
          T::kColumns,
          T::kVector,
          Listed,
          T::kThreads,
          T::kShared,
          T::kStages,
          T::kStageBytes,
          T::kSumBytes,
          T::kInt8 ? 0 : T::kTileBytes,
          reinterpret_cast<const void*>(&conv_gemm<T, Listed, Epilogue<T>>)};
}

/// The kernel of this tile that averages what it computes (conv_gemm_average.cu), and copies eight units of x at once;
/// null when there is no such kernel.
const ConvGemmInstance* average_instance(const ConvTile& tile, bool int8, bool unstored);

/// INT8, of ConvShape::unstored (qconv_implicit_gemm_ends.cu); null when there is no such kernel.
const ConvGemmInstance* unstored_instance(const ConvTile& tile, const ConvGemmArgs& args);

/// Lets the kernel use its shared memory. cudaErrorInvalidValue for null.
inline cudaError_t prepare_instance(const ConvGemmInstance* instance) {
  if (instance == nullptr) return cudaErrorInvalidValue;
  return allow_shared(instance->function, instance->shared);
}

/// After prepare_instance: launches only.
inline cudaError_t launch_instance(const ConvGemmInstance* instance, const ConvGemmArgs& args,
                                   cudaStream_t stream) {
  if (instance == nullptr) return cudaErrorInvalidValue;
  const bool averages = args.average.images > 0;
  const int rows = averages ? args.average.rows : instance->rows;
  LaunchShape shape{dim3(static_cast<unsigned>(ceil_div(args.rows, rows) * args.column_tiles),
                         static_cast<unsigned>(args.splits)),
                    dim3(static_cast<unsigned>(instance->threads))};
  // A short depth does not need every stage, and without them more blocks fit a multiprocessor.
  const int steps = static_cast<int>(ceil_div(args.steps, args.splits));
  const int stages = std::min(steps, instance->stages) * instance->stage_bytes;
  const int tile_bytes = steps < instance->stages ? instance->tile_bytes : 0;  // else in a stage
  shape.shared_bytes = static_cast<std::size_t>(
      args.splits > 1 || averages ? std::max(stages, instance->sum_bytes) : stages + tile_bytes);
  shape.overlap = args.overlap;
  shape.cluster = dim3(1, static_cast<unsigned>(args.splits));
  return launch_kernel(instance->function, shape, stream, args);
}

}  // namespace pipit::cuda
