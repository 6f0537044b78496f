// Brings a tile's operands to shared memory, step by step along k.
#pragma once

#include <cstdint>

#include "layers/cuda/conv/conv_gemm_launch.h"
#include "layers/cuda/device/async_ptx.cuh"

namespace pipit::cuda {

/// Copies the tile's next step along k from x and the weights to shared memory. Positions along k count units of 16
/// bits, which are halves or pairs of bytes.
template <typename T>
struct ConvGemmLoader {
  static constexpr int kRowLoads = T::kRows / T::kRowStep;
  static constexpr int kColumnLoads = T::kColumns / T::kRowStep;
  static constexpr int kParts = 8 / T::kVector;  // copies that make up one chunk
  static_assert(T::kRows % T::kRowStep == 0 && T::kColumns % T::kRowStep == 0);

  const ConvGemmArgs& args;
  int row = static_cast<int>(threadIdx.x) / T::kChunks;
  int chunk = static_cast<int>(threadIdx.x) % T::kChunks;
  int h[kRowLoads], w[kRowLoads], base[kRowLoads];
  DepthCursor cursor[kParts];
  int k;  // position along k of this thread's next chunk
  const std::uint16_t* x = static_cast<const std::uint16_t*>(args.x);
  const std::uint16_t* weights;

  __device__ ConvGemmLoader(const ConvGemmArgs& a, int first_row, int first_column, int first_step)
      : args(a) {
    const ConvShape& s = args.shape;
#pragma unroll
    for (int i = 0; i < kRowLoads; ++i) {
      const int m = first_row + row + i * T::kRowStep;
      const bool inside = m < args.rows;
      const PixelOrigin origin = pixel_origin(s, args.positions, args.out_width, inside ? m : 0);
      // Rows beyond the matrix read as padding.
      h[i] = inside ? origin.h : -(1 << 29);
      w[i] = origin.w;
      base[i] = ((origin.image * s.in_h + origin.h) * s.in_w + origin.w) * s.in_c;
      ptx::keep_in_register(h[i]);
      ptx::keep_in_register(w[i]);
      ptx::keep_in_register(base[i]);
    }
    k = first_step * kTileDepth + chunk * 8;
    place_cursors();
    weights = static_cast<const std::uint16_t*>(args.weights) +
              static_cast<std::int64_t>(first_column + row) * args.depth + first_step * kTileDepth +
              chunk * 8;
  }

  __device__ __forceinline__ void place_cursors() {
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      cursor[p] = depth_cursor(args.shape, args.channels, args.kernel_width, k + p * T::kVector);
    }
  }

  /// The step's part of x.
  __device__ __forceinline__ void load_left(std::uint32_t stage) {
    const ConvShape& s = args.shape;
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      DepthCursor& at = cursor[p];
      const int dh = at.r * s.dilation_h;
      const int dw = at.s * s.dilation_w;
      const int offset = (dh * s.in_w + dw) * s.in_c + at.c;
      const bool live = at.r < s.kernel_h;
#pragma unroll
      for (int i = 0; i < kRowLoads; ++i) {
        const bool valid = live && static_cast<unsigned>(h[i] + dh) < static_cast<unsigned>(s.in_h) &&
                           static_cast<unsigned>(w[i] + dw) < static_cast<unsigned>(s.in_w);
        const int r = row + i * T::kRowStep;
        const std::uint32_t to =
            stage + r * T::kRowBytes + swizzled_chunk<T::kChunks>(r, chunk) * 16 + p * T::kVector * 2;
        ptx::copy_async<T::kVector * 2>(to, x + (valid ? base[i] + offset : 0), valid);
      }
      if constexpr (T::kVector == 8) at.advance(s, kTileDepth);
    }
    if constexpr (T::kVector < 8) {
      // Sixteen taps to a step: dividing is shorter than walking.
      k += kTileDepth;
      place_cursors();
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
};

}  // namespace pipit::cuda
