// INT8 convolution on Hopper: one thread has the bulk tensor copy engine bring operands to shared memory, two groups of
// four warps multiply and write. Blocks stay for many tiles, and copies are some steps ahead: those of the next tile
// run while this one is written. What is added to a tile of whole columns comes like operands, as its last step.
#include "layers/cuda/conv/pipelined_gemm/launch.h"

#include <algorithm>

#include "layers/cuda/conv/gemm_epilogue.cuh"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/ptx.cuh"

namespace pipit::internal::cuda {

namespace {

constexpr int kThreads = 256;

// Columns, stages.
template <int Columns, int Stages>
struct Pipelined : ConvGemmTraits<kPipelinedRows, Columns, 2, 4, Stages, 8, 1, std::int32_t> {
  // Rows of 128 bytes swizzled as the products want them begin at multiples of 1024.
  static constexpr int kStage = (kPipelinedRows + Columns) * kPipelinedDepth;
  static constexpr int kSharedBytes = Stages * kStage + 1024;
};
using Wide = Pipelined<128, 3>;
using Narrow = Pipelined<64, 4>;

// Where the copies of a block have got to: the work of one thread, kept in shared memory so that it takes no registers
// from the sums.
struct CopyState {
  int tile, step, tap_step, r, c;
  PixelOrigin origin;
  int stage;
  std::uint32_t parity;
};

// Addresses in shared memory: stages, and the barriers that say that they are full or empty.
struct Stages {
  std::uint32_t base, full, empty;
};

// Starts the copies of the block's next step, once its stage is free. Adds: after a tile's products come the values
// that are added to them.
template <typename T, bool Adds>
__device__ __forceinline__ void copy_step(const PipelinedArgs& p, const Stages& stages, int first_column,
                                          int row_tiles, CopyState& at) {
  // Without this the compiler reads the state ahead of the branch to here, in all threads.
  asm volatile("" ::: "memory");
  if (at.tile >= row_tiles) return;
  const ConvGemmArgs& args = p.conv;
  const ConvShape& s = args.shape;
  if (at.step == 0) at.origin = pixel_origin(s, args.positions, args.out_width, at.tile * T::kRows);
  const std::uint32_t left = stages.base + at.stage * T::kStage;
  const std::uint32_t barrier = stages.full + at.stage * 8;
  ptx::wait_barrier(stages.empty + at.stage * 8, at.parity ^ 1);
  const bool multiplied = !Adds || at.step < args.steps;
  ptx::arrive_expecting(barrier, multiplied ? T::kStage : T::kRows * kPipelinedDepth);
  if (!multiplied) {
    ptx::copy_box(left, p.residual, barrier, first_column, at.tile * T::kRows);
  } else if (p.plain) {
    ptx::copy_box(left, p.x, barrier, at.step * kPipelinedDepth, at.tile * T::kRows);
  } else {
    ptx::copy_pixels(left, p.x, barrier, at.tap_step * kPipelinedDepth, at.origin.w, at.origin.h,
                     at.origin.image, at.c * s.dilation_w, at.r * s.dilation_h);
    if (++at.tap_step == p.tap_steps) {
      at.tap_step = 0;
      if (++at.c == s.kernel_w) at.c = 0, ++at.r;
    }
  }
  if (multiplied)
    ptx::copy_box(left + T::kRows * kPipelinedDepth, p.weights, barrier, at.step * kPipelinedDepth,
                  first_column);
  if (++at.step == args.steps + (Adds ? 1 : 0)) {
    at.step = at.tap_step = at.r = at.c = 0;
    at.tile += p.workers;
  }
  if (++at.stage == T::kStages) at.stage = 0, at.parity ^= 1;
}

template <typename T, Int8Result Result, bool Adds>
__global__ void __launch_bounds__(kThreads, 2) pipelined_gemm(const __grid_constant__ PipelinedArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  using Epilogue = Int8Epilogue<T, Result, (T::kColumns < 128)>;
  extern __shared__ std::uint8_t dynamic[];
  __shared__ typename Epilogue::Columns columns;
  __shared__ std::uint64_t barriers[2 * T::kStages];
  const ConvGemmArgs& args = p.conv;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  __shared__ CopyState copied;
  const Stages stages{(ptx::shared_address(dynamic) + 1023) & ~1023U, ptx::shared_address(barriers),
                      ptx::shared_address(barriers + T::kStages)};
  const int column_tile = static_cast<int>(blockIdx.x) % args.column_tiles;
  const int worker = static_cast<int>(blockIdx.x) / args.column_tiles;
  const int first_column = column_tile * T::kColumns;
  const int row_tiles = (args.rows + T::kRows - 1) / T::kRows;

  if (threadIdx.x == 0) {
    for (int s = 0; s < T::kStages; ++s) {
      ptx::init_barrier(stages.full + s * 8, 1);
      ptx::init_barrier(stages.empty + s * 8, kThreads / 32);
    }
    ptx::publish_barriers();
  }
  static_assert(T::kThreads == kThreads);
  Epilogue::load(args, first_column, columns);
  __syncthreads();
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();

  if (threadIdx.x == 0) {
    copied = {};
    copied.tile = worker;
    for (int s = 0; s < T::kStages - 1; ++s) copy_step<T, Adds>(p, stages, first_column, row_tiles, copied);
  }
  int stage = 0;
  std::uint32_t parity = 0;
  for (int tile = worker; tile < row_tiles; tile += p.workers) {
    ConvGemmFragments<T> fragments;
    Epilogue::start(args, fragments, first_column, 0);
    for (int step = 0; step < args.steps; ++step) {
      if (threadIdx.x == 0) copy_step<T, Adds>(p, stages, first_column, row_tiles, copied);
      ptx::wait_barrier(stages.full + stage * 8, parity);
      __syncwarp();
      const std::uint32_t left = stages.base + stage * T::kStage;
      fragments.multiply_step(left, left + T::kRows * kPipelinedDepth, warp);
      fragments.finish();
      if (threadIdx.x % 32 == 0) ptx::arrive(stages.empty + stage * 8);
      if (++stage == T::kStages) stage = 0, parity ^= 1;
    }
    if constexpr (Adds) {
      if (threadIdx.x == 0) copy_step<T, Adds>(p, stages, first_column, row_tiles, copied);
      ptx::wait_barrier(stages.full + stage * 8, parity);
      Epilogue::add_and_write_tile(args, fragments, columns, stages.base + stage * T::kStage, tile * T::kRows,
                                   first_column);
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::arrive(stages.empty + stage * 8);
      if (++stage == T::kStages) stage = 0, parity ^= 1;
    } else {
      Epilogue::write_tile(args, fragments, nullptr, columns, false, tile * T::kRows, first_column);
    }
  }
#endif
}

struct Instance {
  const void* function;
  int shared;
};

template <typename T, bool Adds>
Instance instance_of(bool looks_up) {
  return {looks_up ? reinterpret_cast<const void*>(&pipelined_gemm<T, Int8Result::looked_up, Adds>)
                   : reinterpret_cast<const void*>(&pipelined_gemm<T, Int8Result::bytes, Adds>),
          T::kSharedBytes};
}

Instance instance_of(int columns, const PipelinedArgs& args) {
  const bool looks_up = args.conv.table != nullptr;
  if (columns != 128) return instance_of<Narrow, false>(looks_up);
  return args.adds_tiles ? instance_of<Wide, true>(looks_up) : instance_of<Wide, false>(looks_up);
}

}  // namespace

cudaError_t prepare_pipelined_gemm(int columns, const PipelinedArgs& args, int& resident_blocks) {
  const Instance instance = instance_of(columns, args);
  const cudaError_t status = allow_shared(instance.function, instance.shared);
  if (status != cudaSuccess) return status;
  return resident_blocks_of(instance.function, kThreads, static_cast<std::size_t>(instance.shared),
                            resident_blocks);
}

cudaError_t launch_pipelined_gemm(int columns, const PipelinedArgs& args, cudaStream_t stream) {
  const Instance instance = instance_of(columns, args);
  LaunchShape shape{dim3(static_cast<unsigned>(args.workers * args.conv.column_tiles)), dim3(kThreads)};
  shape.shared_bytes = static_cast<std::size_t>(instance.shared);
  shape.overlap = args.conv.overlap;
  return launch_kernel(instance.function, shape, stream, args);
}

}  // namespace pipit::internal::cuda
