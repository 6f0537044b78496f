// Convolution without matrix units: every thread adds up its own outputs, in fp32 or in int32, and the launches.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "layers/cuda/conv/direct/launch.h"
#include "layers/cuda/device/elements.cuh"
#include "layers/cuda/epilogue/stores.cuh"

namespace pipit::internal::cuda {

namespace {

constexpr int kThreads = 128;

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

__device__ __forceinline__ float to_float(float v) {
  return v;
}
__device__ __forceinline__ float to_float(__half v) {
  return __half2float(v);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 v) {
  return __bfloat162float(v);
}
__device__ __forceinline__ void store(float* to, float v) {
  *to = v;
}
__device__ __forceinline__ void store(__half* to, float v) {
  *to = __float2half_rn(v);
}

__device__ __forceinline__ void store(__nv_bfloat16* to, float v) {
  *to = __float2bfloat16_rn(v);
}

/// f(std::type_identity<T>{}) with the element of `type`, f32, f16 or bf16.
template <typename F>
void with_element(DType type, const F& f) {
  switch (type) {
    case DType::f16:
      return f(std::type_identity<__half>{});
    case DType::bf16:
      return f(std::type_identity<__nv_bfloat16>{});
    default:
      return f(std::type_identity<float>{});
  }
}

/// Count neighbouring elements with one load; the address is a multiple of their size.
template <typename T, int Count>
__device__ __forceinline__ void load(const T* from, float (&to)[Count]) {
  struct alignas(sizeof(T) * Count) Pack {
    T v[Count];
  };
  const Pack pack = *reinterpret_cast<const Pack*>(from);
#pragma unroll
  for (int i = 0; i < Count; ++i) to[i] = to_float(pack.v[i]);
}

__device__ __forceinline__ float clamp(float v, float low, float high) {
  v = v < low ? low : v;  // comparisons, not fminf: a NaN stays one
  return v > high ? high : v;
}

// A thread computes four neighbouring columns of four output channels. Channels run fastest through the
// threads, so that a warp reads the same pixels and neighbouring weights.
template <typename T, int Channels>
__global__ void __launch_bounds__(kThreads) conv_direct(const __grid_constant__ DirectConvArgs a) {
  const int quads = (a.group_out + 3) / 4;
  const int column_quads = (a.out[2] + 3) / 4;
  std::int64_t index = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x;
  const int quad = static_cast<int>(index % quads);
  index /= quads;
  const int group = static_cast<int>(index % a.groups);
  index /= a.groups;
  const int ow = static_cast<int>(index % column_quads) * 4;
  index /= column_quads;
  const int oh = static_cast<int>(index % a.out[1]);
  index /= a.out[1];
  const int od = static_cast<int>(index % a.out[0]);
  const std::int64_t n = index / a.out[0];
  if (n >= a.batch) return;

  const ImageStrides& xs = a.x_strides;
  const T* x =
      static_cast<const T*>(a.x) + n * xs.batch + group * static_cast<std::int64_t>(a.group_in) * xs.channel;
  const std::int64_t taps = static_cast<std::int64_t>(a.kernel[0]) * a.kernel[1] * a.kernel[2];
  const float* weights =
      a.weights + group * taps * a.group_in * (quads * 4) + static_cast<std::int64_t>(quad) * 4;
  float sum[4][4] = {};  // [column][channel]
  for (int kd = 0; kd < a.kernel[0]; ++kd) {
    const int d = od * a.stride[0] - a.pad[0] + kd * a.dilation[0];
    if (static_cast<unsigned>(d) >= static_cast<unsigned>(a.in[0])) continue;
    for (int kh = 0; kh < a.kernel[1]; ++kh) {
      const int h = oh * a.stride[1] - a.pad[1] + kh * a.dilation[1];
      if (static_cast<unsigned>(h) >= static_cast<unsigned>(a.in[1])) continue;
      const T* row = x + d * xs.d + h * xs.h;
      const std::int64_t row_tap = (static_cast<std::int64_t>(kd) * a.kernel[1] + kh) * a.kernel[2];
      for (int kw = 0; kw < a.kernel[2]; ++kw) {
        const T* pixel[4];
        bool inside[4];
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          const int w = (ow + p) * a.stride[2] - a.pad[2] + kw * a.dilation[2];
          inside[p] = static_cast<unsigned>(w) < static_cast<unsigned>(a.in[2]);
          pixel[p] = row + (inside[p] ? w : 0) * xs.w;
        }
        const float* filter = weights + (row_tap + kw) * a.group_in * (quads * 4);
        for (int c = 0; c < a.group_in; c += Channels) {
          float value[4][Channels] = {};
#pragma unroll
          for (int p = 0; p < 4; ++p) {
            if (inside[p]) load(pixel[p] + c * xs.channel, value[p]);
          }
#pragma unroll
          for (int j = 0; j < Channels; ++j) {
            float w[4];
            load(filter + static_cast<std::int64_t>(c + j) * (quads * 4), w);
#pragma unroll
            for (int p = 0; p < 4; ++p) {
#pragma unroll
              for (int o = 0; o < 4; ++o) sum[p][o] = fmaf(value[p][j], w[o], sum[p][o]);
            }
          }
        }
      }
    }
  }

