// Which steps a block of pooled_stem's threads goes through, where what lies in shared memory, and the warps that bring
// the rows of the image: of floats, or of bytes through a table.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "layers/cuda/chain/pooled_stem_launch.h"
#include "layers/cuda/conv/int8_math.cuh"
#include "layers/cuda/device/async_ptx.cuh"
#include "layers/cuda/device/shared_access.cuh"
#include "layers/cuda/device/tensor_copy.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"

namespace pipit::cuda::pooled_stem {

inline constexpr int kComputing = kPooledStemGroups * 128;  // threads that convolve
inline constexpr int kBringing = 256;                       // that bring rows of the image
inline constexpr int kPooling = 128;                        // that take maxima
inline constexpr int kThreads = kComputing + kBringing + kPooling;
/// Of a thread: the others leave those that convolve registers of the launch's 72.
inline constexpr int kRegisters = 80, kFewRegisters = 56;

#ifdef PIPIT_WARPGROUP_MMA

/// Addresses in shared memory.
struct Places {
  std::uint32_t weights, ring, pixels, biases, table;
};

/// What each step is waited for: its rows of the image are there and the maxima have left room for its outputs; or it
/// is convolved. One side may be a step ahead, so that two barriers take turns. Whoever waits does not wait for others
/// that wait: groups that convolve may be a step apart.
struct Steps {
  std::uint32_t barriers;  // address of both

  static constexpr int kCount = 2;
  __device__ __forceinline__ void init(int threads) const {
    for (int i = 0; i < kCount; ++i) ptx::init_barrier(barriers + i * 8, threads / 32);
  }
  /// By whole warps.
  __device__ __forceinline__ void arrive(int turn) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::arrive(barriers + turn % kCount * 8);
  }
  __device__ __forceinline__ void wait(int turn) const {
    ptx::wait_barrier(barriers + turn % kCount * 8, turn / kCount % 2);
  }
};

/// A worker's steps, one after the other.
struct Walk {
  const PooledStemArgs& p;
  int first = 0, count = 0;  // of all images' steps
  int turn = 0;
  int image = 0, step = 0;
  RowRange mid{}, new_mid{}, new_image{};

