#include "pipit/sweeping/sparsity_measurement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "engine/base/statistics.h"
#include "layers/cpu_kernels.h"
#include "pipit/detail/importance.h"
#include "pipit/sweeping/layer_times.h"

namespace pipit::internal::detail {

namespace {

double largest(std::span<const float> values) {
  double most = 0;
  for (const float v : values) most = std::max(most, std::abs(double{v}));
  return most;
}

// Channels that a kernel leaves out together.
std::int64_t group_of(const tools::SparsitySweepOptions& options, Precision precision) {
  if (options.group != 0) return options.group;
  if (options.run.device.kind == DeviceKind::cuda) return 16;
  return precision == Precision::int8 ? 4 : stores_16_bits(precision) ? 2 : 1;
}

}  // namespace

SparsityMeasurement::SparsityMeasurement(const SparseLayer& layer, const tools::SparsitySweepOptions& options,
                                         const LayerMachine& machine)
    : layer_(layer),
      options_(options),
      machine_(machine),
      x_(network_values(layer.x, machine.threads), machine.threads),
      pruner_(std::make_unique<LayerPruner>(layer_, x_.values(), *machine.pool)),
      inputs_(static_cast<std::size_t>(layer.weights.weights.shape()[1])),
      outputs_(static_cast<std::size_t>(layer.weights.weights.shape()[0])) {
  std::iota(inputs_.begin(), inputs_.end(), std::int64_t{0});
  std::iota(outputs_.begin(), outputs_.end(), std::int64_t{0});
  reference_ = LayerRun(layer_, layer.weights, inputs_, outputs_, x_,
                        LayerMachine(DeviceKind::cpu, machine.threads), {Precision::fp32, {}}, ranges_)
                   .results();
  ranges_ = {x_.largest(), largest(reference_)};
}

std::unique_ptr<LayerRun> SparsityMeasurement::run(const NewWeights& weights,
                                                   const std::vector<std::int64_t>& inputs,
                                                   const std::vector<std::int64_t>& outputs,
                                                   Precision precision) {
  return std::make_unique<LayerRun>(layer_, weights, inputs, outputs, x_, machine_,
                                    LayerTarget{precision, {}}, ranges_);
}

void SparsityMeasurement::time(LayerRun& run, tools::SparsityRow& row) {
  const std::array<RepeatedRun*, 2> both{dense_.get(), &run};
  const std::vector<TurnTimes> times = times_in_turns(both, options_.run.seconds, false);
  row.times = swept_times(times[1].ms);
  row.dense_ms = quantile(times[0].ms, 0.5);
  row.speedup = speedup_over_turns(times[0].ms, times[1].ms);
}

tools::OutputError SparsityMeasurement::error_of(LayerRun& run) const {
  return output_error(run.results(), reference_, std::ssize(outputs_));
}

void SparsityMeasurement::measure(tools::SparsityRow& row) {
  if (!dense_ || dense_precision_ != row.precision) {
    dense_ = run(layer_.weights, inputs_, outputs_, row.precision);
    dense_precision_ = row.precision;
  }
  row.dense_kernel = dense_->kernel();
  if (!row.mode) {
    row.kernel = dense_->kernel();
    time(*run(layer_.weights, inputs_, outputs_, row.precision), row);
    row.error = error_of(*dense_);
    return;
  }
  const SelectionOptions how{importance_of(options_.importance), group_of(options_, row.precision),
                             options_.panel.value_or(cpu_panel_outputs()), options_.block};
  const PrunedLayer plain = pruner_->prune(*row.mode, row.keep, how, false);
  row.kept = plain.kept;
  const auto pruned = run(plain.weights, plain.inputs, plain.outputs, row.precision);
  row.kernel = pruned->kernel();
  row.error = error_of(*pruned);
  time(*pruned, row);
  if (!options_.refit || !LayerPruner::refits(*row.mode)) return;
  const PrunedLayer fitted = pruner_->prune(*row.mode, row.keep, how, true);
  row.refit = error_of(*run(fitted.weights, fitted.inputs, fitted.outputs, row.precision));
}

}  // namespace pipit::internal::detail
