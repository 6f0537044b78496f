// Quantize, Dequantize and QAdd, as layers/ops/quantization.h specifies them, QUnary and QMul as layers/ops/qunary.h
// and layers/ops/qelementwise.h do.
#include "engine/cuda/runtime.h"
#include "layers/cuda/device/elements.cuh"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/epilogue/stores.cuh"
#include "layers/cuda/families.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/quantize.h"
#include "layers/ops/qunary.h"

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
    const float l = scaled(signed_byte(left.v[v], sum.a), sum.a_scale);
    const float both = with_residual(l, __int2float_rn(signed_byte(right.v[v], sum.b)), sum.b_scale);
    result.v[v] = static_cast<std::uint8_t>(sum.store.integer(both));
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

// QUnary and QMul.

constexpr int kWideBytes = 16;  // bytes of a thread where they lie together
constexpr int kTable = 256;

template <int V>
__global__ void look_up(DeviceLoop<2> loop, std::byte* y, const std::byte* x, const std::uint8_t* table) {
  __shared__ std::uint8_t own[kTable];
  for (int k = static_cast<int>(threadIdx.x); k < kTable; k += static_cast<int>(blockDim.x))
    own[k] = table[k];
  __syncthreads();
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[2];
  loop.offsets(i, at);
  Bytes<V> bytes = load_bytes<V>(x, at[1]);
#pragma unroll
  for (int v = 0; v < V; ++v) bytes.v[v] = own[bytes.v[v]];
  *reinterpret_cast<Bytes<V>*>(y + at[0]) = bytes;
}

struct Product {
  IntegerOperand a, b;
  float multiplier;
  float low, high;  // as in StepBounds
  int zero_point;   // of y
  bool spread;      // one element of b is for all neighbours of a
};

template <int V>
__global__ void product_kernel(DeviceLoop<3> loop, std::byte* y, const std::byte* a, const std::byte* b,
                               Product product) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[3];
  loop.offsets(i, at);
  const Bytes<V> left = load_bytes<V>(a, at[1]);
  Bytes<V> right;
  if (product.spread) {
    const std::uint8_t one = load_bytes<1>(b, at[2]).v[0];
#pragma unroll
    for (int v = 0; v < V; ++v) right.v[v] = one;
  } else {
    right = load_bytes<V>(b, at[2]);
  }
  Bytes<V> result;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    // At most 255 * 255 in magnitude: a small sum.
    const int sum = load_integer(product.a, left.v, v) * load_integer(product.b, right.v, v) + kMagicBits;
    const float value = scaled(sum, product.multiplier, true);
    result.v[v] = static_cast<std::uint8_t>(byte_of(value, product.low, product.high) +
                                            static_cast<unsigned>(product.zero_point));
  }
  *reinterpret_cast<Bytes<V>*>(y + at[0]) = result;
}

// The same for zero points of 0 (of the flipped bytes), a word at a time: a product of four bytes, of which all but one
// are masked, is that one's.
__global__ void product_of_words(DeviceLoop<3> loop, std::byte* y, const std::byte* a, const std::byte* b,
                                 Product product) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  struct alignas(kWideBytes) Words {
    std::uint32_t v[kWideBytes / 4];
  };
  const unsigned i = thread_index();
  if (i >= loop.size) return;
  int at[3];
  loop.offsets(i, at);
  const Words left = *reinterpret_cast<const Words*>(a + at[1]);
  Words right;
  if (product.spread) {
    const std::uint32_t one = load_bytes<1>(b, at[2]).v[0] * 0x01010101U;
#pragma unroll
    for (std::uint32_t& word : right.v) word = one;
  } else {
    right = *reinterpret_cast<const Words*>(b + at[2]);
  }
  Words result;
