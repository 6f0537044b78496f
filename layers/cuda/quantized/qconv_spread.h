// The constants of a QConv as "spread_gemm" read them.
#pragma once

#include "layers/cuda/conv/conv_spread_plan.h"
#include "layers/cuda/quantized/qconv_gemm_operands.h"

namespace pipit::cuda {

QConvGemmOperands spread_operands(const NodeSpec& spec, const ConvShape& shape, const SpreadPlan& plan);

}  // namespace pipit::cuda
