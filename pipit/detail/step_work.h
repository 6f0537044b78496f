// What the kernel of a step does: arithmetic and bytes, padding included.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/execution_plan.h"

namespace pipit::internal::detail {

/// One micro-batch of a step.
struct StepWork {
  std::vector<KernelWork> products;  ///< one after the other
  /// Activations that must be read: of input 0 what results depend on, nothing of what lies in the output already.
  std::int64_t read = 0;
  std::int64_t weights = 0;  ///< packed ones and other constants, all read
  std::int64_t written = 0;
  std::int64_t runs = 1;  ///< micro-batches

  /// Multiply-accumulates of all micro-batches.
  std::int64_t macs() const;
  std::int64_t bytes() const { return runs * (read + weights + written); }
  /// Operations for each byte; 0 without either.
  double intensity() const;
};

/// `layer_macs`: what the layers that the step computes say of the whole batch, for kernels that do not count.
StepWork step_work(const ExecutionPlan& plan, const Step& step, std::int64_t layer_macs);

}  // namespace pipit::internal::detail
