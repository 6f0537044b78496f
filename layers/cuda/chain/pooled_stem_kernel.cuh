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
  static constexpr int kBiasBytes = kUnitChannels * 4;
  using Out = units::Outputs<Sum>;
  const PooledStemArgs& p;
  const Places& at;
  const StemPart part;
  const Steps ready;      // for the convolution
  const Steps convolved;  // what is pooled

  /// Brings the image's rows of each step. The ring has room for those of two steps of an image: nobody reads those
  /// of the step before the last one any more. Those of another image come when nobody reads the one in front.
  __device__ __forceinline__ void bring_all() const {
#pragma unroll 1
    for (Walk walk(p); !walk.done(); walk.next()) {
      const int before = walk.turn - (walk.begins() ? 1 : 2);
      if (before >= 0) convolved.wait(before);
      Supply<Sum>{p, at, part}.template bring<FromBytes>(walk);
      ready.arrive(walk.turn);
    }
  }

  /// Takes the maxima of each step while the next one is convolved: its ring, too, has room for the rows of two steps.
  __device__ __forceinline__ void pool_all() const {
    const Walk walk(p);
    const auto begins = [&](int turn) {
      const int step = walk.first + turn;
      return turn == 0 || p.steps.divide(step) * p.plan.steps == step;
    };
    // Of the step behind `pooled` ones, and the next of its image.
    const auto make_room = [&](int pooled) {
      if (pooled < walk.count && begins(pooled)) ready.arrive(pooled);
      if (pooled + 1 < walk.count && !begins(pooled + 1)) ready.arrive(pooled + 1);
    };
    make_room(0);
#pragma unroll 1
    for (int pooled = 0; pooled < walk.count;) {
      convolved.wait(pooled);
      const int image = p.steps.divide(walk.first + pooled);
      const int first_row = (walk.first + pooled - image * p.plan.steps) * p.plan.step_rows;
      first_row + 1 < min(p.plan.shape.out_h, first_row + p.plan.step_rows) ? pool<2>(image, first_row)
                                                                            : pool<1>(image, first_row);
      make_room(++pooled);
    }
  }

  /// Left operands of a row of the window. from: of the lane's two rows.
  using Left = std::uint32_t[kBytes][4];
  __device__ __forceinline__ void load(Left& left, const std::uint32_t (&from)[2], int window_row) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t place = from[half] + window_row * p.plan.pitch * kPixelBytes;
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

  /// Where a step's new rows begin.
  struct FirstRows {
    int image_row, mid_row;  // of the rings
  };
  __device__ __forceinline__ FirstRows first_rows(const Walk& walk) const {
    const int mid = walk.new_mid.begin, above = mid * p.plan.shape.stride_h;
    return {above - p.image_ring.divide(above) * p.plan.image_rows,
            mid - p.mid_ring.divide(mid) * p.plan.mid_rows};
  }
  /// A ring's row, of fewer than two rounds.
  static __device__ __forceinline__ int in_ring(int row, int rows) {
    return static_cast<int>(min(static_cast<unsigned>(row), static_cast<unsigned>(row - rows)));
  }

  /// Where in shared memory two positions of the convolution are for a lane: what it reads and what it writes.
  struct Lane {
    std::uint32_t from[2], to[2];
    bool exists[2];
  };
  __device__ __forceinline__ Lane lane_of(const FirstRows& first, int tile, int positions) const {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
    const PooledStemShape& s = p.plan.shape;
    Lane to;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = tile * kUnitRows + warp * 16 + lane / 4 + half * 8;
      to.exists[half] = position < positions;
      const int there = min(position, positions - 1);
      const int row = p.mid_row.divide(there);
      const int column = there - row * p.plan.mid_columns;
      const int image_row = in_ring(first.image_row + row * s.stride_h, p.plan.image_rows);
      const int mid_row = in_ring(first.mid_row + row, p.plan.mid_rows);
      to.from[half] = at.pixels + (image_row * p.plan.pitch + column * s.stride_w + part.lead) * kPixelBytes +
                      lane % 4 * 4;
      to.to[half] = at.ring + in_bank((mid_row * p.plan.mid_pitch + column) * kRowBytes + lane % 4 * 16);
    }
    return to;
  }
  /// Of the ring's rows, by their distance from its beginning. Eight lanes write neighbouring positions, or read every
  /// other one: 16 bytes of each bank's in both cases.
  static __device__ __forceinline__ std::uint32_t in_bank(std::uint32_t distance) {
    const std::uint32_t swizzled = units::swizzled<kRowBytes>(distance);
    return kBytes == 1 ? swizzled ^ (distance >> 1 & 0x40) : swizzled;
  }

  /// INT8: of all of a lane's outputs, which every tile has.
  using Multipliers = uint4[4];

  /// Rows of left operands that a lane has room for.
  static constexpr int kAhead = kBytes == 1 ? 4 : 2;

  /// A tile of the convolution's new positions, by a group.
  __device__ __forceinline__ void convolve(const FirstRows& first, int tile, int positions,
                                           const Multipliers& multipliers) const {
    const Lane lane = lane_of(first, tile, positions);
    units::Sums<Sum> sums;
    Left left[kAhead];
#pragma unroll
    for (int row = 0; row < kAhead; ++row) load(left[row], lane.from, row);
    units::start(sums, at.biases + threadIdx.x % 4 * 16);
    const std::uint64_t right = units::descriptor<kRowBytes>(at.weights);
#pragma unroll
    for (int row = 0; row < kPooledStemTaps; ++row) {
      ptx::begin_products();
#pragma unroll
      for (int k = 0; k < kBytes; ++k)
        ptx::multiply_group(sums, left[row % kAhead][k],
                            right + (row / 2 * kUnitBytes >> 4) + (row % 2 * kBytes + k) * 2);
      ptx::end_products();
      // The operands that are loaded next take the place of those of the products before these.
      const int next_row = row - 1 + kAhead;
      if (row == 0 || next_row >= kPooledStemTaps) continue;
      ptx::wait_products<1>();
      load(left[next_row % kAhead], lane.from, next_row);
    }
    ptx::wait_products();
    Out outputs[2];
    Out::template finish_by<false, true>(
        outputs, sums, [&](int i) { return multipliers[i]; }, p.bounds, outputs, 0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!lane.exists[half]) continue;
      const std::uint32_t(&word)[4 * kBytes] = outputs[half].word;
#pragma unroll
      for (int w = 0; w < kBytes; ++w)
        store_four(lane.to[half] ^ w * 64,
                   make_uint4(word[w * 4], word[w * 4 + 1], word[w * 4 + 2], word[w * 4 + 3]));
    }
  }

  /// 16 bytes of channels. Bytes are never negative: they come from a ReLU. Of two neighbouring bytes the upper decides
  /// which pair is larger; the lower ones are compared by themselves.
  struct Channels {
    std::uint32_t word[4], lower[kBytes == 1 ? 4 : 1];
    __device__ __forceinline__ static Channels load(std::uint32_t from) {
      const uint4 four = load_four(from);
      Channels c{{four.x, four.y, four.z, four.w}, {}};
      if constexpr (kBytes == 1) {
#pragma unroll
        for (int w = 0; w < 4; ++w) c.lower[w] = c.word[w] & 0x00FF00FFU;
      }
      return c;
    }
    __device__ __forceinline__ uint4 value() const {
      std::uint32_t v[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) v[w] = kBytes == 1 ? (word[w] & 0xFF00FF00U) | lower[w] : word[w];
      return make_uint4(v[0], v[1], v[2], v[3]);
    }
  };
  static __device__ __forceinline__ std::uint32_t larger_halves(std::uint32_t a, std::uint32_t b) {
    const __half2 larger =
        __hmax2_nan(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
    return *reinterpret_cast<const std::uint32_t*>(&larger);
  }
  static __device__ __forceinline__ Channels largest(const Channels& a, const Channels& b,
                                                     const Channels& c) {
    Channels most;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (kBytes == 1) {
        most.word[w] = __vimax3_u16x2(a.word[w], b.word[w], c.word[w]);
        most.lower[w] = __vimax3_u16x2(a.lower[w], b.lower[w], c.lower[w]);
      } else {
        most.word[w] = larger_halves(larger_halves(a.word[w], b.word[w]), c.word[w]);
      }
    }
    return most;
  }

  /// One row of maxima, or two that have a row of their windows in common. Windows that reach into the padding take
  /// their edge twice.
  template <int Rows>
  __device__ __forceinline__ void pool(int image, int first_row) const {
    const PooledStemShape& s = p.plan.shape;
    constexpr int kChunks = kRowBytes / 16, kWindow = 2 * Rows + 1;
    std::uint32_t row_at[kWindow];
    const int first_mid_row = max(2 * first_row - s.pool_pad_h, 0);
    const int first_ring_row = first_mid_row - p.mid_ring.divide(first_mid_row) * p.plan.mid_rows;
#pragma unroll
    for (int y = 0; y < kWindow; ++y) {
      const int mid = min(max(2 * first_row - s.pool_pad_h + y, 0), s.mid_h - 1);
      const int ring_row = in_ring(first_ring_row + mid - first_mid_row, p.plan.mid_rows);
      row_at[y] = at.ring + ring_row * p.plan.mid_pitch * kRowBytes;
    }
    // Of a window's first column in the ring, for column 0; never in front of the ring but by padding.
    const int first_mid = 2 * part.out_begin - s.pool_pad_w - part.mid_begin;
    const int server = static_cast<int>(threadIdx.x) - kComputing - kBringing, chunk = server % kChunks * 16;
    const int out_row = image * s.out_h + first_row;
#pragma unroll 1
    for (int column = server / kChunks; column < part.out_columns; column += kPooling / kChunks) {
      Channels most[Rows] = {};  // of bytes, that are not negative
#pragma unroll 1
      for (int x = 0; x < 3; ++x) {
        const int w = min(max(2 * column + first_mid + x, 0), p.plan.mid_columns - 1);
        // All rows begin on a multiple of eight positions, and are swizzled alike.
        const std::uint32_t in_row = in_bank(w * kRowBytes + chunk);
        Channels above = Channels::load(row_at[0] + in_row);
#pragma unroll
        for (int r = 0; r < Rows; ++r) {
          const Channels middle = Channels::load(row_at[2 * r + 1] + in_row);
          const Channels below = Channels::load(row_at[2 * r + 2] + in_row);
          const Channels of_column = largest(above, middle, below);
          most[r] = kBytes == 2 && x == 0 ? of_column : largest(most[r], of_column, of_column);
          above = below;
        }
      }
#pragma unroll
      for (int r = 0; r < Rows; ++r)
        *reinterpret_cast<uint4*>(
            p.y + (std::int64_t{out_row + r} * s.out_w + part.out_begin + column) * kRowBytes + chunk) =
            most[r].value();
    }
  }

  __device__ __forceinline__ void convolve_all() const {
    /// From one lane: the compiler serializes products in what it takes for divergent.
    const int group = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 128, 0);
    Multipliers multipliers{};
    if constexpr (kBytes == 1) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        multipliers[i] =
            *reinterpret_cast<const uint4*>(p.constants + kBiasBytes + i * 64 + threadIdx.x % 4 * 16);
    }
    // Groups take turns through all steps' tiles: who has fewer of a step begins with the next one.
    int tiles_before = 0;
