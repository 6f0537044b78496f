#include "pipit/measuring/profiled_run.h"

#include <algorithm>

#include "engine/base/statistics.h"
#include "engine/plan/arena_map.h"
#include "engine/platform/host_memory.h"
#include "pipit/detail/memory_use.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/layer_json.h"
#include "pipit/measuring/machine_ceilings.h"
#include "pipit/measuring/run_json.h"
#include "pipit/measuring/runner.h"
#include "pipit/measuring/timing.h"

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;

std::string name_of(const ExecutionPlan& plan, int step) {
  if (step < 0) return {};
  const Step& at = plan.steps()[static_cast<std::size_t>(step)];
  return plan.graph().nodes()[static_cast<std::size_t>(at.node)].name;
}

// The step during which the arena holds the most.
int fullest_step(const ExecutionPlan& plan) {
  if (plan.steps().empty()) return -1;
  const std::vector<std::size_t> live = live_bytes(plan, arena_blocks(plan));
  return static_cast<int>(std::ranges::max_element(live) - live.begin());
}

tools::LayerTime layer_time(const LayerRow& row) {
  const StepInfo& info = row.info;
  const StepMemory memory = step_memory(*row.step);
  tools::LayerTime layer;
  layer.name = info.name;
  layer.type = info.type;
  layer.kernel = info.kernel;
  layer.geometry = info.geometry;
  layer.input = info.input;
  layer.output = info.output;
  layer.macs = info.macs;
  layer.bytes = info.bytes;
  layer.median_ms = row.median_ms;
  layer.p10_ms = row.p10_ms;
  layer.p90_ms = quantile(row.ms, 0.9);
  layer.samples_ms = row.ms;
  layer.nodes = info.nodes;
  layer.flop_per_byte = info.work.intensity();
  layer.weight_bytes = memory.packed + memory.constants;
  layer.workspace_bytes = memory.workspace;
  if (row.floor) layer.floor = {row.floor->ms, row.floor->bound, row.floor->share_of(row.median_ms)};
  return layer;
}

tools::FloorSummary floor_summary(const ProfiledRun& run) {
  tools::FloorSummary summary;
  const FloorSum sum(run.rows);
  summary.ms = sum.ms;
  for (const auto& [bound, ms] : sum.bounds) summary.bounds.push_back({bound, ms});
  if (const Convolutions convolutions(run.rows); convolutions.macs > 0) {
    summary.convolution_macs = convolutions.macs;
    summary.convolutions_ms = convolutions.ms;
    summary.convolutions_share_of_peak = convolutions.at_peak_ms / convolutions.ms;
    summary.convolutions_share_of_tiles = convolutions.in_tiles_ms / convolutions.ms;
  }
  summary.ceilings = public_ceilings(run.ceilings);
  return summary;
}

tools::MemoryUse memory_of(const ProfiledRun& run) {
  const ExecutionPlan& plan = *run.plan;
  const MemoryUse use = memory_use(plan);
  tools::MemoryUse memory;
  memory.weight_bytes = use.weights;
  memory.packed_bytes = use.packed;
  memory.most_packed = name_of(plan, use.largest_packed);
  memory.constant_bytes = use.constants;
  memory.arena_bytes = plan.arena_bytes();
  memory.peak_live_bytes = plan.peak_live_bytes();
  memory.most_live = name_of(plan, fullest_step(plan));
  memory.workspace_bytes = use.workspace;
  memory.most_workspace = name_of(plan, use.largest_workspace);
  memory.rss_bytes = run.resident_bytes;
  memory.peak_rss_bytes = run.peak_bytes;
  memory.device_bytes = run.device_memory.held;
  memory.device_peak_bytes = run.device_memory.peak;
  return memory;
}

tools::Rate public_rate(const MeasuredRate& rate) {
  return {rate.best, rate.median, rate.p10, rate.rounds};
}

}  // namespace

void ProfiledRun::look_around(bool floors, const std::function<void(const std::string&)>& note) {
  const PlanOptions& made = plan->options();
  resident_bytes = resident_memory();
  peak_bytes = peak_resident_memory();
  if (on_gpu()) device_memory = internal::device_memory(made.gpu);
  if (floors) ceilings = machine_ceilings(made.device, made.gpu, made.threads, note);
  rows = layer_rows(*plan, profile, ceilings);
}

