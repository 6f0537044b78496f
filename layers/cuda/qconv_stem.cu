// INT8 convolution of images with up to four channels: the pixels under a tile are brought to shared memory once, as four
// bytes each, quantised on the way where they are f32; the weights stay in shared memory for all tiles of a block.
#include "layers/cuda/async_ptx.cuh"
#include "layers/cuda/conv_stem_launch.h"
#include "layers/cuda/conv_stem_tiles.cuh"
#include "layers/cuda/int8_math.cuh"
#include "layers/cuda/warpgroup_mma.cuh"
#include "layers/cuda/warpgroup_mma_int8.cuh"

namespace pipit::cuda {

namespace {

constexpr int kThreads = kStemThreads;
constexpr int kRowBytes = 128;
constexpr int kStepsPerRow = 4;  // of eight taps, 32 bytes each

// The low byte is the element as i8.
template <typename T>
__device__ __forceinline__ std::uint32_t to_byte(T value, float scale) {
  if constexpr (sizeof(T) == 4) {
    return requantise_bits(__fdiv_rn(value, scale), -127.0F, 127.0F);
  } else {
    return static_cast<std::uint32_t>(value);
  }
}

// The pixels under a tile, padding and missing channels as zeros. Every load has a valid address, so that none of them
// waits for another.
template <typename T>
__device__ __forceinline__ void stage_halo(const QStemArgs& q, const TileOrigin& tile, std::uint32_t* halo) {
  constexpr int kAtOnce = 4;  // pixels of a thread that are under way together
  const StemArgs& a = q.stem;
  const ConvShape& s = a.shape;
  const T* image = static_cast<const T*>(a.x) + tile.image * a.x_image;
  const int first_h = tile.row * s.stride_h - s.pad_h;
  const int first_w = tile.column * s.stride_w - s.pad_w;
  const int count = a.halo_h * a.halo_w;
  for (int first = static_cast<int>(threadIdx.x); first < count; first += kThreads * kAtOnce) {
    T value[kAtOnce][kStemMaxChannels];
    bool inside[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = first + u * kThreads;
      const int row = a.halo_width.divide(i);
      const int h = first_h + row;
      const int w = first_w + i - row * a.halo_w;
      inside[u] = i < count && static_cast<unsigned>(h) < static_cast<unsigned>(s.in_h) &&
                  static_cast<unsigned>(w) < static_cast<unsigned>(s.in_w);
      const int at = inside[u] ? h * a.x_row + w * a.x_pixel : 0;
#pragma unroll
      for (int c = 0; c < kStemMaxChannels; ++c) {
        value[u][c] = 0;
        if (c < s.in_c && first + u * kThreads < count) value[u][c] = image[at + c * a.x_channel];
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = first + u * kThreads;
      if (i >= count) break;
      std::uint32_t bytes[kStemMaxChannels] = {};
#pragma unroll
      for (int c = 0; c < kStemMaxChannels; ++c) {
        if (c < s.in_c) bytes[c] = to_byte(value[u][c], q.x_scale);
      }
      halo[i] = inside[u] ? low_bytes(bytes) : 0U;
    }
  }
}

// sums += left * weights for `Steps` steps of 32 along k, the first of them at `step`; left are fragments of 16 rows a
// warp.
template <int Columns, int Steps>
__device__ __forceinline__ void multiply_steps(int (&sums)[Columns / 8][4], std::uint32_t (&left)[Steps][4],
                                               std::uint32_t weights, int step) {
  const auto row_block = [&](int at) {
    return weights + static_cast<std::uint32_t>(at / kStepsPerRow) * (Columns * kRowBytes);
  };
#ifdef PIPIT_WARPGROUP_MMA
  ptx::begin_products();
#pragma unroll
  for (int u = 0; u < Steps; ++u) {
    const int at = step + u;
    ptx::multiply_group(
        sums, left[u],
        ptx::matrix_descriptor(row_block(at) + static_cast<std::uint32_t>(at % kStepsPerRow) * 32));
  }
  ptx::end_products();
  ptx::wait_products();
  // The fragments' registers must not be given away while the products run.
#pragma unroll
  for (int u = 0; u < Steps; ++u)
    asm volatile("" ::"r"(left[u][0]), "r"(left[u][1]), "r"(left[u][2]), "r"(left[u][3]));
#else
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int u = 0; u < Steps; ++u) {
    const int at = step + u;
#pragma unroll
    for (int j = 0; j < Columns / 16; ++j) {
      const int r = j * 16 + (lane & 7) + (lane >> 4) * 8;
      const int chunk = at % kStepsPerRow * 2 + (lane >> 3 & 1);
      std::uint32_t right[4];
      ptx::load_matrices(right, row_block(at) + r * kRowBytes + swizzled_chunk<8>(r, chunk) * 16);
      ptx::multiply(sums[j * 2], left[u], right[0], right[1]);
      ptx::multiply(sums[j * 2 + 1], left[u], right[2], right[3]);
    }
  }
#endif
}

// Rows of the packed weights are in the order of packed_channel: a lane has eight neighbouring channels of every 32.
template <int Columns, bool Small>
__device__ __forceinline__ void write_rows(const QStemArgs& q, const TileOrigin& tile,
                                           const int (&sums)[Columns / 8][4], const float* multipliers) {
  const StemArgs& a = q.stem;
  const ConvShape& s = a.shape;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int oh = tile.row + static_cast<int>(threadIdx.x) / 32;
  if (oh >= s.out_h) return;
  const float low = a.low, high = a.high;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int ow = tile.column + lane / 4 + half * 8;
    if (ow >= s.out_w) continue;
    const int first = static_cast<int>(blockIdx.y) * Columns + lane % 4 * 8;
    std::int8_t* to =
        q.y + ((static_cast<std::int64_t>(tile.image) * s.out_h + oh) * s.out_w + ow) * s.out_c + first;
#pragma unroll
    for (int block = 0; block < Columns / 32; ++block) {
      std::uint32_t words[2];
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        std::uint32_t bits[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int j = block * 4 + w * 2 + e / 2;
          const int sum = sums[j][half * 2 + e % 2];
          const float real = Small ? small_to_float(sum) : __int2float_rn(sum);
          bits[e] = requantise_bits(__fmul_rn(real, multipliers[j * 8 + lane % 4 * 2 + e % 2]), low, high);
        }
        words[w] = low_bytes(bits);
      }
      if (s.out_c % 8 == 0) {
        if (first + block * 32 < s.out_c)
          *reinterpret_cast<uint2*>(to + block * 32) = make_uint2(words[0], words[1]);
      } else {
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          if (first + block * 32 + c < s.out_c)
            to[block * 32 + c] = static_cast<std::int8_t>(words[c / 4] >> c % 4 * 8);
        }
      }
    }
  }
}

