#include "pipit/sweeping/conv_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/statistics.h"
#include "engine/base/time_ratio.h"
#include "pipit/sweeping/conv_rows.h"

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;
using tools::ConvBase, tools::ConvPoint, tools::ConvRow, tools::ConvSummary, tools::GeometricMean;

struct ConvExtent {
  const char* name;
  std::int64_t ConvPoint::*value;
};
constexpr ConvExtent kExtents[] = {{"n", &ConvPoint::batch},       {"in", &ConvPoint::in},
                                   {"out", &ConvPoint::out},       {"size", &ConvPoint::size},
                                   {"kernel", &ConvPoint::kernel}, {"stride", &ConvPoint::stride}};

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

Json mean_json(const GeometricMean& mean) {
  Json json = {{"layers", mean.rows}};
  json["speedup_geometric_mean"] = mean.rows > 0 ? Json(mean.mean) : Json();
  json["interval95"] = mean.low > 0 ? Json({mean.low, mean.high}) : Json();
  return json;
}

}  // namespace

std::vector<ConvSummary> summaries_of(const std::vector<ConvRow>& rows,
                                      const std::vector<std::string>& bases) {
  std::vector<std::pair<Precision, std::string>> ways;
  for (const ConvRow& row : rows) {
    const std::pair way(row.precision, row.backend);
    if (std::ranges::find(ways, way) == ways.end()) ways.push_back(way);
  }
  std::vector<ConvSummary> all;
  for (const auto& [precision, backend] : ways) {
    for (const std::string& base : bases) {
      if (base == precision_name(precision) && backend == "auto") continue;  // itself
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

Json summaries_json(const std::vector<ConvSummary>& summaries) {
  Json json = Json::array();
  for (const ConvSummary& s : summaries) {
    Json summary = {{"precision", precision_name(s.precision)}, {"backend", s.backend}, {"base", s.base}};
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
    for (const ConvRow& row : s.best) summary["best_by_size"].push_back(conv_row_json(row));
    json.push_back(std::move(summary));
  }
  return json;
}

}  // namespace pipit::internal::detail