#pragma unroll 1
    for (Walk walk(p); !walk.done(); walk.next()) {
      // Then, too, nobody takes maxima any more of the rows in whose place those of this step come.
      ready.wait(walk.turn);
      const int positions = (walk.new_mid.end - walk.new_mid.begin) * p.plan.mid_columns;
      const FirstRows first = first_rows(walk);
#pragma unroll 1
      for (int tile = (group - tiles_before) & (kPooledStemGroups - 1); tile * kUnitRows < positions;
           tile += kPooledStemGroups)
        convolve(first, tile, positions, multipliers);
      tiles_before += (positions + kUnitRows - 1) / kUnitRows;
      convolved.arrive(walk.turn);
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
  __shared__ uint4 biases[Stem::kBiasBytes / 16];
  __shared__ std::uint64_t barriers[2 * pooled_stem::Steps::kCount];
  pooled_stem::Places at;
  at.weights = (ptx::shared_address(dynamic) + 1023) & ~1023U;
  at.ring = at.weights + p.plan.ring;
  at.pixels = at.weights + p.plan.pixels;
  at.biases = ptx::shared_address(biases);
  at.table = at.weights + p.plan.table;
  const auto thread = static_cast<int>(threadIdx.x);
  const StemPart part = p.plan.part_of(static_cast<int>(blockIdx.y));
  const pooled_stem::Steps ready{ptx::shared_address(barriers)};
  const pooled_stem::Steps convolved{ptx::shared_address(barriers + pooled_stem::Steps::kCount)};
  if (thread == 0) {
    ready.init(pooled_stem::kBringing + pooled_stem::kPooling);
    convolved.init(pooled_stem::kComputing);
  }
  if (thread < pooled_stem::kComputing) {
    for (int i = thread * 16; i < kPooledStemUnits * Stem::kUnitBytes; i += pooled_stem::kComputing * 16)
      ptx::copy_async<16>(at.weights + i, p.weights + i, true);
    ptx::commit_copies();
  }
  // Of the rows of the image what is never written: padding on both sides.
  const int pixel_bytes = p.plan.stored_rows() * p.plan.pitch * Stem::kPixelBytes;
  for (int i = thread * 16; i < pixel_bytes; i += pooled_stem::kThreads * 16)
    store_four(at.pixels + i, uint4{});
  if constexpr (FromBytes) pooled_stem::Supply<Sum>{p, at, part}.fill_table();
  __syncthreads();
  ptx::wait_for_previous_kernel();
  ptx::release_next_kernel();
  if (thread < pooled_stem::kComputing) {
    ptx::take_registers<pooled_stem::kRegisters>();
    if (thread * 16 < Stem::kBiasBytes)
      store_four(at.biases + thread * 16, units::constant<Sum>(p.constants, thread * 16));
    ptx::wait_copies<0>();
    ptx::publish_shared();
    // What each of them has stored, all may read.
    asm volatile("bar.sync 1, %0;\n" ::"n"(pooled_stem::kComputing) : "memory");
    Stem{p, at, part, ready, convolved}.convolve_all();
  } else {
    ptx::leave_registers<pooled_stem::kFewRegisters>();
    const Stem stem{p, at, part, ready, convolved};
    thread < pooled_stem::kComputing + pooled_stem::kBringing ? stem.bring_all() : stem.pool_all();
  }
#endif
}

}  // namespace pipit::cuda