  const auto at = [&](const ImageStrides& s, int p, int channel) {
    return n * s.batch + channel * s.channel + od * s.d + oh * s.h + (ow + p) * s.w;
  };
  const auto* residual = static_cast<const T*>(a.residual);
  auto* y = static_cast<T*>(a.y);
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    if (ow + p >= a.out[2]) break;
#pragma unroll
    for (int o = 0; o < 4; ++o) {
      if (quad * 4 + o >= a.group_out) break;
      const int channel = group * a.group_out + quad * 4 + o;
      float v = sum[p][o] + a.bias[channel];
      if (residual != nullptr) v += to_float(residual[at(a.residual_strides, p, channel)]);
      store(y + at(a.y_strides, p, channel), clamp(v, a.low, a.high));
    }
  }
}

// A thread computes Channels neighbouring channels of one position.
template <typename T, int Channels>
__global__ void __launch_bounds__(kThreads) conv_depthwise(const __grid_constant__ DirectConvArgs a) {
  const int vectors = a.groups / Channels;
  std::int64_t index = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x;
  const int channel = static_cast<int>(index % vectors) * Channels;
  index /= vectors;
  const int ow = static_cast<int>(index % a.out[2]);
  index /= a.out[2];
  const int oh = static_cast<int>(index % a.out[1]);
  index /= a.out[1];
  const int od = static_cast<int>(index % a.out[0]);
  const std::int64_t n = index / a.out[0];
  if (n >= a.batch) return;

  const ImageStrides& xs = a.x_strides;
  const T* x = static_cast<const T*>(a.x) + n * xs.batch + channel;
  float sum[Channels] = {};
  for (int kd = 0; kd < a.kernel[0]; ++kd) {
    const int d = od * a.stride[0] - a.pad[0] + kd * a.dilation[0];
    if (static_cast<unsigned>(d) >= static_cast<unsigned>(a.in[0])) continue;
    for (int kh = 0; kh < a.kernel[1]; ++kh) {
      const int h = oh * a.stride[1] - a.pad[1] + kh * a.dilation[1];
      if (static_cast<unsigned>(h) >= static_cast<unsigned>(a.in[1])) continue;
      const T* row = x + d * xs.d + h * xs.h;
      const float* filter =
          a.weights + (static_cast<std::int64_t>(kd) * a.kernel[1] + kh) * a.kernel[2] * a.groups + channel;
#pragma unroll 3
      for (int kw = 0; kw < a.kernel[2]; ++kw) {
        const int w = ow * a.stride[2] - a.pad[2] + kw * a.dilation[2];
        float value[Channels] = {};
        if (static_cast<unsigned>(w) < static_cast<unsigned>(a.in[2])) load(row + w * xs.w, value);
#pragma unroll
        for (int c = 0; c < Channels; c += Channels < 4 ? Channels : 4) {
          float weight[Channels < 4 ? Channels : 4];
          load(filter + static_cast<std::int64_t>(kw) * a.groups + c, weight);
#pragma unroll
          for (int j = 0; j < (Channels < 4 ? Channels : 4); ++j) {
            sum[c + j] = fmaf(value[c + j], weight[j], sum[c + j]);
          }
        }
      }
    }
  }
  const auto at = [&](const ImageStrides& s) {
    return n * s.batch + od * s.d + oh * s.h + ow * s.w + channel;
  };
  float residual[Channels] = {};
  if (a.residual != nullptr) load(static_cast<const T*>(a.residual) + at(a.residual_strides), residual);
  struct alignas(sizeof(T) * Channels) Pack {
    T v[Channels];
  } result;
#pragma unroll
  for (int c = 0; c < Channels; ++c) {
    store(&result.v[c], clamp(sum[c] + a.bias[channel + c] + residual[c], a.low, a.high));
  }
  *reinterpret_cast<Pack*>(static_cast<T*>(a.y) + at(a.y_strides)) = result;
}

