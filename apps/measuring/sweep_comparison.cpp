#include "apps/measuring/sweep_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "apps/display/table.h"
#include "engine/base/error.h"
#include "engine/base/statistics.h"

namespace pipit::internal::apps {

namespace {

constexpr std::size_t kShownRows = 10;  // at either end

using Pair = std::pair<const SweptRow*, const SweptRow*>;

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

// The geometric mean over all rows of each process.
TimedProcesses means_of(const std::vector<const SweptRow*>& rows, std::size_t processes) {
  TimedProcesses means;
  for (std::size_t p = 0; p < processes; ++p) {
    std::vector<double> medians;
    for (const SweptRow* row : rows) medians.push_back(quantile(row->processes[p], 0.5));
    means.push_back({geometric_mean(medians)});
  }
  return means;
}

std::size_t fewest_processes(const std::vector<const SweptRow*>& rows) {
  std::size_t fewest = rows[0]->processes.size();
  for (const SweptRow* row : rows) fewest = std::min(fewest, row->processes.size());
  return fewest;
}

ComparedLayer compared(const SweptRow* first, const SweptRow* second) {
  const SweptRow& named = first != nullptr ? *first : *second;
  ComparedLayer row{named.layer, named.how};
  if (first != nullptr) row.first_ms = typical_ms(first->processes);
  if (second != nullptr) row.second_ms = typical_ms(second->processes);
  return row;
}

}  // namespace

TimeComparison compare_sweeps(const SweptRows& first, const SweptRows& second) {
  if (first.sweep != second.sweep) fail("one is of {}, the other of {}", first.sweep, second.sweep);
  std::map<std::pair<std::string, std::string>, const SweptRow*> others;
  for (const SweptRow& row : second.rows) others[{row.layer, row.how}] = &row;
  std::vector<Pair> pairs;
  TimeComparison comparison;
  std::vector<ComparedLayer> alone;
  for (const SweptRow& row : first.rows) {
    const auto found = others.find({row.layer, row.how});
    const SweptRow* other = found == others.end() ? nullptr : found->second;
    if (found != others.end()) others.erase(found);
    if (other != nullptr && !row.processes.empty() && !other->processes.empty()) {
      pairs.emplace_back(&row, other);
    } else {
      alone.push_back(compared(&row, other));
    }
  }
  for (const SweptRow& row : second.rows) {
    if (others.contains({row.layer, row.how})) alone.push_back(compared(nullptr, &row));
  }
  if (pairs.empty()) fail("no configuration was measured on both sides");
  std::vector<const SweptRow*> of_first, of_second;
  std::vector<TimedPair> timed;
  for (const auto& [a, b] : pairs) {
    comparison.layers.push_back(compared(a, b));
    timed.push_back({a->processes, b->processes});
    of_first.push_back(a);
    of_second.push_back(b);
  }
  const std::vector<TimeRatio> ratios = compare_together(timed);
  for (std::size_t i = 0; i < ratios.size(); ++i) comparison.layers[i].ratio = ratios[i];
  const TimedProcesses first_means = means_of(of_first, fewest_processes(of_first));
  const TimedProcesses second_means = means_of(of_second, fewest_processes(of_second));
  comparison.first = first.text();
  comparison.second = second.text();
  comparison.of_sweeps = true;
  comparison.first_ms = typical_ms(first_means);
  comparison.second_ms = typical_ms(second_means);
  comparison.ratio = compare_times(first_means, second_means);
  comparison.layers.insert(comparison.layers.end(), alone.begin(), alone.end());
  return comparison;
}

std::string sweep_comparison_text(const TimeComparison& comparison, int width) {
  using enum Table::Align;
  std::vector<const ComparedLayer*> rows;
  std::map<TimeVerdict, std::int64_t> verdicts;
  for (const ComparedLayer& row : comparison.layers) {
    if (!row.ratio) continue;
    rows.push_back(&row);
    ++verdicts[row.ratio->verdict];
  }
  std::ranges::stable_sort(rows, std::ranges::greater{},
                           [](const ComparedLayer* row) { return row->ratio->ratio; });
  std::string text = compared_text(comparison, width);
  Table table({{"layer", left, 0, true},
               {"how", left, 3},
               {"ms", right},
               {"ms", right},
               {"x", right},
               {"95 %", left, 2},
               {""}});
  const std::size_t left_out = rows.size() > 2 * kShownRows ? rows.size() - 2 * kShownRows : 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (r == kShownRows && left_out > 0) {
      table.add({fmt::format("... and {} between", counted(static_cast<std::int64_t>(left_out), "row"))});
      r += left_out;
    }
    const ComparedLayer& row = *rows[r];
    table.add({row.name, row.type, fmt::format("{:.4f}", row.first_ms), fmt::format("{:.4f}", row.second_ms),
               fmt::format("{:.3f}", row.ratio->ratio), interval_text(*row.ratio),
               row.ratio->is_shown() ? std::string(verdict_name(*row.ratio)) : ""});
  }
  text += table.str(0, width);
  std::string verdict = counted(std::ssize(rows), "row") + " on both sides";
  if (verdicts[TimeVerdict::unknown] < std::ssize(rows))
    verdict += fmt::format(": {} slower, {} faster, {} no difference that this data can show",
                           verdicts[TimeVerdict::slower], verdicts[TimeVerdict::faster],
                           verdicts[TimeVerdict::no_difference]);
  if (verdicts[TimeVerdict::unknown] > 0)
    verdict += fmt::format(", {} with too few processes to tell", verdicts[TimeVerdict::unknown]);
  return text + wrapped(verdict + "\n", 2, width) + whole_text(comparison, width);
}

}  // namespace pipit::internal::apps
