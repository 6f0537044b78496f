// The kernel of a node whose output another one computes on, piece by piece, where both are one step.
#pragma once

#include <memory>
#include <vector>

#include "engine/plan/registry.h"
#include "layers/cpu/conv/row_source.h"

namespace pipit::internal {

class FusedSource {
 public:
  /// Takes spec.fusion.producer, for a layer whose input 2 is a constant bias [O] in f32 or absent.
  explicit FusedSource(const NodeSpec& spec);

  const Kernel& kernel() const { return *kernel_; }
  const RowSource& rows() const { return *rows_; }
  /// Pieces overlap less than the bands for which the kernel counts itself.
  std::vector<KernelWork> work() const;
  /// The bias of the layer that reads the rows: run() gets the producer's inputs instead of its own. Null: none.
  const float* bias() const { return bias_.empty() ? nullptr : bias_.data(); }

 private:
  std::unique_ptr<const Kernel> kernel_;
  const RowSource* rows_;
  std::int64_t macs_;
  std::vector<float> bias_;
};

}  // namespace pipit::internal
