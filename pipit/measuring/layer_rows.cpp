#include "pipit/measuring/layer_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "engine/base/statistics.h"

namespace pipit::internal::detail {

std::vector<LayerRow> layer_rows(const ExecutionPlan& plan, const Profile& profile,
                                 const Ceilings& ceilings) {
  const Floors floors(plan, ceilings);
  std::vector<LayerRow> rows;
  for (const StepTime& time : profile.steps) {
    const Step& step = plan.steps()[static_cast<std::size_t>(time.step)];
    rows.push_back({step_info(plan, step), &step, time.ms, time.median_ms, quantile(time.ms, 0.1), {}});
    if (ceilings.known()) rows.back().floor = floors.of(step, rows.back().info.work);
  }
  return rows;
}

std::vector<GroupedLayers> layer_groups(const std::vector<LayerRow>& rows, tools::GroupBy by) {
  std::vector<GroupedLayers> groups;
  for (const LayerRow& row : rows) {
    const std::string& name = by == tools::GroupBy::type ? row.info.type : row.info.kernel;
    auto group = std::ranges::find(groups, name, &GroupedLayers::name);
    if (group == groups.end()) {
      groups.push_back({name, 0, 0, std::vector<double>(row.ms.size(), 0), 0});
      group = groups.end() - 1;
    }
    ++group->layers;
    group->macs += row.info.macs;
    std::ranges::transform(group->ms, row.ms, group->ms.begin(), std::plus<>());
  }
  for (GroupedLayers& group : groups) group.median_ms = quantile(group.ms, 0.5);
  return groups;
}

double gflops(std::int64_t macs, double ms) {
  return ms > 0 ? 2e-6 * static_cast<double>(macs) / ms : 0;
}

Convolutions::Convolutions(const std::vector<LayerRow>& rows) {
  for (const LayerRow& row : rows) {
    if (row.info.family != LayerFamily::convolution) continue;
    macs += row.info.work.macs();
    ms += row.median_ms;
    if (!row.floor) continue;
    at_peak_ms += row.floor->compute_ms;
    in_tiles_ms += row.floor->tile_ms;
  }
}

FloorSum::FloorSum(const std::vector<LayerRow>& rows) {
  for (const LayerRow& row : rows) {
    if (!row.floor || row.floor->bound.empty()) continue;
    ms += row.floor->ms;
    auto bound = std::ranges::find(bounds, row.floor->bound, &std::pair<std::string, double>::first);
    if (bound == bounds.end()) bound = bounds.insert(bounds.end(), {row.floor->bound, 0});
    bound->second += row.floor->ms;
  }
  std::ranges::stable_sort(bounds, std::greater<>(), &std::pair<std::string, double>::second);
}

std::string beaten_floors_note(const std::vector<LayerRow>& rows, bool on_gpu) {
  // A kernel that begins under the end of the one before adds that much less to the graph.
  constexpr double kOverlapMs = 0.002;
  int beaten = 0;
  const LayerRow* furthest = nullptr;
  const auto ratio = [&](const LayerRow& row) {
    return row.floor->ms / (row.p10_ms + (on_gpu ? kOverlapMs : 0));
  };
  for (const LayerRow& row : rows) {
    if (!row.floor || (row.p10_ms <= 0 && !on_gpu) || ratio(row) <= 1) continue;
    ++beaten;
    if (furthest == nullptr || ratio(row) > ratio(*furthest)) furthest = &row;
  }
  if (furthest == nullptr) return {};
  return fmt::format(
      "{} ran in less than {}, '{}' by {:.0f} %: the ceilings were measured while the machine was "
      "slower; 'pipit ceilings' measures them again",
      beaten == 1 ? "1 layer" : fmt::format("{} layers", beaten), beaten == 1 ? "its floor" : "their floors",
      furthest->info.name, 100 * (1 - 1 / ratio(*furthest)));
}

ReferenceTime::ReferenceTime(const std::vector<LayerRow>& rows) {
  for (const LayerRow& row : rows) {
    if (row.step->kernel_name.find(kReference) == std::string::npos) continue;
    ++steps;
    ms += row.median_ms;
    if (slowest == nullptr || row.median_ms > slowest->median_ms) slowest = &row;
  }
}

std::string reference_note(const std::vector<LayerRow>& rows, const Profile& profile) {
  constexpr double kMaxShare = 0.01;
  const ReferenceTime time(rows);
  if (time.ms <= kMaxShare * profile.layers_ms) return {};
  const StepInfo& info = time.slowest->info;
  return fmt::format(
      "{} on reference kernels, plain loops, {} {:.4f} of {:.4f} ms ({:.0f}%), most of it '{}' ({}{}{}); "
      "'pipit inspect --why' says why no faster kernel takes it",
      time.steps == 1 ? "1 layer" : fmt::format("{} layers", time.steps), time.steps == 1 ? "takes" : "take",
      time.ms, profile.layers_ms, 100 * time.ms / profile.layers_ms, info.name, info.type,
      info.geometry.empty() ? "" : " ", info.geometry);
}

}  // namespace pipit::internal::detail
