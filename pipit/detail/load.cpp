#include "pipit/detail/load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/platform/float_mode.h"
#include "layers/kernel_names.h"
#include "layers/registry.h"
#include "models/classification.h"
#include "models/npy.h"
#include "models/sample_file.h"
#include "pipit/detail/checked.h"
#include "pipit/detail/preparation_notes.h"
#include "pipit/detail/stages.h"
#include "quant/hash.h"
#include "quant/kept_layers.h"

namespace pipit::internal::detail {

namespace {

Preprocess preprocess_of(const QuantizationPlan& plan, const std::string& path) {
  return naming(path, [&] { return preprocess_from_json(plan.preprocess); });
}

std::vector<TensorInfo> infos(const Graph& graph, const std::vector<ValueId>& ids,
                              const std::vector<std::string>* names) {
  std::vector<TensorInfo> result;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Value& value = graph.value(ids[i]);
    result.push_back({names != nullptr ? (*names)[i] : value.name, value.desc.dtype, value.desc.shape});
  }
  return result;
}

std::vector<KernelName> kernels(const std::vector<std::string>& texts) {
  std::vector<KernelName> all;
  for (const std::string& text : texts) {
    std::vector<KernelName> named = kernels_named(text, default_registry());
    std::ranges::move(named, std::back_inserter(all));
  }
  return all;
}

// The kernel of a step may be that of any of the nodes that it computes.
std::map<std::string, std::string, std::less<>> kernels_of(const ExecutionPlan& plan) {
  std::map<std::string, std::string, std::less<>> kernels;
  for (const Step& step : plan.steps()) {
    if (step.is_chain) continue;
    const auto add = [&](int node) {
      kernels.emplace(plan.graph().nodes()[static_cast<std::size_t>(node)].name, step.kernel_name);
    };
    add(step.node);
    std::ranges::for_each(step.fused, add);
  }
  return kernels;
}

void check(const LoadOptions& options) {
  check_device(options.device);
  check_enumerator("kernels.tuning", options.kernels.tuning, Tuning::all);
  if (!options.device.gpus.empty() && options.device.kind != DeviceKind::cuda)
    throw ArgumentError("GPUs are given, but the device is the CPU");
  check_range("micro_batch", options.kernels.micro_batch.value_or(0), 0, 65536);
}

}  // namespace

OnnxOptions onnx_options(const LoadOptions& options) {
  OnnxOptions onnx;
  onnx.batch = options.shapes.batch.value_or(1);
  onnx.dims = options.shapes.dimensions;
  onnx.shapes = options.shapes.inputs;
  onnx.values = options.constants.values;
  for (const auto& [name, path] : options.constants.arrays) {
    onnx.arrays.insert_or_assign(
        name, std::make_shared<const Tensor>(parse_npy(read_file(path, kMaxArrayFileBytes), path)));
  }
  if (!options.output.empty()) onnx.outputs = {options.output};
  return onnx;
}

namespace {

// Throws where `dimensions` or `shapes` may have made the batch what it was reduced to.
bool may_hide(const OnnxOptions& onnx) {
  return std::ranges::any_of(onnx.dims, [&](const auto& dim) { return dim.second == onnx.batch; }) ||
         std::ranges::any_of(onnx.shapes, [&](const auto& shape) {
           return shape.second.rank() > 0 && shape.second[0] == onnx.batch;
         });
}

Model checked(const LoadOptions& options, const ReadOptions& read,
              const std::function<Model(const OnnxOptions&)>& load) {
  OnnxOptions onnx = onnx_options(options);
  if (read.classifies) onnx.is_wanted_output = is_class_output;
  const std::optional<std::int64_t>& batch = options.shapes.batch;
  if (read.run_batch && batch && *read.run_batch != *batch) {
    onnx.batch = *read.run_batch;
    if (may_hide(onnx)) checked(options, {.run_batch = {}, .classifies = read.classifies}, load);
  }
  Model loaded = load(onnx);
  const Graph& graph = loaded.graph;
  const Shape shape = graph.inputs().empty() ? Shape{} : graph.value(graph.inputs()[0]).desc.shape;
  if (!batch || shape.rank() == 0 || shape[0] == *batch) return loaded;
  if (loaded.fixed_batch) {
    fail("{}: the file fixes the batch at {}: leave batch {} out, or export the model with a symbolic batch",
         loaded.name, shape[0], *batch);
  }
  if (shape[0] != onnx.batch) {
    throw ArgumentError(fmt::format("batch {} contradicts the given {}, which make dimension 0 of '{}' {}",
                                    *batch,
                                    options.shapes.inputs.empty() ? "dimensions" : "dimensions or shapes",
                                    graph.value(graph.inputs()[0]).name, shape[0]));
  }
  return loaded;
}

}  // namespace

