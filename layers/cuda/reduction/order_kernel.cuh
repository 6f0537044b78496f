// TopK and CumSum: what depends on the order along one dimension.
#pragma once

#include "layers/cuda/device/operands.cuh"

namespace pipit::internal::cuda {

/// The key of an element in a sort. Larger values come first, of equal ones the lower index; padding comes last.
struct SortKeys {
  std::uint64_t* value = nullptr;
  unsigned* index = nullptr;
};
inline constexpr unsigned kNoElement = 0xFFFFFFFFU;

__device__ inline bool comes_before(std::uint64_t a, unsigned i, std::uint64_t b, unsigned j) {
  return a != b ? a > b : i < j;
}

/// Element `i` as an unsigned number that is greater where the element is; NaN is the greatest, and -0 is 0.
__device__ inline std::uint64_t sortable(const In& x, std::int64_t i) {
  constexpr std::uint64_t kTop = std::uint64_t{1} << 63;
  const auto of_bits = [](std::uint64_t bits) { return (bits & kTop) != 0 ? ~bits : bits | kTop; };
  if (x.type == DType::f32 || has_16_bits(x.type)) {
    const float v = load<float>(x, i);
    if (v != v) return ~std::uint64_t{0};
    return of_bits(v == 0 ? 0 : static_cast<std::uint64_t>(__float_as_uint(v)) << 32);
  }
  if (x.type == DType::f64) {
    const double v = load<double>(x, i);
    if (v != v) return ~std::uint64_t{0};
    return of_bits(v == 0 ? 0 : static_cast<std::uint64_t>(__double_as_longlong(v)));
  }
  return static_cast<std::uint64_t>(load<std::int64_t>(x, i)) ^ kTop;
}

inline constexpr unsigned kSortChunk = 2048;  ///< keys of a block
inline constexpr unsigned kSortThreads = 512;

/// Groups of `extent` elements, each padded to `padded`, a power of two; their keys follow each other.
struct SortedGroups {
  unsigned groups = 0, extent = 0, padded = 1, k = 0;
  bool largest = true;
  DeviceLoop<3> starts;  ///< of a group: values, indices, x
  int x_stride = 0, value_stride = 0, index_stride = 0;

