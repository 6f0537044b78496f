// Quantize, Dequantize and QAdd, as layers/ops/quantization.h specifies them.
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/quantized.cuh"
#include "layers/cuda/families.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"

namespace pipit::internal {

namespace {

using namespace cuda;

constexpr int kWide = 8;  // elements of a thread where they lie together

template <int V>
struct alignas(V) Bytes {
  std::uint8_t v[V];
};

template <int V>
__device__ Bytes<V> load_bytes(const void* data, std::int64_t at) {
  return *reinterpret_cast<const Bytes<V>*>(static_cast<const std::uint8_t*>(data) + at);
}

__device__ int signed_byte(std::uint8_t raw, const IntegerOperand& operand) {
  return static_cast<std::int8_t>(raw ^ static_cast<std::uint8_t>(operand.flip)) - operand.zero_point;
}

template <int V>
__global__ void quantize_kernel(DeviceLoop<2> loop, std::uint8_t* y, In x, float scale,
                                QuantizedStore store) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[2];
  loop.offsets(i, at);
  float value[V];
  if constexpr (V == 1) {
    value[0] = load<float>(x, at[1]);
  } else {
    load_vector<V>(x, at[1], value);
  }
  Bytes<V> result;
#pragma unroll
  for (int v = 0; v < V; ++v)
    result.v[v] = static_cast<std::uint8_t>(store.integer(__fdiv_rn(value[v], scale)));
  *reinterpret_cast<Bytes<V>*>(y + at[0]) = result;
}

template <int V>
__global__ void dequantize_kernel(DeviceLoop<2> loop, Out y, const void* x, IntegerOperand operand,
                                  float scale) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[2];
  loop.offsets(i, at);
  const Bytes<V> bytes = load_bytes<V>(x, at[1]);
  float result[V];
#pragma unroll
  for (int v = 0; v < V; ++v) result[v] = __fmul_rn(__int2float_rn(signed_byte(bytes.v[v], operand)), scale);
  if constexpr (V == 1) {
    store<float>(y, at[0], result[0]);
  } else {
    store_vector<V>(y, at[0], result);
  }
}

struct Sum {
  IntegerOperand a, b;
  float a_scale, b_scale;  // in steps of y
  QuantizedStore store;
};

template <int V>
__global__ void sum_kernel(DeviceLoop<3> loop, std::uint8_t* y, const void* a, const void* b, Sum sum) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[3];
  loop.offsets(i, at);
  const Bytes<V> left = load_bytes<V>(a, at[1]);
  const Bytes<V> right = load_bytes<V>(b, at[2]);
  Bytes<V> result;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const float l = __fmul_rn(__int2float_rn(signed_byte(left.v[v], sum.a)), sum.a_scale);
    const float r = __fmul_rn(__int2float_rn(signed_byte(right.v[v], sum.b)), sum.b_scale);
    result.v[v] = static_cast<std::uint8_t>(sum.store.integer(__fadd_rn(l, r)));
  }
  *reinterpret_cast<Bytes<V>*>(y + at[0]) = result;
}

QuantizedStore store_of(const Quantization& y, const Clamp& activation = {}) {
  const StepBounds bounds = step_bounds(y, activation.low, activation.high);
  return {stored_type(y.dtype), y.zero_point, bounds.low, bounds.high};
}

void run_quantize(const Quantize& layer, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs, const RunContext& context, bool overlap) {
  const ConstTensorView& x = inputs[0];
  const TensorView& y = outputs[0];
  const auto loop = broadcast_loop<2>({&y.desc, &x.desc});
  const bool wide = vectorizes<2>(loop, kWide, {y.data, x.data}, {1, dtype_bytes(x.desc.dtype)});
  const int width = wide ? kWide : 1;
  launch_early(wide ? quantize_kernel<kWide> : quantize_kernel<1>, loop.size() / width, overlap, context,
               DeviceLoop<2>(loop, width), reinterpret_cast<std::uint8_t*>(y.data), In(x), layer.y().scale,
               store_of(layer.y()));
}

void run_dequantize(const Dequantize& layer, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs, const RunContext& context, bool overlap) {
  const ConstTensorView& x = inputs[0];
  const TensorView& y = outputs[0];
  const auto loop = broadcast_loop<2>({&y.desc, &x.desc});
  const bool wide = vectorizes<2>(loop, kWide, {y.data, x.data}, {dtype_bytes(y.desc.dtype), 1});
  const int width = wide ? kWide : 1;
  launch_early(wide ? dequantize_kernel<kWide> : dequantize_kernel<1>, loop.size() / width, overlap, context,
               DeviceLoop<2>(loop, width), Out(y), static_cast<const void*>(x.data),
               IntegerOperand(layer.x()), layer.x().scale);
}

void run_add(const QAdd& layer, std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
             const RunContext& context, bool overlap) {
  const QAddAttributes& a = layer.attributes();
  const TensorView& y = outputs[0];
  const auto loop = broadcast_loop<3>({&y.desc, &inputs[0].desc, &inputs[1].desc});
  const bool wide = vectorizes<3>(loop, kWide, {y.data, inputs[0].data, inputs[1].data}, {1, 1, 1});
  const int width = wide ? kWide : 1;
  const Sum sum{IntegerOperand(a.a), IntegerOperand(a.b), a.a.scale / a.y.scale, a.b.scale / a.y.scale,
                store_of(a.y, a.activation)};
  launch_early(wide ? sum_kernel<kWide> : sum_kernel<1>, loop.size() / width, overlap, context,
               DeviceLoop<3>(loop, width), reinterpret_cast<std::uint8_t*>(y.data),
               static_cast<const void*>(inputs[0].data), static_cast<const void*>(inputs[1].data), sum);
}

}  // namespace

void register_cuda_qelementwise(Registry& registry) {
  add_early_kernel<Quantize>(registry, "elementwise", refuse_unless_indexable, quantize_kernel<kWide>,
                             run_quantize);
  add_early_kernel<Dequantize>(registry, "elementwise", refuse_unless_indexable, dequantize_kernel<kWide>,
                               run_dequantize);
  add_early_kernel<QAdd>(registry, "elementwise", refuse_unless_indexable, sum_kernel<kWide>, run_add);
}

}  // namespace pipit::internal
