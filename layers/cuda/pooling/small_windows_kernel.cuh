// Pools over the small windows that networks use, NHWC: two by two neighbouring outputs and a few bytes of channels a
// thread, so that every pixel is read about once. A policy says what is computed of a window: maxima or averages, of
// halves or bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "layers/cuda/device/fast_division.h"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda {

/// What is compared: four bytes of elements at once.
/// Element: __half or __nv_bfloat16.
template <typename Element>
struct Halves {
  // -inf twice: what padding is
  static constexpr unsigned kLowest = std::is_same_v<Element, __half> ? 0xFC00FC00U : 0xFF80FF80U;
  // NaN where either is.
  static __device__ __forceinline__ unsigned larger(unsigned p, unsigned q) {
    using Two = TwoOf<Element>;
    const Two m = __hmax2_nan(*reinterpret_cast<const Two*>(&p), *reinterpret_cast<const Two*>(&q));
    return *reinterpret_cast<const unsigned*>(&m);
  }
};
struct SignedBytes {
  static constexpr unsigned kLowest = 0x80808080U;
  static __device__ __forceinline__ unsigned larger(unsigned p, unsigned q) { return __vmaxs4(p, q); }
};
struct UnsignedBytes {
  static constexpr unsigned kLowest = 0;
  static __device__ __forceinline__ unsigned larger(unsigned p, unsigned q) { return __vmaxu4(p, q); }
};

/// Maxima of neighbouring channels.
template <typename Elements, int Bytes>
struct Largest {
  static constexpr int kWords = Bytes / 4;
  struct alignas(Bytes) Unit {
    unsigned words[kWords];
  };
  using Value = Unit;
  __device__ __forceinline__ Value value(const Unit& unit) const { return unit; }
  __device__ __forceinline__ Value outside() const {
    Value lowest;
#pragma unroll
    for (unsigned& word : lowest.words) word = Elements::kLowest;
    return lowest;
  }
  __device__ __forceinline__ Value join(const Value& a, const Value& b) const {
    Value larger;
#pragma unroll
    for (int w = 0; w < kWords; ++w) larger.words[w] = Elements::larger(a.words[w], b.words[w]);
    return larger;
  }
  __device__ __forceinline__ Unit result(const Value& value, int /*h*/, int /*w*/, int /*kernel*/) const {
    return value;
  }
};

/// How many positions of windows are averaged.
struct AveragedPositions {
  bool include_pad = false;
  int extent[2] = {}, pad_begin[2] = {}, pad_end[2] = {};

  /// The number of positions inside of x of a window from (h, w) on.
  __device__ int inside(int h, int w, int kernel) const {
    const auto along = [&](int d, int first) {
      return max(min(first + kernel, extent[d]) - max(first, 0), 0);
    };
    return along(0, h) * along(1, w);
  }
  /// What the sum is divided by (average_divisor()).
  __device__ int divisor(int h, int w, int kernel) const {
    if (!include_pad) return inside(h, w, kernel);
    const auto along = [&](int d, int first) {
      return max(min(first + kernel, extent[d] + pad_end[d]) - max(first, -pad_begin[d]), 0);
    };
    return along(0, h) * along(1, w);
  }
};

template <typename Element>
struct HalfAverages {
  static constexpr int kChannels = 4;  // eight take twice the registers, and longer
  struct alignas(kChannels * 2) Unit {
    unsigned words[kChannels / 2];  // of two halves, so that they are read and written together
  };
  struct Value {
    float sum[kChannels];
  };
  AveragedPositions positions;

  __device__ __forceinline__ Value value(const Unit& unit) const {
    Value value;
#pragma unroll
    for (int v = 0; v < kChannels; v += 2) {
      const float2 pair = to_floats<Element>(unit.words[v / 2]);
      value.sum[v] = pair.x, value.sum[v + 1] = pair.y;
    }
    return value;
  }
  __device__ __forceinline__ Value outside() const {
    return {};
  }
  __device__ __forceinline__ Value join(const Value& a, const Value& b) const {
    Value both;
#pragma unroll
    for (int v = 0; v < kChannels; ++v) both.sum[v] = a.sum[v] + b.sum[v];
    return both;
  }
  __device__ __forceinline__ Unit result(const Value& value, int h, int w, int kernel) const {
    // Rounded once more than a quotient, which halves do not show.
    const float factor = 1 / static_cast<float>(max(positions.divisor(h, w, kernel), 1));
    Unit unit;
#pragma unroll
    for (int v = 0; v < kChannels; v += 2) {
      unit.words[v / 2] = to_word<Element>(value.sum[v] * factor, value.sum[v + 1] * factor);
    }
    return unit;
  }
};

/// Averages of bytes. Sums are kept two in a word, of integers that are 128 above those of i8: 255 times the positions
/// of a small window fits 16 bits.
struct ByteAverages {
  static constexpr int kWords = 2;
  struct alignas(kWords * 4) Unit {
    unsigned words[kWords];
  };
  struct Value {
    unsigned even[kWords], odd[kWords];
  };
  AveragedPositions positions;
  IntegerOperand x;
  AverageStore average;

