#include "apps/display/layer_rows.h"

#include <algorithm>

#include "engine/base/statistics.h"

namespace pipit::apps {

std::vector<LayerRow> layer_rows(const ExecutionPlan& plan, const Profile& profile) {
  std::vector<LayerRow> rows;
  for (const StepTime& time : profile.steps) {
    const Step& step = plan.steps()[static_cast<std::size_t>(time.step)];
    rows.push_back({step_info(plan, step), &step, time.ms, time.median_ms});
  }
  return rows;
}

std::vector<LayerGroup> layer_groups(const std::vector<LayerRow>& rows, GroupBy by) {
  std::vector<LayerGroup> groups;
  for (const LayerRow& row : rows) {
    const std::string& name = by == GroupBy::type ? row.info.type : row.info.kernel;
    auto group = std::ranges::find(groups, name, &LayerGroup::name);
    if (group == groups.end()) {
      groups.push_back({name, 0, 0, std::vector<double>(row.ms.size(), 0), 0});
      group = groups.end() - 1;
    }
    ++group->layers;
    group->macs += row.info.macs;
    std::ranges::transform(group->ms, row.ms, group->ms.begin(), std::plus<>());
  }
  for (LayerGroup& group : groups) group.median_ms = quantile(group.ms, 0.5);
  return groups;
}

double gflops(std::int64_t macs, double ms) {
  return ms > 0 ? 2e-6 * static_cast<double>(macs) / ms : 0;
}

double floor_ms(const StepInfo& info, const MachinePeak& peak) {
  return peak.floor_ms(2 * static_cast<double>(info.macs), static_cast<double>(info.bytes));
}

Convolutions::Convolutions(const std::vector<LayerRow>& rows) {
  for (const LayerRow& row : rows) {
    if (row.info.family != LayerFamily::convolution) continue;
    macs += row.info.macs;
    ms += row.median_ms;
  }
}

ReferenceTime::ReferenceTime(const std::vector<LayerRow>& rows) {
  for (const LayerRow& row : rows) {
    if (row.step->kernel_name.find(kReference) == std::string::npos) continue;
    ++steps;
    ms += row.median_ms;
    if (slowest == nullptr || row.median_ms > slowest->median_ms) slowest = &row;
  }
}

}  // namespace pipit::apps
