#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "apps/commands/sweep_report.h"
#include "apps/display/table.h"
#include "pipit/report.h"

namespace pipit::internal::apps {

namespace {

using tools::ConvBase, tools::ConvPoint, tools::ConvRow, tools::ConvSummary, tools::GeometricMean;

// Extents by their names in ConvSummary::Part, in that order.
constexpr std::pair<const char*, const char*> kExtentTitles[] = {
    {"n", "images"},        {"in", "input channels"}, {"out", "output channels"},
    {"size", "image size"}, {"kernel", "window"},     {"stride", "stride"}};

// "int8 against cudnn".
std::string title_of(const ConvSummary& s) {
  return fmt::format("{}{} against {}", precision_name(s.precision),
                     s.backend == "auto" ? "" : ", " + s.backend, s.base);
}

std::string mean_text(const GeometricMean& mean) {
  if (mean.rows == 0) return {};
  if (mean.low == 0) return fmt::format("{:.2f}", mean.mean);
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", mean.mean, mean.low, mean.high);
}

std::string speedup_text(const tools::Speedup& speedup) {
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", speedup.median, speedup.low, speedup.high);
}

double mean_speedup(const std::vector<double>& speedups) {
  double sum = 0;
  for (const double speedup : speedups) sum += std::log(speedup);
  return std::exp(sum / static_cast<double>(speedups.size()));
}

std::string summary_text(const ConvSummary& s, int width) {
  std::string line =
      fmt::format("{}: {}", title_of(s), counted(static_cast<std::int64_t>(s.all.rows), "layer"));
  if (s.all.rows > 0)
    line +=
        fmt::format(", {:.2f} times as fast in the geometric mean{}; {} faster, {} slower, {} not certain",
                    s.all.mean, s.all.low > 0 ? fmt::format(" [{:.2f}, {:.2f}]", s.all.low, s.all.high) : "",
                    s.faster, s.slower, s.all.rows - s.faster - s.slower);
  if (s.cached.rows > 0) line += fmt::format("; {:.2f} with operands in the cache", s.cached.mean);
  if (s.problems > 0) line += fmt::format("; {} did not run", s.problems);
  std::string text = wrapped(line + "\n", 2, width);
  for (const ConvRow& best : s.best) {
    text += fmt::format("  {:>4} x {:<4} at best {} times, {}\n", best.point.size, best.point.size,
                        speedup_text(best.find(s.base)->speedup), best.point.name());
  }
  return text;
}

// A column for each summary.
std::string parts_table(const std::vector<ConvSummary>& all, int width) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {{"geometric means", left, 0, true}, {"layers", right, 100}};
  std::set<std::pair<std::string, std::int64_t>> there;
  bool limits = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    columns.push_back({title_of(all[i]), right, static_cast<int>(i)});
    for (const ConvSummary::Part& part : all[i].parts) there.emplace(part.extent, part.value);
    limits = limits || all[i].share_of_limit.rows > 0;
  }
  if (there.empty() && !limits) return {};
  Table table(columns);
  const auto add = [&](const std::string& title, const auto& mean_of, const auto& text_of) {
    std::vector<std::string> cells{title, ""};
    std::size_t rows = 0;
    for (const ConvSummary& s : all) {
      const GeometricMean* mean = mean_of(s);
      cells.push_back(mean == nullptr || mean->rows == 0 ? "" : text_of(*mean));
      if (mean != nullptr) rows = std::max(rows, mean->rows);
    }
    cells[1] = std::to_string(rows);
    table.add(std::move(cells));
  };
  add(
      "all", [](const ConvSummary& s) { return &s.all; }, mean_text);
  if (std::ranges::any_of(all, [](const ConvSummary& s) { return s.cached.rows > 0; }))
    add(
        "all, operands in the cache", [](const ConvSummary& s) { return &s.cached; }, mean_text);
  if (limits)
    add(
        "% of the limit", [](const ConvSummary& s) { return &s.share_of_limit; },
        [](const GeometricMean& mean) { return fmt::format("{:.0f} %", 100 * mean.mean); });
  for (const auto& [extent, title] : kExtentTitles) {
    for (const auto& [name, value] : there) {
      if (name != extent) continue;
      add(
          fmt::format("{} {}", title, value),
          [&, wanted_name = name, wanted = value](const ConvSummary& s) -> const GeometricMean* {
            const auto found = std::ranges::find_if(s.parts, [&](const ConvSummary::Part& p) {
              return p.extent == wanted_name && p.value == wanted;
            });
            return found == s.parts.end() ? nullptr : &found->mean;
          },
          mean_text);
    }
  }
  return "\n" + table.str(0, width);
}

// What a row's speed-up is at least, at 95 %: by medians, the rows that were measured worst would come first.
double sure_speedup(const ConvRow& row, const std::string& base) {
  const ConvBase* found = row.find(base);
  return found != nullptr ? found->speedup.low : 0;
}