template <int Columns, typename T>
__global__ void __launch_bounds__(kThreads, Columns == 64 ? 3 : 4)
    qconv_stem(const __grid_constant__ QStemArgs q) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  __shared__ float multipliers[Columns];
  constexpr int kTogether = 2;  // steps whose products are under way together
  const StemArgs& a = q.stem;
  const ConvShape& s = a.shape;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::uint32_t weights = ptx::shared_address(shared);
  int* offsets = reinterpret_cast<int*>(
      shared + a.weight_bytes);  // of the taps in the halo; beyond the last any, as their weights are 0
  auto* halo = reinterpret_cast<std::uint32_t*>(shared + a.weight_bytes + a.offset_bytes);

  const std::int8_t* from = q.weights + static_cast<std::int64_t>(blockIdx.y) * a.weight_bytes;
  for (int i = static_cast<int>(threadIdx.x); i < a.weight_bytes / 16; i += kThreads) {
    const int row = i / 8;
    ptx::copy_async<16>(weights + row * kRowBytes + swizzled_chunk<8>(row, i % 8) * 16, from + i * 16, true);
  }
  ptx::commit_copies();
  for (int i = static_cast<int>(threadIdx.x); i < a.steps * 8; i += kThreads) {
    const int r = i / s.kernel_w;
    offsets[i] = r < s.kernel_h ? r * s.dilation_h * a.halo_w + (i - r * s.kernel_w) * s.dilation_w : 0;
  }
  for (int c = static_cast<int>(threadIdx.x); c < Columns; c += kThreads)
    multipliers[c] = q.multipliers[blockIdx.y * Columns + c];
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();

  for (int index = static_cast<int>(blockIdx.x); index < a.tiles; index += static_cast<int>(gridDim.x)) {
    const TileOrigin tile = tile_origin(a, index);
    stage_halo<T>(q, tile, halo);
    ptx::wait_copies<0>();
#ifdef PIPIT_WARPGROUP_MMA
    ptx::publish_shared();
#endif
    __syncthreads();
    // Rows of a warp's fragment are 16 neighbouring positions of one output row.
    const std::uint32_t* upper = halo + warp * s.stride_h * a.halo_w + lane / 4 * s.stride_w;
    const std::uint32_t* lower = upper + 8 * s.stride_w;
    int sums[Columns / 8][4];
#pragma unroll
    for (int j = 0; j < Columns / 8; ++j) {
      const int2 bias = *reinterpret_cast<const int2*>(q.bias + blockIdx.y * Columns + j * 8 + lane % 4 * 2);
      const int magic = q.small_sums ? kMagicBits : 0;
      sums[j][0] = sums[j][2] = bias.x + magic;
      sums[j][1] = sums[j][3] = bias.y + magic;
    }
    const auto load_step = [&](int step, std::uint32_t(&left)[4]) {
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const int offset = offsets[step * 8 + u * 4 + lane % 4];
        left[u * 2] = upper[offset];
        left[u * 2 + 1] = lower[offset];
      }
    };
    int step = 0;
    for (; step + kTogether <= a.steps; step += kTogether) {
      std::uint32_t left[kTogether][4];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) load_step(step + u, left[u]);
      multiply_steps<Columns, kTogether>(sums, left, weights, step);
    }
    for (; step < a.steps; ++step) {
      std::uint32_t left[1][4];
      load_step(step, left[0]);
      multiply_steps<Columns, 1>(sums, left, weights, step);
    }
    __syncthreads();  // the halo may be overwritten
    if (q.small_sums) {
      write_rows<Columns, true>(q, tile, sums, multipliers);
    } else {
      write_rows<Columns, false>(q, tile, sums, multipliers);
    }
  }
}

const void* kernel_of(const QStemArgs& args) {
  if (args.stem.width == 32) {
    return args.x_f32 ? reinterpret_cast<const void*>(&qconv_stem<32, float>)
                      : reinterpret_cast<const void*>(&qconv_stem<32, std::int8_t>);
  }
  return args.x_f32 ? reinterpret_cast<const void*>(&qconv_stem<64, float>)
                    : reinterpret_cast<const void*>(&qconv_stem<64, std::int8_t>);
}

}  // namespace

cudaError_t prepare_qstem(const QStemArgs& args, int& resident_blocks) {
  return prepare_stem_kernel(kernel_of(args), args.stem, resident_blocks);
}

cudaError_t launch_qstem(const QStemArgs& args, int resident_blocks, cudaStream_t stream) {
  return launch_stem_kernel(kernel_of(args), args.stem, args, resident_blocks, stream);
}

}  // namespace pipit::cuda