#pragma unroll
  for (int w = 0; w < kWideBytes / 4; ++w) {
    const std::uint32_t l = left.v[w] ^ product.a.flip;
    const auto r = static_cast<int>(right.v[w] ^ product.b.flip);
    float v[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int sum = __dp4a(static_cast<int>(l & 0xFFU << c * 8), r, kMagicBits);
      v[c] = scaled(sum, product.multiplier, true);
    }
    result.v[w] = four_bytes(v, product.low, product.high);
  }
  *reinterpret_cast<Words*>(y + at[0]) = result;
}

class QUnaryTable final : public Kernel {
 public:
  explicit QUnaryTable(const QUnary& layer) {
    const std::array<std::uint8_t, kTable> table = unary_table(layer.attributes());
    table_ = DeviceBuffer(table.data(), table.size());
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&look_up<kWideBytes>), overlap_));
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const ConstTensorView& x = inputs[0];
    const TensorView& y = outputs[0];
    const auto loop = broadcast_loop<2>({&y.desc, &x.desc});
    const bool wide = vectorizes<2>(loop, kWideBytes, {y.data, x.data}, {1, 1});
    const int width = wide ? kWideBytes : 1;
    launch_early(wide ? look_up<kWideBytes> : look_up<1>, loop.size() / width, overlap_, context,
                 DeviceLoop<2>(loop, width), y.data, x.data, table_.as<const std::uint8_t>());
  }

 private:
  DeviceBuffer table_;
  bool overlap_ = false;
};

class QProduct final : public Kernel {
 public:
  explicit QProduct(const QMul& layer) : layer_(layer) {
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&product_kernel<kWideBytes>), overlap_));
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const QMulAttributes& a = layer_.attributes();
    const TensorView& y = outputs[0];
    const auto loop = broadcast_loop<3>({&y.desc, &inputs[0].desc, &inputs[1].desc});
    const bool wide = vectorizes<3>(loop, kWideBytes, {y.data, inputs[0].data, inputs[1].data}, {1, 1, 1});
    const int width = wide ? kWideBytes : 1;
    const StepBounds bounds = step_bounds(a.y, a.activation.low, a.activation.high);
    const Product product{IntegerOperand(a.a),
                          IntegerOperand(a.b),
                          qmul_multiplier(a),
                          bounds.low,
                          bounds.high,
                          a.y.zero_point,
                          loop.rank() > 0 && loop.row_strides()[2] == 0};
    const bool plain = product.a.zero_point == 0 && product.b.zero_point == 0 && product.zero_point == 0;
    const auto kernel = !wide ? product_kernel<1> : plain ? product_of_words : product_kernel<kWideBytes>;
    launch_early(kernel, loop.size() / width, overlap_, context, DeviceLoop<3>(loop, width), y.data,
                 inputs[0].data, inputs[1].data, product);
  }

 private:
  QMul layer_;
  bool overlap_ = false;
};

}  // namespace

void register_cuda_qelementwise(Registry& registry) {
  add_early_kernel<Quantize>(registry, "elementwise", refuse_unless_indexable, quantize_kernel<kWide>,
                             run_quantize);
  add_early_kernel<Dequantize>(registry, "elementwise", refuse_unless_indexable, dequantize_kernel<kWide>,
                               run_dequantize);
  add_early_kernel<QAdd>(registry, "elementwise", refuse_unless_indexable, sum_kernel<kWide>, run_add);
}

void register_cuda_qfunctions(Registry& registry) {
  Candidate table{"table", refuse_unless_indexable, [](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
                    return std::make_unique<QUnaryTable>(layer_as<QUnary>(spec.layer));
                  }};
  table.estimate = streaming(refuse_unless_indexable);
  registry.add(QUnary::kType, DeviceKind::cuda, std::move(table));
  registry.add(QMul::kType, DeviceKind::cuda,
               {"elementwise", refuse_unless_indexable, [](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
                  return std::make_unique<QProduct>(layer_as<QMul>(spec.layer));
                }});
}

}  // namespace pipit::internal
