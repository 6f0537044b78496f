// How the kernels "stem" bring the pixels under a tile to shared memory: padding and missing channels as zeros.
#pragma once

#include <algorithm>

#include "layers/cuda/conv/stem/plan.h"
#include "layers/cuda/device/launch.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda {

/// Where a tile of the output begins.
struct TileOrigin {
  int image, row, column;  // of its first output position
};

__device__ __forceinline__ TileOrigin tile_origin(const StemArgs& a, int tile) {
  const int image = a.tiles_per_image.divide(tile);
  const int rest = tile - image * static_cast<int>(a.tiles_per_image.value);
  const int row = a.tiles_wide.divide(rest);
  return {image, row * a.tile.rows, (rest - row * a.tiles_w) * kStemColumns};
}

/// n / divisor for n * divisor < 2^32, with `factor` = small_factor(divisor).
__device__ __forceinline__ int divide_small(int n, std::uint32_t factor) {
  return factor == 0 ? n : static_cast<int>(__umulhi(static_cast<std::uint32_t>(n), factor));
}

/// One position under a tile, where it lies in the image.
struct HaloPixel {
  int h, w;

  __device__ __forceinline__ HaloPixel(const StemArgs& a, const TileOrigin& tile, int at) {
    // halo_w is at least kStemColumns.
    const int row = static_cast<int>(__umulhi(static_cast<std::uint32_t>(at), a.halo_width));
    h = tile.row * a.shape.stride_h - a.shape.pad_h + row;
    w = tile.column * a.shape.stride_w - a.shape.pad_w + at - row * a.halo_w;
  }
  __device__ __forceinline__ bool inside(const StemArgs& a) const {
    return static_cast<unsigned>(h) < static_cast<unsigned>(a.shape.in_h) &&
           static_cast<unsigned>(w) < static_cast<unsigned>(a.shape.in_w);
  }
};

/// Asynchronous copies of Bytes: x has its channels next to each other, as the units do.
template <int Bytes>
__device__ __forceinline__ void copy_halo(const StemArgs& a, const TileOrigin& tile, std::uint32_t halo) {
  const int element = a.shape.int8 ? 1 : 2;
  const auto* image =
      static_cast<const std::uint8_t*>(a.x) + static_cast<std::int64_t>(tile.image) * a.x_image * element;
  const int row_bytes = a.x_row * element, pixel_bytes = a.x_pixel * element;
  const int pitch = a.pitch * a.units.unit_bytes;
  const int per_pixel = a.parts;
  const int count = a.halo_h * a.halo_w * per_pixel;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const int index = divide_small(i, a.parts_factor);
    const int part = (i - index * per_pixel) * Bytes;
    const HaloPixel pixel(a, tile, index);
    const bool inside = pixel.inside(a);
    const int from = inside ? pixel.h * row_bytes + pixel.w * pixel_bytes + part : 0;
    ptx::copy_async<Bytes>(halo + index * pitch + part, image + from, inside);
  }
}

/// A unit's elements as they are kept, zeros where they are outside of the image.
template <typename To, typename From>
__device__ __forceinline__ void convert_unit(const StemArgs& a, const From (&value)[4],
                                             const bool (&inside)[4], std::uint32_t* to) {
  if constexpr (sizeof(To) == 1) {
    std::uint32_t bytes[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if constexpr (sizeof(From) == 4) {
        bytes[e] = image_bits(value[e], a.x_scale);
      } else {
        bytes[e] = static_cast<std::uint32_t>(value[e]);
      }
      if (!inside[e]) bytes[e] = 0;
    }
    *to = low_bytes(bytes);
  } else {
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      TwoOf<To> pair;
      if constexpr (sizeof(From) == 4) {
        pair = to_two<To>(value[e], value[e + 1]);
      } else {
        pair = TwoOf<To>(value[e], value[e + 1]);
      }
      std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(&pair);
      if (!inside[e]) word &= 0xFFFF0000U;
      if (!inside[e + 1]) word &= 0x0000FFFFU;
      to[e / 2] = word;
    }
  }
}

__device__ __forceinline__ void copy_halo(const StemArgs& a, const TileOrigin& tile, std::uint32_t halo) {
  if (a.copied_bytes == 16) return copy_halo<16>(a, tile, halo);
  if (a.copied_bytes == 8) return copy_halo<8>(a, tile, halo);
  copy_halo<4>(a, tile, halo);
}