  __device__ __forceinline__ explicit Walk(const PooledStemArgs& args) : p(args) {
    const auto worker = static_cast<int>(blockIdx.x);
    first = worker * p.least_steps + min(worker, p.more_steps);
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

template <typename Sum>
struct Supply {
  static constexpr int kBytes = std::is_same_v<Sum, float> ? 2 : 1;  // of an element
  static constexpr int kPixelBytes = kPooledStemChannels * kBytes;
  const PooledStemArgs& p;
  const Places& at;
  const StemPart part;

  /// A pixel's channels as they are multiplied.
  struct Pixel {
    std::uint32_t word[kBytes];
  };
  template <int Channels>
  __device__ __forceinline__ Pixel pixel_of(const float (&v)[Channels]) const {
    Pixel to;
    if constexpr (kBytes == 1) {
      std::uint32_t bits[kPooledStemChannels] = {};
#pragma unroll
      for (int c = 0; c < Channels; ++c) bits[c] = image_bits(v[c], p.x_scale);
      to.word[0] = low_bytes(bits);
    } else {
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        const __half2 pair = __floats2half2_rn(v[w * 2], w * 2 + 1 < Channels ? v[w * 2 + 1] : 0);
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
  /// Where a row of the image lies, and how many bytes behind it does again, 0: nowhere.
  struct Row {
    std::uint32_t at, again;
  };
  /// above: rows in front of it, padding with them.
  __device__ __forceinline__ Row row_of(int above) const {
    const int ring_row = above - p.image_ring.divide(above) * p.plan.image_rows;
    const std::uint32_t row_bytes = p.plan.pitch * kPixelBytes;
    return {at.pixels + ring_row * row_bytes,
            ring_row < kPooledStemTaps - 1 ? p.plan.image_rows * row_bytes : 0};
  }
  __device__ __forceinline__ static void put(const Row& row, int x, const Pixel& pixel) {
    put(row.at + x * kPixelBytes, pixel);
    if (row.again != 0) put(row.at + row.again + x * kPixelBytes, pixel);
  }
  __device__ __forceinline__ static void put_four(const Row& row, int x, const Pixel (&pixel)[4]) {
    put_four(row.at + x * kPixelBytes, pixel);
    if (row.again != 0) put_four(row.at + row.again + x * kPixelBytes, pixel);
  }
  /// Four of them, on a multiple of four pixels.
  __device__ __forceinline__ static void put_four(std::uint32_t to, const Pixel (&pixel)[4]) {
    std::uint32_t word[4 * kBytes];
#pragma unroll
    for (int w = 0; w < 4 * kBytes; ++w) word[w] = pixel[w / kBytes].word[w % kBytes];
#pragma unroll
    for (int w = 0; w < 4 * kBytes; w += 4)
      store_four(to + w * 4, make_uint4(word[w], word[w + 1], word[w + 2], word[w + 3]));
  }
  /// Whether a pixel, and the run that begins with it, has a place in a row: what is read may begin in front of it.
  __device__ __forceinline__ bool has_place(int x) const {
    return static_cast<unsigned>(x) < static_cast<unsigned>(p.plan.pitch);
  }
  /// The rows of the image that are new. Count: neighbouring pixels that a thread reads at once, 1 or 4; AtOnce such
  /// runs are under way. Padding beside them stays zero. Channels: at least as many as there are, 3 or 4.
  template <int Count, int AtOnce, int Channels>
  __device__ __forceinline__ void bring_rows(const Walk& walk) const {
    const PooledStemShape& s = p.plan.shape;
    const auto thread = static_cast<int>(threadIdx.x) - kComputing;
    const int all = (walk.new_image.end - walk.new_image.begin) * static_cast<int>(p.runs.value);
    const int first_pixel = p.plan.first_read(part, Count), place = first_pixel - part.pixel;
    const float* image = p.x + static_cast<std::int64_t>(walk.image) * p.x_image + first_pixel * p.x_pixel;
#pragma unroll 1
    for (int first = thread; first < all; first += AtOnce * kBringing) {
      float v[AtOnce][Channels][Count];
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = min(first + u * kBringing, all - 1);
        const int row = p.runs.divide(i);
        const int w = (i - row * static_cast<int>(p.runs.value)) * Count;
        const int h = walk.new_image.begin + row - s.pad_h;
        const bool inside = h >= 0 && h < s.in_h;
        const float* from = image + (inside ? h * p.x_row + w * p.x_pixel : 0);
#pragma unroll
        for (int c = 0; c < Channels; ++c) {
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
        // A quotient of every channel is worth a branch.
        if (kBytes == 1 && first + u * kBringing >= all) continue;
        const int i = min(first + u * kBringing, all - 1);
        const int row = p.runs.divide(i);
        const int x = (i - row * static_cast<int>(p.runs.value)) * Count + place;
        const Row to = row_of(walk.new_image.begin + row);
        if (!has_place(x)) continue;
        Pixel pixels[Count];
#pragma unroll
        for (int k = 0; k < Count; ++k) {
          float channels[Channels];
#pragma unroll
          for (int c = 0; c < Channels; ++c) channels[c] = v[u][c][k];
          pixels[k] = pixel_of(channels);
        }
        if constexpr (Count == 4) {
          put_four(to, x, pixels);
        } else {
          put(to, x, pixels[0]);
        }
      }
    }
  }
  /// The table, by all threads of the block: for every byte of a pixel as it lies in memory what it adds to the word
  /// that holds its channel. The last byte may be that of channel 0; where pixels are read one by one bytes come in the
  /// order of their channels.
  __device__ __forceinline__ void fill_table() const {
    const bool reversed = p.runs_of_four && p.x_channel < 0;
    for (int i = static_cast<int>(threadIdx.x); i < p.plan.shape.channels * 256; i += kThreads) {
      const int channel = reversed ? p.plan.shape.channels - 1 - i / 256 : i / 256;
      const std::uint32_t word = entry(channel, p.table[channel * 256 + i % 256]);
      asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(at.table + i * 4), "r"(word) : "memory");
    }
  }
  /// Of the table: what a channel of a pixel adds to the word that holds it.
  __device__ __forceinline__ std::uint32_t entry(int channel, float value) const {
    float pixel[kPooledStemChannels];
#pragma unroll
    for (int c = 0; c < kPooledStemChannels; ++c) pixel[c] = c == channel ? value : 0;
    const Pixel made = pixel_of(pixel);
    return channel < 2 ? made.word[0] : made.word[kBytes - 1];
  }
  /// bring_rows() of an image of bytes, a pixel after the other.
  template <int AtOnce>
  __device__ __forceinline__ void bring_bytes(const Walk& walk) const {
    const PooledStemShape& s = p.plan.shape;
    const auto thread = static_cast<int>(threadIdx.x) - kComputing;
    const auto runs = static_cast<int>(p.runs.value);
    const int all = (walk.new_image.end - walk.new_image.begin) * runs;
    const int first_pixel = p.plan.first_read(part, 1), place = first_pixel - part.pixel;
    const std::uint8_t* image =
        p.bytes + static_cast<std::int64_t>(walk.image) * p.x_image + first_pixel * p.x_pixel;
#pragma unroll 1
    for (int first = thread; first < all; first += AtOnce * kBringing) {
      std::uint32_t v[AtOnce][kPooledStemChannels];
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = min(first + u * kBringing, all - 1);
        const int row = p.runs.divide(i), w = i - row * runs;
        const int h = walk.new_image.begin + row - s.pad_h;
        const std::uint8_t* from = image + (h >= 0 && h < s.in_h ? h * p.x_row + w * p.x_pixel : 0);
#pragma unroll
        for (int c = 0; c < kPooledStemChannels; ++c) v[u][c] = c < s.channels ? from[c * p.x_channel] : 0;
      }
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = min(first + u * kBringing, all - 1);
        const int row = p.runs.divide(i), x = i - row * runs + place;
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
        if (has_place(x)) put(row_of(walk.new_image.begin + row), x, pixel);
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
    const int first_pixel = p.plan.first_read(part, 4), place = first_pixel - part.pixel;
    const std::uint8_t* image =
        p.bytes + static_cast<std::int64_t>(walk.image) * p.x_image + first_pixel * 3 - (reversed ? 2 : 0);
#pragma unroll 1
    for (int first = thread; first < all; first += AtOnce * kBringing) {
      std::uint32_t v[AtOnce][3];
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = min(first + u * kBringing, all - 1);
        const int row = p.runs.divide(i), w = (i - row * runs) * 4;
        const int h = walk.new_image.begin + row - s.pad_h;
        const auto* from =
            reinterpret_cast<const std::uint32_t*>(image + (h >= 0 && h < s.in_h ? h * p.x_row + w * 3 : 0));
#pragma unroll
        for (int k = 0; k < 3; ++k) v[u][k] = from[k];
      }
#pragma unroll
      for (int u = 0; u < AtOnce; ++u) {
        const int i = min(first + u * kBringing, all - 1);
        const int row = p.runs.divide(i), x = (i - row * runs) * 4 + place;
        const int h = walk.new_image.begin + row - s.pad_h;
        const bool inside = h >= 0 && h < s.in_h;
        if (!has_place(x)) continue;
        Pixel pixels[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          std::uint32_t word[3];
#pragma unroll
          for (int c = 0; c < 3; ++c) {
            const int byte = k * 3 + c;
            const std::uint32_t value = v[u][byte / 4] >> byte % 4 * 8 & 0xFFU;
            asm volatile("ld.shared.u32 %0, [%1];\n"
                         : "=r"(word[c])
                         : "r"(at.table + (c * 256 + value) * 4)
                         : "memory");
          }
          pixels[k] = {};
          if (inside) {
            pixels[k].word[0] = word[1] | (kBytes == 1 ? word[0] | word[2] : reversed ? word[2] : word[0]);
            if constexpr (kBytes == 2) pixels[k].word[1] = reversed ? word[0] : word[2];
          }
        }
        put_four(row_of(walk.new_image.begin + row), x, pixels);
      }
    }
  }
  template <bool FromBytes>
  __device__ __forceinline__ void bring(const Walk& walk) const {
    if constexpr (FromBytes) {
      p.runs_of_four ? bring_byte_runs<1>(walk) : bring_bytes<3>(walk);
    } else {
      if (!p.runs_of_four) return bring_rows<1, 3, 4>(walk);
      p.plan.shape.channels < 4 ? bring_rows<4, 1, 3>(walk) : bring_rows<4, 1, 4>(walk);
    }
  }
};

#endif

}  // namespace pipit::cuda::pooled_stem
