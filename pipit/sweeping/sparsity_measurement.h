// Measures the rows of `pipit sweep sparsity`.
#pragma once

#include <memory>
#include <vector>

#include "pipit/sweeping/layer_run.h"

namespace pipit::internal::detail {

/// Measures rows of one layer one by one; what the rows share is computed once.
class SparsityMeasurement {
 public:
  /// All have to outlive this. Throws as LayerRun does.
  SparsityMeasurement(const SparseLayer& layer, const tools::SparsitySweepOptions& options,
                      const LayerMachine& machine);
  /// Fills in what follows SparsityRow::problem. Throws as LayerRun does.
  void measure(tools::SparsityRow& row);

 private:
  std::unique_ptr<LayerRun> run(const NewWeights& weights, const std::vector<std::int64_t>& inputs,
                                const std::vector<std::int64_t>& outputs, Precision precision);
  void time(LayerRun& run, tools::SparsityRow& row);
  tools::OutputError error_of(LayerRun& run) const;

  const SparseLayer& layer_;
  const tools::SparsitySweepOptions& options_;
  const LayerMachine& machine_;
  LayerInput x_;
  std::unique_ptr<LayerPruner> pruner_;
  std::vector<std::int64_t> inputs_, outputs_;
  std::vector<float> reference_;
  LayerRanges ranges_;
  std::unique_ptr<LayerRun> dense_;
  Precision dense_precision_ = Precision::fp32;
};

}  // namespace pipit::internal::detail
