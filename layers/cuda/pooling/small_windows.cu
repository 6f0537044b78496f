// Candidate "small_windows" of Pool and QAveragePool: maxima of f16, bf16, i8 and u8, averages of f16 and bf16,
// and of integers to integers, over 3x3 at stride 1 or 2 and over 2x2 at stride 2.
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/families.h"
#include "layers/cuda/pooling/small_windows_kernel.cuh"
#include "layers/ops/pool.h"

namespace pipit::internal {

namespace cuda {

namespace {

// Null when the window is not compiled.
template <typename Policy>
auto small_window_function(const Window& w) -> void (*)(SmallWindows, Policy) {
  const auto is = [&](std::int64_t kernel, std::int64_t stride) {
    return w.kernel[0] == kernel && w.kernel[1] == kernel && w.stride[0] == stride && w.stride[1] == stride;
  };
  if (is(3, 2)) return pool_small_windows<Policy, 3, 2>;
  if (is(2, 2)) return pool_small_windows<Policy, 2, 2>;
  if (is(3, 1)) return pool_small_windows<Policy, 3, 1>;
  return nullptr;
}

inline std::int64_t pixel_bytes(const TensorDesc& x) {
  return x.shape[1] * static_cast<std::int64_t>(dtype_bytes(x.dtype));
}

// Why there is no kernel for windows of `a`, in units of 8 bytes or more. Policy: any.
template <typename Policy>
Refusal refuse_unless_small_windows(const NodeSpec& spec, const PoolAttributes& a) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  const TensorDesc& x = *spec.inputs[0];
  const TensorDesc& y = spec.outputs[0];
  if (a.global || a.indices) return "only windows, and no positions";
  if (!is_channels_last(x) || !is_channels_last(y)) return "input and output must be channels_last";
  if (pixel_bytes(x) % 8 != 0) return "channels must be a multiple of 8 bytes";
  if (x.elements() == 0 || y.elements() == 0) return "a tensor is empty";
  const Window& w = a.window;
  if (w.rank != 2 || w.dilation[0] != 1 || w.dilation[1] != 1 || small_window_function<Policy>(w) == nullptr)
    return "the window is not 3x3 at stride 1 or 2, or 2x2 at stride 2";
  if (w.pad_begin[0] >= w.kernel[0] || w.pad_begin[1] >= w.kernel[1]) return "a window lies in the padding";
  return std::nullopt;
}

template <typename Policy>
class SmallWindowsKernel final : public Kernel {
 public:
  SmallWindowsKernel(const NodeSpec& spec, const Window& w, const Policy& policy)
      : policy_(policy), kernel_(small_window_function<Policy>(w)) {
    const Shape& x = spec.inputs[0]->shape;
    const Shape& y = spec.outputs[0].shape;
    const auto narrow = [](std::int64_t v) { return static_cast<int>(v); };
    const auto pairs = [](std::int64_t v) {
      return static_cast<unsigned>((v + kPoolOutputs - 1) / kPoolOutputs);
    };
    const auto units = static_cast<unsigned>(pixel_bytes(*spec.inputs[0]) /
                                             static_cast<std::int64_t>(sizeof(typename Policy::Unit)));
    pool_.channels = Divisor(units);
    pool_.columns = Divisor(pairs(y[3]));
    pool_.rows = Divisor(pairs(y[2]));
    pool_.size = static_cast<unsigned>(x[0]) * units * pairs(y[2]) * pairs(y[3]);
    pool_.in_h = narrow(x[2]), pool_.in_w = narrow(x[3]);
    pool_.out_h = narrow(y[2]), pool_.out_w = narrow(y[3]);
    pool_.pad_h = narrow(w.pad_begin[0]), pool_.pad_w = narrow(w.pad_begin[1]);
    PIPIT_CUDA(can_overlap(reinterpret_cast<const void*>(kernel_), overlap_));
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    SmallWindows pool = pool_;
    pool.x = inputs[0].data;
    pool.y = outputs[0].data;
    PIPIT_CUDA(launch_kernel(kernel_,
                             {dim3(blocks_for(pool.size, kPoolThreads)), dim3(kPoolThreads), 0, overlap_},
                             static_cast<cudaStream_t>(context.stream), pool, policy_));
  }

