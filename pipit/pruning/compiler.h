// How the models that pruning makes are compiled: in fp32, or in INT8 with scales of their own.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "models/image/preprocess.h"
#include "pipit/measuring/precision_ladder.h"

namespace pipit::internal::detail {

/// What calibrate_on() (pipit/detail/calibration.h) takes besides a graph.
struct PruneCalibration {
  std::string model;
  QuantizationPlan plan;  ///< without tensors: method, and what stays in floating point
  Preprocess preprocess;
  std::vector<std::filesystem::path> images;
  std::filesystem::path folder;
};

/// Compiles graphs of fuse() and what pruning makes of them: nodes and values keep their names.
class PruneCompiler {
 public:
  /// For fp32. `options`: of that precision.
  explicit PruneCompiler(CompileOptions options);
  /// For INT8: calibrates the dense model.
  PruneCompiler(CompileOptions options, PruneCalibration calibration, const Graph& dense,
                const ImagesDone& progress);

  bool int8() const { return calibration_.has_value(); }
  /// Notes of the dense model's calibration.
  const std::vector<std::string>& notes() const { return notes_; }

  std::shared_ptr<const ExecutionPlan> in_fp32(const Graph& graph) const;
  /// In the requested precision, for timing: in INT8 with the dense model's scales.
  std::shared_ptr<const ExecutionPlan> for_times(const Graph& graph) const;
  /// The graph's own scales; none for fp32.
  std::optional<QuantizationPlan> scales(const Graph& graph, const ImagesDone& progress) const;
  /// With these scales; fp32 where there are none.
  std::shared_ptr<const ExecutionPlan> compiled(const Graph& graph,
                                                const std::optional<QuantizationPlan>& scales) const;

 private:
  std::optional<QuantizationPlan> scales(const Graph& graph, const ImagesDone& progress,
                                         std::vector<std::string>& notes) const;
  CompileOptions options_;
  std::optional<PruneCalibration> calibration_;
  std::vector<std::string> notes_;
  std::optional<QuantizationPlan> dense_scales_;
};

}  // namespace pipit::internal::detail