  __device__ __forceinline__ Value value(const Unit& unit) const {
    Value value;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const unsigned word = unit.words[w] ^ x.flip ^ 0x80808080U;
      value.even[w] = word & 0x00FF00FFU;
      value.odd[w] = word >> 8 & 0x00FF00FFU;
    }
    return value;
  }
  __device__ __forceinline__ Value outside() const {
    return {};
  }
  __device__ __forceinline__ Value join(const Value& a, const Value& b) const {
    Value both;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      both.even[w] = a.even[w] + b.even[w];
      both.odd[w] = a.odd[w] + b.odd[w];
    }
    return both;
  }
  __device__ __forceinline__ Unit result(const Value& value, int h, int w, int kernel) const {
    const int zeros = positions.inside(h, w, kernel) * (128 + x.zero_point);
    const int divisor = positions.divisor(h, w, kernel);
    Unit unit{};
#pragma unroll
    for (int v = 0; v < kWords * 4; ++v) {
      const unsigned pair = v % 2 == 0 ? value.even[v / 4] : value.odd[v / 4];
      const int sum = static_cast<int>(pair >> v % 4 / 2 * 16 & 0xFFFFU) - zeros;
      const int y = average.store.integer(average.value(sum, divisor));
      unit.words[v / 4] |= static_cast<unsigned>(y & 0xFF) << v % 4 * 8;
    }
    return unit;
  }
};

inline constexpr unsigned kPoolThreads = 256;
inline constexpr int kPoolOutputs = 2;  ///< of a thread, along each axis

struct SmallWindows {
  const void* x = nullptr;
  void* y = nullptr;
  unsigned size = 0;                // threads with work
  Divisor channels, columns, rows;  // units of channels, pairs of output columns and rows
  int in_h = 1, in_w = 1, out_h = 1, out_w = 1, pad_h = 0, pad_w = 0;
};

/// In one access, which the compiler would otherwise split where words of a unit are used differently.
template <typename Unit>
__device__ __forceinline__ Unit read_unit(const Unit* from) {
  static_assert(sizeof(Unit) == 8 || sizeof(Unit) == 16);
  using Whole = std::conditional_t<sizeof(Unit) == 16, uint4, uint2>;
  const Whole whole = *reinterpret_cast<const Whole*>(from);
  Unit unit;
  memcpy(&unit, &whole, sizeof unit);
  return unit;
}

/// Policy has Unit, neighbouring channels as they are read and written; Value, what is known of some of a window's
/// pixels; value(unit); outside(), that of padding; join(value, value); result(value, h, w, Kernel), the unit of y
/// whose window of Kernel x Kernel begins at position (h, w) of x.
template <typename Policy, int Kernel, int Stride>
__global__ void __launch_bounds__(kPoolThreads)
    pool_small_windows(const __grid_constant__ SmallWindows g, const __grid_constant__ Policy policy) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= g.size) return;
  const auto take = [&](const Divisor& extent) {
    const unsigned rest = extent.divide(i);
    const int index = static_cast<int>(i - rest * extent.value);
    i = rest;
    return index;
  };
  using Unit = typename Policy::Unit;
  using Value = typename Policy::Value;
  const int channel = take(g.channels);
  const int ow = take(g.columns) * kPoolOutputs;
  const int oh = take(g.rows) * kPoolOutputs;
  const int pixel = static_cast<int>(g.channels.value);
  const Unit* image =
      static_cast<const Unit*>(g.x) + static_cast<std::int64_t>(i) * g.in_h * g.in_w * pixel + channel;
  const int first_h = oh * Stride - g.pad_h, first_w = ow * Stride - g.pad_w;
  constexpr int kRead = (kPoolOutputs - 1) * Stride + Kernel;
  Value of[kPoolOutputs][kPoolOutputs];
#pragma unroll
  for (int r = 0; r < kRead; ++r) {
    const int h = first_h + r;
    Value value[kRead];
#pragma unroll
    for (int c = 0; c < kRead; ++c) {
      const int w = first_w + c;
      const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(g.in_h) &&
                          static_cast<unsigned>(w) < static_cast<unsigned>(g.in_w);
      value[c] = inside ? policy.value(read_unit(image + (h * g.in_w + w) * pixel)) : policy.outside();
    }
#pragma unroll
    for (int o = 0; o < kPoolOutputs; ++o) {
      Value across = value[o * Stride];
#pragma unroll
      for (int k = 1; k < Kernel; ++k) across = policy.join(across, value[o * Stride + k]);
#pragma unroll
      for (int p = 0; p < kPoolOutputs; ++p) {
        if (r == p * Stride) of[p][o] = across;
        if (r > p * Stride && r < p * Stride + Kernel) of[p][o] = policy.join(of[p][o], across);
      }
    }
  }
  Unit* to = static_cast<Unit*>(g.y) + static_cast<std::int64_t>(i) * g.out_h * g.out_w * pixel + channel;
#pragma unroll
  for (int p = 0; p < kPoolOutputs; ++p) {
#pragma unroll
    for (int o = 0; o < kPoolOutputs; ++o) {
      if (oh + p < g.out_h && ow + o < g.out_w)
        to[((oh + p) * g.out_w + ow + o) * pixel] =
            policy.result(of[p][o], first_h + p * Stride, first_w + o * Stride, Kernel);
    }
  }
}

}  // namespace pipit::internal::cuda
