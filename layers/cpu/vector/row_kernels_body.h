// The kernels of one instruction set, included by row_kernels_<isa>.cpp after its Lanes, in their unnamed namespace.
#include "layers/cpu/vector/activation_kernel.h"
#include "layers/cpu/vector/depthwise_kernel.h"
#include "layers/cpu/vector/dot_kernel.h"
#include "layers/cpu/vector/half_kernel.h"
#include "layers/cpu/vector/pool_kernel.h"
#include "layers/cpu/vector/window_kernel.h"

template <typename T>
constexpr StoredKernels<T> stored_kernels_of() {
  return {depthwise_kernels<T>(), window_storage<T>(), activation_spans<T>(), pool_kernels<T>()};
}

constexpr RowKernels kernels_of_lanes() {
  return {Lanes::kCount,
          stored_kernels_of<float>(),
          stored_kernels_of<Half>(),
          stored_kernels_of<BFloat16>(),
          {convert_span<Half, float>, convert_span<float, Half>},
          {convert_span<BFloat16, float>, convert_span<float, BFloat16>},
          depthwise_kernels<std::uint8_t>(),
          window_kernels(),
          window_storage<std::uint8_t>(),
          dot_kernels(),
          affine_span};
}
