#include "compile/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <thread>

#include "engine/platform/device.h"
#include "engine/platform/float_mode.h"
#include "layers/passes/stored_weights.h"
#include "layers/registry.h"
#include "quant/dynamic_int8.h"
#include "quant/kept_layers.h"
#include "quant/quantize_graph.h"
#include "quant/weight_only.h"

namespace pipit::internal {

namespace {

void check_options(const CompileOptions& options) {
  const Precision precision = options.planning.precision;
  const auto only_for = [&](Precision own, bool given, const char* what) {
    if (given && precision != own)
      fail("{} for precision {}, not {}", what, precision_name(own), precision_name(precision));
  };
  only_for(Precision::int8, options.scales.has_value(), "a quantization plan is");
  only_for(Precision::int8, !options.keep.empty(), "layers to keep are");
  only_for(Precision::w4, options.group_size != 0, "a group size is");
  only_for(Precision::int8_dynamic, !options.per_sample_scales, "the kind of dynamic scales is");
  if (!options.gpus.empty() && options.planning.device != DeviceKind::cuda)
    fail("GPUs are given, but the device is the CPU");
}

// quantize_graph() with the options' plan. Names of nodes that are kept are added to the target's.
Rewritten quantize_by_plan(const Graph& fused, const CompileOptions& options, PassTarget& target) {
  QuantizationPlan plan = *options.scales;
  std::vector<std::string> notes = keep_nodes(plan, fused, options.keep);
  for (const QuantizationPlan::Kept& kept : plan.keep) {
    if (kept.precision == "fp32") target.kept.f32.insert(kept.node);
    if (kept.precision == "bf16") target.kept.bf16.insert(kept.node);
  }
  const bool gpu = target.device == DeviceKind::cuda;
  Quantized quantized = quantize_graph(fused, plan, {.activations = gpu ? DType::i8 : DType::u8});
  for (std::string& note : scale_notes(plan)) notes.push_back(std::move(note));
  if (quantized.kept > 0) {
    const bool one = quantized.kept == 1;
    notes.push_back(
        fmt::format("{} not in INT8: the plan keeps {} in floating point or has no scale for {}",
                    one ? "1 convolution or fully connected layer is"
                        : fmt::format("{} convolutions or fully connected layers are", quantized.kept),
                    one ? "it" : "them", one ? "it" : "them"));
  }
  return {std::move(quantized.graph), quantized.quantized, std::move(notes)};
}

Rewritten none_is_unsupported(Rewritten rewritten, Precision precision, const char* layers) {
  if (rewritten.changes == 0)
    fail_unsupported("nothing would compute in {}: the model has no {}; use fp32", precision_name(precision),
                     layers);
  return rewritten;
}

// PassTarget::quantize as the precision says.
std::function<Rewritten(Graph, PassTarget&)> quantization(const CompileOptions& options) {
  const Precision precision = options.planning.precision;
  switch (precision) {
    case Precision::fp32:
    case Precision::fp16:
    case Precision::bf16:
      return nullptr;
    case Precision::int8:
      return [&](const Graph& fused, PassTarget& target) { return quantize_by_plan(fused, options, target); };
    case Precision::int8_dynamic:
      return [&](Graph fused, PassTarget& target) {
        const DynamicQuantizeAttributes how{
            .per_sample = options.per_sample_scales,
            .type = target.device == DeviceKind::cuda ? DType::i8 : DType::u8};
        return none_is_unsupported(quantize_dynamically(std::move(fused), how), Precision::int8_dynamic,
                                   "convolution or matrix product that is worth it");
      };
    case Precision::w8:
    case Precision::w4:
      break;
  }
  return [&options, precision](Graph fused, PassTarget& target) {
    const WeightOnlyOptions how{precision == Precision::w8 ? 8 : 4, options.group_size, target.device};
    return none_is_unsupported(
        store_weights_only(std::move(fused), how, *shared_pool(options.planning.threads)), precision,
        "fully connected layer or 1x1 convolution with constant weights");
  };
}

// The graph as it is planned.
Graph prepare(Graph graph, const CompileOptions& options, std::vector<PassReport>& passes) {
  const PlanOptions& planning = options.planning;
  PassTarget target{.device = planning.device,
                    .precision = planning.precision,
                    .keep_every_value = planning.keep_every_value,
                    .quantize = quantization(options)};
  return (options.fused ? lower : optimize)(std::move(graph), std::move(target), &passes);
}

// A plan may keep every layer in floating point.
bool computes_in_f32(const Graph& graph) {
  return std::none_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    const DType type = graph.value(node.outputs[0]).desc.dtype;
    return type == DType::i8 || type == DType::u8 || is_stored_float(type);
  });
}

