// QUnary and QMul, as layers/ops/qunary.h and layers/ops/qelementwise.h specify them.
#include "engine/cuda/runtime.h"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/ptx.cuh"
#include "layers/cuda/device/quantized.cuh"
#include "layers/cuda/epilogue/int8_math.cuh"
#include "layers/cuda/families.h"
#include "layers/ops/qelementwise.h"
#include "layers/ops/qunary.h"

namespace pipit::internal {

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
    const float value = __fmul_rn(small_to_float(sum), product.multiplier);
    result.v[v] = static_cast<std::uint8_t>(requantize_bits(value, product.low, product.high) +
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
  struct alignas(kWide) Words {
    std::uint32_t v[kWide / 4];
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
  for (int w = 0; w < kWide / 4; ++w) {
    const std::uint32_t l = left.v[w] ^ product.a.flip;
    const auto r = static_cast<int>(right.v[w] ^ product.b.flip);
    std::uint32_t bits[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int sum = __dp4a(static_cast<int>(l & 0xFFU << c * 8), r, kMagicBits);
      bits[c] =
          requantize_bits(__fmul_rn(small_to_float(sum), product.multiplier), product.low, product.high);
    }
    result.v[w] = low_bytes(bits);
  }
  *reinterpret_cast<Words*>(y + at[0]) = result;
}

class QUnaryTable final : public Kernel {
 public:
  explicit QUnaryTable(const QUnary& layer) {
    const std::array<std::uint8_t, kTable> table = unary_table(layer.attributes());
    table_ = DeviceBuffer(table.data(), table.size());
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&look_up<kWide>), overlap_));
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const ConstTensorView& x = inputs[0];
    const TensorView& y = outputs[0];
    const auto loop = broadcast_loop<2>({&y.desc, &x.desc});
    const bool wide = vectorizes<2>(loop, kWide, {y.data, x.data}, {1, 1});
    const int width = wide ? kWide : 1;
    launch_early(wide ? look_up<kWide> : look_up<1>, loop.size() / width, overlap_, context,
                 DeviceLoop<2>(loop, width), y.data, x.data, table_.as<const std::uint8_t>());
  }

 private:
  DeviceBuffer table_;
  bool overlap_ = false;
};

class QProduct final : public Kernel {
 public:
  explicit QProduct(const QMul& layer) : layer_(layer) {
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(&product_kernel<kWide>), overlap_));
  }

  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    const QMulAttributes& a = layer_.attributes();
    const TensorView& y = outputs[0];
    const auto loop = broadcast_loop<3>({&y.desc, &inputs[0].desc, &inputs[1].desc});
    const bool wide = vectorizes<3>(loop, kWide, {y.data, inputs[0].data, inputs[1].data}, {1, 1, 1});
    const int width = wide ? kWide : 1;
    const StepBounds bounds = step_bounds(a.y, a.activation.low, a.activation.high);
    const Product product{IntegerOperand(a.a),
                          IntegerOperand(a.b),
                          qmul_multiplier(a),
                          bounds.low,
                          bounds.high,
                          a.y.zero_point,
                          loop.rank() > 0 && loop.row_strides()[2] == 0};
    const bool plain = product.a.zero_point == 0 && product.b.zero_point == 0 && product.zero_point == 0;
    const auto kernel = !wide ? product_kernel<1> : plain ? product_of_words : product_kernel<kWide>;
    launch_early(kernel, loop.size() / width, overlap_, context, DeviceLoop<3>(loop, width), y.data,
                 inputs[0].data, inputs[1].data, product);
  }

 private:
  QMul layer_;
  bool overlap_ = false;
};

}  // namespace

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
