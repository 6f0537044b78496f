#include "pipit/pruning/compiler.h"

#include "pipit/detail/calibration.h"

namespace pipit::internal::detail {

PruneCompiler::PruneCompiler(CompileOptions options) : options_(std::move(options)) {}

PruneCompiler::PruneCompiler(CompileOptions options, PruneCalibration calibration, const Graph& dense,
                             const ImagesDone& progress)
    : options_(std::move(options)), calibration_(std::move(calibration)) {
  dense_scales_ = scales(dense, progress, notes_);
}

std::shared_ptr<const ExecutionPlan> PruneCompiler::in_fp32(const Graph& graph) const {
  return compile(graph, options_).plans.at(0);
}

std::shared_ptr<const ExecutionPlan> PruneCompiler::for_times(const Graph& graph) const {
  return compiled(graph, dense_scales_);
}

std::optional<QuantizationPlan> PruneCompiler::scales(const Graph& graph, const ImagesDone& progress) const {
  std::vector<std::string> known;
  return scales(graph, progress, known);
}

std::optional<QuantizationPlan> PruneCompiler::scales(const Graph& graph, const ImagesDone& progress,
                                                      std::vector<std::string>& notes) const {
  if (!calibration_) return std::nullopt;
  QuantizationPlan plan = calibration_->plan;
  notes = calibrate_on(plan, calibration_->model, graph, calibration_->preprocess, calibration_->images,
                       ImageNames({&calibration_->folder, 1}), options_.planning, {}, progress, true)
              .notes;
  return plan;
}

std::shared_ptr<const ExecutionPlan> PruneCompiler::compiled(
    const Graph& graph, const std::optional<QuantizationPlan>& scales) const {
  CompileOptions options = options_;
  if (scales) {
    options.planning.precision = Precision::int8;
    options.scales = scales;
  }
  return compile(graph, options).plans.at(0);
}

}  // namespace pipit::internal::detail