struct GpuPlan {
  int gpu = 0;
  std::shared_ptr<const ExecutionPlan> plan;
  std::exception_ptr error;
};

// One plan for each GPU, each built in a thread of its own, in the order of `gpus`.
std::vector<std::shared_ptr<const ExecutionPlan>> build_plans(Graph graph, const PlanOptions& options,
                                                              const std::vector<int>& gpus) {
  std::vector<GpuPlan> built;
  const auto of = [&](int gpu) {
    return std::find_if(built.begin(), built.end(), [&](const GpuPlan& plan) { return plan.gpu == gpu; });
  };
  for (const int gpu : gpus) {
    if (of(gpu) == built.end()) built.push_back({gpu, nullptr, nullptr});
  }
  std::vector<std::jthread> threads;
  for (GpuPlan& own : built) {
    PlanOptions planning = options;
    planning.gpu = own.gpu;
    threads.emplace_back([&own, planning, graph]() mutable {
      try {
        own.plan = ExecutionPlan::build(std::move(graph), default_registry(), planning);
      } catch (...) {
        own.error = std::current_exception();
      }
    });
  }
  graph = Graph{};
  threads.clear();  // joins
  std::vector<std::shared_ptr<const ExecutionPlan>> plans;
  for (const int gpu : gpus) {
    if (of(gpu)->error) std::rethrow_exception(of(gpu)->error);
    plans.push_back(of(gpu)->plan);
  }
  return plans;
}

}  // namespace

// A model that is quantized already has its scales, and computes in what they say.
void check_unquantized(const Graph& graph, Precision precision) {
  if (precision == Precision::fp32 || !is_quantized(graph)) return;
  if (!is_quantized_beyond_weights(graph)) {
    if (precision == Precision::w8 || precision == Precision::w4)
      fail_unsupported("the file stores its weights in few bits already: leave precision {} out",
                       precision_name(precision));
    return;
  }
  if (precision == Precision::int8)
    fail_unsupported(
        "the model is quantized already and holds its own scales: leave precision int8 and the plan out");
  fail_unsupported(
      "the model is quantized: its layers run in INT8 where it says so, the others in fp32; leave "
      "precision {} out",
      precision_name(precision));
}

Compiled compile(Graph graph, const CompileOptions& options) {
  const ScopedFloatMode mode;
  PlanOptions planning = options.planning;
  check_options(options);
  require_device(planning.device);
  for (const int gpu : options.gpus) select_gpu(gpu);
  check_unquantized(graph, planning.precision);
  if (planning.precision == Precision::int8 && !options.scales)
    fail_unsupported(
        "the model is in floating point: int8 needs a quantization plan with scales, which calibration "
        "makes; "
        "int8-dynamic needs none");
  Compiled compiled;
  if (!planning.tuner && options.tuning) planning.tuner = options.tuning->tuner(planning);
  if (options.checkpoint) options.checkpoint();
  graph = prepare(std::move(graph), options, compiled.passes);
  if (options.checkpoint) options.checkpoint();
  if (planning.precision == Precision::int8 && computes_in_f32(graph)) planning.precision = Precision::fp32;
  if (options.gpus.empty()) {
    compiled.plans.push_back(ExecutionPlan::build(std::move(graph), default_registry(), planning));
  } else {
    compiled.plans = build_plans(std::move(graph), planning, options.gpus);
  }
  if (options.tuning) {
    options.tuning->save();
    compiled.notes = options.tuning->take_notes();
  }
  for (const PassReport& pass : compiled.passes) {
    if (pass.notes.empty()) continue;
    const std::size_t more = pass.notes.size() - 1;
    compiled.notes.push_back(
        more == 0 ? pass.notes[0]
                  : fmt::format("{} ({} more such layers: pipit inspect lists them)", pass.notes[0], more));
  }
  return compiled;
}

}  // namespace pipit::internal