  explicit SortedGroups(const StridedLoop<3>& loop) : starts(loop) {}
};

/// The steps of a bitonic sort (Batcher 1968) with strides from `stride` down to 1, of a chunk of keys from `first` on,
/// of sequences of `size` keys in the end. Every thread of the block takes part.
__device__ inline void merge_chunk(std::uint64_t* value, unsigned* index, unsigned first, unsigned padded,
                                   unsigned size, unsigned stride) {
  for (; stride > 0; stride /= 2) {
    __syncthreads();
    for (unsigned pair = threadIdx.x; pair < kSortChunk / 2; pair += blockDim.x) {
      const unsigned a = pair / stride * 2 * stride + pair % stride, b = a + stride;
      const bool forward = ((first + a) & (padded - 1) & size) == 0;
      if (comes_before(value[b], index[b], value[a], index[a]) != forward) continue;
      const std::uint64_t v = value[a];
      const unsigned i = index[a];
      value[a] = value[b], index[a] = index[b];
      value[b] = v, index[b] = i;
    }
  }
  __syncthreads();
}

/// Writes the first k elements of each group in a chunk of sorted keys.
__device__ inline void write_first(const SortedGroups& g, const unsigned* index, unsigned first, void* values,
                                   std::int64_t* indices, const In& x, unsigned element_bytes) {
  for (unsigned slot = threadIdx.x; slot < kSortChunk; slot += blockDim.x) {
    const unsigned place = (first + slot) & (g.padded - 1), group = (first + slot) / g.padded;
    if (group >= g.groups || place >= g.k) continue;
    int at[3];
    g.starts.offsets(group, at);
    const std::int64_t to =
        static_cast<std::int64_t>(at[0]) + static_cast<std::int64_t>(place) * g.value_stride;
    const std::int64_t from =
        static_cast<std::int64_t>(at[2]) + static_cast<std::int64_t>(index[slot]) * g.x_stride;
    const auto* source = static_cast<const std::uint8_t*>(x.data) + from * element_bytes;
    auto* target = static_cast<std::uint8_t*>(values) + to * element_bytes;
    switch (element_bytes) {
      case 1:
        *target = *source;
        break;
      case 2:
        *reinterpret_cast<std::uint16_t*>(target) = *reinterpret_cast<const std::uint16_t*>(source);
        break;
      case 4:
        *reinterpret_cast<std::uint32_t*>(target) = *reinterpret_cast<const std::uint32_t*>(source);
        break;
      default:
        *reinterpret_cast<std::uint64_t*>(target) = *reinterpret_cast<const std::uint64_t*>(source);
    }
    indices[static_cast<std::int64_t>(at[1]) + static_cast<std::int64_t>(place) * g.index_stride] =
        index[slot];
  }
}

/// Sorts one chunk in each block. Without `keys` a group fits into a chunk, and its first elements are written;
/// otherwise chunks are sorted forward and backward in turn, and stored.
static __global__ void __launch_bounds__(kSortThreads)
    sort_chunks(SortedGroups g, SortKeys keys, void* values, std::int64_t* indices, In x,
                unsigned element_bytes) {
  __shared__ std::uint64_t value[kSortChunk];
  __shared__ unsigned index[kSortChunk];
  const unsigned first = blockIdx.x * kSortChunk;
  for (unsigned slot = threadIdx.x; slot < kSortChunk; slot += blockDim.x) {
    const unsigned place = (first + slot) & (g.padded - 1), group = (first + slot) / g.padded;
    value[slot] = 0;
    index[slot] = kNoElement;
    if (group >= g.groups || place >= g.extent) continue;
    int at[3];
    g.starts.offsets(group, at);
    const std::uint64_t v =
        sortable(x, static_cast<std::int64_t>(at[2]) + static_cast<std::int64_t>(place) * g.x_stride);
    value[slot] = g.largest ? v : ~v;
    index[slot] = place;
  }
  const unsigned top = g.padded < kSortChunk ? g.padded : kSortChunk;
  for (unsigned size = 2; size <= top; size *= 2) merge_chunk(value, index, first, g.padded, size, size / 2);
  __syncthreads();
  if (keys.value == nullptr) return write_first(g, index, first, values, indices, x, element_bytes);
  for (unsigned slot = threadIdx.x; slot < kSortChunk; slot += blockDim.x) {
    keys.value[first + slot] = value[slot];
    keys.index[first + slot] = index[slot];
  }
}

/// One step over keys in memory, for strides of at least a chunk: one pair of keys for each thread.
static __global__ void sort_step(SortedGroups g, SortKeys keys, unsigned size, unsigned stride) {
  const unsigned pair = thread_index();
  if (pair >= g.groups * (g.padded / 2)) return;
  const unsigned a = pair / stride * 2 * stride + pair % stride, b = a + stride;
  const bool forward = (a & (g.padded - 1) & size) == 0;
  const std::uint64_t u = keys.value[a], v = keys.value[b];
  const unsigned i = keys.index[a], j = keys.index[b];
  if (comes_before(v, j, u, i) != forward) return;
  keys.value[a] = v, keys.index[a] = j;
  keys.value[b] = u, keys.index[b] = i;
}

/// The remaining steps of a size, within chunks; after those of the last size, the results.
static __global__ void __launch_bounds__(kSortThreads)
    finish_chunks(SortedGroups g, SortKeys keys, unsigned size, void* values, std::int64_t* indices, In x,
                  unsigned element_bytes) {
  __shared__ std::uint64_t value[kSortChunk];
  __shared__ unsigned index[kSortChunk];
  const unsigned first = blockIdx.x * kSortChunk;
  for (unsigned slot = threadIdx.x; slot < kSortChunk; slot += blockDim.x) {
    value[slot] = keys.value[first + slot];
    index[slot] = keys.index[first + slot];
  }
  merge_chunk(value, index, first, g.padded, size, kSortChunk / 2);
  if (size == g.padded) return write_first(g, index, first, values, indices, x, element_bytes);
  for (unsigned slot = threadIdx.x; slot < kSortChunk; slot += blockDim.x) {
    keys.value[first + slot] = value[slot];
    keys.index[first + slot] = index[slot];
  }
}

/// Sums along one dimension: one warp for each group, 32 elements at a time. W: double or std::int64_t.
struct RunningSums {
  unsigned groups = 0;
  int extent = 0, y_stride = 0, x_stride = 0;
  bool exclusive = false, reverse = false;
  DeviceLoop<2> starts;  ///< of a group: y, x

  explicit RunningSums(const StridedLoop<2>& loop) : starts(loop) {}
};

template <typename W>
__device__ W wrapping_sum(W a, W b) {
  if constexpr (std::is_same_v<W, std::int64_t>) {
    return static_cast<W>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

template <typename W>
__global__ void running_sums(RunningSums g, Out y, In x) {
  const unsigned lane = threadIdx.x % 32, group = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (group >= g.groups) return;  // a whole warp
  int at[2];
  g.starts.offsets(group, at);
  W before = 0;  // of the elements before these 32
  for (int begin = 0; begin < g.extent; begin += 32) {
    const int step = begin + static_cast<int>(lane);
    const std::int64_t i = g.reverse ? g.extent - 1 - step : step;
    W sum = step < g.extent ? load<W>(x, at[1] + i * g.x_stride) : W{0};
#pragma unroll
    for (unsigned distance = 1; distance < 32; distance *= 2) {
      const W other = __shfl_up_sync(0xFFFFFFFFU, sum, distance);
      if (lane >= distance) sum = wrapping_sum(other, sum);
    }
    const W left = __shfl_up_sync(0xFFFFFFFFU, sum, 1);
    const W all = __shfl_sync(0xFFFFFFFFU, sum, 31);
    const W result =
        g.exclusive ? (lane == 0 ? before : wrapping_sum(before, left)) : wrapping_sum(before, sum);
    if (step < g.extent) store<W>(y, at[0] + i * g.y_stride, result);
    before = wrapping_sum(before, all);
  }
}

}  // namespace pipit::internal::cuda
