#include "pipit/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/base/statistics.h"
#include "engine/platform/device.h"
#include "engine/platform/float_mode.h"
#include "pipit/detail/checked.h"
#include "pipit/measuring/bench_rows.h"
#include "pipit/measuring/comparison.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/machine_ceilings.h"
#include "pipit/measuring/timing.h"
#include "pipit/text.h"
#include "pipit/version.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

using Json = nlohmann::ordered_json;
using Group = std::vector<MeasuredRow*>;

void check(const std::vector<std::string>& models, const BenchOptions& options) {
  if (models.empty()) throw ArgumentError("no model is given; there is nothing to time");
  if (options.seconds && !(*options.seconds >= 0 && *options.seconds <= 86400))
    throw ArgumentError(fmt::format("seconds is {}; expected 0 to 86400", *options.seconds));
  if (options.runs && *options.runs < 1)
    throw ArgumentError(fmt::format("runs is {}; expected 1 or more", *options.runs));
  if (options.warmup < 1)
    throw ArgumentError(fmt::format("warmup is {}; expected 1 or more", options.warmup));
  if (options.max_slowdown && !(*options.max_slowdown >= 0))
    throw ArgumentError(fmt::format("max_slowdown is {} %; expected 0 or more", *options.max_slowdown));
}

// Every combination, models outermost, streams innermost; what it is compared with follows its model.
std::vector<MeasuredRow> combinations(const std::vector<std::string>& models, const BenchOptions& options) {
  const std::vector<TimedSetting> settings = settings_of(options.timing, options.streams);
  std::vector<MeasuredRow> rows;
  for (const std::string& model : models) {
    for (const TimedSetting& setting : settings) {
      for (const std::string& name : {model, options.against}) {
        if (name.empty()) continue;
        MeasuredRow& measured = rows.emplace_back();
        measured.row.model = name;
        measured.setting = setting;
      }
    }
  }
  return rows;
}

// Rows that are compared with their first one: a model and the other, or a model's precisions and streams. Groups are
// in the order of their first rows.
std::vector<Group> groups_of(const BenchOptions& options, std::vector<MeasuredRow>& rows) {
  std::vector<Group> groups;
  for (MeasuredRow& row : rows) {
    const auto group = std::ranges::find_if(groups, [&](const Group& known) {
      const MeasuredRow& first = *known[0];
      if (!options.against.empty()) return known.size() == 1;
      return first.row.model == row.row.model && first.setting.batch == row.setting.batch &&
             first.setting.threads == row.setting.threads &&
             (first.setting.precision.kind() != row.setting.precision.kind() ||
              first.setting.streams != row.setting.streams);
    });
    if (group == groups.end()) {
      groups.push_back({&row});
    } else {
      group->push_back(&row);
    }
  }
  return groups;
}

// What the row says of its setting and its times.
void finish(MeasuredRow& measured, bool streams) {
  BenchRow& row = measured.row;
  row.precision = measured.setting.precision.kind();
  row.batch = measured.setting.batch.value_or(1);
  row.threads = measured.setting.threads;
  row.streams = measured.setting.streams;
  row.setting = measured.setting.text();
  if (!row.error.empty()) return;
  const auto images_per_s = [&](double ms) { return 1e3 * static_cast<double>(row.batch) / ms; };
  const auto of_turns = [&](double q) { return images_per_s(quantile(measured.turns_ms, q)); };
  row.images_per_s = streams ? of_turns(0.5) : images_per_s(row.median_ms);
  if (streams) {
    row.images_per_s_p10 = of_turns(0.9);
    row.images_per_s_p90 = of_turns(0.1);
  }
  row.note = busy_note(fmt::format("{}, {}", row.model, row.setting), row.samples_ms);
}

std::string text_of(const BenchRow& row) {
  return fmt::format("{}, {}", printable(row.model), row.setting);
}

std::vector<TimeComparison> compare_rows(const std::vector<Group>& groups, const BenchOptions& options) {
  const bool streams = !options.streams.empty();
  const auto typical = [&](const MeasuredRow& measured) {
    return streams ? quantile(measured.turns_ms, 0.5) : measured.row.median_ms;
  };
  std::vector<TimeComparison> comparisons;
  for (const Group& group : groups) {
    const MeasuredRow& first = *group[0];
    for (const MeasuredRow* other : group) {
      if (other == &first || !other->row.error.empty() || !first.row.error.empty()) continue;
      TimeComparison& comparison = comparisons.emplace_back();
      comparison.first = text_of(first.row);
      comparison.second = text_of(other->row);
      comparison.what = streams ? "time over runs" : "run";
      comparison.first_ms = typical(first);
      comparison.second_ms = typical(*other);
      comparison.ratio = compared_times(compare_turns(first.turns_ms, other->turns_ms));
      comparison.too_slow = options.max_slowdown && fails_above(comparison.ratio, *options.max_slowdown);
    }
  }
  return comparisons;
}

