#include "pipit/sweeping/sweep_csv.h"

#include <fmt/ranges.h>

#include <vector>

#include "pipit/measuring/json_documents.h"
#include "pipit/report/csv.h"
#include "pipit/sweeping/conv_rows.h"
#include "pipit/sweeping/sparsity_rows.h"

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;
using tools::ConvBase, tools::ConvPoint, tools::ConvRow;

// With a comma after each.
std::string machine_cells(const Json& document) {
  return fmt::format("{},{},", csv_cell(text_of(document, "device")), count_of(document, "threads"));
}

// Empty where it was not measured.
std::string number_cell(double value) {
  return value > 0 ? fmt::format("{}", value) : "";
}

constexpr const char* kBaseTitles[] = {"runs",
                                       "ms",
                                       "speedup",
                                       "speedup_low",
                                       "speedup_high",
                                       "cached_ms",
                                       "cached_speedup",
                                       "cached_speedup_low",
                                       "cached_speedup_high"};
constexpr std::size_t kBaseColumns = std::size(kBaseTitles);

// With a comma after each.
std::string base_cells(const ConvBase* base) {
  if (base == nullptr || !base->problem.empty()) return std::string(kBaseColumns, ',');
  std::string cells = fmt::format("{},{},{},{},{},", csv_cell(base->runs), base->ms, base->speedup.median,
                                  base->speedup.low, base->speedup.high);
  if (base->cached_ms == 0) return cells + ",,,,";
  const tools::Speedup& cached = base->cached_speedup;
  return cells + fmt::format("{},{},{},{}", base->cached_ms, cached.median, cached.low, cached.high) + ",";
}

std::string conv_csv(const Json& document) {
  std::vector<std::string> bases;
  for (const Json& base : list_of(document, "bases")) bases.push_back(base.get<std::string>());
  const std::string machine = machine_cells(document);
  std::string csv =
      "device,threads,n,in,out,size,kernel,stride,precision,backend,runs,ms,ms_low,ms_high,turns,samples_ms,"
      "cached_ms,floor_ms,binds,";
  for (const std::string& base : bases) {
    for (const char* title : kBaseTitles) csv += fmt::format("{}_{},", base, title);
  }
  csv += "mae,max_error,relative_l2,macs,bytes,arena_bytes,problem\n";
  for (const Json& entry : list_of(document, "rows")) {
    const ConvRow row = conv_row_from(entry);
    const ConvPoint& p = row.point;
    csv += machine + fmt::format("{},{},{},{},{},{},{},{},", p.batch, p.in, p.out, p.size, p.kernel, p.stride,
                                 precision_name(row.precision), csv_cell(row.backend));
    if (!row.problem.empty()) {
      csv += std::string(15 + kBaseColumns * bases.size(), ',') + csv_cell(csv_name(row.problem)) + "\n";
      continue;
    }
    csv += fmt::format("{},{},{},{},{},{},{},{},{},", csv_cell(row.runs), row.times.ms, row.times.low_ms,
                       row.times.high_ms, row.times.turns, fmt::join(row.times.samples_ms, " "),
                       number_cell(row.cached_ms), number_cell(row.floor_ms), row.binds);
    for (const std::string& base : bases) csv += base_cells(row.find(base));
    csv += fmt::format("{},{},{},{},{},{},\n", row.mae, row.max_error, row.relative_l2, p.macs(), row.bytes,
                       row.arena_bytes);
  }
  return csv;
}

std::string sparsity_csv(const Json& document) {
  const std::string machine = machine_cells(document);
  std::string csv =
      "device,threads,layer,precision,mode,keep,kept,kernel,dense_kernel,ms,ms_low,ms_high,dense_ms,turns,"
      "speedup,speedup_low,speedup_high,samples_ms,mae,max_error,relative_l2,top10,refit_mae,refit_max_error,"
      "refit_relative_l2,refit_top10,problem\n";
  constexpr int kMeasured = 20;  // columns of what is not there with a problem
  const auto errors = [](const tools::OutputError& e) {
    return fmt::format(",{},{},{},{}", e.mae, e.max, e.relative_l2, e.top10);
  };
  for (const Json& entry : list_of(document, "rows")) {
    const tools::SparsityRow row = sparsity_row_from(entry);
    csv += machine + fmt::format("{},{},{},{},", csv_cell(csv_name(row.layer)), precision_name(row.precision),
                                 mode_name(row), row.keep);
    if (!row.problem.empty()) {
      csv += std::string(kMeasured, ',') + csv_cell(csv_name(row.problem)) + "\n";
      continue;
    }
    const tools::SweptTimes& times = row.times;
    csv += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}", row.kept, csv_cell(row.kernel),
                       csv_cell(row.dense_kernel), times.ms, times.low_ms, times.high_ms, row.dense_ms,
                       times.turns, row.speedup.median, row.speedup.low, row.speedup.high,
                       fmt::join(times.samples_ms, " "));
    csv += errors(row.error) + (row.refit ? errors(*row.refit) : ",,,,") + ",\n";
  }
  return csv;
}

}  // namespace

std::string sweep_csv(const Json& document) {
  return text_of(document, "command") == "sweep conv" ? conv_csv(document) : sparsity_csv(document);
}

}  // namespace pipit::internal::detail