// A thread writes one element; those beyond group_out are 0.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    pack_weights(const __grid_constant__ DirectConvArgs a, const T* weights, ImageStrides from, float* packed,
                 std::int64_t size) {
  const std::int64_t at = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x;
  if (at >= size) return;
  std::int64_t rest = at;
  const auto take = [&](int extent) {
    const auto position = static_cast<int>(rest % extent);
    rest /= extent;
    return position;
  };
  const int column = take((a.group_out + 3) / 4 * 4);
  const int c = take(a.group_in);
  const int w = take(a.kernel[2]), h = take(a.kernel[1]), d = take(a.kernel[0]);
  const std::int64_t output = rest * a.group_out + column;
  packed[at] =
      column < a.group_out
          ? to_float(weights[output * from.batch + c * from.channel + d * from.d + h * from.h + w * from.w])
          : 0.0F;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) widen(const T* from, float* to, std::int64_t size) {
  const std::int64_t at = blockIdx.x * static_cast<std::int64_t>(kThreads) + threadIdx.x;
  if (at < size) to[at] = to_float(from[at]);
}

template <typename T, int Vector>
void launch_depthwise(const DirectConvArgs& a, cudaStream_t stream) {
  const std::int64_t positions = a.batch * a.out[0] * a.out[1] * a.out[2];
  if (a.groups % Vector == 0) {
    conv_depthwise<T, Vector><<<blocks_for(positions * (a.groups / Vector)), kThreads, 0, stream>>>(a);
  } else {
    conv_depthwise<T, 1><<<blocks_for(positions * a.groups), kThreads, 0, stream>>>(a);
  }
}

template <typename T>
void launch_direct(const DirectConvArgs& a, bool wide, cudaStream_t stream) {
  const std::int64_t threads = a.batch * a.out[0] * a.out[1] * ((a.out[2] + 3) / 4) * a.groups *
                               static_cast<std::int64_t>((a.group_out + 3) / 4);
  if (wide) {
    conv_direct<T, 4><<<blocks_for(threads), kThreads, 0, stream>>>(a);
  } else {
    conv_direct<T, 1><<<blocks_for(threads), kThreads, 0, stream>>>(a);
  }
}

}  // namespace

cudaError_t launch_conv_direct(const DirectConvArgs& args, DType type, bool wide, cudaStream_t stream) {
  with_element(type, [&]<typename T>(std::type_identity<T>) { launch_direct<T>(args, wide, stream); });
  return cudaGetLastError();
}

cudaError_t pack_direct_weights(const DirectConvArgs& args, const void* weights, const ImageStrides& strides,
                                DType type, float* packed, cudaStream_t stream) {
  const std::int64_t size = packed_weights(args);
  const unsigned blocks = blocks_for(size);
  with_element(type, [&]<typename T>(std::type_identity<T>) {
    pack_weights<<<blocks, kThreads, 0, stream>>>(args, static_cast<const T*>(weights), strides, packed,
                                                  size);
  });
  return cudaGetLastError();
}

cudaError_t pack_direct_biases(const void* biases, std::int64_t count, DType type, float* packed,
                               cudaStream_t stream) {
  with_element(type, [&]<typename T>(std::type_identity<T>) {
    widen<<<blocks_for(count), kThreads, 0, stream>>>(static_cast<const T*>(biases), packed, count);
  });
  return cudaGetLastError();
}

cudaError_t launch_conv_depthwise(const DirectConvArgs& args, DType type, cudaStream_t stream) {
  with_element(type, [&]<typename T>(std::type_identity<T>) {
    launch_depthwise<T, sizeof(T) == 2 ? 8 : 4>(args, stream);
  });
  return cudaGetLastError();
}

// INT8.

