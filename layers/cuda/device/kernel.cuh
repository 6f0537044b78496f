// What the GPU kernels that are no matrix products share: operands whose element type is known at run time, loops
// with collapsed dimensions, launches, registration.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "engine/cuda/runtime.h"
#include "layers/common/layer_kernel.h"
#include "layers/common/strided_loop.h"
#include "layers/cuda/cost/launch_cost.h"
#include "layers/cuda/device/fast_division.h"
#include "layers/cuda/device/launch.cuh"

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
      // No point of an empty loop is asked for, but a divisor must not be 0.
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
    // What is left is the index of the outermost dimension. (Without dimensions i and the strides are 0.)
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] += static_cast<int>(i) * stride[0][k];
  }
};

/// True when `width` neighbours of the loop can be moved at once: the innermost dimension is a multiple of it,
/// operand 0 steps through it by 1, the others by 1 or 0, and whatever steps by 1 is aligned throughout.
template <std::size_t N>
bool vectorizes(const StridedLoop<N>& loop, int width, const std::array<const void*, N>& data,
                const std::array<std::size_t, N>& element_bytes) {
  if (loop.rank() == 0 || loop.row() % width != 0) return false;
  const auto row = loop.row_strides();
  for (std::size_t k = 0; k < N; ++k) {
    if (row[k] == 0 && k > 0) continue;
    if (row[k] != 1) return false;
    const std::size_t bytes = std::min<std::size_t>(16, element_bytes[k] * static_cast<std::size_t>(width));
    if (reinterpret_cast<std::uintptr_t>(data[k]) % bytes != 0) return false;
    for (int d = 0; d + 1 < loop.rank(); ++d) {
      if (loop.strides(d)[k] % width != 0) return false;
    }
  }
  return true;
}

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