/// Four elements at a time, from any layout. Every load has a valid address, so that none of them waits for another.
/// Grouped: an element is a channel of one of `group` neighbouring taps. AtOnce: fours of a thread that are in flight
/// together.
template <typename To, typename From, bool Grouped, int AtOnce>
__device__ __forceinline__ void read_halo(const StemArgs& a, const TileOrigin& tile, std::uint8_t* halo) {
  const ConvShape& s = a.shape;
  const From* x = static_cast<const From*>(a.x);
  const int image = tile.image * a.x_image;
  constexpr bool kOne = Grouped || sizeof(From) == 4;  // images have up to four channels
  const int quads = kOne ? 1 : a.parts;
  const int pitch = a.pitch * a.units.unit_bytes;
  const int count = a.halo_h * a.halo_w * quads;
  const int threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); first < count; first += threads * AtOnce) {
    From value[AtOnce][4];
    bool inside[AtOnce][4];
    std::uint8_t* to[AtOnce];
#pragma unroll
    for (int u = 0; u < AtOnce; ++u) {
      const int i = first + u * threads;
      const bool there = u == 0 || i < count;
      const int index = kOne ? i : divide_small(i, a.parts_factor);
      const int quad = i - index * quads;
      const HaloPixel pixel(a, tile, index);
      to[u] = halo + index * pitch + quad * 4 * static_cast<int>(sizeof(To));
      if constexpr (Grouped) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int channel = s.in_c == 1 ? 0 : e % 2;
          HaloPixel tap = pixel;
          tap.w += (s.in_c == 1 ? e : e / 2) * s.dilation_w;
          inside[u][e] = tap.inside(a);
          value[u][e] = 0;
          if (there) {
            value[u][e] =
                x[image + channel * a.x_channel + (inside[u][e] ? tap.h * a.x_row + tap.w * a.x_pixel : 0)];
          }
        }
      } else {
        const bool within = pixel.inside(a);
        const int at =
            image + quad * 4 * a.x_channel + (within ? pixel.h * a.x_row + pixel.w * a.x_pixel : 0);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          inside[u][e] = within;
          value[u][e] = 0;
          if (there && quad * 4 + e < s.in_c) value[u][e] = x[at + e * a.x_channel];
        }
      }
    }
#pragma unroll
    for (int u = 0; u < AtOnce; ++u) {
      if (u == 0 || first + u * threads < count)
        convert_unit<To>(a, value[u], inside[u], reinterpret_cast<std::uint32_t*>(to[u]));
    }
  }
}

template <typename To, typename From, bool Grouped>
__device__ __forceinline__ void read_halo(const StemArgs& a, const TileOrigin& tile, std::uint8_t* halo) {
  if constexpr (Grouped) {
    read_halo<To, From, Grouped, 1>(a, tile, halo);
  } else if constexpr (sizeof(From) == 4) {
    read_halo<To, From, Grouped, 3>(a, tile, halo);
  } else {
    read_halo<To, From, Grouped, 2>(a, tile, halo);
  }
}

/// How pixels come to shared memory.
enum class Staging { copied, elements, grouped };

template <typename Element, int Words, Staging How>
__device__ __forceinline__ void stage_halo(const StemArgs& a, const TileOrigin& tile, std::uint8_t* halo) {
  if constexpr (How == Staging::copied) {
    copy_halo(a, tile, ptx::shared_address(halo));
  } else {
    constexpr bool kGrouped = How == Staging::grouped;
    // Units of four elements hold up to four channels, those of a user's image too.
    if (Words == static_cast<int>(sizeof(Element)) && a.x_f32) {
      read_halo<Element, float, kGrouped>(a, tile, halo);
    } else {
      read_halo<Element, Element, kGrouped>(a, tile, halo);
    }
  }
}

// Convolution of few channels: the pixels under a tile are brought to shared memory once and read from there for every
// tap; the weights stay in shared memory for all tiles of a block. Arithmetic: the types, the products and the end of a
// convolution in fp16, bf16 or INT8.

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

}  // namespace pipit::internal::cuda
