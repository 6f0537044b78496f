// Convolution without matrix units: every thread adds up its own outputs in fp32.
#include <cuda_fp16.h>

#include "layers/cuda/conv/direct/launch.h"

namespace pipit::internal::cuda {

namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float to_float(float v) {
  return v;
}
__device__ __forceinline__ float to_float(__half v) {
  return __half2float(v);
}
__device__ __forceinline__ void store(float* to, float v) {
  *to = v;
}
__device__ __forceinline__ void store(__half* to, float v) {
  *to = __float2half_rn(v);
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

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
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

cudaError_t launch_conv_direct(const DirectConvArgs& args, bool half, bool wide, cudaStream_t stream) {
  if (half) {
    launch_direct<__half>(args, wide, stream);
  } else {
    launch_direct<float>(args, wide, stream);
  }
  return cudaGetLastError();
}

cudaError_t launch_conv_depthwise(const DirectConvArgs& args, bool half, cudaStream_t stream) {
  if (half) {
    launch_depthwise<__half, 8>(args, stream);
  } else {
    launch_depthwise<float, 4>(args, stream);
  }
  return cudaGetLastError();
}

}  // namespace pipit::internal::cuda
