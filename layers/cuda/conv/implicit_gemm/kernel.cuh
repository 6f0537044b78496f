// The implicit-GEMM kernel: output positions x output channels on the tensor cores, in fp16 and bf16 with fp32 sums or
// in INT8 with int32 sums.
#pragma once

#include <cooperative_groups.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/gemm_epilogue.cuh"
#include "layers/cuda/conv/gemm_tile.cuh"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda {

/// Neighbouring channels of a residual, as they lie in memory.
template <typename T, int Count>
struct alignas(Count* T::kOutputBytes) ConvResidualRun {
  static constexpr int kBytes = T::kOutputBytes;
  std::uint32_t word[Count * kBytes / 4] = {};

  ConvResidualRun() = default;
  /// Zeros where there is no residual, and after its channels. channel: a multiple of Count.
  __device__ __forceinline__ ConvResidualRun(const ConvGemmArgs& args, int row, int channel) {
    const int left = args.shape.out_c - channel;
    if (args.residual == nullptr || left <= 0) return;
    const auto* from =
        static_cast<const std::uint8_t*>(args.residual) + output_offset(args, row, channel) * kBytes;
    if (args.shape.out_c % 8 == 0) {
      *this = *reinterpret_cast<const ConvResidualRun*>(from);
      return;
    }
#pragma unroll
    for (int byte = 0; byte < Count * kBytes; ++byte) {
      if (byte < left * kBytes) word[byte / 4] |= static_cast<std::uint32_t>(from[byte]) << byte % 4 * 8;
    }
  }
};

/// What y's values are, in fp16 and bf16. Residuals and the clamped result are those of HalfEpilogue; the function is
/// chosen at run time, since what surrounds it is long.
template <typename T>
struct HalfAverage : HalfEpilogue<T, false> {
  using Base = HalfEpilogue<T, false>;
  using Element = typename T::Element;
  static constexpr bool kAverages = true;
  static constexpr int kTogether = 1;  // fragments that give a lane neighbouring channels

  static __device__ __forceinline__ bool stages_residual(const ConvGemmArgs&) { return false; }
  /// v: of Count neighbouring channels from `channel` of the tile on, before they are clamped. sum: bias included.
  template <bool Small, int Count>
  static __device__ __forceinline__ void add(const ConvGemmArgs&, const typename Base::Columns&,
                                             const typename T::Sum (&sum)[Count],
                                             const ConvResidualRun<T, Count>& residual, int, float* v) {
#pragma unroll
    for (int j = 0; j < Count; ++j) {
      const auto bits = static_cast<unsigned short>(residual.word[j / 2] >> j % 2 * 16);
      v[j] = sum[j] + cuda::load(of_bits<Element>(bits));
    }
  }
  /// As they would be read again.
  template <int Count>
  static __device__ __forceinline__ void finish(const ConvGemmArgs& args, float (&v)[Count]) {
    if (args.function.gate != HalfGate::none) {
      apply_clamped(args.function, args.low, args.high, v);
#pragma unroll
      for (float& x : v) x = rounded<Element>(x);
    } else {
#pragma unroll
      for (float& x : v) x = cuda::load(finish_value<Element>(args, x));
    }
  }
};

/// The same in INT8, of a y that is f32, f16 or bf16.
template <typename T>
struct Int8Average : Int8Epilogue<T, Int8Result::real> {
  using Base = Int8Epilogue<T, Int8Result::real>;
  static constexpr bool kAverages = true;

  /// Small: ConvGemmArgs::small.
  template <bool Small, int Count>
  static __device__ __forceinline__ void add(const ConvGemmArgs& args, const typename Base::Columns& columns,
                                             const int (&sum)[Count],
                                             const ConvResidualRun<T, Count>& residual, int channel,
                                             float* v) {
    // Channels of a run are pairs of neighbouring columns.
    const float* multipliers = columns.multiplier + Base::column_of(channel & ~7, channel & 7);
#pragma unroll
    for (int p = 0; p < Count / 2; ++p) {
      const float2 m = *reinterpret_cast<const float2*>(multipliers + p * 8);
      v[p * 2] = scaled(sum[p * 2], m.x, Small);
      v[p * 2 + 1] = scaled(sum[p * 2 + 1], m.y, Small);
    }
    if (args.residual == nullptr) return;
#pragma unroll
    for (int p = 0; p < Count / 2; ++p) {
      const float2 r =
          bytes_to_float(static_cast<std::uint16_t>(residual.word[p / 2] >> p % 2 * 16), kByteBase);
      v[p * 2] = with_residual(v[p * 2], r.x, args.residual_scale);
      v[p * 2 + 1] = with_residual(v[p * 2 + 1], r.y, args.residual_scale);
    }
  }
  template <int Count>
  static __device__ __forceinline__ void finish(const ConvGemmArgs& args, float (&v)[Count]) {
#pragma unroll
    for (float& x : v) x = clamp_value(x, args.low, args.high);
    if (args.stored == StoredType::f32) return;
    const bool half = args.stored == StoredType::f16;
#pragma unroll
    for (float& x : v) x = half ? rounded<__half>(x) : rounded<__nv_bfloat16>(x);
  }
};

