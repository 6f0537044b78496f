#include "apps/measuring/conv_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "apps/display/table.h"
#include "engine/base/time_ratio.h"
#include "pipit/report.h"

namespace pipit::internal::apps {

namespace {

using Json = nlohmann::ordered_json;

struct ConvExtent {
  const char* name;
  const char* title;
  std::int64_t ConvPoint::*value;
};
constexpr ConvExtent kExtents[] = {
    {"n", "images", &ConvPoint::batch},          {"in", "input channels", &ConvPoint::in},
    {"out", "output channels", &ConvPoint::out}, {"size", "image size", &ConvPoint::size},
    {"kernel", "window", &ConvPoint::kernel},    {"stride", "stride", &ConvPoint::stride}};

GeometricMean mean_of_logarithms(const std::vector<double>& values) {
  GeometricMean result;
  result.rows = values.size();
  if (values.empty()) return result;
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  const double mean = sum / count;
  result.mean = std::exp(mean);
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (std::log(value) - mean) * (std::log(value) - mean);
  const double half = student_limit(count - 1, 0.95) * std::sqrt(squares / (count - 1) / count);
  result.low = std::exp(mean - half);
  result.high = std::exp(mean + half);
  return result;
}

std::string mean_text(const GeometricMean& mean) {
  if (mean.rows == 0) return {};
  if (mean.low == 0) return fmt::format("{:.2f}", mean.mean);
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", mean.mean, mean.low, mean.high);
}

std::string speedup_text(const MedianInterval& speedup) {
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", speedup.median, speedup.low, speedup.high);
}

// A row that was measured, and what it was held against.
struct HeldRow {
  const ConvRow* row;
  const ConvBase* base;
};

std::vector<ConvSummary::Part> parts_of(const std::vector<HeldRow>& pairs) {
  std::vector<ConvSummary::Part> parts;
  for (const ConvExtent& extent : kExtents) {
    std::map<std::int64_t, std::vector<double>> speedups;
    for (const auto& [row, base] : pairs) speedups[row->point.*extent.value].push_back(base->speedup.median);
    if (speedups.size() < 2) continue;
    for (const auto& [value, of_value] : speedups)
      parts.push_back({extent.name, value, mean_of_logarithms(of_value)});
  }
  return parts;
}

ConvSummary summary_of(const std::vector<HeldRow>& pairs) {
  ConvSummary summary;
  std::vector<double> speedups, cached, shares;
  std::map<std::int64_t, const HeldRow*> best;
  for (const HeldRow& pair : pairs) {
    const auto& [row, base] = pair;
    speedups.push_back(base->speedup.median);
    if (base->cached_ms > 0) cached.push_back(base->cached_speedup.median);
    if (row->floor_ms > 0) shares.push_back(row->floor_ms / row->times.ms);
    summary.faster += base->speedup.low > 1 + kPlaceEffect ? 1 : 0;
    summary.slower += base->speedup.high < 1 / (1 + kPlaceEffect) ? 1 : 0;
    const HeldRow*& at = best[row->point.size];
    if (at == nullptr || at->base->speedup.low < base->speedup.low) at = &pair;
  }
  summary.all = mean_of_logarithms(speedups);
  summary.cached = mean_of_logarithms(cached);
  summary.share_of_limit = mean_of_logarithms(shares);
  summary.parts = parts_of(pairs);
  for (const auto& [size, pair] : best) summary.best.push_back(*pair->row);
  return summary;
}

std::string summary_text(const ConvSummary& s, int width) {
  std::string line =
      fmt::format("{}: {}", s.title(), counted(static_cast<std::int64_t>(s.all.rows), "layer"));
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
    columns.push_back({all[i].title(), right, static_cast<int>(i)});
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
  for (const ConvExtent& extent : kExtents) {
    for (const auto& [name, value] : there) {
      if (name != extent.name) continue;
      add(
          fmt::format("{} {}", extent.title, value),
          [&, wanted = value](const ConvSummary& s) -> const GeometricMean* {
            const auto found = std::ranges::find_if(s.parts, [&](const ConvSummary::Part& p) {
              return p.extent == extent.name && p.value == wanted;
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
        row->precision,
        fmt::format("{:.4f}", row->times.ms),
        fmt::format("{:.4f}-{:.4f}", row->times.low_ms, row->times.high_ms),
        row->cached_ms > 0 ? fmt::format("{:.4f}", row->cached_ms) : "",
        row->floor_ms > 0 ? fmt::format("{:.0f}", 100 * row->floor_ms / row->times.ms) : ""};
    for (const std::string& base : bases) {
      const ConvBase* found = row->find(base);
      cells.push_back(found != nullptr ? fmt::format("{:.4f}", found->ms) : "");
      cells.push_back(found != nullptr ? speedup_text(found->speedup) : "");
    }
    cells.insert(cells.end(), {fmt::format("{:.3g}", row->error.mae), fmt::format("{:.3g}", row->error.max),
                               fmt::format("{:.4f}", row->error.relative_l2)});
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

Json mean_json(const GeometricMean& mean) {
  Json json = {{"layers", mean.rows}};
  json["speedup_geometric_mean"] = mean.rows > 0 ? Json(mean.mean) : Json();
  json["interval95"] = mean.low > 0 ? Json({mean.low, mean.high}) : Json();
  return json;
}

}  // namespace

std::string ConvSummary::title() const {
  return fmt::format("{}{} against {}", precision, backend == "auto" ? "" : ", " + backend, base);
}

std::vector<ConvSummary> summaries(const std::vector<ConvRow>& rows, const std::vector<std::string>& bases) {
  std::vector<std::pair<std::string, std::string>> ways;
  for (const ConvRow& row : rows) {
    const std::pair way(row.precision, row.backend);
    if (std::ranges::find(ways, way) == ways.end()) ways.push_back(way);
  }
  std::vector<ConvSummary> all;
  for (const auto& [precision, backend] : ways) {
    for (const std::string& base : bases) {
      if (base == precision && backend == "auto") continue;  // itself
      std::vector<HeldRow> held;
      std::size_t problems = 0;
      for (const ConvRow& row : rows) {
        if (row.precision != precision || row.backend != backend) continue;
        const ConvBase* found = row.find(base);
        if (found != nullptr) {
          held.push_back({&row, found});
        } else {
          ++problems;
        }
      }
      ConvSummary& summary = all.emplace_back(summary_of(held));
      summary.precision = precision;
      summary.backend = backend;
      summary.base = base;
      summary.problems = problems;
    }
  }
  return all;
}

std::string conv_table(const std::vector<ConvRow>& rows, const std::vector<std::string>& bases,
                       std::size_t top, int width) {
  const std::vector<ConvSummary> all = summaries(rows, bases);
  std::string text;
  for (const ConvSummary& s : all) text += summary_text(s, width);
  return text + parts_table(all, width) + rows_table(rows, bases, top, width) + problems_text(rows, width);
}

Json summaries_json(const std::vector<ConvRow>& rows, const std::vector<std::string>& bases) {
  Json json = Json::array();
  for (const ConvSummary& s : summaries(rows, bases)) {
    Json summary = {{"precision", s.precision}, {"backend", s.backend}, {"base", s.base}};
    summary.update(mean_json(s.all));
    summary["did_not_run"] = s.problems;
    summary["faster"] = s.faster;
    summary["slower"] = s.slower;
    if (s.cached.rows > 0) summary["cached"] = mean_json(s.cached);
    if (s.share_of_limit.rows > 0) summary["share_of_limit"] = s.share_of_limit.mean;
    summary["by"] = Json::object();
    for (const ConvSummary::Part& part : s.parts) {
      Json entry = {{"value", part.value}};
      entry.update(mean_json(part.mean));
      summary["by"][part.extent].push_back(std::move(entry));
    }
    summary["best_by_size"] = Json::array();
    for (const ConvRow& row : s.best) summary["best_by_size"].push_back(row.json());
    json.push_back(std::move(summary));
  }
  return json;
}

std::string conv_svg(const std::vector<ConvRow>& rows, const std::vector<std::string>& bases) {
  std::set<std::int64_t> sizes, channels;
  for (const ConvRow& row : rows) {
    sizes.insert(row.point.size);
    channels.insert(row.point.in);
  }
  std::vector<tools::HeatMap> maps;
  for (const ConvSummary& s : summaries(rows, bases)) {
    if (s.all.rows == 0) continue;
    tools::HeatMap map;
    map.title =
        fmt::format("{}: times as fast, geometric mean {:.2f} of {}", s.title(), s.all.mean, s.all.rows);
    map.columns_are = "image size";
    map.rows_are = "input channels";
    for (const std::int64_t size : sizes) map.columns.push_back(std::to_string(size));
    for (const std::int64_t in : channels) {
      map.rows.push_back(std::to_string(in));
      std::vector<std::optional<double>>& ratios = map.ratios.emplace_back();
      for (const std::int64_t size : sizes) {
        std::vector<double> speedups;
        for (const ConvRow& row : rows) {
          if (row.precision != s.precision || row.backend != s.backend) continue;
          if (row.point.size != size || row.point.in != in) continue;
          if (const ConvBase* base = row.find(s.base)) speedups.push_back(base->speedup.median);
        }
        ratios.push_back(speedups.empty() ? std::nullopt : std::optional(mean_of_logarithms(speedups).mean));
      }
    }
    maps.push_back(std::move(map));
  }
  return maps.empty() ? std::string() : tools::heat_map_svg(maps);
}

}  // namespace pipit::internal::apps
