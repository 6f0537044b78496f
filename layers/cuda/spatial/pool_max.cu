// Maxima over the small windows that networks use, NHWC, halves or bytes: two by two neighbouring outputs and 16 or 8
// bytes of channels a thread, so that every pixel is read about once.
#include "layers/cuda/device/async_ptx.cuh"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/overlap.cuh"
#include "layers/cuda/families.h"
#include "layers/ops/pool.h"

namespace pipit {

namespace {

using namespace cuda;

constexpr int kOutputs = 2;  // of a thread, along each axis

struct MaxPool {
  const void* x = nullptr;
  void* y = nullptr;
  unsigned size = 0;                // threads with work
  Divider channels, columns, rows;  // units of channels, pairs of output columns and rows
  int in_h = 1, in_w = 1, out_h = 1, out_w = 1, pad_h = 0, pad_w = 0;
};

// What is compared: four bytes of elements at once.
struct Halves {
  static constexpr DType kType = DType::f16;
  static constexpr unsigned kLowest = 0xFC00FC00U;  // -inf twice: what padding is
  // NaN where either is.
  static __device__ __forceinline__ unsigned larger(unsigned p, unsigned q) {
    const __half2 m =
        __hmax2_nan(*reinterpret_cast<const __half2*>(&p), *reinterpret_cast<const __half2*>(&q));
    return *reinterpret_cast<const unsigned*>(&m);
  }
};
struct SignedBytes {
  static constexpr DType kType = DType::i8;
  static constexpr unsigned kLowest = 0x80808080U;
  static __device__ __forceinline__ unsigned larger(unsigned p, unsigned q) { return __vmaxs4(p, q); }
};
struct UnsignedBytes {
  static constexpr DType kType = DType::u8;
  static constexpr unsigned kLowest = 0;
  static __device__ __forceinline__ unsigned larger(unsigned p, unsigned q) { return __vmaxu4(p, q); }
};

// Neighbouring channels of a thread.
template <typename Elements, int Bytes>
struct alignas(Bytes) Unit {
  static constexpr int kWords = Bytes / 4;
  unsigned words[kWords];
  static __device__ __forceinline__ Unit lowest() {
    Unit unit;
#pragma unroll
    for (unsigned& word : unit.words) word = Elements::kLowest;
    return unit;
  }
  __device__ __forceinline__ Unit or_larger(const Unit& other) const {
    Unit unit;
#pragma unroll
    for (int w = 0; w < kWords; ++w) unit.words[w] = Elements::larger(words[w], other.words[w]);
    return unit;
  }
};

template <typename Elements, int Bytes, int Kernel, int Stride>
__global__ void __launch_bounds__(kThreads) max_pool(const __grid_constant__ MaxPool g) {
  ptx::release_next_kernel();
  ptx::wait_for_previous_kernel();
  unsigned i = thread_index();
  if (i >= g.size) return;
  const auto take = [&](const Divider& extent) {
    const unsigned rest = extent.divide(i);
    const int index = static_cast<int>(i - rest * extent.divisor);
    i = rest;
    return index;
  };
  const int channel = take(g.channels);
  const int ow = take(g.columns) * kOutputs;
  const int oh = take(g.rows) * kOutputs;
  const int pixel = static_cast<int>(g.channels.divisor);
  using U = Unit<Elements, Bytes>;
  const U* image = static_cast<const U*>(g.x) + static_cast<std::int64_t>(i) * g.in_h * g.in_w * pixel + channel;
  constexpr int kRead = (kOutputs - 1) * Stride + Kernel;
  U best[kOutputs][kOutputs];
#pragma unroll
  for (int r = 0; r < kRead; ++r) {
    const int h = oh * Stride - g.pad_h + r;
    U value[kRead];
#pragma unroll
    for (int c = 0; c < kRead; ++c) {
      const int w = ow * Stride - g.pad_w + c;
      const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(g.in_h) &&
                          static_cast<unsigned>(w) < static_cast<unsigned>(g.in_w);
      value[c] = inside ? image[(h * g.in_w + w) * pixel] : U::lowest();
    }
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      U across = value[o * Stride];
#pragma unroll
      for (int k = 1; k < Kernel; ++k) across = across.or_larger(value[o * Stride + k]);
#pragma unroll
      for (int p = 0; p < kOutputs; ++p) {
        if (r == p * Stride) best[p][o] = across;
        if (r > p * Stride && r < p * Stride + Kernel) best[p][o] = best[p][o].or_larger(across);
      }
    }
  }
  U* to = static_cast<U*>(g.y) + static_cast<std::int64_t>(i) * g.out_h * g.out_w * pixel + channel;
#pragma unroll
  for (int p = 0; p < kOutputs; ++p) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      if (oh + p < g.out_h && ow + o < g.out_w) to[((oh + p) * g.out_w + ow + o) * pixel] = best[p][o];
    }
  }
}

