// Convolution of few channels: the pixels under a tile are brought to shared memory once and read from there for every
// tap; the weights stay in shared memory for all tiles of a block. Arithmetic: the types, the products and the end of a
// convolution in fp16 or INT8.
#pragma once

#include <algorithm>

#include "layers/cuda/conv/conv_stem_staging.cuh"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"
#include "layers/cuda/device/warpgroup_mma_int8.cuh"

namespace pipit::cuda {

inline constexpr int kStemRowBytes = 128;   // of packed weights
inline constexpr int kStemStepsPerRow = 4;  // of 32 bytes
inline constexpr int kStemMaxThreads = 256;

/// sums += left * weights for `Steps` steps (1 or 2) of 32 bytes along k, the first of them at `step`, a multiple of 2;
/// left are fragments of 16 rows a warp. On Hopper wide products run until finish_steps.
template <int Columns, int Steps, typename Sum>
__device__ __forceinline__ void multiply_steps(Sum (&sums)[Columns / 8][4], const std::uint32_t (&left)[2][4],
                                               std::uint32_t weights, int step) {
  const std::uint32_t block =
      weights + static_cast<std::uint32_t>(step / kStemStepsPerRow) * (Columns * kStemRowBytes);
#ifdef PIPIT_WARPGROUP_MMA
  if constexpr (Columns >= 32) {
    ptx::begin_products();
#pragma unroll
    for (int u = 0; u < Steps; ++u) {
      ptx::multiply_group(
          sums, left[u],
          ptx::matrix_descriptor(block + static_cast<std::uint32_t>(step % kStemStepsPerRow + u) * 32));
    }
    ptx::end_products();
    return;
  }
#endif
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int chunk = step % kStemStepsPerRow * 2;
  if constexpr (Columns == 8) {
    // Four chunks, those of two steps, at once.
    const int r = lane & 7;
    std::uint32_t right[4];
    ptx::load_matrices(right, block + r * kStemRowBytes + swizzled_chunk<8>(r, chunk + (lane >> 3)) * 16);
#pragma unroll
    for (int u = 0; u < Steps; ++u) ptx::multiply(sums[0], left[u], right[u * 2], right[u * 2 + 1]);
  } else {
#pragma unroll
    for (int u = 0; u < Steps; ++u) {
#pragma unroll
      for (int j = 0; j < Columns / 16; ++j) {
        const int r = j * 16 + (lane & 7) + (lane >> 4) * 8;
        std::uint32_t right[4];
        ptx::load_matrices(
            right, block + r * kStemRowBytes + swizzled_chunk<8>(r, chunk + u * 2 + (lane >> 3 & 1)) * 16);
        ptx::multiply(sums[j * 2], left[u], right[0], right[1]);
        ptx::multiply(sums[j * 2 + 1], left[u], right[2], right[3]);
      }
    }
  }
}

/// The products have read `left`, and sums are complete.
template <int Columns>
__device__ __forceinline__ void finish_steps(const std::uint32_t (&left)[2][4]) {
#ifdef PIPIT_WARPGROUP_MMA
  if constexpr (Columns >= 32) {
    ptx::wait_products();
    // The fragments' registers must not be given away while the products run.
#pragma unroll
    for (int u = 0; u < 2; ++u)
      asm volatile("" ::"r"(left[u][0]), "r"(left[u][1]), "r"(left[u][2]), "r"(left[u][3]));
  }
#endif
}

/// Neighbouring elements of y or a residual.
template <typename T, int Count>
struct alignas(Count * sizeof(T)) StemRun {
  T v[Count];
};

/// Writes the lanes' rows of a tile: value(sum, column) becomes real numbers, store(run, at, channels, whole) gets
/// `Run` of them that are for neighbouring channels, `channels` of which are y's; whole: runs are, and begin at
/// multiples of Run.
template <int Columns, typename Sum, typename Value, typename Store>
__device__ __forceinline__ void write_rows(const StemArgs& a, const TileOrigin& tile,
                                           const Sum (&sums)[Columns / 8][4], Value value, Store store) {
  constexpr int kBlock = Columns < 32 ? Columns : 32;
  constexpr int kRun = kBlock / 4;
  const int out_c = a.shape.out_c;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int oh = tile.row + static_cast<int>(threadIdx.x) / 32;
  if (oh >= a.shape.out_h) return;  // the same for a warp
  const int first = static_cast<int>(blockIdx.y) * Columns + lane % 4 * kRun;
  const bool whole = out_c % kRun == 0;
  const std::int64_t row =
      static_cast<std::int64_t>(tile.image * a.shape.out_h + oh) * a.shape.out_w + tile.column;
  const std::int64_t start = row * out_c + first;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int column = lane / 4 + half * 8;
    if (tile.column + column >= a.shape.out_w) continue;
    const std::int64_t at = start + column * out_c;
#pragma unroll
    for (int block = 0; block < Columns / kBlock; ++block) {
      float run[kRun];
#pragma unroll
      for (int c = 0; c < kRun; ++c) {
        const int j = block * 4 + c / 2;
        run[c] = value(sums[j][half * 2 + c % 2], j * 8 + lane % 4 * 2 + c % 2);
      }
      const int channels = out_c - first - block * kBlock;
      if (channels > 0) store(run, at + block * kBlock, channels, whole);
    }
  }
}

