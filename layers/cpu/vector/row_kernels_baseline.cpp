#include "layers/cpu/vector/row_kernels_isa.h"

namespace pipit {

namespace {

#include "layers/cpu/vector/lanes_baseline.inc"

#include "layers/cpu/vector/activations.inc"
#include "layers/cpu/vector/depthwise.inc"
#include "layers/cpu/vector/dots.inc"
#include "layers/cpu/vector/half_loops.inc"
#include "layers/cpu/vector/pools.inc"
#include "layers/cpu/vector/windows.inc"

}  // namespace

const RowKernels row_kernels_baseline = {Lanes::kCount,
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

}  // namespace pipit
