// The kernel of a network's first convolution and the maximum behind it (pooled_stem_plan.h). The convolution's left
// operands are read straight from the rows of the image in shared memory: eight pixels of four channels are one or two
// products' depth. Its outputs never leave the multiprocessor.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "layers/cuda/chain/pooled_stem_launch.h"
#include "layers/cuda/chain/unit_outputs.cuh"
#include "layers/cuda/chain/unit_products.cuh"
#include "layers/cuda/device/async_ptx.cuh"

namespace pipit::cuda {

namespace pooled_stem {

inline constexpr int kComputing = kPooledStemGroups * 128;  // threads that convolve
inline constexpr int kServing = 256;                        // that bring rows and take maxima
inline constexpr int kThreads = kComputing + kServing;
/// Of a thread: those that serve leave the others registers of the launch's 80.
inline constexpr int kRegisters = 88, kFewRegisters = 64;

#ifdef PIPIT_WARPGROUP_MMA

/// Addresses in shared memory.
struct Places {
  std::uint32_t weights, ring, pixels, constants, table;
};

// Named barriers, which take turns, since one side may be a step ahead.
__device__ __forceinline__ void arrive_at(int barrier, int turn) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(barrier + turn % 2), "n"(kThreads) : "memory");
}
__device__ __forceinline__ void wait_at(int barrier, int turn) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(barrier + turn % 2), "n"(kThreads) : "memory");
}
inline constexpr int kRowsAreThere = 1, kConvolved = 3;

/// A worker's steps, one after the other.
struct Walk {
  const PooledStemArgs& p;
  int turn = 0, count = 0;
  int image = 0, step = 0;
  RowRange mid{}, new_mid{}, new_image{};

  __device__ __forceinline__ explicit Walk(const PooledStemArgs& args) : p(args) {
    const auto worker = static_cast<int>(blockIdx.x);
    const int first = worker * p.least_steps + min(worker, p.more_steps);
    count = p.least_steps + (worker < p.more_steps ? 1 : 0);
    image = p.steps.divide(first);
    step = first - image * p.plan.steps;
    look(0, 0);
  }
  __device__ __forceinline__ bool done() const { return turn == count; }
  /// Whether nothing of it was there before.
  __device__ __forceinline__ bool begins() const { return turn == 0 || step == 0; }
  __device__ __forceinline__ void next() {
    ++turn;
    if (++step == p.plan.steps) {
      step = 0, ++image;
      look(0, 0);
    } else {
      look(mid.end, new_image.end);
    }
  }

 private:
  __device__ __forceinline__ void look(int mid_end, int image_end) {
    mid = p.plan.mid_of(step);
    new_mid = PooledStemPlan::from(mid, mid_end);
    new_image = PooledStemPlan::from(p.plan.image_of(mid), image_end);
  }
};

template <typename Sum, bool FromBytes>
struct Stem {
  static constexpr int kBytes = std::is_same_v<Sum, float> ? 2 : 1;  // of an element
  static constexpr int kRowBytes = kUnitChannels * kBytes;
  static constexpr int kUnitBytes = kUnitRows * kRowBytes;
  static constexpr int kPixelBytes = kPooledStemChannels * kBytes;
  static constexpr int kConstants = kUnitChannels * (kBytes == 1 ? 8 : 4);
  using Out = units::Outputs<Sum>;
  const PooledStemArgs& p;
  const Places& at;