/// From a tile's sums, in registers or in those of a cluster's blocks, to y's values in shared memory, and from these
/// to averages. Epilogue: HalfAverage or Int8Average.
template <typename T, typename Epilogue>
struct ConvGemmAverage {
  using F = ConvGemmFragments<T>;
  using Columns = typename Epilogue::Columns;
  static constexpr int kRun = Epilogue::kTogether * 2;       // neighbouring channels of a lane
  static constexpr int kRuns = F::kN / Epilogue::kTogether;  // of a row
  static constexpr int kRunStep = Epilogue::kTogether * 8;   // channels from one to the next
  static constexpr bool kHasRegisters = T::kThreads <= 128;  // for a residual beside the products
  static constexpr int kGroup = 8;  // channels that a thread finishes where a cluster shares the depth

  const ConvGemmArgs& args;
  int first_row, first_column;
  ConvResidualRun<T, kRun> held[F::kM][2][kRuns];

  __device__ __forceinline__ ConvGemmAverage(const ConvGemmArgs& a, int row, int column)
      : args(a), first_row(row), first_column(column) {}

  /// Starts reading the residual, long before it is needed.
  __device__ __forceinline__ void fetch_residual() {
    if (kHasRegisters && args.splits == 1) fetch();
  }

  /// After the last product. shared: of T::kSumBytes, where the steps were; first_image: of the tile.
  __device__ __forceinline__ void write(const F& fragments, std::uint8_t* shared, const Columns& columns,
                                        int first_image) {
    auto* values = reinterpret_cast<float*>(shared);
    if (args.splits > 1) return write_shared(fragments, values, columns, first_image);
    if (!kHasRegisters) fetch();
    __syncthreads();  // others' products have read the last steps as well
    if (T::kInt8 && args.small) {
      finish<true>(fragments, values, columns);
    } else {
      finish<false>(fragments, values, columns);
    }
    __syncthreads();
    average(values, first_image, 0, T::kColumns);
  }

 private:
  static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int row_of(int i, int h) {
    return F::first_row(warp()) + i * F::kRowStep + lane() / 4 + h * 8;
  }
  // The channel of the lane's first run.
  static __device__ __forceinline__ int channel() {
    const int column = F::first_column(warp()) + lane() % 4 * 2;
    return T::kInt8 ? packed_channel(column) : column;
  }
  // Whether y has this row of the tile, and the tile has to average it.
  __device__ __forceinline__ bool inside(int row) const {
    return row < args.average.rows && first_row + row < args.rows;
  }

