// QUnary and QMul, as layers/ops/qunary.h and layers/ops/qelementwise.h specify them.
#include "engine/cuda/runtime.h"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/quantized/quantized.cuh"
#include "layers/ops/qelementwise.h"
#include "layers/ops/qunary.h"

namespace pipit {

namespace {

using namespace cuda;

constexpr int kWide = 16;  // bytes of a thread where they lie together
constexpr int kTable = 256;

template <int V>
struct alignas(V) Bytes {
  std::uint8_t v[V];
};

template <int V>
__device__ Bytes<V> load_bytes(const std::byte* from, int at) {
  return *reinterpret_cast<const Bytes<V>*>(from + at);
}

template <int V>
__global__ void look_up(DeviceLoop<2> loop, std::byte* y, const std::byte* x, const std::uint8_t* table) {
  __shared__ std::uint8_t own[kTable];
  for (int k = static_cast<int>(threadIdx.x); k < kTable; k += static_cast<int>(blockDim.x))
    own[k] = table[k];
  __syncthreads();
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
  QuantizedStore store;
  bool spread;  // one element of b is for all neighbours of a
};

template <int V>
__global__ void product_kernel(DeviceLoop<3> loop, std::byte* y, const std::byte* a, const std::byte* b,
                               Product product) {
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
    const int sum = load_integer(product.a, left.v, v) * load_integer(product.b, right.v, v);
    result.v[v] =
        static_cast<std::uint8_t>(product.store.integer(__fmul_rn(__int2float_rn(sum), product.multiplier)));
  }
  *reinterpret_cast<Bytes<V>*>(y + at[0]) = result;
}

class QUnaryTable final : public Kernel {
 public:
  explicit QUnaryTable(const QUnary& layer) {
    const std::array<std::uint8_t, kTable> table = unary_table(layer.attributes());
    table_ = DeviceBuffer(table.data(), table.size());
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const ConstTensorView& x = inputs[0];
    const TensorView& y = outputs[0];
    const auto loop = broadcast_loop<2>({&y.desc, &x.desc});
    const bool wide = vectorizes<2>(loop, kWide, {y.data, x.data}, {1, 1});
    const int width = wide ? kWide : 1;
    launch("look up", wide ? look_up<kWide> : look_up<1>, loop.size() / width, context,
           DeviceLoop<2>(loop, width), y.data, x.data, table_.as<const std::uint8_t>());
  }

 private:
  DeviceBuffer table_;
};

void run_product(const QMul& layer, std::span<const ConstTensorView> inputs,
                 std::span<const TensorView> outputs, const RunContext& context) {
  const QMulAttributes& a = layer.attributes();
  const TensorView& y = outputs[0];
  const auto loop = broadcast_loop<3>({&y.desc, &inputs[0].desc, &inputs[1].desc});
  const bool wide = vectorizes<3>(loop, kWide, {y.data, inputs[0].data, inputs[1].data}, {1, 1, 1});
  const int width = wide ? kWide : 1;
  const StepBounds bounds = step_bounds(a.y, a.activation.low, a.activation.high);
  const Product product{IntegerOperand(a.a), IntegerOperand(a.b), qmul_multiplier(a),
                        QuantizedStore{stored_type(a.y.dtype), a.y.zero_point, bounds.low, bounds.high},
                        loop.rank() > 0 && loop.row_strides()[2] == 0};
  launch("multiply integers", wide ? product_kernel<kWide> : product_kernel<1>, loop.size() / width, context,
         DeviceLoop<3>(loop, width), y.data, inputs[0].data, inputs[1].data, product);
}

}  // namespace

void register_cuda_qfunctions(Registry& registry) {
  registry.add(QUnary::kType, DeviceKind::cuda,
               {"table", refuse_unless_indexable, [](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
                  return std::make_unique<QUnaryTable>(layer_as<QUnary>(spec.layer));
                }});
  add_kernel<QMul>(registry, "elementwise", refuse_unless_indexable, run_product);
}

}  // namespace pipit
