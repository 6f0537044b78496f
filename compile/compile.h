// From the graph of a loaded model to plans that run it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/execution_plan.h"
#include "layers/kernel_tuning.h"
#include "layers/passes/pipeline.h"
#include "quant/quantization_plan.h"

namespace pipit::internal {

struct CompileOptions {
  /// Device, precision, threads, kernels, fallback, micro-batches. Of `tuner` and `tuning` the first counts.
  PlanOptions planning;
  /// The GPUs to plan for, for DeviceKind::cuda; repetitions are allowed. Empty: planning.gpu.
  std::vector<int> gpus;
  /// Chooses kernels by timing, and its file remembers. Null: by their order alone.
  std::shared_ptr<KernelTuning> tuning;
  /// For int8, which needs it: the scales.
  std::optional<QuantizationPlan> scales;
  /// For int8: what stays in floating point besides what `scales` keeps, or does not although that keeps it
  /// (keep_nodes, quant/kept_layers.h).
  std::vector<QuantizationPlan::Kept> keep;
  /// For int8_dynamic: a scale for each sample of a batch, or one for all.
  bool per_sample_scales = true;
  /// The graph comes from fuse(), and is not fused again: names that a plan was made for, or is made of, stay.
  bool fused = false;
  /// Called between the steps; what it throws ends the work. May be empty.
  std::function<void()> checkpoint;
  /// For w4: neighbouring weights that share a scale; 0: 32 in convolutions, 128 in fully connected layers.
  std::int64_t group_size = 0;
};

struct Compiled {
  /// One for each of CompileOptions::gpus, in that order, or one. Those for the same GPU are the same.
  std::vector<std::shared_ptr<const ExecutionPlan>> plans;
  std::vector<PassReport> passes;
  /// What a user should know: of tuning caches, and of every pass the first note with the number of further ones.
  std::vector<std::string> notes;
};

/// Fuses, quantizes and lays out `graph` (as it was read, or with CompileOptions::fused what fuse() made of it) as the
/// precision says, chooses kernels, and packs memory. `graph` is consumed, so that plans hold the only reference to
/// constants that they pack. Plans for several GPUs are built side by side; the first error in the order of `gpus` is
/// thrown.
///
/// Throws Error when options are of another precision than planning.precision, when there is no such device (both
/// before anything is done), when `scales` do not fit the graph, or what ExecutionPlan::build throws; UnsupportedError
/// when nothing of the graph could compute in the precision: int8 without scales, a model that is quantized already
/// and holds its own, no layer that w8 or w4 could store. Where `scales` keep every layer in floating point there
/// is nothing to compute in INT8, and the plans say fp32.
Compiled compile(Graph graph, const CompileOptions& options = {});

/// What compile() asks of a graph first, for callers that read a plan in between: throws UnsupportedError when the
/// model is quantized already and `precision` would do it again.
void check_unquantized(const Graph& graph, Precision precision);

}  // namespace pipit::internal
