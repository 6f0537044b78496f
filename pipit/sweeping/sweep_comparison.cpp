#include "pipit/sweeping/sweep_comparison.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/error.h"
#include "engine/base/statistics.h"
#include "pipit/measuring/comparison.h"

namespace pipit::internal::detail {

namespace {

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

tools::ComparedLayer compared(const SweptRow* first, const SweptRow* second) {
  const SweptRow& named = first != nullptr ? *first : *second;
  tools::ComparedLayer row{named.layer, named.how};
  if (first != nullptr) row.first_ms = typical_ms(first->processes);
  if (second != nullptr) row.second_ms = typical_ms(second->processes);
  return row;
}

}  // namespace

tools::TimeComparison compare_sweeps(const SweptRows& first, const SweptRows& second) {
  if (first.sweep != second.sweep) fail("one is of {}, the other of {}", first.sweep, second.sweep);
  std::map<std::pair<std::string, std::string>, const SweptRow*> others;
  for (const SweptRow& row : second.rows) others[{row.layer, row.how}] = &row;
  std::vector<Pair> pairs;
  tools::TimeComparison comparison;
  std::vector<tools::ComparedLayer> alone;
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
  for (std::size_t i = 0; i < ratios.size(); ++i) comparison.layers[i].ratio = compared_times(ratios[i]);
  const TimedProcesses first_means = means_of(of_first, fewest_processes(of_first));
  const TimedProcesses second_means = means_of(of_second, fewest_processes(of_second));
  comparison.first = first.text();
  comparison.second = second.text();
  comparison.what = "geometric mean";
  comparison.first_ms = typical_ms(first_means);
  comparison.second_ms = typical_ms(second_means);
  comparison.ratio = compared_times(compare_times(first_means, second_means));
  comparison.layers.insert(comparison.layers.end(), alone.begin(), alone.end());
  return comparison;
}

}  // namespace pipit::internal::detail
