#include "apps/display/joined_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/display/table.h"
#include "engine/base/statistics.h"

namespace pipit::internal::apps {

namespace {

struct JoinedRow {
  std::string name, type;
  std::int64_t macs = 0;
  std::vector<std::string> nodes;
  std::vector<std::string> kernels;     // of each side
  std::vector<std::vector<double>> ms;  // [side], run by run; empty where the side has nothing of the kind
};

std::vector<JoinedRow> joined_rows(const std::vector<ProfiledSide>& sides) {
  std::vector<std::vector<LayerSeries>> series;
  for (const ProfiledSide& side : sides) {
    series.emplace_back();
    for (const LayerRow& row : side.rows) series.back().push_back({row.info.nodes, row.ms});
  }
  std::vector<JoinedRow> joined;
  for (const std::vector<std::vector<std::size_t>>& matched : match_layers(series)) {
    JoinedRow& row = joined.emplace_back();
    for (std::size_t s = 0; s < sides.size(); ++s) {
      std::string kernels;
      std::int64_t macs = 0;
      for (const std::size_t l : matched[s]) {
        const StepInfo& info = sides[s].rows[l].info;
        kernels += (kernels.empty() ? "" : ", ") + info.kernel;
        macs += info.macs;
        if (row.name.empty()) {
          row.name = info.name;
          row.type = info.type;
        }
        for (const std::string& node : info.nodes) {
          if (std::ranges::find(row.nodes, node) == row.nodes.end()) row.nodes.push_back(node);
        }
      }
      if (row.macs == 0) row.macs = macs;
      row.kernels.push_back(std::move(kernels));
      row.ms.push_back(summed_ms(series[s], matched[s]));
    }
  }
  return joined;
}

// 0 where one of both has no time.
double speedup(const std::vector<ProfiledSide>& sides, std::size_t side,
               const std::vector<std::vector<double>>& ms) {
  if (ms[0].empty() || ms[side].empty()) return 0;
  const double own = quantile(ms[side], 0.5) / static_cast<double>(sides[side].samples);
  return own > 0 ? quantile(ms[0], 0.5) / static_cast<double>(sides[0].samples) / own : 0;
}

std::vector<std::string> time_cells(const std::vector<ProfiledSide>& sides,
                                    const std::vector<std::vector<double>>& ms) {
  std::vector<std::string> cells;
  for (std::size_t s = 0; s < sides.size(); ++s) {
    for (const double q : {0.5, 0.1, 0.9})
      cells.push_back(ms[s].empty() ? "" : fmt::format("{:.4f}", quantile(ms[s], q)));
    if (s == 0) continue;
    const double times = speedup(sides, s, ms);
    cells.push_back(times > 0 ? fmt::format("{:.2f}", times) : "");
  }
  return cells;
}

// What stands over the columns of a side: its label, or where all labels do not fit a number, with a list of them.
struct Titles {
  std::vector<std::string> of;
  std::string list;
};

Titles titles_of(const std::vector<ProfiledSide>& sides, int width) {
  constexpr std::size_t kName = 20, kRatio = 6, kRest = 5;  // "x", " ms" and gaps
  std::size_t all = kName;
  Titles titles;
  for (const ProfiledSide& side : sides) {
    titles.of.push_back(side.label);
    all += side.label.size() + kRatio + kRest;
  }
  if (width == 0 || all <= static_cast<std::size_t>(width)) return titles;
  for (std::size_t s = 0; s < sides.size(); ++s) {
    titles.of[s] = fmt::format("{}:", s + 1);
    titles.list += fmt::format("{} {}\n", titles.of[s], sides[s].label);
  }
  return titles;
}

}  // namespace

std::string joined_table(const std::vector<ProfiledSide>& sides, const TableView& view) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {{"layer", left, 0, true}, {"type", left, 2}};
  const Titles titles = titles_of(sides, view.width);
  for (std::size_t s = 0; s < sides.size(); ++s) {
    // Ratios stay: they are what several settings are run for.
    columns.push_back({titles.of[s] + " ms", right, s > 0 ? 1 : 0});
    columns.push_back({"p10", right, 4});
    columns.push_back({"p90", right, 3});
    if (s > 0) columns.push_back({titles.list.empty() ? "x" : titles.of[s] + " x", right});
  }
  for (const std::string& title : titles.of) columns.push_back({"kernel " + title, left, 5});
  Table table(std::move(columns));
  const std::vector<JoinedRow> rows = joined_rows(sides);
  std::vector<SortKey> keys;
  for (const JoinedRow& row : rows)
    keys.push_back({row.name, row.ms[0].empty() ? 0 : quantile(row.ms[0], 0.5), row.macs});
  const std::vector<std::size_t> shown = shown_rows(keys, view);
  const auto add = [&](std::vector<std::string> cells, const std::vector<std::vector<double>>& ms,
                       const std::vector<std::string>& kernels) {
    for (std::string& cell : time_cells(sides, ms)) cells.push_back(std::move(cell));
    cells.insert(cells.end(), kernels.begin(), kernels.end());
    table.add(std::move(cells));
  };
  for (const std::size_t r : shown) add({rows[r].name, rows[r].type}, rows[r].ms, rows[r].kernels);
  if (shown.size() < rows.size()) {
    const auto more = static_cast<std::int64_t>(rows.size() - shown.size());
    table.add({fmt::format("... and {} more", counted(more, "layer"))});
  }
  std::vector<std::vector<double>> sums, runs;
  for (const ProfiledSide& side : sides) {
    std::vector<double>& sum = sums.emplace_back(side.profile.run_ms.size(), 0);
    for (const LayerRow& row : side.rows)
      std::transform(sum.begin(), sum.end(), row.ms.begin(), sum.begin(), std::plus<>());
    runs.push_back(side.profile.run_ms);
  }
  add({"sum of layers", ""}, sums, {});
  add({"end to end", ""}, runs, {});
  return titles.list + table.str(0, view.width);
}

nlohmann::ordered_json joined_json(const std::vector<ProfiledSide>& sides) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const JoinedRow& row : joined_rows(sides)) {
    nlohmann::ordered_json times = nlohmann::ordered_json::array();
    nlohmann::ordered_json speedups = nlohmann::ordered_json::array();
    for (std::size_t s = 0; s < sides.size(); ++s) {
      const double times_as_fast = speedup(sides, s, row.ms);
      times.push_back(row.ms[s].empty() ? nlohmann::ordered_json()
                                        : nlohmann::ordered_json(quantile(row.ms[s], 0.5)));
      speedups.push_back(times_as_fast > 0 ? nlohmann::ordered_json(times_as_fast)
                                           : nlohmann::ordered_json());
    }
    json.push_back({{"name", row.name},
                    {"nodes", row.nodes},
                    {"median_ms", std::move(times)},
                    {"speedup", std::move(speedups)}});
  }
  return json;
}

}  // namespace pipit::internal::apps
