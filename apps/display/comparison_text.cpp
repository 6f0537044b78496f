#include "apps/display/comparison_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "apps/display/table.h"

namespace pipit::internal::apps {

namespace {

using tools::ComparedLayer;
using tools::TimeChange;

constexpr std::size_t kShownRows = 10;  // of a sweep, at either end

Table layers_table(const char* what) {
  using enum Table::Align;
  return Table({{"layer", left, 0, true},
                {what, left, 3},
                {"ms", right},
                {"ms", right},
                {"x", right},
                {"95 %", left, 2},
                {""}});
}

// "[1.031, 1.071]", or nothing where there is too little to tell.
std::string interval_text(const tools::ComparedTimes& times) {
  if (!std::isfinite(times.high)) return {};
  return times.high < 100 ? fmt::format("[{:.3f}, {:.3f}]", times.low, times.high)
                          : fmt::format("[{:.3f}, {:.0e}]", times.low, times.high);
}

void add_layer(Table& table, const ComparedLayer& layer) {
  const auto ms = [](double time) { return time > 0 ? fmt::format("{:.4f}", time) : ""; };
  std::vector<std::string> cells = {layer.name, layer.type, ms(layer.first_ms), ms(layer.second_ms)};
  if (layer.ratio) {
    const TimeChange change = layer.ratio->change;
    const bool shown = change == TimeChange::slower || change == TimeChange::faster;
    cells.insert(cells.end(), {fmt::format("{:.3f}", layer.ratio->ratio), interval_text(*layer.ratio),
                               shown ? layer.ratio->verdict : ""});
  }
  table.add(std::move(cells));
}

std::string sweep_text(const tools::TimeComparison& comparison, int width) {
  std::vector<const ComparedLayer*> rows;
  std::map<TimeChange, std::int64_t> verdicts;
  for (const ComparedLayer& row : comparison.layers) {
    if (!row.ratio) continue;
    rows.push_back(&row);
    ++verdicts[row.ratio->change];
  }
  std::ranges::stable_sort(rows, std::ranges::greater{},
                           [](const ComparedLayer* row) { return row->ratio->ratio; });
  Table table = layers_table("how");
  const std::size_t left_out = rows.size() > 2 * kShownRows ? rows.size() - 2 * kShownRows : 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (r == kShownRows && left_out > 0) {
      table.add({fmt::format("... and {} between", counted(static_cast<std::int64_t>(left_out), "row"))});
      r += left_out;
    }
    add_layer(table, *rows[r]);
  }
  std::string verdict = counted(std::ssize(rows), "row") + " on both sides";
  if (verdicts[TimeChange::unknown] < std::ssize(rows))
    verdict +=
        fmt::format(": {} slower, {} faster, {} no difference that this data can show",
                    verdicts[TimeChange::slower], verdicts[TimeChange::faster], verdicts[TimeChange::none]);
  if (verdicts[TimeChange::unknown] > 0)
    verdict += fmt::format(", {} with too few processes to tell", verdicts[TimeChange::unknown]);
  return table.str(0, width) + wrapped(verdict + "\n", 2, width);
}

std::string compared_text(const tools::TimeComparison& comparison, int width) {
  return wrapped(comparison.first == comparison.second
                     ? comparison.first + "\n"
                     : fmt::format("{}  ->  {}\n", comparison.first, comparison.second),
                 2, width);
}

std::string whole_text(const tools::TimeComparison& comparison, int width) {
  const std::string what = comparison.what == "run" ? "whole run" : comparison.what;
  return wrapped(fmt::format("{}  {:.4f} -> {:.4f} ms: {}\n", what, comparison.first_ms, comparison.second_ms,
                             comparison.ratio.text),
                 2, width);
}

}  // namespace

std::string comparison_text(const tools::TimeComparison& comparison, int width) {
  std::string text = compared_text(comparison, width);
  if (comparison.what == "geometric mean") {
    text += sweep_text(comparison, width);
  } else if (!comparison.layers.empty()) {
    Table table = layers_table("type");
    for (const ComparedLayer& layer : comparison.layers) add_layer(table, layer);
    text += table.str(0, width);
  }
  return text + whole_text(comparison, width);
}

}  // namespace pipit::internal::apps
