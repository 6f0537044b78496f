// Operands of kernels other than matrix products: elements of a type that is chosen at run time, and loops with
// collapsed dimensions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/graph/tensor.h"
#include "layers/common/strided_loop.h"
#include "layers/cuda/device/fast_division.h"

namespace pipit::internal::cuda {

inline constexpr unsigned kThreads = 256;  // of a block, unless a kernel needs another shape

/// A StridedLoop for the device: point i in [0, size) to one element offset per operand.
template <int N>
struct DeviceLoop {
  int rank = 0;
  unsigned size = 1;
  Divisor extent[kMaxLoopRank];
  int stride[kMaxLoopRank][N] = {};

  /// With width > 1 a point is `width` neighbours along the innermost dimension (see vectorizes).
  explicit DeviceLoop(const StridedLoop<N>& loop, int width = 1) : rank(loop.rank()) {
    size = static_cast<unsigned>(loop.size() / width);
    for (int d = 0; d < rank; ++d) {
      const int points = d == rank - 1 ? width : 1;
      // An empty loop has no points, but its divisors must not be 0.
      extent[d] = Divisor(static_cast<unsigned>(std::max<std::int64_t>(loop.extent(d) / points, 1)));
      for (int k = 0; k < N; ++k) {
        stride[d][k] = static_cast<int>(loop.strides(d)[static_cast<std::size_t>(k)]) * points;
      }
    }
  }
  __device__ void offsets(unsigned i, int (&at)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = 0;
    for (int d = rank - 1; d > 0; --d) {
      const unsigned rest = extent[d].divide(i);
      const int index = static_cast<int>(i - rest * extent[d].value);
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += index * stride[d][k];
      i = rest;
    }
    // The rest is the index of the outermost dimension. (Without dimensions, i and the strides are 0.)
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] += static_cast<int>(i) * stride[0][k];
  }
};

/// An operand as kernels get it. The branch on the type is the same for a whole grid.
struct In {
  const void* data = nullptr;
  DType type = DType::f32;
  In() = default;
  explicit In(const ConstTensorView& view) : data(view.data), type(view.desc.dtype) {}
};
struct Out {
  void* data = nullptr;
  DType type = DType::f32;
  explicit Out(const TensorView& view) : data(view.data), type(view.desc.dtype) {}
};

/// f16 or bf16.
__device__ inline bool has_16_bits(DType type) {
  return type == DType::f16 || type == DType::bf16;
}

