// Which steps a block of pooled_stem's threads goes through, where what lies in shared memory, and the warps that bring
// the rows of the image: of floats, or of bytes through a table.
#pragma once

#include <cstdint>
#include <type_traits>

#include "layers/cuda/conv/chain/unit.cuh"
#include "layers/cuda/conv/pooled_stem/plan.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/warpgroup_mma.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda::pooled_stem {

inline constexpr int kComputing = kPooledStemGroups * 128;  // threads that convolve
inline constexpr int kBringing = 256;                       // that bring rows of the image
inline constexpr int kPooling = 128;                        // that take maxima
inline constexpr int kThreads = kComputing + kBringing + kPooling;
/// Registers of a thread: the others leave those that convolve registers of the launch's 72.
inline constexpr int kRegisters = 80, kCopyRegisters = 56;

#ifdef PIPIT_WARPGROUP_MMA

/// Addresses in shared memory.
struct Places {
  std::uint32_t weights, ring, pixels, biases, table;
};

/// What each step is waited for: its rows of the image are there and the maxima have left room for its outputs; or it
/// is convolved. One side may be a step ahead, so that two barriers take turns. A waiting thread does not depend on
/// others that wait: groups that convolve may be a step apart.
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
  static constexpr int kBytes = std::is_same_v<Sum, std::int32_t> ? 1 : 2;  // of an element
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
        to.word[w] = to_word<NarrowOf<Sum>>(v[w * 2], w * 2 + 1 < Channels ? v[w * 2 + 1] : 0);
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
  /// Where a row of the image lies, and how many bytes after it its copy lies, 0: there is none.
  struct Row {
    std::uint32_t at, again;
  };
  /// above: rows before it, padding with them.
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
  /// Whether a pixel, and the run that begins with it, has a place in a row: what is read may begin before it.
  __device__ __forceinline__ bool has_place(int x) const {
    return static_cast<unsigned>(x) < static_cast<unsigned>(p.plan.pitch);
  }
  /// The rows of the image that are new. Count: neighbouring pixels that a thread reads at once, 1 or 4; AtOnce such
  /// runs are in flight. Padding beside them stays zero. Channels: at least as many as there are, 3 or 4.
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
  /// An entry of the table: what a channel of a pixel adds to the word that holds it.
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

}  // namespace pipit::internal::cuda::pooled_stem

namespace pipit::internal::cuda {

// The kernel of a network's first convolution and the maximum after it (plan.h). The convolution's left
// operands are read straight from the rows of the image in shared memory: eight pixels of four channels are one or two
// products' depth. Its outputs never leave the multiprocessor.

namespace pooled_stem {

#ifdef PIPIT_WARPGROUP_MMA

template <typename Sum, bool FromBytes>
struct Stem {
  static constexpr int kBytes = std::is_same_v<Sum, std::int32_t> ? 1 : 2;  // of an element
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

  /// Brings the image's rows of each step. The ring has room for those of two steps of an image: no thread reads those
  /// of the step before the last one any more. Those of another image are copied when no thread reads the previous
  /// image.
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
    // Makes room for the step after `pooled` ones, and for the next of its image.
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
  /// The swizzled offset in the ring's rows of a distance from its beginning. Eight lanes write neighbouring positions,
  /// or read every other one: 16 bytes of each bank's in both cases.
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
    using Two = TwoOf<NarrowOf<Sum>>;
    const Two larger = __hmax2_nan(*reinterpret_cast<const Two*>(&a), *reinterpret_cast<const Two*>(&b));
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
    // A window's first column in the ring, for column 0; never before the ring but by padding.
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
    // Groups take turns through all steps' tiles: a group that has fewer tiles of a step begins with the next one.
    int tiles_before = 0;
#pragma unroll 1
    for (Walk walk(p); !walk.done(); walk.next()) {
      // Then, too, no thread takes maxima any more of the rows that those of this step replace.
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

/// Sum: float for halves, BfloatSum for bfloat16, std::int32_t for bytes. FromBytes: of the user's image.
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
  // The part of the image's rows that is never written: padding on both sides.
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
    ptx::leave_registers<pooled_stem::kCopyRegisters>();
    const Stem stem{p, at, part, ready, convolved};
    thread < pooled_stem::kComputing + pooled_stem::kBringing ? stem.bring_all() : stem.pool_all();
  }
#endif
}

}  // namespace pipit::internal::cuda