// Blocks that a multiprocessor is to hold at once. Before Hopper the compiler needs more registers for the same code,
// and would spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <int Columns, Staging How>
inline constexpr int kStemBlocks = 2;
#else
template <int Columns, Staging How>
inline constexpr int kStemBlocks = Columns < 16 && How == Staging::copied ? 4 : 3;
#endif

/// Arithmetic: Element and Sum, Tap (a unit of the window: its offset, and what of it is the window's), Constants (what
/// belongs to the tile's columns, in shared memory), how sums start and finish. Words: of a unit.
template <typename Arithmetic, int Words, int Columns, Staging How>
__global__ void __launch_bounds__(kStemMaxThreads, kStemBlocks<Columns, How>)
    conv_few_channels(const __grid_constant__ StemArgs a) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  __shared__ typename Arithmetic::template Constants<Columns> constants;
  using Tap = typename Arithmetic::Tap;
  constexpr int kTaps = 2 / Words;  // units of a lane in a step
  const ConvShape& s = a.shape;
  const int threads = static_cast<int>(blockDim.x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::uint32_t weights = ptx::shared_address(shared);
  Tap* taps = reinterpret_cast<Tap*>(shared + a.weight_bytes);
  std::uint8_t* halo = shared + a.weight_bytes + a.offset_bytes;

  const auto* from =
      static_cast<const std::uint8_t*>(a.weights) + static_cast<std::int64_t>(blockIdx.y) * a.weight_bytes;
  for (int i = static_cast<int>(threadIdx.x); i < a.weight_bytes / 16; i += threads) {
    const int row = i / 8;
    ptx::copy_async<16>(weights + row * kStemRowBytes + swizzled_chunk<8>(row, i % 8) * 16, from + i * 16,
                        true);
  }
  ptx::commit_copies();
  for (int i = static_cast<int>(threadIdx.x); i < a.offset_bytes / static_cast<int>(sizeof(Tap));
       i += threads) {
    const int position = divide_small(i, a.units_factor);
    const int r = divide_small(position, a.window_factor);
    const int w = (position - r * a.units.window_w) * a.units.group;
    const int offset =
        (r * s.dilation_h * a.halo_w + w * s.dilation_w) * a.pitch + i - position * a.units.per_pixel;
    taps[i] = i < a.units.count ? Tap(offset, (s.kernel_w - w) * s.in_c, a.units.group) : Tap();
  }
  constants.load(a);
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();

  const int blocks = static_cast<int>(gridDim.x);
  const int lead = a.prefetches ? blocks : 0;  // from the tile that is computed to the one that is copied
  int place = 0;                               // of the two that there are for pixels
  for (int ahead = static_cast<int>(blockIdx.x), index = ahead - lead; index < a.tiles;
       ahead += blocks, index += blocks) {
    std::uint8_t* staged = halo + place * a.halo_bytes;
    if (ahead < a.tiles)
      stage_halo<typename Arithmetic::Element, Words, How>(a, tile_origin(a, ahead), staged);
    ptx::commit_copies();
    if (How == Staging::copied && a.prefetches) {
      place ^= 1;
      if (index < 0) continue;
      ptx::wait_copies<1>();
    } else {
      ptx::wait_copies<0>();
    }
    const std::uint8_t* pixels = halo + place * a.halo_bytes;
    const TileOrigin tile = tile_origin(a, index);
#ifdef PIPIT_WARPGROUP_MMA
    // The weights, which the matrix unit reads by itself.
    if (Columns >= 32 && index < blocks) ptx::publish_shared();
#endif
    __syncthreads();
    // Rows of a warp's fragment are 16 neighbouring positions of one output row.
    const auto* upper = reinterpret_cast<const std::uint32_t*>(pixels) +
                        (warp * s.stride_h * a.halo_w + lane / 4 * s.stride_w) * a.pitch * Words;
    const auto* lower = upper + 8 * s.stride_w * a.pitch * Words;
    typename Arithmetic::Sum sums[Columns / 8][4];
    Arithmetic::start(constants, sums);
    const auto load_step = [&](int step, std::uint32_t(&left)[4]) {
#pragma unroll
      for (int t = 0; t < kTaps; ++t) {
        const Tap tap = taps[(step * kTaps + t) * 4 + lane % 4];
        if constexpr (Words == 2) {
          const uint2 above = tap.of(reinterpret_cast<const uint2*>(upper)[tap.offset]);
          const uint2 below = tap.of(reinterpret_cast<const uint2*>(lower)[tap.offset]);
          left[0] = above.x, left[1] = below.x, left[2] = above.y, left[3] = below.y;
        } else {
          left[t * 2] = upper[tap.offset];
          left[t * 2 + 1] = lower[tap.offset];
        }
      }
    };
    const auto load_pair = [&](int step, std::uint32_t(&left)[2][4]) {
      load_step(step, left[0]);
      load_step(step + 1, left[1]);
    };
    // The fragments of the next two steps are read while the products of these run.
    const int paired = a.steps & ~1;
    std::uint32_t even[2][4], odd[2][4];
    if (paired > 0) load_pair(0, even);
    for (int step = 0; step < paired; step += 4) {
      multiply_steps<Columns, 2>(sums, even, weights, step);
      if (step + 2 < paired) load_pair(step + 2, odd);
      finish_steps<Columns>(even);
      if (step + 2 >= paired) break;
      multiply_steps<Columns, 2>(sums, odd, weights, step + 2);
      if (step + 4 < paired) load_pair(step + 4, even);
      finish_steps<Columns>(odd);
    }
    if (paired < a.steps) {
      load_step(paired, even[0]);
      multiply_steps<Columns, 1>(sums, even, weights, paired);
      finish_steps<Columns>(even);
    }
    __syncthreads();  // the pixels may be overwritten
    Arithmetic::template finish<Columns>(a, tile, sums, constants);
  }
}