namespace {

// A thread's number, taken apart. In 32 bits: 64-bit divisions are function calls, around which registers spill.
struct Index {
  unsigned rest;
  __device__ __forceinline__ Index() : rest(blockIdx.x * kThreads + threadIdx.x) {}
  __device__ __forceinline__ int take(int extent) {
    const unsigned above = rest / static_cast<unsigned>(extent);
    const auto position = static_cast<int>(rest - above * static_cast<unsigned>(extent));
    rest = above;
    return position;
  }
};

// Finishes one output as QConv specifies it and stores it.
struct Finish {
  const QDirectConvArgs& a;
  __device__ __forceinline__ void operator()(int sum, int channel, std::int64_t y_at,
                                             std::int64_t residual_at) const {
    float v = scaled(sum + a.bias[channel], a.multipliers[channel]);
    if (a.conv.residual != nullptr) {
      const int r = load_integer(a.residual, a.conv.residual, residual_at);
      v = with_residual(v, __int2float_rn(r), a.residual_scale);
    }
    QuantizedStore{a.y, a.y_zero_point, a.conv.low, a.conv.high}(a.conv.y, y_at, v);
  }
};

// Element `at` of a pixel, less the zero point. Pixels are counted as if elements were bytes.
__device__ __forceinline__ int load_element(const QDirectConvArgs& a, const std::uint8_t* pixel,
                                            std::int64_t at) {
  if (a.x_scale == 0) return load_integer(a.x, pixel, at);
  const auto* x = static_cast<const float*>(a.conv.x);
  const float v = __fdiv_rn(x[pixel - static_cast<const std::uint8_t*>(a.conv.x) + at], a.x_scale);
  return whole_steps(v, a.x_bounds.low, a.x_bounds.high);
}

// A thread computes four neighbouring columns of four output channels. Channels run fastest through the threads, so
// that a warp reads the same pixels and neighbouring weights. Channels: input channels that a thread takes at once, 1
// or 4.
template <int Channels>
__global__ void __launch_bounds__(kThreads, 4) qconv_direct(const __grid_constant__ QDirectConvArgs args) {
  const DirectConvArgs& a = args.conv;
  const int quads = (a.group_out + 3) / 4;
  const int column_quads = (a.out[2] + 3) / 4;
  Index index;
  const int quad = index.take(quads);
  const int group = index.take(a.groups);
  const int ow = index.take(column_quads) * 4;
  const int oh = index.take(a.out[1]);
  const int od = index.take(a.out[0]);
  const std::int64_t n = index.rest;
  if (n >= a.batch) return;

  const ImageStrides& xs = a.x_strides;
  const auto* x = static_cast<const std::uint8_t*>(a.x) + n * xs.batch +
                  group * static_cast<std::int64_t>(a.group_in) * xs.channel;
  const std::int64_t taps = static_cast<std::int64_t>(a.kernel[0]) * a.kernel[1] * a.kernel[2];
  const std::int8_t* weights =
      args.weights + group * taps * a.group_in * (quads * 4) + static_cast<std::int64_t>(quad) * 4 * Channels;
  int sum[4][4] = {};  // [column][channel]
  for (int kd = 0; kd < a.kernel[0]; ++kd) {
    const int d = od * a.stride[0] - a.pad[0] + kd * a.dilation[0];
    if (static_cast<unsigned>(d) >= static_cast<unsigned>(a.in[0])) continue;
    for (int kh = 0; kh < a.kernel[1]; ++kh) {
      const int h = oh * a.stride[1] - a.pad[1] + kh * a.dilation[1];
      if (static_cast<unsigned>(h) >= static_cast<unsigned>(a.in[1])) continue;
      const std::uint8_t* row = x + d * xs.d + h * xs.h;
      const std::int64_t row_tap = (static_cast<std::int64_t>(kd) * a.kernel[1] + kh) * a.kernel[2];
      for (int kw = 0; kw < a.kernel[2]; ++kw) {
        const std::uint8_t* pixel[4];
        int zero[4];  // what a tap inside the image is less
        bool inside[4];
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          const int w = (ow + p) * a.stride[2] - a.pad[2] + kw * a.dilation[2];
          inside[p] = static_cast<unsigned>(w) < static_cast<unsigned>(a.in[2]);
          pixel[p] = row + (inside[p] ? w : 0) * xs.w;
          zero[p] = inside[p] ? args.x.zero_point : 0;
        }
        const std::int8_t* filter = weights + (row_tap + kw) * a.group_in * (quads * 4);
        for (int c = 0; c < a.group_in; c += Channels, filter += quads * 4 * Channels) {
          if constexpr (Channels == 4) {
            const int4 w4 = *reinterpret_cast<const int4*>(filter);
            const int w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
            for (int p = 0; p < 4; ++p) {
              const unsigned value =
                  inside[p] ? *reinterpret_cast<const unsigned*>(pixel[p] + c) ^ args.x.flip : 0U;
#pragma unroll
              for (int o = 0; o < 4; ++o) sum[p][o] = __dp4a(static_cast<int>(value), w[o], sum[p][o]);
            }
            if (args.x.zero_point != 0) {
#pragma unroll
              for (int o = 0; o < 4; ++o) {
                const int weight_sum = __dp4a(0x01010101, w[o], 0);
#pragma unroll
                for (int p = 0; p < 4; ++p) sum[p][o] -= zero[p] * weight_sum;
              }
            }
          } else {
            const char4 w4 = *reinterpret_cast<const char4*>(filter);
            const int w[4] = {w4.x, w4.y, w4.z, w4.w};
#pragma unroll
            for (int p = 0; p < 4; ++p) {
              const int value = inside[p] ? load_element(args, pixel[p], c * xs.channel) : 0;
#pragma unroll
              for (int o = 0; o < 4; ++o) sum[p][o] += value * w[o];
            }
          }
        }
      }
    }
  }