 private:
  Policy policy_;
  SmallWindows pool_;
  void (*kernel_)(SmallWindows, Policy) = nullptr;
  bool overlap_ = false;
};

// The averaged positions of a pool over x.
inline AveragedPositions averaged_positions(const PoolAttributes& a, const Shape& x) {
  AveragedPositions result;
  result.include_pad = a.count_include_pad;
  for (std::size_t d = 0; d < 2; ++d) {
    result.extent[d] = static_cast<int>(x[static_cast<int>(d) + 2]);
    result.pad_begin[d] = static_cast<int>(a.window.pad_begin[d]);
    result.pad_end[d] = static_cast<int>(a.window.pad_end[d]);
  }
  return result;
}

Refusal refuse_pool(const NodeSpec& spec) {
  const PoolAttributes& a = layer_as<Pool>(spec.layer).attributes();
  const DType type = spec.inputs[0]->dtype;
  if (spec.outputs[0].dtype != type) return "input and output have different types";
  if (a.kind == PoolKind::average) {
    if (!is_stored_float(type))
      return "averages of " + std::string(dtype_name(type)) + " are not handled, only of f16 and bf16";
    if (a.window.kernel[0] <= a.window.stride[0]) return "the windows share no pixels";
    return refuse_unless_small_windows<HalfAverages<__half>>(spec, a);
  }
  if (!is_stored_float(type) && type != DType::i8 && type != DType::u8)
    return "maxima of " + std::string(dtype_name(type)) + " are not handled, only of f16, bf16, i8 and u8";
  return refuse_unless_small_windows<Largest<Halves<__half>, 8>>(spec, a);
}

template <typename Elements>
std::unique_ptr<Kernel> make_max_pool(const NodeSpec& spec) {
  const Window& window = layer_as<Pool>(spec.layer).attributes().window;
  const auto make = [&]<int Bytes>() -> std::unique_ptr<Kernel> {
    using Policy = Largest<Elements, Bytes>;
    return std::make_unique<SmallWindowsKernel<Policy>>(spec, window, Policy{});
  };
  return pixel_bytes(*spec.inputs[0]) % 16 == 0 ? make.template operator()<16>()
                                                : make.template operator()<8>();
}

template <typename Element>
std::unique_ptr<Kernel> make_average_pool(const NodeSpec& spec) {
  const PoolAttributes& a = layer_as<Pool>(spec.layer).attributes();
  const HalfAverages<Element> policy{averaged_positions(a, spec.inputs[0]->shape)};
  return std::make_unique<SmallWindowsKernel<HalfAverages<Element>>>(spec, a.window, policy);
}

std::unique_ptr<Kernel> make_pool(const NodeSpec& spec) {
  const DType type = spec.inputs[0]->dtype;
  if (layer_as<Pool>(spec.layer).attributes().kind == PoolKind::average) {
    return type == DType::f16 ? make_average_pool<__half>(spec) : make_average_pool<__nv_bfloat16>(spec);
  }
  switch (type) {
    case DType::f16:
      return make_max_pool<Halves<__half>>(spec);
    case DType::bf16:
      return make_max_pool<Halves<__nv_bfloat16>>(spec);
    case DType::i8:
      return make_max_pool<SignedBytes>(spec);
    default:
      return make_max_pool<UnsignedBytes>(spec);
  }
}

Refusal refuse_int8_average(const NodeSpec& spec) {
  const DType y = spec.outputs[0].dtype;
  if (y != DType::i8 && y != DType::u8) return "only from integers to integers";
  return refuse_unless_small_windows<ByteAverages>(spec,
                                                   layer_as<QAveragePool>(spec.layer).attributes().pool);
}

std::unique_ptr<Kernel> make_int8_average(const NodeSpec& spec) {
  const QAveragePoolAttributes& a = layer_as<QAveragePool>(spec.layer).attributes();
  const ByteAverages policy{averaged_positions(a.pool, spec.inputs[0]->shape), IntegerOperand(a.x),
                            store_of(a, spec.outputs[0].dtype)};
  return std::make_unique<SmallWindowsKernel<ByteAverages>>(spec, a.pool.window, policy);
}

}  // namespace

}  // namespace cuda

void register_cuda_small_windows(Registry& registry) {
  Candidate pool{"small_windows", cuda::refuse_pool, cuda::make_pool};
  pool.estimate = cuda::streaming(cuda::refuse_pool);
  registry.add(Pool::kType, DeviceKind::cuda, std::move(pool));
  Candidate average{"small_windows", cuda::refuse_int8_average, cuda::make_int8_average};
  average.estimate = cuda::streaming(cuda::refuse_int8_average);
  registry.add(QAveragePool::kType, DeviceKind::cuda, std::move(average));
}

}  // namespace pipit::internal
