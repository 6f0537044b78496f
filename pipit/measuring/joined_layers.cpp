#include "pipit/measuring/joined_layers.h"

#include <algorithm>
#include <functional>

#include "engine/base/statistics.h"
#include "engine/runtime/match_layers.h"

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;
using Times = tools::JoinedLayer::Times;

// `ms`: of each run, its own runs one by one; empty where it has nothing of the kind.
std::vector<std::optional<Times>> joined_times(const std::vector<ProfiledRun>& runs,
                                               const std::vector<std::vector<double>>& ms) {
  std::vector<std::optional<Times>> all;
  const auto for_one_sample = [&](std::size_t r) {
    return quantile(ms[r], 0.5) / static_cast<double>(runs[r].samples);
  };
  for (std::size_t r = 0; r < runs.size(); ++r) {
    std::optional<Times>& times = all.emplace_back();
    if (ms[r].empty()) continue;
    times = Times{quantile(ms[r], 0.5), quantile(ms[r], 0.1), quantile(ms[r], 0.9), 0, {}};
    const double own = for_one_sample(r);
    if (!ms[0].empty() && own > 0) times->speedup = for_one_sample(0) / own;
  }
  return all;
}

}  // namespace

std::vector<tools::JoinedLayer> joined_layers(const std::vector<ProfiledRun>& runs) {
  std::vector<std::vector<LayerSeries>> series;
  for (const ProfiledRun& run : runs) {
    series.emplace_back();
    for (const LayerRow& row : run.rows) series.back().push_back({row.info.nodes, row.ms});
  }
  std::vector<tools::JoinedLayer> joined;
  for (const std::vector<std::vector<std::size_t>>& matched : match_layers(series)) {
    tools::JoinedLayer& layer = joined.emplace_back();
    std::vector<std::vector<double>> ms;
    for (std::size_t r = 0; r < runs.size(); ++r) ms.push_back(summed_ms(series[r], matched[r]));
    layer.times = joined_times(runs, ms);
    for (std::size_t r = 0; r < runs.size(); ++r) {
      std::string kernels;
      std::int64_t macs = 0;
      for (const std::size_t l : matched[r]) {
        const StepInfo& info = runs[r].rows[l].info;
        kernels += (kernels.empty() ? "" : ", ") + info.kernel;
        macs += info.macs;
        if (layer.name.empty()) {
          layer.name = info.name;
          layer.type = info.type;
        }
        for (const std::string& node : info.nodes) {
          if (std::ranges::find(layer.nodes, node) == layer.nodes.end()) layer.nodes.push_back(node);
        }
      }
      if (layer.macs == 0) layer.macs = macs;
      if (layer.times[r]) layer.times[r]->kernels = std::move(kernels);
    }
  }
  return joined;
}

std::vector<tools::JoinedLayer> joined_totals(const std::vector<ProfiledRun>& runs) {
  std::vector<std::vector<double>> sums, whole;
  for (const ProfiledRun& run : runs) {
    std::vector<double>& sum = sums.emplace_back(run.profile.run_ms.size(), 0);
    for (const LayerRow& row : run.rows)
      std::transform(sum.begin(), sum.end(), row.ms.begin(), sum.begin(), std::plus<>());
    whole.push_back(run.profile.run_ms);
  }
  std::vector<tools::JoinedLayer> totals(2);
  totals[0].name = "sum of layers";
  totals[0].times = joined_times(runs, sums);
  totals[1].name = "end to end";
  totals[1].times = joined_times(runs, whole);
  return totals;
}

Json joined_json(const std::vector<tools::JoinedLayer>& layers) {
  Json json = Json::array();
  for (const tools::JoinedLayer& layer : layers) {
    Json times = Json::array(), speedups = Json::array();
    for (const auto& of_run : layer.times) {
      times.push_back(of_run ? Json(of_run->median_ms) : Json());
      speedups.push_back(of_run && of_run->speedup > 0 ? Json(of_run->speedup) : Json());
    }
    json.push_back({{"name", layer.name},
                    {"nodes", layer.nodes},
                    {"median_ms", std::move(times)},
                    {"speedup", std::move(speedups)}});
  }
  return json;
}

}  // namespace pipit::internal::detail