using StemKernel = void (*)(StemArgs);

/// The kernel of these arguments; null where there is none.
template <typename Arithmetic, int Words>
StemKernel stem_kernel(const StemArgs& args) {
  const auto of_width = [&]<int Columns>() -> StemKernel {
    if (args.copied_bytes != 0) return &conv_few_channels<Arithmetic, Words, Columns, Staging::copied>;
    if constexpr (Words == static_cast<int>(sizeof(typename Arithmetic::Element))) {
      if (args.units.group > 1) return &conv_few_channels<Arithmetic, Words, Columns, Staging::grouped>;
    }
    return &conv_few_channels<Arithmetic, Words, Columns, Staging::elements>;
  };
  switch (args.tile.width) {
    case 8:
      return of_width.template operator()<8>();
    case 16:
      return of_width.template operator()<16>();
    case 32:
      return of_width.template operator()<32>();
    case 64:
      return of_width.template operator()<64>();
    default:
      return nullptr;
  }
}

/// Blocks of `kernel` that the current GPU runs at once; allows it its shared memory. overlap: whether launches of it
/// may overlap.
inline cudaError_t prepare_stem_kernel(StemKernel kernel, const StemArgs& args, int& resident_blocks,
                                       bool& overlap) {
  if (kernel == nullptr) return cudaErrorInvalidValue;
  const auto* function = reinterpret_cast<const void*>(kernel);
  cudaError_t status = allow_shared(function, static_cast<int>(kStemMaxShared));
  if (status == cudaSuccess)
    status = resident_blocks_of(function, 32 * args.tile.rows, args.shared_bytes, resident_blocks);
  return status == cudaSuccess ? can_overlap(function, overlap) : status;
}

/// Launches the kernel over the tiles of `args`.
inline cudaError_t launch_stem_kernel(StemKernel kernel, const StemArgs& args, int resident_blocks,
                                      cudaStream_t stream) {
  const int columns = static_cast<int>(ceil_div(args.shape.out_c, args.tile.width));
  const int blocks = std::min(args.tiles, std::max(resident_blocks / columns, 1));
  return launch_kernel(kernel,
                       {dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(columns)),
                        dim3(static_cast<unsigned>(32 * args.tile.rows)), args.shared_bytes, args.overlap},
                       stream, args);
}

}  // namespace pipit::cuda