// The CPU's ceilings at each number of threads of the rows.
std::vector<CpuPeak> find_peaks(const std::vector<BenchRow>& rows, const BenchOptions& options) {
  std::map<int, CpuPeak> peaks;
  for (const BenchRow& row : rows) {
    if (peaks.contains(row.threads)) continue;
    const Ceilings all = machine_ceilings(DeviceKind::cpu, 0, row.threads, options.timing.note);
    peaks[row.threads] = {row.threads, 1e-9 * all.find(Products::fp32)->flops.best,
                          1e-9 * all.memory.back().read.best};
  }
  std::vector<CpuPeak> list;
  for (const auto& [threads, peak] : peaks) list.push_back(peak);
  return list;
}

// One for all rows, of the first that bf16 could make faster; none where bf16 is measured anyway.
void add_bf16_note(const std::vector<MeasuredRow>& rows, std::vector<std::string>& notes) {
  if (std::ranges::any_of(rows,
                          [](const MeasuredRow& r) { return r.setting.precision.kind() == Precision::bf16; }))
    return;
  const auto row =
      std::ranges::find_if(rows, [](const MeasuredRow& r) { return r.row.error.empty() && r.bf16; });
  if (row != rows.end()) notes.push_back(bf16_note(row->row.model, *row->bf16));
}

Json row_json(const BenchRow& row, const BenchOptions& options) {
  Json json;
  json["model"] = row.model;
  json["device"] = device_name(options.timing.load.device.kind);
  json["precision"] = precision_name(row.precision);
  json["batch"] = row.batch;
  json["threads"] = row.threads;
  if (!options.streams.empty()) json["streams"] = row.streams;
  if (!row.error.empty()) {
    json["error"] = row.error;
    return json;
  }
  if (row.input_type) json["input_type"] = dtype_name(*row.input_type);
  json["runs"] = row.runs;
  json["median_ms"] = row.median_ms;
  json["p90_ms"] = row.p90_ms;
  json["p99_ms"] = row.p99_ms;
  json["mean_ms"] = row.mean_ms;
  json["cv"] = row.cv;
  json["images_per_s"] = row.images_per_s;
  if (row.images_per_s_p10) {
    json["images_per_s_p10"] = *row.images_per_s_p10;
    json["images_per_s_p90"] = *row.images_per_s_p90;
  }
  if (row.graph_ms > 0) json["graph_ms"] = row.graph_ms;
  json["load_ms"] = row.load_ms;
  json["first_run_ms"] = row.first_run_ms;
  json["arena_bytes"] = row.arena_bytes;
  json["peak_rss_bytes"] = row.peak_rss_bytes;
  json["samples_ms"] = row.samples_ms;
  return json;
}

Json document_json(const BenchResult& result, const BenchOptions& options) {
  const DeviceKind device = options.timing.load.device.kind;
  Json json;
  json["pipit"] = version();
  json["command"] = "bench";
  json["schema"] = kTimesSchema;
  json["device"] = device_name(device);
  json["machine"] = device == DeviceKind::cuda ? gpu_description(0) : cpu_description();
  json["results"] = Json::array();
  for (const BenchRow& row : result.rows) json["results"].push_back(row_json(row, options));
  for (const TimeComparison& comparison : result.comparisons)
    json["comparisons"].push_back(comparison_json(comparison));
  if (options.max_slowdown) {
    json["fail_above"] = *options.max_slowdown;
    json["failed"] = result.too_slow;
  }
  for (const CpuPeak& peak : result.peaks) {
    json["peaks"].push_back({{"threads", peak.threads},
                             {"fp32_gflops", peak.fp32_gflops},
                             {"read_gb_per_s", peak.read_gb_per_s}});
  }
  return json;
}

}  // namespace

BenchResult bench(const std::vector<std::string>& models, const BenchOptions& options) {
  check(models, options);
  const ScopedFloatMode mode;
  const LoadOptions& load = options.timing.load;
  std::vector<MeasuredRow> rows = combinations(models, options);
  const std::vector<Group> groups = groups_of(options, rows);
  if (options.max_slowdown && groups.size() == rows.size())
    throw ArgumentError(
        "max_slowdown needs a comparison; give `against`, several precisions or several numbers of streams");
  check_device(load.device);
  require_device(load.device.kind);
  const std::shared_ptr<KernelTuning> tuning = kernel_tuning(load.kernels);
  std::int64_t done = 0;
  for (const Group& group : groups) {
    if (options.progress)
      options.progress(done, std::ssize(rows),
                       fmt::format("{}, {}", printable(group[0]->row.model), group[0]->setting.text()));
    measure_in_turns(options, tuning, group);
    done += std::ssize(group);
  }
  BenchResult result;
  for (MeasuredRow& measured : rows) finish(measured, !options.streams.empty());
  result.comparisons = compare_rows(groups, options);
  result.too_slow = std::ranges::any_of(result.comparisons, &TimeComparison::too_slow);
  add_bf16_note(rows, result.notes);
  for (MeasuredRow& measured : rows) result.rows.push_back(std::move(measured.row));
  if (options.peaks) result.peaks = find_peaks(result.rows, options);
  result.json = json_text(document_json(result, options));
  return result;
}

}  // namespace pipit::tools
