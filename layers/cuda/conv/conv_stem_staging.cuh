// How the kernels "stem" bring the pixels under a tile to shared memory: padding and missing channels as zeros.
#pragma once

#include <cuda_fp16.h>

#include "layers/cuda/conv/conv_stem_pack.h"
#include "layers/cuda/conv/int8_math.cuh"
#include "layers/cuda/device/async_ptx.cuh"

namespace pipit::cuda {

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
      __half2 pair;
      if constexpr (sizeof(From) == 4) {
        pair = __floats2half2_rn(value[e], value[e + 1]);
      } else {
        pair = __halves2half2(value[e], value[e + 1]);
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
/// Grouped: an element is a channel of one of `group` neighbouring taps. AtOnce: fours of a thread that are under way
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

}  // namespace pipit::cuda
