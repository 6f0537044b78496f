// The kernel of a network's first convolution and the maximum behind it (pooled_stem_plan.h). The convolution's left
// operands are read straight from the rows of the image in shared memory: eight pixels of four channels are one or two
// products' depth. Its outputs never leave the multiprocessor.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "layers/cuda/chain/pooled_stem_supply.cuh"
#include "layers/cuda/chain/unit_outputs.cuh"
#include "layers/cuda/chain/unit_products.cuh"
#include "layers/cuda/device/async_ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::cuda {

namespace pooled_stem {

#ifdef PIPIT_WARPGROUP_MMA

template <typename Sum, bool FromBytes>
struct Stem {
  static constexpr int kBytes = std::is_same_v<Sum, float> ? 2 : 1;  // of an element
  static constexpr int kRowBytes = kUnitChannels * kBytes;
  static constexpr int kUnitBytes = kUnitRows * kRowBytes;
  static constexpr int kPixelBytes = Supply<Sum>::kPixelBytes;
  static constexpr int kConstants = kUnitChannels * (kBytes == 1 ? 8 : 4);
  using Out = units::Outputs<Sum>;
  const PooledStemArgs& p;
  const Places& at;
  const StemPart part;

  /// Brings the image's rows of each step, and then takes the maxima of the step in front, while this one is convolved:
  /// both rings have room for the rows of two steps of an image. Those of another image come when nobody reads the one
  /// in front any more.
  __device__ __forceinline__ void serve_all() const {
    int image = 0, step = 0;  // of the turn in front
    const auto finish = [&](int turn) {
      wait_at(kConvolved, turn);
      pool(image, step);
    };
    Walk walk(p);
#pragma unroll 1
    for (; !walk.done(); walk.next()) {
      const bool in_turn = !walk.begins();
      if (walk.turn > 0 && !in_turn) finish(walk.turn - 1);
      Supply<Sum>{p, at, part}.template bring<FromBytes>(walk);
      arrive_at(kRowsAreThere, walk.turn);
      if (in_turn) finish(walk.turn - 1);
      image = walk.image, step = walk.step;
    }
    finish(walk.turn - 1);
  }

