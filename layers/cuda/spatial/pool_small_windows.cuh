// Pools over the small windows that networks use, NHWC: two by two neighbouring outputs and a few bytes of channels a
// thread, so that every pixel is read about once. What is computed of a window is a policy's.
#pragma once

#include "layers/cuda/device/async_ptx.cuh"
#include "layers/cuda/device/kernel.cuh"
#include "layers/cuda/device/overlap.cuh"
#include "layers/ops/pool.h"

namespace pipit::cuda {

inline constexpr int kPoolOutputs = 2;  ///< of a thread, along each axis

struct SmallWindows {
  const void* x = nullptr;
  void* y = nullptr;
  unsigned size = 0;                // threads with work
  Divider channels, columns, rows;  // units of channels, pairs of output columns and rows
  int in_h = 1, in_w = 1, out_h = 1, out_w = 1, pad_h = 0, pad_w = 0;
};

/// In one access, which the compiler otherwise takes apart where words of a unit go different ways.
template <typename Unit>
__device__ __forceinline__ Unit read_unit(const Unit* from) {
  static_assert(sizeof(Unit) == 8 || sizeof(Unit) == 16);
  using Whole = std::conditional_t<sizeof(Unit) == 16, uint4, uint2>;
  const Whole whole = *reinterpret_cast<const Whole*>(from);
  Unit unit;
  memcpy(&unit, &whole, sizeof unit);
  return unit;
}

/// Policy has Unit, neighbouring channels as they are read and written; Value, what is known of some of a window's
/// pixels; value(unit); outside(), that of padding; join(value, value); result(value, h, w, Kernel), the unit of y
/// whose window of Kernel x Kernel begins at position (h, w) of x.
template <typename Policy, int Kernel, int Stride>
__global__ void __launch_bounds__(kThreads)
    pool_small_windows(const __grid_constant__ SmallWindows g, const __grid_constant__ Policy policy) {
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
  using Unit = typename Policy::Unit;
  using Value = typename Policy::Value;
  const int channel = take(g.channels);
  const int ow = take(g.columns) * kPoolOutputs;
  const int oh = take(g.rows) * kPoolOutputs;
  const int pixel = static_cast<int>(g.channels.divisor);
  const Unit* image =
      static_cast<const Unit*>(g.x) + static_cast<std::int64_t>(i) * g.in_h * g.in_w * pixel + channel;
  const int first_h = oh * Stride - g.pad_h, first_w = ow * Stride - g.pad_w;
  constexpr int kRead = (kPoolOutputs - 1) * Stride + Kernel;
  Value of[kPoolOutputs][kPoolOutputs];
#pragma unroll
  for (int r = 0; r < kRead; ++r) {
    const int h = first_h + r;
    Value value[kRead];
#pragma unroll
    for (int c = 0; c < kRead; ++c) {
      const int w = first_w + c;
      const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(g.in_h) &&
                          static_cast<unsigned>(w) < static_cast<unsigned>(g.in_w);
      value[c] = inside ? policy.value(read_unit(image + (h * g.in_w + w) * pixel)) : policy.outside();
    }
#pragma unroll
    for (int o = 0; o < kPoolOutputs; ++o) {
      Value across = value[o * Stride];
#pragma unroll
      for (int k = 1; k < Kernel; ++k) across = policy.join(across, value[o * Stride + k]);
#pragma unroll
      for (int p = 0; p < kPoolOutputs; ++p) {
        if (r == p * Stride) of[p][o] = across;
        if (r > p * Stride && r < p * Stride + Kernel) of[p][o] = policy.join(of[p][o], across);
      }
    }
  }
  Unit* to = static_cast<Unit*>(g.y) + static_cast<std::int64_t>(i) * g.out_h * g.out_w * pixel + channel;
#pragma unroll
  for (int p = 0; p < kPoolOutputs; ++p) {
#pragma unroll
    for (int o = 0; o < kPoolOutputs; ++o) {
      if (oh + p < g.out_h && ow + o < g.out_w)
        to[((oh + p) * g.out_w + ow + o) * pixel] =
            policy.result(of[p][o], first_h + p * Stride, first_w + o * Stride, Kernel);
    }
  }
}

/// Null when the window is not compiled.
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

/// Why there is no kernel for windows of `a`, in units of 8 bytes or more. Policy: any.
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
    pool_.channels = Divider(units);
    pool_.columns = Divider(pairs(y[3]));
    pool_.rows = Divider(pairs(y[2]));
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
    PIPIT_CUDA(launch_overlapping(kernel_, dim3(blocks_for(pool.size)), dim3(kThreads), overlap_,
                                  static_cast<cudaStream_t>(context.stream), pool, policy_));
  }

 private:
  Policy policy_;
  SmallWindows pool_;
  void (*kernel_)(SmallWindows, Policy) = nullptr;
  bool overlap_ = false;
};

/// How many positions of windows are averaged.
class AveragedPositions {
 public:
  AveragedPositions(const PoolAttributes& a, const Shape& x) : include_pad_(a.count_include_pad) {
    for (std::size_t d = 0; d < 2; ++d) {
      extent_[d] = static_cast<int>(x[static_cast<int>(d) + 2]);
      pad_begin_[d] = static_cast<int>(a.window.pad_begin[d]);
      pad_end_[d] = static_cast<int>(a.window.pad_end[d]);
    }
  }
  /// Of a window from (h, w) on: those inside of x.
  __device__ int inside(int h, int w, int kernel) const {
    const auto along = [&](int d, int first) {
      return max(min(first + kernel, extent_[d]) - max(first, 0), 0);
    };
    return along(0, h) * along(1, w);
  }
  /// What the sum is divided by (average_divisor()).
  __device__ int divisor(int h, int w, int kernel) const {
    if (!include_pad_) return inside(h, w, kernel);
    const auto along = [&](int d, int first) {
      return max(min(first + kernel, extent_[d] + pad_end_[d]) - max(first, -pad_begin_[d]), 0);
    };
    return along(0, h) * along(1, w);
  }

 private:
  bool include_pad_;
  int extent_[2], pad_begin_[2], pad_end_[2];
};

}  // namespace pipit::cuda
