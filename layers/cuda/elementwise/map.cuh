// Element-wise maps over up to three broadcast operands.
#pragma once

#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/ptx.cuh"

namespace pipit::internal::cuda {

template <int N>
struct MapInputs {
  In in[N];
};

/// y[i] = f(x) with x[N] the operands' elements, as W. V elements a thread (V > 1 only with W = float).
template <int V, typename W, int N, typename F>
__global__ void map_kernel(DeviceLoop<N + 1> loop, Out y, MapInputs<N> inputs, F f) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[N + 1];
  loop.offsets(i, at);
  if constexpr (V == 1) {
    W x[N];
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = load<W>(inputs.in[k], at[k + 1]);
    store<W>(y, at[0], f(x));
  } else {
    float x[N][V];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (loop.stride[loop.rank - 1][k + 1] == 0) {
        const float value = load<float>(inputs.in[k], at[k + 1]);
#pragma unroll
        for (int v = 0; v < V; ++v) x[k][v] = value;
      } else {
        load_vector<V>(inputs.in[k], at[k + 1], x[k]);
      }
    }
    float result[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      float arguments[N];
#pragma unroll
      for (int k = 0; k < N; ++k) arguments[k] = x[k][v];
      result[v] = f(arguments);
    }
    store_vector<V>(y, at[0], result);
  }
}

/// Launches the map of `f` over operands broadcast to the output's shape, one element a thread.
template <typename W, int N, typename F>
void launch_map(const char* name, std::span<const ConstTensorView> inputs, const TensorView& y, const F& f,
                const RunContext& context) {
  std::array<const TensorDesc*, N + 1> descs{&y.desc};
  MapInputs<N> operands;
  for (std::size_t k = 0; k < N; ++k) {
    descs[k + 1] = &inputs[k].desc;
    operands.in[k] = In(inputs[k]);
  }
  const auto loop = broadcast_loop<N + 1>(descs);
  launch_waiting(name, map_kernel<1, W, N, F>, loop.size(), context, DeviceLoop<N + 1>(loop), Out(y),
                 operands, f);
}

/// The same for f32, f16 and bf16 operands in float, 16 bytes a thread where the operands allow it.
template <int N, typename F>
void launch_float_map(const char* name, std::span<const ConstTensorView> inputs, const TensorView& y,
                      const F& f, const RunContext& context) {
  std::array<const TensorDesc*, N + 1> descs{&y.desc};
  std::array<const void*, N + 1> data{y.data};
  std::array<std::size_t, N + 1> bytes{dtype_bytes(y.desc.dtype)};
  MapInputs<N> operands;
  bool half = is_stored_float(y.desc.dtype);
  bool plain = is_float_or_half(y.desc.dtype);
  for (std::size_t k = 0; k < N; ++k) {
    descs[k + 1] = &inputs[k].desc;
    data[k + 1] = inputs[k].data;
    bytes[k + 1] = dtype_bytes(inputs[k].desc.dtype);
    operands.in[k] = In(inputs[k]);
    half = half || is_stored_float(inputs[k].desc.dtype);
    plain = plain && is_float_or_half(inputs[k].desc.dtype);
  }
  const auto loop = broadcast_loop<N + 1>(descs);
  if (plain && half && vectorizes(loop, 8, data, bytes)) {
    launch_waiting(name, map_kernel<8, float, N, F>, loop.size() / 8, context, DeviceLoop<N + 1>(loop, 8),
                   Out(y), operands, f);
  } else if (plain && vectorizes(loop, 4, data, bytes)) {
    launch_waiting(name, map_kernel<4, float, N, F>, loop.size() / 4, context, DeviceLoop<N + 1>(loop, 4),
                   Out(y), operands, f);
  } else {
    launch_waiting(name, map_kernel<1, float, N, F>, loop.size(), context, DeviceLoop<N + 1>(loop), Out(y),
                   operands, f);
  }
}

}  // namespace pipit::internal::cuda