using Function = void (*)(MaxPool);

// Null when the window is not compiled.
template <typename Elements, int Bytes>
Function kernel_for(const Window& w) {
  const auto is = [&](std::int64_t kernel, std::int64_t stride) {
    return w.kernel[0] == kernel && w.kernel[1] == kernel && w.stride[0] == stride && w.stride[1] == stride;
  };
  if (is(3, 2)) return max_pool<Elements, Bytes, 3, 2>;
  if (is(2, 2)) return max_pool<Elements, Bytes, 2, 2>;
  if (is(3, 1)) return max_pool<Elements, Bytes, 3, 1>;
  return nullptr;
}

std::int64_t pixel_bytes(const TensorDesc& x) {
  return x.shape[1] * static_cast<std::int64_t>(dtype_bytes(x.dtype));
}

template <typename Elements>
Refusal refuse_max_pool(const NodeSpec& spec) {
  const PoolAttributes& a = layer_as<Pool>(spec.layer).attributes();
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if (a.kind != PoolKind::max || a.global || a.indices) return "only maxima over windows";
  if (x.dtype != Elements::kType || y.dtype != x.dtype)
    return "only " + std::string(dtype_name(Elements::kType)) + " is handled";
  if (!is_channels_last(x) || !is_channels_last(y)) return "input and output must be channels_last";
  if (pixel_bytes(x) % 8 != 0) return "channels must be a multiple of 8 bytes";
  if (x.elements() == 0 || y.elements() == 0) return "a tensor is empty";
  const Window& w = a.window;
  if (w.rank != 2 || w.dilation[0] != 1 || w.dilation[1] != 1 || kernel_for<Elements, 16>(w) == nullptr)
    return "the window is not 3x3 at stride 1 or 2, or 2x2 at stride 2";
  if (w.pad_begin[0] >= w.kernel[0] || w.pad_begin[1] >= w.kernel[1]) return "a window lies in the padding";
  return std::nullopt;
}

template <typename Elements>
class MaxPoolKernel final : public Kernel {
 public:
  explicit MaxPoolKernel(const NodeSpec& spec) {
    const Window& w = layer_as<Pool>(spec.layer).attributes().window;
    const Shape& x = spec.inputs[0]->shape;
    const Shape& y = spec.outputs[0].shape;
    const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
    const auto pairs = [](std::int64_t v) { return static_cast<unsigned>((v + kOutputs - 1) / kOutputs); };
    const std::int64_t bytes = pixel_bytes(*spec.inputs[0]);
    const auto units = static_cast<unsigned>(bytes / (bytes % 16 == 0 ? 16 : 8));
    pool_.channels = Divider(units);
    pool_.columns = Divider(pairs(y[3]));
    pool_.rows = Divider(pairs(y[2]));
    pool_.size = static_cast<unsigned>(x[0]) * units * pairs(y[2]) * pairs(y[3]);
    pool_.in_h = narrow(x[2]), pool_.in_w = narrow(x[3]);
    pool_.out_h = narrow(y[2]), pool_.out_w = narrow(y[3]);
    pool_.pad_h = narrow(w.pad_begin[0]), pool_.pad_w = narrow(w.pad_begin[1]);
    kernel_ = bytes % 16 == 0 ? kernel_for<Elements, 16>(w) : kernel_for<Elements, 8>(w);
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(kernel_), overlap_));
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    MaxPool pool = pool_;
    pool.x = inputs[0].data;
    pool.y = outputs[0].data;
    PIPIT_CUDA(launch_overlapping(kernel_, dim3(blocks_for(pool.size)), dim3(kThreads), overlap_,
                                  static_cast<cudaStream_t>(context.stream), pool));
  }

 private:
  MaxPool pool_;
  Function kernel_ = nullptr;
  bool overlap_ = false;
};

template <typename Elements>
void add_max_pool(Registry& registry, const char* name) {
  registry.add(Pool::kType, DeviceKind::cuda,
               {name, refuse_max_pool<Elements>, [](const NodeSpec& spec) {
                  return std::unique_ptr<Kernel>(std::make_unique<MaxPoolKernel<Elements>>(spec));
                }});
}

}  // namespace

void register_cuda_pool_max(Registry& registry) {
  add_max_pool<Halves>(registry, "max_half");
  add_max_pool<SignedBytes>(registry, "max_i8");
  add_max_pool<UnsignedBytes>(registry, "max_u8");
}

}  // namespace pipit