  /// Left operands of a row of the window. from: of the lane's two rows, in bytes from the ring's beginning.
  using Left = std::uint32_t[kBytes][4];
  __device__ __forceinline__ void load(Left& left, const std::uint32_t (&from)[2], int window_row) const {
    const std::uint32_t row_bytes = p.plan.pitch * kPixelBytes;
    const std::uint32_t ring_bytes = row_bytes * p.plan.image_rows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t place = from[half] + window_row * row_bytes;
      place = at.pixels + min(place, place - ring_bytes);
#pragma unroll
      for (int k = 0; k < kBytes; ++k) {
        asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(left[k][half]) : "r"(place + k * 32) : "memory");
        asm volatile("ld.shared.u32 %0, [%1];\n"
                     : "=r"(left[k][half + 2])
                     : "r"(place + k * 32 + 16)
                     : "memory");
      }
    }
  }

  /// A tile of the convolution's new positions, by a group.
  __device__ __forceinline__ void convolve(const Walk& walk, int tile, int positions) const {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    const PooledStemShape& s = p.plan.shape;
    std::uint32_t from[2], to[2];
    bool exists[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = tile * kUnitRows + warp * 16 + lane / 4 + half * 8;
      exists[half] = position < positions;
      const int row = p.mid_row.divide(min(position, positions - 1));
      const int column = min(position, positions - 1) - row * p.plan.mid_columns;
      const int mid = walk.new_mid.begin + row, above = mid * s.stride_h;
      const int image_row = above - p.image_ring.divide(above) * p.plan.image_rows;
      const int mid_row = mid - p.mid_ring.divide(mid) * p.plan.mid_rows;
      from[half] = (image_row * p.plan.pitch + column * s.stride_w) * kPixelBytes + lane % 4 * 4;
      to[half] = at.ring + (mid_row * p.plan.mid_columns + column) * kRowBytes + lane % 4 * 16;
    }
    const std::uint32_t constants = at.constants + lane % 4 * 16;
    units::Sums<Sum> sums;
    units::start(sums, constants);
    const std::uint64_t right = units::descriptor<kRowBytes>(at.weights);
    Left left[2];
    load(left[0], from, 0);
#pragma unroll
    for (int row = 0; row < kPooledStemTaps; ++row) {
      ptx::begin_products();
#pragma unroll
      for (int k = 0; k < kBytes; ++k)
        ptx::multiply_group(sums, left[row % 2][k],
                            right + (row / 2 * kUnitBytes >> 4) + (row % 2 * kBytes + k) * 2);
      ptx::end_products();
      // The operands that are loaded next take the place of those of the products before these.
      ptx::wait_products<1>();
      if (row + 1 < kPooledStemTaps) load(left[(row + 1) % 2], from, row + 1);
    }
    ptx::wait_products();
    Out outputs[2];
    Out::template finish<false, true>(outputs, sums, constants, p.bounds, outputs, 0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!exists[half]) continue;
      const std::uint32_t(&word)[4 * kBytes] = outputs[half].word;
#pragma unroll
      for (int w = 0; w < kBytes; ++w)
        store_four(units::swizzled<kRowBytes>(to[half] + w * 64),
                   make_uint4(word[w * 4], word[w * 4 + 1], word[w * 4 + 2], word[w * 4 + 3]));
    }
  }

  /// The largest so far of 16 bytes of channels. Bytes are never negative: they come from a ReLU.
  struct Largest {
    std::uint32_t word[4], even[4];
    __device__ __forceinline__ void take(const uint4& four, bool first) {
      const std::uint32_t with[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if constexpr (kBytes == 1) {
          // Of two neighbouring bytes the upper decides about a pair; the lower are compared by themselves.
          const std::uint32_t low = with[w] & 0x00FF00FFU;
          word[w] = first ? with[w] : __vmaxu2(word[w], with[w]);
          even[w] = first ? low : __vmaxu2(even[w], low);
        } else if (first) {
          word[w] = with[w];
        } else {
          const __half2 larger = __hmax2_nan(*reinterpret_cast<const __half2*>(&word[w]),
                                             *reinterpret_cast<const __half2*>(&with[w]));
          word[w] = *reinterpret_cast<const std::uint32_t*>(&larger);
        }
      }
    }
    __device__ __forceinline__ uint4 value() const {
      std::uint32_t v[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) v[w] = kBytes == 1 ? (word[w] & 0xFF00FF00U) | even[w] : word[w];
      return make_uint4(v[0], v[1], v[2], v[3]);
    }
  };

  /// A step's maxima, by all that serve. Windows that reach into the padding take their edge twice.
  __device__ __forceinline__ void pool(int image, int step) const {
    const PooledStemShape& s = p.plan.shape;
    constexpr int kChunks = kRowBytes / 16;
    const int first_row = step * p.plan.step_rows;
    const int rows = min(p.plan.step_rows, s.out_h - first_row);  // one where a part may have fewer columns
    // Of a window's first column in the ring, for column 0; never in front of the ring but by padding.
    const int first_mid = 2 * part.out_begin - s.pool_pad_w - part.mid_begin;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) - kComputing; i < rows * part.out_columns * kChunks;
         i += kServing) {
      const int chunk = i % kChunks, position = i / kChunks;
      const int row = first_row + p.out_row.divide(position);
      const int column = position - p.out_row.divide(position) * p.plan.out_columns;
      Largest largest;
#pragma unroll
      for (int y = 0; y < 3; ++y) {
        const int mid = min(max(2 * row - s.pool_pad_h + y, 0), s.mid_h - 1);
        const int ring_row = mid - p.mid_ring.divide(mid) * p.plan.mid_rows;
#pragma unroll
        for (int x = 0; x < 3; ++x) {
          const int w = min(max(2 * column + first_mid + x, 0), p.plan.mid_columns - 1);
          const std::uint32_t from = at.ring + (ring_row * p.plan.mid_columns + w) * kRowBytes + chunk * 16;
          largest.take(load_four(units::swizzled<kRowBytes>(from)), y + x == 0);
        }
      }
      const std::int64_t to =
          (static_cast<std::int64_t>(image) * s.out_h + row) * s.out_w + part.out_begin + column;
      *reinterpret_cast<uint4*>(p.y + to * kRowBytes + chunk * 16) = largest.value();
    }
  }

  __device__ __forceinline__ void convolve_all() const {
    /// From one lane: the compiler serializes products in what it takes for divergent.
    const int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 128, 0);