tools::ModelProfile model_profile(const ProfiledRun& run, std::optional<tools::GroupBy> group_by) {
  const Profile& measured = run.profile;
  const ExecutionPlan& plan = *run.plan;
  tools::ModelProfile result;
  result.runs = measured.runs;
  for (const LayerRow& row : run.rows) result.layers.push_back(layer_time(row));
  result.layers_ms = measured.layers_ms;
  result.end_to_end_ms = measured.end_to_end_ms;
  result.residual_ms = measured.residual_ms;
  result.graph_ms = measured.graph_ms;
  result.label = run.label;
  result.device = plan.options().device;
  result.precision = computed_precision(plan);
  result.threads = plan.options().threads;
  result.samples = run.samples;
  result.samples_ms = measured.run_ms;
  result.end_to_end_p10_ms = quantile(measured.run_ms, 0.1);
  result.end_to_end_p90_ms = quantile(measured.run_ms, 0.9);
  result.overhead_ms = measured.overhead_ms;
  result.micro_batches = plan.micro_batches().count();
  result.micro_batch_text = describe(plan.micro_batches());
  result.read_ms = run.read_ms;
  result.load_ms = run.load_ms;
  result.first_run_ms = run.first_run_ms;
  if (group_by) {
    for (const GroupedLayers& group : layer_groups(run.rows, *group_by))
      result.groups.push_back({group.name, group.layers, group.macs, group.median_ms, quantile(group.ms, 0.1),
                               quantile(group.ms, 0.9)});
  }
  if (run.ceilings.known()) result.floors = floor_summary(run);
  result.memory = memory_of(run);
  const std::string what = run.label.empty() ? run.model : run.model + ", " + run.label;
  for (const std::string& note : {reference_note(run.rows, measured), busy_note(what, measured.run_ms),
                                  beaten_floors_note(run.rows, run.on_gpu())}) {
    if (!note.empty()) result.notes.push_back(note);
  }
  return result;
}

Json profile_json(const ProfiledRun& run, std::optional<tools::GroupBy> group_by) {
  const ExecutionPlan& plan = *run.plan;
  Json json = json_header("profile", run.model, plan);
  json["schema"] = kTimesSchema;
  json["machine"] = machine_description(plan);
  json["batch"] = run.samples;
  if (!run.inputs.empty()) json["input"] = run.inputs;
  if (!plan.graph().inputs().empty()) json["input_type"] = dtype_name(first_input(plan).dtype);
  json["read_ms"] = run.read_ms;
  json["load_ms"] = run.load_ms;
  json["first_run_ms"] = run.first_run_ms;
  json["first_answer_ms"] = run.read_ms + run.load_ms + run.first_run_ms;
  json["arena_bytes"] = plan.arena_bytes();
  if (run.on_gpu()) {
    json["device_memory_bytes"] = run.device_memory.held;
    json["device_memory_peak_bytes"] = run.device_memory.peak;
  }
  if (group_by) json["groups"] = group_json(run.rows, run.profile, *group_by);
  json.update(layer_json(run.rows, plan, run.profile, run.ceilings));
  const MemoryUse use = memory_use(plan);
  json["memory"] = {{"weight_bytes", use.weights},      {"packed_bytes", use.packed},
                    {"constant_bytes", use.constants},  {"arena_bytes", plan.arena_bytes()},
                    {"workspace_bytes", use.workspace}, {"rss_bytes", run.resident_bytes},
                    {"peak_rss_bytes", run.peak_bytes}};
  json["run"] = run_json(run.profile.trace);
  json["arena"] = arena_json(plan);
  return json;
}

tools::MachineCeilings public_ceilings(const Ceilings& ceilings) {
  tools::MachineCeilings all;
  all.device = ceilings.device;
  all.machine = ceilings.machine;
  all.threads = ceilings.threads;
  all.measured_at = ceilings.measured_at;
  all.seconds = ceilings.seconds;
  for (const ArithmeticCeiling& a : ceilings.arithmetic)
    all.arithmetic.push_back(
        {std::string(products_name(a.products)), a.unit, public_rate(a.flops), public_rate(a.tile)});
  for (const MemoryCeiling& m : ceilings.memory)
    all.memory.push_back({m.name, m.bytes, public_rate(m.read), public_rate(m.write), public_rate(m.copy),
                          public_rate(m.add)});
  all.launches = public_rate(ceilings.launches);
  all.synchronizations = public_rate(ceilings.synchronizations);
  all.spread = ceilings.spread();
  return all;
}

}  // namespace pipit::internal::detail
