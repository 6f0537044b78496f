// What the kernels for images of few channels share, in fp16 and INT8: their tiles and launches.
#pragma once

#include <algorithm>

#include "layers/cuda/conv_stem_pack.h"

namespace pipit::cuda {

inline constexpr int kStemThreads = 32 * kStemRows;  // a warp per output row

/// Where a tile of the output begins.
struct TileOrigin {
  int image, row, column;  // of its first output position
};

__device__ __forceinline__ TileOrigin tile_origin(const StemArgs& a, int tile) {
  const int image = a.tiles_per_image.divide(tile);
  const int rest = tile - image * static_cast<int>(a.tiles_per_image.value);
  const int row = a.tiles_wide.divide(rest);
  return {image, row * kStemRows, (rest - row * a.tiles_w) * kStemColumns};
}

/// Lane t of four holds words w[0..3]; afterwards it has word t of all four lanes, in their order.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&w)[4]) {
  const unsigned t = threadIdx.x & 3;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFU, (t & 1) != 0 ? w[i] : w[i + 1], 1);
    ((t & 1) != 0 ? w[i] : w[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFU, (t & 2) != 0 ? w[i] : w[i + 2], 2);
    ((t & 2) != 0 ? w[i] : w[i + 2]) = got;
  }
}

/// Blocks of `kernel` that the current GPU runs at once; allows it its shared memory.
inline cudaError_t prepare_stem_kernel(const void* kernel, const StemArgs& args, int& resident_blocks) {
  int gpu = 0;
  int processors = 0;
  int blocks = 0;
  cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(kStemMaxShared));
  if (status == cudaSuccess) status = cudaGetDevice(&gpu);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu);
  if (status == cudaSuccess)
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kStemThreads, args.shared_bytes);
  resident_blocks = processors * std::max(blocks, 1);
  return status;
}

/// Launches kernel(parameters) over the tiles of `args`.
template <typename Parameters>
cudaError_t launch_stem_kernel(const void* kernel, const StemArgs& args, const Parameters& parameters,
                               int resident_blocks, cudaStream_t stream) {
  const int columns = static_cast<int>(ceil_div(args.shape.out_c, args.width));
  const int blocks = std::min(args.tiles, std::max(resident_blocks / columns, 1));
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(columns));
  Parameters copy = parameters;
  void* arguments[] = {&copy};
  return cudaLaunchKernel(kernel, grid, dim3(kStemThreads), arguments, args.shared_bytes, stream);
}

}  // namespace pipit::cuda