Model read_model(const std::string& model, const LoadOptions& options, const ReadOptions& read) {
  return checked(options, read, [&](const OnnxOptions& onnx) { return load_model(model, onnx); });
}

Model read_model(std::span<const std::byte> bytes, const std::string& name, const LoadOptions& options,
                 const ReadOptions& read) {
  return checked(options, read, [&](const OnnxOptions& onnx) { return parse_model(bytes, name, onnx); });
}

std::shared_ptr<KernelTuning> kernel_tuning(const KernelOptions& kernels, std::function<void()> checkpoint) {
  check_enumerator("kernels.tuning", kernels.tuning, Tuning::all);
  if (kernels.tuning == Tuning::by_order && kernels.cache.empty()) return nullptr;
  return std::make_shared<KernelTuning>(kernels.tuning == Tuning::all, kernels.cache, std::move(checkpoint));
}

void check_precision(const std::string& model, const Graph& graph, const LoadOptions& options) {
  naming(model, [&] { check_unquantized(graph, options.precision.kind()); });
  if (options.precision.kind() == Precision::int8 && plan_of(options).empty())
    throw ArgumentError(model +
                        ": int8 needs a quantization plan with the scales that pipit calibrate writes");
}

std::filesystem::path plan_of(const LoadOptions& options) {
  const Int8* const int8 = options.precision.int8();
  return int8 != nullptr ? int8->plan : std::filesystem::path();
}

std::vector<QuantizationPlan::Kept> kept_of(std::span<const std::string> keep) {
  std::vector<QuantizationPlan::Kept> kept;
  for (const std::string& text : keep) kept.push_back(parse_keep(text));
  return kept;
}

CompileOptions compile_options(const LoadOptions& options, const std::function<void()>& checkpoint) {
  check(options);
  CompileOptions how;
  how.checkpoint = checkpoint;
  how.gpus = options.device.gpus;
  how.tuning = kernel_tuning(options.kernels, checkpoint);
  const ModelPrecision& precision = options.precision;
  if (precision.int8() != nullptr) how.keep = kept_of(precision.int8()->keep);
  if (precision.int8_dynamic() != nullptr)
    how.per_sample_scales = precision.int8_dynamic()->per_sample_scales;
  if (precision.w4() != nullptr) how.group_size = precision.w4()->group;
  PlanOptions& planning = how.planning;
  planning.device = options.device.kind;
  planning.precision = precision.kind();
  planning.threads = options.device.threads;
  planning.prefer_kernels = kernels(options.kernels.prefer);
  planning.exclude_kernels = kernels(options.kernels.exclude);
  planning.allow_fallback = options.device.allow_fallback;
  planning.micro_batch = options.kernels.micro_batch;
  return how;
}

QuantizationPlan read_plan_for(const std::filesystem::path& path, const Graph& graph) {
  QuantizationPlan plan = read_quantization_plan(path);
  if (!plan.preprocess.empty()) preprocess_of(plan, path.string());  // nothing that is wrong passes
  const std::string hash = hash_model(graph);
  if (plan.model_hash != hash) {
    fail("{} was calibrated for another model ({}, hash {}; this one's is {}); calibrate this one",
         path.string(), plan.model, plan.model_hash, hash);
  }
  return plan;
}