__device__ inline float half_bits_to_float(unsigned short bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ inline unsigned short float_to_half_bits(float x) {
  return __half_as_ushort(__float2half_rn(x));
}
__device__ inline float bfloat_bits_to_float(unsigned short bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}
__device__ inline unsigned short float_to_bfloat_bits(float x) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/// Element `i` as W, which is float (f16, bf16, f32), double (also f64) or std::int64_t (integers); bool fits all.
template <typename W>
__device__ inline W load(const In& in, std::int64_t i) {
  if constexpr (std::is_same_v<W, std::int64_t>) {
    switch (in.type) {
      case DType::i64:
        return static_cast<const std::int64_t*>(in.data)[i];
      case DType::i32:
        return static_cast<const std::int32_t*>(in.data)[i];
      case DType::i8:
        return static_cast<const std::int8_t*>(in.data)[i];
      default:
        return static_cast<const std::uint8_t*>(in.data)[i];
    }
  } else {
    if (in.type == DType::f16) return half_bits_to_float(static_cast<const unsigned short*>(in.data)[i]);
    if (in.type == DType::bf16) return bfloat_bits_to_float(static_cast<const unsigned short*>(in.data)[i]);
    if constexpr (std::is_same_v<W, double>) {
      if (in.type == DType::f64) return static_cast<const double*>(in.data)[i];
    }
    if (in.type == DType::boolean) return static_cast<const std::uint8_t*>(in.data)[i];
    return static_cast<const float*>(in.data)[i];
  }
}

/// Stores `value` as element `i`; integers wrap, bool is value != 0.
template <typename W>
__device__ inline void store(const Out& out, std::int64_t i, W value) {
  if (out.type == DType::boolean) {
    static_cast<std::uint8_t*>(out.data)[i] = value != 0 ? 1 : 0;
  } else if constexpr (std::is_same_v<W, std::int64_t>) {
    switch (out.type) {
      case DType::i64:
        static_cast<std::int64_t*>(out.data)[i] = value;
        break;
      case DType::i32:
        static_cast<std::int32_t*>(out.data)[i] = static_cast<std::int32_t>(value);
        break;
      default:
        static_cast<std::uint8_t*>(out.data)[i] = static_cast<std::uint8_t>(value);
    }
  } else if (out.type == DType::f16) {
    static_cast<unsigned short*>(out.data)[i] = float_to_half_bits(static_cast<float>(value));
  } else if (out.type == DType::bf16) {
    static_cast<unsigned short*>(out.data)[i] = float_to_bfloat_bits(static_cast<float>(value));
  } else {
    if constexpr (std::is_same_v<W, double>) {
      if (out.type == DType::f64) {
        static_cast<double*>(out.data)[i] = value;
        return;
      }
    }
    static_cast<float*>(out.data)[i] = static_cast<float>(value);
  }
}

/// V (4 or 8) neighbours from element `i` on, f32, f16 or bf16, aligned to V elements or 16 bytes.
template <int V>
__device__ inline void load_vector(const In& in, std::int64_t i, float (&x)[V]) {
  if (has_16_bits(in.type)) {
    unsigned words[V / 2];
    const auto* from = static_cast<const unsigned short*>(in.data) + i;
    if constexpr (V == 8) {
      const uint4 v = *reinterpret_cast<const uint4*>(from);
      words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else {
      const uint2 v = *reinterpret_cast<const uint2*>(from);
      words[0] = v.x, words[1] = v.y;
    }
    const auto bits = [&](int k) { return static_cast<unsigned short>(words[k / 2] >> (k % 2 * 16)); };
    if (in.type == DType::f16) {
#pragma unroll
      for (int k = 0; k < V; ++k) x[k] = half_bits_to_float(bits(k));
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) x[k] = bfloat_bits_to_float(bits(k));
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; k += 4) {
      const float4 v = *reinterpret_cast<const float4*>(static_cast<const float*>(in.data) + i + k);
      x[k] = v.x, x[k + 1] = v.y, x[k + 2] = v.z, x[k + 3] = v.w;
    }
  }
}

template <int V>
__device__ inline void store_vector(const Out& out, std::int64_t i, const float (&x)[V]) {
  if (has_16_bits(out.type)) {
    unsigned words[V / 2];
    const auto fill = [&](const auto& bits) {
#pragma unroll
      for (int k = 0; k < V; k += 2) words[k / 2] = bits(x[k]) | static_cast<unsigned>(bits(x[k + 1])) << 16;
    };
    if (out.type == DType::f16) {
      fill([](float v) { return float_to_half_bits(v); });
    } else {
      fill([](float v) { return float_to_bfloat_bits(v); });
    }
    auto* to = static_cast<unsigned short*>(out.data) + i;
    if constexpr (V == 8) {
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; k += 4) {
      *reinterpret_cast<float4*>(static_cast<float*>(out.data) + i + k) =
          make_float4(x[k], x[k + 1], x[k + 2], x[k + 3]);
    }
  }
}

/// Index of this thread in a one-dimensional grid of kThreads-sized blocks.
__device__ inline unsigned thread_index() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

constexpr unsigned blocks_for(std::int64_t count, unsigned per_block = kThreads) {
  return static_cast<unsigned>((count + per_block - 1) / per_block);
}

}  // namespace pipit::internal::cuda