  const auto at = [&](const ImageStrides& s, int p, int channel) {
    return n * s.batch + channel * s.channel + od * s.d + oh * s.h + (ow + p) * s.w;
  };
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    if (ow + p >= a.out[2]) break;
#pragma unroll
    for (int o = 0; o < 4; ++o) {
      if (quad * 4 + o >= a.group_out) break;
      const int channel = group * a.group_out + quad * 4 + o;
      Finish{args}(sum[p][o], channel, at(a.y_strides, p, channel), at(a.residual_strides, p, channel));
    }
  }
}

// A thread computes Channels neighbouring channels of one position.
template <int Channels>
__global__ void __launch_bounds__(kThreads) qconv_depthwise(const __grid_constant__ QDirectConvArgs args) {
  struct alignas(Channels) Bytes {
    std::int8_t v[Channels];
  };
  const DirectConvArgs& a = args.conv;
  const int vectors = a.groups / Channels;
  Index index;
  const int channel = index.take(vectors) * Channels;
  const int ow = index.take(a.out[2]);
  const int oh = index.take(a.out[1]);
  const int od = index.take(a.out[0]);
  const std::int64_t n = index.rest;
  if (n >= a.batch) return;

  const ImageStrides& xs = a.x_strides;
  const auto* x = static_cast<const std::uint8_t*>(a.x) + n * xs.batch + channel;
  const auto flip = static_cast<std::uint8_t>(args.x.flip);
  int sum[Channels] = {};
  for (int kd = 0; kd < a.kernel[0]; ++kd) {
    const int d = od * a.stride[0] - a.pad[0] + kd * a.dilation[0];
    if (static_cast<unsigned>(d) >= static_cast<unsigned>(a.in[0])) continue;
    for (int kh = 0; kh < a.kernel[1]; ++kh) {
      const int h = oh * a.stride[1] - a.pad[1] + kh * a.dilation[1];
      if (static_cast<unsigned>(h) >= static_cast<unsigned>(a.in[1])) continue;
      const std::uint8_t* row = x + d * xs.d + h * xs.h;
      const std::int8_t* filter =
          args.weights + (static_cast<std::int64_t>(kd) * a.kernel[1] + kh) * a.kernel[2] * a.groups +
          channel;
#pragma unroll(Channels == 1 ? 1 : 3)
      for (int kw = 0; kw < a.kernel[2]; ++kw) {
        const int w = ow * a.stride[2] - a.pad[2] + kw * a.dilation[2];
        if (static_cast<unsigned>(w) >= static_cast<unsigned>(a.in[2])) continue;
        const Bytes value = *reinterpret_cast<const Bytes*>(row + w * xs.w);
        const Bytes weight =
            *reinterpret_cast<const Bytes*>(filter + static_cast<std::int64_t>(kw) * a.groups);
#pragma unroll
        for (int c = 0; c < Channels; ++c) {
          const auto signed_value = static_cast<std::int8_t>(value.v[c] ^ flip);
          sum[c] += (signed_value - args.x.zero_point) * weight.v[c];
        }
      }
    }
  }

  const auto at = [&](const ImageStrides& s) {
    return n * s.batch + channel + od * s.d + oh * s.h + ow * s.w;
  };
#pragma unroll
  for (int c = 0; c < Channels; ++c)
    Finish{args}(sum[c], channel + c, at(a.y_strides) + c, at(a.residual_strides) + c);
}

}  // namespace

cudaError_t launch_qconv_direct(const QDirectConvArgs& args, bool wide, cudaStream_t stream) {
  const DirectConvArgs& a = args.conv;
  const std::int64_t threads = a.batch * a.out[0] * a.out[1] * ((a.out[2] + 3) / 4) * a.groups *
                               static_cast<std::int64_t>((a.group_out + 3) / 4);
  const auto kernel = wide ? qconv_direct<4> : qconv_direct<1>;
  kernel<<<blocks_for(threads), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

cudaError_t launch_qconv_depthwise(const QDirectConvArgs& args, cudaStream_t stream) {
  const DirectConvArgs& a = args.conv;
  const std::int64_t positions = a.batch * a.out[0] * a.out[1] * a.out[2];
  const int vector = a.groups % 8 == 0 ? 8 : 1;
  const auto kernel = vector == 8 ? qconv_depthwise<8> : qconv_depthwise<1>;
  kernel<<<blocks_for(positions * (a.groups / vector)), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace pipit::internal::cuda