std::vector<std::string> differences_from(const QuantizationPlan& plan, const Preprocess& preprocess) {
  if (plan.preprocess.empty()) return {"the plan was calibrated on arrays"};
  return preprocess_differences(preprocess, preprocess_from_json(plan.preprocess));
}

std::string differences_note(const std::filesystem::path& path, const std::vector<std::string>& differences) {
  return fmt::format(
      "images are prepared differently from those that {} was calibrated on, and its ranges may not fit: "
      "{}",
      path.string(), fmt::join(differences, ", "));
}

void plan_loading(const LoadOptions& options) {
  plan_stages(options.progress, {{kReading, 1}, {kCompiling, 3}});
  report_stage(options.progress, kReading, 0, 1);
}

std::shared_ptr<CompiledState> compile_model(Model model, const LoadOptions& options,
                                             const CompileWith& with) {
  const ScopedFloatMode mode;
  const auto begin = Clock::now();
  auto state = std::make_shared<CompiledState>();
  state->name = model.name;
  state->metadata = std::move(model.metadata);
  state->options = options;
  state->options.progress = {};  // of this loading alone
  state->read_ms = with.read_ms;
  state->facts = {model.widened,         model.labels, model.labels_from,     model.preprocess,
                  model.preprocess_from, model.scores, metadata_notes(model), {}};
  check_precision(model.name, model.graph, options);
  const auto compiling = [&](std::int64_t done) { report_stage(options.progress, kCompiling, done, 1); };
  compiling(0);
  // Plans keep their tuner, and with it the checkpoint, which is valid only until this function returns.
  const auto is_compiling = std::make_shared<bool>(true);
  passing_stops([&] {
    naming(model.name, [&] {
      CompileOptions how = compile_options(options, [is_compiling, &compiling] {
        if (*is_compiling) stopping([&] { compiling(0); });
      });
      if (const std::filesystem::path plan = plan_of(options); !plan.empty()) {
        how.scales = read_plan_for(plan, model.graph);
        const std::vector<std::string> differences = with.preprocess != nullptr
                                                         ? differences_from(*how.scales, *with.preprocess)
                                                         : std::vector<std::string>{};
        if (!differences.empty()) state->notes.push_back(differences_note(plan, differences));
      }
      if (with.like != nullptr && options.device.kind == DeviceKind::cpu)
        how.planning.kernels_of_nodes = kernels_of(*with.like);
      Compiled compiled = compile(std::move(model.graph), how);
      state->plans = std::move(compiled.plans);
      state->notes.insert(state->notes.end(), compiled.notes.begin(), compiled.notes.end());
      state->facts.passes = std::move(compiled.passes);
    });
  });
  *is_compiling = false;
  compiling(1);
  const Graph& graph = state->plans[0]->graph();
  state->inputs = infos(graph, graph.inputs(), nullptr);
  state->outputs = infos(graph, graph.outputs(), &graph.output_names());
  state->load_ms = milliseconds_since(begin);
  return state;
}

std::shared_ptr<const CompiledState> read_and_compile(const std::string& model, const LoadOptions& options) {
  const auto begin = Clock::now();
  plan_loading(options);
  Model read = read_model(model, options);
  const auto state = compile_model(std::move(read), options, {.read_ms = milliseconds_since(begin)});
  state->source = model;
  return state;
}

std::shared_ptr<const CompiledState> read_and_compile(std::span<const std::byte> onnx,
                                                      const std::string& name, const LoadOptions& options) {
  const auto begin = Clock::now();
  plan_loading(options);
  Model read = read_model(onnx, name, options);
  return compile_model(std::move(read), options, {.read_ms = milliseconds_since(begin)});
}

}  // namespace pipit::internal::detail