  __device__ __forceinline__ void fetch() {
    const int first = first_column + channel();
#pragma unroll
    for (int i = 0; i < F::kM; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (!inside(row_of(i, h))) continue;
#pragma unroll
        for (int run = 0; run < kRuns; ++run)
          held[i][h][run] = {args, first_row + row_of(i, h), first + run * kRunStep};
      }
    }
  }

  template <bool Small>
  __device__ __forceinline__ void finish(const F& fragments, float* values, const Columns& columns) const {
#pragma unroll
    for (int i = 0; i < F::kM; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (!inside(row_of(i, h))) continue;
        float v[kRuns * kRun];
#pragma unroll
        for (int run = 0; run < kRuns; ++run) {
          const int from = channel() + run * kRunStep;
          typename T::Sum sum[kRun];
#pragma unroll
          for (int j = 0; j < kRun; ++j)
            sum[j] = Epilogue::first_sum(columns, from + j) +
                     fragments.sums[i][run * Epilogue::kTogether + j / 2][h * 2 + j % 2];
          Epilogue::template add<Small>(args, columns, sum, held[i][h][run], from, v + run * kRun);
        }
        Epilogue::finish(args, v);
#pragma unroll
        for (int run = 0; run < kRuns; ++run)
          store<kRun>(values + row_of(i, h) * T::kSumStride + channel() + run * kRunStep, v + run * kRun);
      }
    }
  }

  template <int Count>
  static __device__ __forceinline__ void store(float* to, const float* v) {
    if constexpr (Count == 2) {
      *reinterpret_cast<float2*>(to) = make_float2(v[0], v[1]);
    } else {
#pragma unroll
      for (int q = 0; q < Count; q += 4)
        *reinterpret_cast<float4*>(to + q) = make_float4(v[q], v[q + 1], v[q + 2], v[q + 3]);
    }
  }

  // Each block of the cluster finishes its share of the columns and overwrites its own sums of them, which no other
  // block reads.
  __device__ __forceinline__ void write_shared(const F& fragments, float* values, const Columns& columns,
                                               int first_image) const {
#if __CUDA_ARCH__ >= 900
    using Sum = typename T::Sum;
    struct alignas(16) Quad {
      Sum v[4];
    };
    namespace cg = cooperative_groups;
    const cg::cluster_group cluster = cg::this_cluster();
    auto* tile = reinterpret_cast<Sum*>(values);
    __syncthreads();
    fragments.store(tile, warp());
    const int groups = T::kShareGroups / args.splits;  // of this block: a power of two
    const int shift = __ffs(groups) - 1;
    const int first_group = static_cast<int>(blockIdx.y) * groups;
    const auto row = [&](int i) { return (static_cast<int>(threadIdx.x) + i * T::kThreads) >> shift; };
    const int column = (first_group + (static_cast<int>(threadIdx.x) & (groups - 1))) * kGroup;
    ConvResidualRun<T, kGroup> residual[T::kShare];
#pragma unroll
    for (int i = 0; i < T::kShare; ++i) {
      if (inside(row(i))) residual[i] = {args, first_row + row(i), first_column + column};
    }
    cluster.sync();
#pragma unroll
    for (int i = 0; i < T::kShare; ++i) {
      if (!inside(row(i))) continue;
      auto* from = tile + row(i) * T::kSumStride + column;
      Sum sum[kGroup];
#pragma unroll
      for (int j = 0; j < kGroup; ++j) sum[j] = Epilogue::first_sum(columns, column + j);
      // Always in the same order, so that the result does not depend on timing.
      for (int rank = 0; rank < args.splits; ++rank) {
        const auto* part = reinterpret_cast<const Quad*>(cluster.map_shared_rank(from, rank));
        const Quad parts[2] = {part[0], part[1]};
#pragma unroll
        for (int j = 0; j < kGroup; ++j) sum[j] += parts[j / 4].v[j % 4];
      }
      float v[kGroup];
      if (T::kInt8 && args.small) {
        Epilogue::template add<true>(args, columns, sum, residual[i], column, v);
      } else {
        Epilogue::template add<false>(args, columns, sum, residual[i], column, v);
      }
      Epilogue::finish(args, v);
      store<kGroup>(values + row(i) * T::kSumStride + column, v);
    }
    // No block leaves while others still read its sums.
    auto token = cluster.barrier_arrive();
    __syncthreads();
    average(values, first_image, first_group * kGroup, groups * kGroup);
    cluster.barrier_wait(std::move(token));
#endif
  }

  // Averages `count` columns, a power of two, from `first` on. Positions are added up in the order of "global_average",
  // 32 apart and then these sums, so that y has the same bits as from a convolution and an average of their own.
  __device__ __forceinline__ void average(const float* values, int first_image, int first, int count) const {
    constexpr int kApart = 32;
    const int positions = args.average.positions;
    const int shift = __ffs(count) - 1;
    for (int i = static_cast<int>(threadIdx.x); i < args.average.images << shift; i += T::kThreads) {
      const int image = i >> shift, column = first + (i & (count - 1));
      const int n = first_image + image, channel = first_column + column;
      if (n >= args.shape.batch || channel >= args.shape.out_c) continue;
      const float* from = values + image * positions * T::kSumStride + column;
      float total = 0;
#pragma unroll 8
      for (int r = 0; r < min(positions, kApart); ++r) {
        float sum = from[r * T::kSumStride];
#pragma unroll
        for (int p = kApart; p < T::kRows; p += kApart) {
          if (r + p < positions) sum += from[(r + p) * T::kSumStride];
        }
        total += sum;
      }
      store_average(args.average.result, args.y, static_cast<std::int64_t>(n) * args.shape.out_c + channel,
                    total * args.average.factor);
    }
  }
};

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

/// The kernels that average what they compute, which copy eight units of x at once. EndsUnstored as in ConvGemmTraits.
template <typename Sum, bool EndsUnstored, template <typename> typename Epilogue>
std::vector<ConvGemmInstance> average_instances() {
  std::vector<ConvGemmInstance> result{
      instance<ConvGemmTraits<128, 64, 2, 2, 3, 8, 3, Sum, EndsUnstored>, false, Epilogue>(),
      instance<ConvGemmTraits<64, 64, 2, 2, 4, 8, 3, Sum, EndsUnstored>, false, Epilogue>(),
      instance<ConvGemmTraits<64, 32, 2, 2, 4, 8, 4, Sum, EndsUnstored>, false, Epilogue>()};
  if constexpr (!EndsUnstored)
    result.push_back(instance<ConvGemmTraits<128, 128, 2, 4, 3, 8, 2, Sum>, false, Epilogue>());
  return result;
}

/// Null when there is no such instance.
inline const ConvGemmInstance* find_instance(std::span<const ConvGemmInstance> instances,
                                             const ConvTile& tile, int vector = 8, bool listed = false) {
  for (const ConvGemmInstance& i : instances) {
    if (i.rows == tile.rows && i.columns == tile.columns && i.vector == vector && i.listed == listed)
      return &i;
  }
  return nullptr;
}

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