  // One group: a pixel's channels as they are multiplied.
  struct Pixel {
    std::uint32_t word[kBytes];
  };
  __device__ __forceinline__ Pixel pixel_of(const float (&v)[kPooledStemChannels]) const {
    Pixel to;
    if constexpr (kBytes == 1) {
      std::uint32_t bits[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) bits[c] = image_bits(v[c], p.x_scale);
      to.word[0] = low_bytes(bits);
    } else {
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        const __half2 pair = __floats2half2_rn(v[w * 2], v[w * 2 + 1]);
        to.word[w] = *reinterpret_cast<const std::uint32_t*>(&pair);
      }
    }
    return to;
  }
  __device__ __forceinline__ static void put(std::uint32_t to, const Pixel& pixel) {
    if constexpr (kBytes == 1) {
      asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(to), "r"(pixel.word[0]) : "memory");
    } else {
      asm volatile("st.shared.v2.u32 [%0], {%1, %2};\n" ::"r"(to), "r"(pixel.word[0]), "r"(pixel.word[1])
                   : "memory");
    }
  }
  /// Of a row of the image, padding first, in shared memory.
  __device__ __forceinline__ std::uint32_t row_at(int above) const {
    const int ring_row = above - p.image_ring.divide(above) * p.plan.image_rows;
    return at.pixels + ring_row * p.plan.pitch * kPixelBytes;
  }
  /// The rows of the image that are new. Count: neighbouring pixels that a thread reads at once, 1 or 4; AtOnce such
  /// runs are under way. Padding beside them stays zero.
  template <int Count, int AtOnce>
  __device__ __forceinline__ void bring_rows(const Walk& walk) const {
    const PooledStemShape& s = p.plan.shape;
    const auto thread = static_cast<int>(threadIdx.x) - kComputing;
    const int all = (walk.new_image.end - walk.new_image.begin) * static_cast<int>(p.runs.value);
    const float* image = p.x + static_cast<std::int64_t>(walk.image) * p.x_image;
#pragma unroll 1
    for (int first = thread; first < all; first += AtOnce * kServing) {
      float v[AtOnce][kPooledStemChannels][Count];
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = min(first + u * kServing, all - 1);
        const int row = p.runs.divide(i);
        const int w = (i - row * static_cast<int>(p.runs.value)) * Count;
        const int h = walk.new_image.begin + row - s.pad_h;
        const bool inside = h >= 0 && h < s.in_h;
        const float* from = image + (inside ? h * p.x_row + w * p.x_pixel : 0);
#pragma unroll
        for (int c = 0; c < kPooledStemChannels; ++c) {
          const bool there = inside && c < s.channels;
          if constexpr (Count == 4) {
            const float4 four =
                there ? *reinterpret_cast<const float4*>(from + c * p.x_channel) : make_float4(0, 0, 0, 0);
            v[u][c][0] = four.x, v[u][c][1] = four.y, v[u][c][2] = four.z, v[u][c][3] = four.w;
          } else {
            v[u][c][0] = there ? from[c * p.x_channel] : 0.0F;
          }
        }
      }
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = min(first + u * kServing, all - 1);
        const int row = p.runs.divide(i);
        const int x = (i - row * static_cast<int>(p.runs.value)) * Count + s.pad_w;
        const std::uint32_t to = row_at(walk.new_image.begin + row);
#pragma unroll
        for (int k = 0; k < Count; ++k) {
          const float pixel[kPooledStemChannels] = {v[u][0][k], v[u][1][k], v[u][2][k], v[u][3][k]};
          // What lies beyond the last window is not read.
          if (x + k < p.plan.pitch) put(to + (x + k) * kPixelBytes, pixel_of(pixel));
        }
      }
    }
  }
  /// Of the table: what a channel of a pixel adds to the word that holds it.
  __device__ __forceinline__ std::uint32_t entry(int channel, float value) const {
    float pixel[kPooledStemChannels] = {};
    pixel[channel] = value;
    const Pixel made = pixel_of(pixel);
    return made.word[kBytes == 1 ? 0 : channel / 2];
  }
  /// bring_rows() of an image of bytes, a pixel after the other.
  template <int AtOnce>
  __device__ __forceinline__ void bring_bytes(const Walk& walk) const {
    const PooledStemShape& s = p.plan.shape;
    const auto thread = static_cast<int>(threadIdx.x) - kComputing;
    const int all = (walk.new_image.end - walk.new_image.begin) * s.in_w;
    const std::uint8_t* image = p.bytes + static_cast<std::int64_t>(walk.image) * p.x_image;
#pragma unroll 1
    for (int first = thread; first < all; first += AtOnce * kServing) {
      std::uint32_t v[AtOnce][kPooledStemChannels];
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = min(first + u * kServing, all - 1);
        const int row = p.runs.divide(i), w = i - row * s.in_w;
        const int h = walk.new_image.begin + row - s.pad_h;
        const std::uint8_t* from = image + (h >= 0 && h < s.in_h ? h * p.x_row + w * p.x_pixel : 0);
#pragma unroll
        for (int c = 0; c < kPooledStemChannels; ++c) v[u][c] = c < s.channels ? from[c * p.x_channel] : 0;
      }
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = min(first + u * kServing, all - 1);
        const int row = p.runs.divide(i), x = i - row * s.in_w + s.pad_w;
        const int h = walk.new_image.begin + row - s.pad_h;
        Pixel pixel{};
#pragma unroll
        for (int c = 0; c < kPooledStemChannels; ++c) {
          // Padding is zero, which is no byte.
          if (c >= s.channels || h < 0 || h >= s.in_h) continue;
          std::uint32_t word;
          asm volatile("ld.shared.u32 %0, [%1];\n"
                       : "=r"(word)
                       : "r"(at.table + (c * 256 + v[u][c]) * 4)
                       : "memory");
          pixel.word[kBytes == 1 ? 0 : c / 2] |= word;
        }
        if (x < p.plan.pitch) put(row_at(walk.new_image.begin + row) + x * kPixelBytes, pixel);
      }
    }
  }
  /// The same of three channels that lie together in either order, four pixels at once.
  template <int AtOnce>
  __device__ __forceinline__ void bring_byte_runs(const Walk& walk) const {
    const PooledStemShape& s = p.plan.shape;
    const auto thread = static_cast<int>(threadIdx.x) - kComputing;
    const auto runs = static_cast<int>(p.runs.value);
    const int all = (walk.new_image.end - walk.new_image.begin) * runs;
    const bool reversed = p.x_channel < 0;
    const std::uint8_t* image =
        p.bytes + static_cast<std::int64_t>(walk.image) * p.x_image - (reversed ? 2 : 0);
#pragma unroll 1
    for (int first = thread; first < all; first += AtOnce * kServing) {
      std::uint32_t v[AtOnce][3];
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = min(first + u * kServing, all - 1);
        const int row = p.runs.divide(i), w = (i - row * runs) * 4;
        const int h = walk.new_image.begin + row - s.pad_h;
        const auto* from = reinterpret_cast<const std::uint32_t*>(
            image + (h >= 0 && h < s.in_h ? h * p.x_row + w * 3 : 0));
#pragma unroll
        for (int k = 0; k < 3; ++k) v[u][k] = from[k];
      }
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = min(first + u * kServing, all - 1);
        const int row = p.runs.divide(i), x = (i - row * runs) * 4 + s.pad_w;
        const int h = walk.new_image.begin + row - s.pad_h;
        const bool inside = h >= 0 && h < s.in_h;
        const std::uint32_t to = row_at(walk.new_image.begin + row);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          std::uint32_t word[3];
#pragma unroll
          for (int c = 0; c < 3; ++c) {
            const int byte = k * 3 + c;
            const std::uint32_t value = v[u][byte / 4] >> byte % 4 * 8 & 0xFFU;
            asm volatile("ld.shared.u32 %0, [%1];\n"
                         : "=r"(word[c])
                         : "r"(at.table + ((reversed ? 2 - c : c) * 256 + value) * 4)
                         : "memory");
          }
          Pixel pixel{};
          if (inside) {
            pixel.word[0] = word[1] | (kBytes == 1 ? word[0] | word[2] : reversed ? word[2] : word[0]);
            if constexpr (kBytes == 2) pixel.word[1] = reversed ? word[0] : word[2];
          }
          if (x + k < p.plan.pitch) put(to + (x + k) * kPixelBytes, pixel);
        }
      }
    }
  }
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
      if constexpr (FromBytes) {
        p.runs_of_four ? bring_byte_runs<2>(walk) : bring_bytes<6>(walk);
      } else {
        p.runs_of_four ? bring_rows<4, 2>(walk) : bring_rows<1, 6>(walk);
      }
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
      const int column = min(position, positions - 1) - row * s.mid_w;
      const int mid = walk.new_mid.begin + row, above = mid * s.stride_h;
      const int image_row = above - p.image_ring.divide(above) * p.plan.image_rows;
      const int mid_row = mid - p.mid_ring.divide(mid) * p.plan.mid_rows;
      from[half] = (image_row * p.plan.pitch + column * s.stride_w) * kPixelBytes + lane % 4 * 4;
      to[half] = at.ring + (mid_row * s.mid_w + column) * kRowBytes + lane % 4 * 16;
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
    const int rows = min(p.plan.step_rows, s.out_h - first_row);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) - kComputing; i < rows * s.out_w * kChunks; i += kServing) {
      const int chunk = i % kChunks, position = i / kChunks;
      const int row = first_row + p.out_row.divide(position);
      const int column = position - p.out_row.divide(position) * s.out_w;
      Largest largest;
#pragma unroll
      for (int y = 0; y < 3; ++y) {
        const int mid = min(max(2 * row - s.pool_pad_h + y, 0), s.mid_h - 1);
        const int ring_row = mid - p.mid_ring.divide(mid) * p.plan.mid_rows;
#pragma unroll
        for (int x = 0; x < 3; ++x) {
          const int w = min(max(2 * column - s.pool_pad_w + x, 0), s.mid_w - 1);
          const std::uint32_t from = at.ring + (ring_row * s.mid_w + w) * kRowBytes + chunk * 16;
          largest.take(load_four(units::swizzled<kRowBytes>(from)), y + x == 0);
        }
      }
      const std::int64_t to = (static_cast<std::int64_t>(image) * s.out_h + row) * s.out_w + column;
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
      const int positions = (walk.new_mid.end - walk.new_mid.begin) * p.plan.shape.mid_w;
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
  const auto copy = [&](std::uint32_t to, const std::byte* from, int bytes) {
    for (int i = thread * 16; i < bytes; i += pooled_stem::kThreads * 16)
      store_four(to + i, *reinterpret_cast<const uint4*>(from + i));
  };
  copy(at.weights, p.weights, kPooledStemUnits * Stem::kUnitBytes);
  // Of the rows of the image what is never written: padding on both sides.
  const int pixel_bytes = p.plan.image_rows * p.plan.pitch * Stem::kPixelBytes;
  for (int i = thread * 16; i < pixel_bytes; i += pooled_stem::kThreads * 16)
    store_four(at.pixels + i, uint4{});
  for (int i = thread * 16; i < Stem::kConstants; i += pooled_stem::kThreads * 16)
    store_four(at.constants + i, units::constant<Sum>(p.constants, i));
  if constexpr (FromBytes) {
    for (int i = thread; i < p.plan.shape.channels * 256; i += pooled_stem::kThreads) {
      const std::uint32_t entry = Stem{p, at}.entry(i / 256, p.table[i]);
      asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(at.table + i * 4), "r"(entry) : "memory");
    }
  }
  ptx::publish_shared();
  __syncthreads();
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  if (thread < pooled_stem::kComputing) {
    ptx::take_registers<pooled_stem::kRegisters>();
    Stem{p, at}.convolve_all();
  } else {
    ptx::leave_registers<pooled_stem::kFewRegisters>();
    Stem{p, at}.serve_all();
  }
#endif
}

}  // namespace pipit::cuda
