// Convolution of images with up to four channels: the pixels under a tile are brought to shared memory once, as four
// halves each, and read from there for every tap; the weights stay in shared memory for all tiles of a block.
#include <cuda_fp16.h>

#include "layers/cuda/async_ptx.cuh"
#include "layers/cuda/conv_stem_launch.h"
#include "layers/cuda/conv_stem_tiles.cuh"
#include "layers/cuda/warpgroup_mma.cuh"

namespace pipit::cuda {

namespace {

constexpr int kThreads = kStemThreads;
constexpr int kRowBytes = kTileDepth * 2;

template <bool Half16>
__device__ __forceinline__ __half read_pixel(const void* x, std::int64_t at) {
  if constexpr (Half16) {
    return static_cast<const __half*>(x)[at];
  } else {
    return __float2half_rn(static_cast<const float*>(x)[at]);
  }
}

// The pixels under a tile, padding and missing channels as zeros.
template <bool Half16>
__device__ __forceinline__ void stage_halo(const StemArgs& a, const TileOrigin& tile, uint2* halo) {
  constexpr int kAtOnce = 4;  // pixels of a thread that are under way together
  const ConvShape& s = a.shape;
  const int first_h = tile.row * s.stride_h - s.pad_h;
  const int first_w = tile.column * s.stride_w - s.pad_w;
  const int count = a.halo_h * a.halo_w;
  for (int first = static_cast<int>(threadIdx.x); first < count; first += kThreads * kAtOnce) {
    __half value[kAtOnce][kStemMaxChannels];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = first + u * kThreads;
      const int row = a.halo_width.divide(i);
      const int h = first_h + row;
      const int w = first_w + i - row * a.halo_w;
      const bool inside = i < count && static_cast<unsigned>(h) < static_cast<unsigned>(s.in_h) &&
                          static_cast<unsigned>(w) < static_cast<unsigned>(s.in_w);
      const std::int64_t at = tile.image * a.x_image + static_cast<std::int64_t>(h) * a.x_row +
                              static_cast<std::int64_t>(w) * a.x_pixel;
#pragma unroll
      for (int c = 0; c < kStemMaxChannels; ++c) {
        value[u][c] = inside && c < s.in_c
                          ? read_pixel<Half16>(a.x, at + c * static_cast<std::int64_t>(a.x_channel))
                          : __half(0.0F);
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = first + u * kThreads;
      if (i >= count) break;
      const __half2 low = __halves2half2(value[u][0], value[u][1]);
      const __half2 high = __halves2half2(value[u][2], value[u][3]);
      halo[i] =
          make_uint2(*reinterpret_cast<const unsigned*>(&low), *reinterpret_cast<const unsigned*>(&high));
    }
  }
}

// sums += left * weights for two steps of 16 along k; left are fragments of 16 rows a warp.
template <int Columns>
__device__ __forceinline__ void multiply_pair(float (&sums)[Columns / 8][4], std::uint32_t (&left)[2][4],
                                              std::uint32_t weights) {
#ifdef PIPIT_WARPGROUP_MMA
  ptx::begin_products();
#pragma unroll
  for (int u = 0; u < 2; ++u)
    ptx::multiply_group(sums, left[u], ptx::matrix_descriptor(weights + static_cast<std::uint32_t>(u) * 32));
  ptx::end_products();
  ptx::wait_products();
  // The fragments' registers must not be given away while the products run.
#pragma unroll
  for (int u = 0; u < 2; ++u)
    asm volatile("" ::"r"(left[u][0]), "r"(left[u][1]), "r"(left[u][2]), "r"(left[u][3]));
#else
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t first = weights & ~static_cast<std::uint32_t>(kRowBytes - 1);
  const int chunk = static_cast<int>(weights - first) / 16;
#pragma unroll
  for (int u = 0; u < 2; ++u) {
#pragma unroll
    for (int j = 0; j < Columns / 16; ++j) {
      const int r = j * 16 + (lane & 7) + (lane >> 4) * 8;
      std::uint32_t right[4];
      ptx::load_matrices(right,
                         first + r * kRowBytes + swizzled_chunk<8>(r, chunk + u * 2 + (lane >> 3 & 1)) * 16);
      ptx::multiply(sums[j * 2], left[u], right[0], right[1]);
      ptx::multiply(sums[j * 2 + 1], left[u], right[2], right[3]);
    }
  }
#endif
}

__device__ __forceinline__ __half finish_value(const StemArgs& a, float v) {
  v = v < a.low ? a.low : v;  // comparisons, not fminf: a NaN stays one
  v = v > a.high ? a.high : v;
  return __float2half_rn(v);
}

template <int Columns>
__device__ __forceinline__ void write_rows(const StemArgs& a, const TileOrigin& tile,
                                           const float (&sums)[Columns / 8][4], const float* bias) {
  const ConvShape& s = a.shape;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int oh = tile.row + static_cast<int>(threadIdx.x) / 32;
  if (oh >= s.out_h) return;  // the same for a warp
  auto* y = reinterpret_cast<__half*>(a.y);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int ow = tile.column + lane / 4 + half * 8;
    __half* to = y + ((static_cast<std::int64_t>(tile.image) * s.out_h + oh) * s.out_w + ow) * s.out_c;
#pragma unroll
    for (int group = 0; group < Columns / 32; ++group) {
      std::uint32_t words[4];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int j = group * 4 + q;
        const float2 b = *reinterpret_cast<const float2*>(bias + j * 8 + lane % 4 * 2);
        const __half2 v = __halves2half2(finish_value(a, sums[j][half * 2] + b.x),
                                         finish_value(a, sums[j][half * 2 + 1] + b.y));
        words[q] = *reinterpret_cast<const unsigned*>(&v);
      }
      transpose_quad(words);  // now eight neighbouring channels
      const int channel = static_cast<int>(blockIdx.y) * Columns + (group * 4 + lane % 4) * 8;
      if (ow >= s.out_w || channel >= s.out_c) continue;
      if (s.out_c % 8 == 0) {
        *reinterpret_cast<uint4*>(to + channel) = make_uint4(words[0], words[1], words[2], words[3]);
      } else {
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          if (channel + c < s.out_c)
            to[channel + c] = __ushort_as_half(static_cast<unsigned short>(words[c / 2] >> c % 2 * 16));
        }
      }
    }
  }
}