std::string rows_table(const std::vector<ConvRow>& rows, const std::vector<std::string>& bases,
                       std::size_t top, int width) {
  using enum Table::Align;
  std::vector<const ConvRow*> order;
  for (const ConvRow& row : rows) {
    if (row.problem.empty()) order.push_back(&row);
  }
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](const ConvRow* row) { return sure_speedup(*row, bases[0]); });
  order.resize(std::min(top, order.size()));
  if (order.empty()) return {};
  std::vector<Table::Column> columns = {
      {"layer", left, 0, true}, {"runs", left, 1},      {"precision"},        {"ms", right},
      {"quartiles", right, 6},  {"in cache", right, 5}, {"% limit", right, 4}};
  for (std::size_t b = 0; b < bases.size(); ++b) {
    columns.push_back({bases[b] + " ms", right, b == 0 ? 0 : 3});
    columns.push_back({b == 0 ? "x [95 %]" : "x " + bases[b], right, b == 0 ? 0 : 2});
  }
  columns.insert(columns.end(), {{"MAE", right, 7}, {"max", right, 8}, {"rel. L2", right, 2}});
  Table table(columns);
  for (const ConvRow* row : order) {
    std::vector<std::string> cells = {
        row->point.name(),
        row->runs,
        std::string(precision_name(row->precision)),
        fmt::format("{:.4f}", row->times.ms),
        fmt::format("{:.4f}-{:.4f}", row->times.low_ms, row->times.high_ms),
        row->cached_ms > 0 ? fmt::format("{:.4f}", row->cached_ms) : "",
        row->floor_ms > 0 ? fmt::format("{:.0f}", 100 * row->floor_ms / row->times.ms) : ""};
    for (const std::string& base : bases) {
      const ConvBase* found = row->find(base);
      cells.push_back(found != nullptr ? fmt::format("{:.4f}", found->ms) : "");
      cells.push_back(found != nullptr ? speedup_text(found->speedup) : "");
    }
    cells.insert(cells.end(), {fmt::format("{:.3g}", row->mae), fmt::format("{:.3g}", row->max_error),
                               fmt::format("{:.4f}", row->relative_l2)});
    table.add(std::move(cells));
  }
  return "\n" + table.str(0, width);
}

std::string problems_text(const std::vector<ConvRow>& rows, int width) {
  std::map<std::string, std::int64_t> problems;
  const auto count = [&](const std::string& who, const std::string& problem) {
    if (!problem.empty()) ++problems[who + problem.substr(0, problem.find('\n'))];
  };
  for (const ConvRow& row : rows) {
    count("", row.problem);
    for (const ConvBase& base : row.against) count(base.base + ": ", base.problem);
  }
  std::string text;
  for (const auto& [problem, times] : problems)
    text += wrapped(fmt::format("{} did not run: {}\n", counted(times, "layer"), problem), 2, width);
  return text;
}

}  // namespace

std::string conv_table(const tools::ConvSweep& sweep, std::size_t top, int width) {
  std::string text;
  for (const ConvSummary& s : sweep.summaries) text += summary_text(s, width);
  return text + parts_table(sweep.summaries, width) + rows_table(sweep.rows, sweep.bases, top, width) +
         problems_text(sweep.rows, width);
}

std::string conv_svg(const tools::ConvSweep& sweep) {
  std::set<std::int64_t> sizes, channels;
  for (const ConvRow& row : sweep.rows) {
    sizes.insert(row.point.size);
    channels.insert(row.point.in);
  }
  std::vector<tools::HeatMap> maps;
  for (const ConvSummary& s : sweep.summaries) {
    if (s.all.rows == 0) continue;
    tools::HeatMap map;
    map.title =
        fmt::format("{}: times as fast, geometric mean {:.2f} of {}", title_of(s), s.all.mean, s.all.rows);
    map.columns_are = "image size";
    map.rows_are = "input channels";
    for (const std::int64_t size : sizes) map.columns.push_back(std::to_string(size));
    for (const std::int64_t in : channels) {
      map.rows.push_back(std::to_string(in));
      std::vector<std::optional<double>>& ratios = map.ratios.emplace_back();
      for (const std::int64_t size : sizes) {
        std::vector<double> speedups;
        for (const ConvRow& row : sweep.rows) {
          if (row.precision != s.precision || row.backend != s.backend) continue;
          if (row.point.size != size || row.point.in != in) continue;
          if (const ConvBase* base = row.find(s.base)) speedups.push_back(base->speedup.median);
        }
        ratios.push_back(speedups.empty() ? std::nullopt : std::optional(mean_speedup(speedups)));
      }
    }
    maps.push_back(std::move(map));
  }
  return maps.empty() ? std::string() : tools::heat_map_svg(maps);
}

}  // namespace pipit::internal::apps
