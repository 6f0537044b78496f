// Compiled instances of the implicit-GEMM kernel and their launch.
#pragma once

#include <algorithm>

#include "layers/cuda/conv/implicit_gemm/kernel.cuh"
#include "layers/cuda/device/launch.cuh"

namespace pipit::internal::cuda {

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

/// The kernel of this tile that averages what it computes (average.cu), and copies eight units of x at once;
/// null when there is no such kernel.
const ConvGemmInstance* average_instance(const ConvTile& tile, bool int8, bool unstored);

/// INT8, of ConvShape::unstored (int8_unstored.cu); null when there is no such kernel.
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

}  // namespace pipit::internal::cuda