#pragma unroll 1
    for (Walk walk(p); !walk.done(); walk.next()) {
      // Then, too, nobody takes maxima any more of the rows in whose place those of this step come.
      wait_at(kRowsAreThere, walk.turn);
      const int positions = (walk.new_mid.end - walk.new_mid.begin) * p.plan.mid_columns;
#pragma unroll 1
      for (int tile = group; tile * kUnitRows < positions; tile += kPooledStemGroups)
        convolve(walk, tile, positions);
      arrive_at(kConvolved, walk.turn);
    }
  }
};

#endif

}  // namespace pooled_stem

/// Sum: float for halves, std::int32_t for bytes. FromBytes: of the user's image.
template <typename Sum, bool FromBytes>
__global__ void __launch_bounds__(pooled_stem::kThreads, 1)
    run_pooled_stem(const __grid_constant__ PooledStemArgs p) {
#ifdef PIPIT_WARPGROUP_MMA
  using Stem = pooled_stem::Stem<Sum, FromBytes>;
  extern __shared__ std::uint8_t dynamic[];
  __shared__ uint4 constants[Stem::kConstants / 16];
  pooled_stem::Places at;
  at.weights = (ptx::shared_address(dynamic) + 1023) & ~1023U;
  at.ring = at.weights + p.plan.ring;
  at.pixels = at.weights + p.plan.pixels;
  at.constants = ptx::shared_address(constants);
  at.table = at.weights + p.plan.table;
  const auto thread = static_cast<int>(threadIdx.x);
  const StemPart part = p.plan.part_of(static_cast<int>(blockIdx.y));
  // Weights are there when those that multiply have waited for the first rows of the image: nobody else does.
  if (thread < pooled_stem::kComputing) {
    for (int i = thread * 16; i < kPooledStemUnits * Stem::kUnitBytes; i += pooled_stem::kComputing * 16)
      ptx::copy_async<16>(at.weights + i, p.weights + i, true);
    ptx::commit_copies();
  }
  // Of the rows of the image what is never written: padding on both sides.
  const int pixel_bytes = p.plan.image_rows * p.plan.pitch * Stem::kPixelBytes;
  for (int i = thread * 16; i < pixel_bytes; i += pooled_stem::kThreads * 16)
    store_four(at.pixels + i, uint4{});
  if constexpr (FromBytes) {
    for (int i = thread; i < p.plan.shape.channels * 256; i += pooled_stem::kThreads) {
      const std::uint32_t entry = pooled_stem::Supply<Sum>{p, at, part}.entry(i / 256, p.table[i]);
      asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(at.table + i * 4), "r"(entry) : "memory");
    }
  }
  __syncthreads();
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  if (thread < pooled_stem::kComputing) {
    ptx::take_registers<pooled_stem::kRegisters>();
    if (thread * 16 < Stem::kConstants)
      store_four(at.constants + thread * 16, units::constant<Sum>(p.constants, thread * 16));
    ptx::wait_copies<0>();
    ptx::publish_shared();
    Stem{p, at, part}.convolve_all();
  } else {
    ptx::leave_registers<pooled_stem::kFewRegisters>();
    Stem{p, at, part}.serve_all();
  }
#endif
}

}  // namespace pipit::cuda
