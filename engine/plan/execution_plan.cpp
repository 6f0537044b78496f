#include "engine/plan/execution_plan.h"

#include <algorithm>

#include "engine/plan/memory_planner.h"
#include "engine/plan/plan_building.h"
#include "engine/platform/device.h"

namespace pipit::internal {

bool is_view(const Graph& graph, const Node& node) {
  return node.outputs.size() == 1 && !node.inputs.empty() && node.inputs[0] != kNoValue &&
         node.layer->is_view(graph.value(node.inputs[0]).desc, graph.value(node.outputs[0]).desc);
}

const Node& last_node(const Graph& graph, const Step& step) {
  return graph.nodes()[static_cast<std::size_t>(step.fused.empty() ? step.node : step.fused.back())];
}

const Node& ExecutionPlan::last_node(const Step& step) const {
  return pipit::internal::last_node(graph_, step);
}

namespace {

MicroBatches cut_batch(const Graph& graph, const Samples& samples, const PlanOptions& options) {
  if (options.device != DeviceKind::cpu) return {1, 1, "a GPU takes the whole batch"};
  if (options.keep_every_value) return {1, 1, "observers see whole values"};
  return choose_micro_batches(graph, samples, options.micro_batch, options.threads);
}

// Passes put a graph in a precision; a plan that only says so would run in f32. Types of inputs prove nothing: bytes
// may be those of an image.
void check_precision(const Graph& graph, Precision precision) {
  if (precision == Precision::fp32) return;
  std::vector<bool> is_input(graph.values().size(), false);
  for (const ValueId input : graph.inputs()) is_input[static_cast<std::size_t>(input)] = true;
  const auto holds = [&](DType type) {
    for (std::size_t v = 0; v < is_input.size(); ++v) {
      if (!is_input[v] && graph.values()[v].desc.dtype == type) return true;
    }
    return false;
  };
  const bool narrow = stores_16_bits(precision);
  const DType stored = stored_type(precision);
  if (narrow ? holds(stored) || !holds(DType::f32) : holds(DType::i8) || holds(DType::u8)) return;
  // What a plan of scales keeps in floating point may be all of it, stored in 16 bits.
  if (precision == Precision::int8 && (holds(DType::f16) || holds(DType::bf16))) return;
  fail_unsupported(
      "precision {} is asked for, but no value that the graph computes or holds is {}: compile() puts a "
      "graph in "
      "a precision, of which assign_precision(), quantize_graph() and their like are parts",
      precision_name(precision), narrow ? dtype_name(stored) : "i8 or u8");
}

}  // namespace

std::shared_ptr<const ExecutionPlan> ExecutionPlan::build(Graph graph, const Registry& registry,
                                                          const PlanOptions& options) {
  const std::shared_ptr<ExecutionPlan> plan(new ExecutionPlan());
  plan->options_ = options;
  check_precision(graph, options.precision);
  if (plan->options_.threads == 0) plan->options_.threads = default_threads();
  if (options.device == DeviceKind::cuda) select_gpu(options.gpu);
  PlanConstants constants(graph);
  plan->graph_ = graph.without_constants();
  graph = Graph{};  // the constants are now held there alone
  const Samples samples = find_samples(plan->graph_);
  const MicroBatches& cut = plan->micro_batches_ = cut_batch(plan->graph_, samples, plan->options_);
  const Graph part = cut.cut() ? plan->graph_.with_samples(samples.by_sample, cut.size) : plan->graph_;
  const PlanSubject subject{part, constants, plan->options_};
  const Followers followers(part, plan->options_);
  const ChainCandidates chains(registry, plan->options_);
  std::vector<StepDraft> drafts = choose_candidates(subject, registry, followers, chains);
  drafts = fuse_chains(subject, registry, chains, followers, std::move(drafts));
  drafts = fuse_steps(subject, registry, followers, std::move(drafts));
  const ValueBuffers buffers = share_memory(subject, drafts);
  plan->steps_ = make_kernels(subject, std::move(drafts));
  PlacedValues placed = place_values(subject, buffers, plan->steps_);
  plan->outputs_ = plan->step_outputs_ = std::move(placed.outputs);
  plan->arena_bytes_ = placed.arena_bytes;
  plan->peak_live_bytes_ = placed.peak_live_bytes;
  plan->view_nodes_ = static_cast<int>(std::count_if(part.nodes().begin(), part.nodes().end(),
                                                     [&](const Node& node) { return is_view(part, node); }));
  if (cut.cut()) plan->place_whole_outputs();
  for (const Step& step : plan->steps_) {
    for (const ValueId id : plan->last_node(step).outputs)
      plan->activation_bytes_ += plan->graph_.value(id).desc.bytes();
  }
  plan->options_.tuner.reset();
  return plan;
}

// After what the steps use.
void ExecutionPlan::place_whole_outputs() {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    Placement& output = outputs_[i];
    output.desc = graph_.value(graph_.outputs()[i]).desc;
    if (output.kind != Placement::Kind::arena) continue;
    const auto aligned = [](std::size_t bytes) {
      return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    };
    output.offset = aligned(arena_bytes_);
    arena_bytes_ = output.offset + output.desc.bytes();
    peak_live_bytes_ = aligned(peak_live_bytes_) + output.desc.bytes();
  }
  check_arena(arena_bytes_, options_);
}

}  // namespace pipit::internal