__device__ inline float half_bits_to_float(unsigned short bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ inline unsigned short float_to_half_bits(float x) {
  return __half_as_ushort(__float2half_rn(x));
}

/// Element `i` as W, which is float (f16, f32), double (also f64) or std::int64_t (integers); bool fits all.
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

/// V (4 or 8) neighbours from element `i` on, f32 or f16, aligned to V elements or 16 bytes.
template <int V>
__device__ inline void load_vector(const In& in, std::int64_t i, float (&x)[V]) {
  if (in.type == DType::f16) {
    unsigned words[V / 2];
    const auto* from = static_cast<const unsigned short*>(in.data) + i;
    if constexpr (V == 8) {
      const uint4 v = *reinterpret_cast<const uint4*>(from);
      words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else {
      const uint2 v = *reinterpret_cast<const uint2*>(from);
      words[0] = v.x, words[1] = v.y;
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
      x[k] = half_bits_to_float(static_cast<unsigned short>(words[k / 2] >> (k % 2 * 16)));
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
  if (out.type == DType::f16) {
    unsigned words[V / 2];
#pragma unroll
    for (int k = 0; k < V; k += 2) {
      words[k / 2] = float_to_half_bits(x[k]) | static_cast<unsigned>(float_to_half_bits(x[k + 1])) << 16;
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

/// Launches kernel(arguments...) with one thread per point; nothing for no points.
template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), std::int64_t points, const RunContext& context,
            const Arguments&... arguments) {
  if (points == 0) return;
  kernel<<<blocks_for(points), kThreads, 0, static_cast<cudaStream_t>(context.stream)>>>(arguments...);
  check_launch(name);
}

/// True for the types that kernels compute with in float.
constexpr bool is_float_or_half(DType type) {
  return type == DType::f32 || type == DType::f16;
}

/// Refuses int8 precision, and operands whose offsets do not fit 31 bits.
inline Refusal refuse_unless_indexable(const NodeSpec& spec) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - 1024;
  if (spec.precision == Precision::int8) return "int8 is not handled";
  const auto large = [](const TensorDesc& desc) { return desc.elements() > kLimit; };
  for (const TensorDesc* input : spec.inputs) {
    if (input != nullptr && large(*input)) return "an input has 2^31 elements or more";
  }
  for (const TensorDesc& output : spec.outputs) {
    if (large(output)) return "an output has 2^31 elements or more";
  }
  return std::nullopt;
}

/// The same, and only f32 and f16 operands.
inline Refusal refuse_unless_float_or_half(const NodeSpec& spec) {
  if (Refusal reason = refuse_unless_indexable(spec)) return reason;
  const auto reason = [](const TensorDesc& desc) {
    return "an operand is " + std::string(dtype_name(desc.dtype)) + ", only f32 and f16 are handled";
  };
  for (const TensorDesc* input : spec.inputs) {
    if (input != nullptr && !is_float_or_half(input->dtype)) return reason(*input);
  }
  for (const TensorDesc& output : spec.outputs) {
    if (!is_float_or_half(output.dtype)) return reason(output);
  }
  return std::nullopt;
}

/// Registers a GPU candidate that is a copy of its layer and one function.
template <typename L>
void add_kernel(Registry& registry, const char* name, Refusal (*refuse)(const NodeSpec&),
                typename LayerKernel<L>::Run run) {
  Candidate candidate{
      name, refuse, [run](const NodeSpec& spec) {
        return std::unique_ptr<Kernel>(std::make_unique<LayerKernel<L>>(layer_as<L>(spec.layer), run));
      }};
  candidate.estimate = streaming(refuse);
  registry.add(L::kType, DeviceKind::cuda, std::move(candidate));
}

// Kernels with one thread per point that may begin while the kernel before still runs (launch.cuh).

/// launch() of kernel.cuh, overlapping where can_overlap() says so.
template <typename... Parameters, typename... Arguments>
void launch_early(void (*kernel)(Parameters...), std::int64_t points, bool overlap, const RunContext& context,
                  const Arguments&... arguments) {
  if (points == 0) return;
  PIPIT_CUDA(launch_kernel(kernel, {dim3(blocks_for(points)), dim3(kThreads), 0, overlap},
                           static_cast<cudaStream_t>(context.stream), arguments...));
}

/// For kernels that wait for the previous one: begins while that still runs, where the GPU can.
template <typename... Parameters, typename... Arguments>
void launch_waiting(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                    const RunContext& context, const Arguments&... arguments) {
  bool overlap = false;
  check(can_overlap(reinterpret_cast<const void*>(kernel), overlap), name);
  check(launch_kernel(kernel, {grid, block, 0, overlap}, static_cast<cudaStream_t>(context.stream),
                      arguments...),
        name);
}
/// The same with one thread per point; nothing for no points.
template <typename... Parameters, typename... Arguments>
void launch_waiting(const char* name, void (*kernel)(Parameters...), std::int64_t points,
                    const RunContext& context, const Arguments&... arguments) {
  if (points == 0) return;
  launch_waiting(name, kernel, dim3(blocks_for(points)), dim3(kThreads), context, arguments...);
}

/// A copy of its layer and a function that launches early. `kernel` is one of those launched, which are compiled alike.
template <typename L>
class EarlyKernel final : public Kernel {
 public:
  using Run = void (*)(const L& layer, std::span<const ConstTensorView> inputs,
                       std::span<const TensorView> outputs, const RunContext& context, bool overlap);
  EarlyKernel(const L& layer, const void* kernel, Run run) : layer_(layer), run_(run) {
    PIPIT_CUDA(can_overlap(kernel, overlap_));
  }
  void run(std::span<const ConstTensorView> inputs, std::span<const TensorView> outputs,
           const RunContext& context) const override {
    run_(layer_, inputs, outputs, context, overlap_);
  }

 private:
  L layer_;
  Run run_;
  bool overlap_ = false;
};

/// add_kernel() of such a kernel.
template <typename L, typename... Parameters>
void add_early_kernel(Registry& registry, const char* name, Refusal (*refuse)(const NodeSpec&),
                      void (*kernel)(Parameters...), typename EarlyKernel<L>::Run run) {
  Candidate candidate{name, refuse, [kernel, run](const NodeSpec& spec) -> std::unique_ptr<Kernel> {
                        return std::make_unique<EarlyKernel<L>>(layer_as<L>(spec.layer),
                                                                reinterpret_cast<const void*>(kernel), run);
                      }};
  candidate.estimate = streaming(refuse);
  registry.add(L::kType, DeviceKind::cuda, std::move(candidate));
}

}  // namespace pipit::internal::cuda
