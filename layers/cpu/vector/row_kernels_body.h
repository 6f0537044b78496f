// The kernels of one instruction set, included by row_kernels_<isa>.cpp after its Lanes, in their unnamed namespace.
#include "layers/cpu/vector/activation_kernel.h"
#include "layers/cpu/vector/depthwise_kernel.h"
#include "layers/cpu/vector/dot_kernel.h"
#include "layers/cpu/vector/half_kernel.h"
#include "layers/cpu/vector/pool_kernel.h"
#include "layers/cpu/vector/window_kernel.h"

constexpr RowKernels kernels_of_lanes() {
  return {Lanes::kCount,
          depthwise_kernels<float>(),
          depthwise_kernels<Half>(),
          depthwise_kernels<std::uint8_t>(),
          window_kernels(),
          window_storage<float>(),
          window_storage<Half>(),
          window_storage<std::uint8_t>(),
          dot_kernels(),
          activation_spans<float>(),
          activation_spans<Half>(),
          affine_span,
          convert_span<Half, float>,
          convert_span<float, Half>,
          pool_kernels<float>(),
          pool_kernels<Half>()};
}
