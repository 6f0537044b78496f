// Brings a tile's operands to shared memory, step by step along k.
#pragma once

#include <cstdint>

#include "layers/cuda/conv/conv_gemm_launch.h"
#include "layers/cuda/device/async_ptx.cuh"

namespace pipit::cuda {

/// Copies the tile's next step along k from x and the weights to shared memory. Positions along k count units of 16
/// bits, which are halves or pairs of bytes. Listed: of ConvGemmArgs::blocks, else of all blocks. WholeImages: only
/// ConvAverage::rows of the tile are copied.
template <typename T, bool Listed, bool WholeImages = false>
struct ConvGemmLoader {
  static constexpr int kRowLoads = T::kRows / T::kRowStep;
  static constexpr int kColumnLoads = T::kColumns / T::kRowStep;
  static constexpr int kParts = 8 / T::kVector;  // copies that make up one chunk
  static_assert(T::kRows % T::kRowStep == 0 && T::kColumns % T::kRowStep == 0);
  /// What a thread copies of one step of x.
  struct alignas(kParts * sizeof(DepthBlock)) Blocks {
    DepthBlock part[kParts];
  };

  const ConvGemmArgs& args;
  int row = static_cast<int>(threadIdx.x) / T::kChunks;
  int chunk = static_cast<int>(threadIdx.x) % T::kChunks;
  int h[kRowLoads], w[kRowLoads], base[kRowLoads];
  const Blocks* blocks = nullptr;  // listed: of this thread's chunk of the first step
  // Else where this thread's next chunk lies.
  DepthCursor cursor[kParts];
  int k = 0;
  const std::uint16_t* x = static_cast<const std::uint16_t*>(args.x);
  const std::uint16_t* weights;

  __device__ ConvGemmLoader(const ConvGemmArgs& a, int first_row, int column_tile, int first_step) : args(a) {
    const ConvShape& s = args.shape;
#pragma unroll
    for (int i = 0; i < kRowLoads; ++i) {
      const int m = first_row + row + i * T::kRowStep;
      bool inside = m < args.rows;
      if constexpr (WholeImages) inside = inside && m - first_row < args.average.rows;
      const PixelOrigin origin = pixel_origin(s, args.positions, args.out_width, inside ? m : 0);
      // Rows beyond the matrix, or the tile's images, read as padding.
      h[i] = inside ? origin.h : -(1 << 29);
      w[i] = origin.w;
      base[i] = ((origin.image * s.in_h + origin.h) * s.in_w + origin.w) * pixel_units();
      ptx::keep_in_register(h[i]);
      ptx::keep_in_register(w[i]);
      ptx::keep_in_register(base[i]);
    }
    if constexpr (Listed) {
      blocks = reinterpret_cast<const Blocks*>(args.blocks + column_tile * args.tile_blocks) +
               first_step * T::kChunks + chunk;
    } else {
      k = first_step * kTileDepth + chunk * 8;
      place_cursors();
    }
    weights = static_cast<const std::uint16_t*>(args.weights) +
              static_cast<std::int64_t>(column_tile * T::kColumns + row) * args.depth +
              first_step * kTileDepth + chunk * 8;
  }

  __device__ __forceinline__ void place_cursors() {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      cursor[p] = depth_cursor(args.shape, args.channels, args.kernel_width, k + p * T::kVector);
    }
  }

  /// The listed blocks of a step. They are constants, which may be read before the kernel in front has finished.
  __device__ __forceinline__ Blocks listed(int step) const {
    return blocks[step * T::kChunks];
  }

  /// The next step's part of x. of_step: its listed blocks, where there are any.
  __device__ __forceinline__ void load_left(std::uint32_t stage, const Blocks& of_step) {
    const ConvShape& s = args.shape;
    if constexpr (Listed) {
      // Through the first-level cache: a pixel's lines are read again for the blocks of other taps.
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const DepthBlock& at = of_step.part[p];
        const int odd = T::kEndsUnstored ? at.offset & 1 : 0;
        load_part<ptx::Through::both_caches>(stage, p, true, at.down, at.right, at.offset - odd, odd == 0);
      }
    } else {
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        DepthCursor& at = cursor[p];
        const int down = at.r * s.dilation_h;
        const int right = at.s * s.dilation_w;
        load_part<ptx::Through::second_cache>(stage, p, at.r < s.kernel_h, down, right,
                                              (down * s.in_w + right) * pixel_units() + at.c,
                                              at.c + 8 <= pixel_units());
        if constexpr (T::kVector == 8) at.advance(s, kTileDepth);
      }
      if constexpr (T::kVector < 8) {
        // Sixteen taps to a step: dividing is shorter than walking.
        k += kTileDepth;
        place_cursors();
      }
    }
  }

  /// The step's part of the weights.
  __device__ __forceinline__ void load_right(std::uint32_t stage) {
    const std::uint32_t right = stage + T::kRows * T::kRowBytes;
#pragma unroll
    for (int i = 0; i < kColumnLoads; ++i) {
      const int r = row + i * T::kRowStep;
      ptx::copy_async<16>(right + r * T::kRowBytes + swizzled_chunk<T::kChunks>(r, chunk) * 16,
                          weights + static_cast<std::int64_t>(i * T::kRowStep) * args.depth, true);
    }
    weights += kTileDepth;
  }

 private:
  __device__ __forceinline__ int pixel_units() const {
    return T::kEndsUnstored ? args.shape.pixel_units() : args.shape.in_c;
  }

  /// whole: else the last four units are unstored.
  template <ptx::Through Caches>
  __device__ __forceinline__ void load_part(std::uint32_t stage, int part, bool live, int down, int right,
                                            int offset, bool whole) const {
    const ConvShape& s = args.shape;
#pragma unroll
    for (int i = 0; i < kRowLoads; ++i) {
      const bool valid = live && static_cast<unsigned>(h[i] + down) < static_cast<unsigned>(s.in_h) &&
                         static_cast<unsigned>(w[i] + right) < static_cast<unsigned>(s.in_w);
      const int r = row + i * T::kRowStep;
      const std::uint32_t to =
          stage + r * T::kRowBytes + swizzled_chunk<T::kChunks>(r, chunk) * 16 + part * T::kVector * 2;
      const std::uint16_t* from = x + (valid ? base[i] + offset : 0);
      if constexpr (T::kEndsUnstored) {  // pixels begin at multiples of 8 bytes
        ptx::copy_async<8>(to, from, valid);
        ptx::copy_async<8>(to + 8, valid && whole ? from + 4 : x, valid && whole);
      } else {
        ptx::copy_async<T::kVector * 2, Caches>(to, from, valid);
      }
    }
  }
};

}  // namespace pipit::cuda