template <int Columns>
__global__ void __launch_bounds__(kThreads, 3) conv_stem(const __grid_constant__ StemArgs a) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  __shared__ float bias[Columns];
  const ConvShape& s = a.shape;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::uint32_t weights = ptx::shared_address(shared);
  int* offsets =
      reinterpret_cast<int*>(shared + a.weight_bytes);  // of the taps in the halo; -1 beyond the last
  uint2* halo = reinterpret_cast<uint2*>(shared + a.weight_bytes + a.offset_bytes);

  const auto* from = reinterpret_cast<const __half*>(a.weights) +
                     static_cast<std::int64_t>(blockIdx.y) * (a.weight_bytes / 2);
  for (int i = static_cast<int>(threadIdx.x); i < a.weight_bytes / 16; i += kThreads) {
    const int row = i / 8;
    ptx::copy_async<16>(weights + row * kRowBytes + swizzled_chunk<8>(row, i % 8) * 16, from + i * 8, true);
  }
  ptx::commit_copies();
  for (int i = static_cast<int>(threadIdx.x); i < a.steps * 8; i += kThreads) {
    const int r = i / s.kernel_w;
    offsets[i] = r < s.kernel_h ? r * s.dilation_h * a.halo_w + (i - r * s.kernel_w) * s.dilation_w : -1;
  }
  for (int c = static_cast<int>(threadIdx.x); c < Columns; c += kThreads)
    bias[c] = a.bias[blockIdx.y * Columns + c];
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();

  for (int index = static_cast<int>(blockIdx.x); index < a.tiles; index += static_cast<int>(gridDim.x)) {
    const TileOrigin tile = tile_origin(a, index);
    if (a.x_half) {
      stage_halo<true>(a, tile, halo);
    } else {
      stage_halo<false>(a, tile, halo);
    }
    ptx::wait_copies<0>();
#ifdef PIPIT_WARPGROUP_MMA
    ptx::publish_shared();
#endif
    __syncthreads();
    // Rows of a warp's fragment are 16 neighbouring positions of one output row.
    const uint2* upper = halo + warp * s.stride_h * a.halo_w + lane / 4 * s.stride_w;
    const uint2* lower = upper + 8 * s.stride_w;
    float sums[Columns / 8][4] = {};
    for (int step = 0; step < a.steps; ++step) {
      std::uint32_t left[2][4];
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const int offset = offsets[step * 8 + u * 4 + lane % 4];
        // Not a pixel times zero: it may be infinite.
        const uint2 zero = make_uint2(0, 0);
        const uint2 above = offset >= 0 ? upper[offset] : zero;
        const uint2 below = offset >= 0 ? lower[offset] : zero;
        left[u][0] = above.x, left[u][1] = below.x, left[u][2] = above.y, left[u][3] = below.y;
      }
      multiply_pair<Columns>(sums, left, weights + step / 2 * (Columns * kRowBytes) + step % 2 * 64);
    }
    __syncthreads();  // the halo may be overwritten
    write_rows<Columns>(a, tile, sums, bias);
  }
}

const void* kernel_of(const StemArgs& args) {
  return args.width == 32 ? reinterpret_cast<const void*>(&conv_stem<32>)
                          : reinterpret_cast<const void*>(&conv_stem<64>);
}

}  // namespace

cudaError_t prepare_stem(const StemArgs& args, int& resident_blocks) {
  return prepare_stem_kernel(kernel_of(args), args, resident_blocks);
}

cudaError_t launch_stem(const StemArgs& args, int resident_blocks, cudaStream_t stream) {
  return launch_stem_kernel(kernel_of(args), args, args, resident_blocks, stream);
}

}  // namespace pipit::cuda
