// A node as "spread_gemm" computes it: what the candidates in fp16 and INT8 share.
#pragma once

#include <string>
#include <vector>

#include "engine/cuda/runtime.h"
#include "engine/plan/registry.h"
#include "layers/cuda/conv/gemm_problem.h"
#include "layers/cuda/conv/spread_gemm/plan.h"
#include "layers/ops/conv.h"

namespace pipit::internal::cuda {

/// What no instance handles, beside what refuse_conv_gemm names.
Refusal refuse_spread_gemm(const NodeSpec& spec, const ConvShape& shape);
/// The names of the variants, the likely best first.
std::vector<std::string> spread_variants(const NodeSpec& spec, const ConvShape& shape);
/// The plan that the spec names, or the first. Throws Error when there is none of that name.
SpreadPlan spread_plan(const NodeSpec& spec, const ConvShape& shape);
/// The estimate of "spread_gemm" in the spec's variant, or the one that it chooses.
Estimate spread_estimate(const NodeSpec& spec, const ConvShape& shape);

/// Weights and biases of a Conv on the GPU.
class SpreadConstants {
 public:
  SpreadConstants(const NodeSpec& spec, const ConvShape& shape, const SpreadPlan& plan);
  /// Sets them and the activation.
  void set(ConvGemmArgs& args) const;
  std::size_t bytes() const { return weights_.bytes() + bias_.bytes(); }

 private:
  DeviceBuffer weights_;
  DeviceBuffer bias_;
  Clamp activation_;
};

// The constants of a QConv as "spread_gemm" read them.

QConvGemmOperands spread_operands(const NodeSpec& spec, const ConvShape& shape, const SpreadPlan& plan);

}  // namespace pipit::internal::cuda
