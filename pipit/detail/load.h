// From LoadOptions to a compiled model: what the command and the public classes share.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "models/model.h"
#include "pipit/compiled_model.h"

namespace pipit::internal::detail {

/// How a model's file is read. Reads InputConstants::arrays.
OnnxOptions onnx_options(const LoadOptions& options);

/// What is read of a model, besides what LoadOptions say.
struct ReadOptions {
  /// Instead of RunShapes::batch where both are there: that batch, reduced to what a run can use.
  std::optional<std::int64_t> run_batch;
  /// The output that is_class_output() comes first where it is the only one, as users of images want it.
  bool classifies = false;
};

/// load_model(); then compares the model's batch with RunShapes::batch, and throws if they differ.
Model read_model(const std::string& model, const LoadOptions& options, const ReadOptions& read = {});
/// parse_model(), likewise.
Model read_model(std::span<const std::byte> onnx, const std::string& name, const LoadOptions& options,
                 const ReadOptions& read = {});

/// Throws UnsupportedError for a precision that a model which is quantized already cannot have, and ArgumentError for
/// int8 without a plan; both begin with `model`.
void check_precision(const std::string& model, const Graph& graph, const LoadOptions& options);

/// How it is compiled, but for the scales of plan_of(options). Throws ArgumentError for values out of range.
/// `checkpoint` is called between steps and before kernels are timed; what it throws ends the work.
CompileOptions compile_options(const LoadOptions& options, const std::function<void()>& checkpoint = {});
/// Int8::plan; empty for other precisions.
std::filesystem::path plan_of(const LoadOptions& options);
/// Int8::keep, parsed.
std::vector<QuantizationPlan::Kept> kept_of(std::span<const std::string> keep);
/// Null for Tuning::by_order without a cache.
std::shared_ptr<KernelTuning> kernel_tuning(const KernelOptions& kernels,
                                            std::function<void()> checkpoint = {});

/// Reads the plan at `path` for the model whose graph, as it was read, is `graph`. Throws Error when it was calibrated
/// for another one, or does not say how its images were prepared.
QuantizationPlan read_plan_for(const std::filesystem::path& path, const Graph& graph);

/// How `preprocess` prepares images differently from those that `plan` was calibrated on.
std::vector<std::string> differences_from(const QuantizationPlan& plan, const Preprocess& preprocess);
/// What a user should know of differences_from() the plan at `path`, which are not empty: whether ranges fit is for
/// them to judge.
std::string differences_note(const std::filesystem::path& path, const std::vector<std::string>& differences);

/// What the model's file says of itself, and what became of its graph.
struct ModelFacts {
  std::string widened;  ///< Model::widened
  Labels labels;
  std::string labels_from;
  std::optional<Preprocess> preprocess;
  std::string preprocess_from;
  ScoreKind scores = ScoreKind::logits;
  std::vector<std::string> notes;  ///< metadata_notes()
  std::vector<PassReport> passes;
};

/// What CompiledModel shares with its sessions.
struct CompiledState {
  std::string name;
  std::map<std::string, std::string> metadata;
  std::vector<std::shared_ptr<const ExecutionPlan>> plans;  ///< one per device
  std::vector<TensorInfo> inputs;
  std::vector<TensorInfo> outputs;
  std::vector<std::string> notes;
  LoadOptions options;                ///< that it was compiled with
  std::optional<std::string> source;  ///< the file or name that CompiledModel::reshaped() reads again
  ModelFacts facts;
  double read_ms = 0;  ///< read_model(), where read_and_compile() called it
  double load_ms = 0;  ///< compile_model()
};

struct CompileWith {
  /// Of the model's images, where they are known: a plan that was calibrated on others adds a note.
  const Preprocess* preprocess = nullptr;
  /// On the CPU: a plan of the same model for other shapes, whose kernels are used wherever they accept these.
  const ExecutionPlan* like = nullptr;
  double read_ms = 0;  ///< CompiledState::read_ms
};

/// Tells LoadOptions::progress the stages of loading, and that reading begins. compile_model() reports the rest.
void plan_loading(const LoadOptions& options);

/// Compiles a model that onnx_options(options) has read. Errors begin with the model's name.
std::shared_ptr<CompiledState> compile_model(Model model, const LoadOptions& options,
                                             const CompileWith& with = {});
/// read_model() and compile_model(). `model`: a name, which becomes CompiledState::source, or bytes and what stands for
/// them in messages.
std::shared_ptr<const CompiledState> read_and_compile(const std::string& model, const LoadOptions& options);
std::shared_ptr<const CompiledState> read_and_compile(std::span<const std::byte> onnx,
                                                      const std::string& name, const LoadOptions& options);

}  // namespace pipit::internal::detail
