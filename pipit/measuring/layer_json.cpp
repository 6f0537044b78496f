#include "pipit/measuring/layer_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/statistics.h"
#include "pipit/detail/memory_use.h"
#include "pipit/measuring/ceilings_json.h"

namespace pipit::internal::detail {

namespace {

void add_times(nlohmann::ordered_json& json, const std::vector<double>& ms, double median_ms,
               const Profile& profile) {
  json["median_ms"] = median_ms;
  json["p10_ms"] = quantile(ms, 0.1);
  json["p90_ms"] = quantile(ms, 0.9);
  json["share"] = median_ms / profile.layers_ms;
}

// The type of the first operand; null where there is none.
nlohmann::ordered_json stored_type(const std::vector<Placement>& operands) {
  if (operands.empty() || operands[0].kind == Placement::Kind::absent) return {};
  return dtype_name(operands[0].desc.dtype);
}

// What the kernel does, and what that takes at least.
void add_work(nlohmann::ordered_json& layer, const LayerRow& row) {
  const StepWork& work = row.info.work;
  layer["done_macs"] = work.macs();
  if (!work.products.empty()) {
    const auto most = std::ranges::max_element(work.products, {}, &KernelWork::macs);
    layer["products"] = products_name(most->products);
  }
  layer["moved_bytes"] = work.bytes();
  layer["flop_per_byte"] = work.intensity();
  const StepMemory memory = step_memory(*row.step);
  layer["weight_bytes"] = memory.packed + memory.constants;
  layer["workspace_bytes"] = memory.workspace;
  if (!row.floor) return;
  layer["floor_us"] = 1e3 * row.floor->ms;
  layer["x_floor"] = row.floor->ms > 0 ? row.median_ms / row.floor->ms : 0;
  layer["bound"] =
      row.floor->bound.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(row.floor->bound);
  layer["share_of_limit"] = row.floor->share_of(row.median_ms);
}

void add_floors(nlohmann::ordered_json& json, const std::vector<LayerRow>& rows, const Ceilings& ceilings) {
  const FloorSum sum(rows);
  json["floor_ms"] = sum.ms;
  json["bounds"] = nlohmann::ordered_json::array();
  for (const auto& [bound, ms] : sum.bounds) json["bounds"].push_back({{"bound", bound}, {"floor_ms", ms}});
  if (const Convolutions convolutions(rows); convolutions.macs > 0) {
    json["convolutions_ms"] = convolutions.ms;
    json["convolutions_share_of_peak"] = convolutions.at_peak_ms / convolutions.ms;
    if (convolutions.in_tiles_ms > 0)
      json["convolutions_share_of_tiles"] = convolutions.in_tiles_ms / convolutions.ms;
  }
  json["ceilings"] = ceilings_json(ceilings);
}

}  // namespace

void add_choice(nlohmann::ordered_json& layer, const Step& step) {
  if (!step.variant.empty()) layer["variant"] = step.variant;
  layer["chosen"] = chosen_by_name(step.choice.by);
  if (!step.choice.note.empty()) layer["note"] = step.choice.note;
  for (const TimedKernel& timed : step.choice.timed) {
    nlohmann::ordered_json entry = {{"kernel", timed.name}};
    if (!timed.variant.empty()) entry["variant"] = timed.variant;
    if (timed.problem.empty()) {
      entry["ms"] = timed.ms;
    } else {
      entry["problem"] = timed.problem;
    }
    layer["timed"].push_back(std::move(entry));
  }
}

std::string describe(const MicroBatches& batches) {
  if (!batches.cut()) return "none: " + batches.why;
  return fmt::format("{} of {} samples at a time: {}", batches.size, batches.samples, batches.why);
}

void add_micro_batches(nlohmann::ordered_json& json, const MicroBatches& batches) {
  json["micro_batch"] = {
      {"size", batches.cut() ? nlohmann::ordered_json(batches.size) : nlohmann::ordered_json()},
      {"runs", batches.count()},
      {"why", batches.why}};
}

nlohmann::ordered_json layer_json(const std::vector<LayerRow>& rows, const ExecutionPlan& plan,
                                  const Profile& profile, const Ceilings& ceilings) {
  nlohmann::ordered_json json;
  json["runs"] = profile.runs;
  add_micro_batches(json, plan.micro_batches());
  json["layers_ms"] = profile.layers_ms;
  json["end_to_end_ms"] = profile.end_to_end_ms;
  json["end_to_end_p10_ms"] = quantile(profile.run_ms, 0.1);
  json["end_to_end_p90_ms"] = quantile(profile.run_ms, 0.9);
  json["residual_ms"] = profile.residual_ms;
  json["profiler_overhead_ms"] = profile.overhead_ms;
  json["reference_share"] = ReferenceTime(rows).ms / profile.layers_ms;
  if (profile.graph_ms > 0) json["graph_ms"] = profile.graph_ms;
  if (ceilings.known()) add_floors(json, rows, ceilings);
  json["samples_ms"] = profile.run_ms;
  json["layers"] = nlohmann::ordered_json::array();
  for (const LayerRow& row : rows) {
    const StepInfo& info = row.info;
    nlohmann::ordered_json layer = {{"index", info.index},
                                    {"name", info.name},
                                    {"nodes", info.nodes},
                                    {"type", info.type},
                                    {"kernel", info.kernel},
                                    {"input", info.input.dims()},
                                    {"output", info.output.dims()},
                                    {"input_type", stored_type(row.step->inputs)},
                                    {"output_type", stored_type(row.step->outputs)},
                                    {"geometry", info.geometry},
                                    {"macs", info.macs}};
    add_times(layer, row.ms, row.median_ms, profile);
    layer["gflops"] = gflops(info.macs, row.median_ms);
    layer["bytes"] = info.bytes;
    if (info.kept < 1) layer["kept"] = info.kept;
    add_choice(layer, *row.step);
    add_work(layer, row);
    layer["samples_ms"] = row.ms;
    json["layers"].push_back(std::move(layer));
  }
  return json;
}

nlohmann::ordered_json group_json(const std::vector<LayerRow>& rows, const Profile& profile,
                                  tools::GroupBy by) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const GroupedLayers& group : layer_groups(rows, by)) {
    nlohmann::ordered_json json = {{by == tools::GroupBy::type ? "type" : "kernel", group.name},
                                   {"layers", group.layers},
                                   {"macs", group.macs}};
    add_times(json, group.ms, group.median_ms, profile);
    json["gflops"] = gflops(group.macs, group.median_ms);
    groups.push_back(std::move(json));
  }
  return groups;
}

}  // namespace pipit::internal::detail
