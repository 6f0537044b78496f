// pipit bench MODEL...: how long a run takes, for every combination of model, precision, batch and threads.
#include <algorithm>
#include <map>

#include "apps/commands/commands.h"
#include "apps/display/json_csv.h"
#include "apps/display/next_command.h"
#include "apps/display/print_json.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/measuring/bench_rows.h"
#include "apps/measuring/comparison.h"
#include "apps/options/options.h"
#include "apps/options/output_option.h"
#include "apps/options/values.h"
#include "engine/base/version.h"
#include "engine/platform/device.h"
#include "engine/platform/host_memory.h"
#include "pipit/measuring/machine_ceilings.h"
#include "pipit/measuring/runner.h"
#include "pipit/measuring/timing.h"

namespace pipit::internal::apps {

namespace {

struct BenchOptions {
  BenchTiming timing;
  std::vector<std::string> models;
  std::string against;
  OutputOption output;
  SettingLists settings;
  std::optional<double> fail_above;  // percent
  bool peak = false;
  bool wide = false;
};

using Row = BenchRow;

double images_per_s(const Row& row, double ms) {
  return 1e3 * static_cast<double>(row.setting.batch.value_or(1)) / ms;
}

// Median, and the tenths at either end, of the turns of streams.
struct Throughput {
  double median, p10, p90;

  explicit Throughput(const Row& row)
      : median(images_per_s(row, quantile(row.turns_ms, 0.5))),
        p10(images_per_s(row, quantile(row.turns_ms, 0.9))),
        p90(images_per_s(row, quantile(row.turns_ms, 0.1))) {}
};

nlohmann::ordered_json row_json(const Row& row, const BenchTiming& timing) {
  nlohmann::ordered_json json;
  json["model"] = row.model;
  json["device"] = device_name(timing.common.device);
  json["precision"] = row.setting.precision;
  json["batch"] = row.setting.batch.value_or(1);
  json["threads"] = row.setting.threads;
  if (timing.streams) json["streams"] = row.setting.streams;
  if (!row.error.empty()) {
    json["error"] = row.error;
    return json;
  }
  if (!row.input_type.empty()) json["input_type"] = row.input_type;
  json["runs"] = row.ms.count;
  json["median_ms"] = row.ms.median;
  json["p90_ms"] = row.ms.p90;
  json["p99_ms"] = row.ms.p99;
  json["mean_ms"] = row.ms.mean;
  json["cv"] = row.ms.cv;
  if (timing.streams) {
    const Throughput throughput(row);
    json["images_per_s"] = throughput.median;
    json["images_per_s_p10"] = throughput.p10;
    json["images_per_s_p90"] = throughput.p90;
  } else {
    json["images_per_s"] = images_per_s(row, row.ms.median);
  }
  if (row.graph_ms > 0) json["graph_ms"] = row.graph_ms;
  json["load_ms"] = row.load_ms;
  json["first_run_ms"] = row.first_run_ms;
  json["arena_bytes"] = row.arena_bytes;
  json["peak_rss_bytes"] = row.peak_rss_bytes;
  json["samples_ms"] = row.samples_ms;
  return json;
}

std::string bench_csv(const nlohmann::ordered_json& document) {
  return json_csv(document["results"].get<std::vector<nlohmann::ordered_json>>(),
                  {"model",        "device",           "precision",
                   "batch",        "threads",          "streams",
                   "runs",         "median_ms",        "p90_ms",
                   "p99_ms",       "mean_ms",          "cv",
                   "images_per_s", "images_per_s_p10", "images_per_s_p90",
                   "graph_ms",     "load_ms",          "first_run_ms",
                   "arena_bytes",  "peak_rss_bytes",   "error"});
}

void print_table(const std::vector<Row>& rows, const BenchTiming& timing, int width) {
  using enum Table::Align;
  const bool gpu = timing.common.device == DeviceKind::cuda;
  const bool streams = timing.streams;
  std::vector<Table::Column> columns = {
      {"model", left, 0, true}, {"precision"}, {"batch", right}, {"threads", right}};
  if (streams) columns.push_back({"streams", right});
  columns.insert(columns.end(), {{"runs", right, 4},
                                 {"median ms", right},
                                 {"p90", right, 1},
                                 {"p99", right, 3},
                                 {"cv", right, 2},
                                 {"images/s", right, streams ? 0 : 5}});
  if (streams) columns.push_back({"p10 to p90", right, 1});
  columns.insert(columns.end(), {{"load ms", right, 7}, {"peak memory", right, 6}});
  if (gpu) columns.push_back({"graph ms", right, 1});
  columns.push_back({"error", left, 0, true});
  Table table(columns);
  for (const Row& row : rows) {
    std::vector<std::string> cells = {row.model, row.setting.precision,
                                      fmt::format("{}", row.setting.batch.value_or(1)),
                                      fmt::format("{}", row.setting.threads)};
    if (streams) cells.push_back(fmt::format("{}", row.setting.streams));
    if (row.error.empty()) {
      cells.insert(cells.end(), {fmt::format("{}", row.ms.count), fmt::format("{:.3f}", row.ms.median),
                                 fmt::format("{:.3f}", row.ms.p90), fmt::format("{:.3f}", row.ms.p99),
                                 fmt::format("{:.1f}%", 100 * row.ms.cv)});
      if (streams) {
        const Throughput throughput(row);
        cells.push_back(fmt::format("{:.1f}", throughput.median));
        cells.push_back(fmt::format("{:.1f} to {:.1f}", throughput.p10, throughput.p90));
      } else {
        cells.push_back(fmt::format("{:.1f}", images_per_s(row, row.ms.median)));
      }
      cells.insert(cells.end(), {fmt::format("{:.0f}", row.load_ms), mebibytes(row.peak_rss_bytes)});
      if (gpu) cells.push_back(fmt::format("{:.4f}", row.graph_ms));
    } else {
      cells.resize(columns.size() - 1);
      cells.push_back(row.error.substr(0, row.error.find('\n')));
    }
    table.add(std::move(cells));
  }
  fmt::print("{}", table.str(0, width));
}

// Every combination, models outermost, threads innermost; what --against names follows its model.
std::vector<Row> combinations(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const std::string& model : options.models) {
    for (const Setting& setting : options.settings.all()) {
      for (const std::string& name : {model, options.against}) {
        if (name.empty()) continue;
        rows.emplace_back();
        rows.back().model = name;
        rows.back().setting = setting;
      }
    }
  }
  return rows;
}

// Rows that are compared with their first one: a model and the other, or a model's precisions and streams. Groups are
// in the order of their first rows.
std::vector<std::vector<Row*>> groups_of(const BenchOptions& options, std::vector<Row>& rows) {
  std::vector<std::vector<Row*>> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    const auto group = std::ranges::find_if(groups, [&](const std::vector<Row*>& known) {
      const Row& first = *known[0];
      if (!options.against.empty()) return known.size() == 1;
      return first.model == row.model && first.setting.batch == row.setting.batch &&
             first.setting.threads == row.setting.threads &&
             (first.setting.precision != row.setting.precision ||
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

std::string text_of_row(const Row& row) {
  TimedRuns runs;
  runs.model = row.model;
  runs.precision = row.setting.precision;
  runs.batch = row.setting.batch.value_or(1);
  runs.threads = row.setting.threads;
  runs.streams = row.setting.streams;
  return runs.text();
}

std::vector<TimeComparison> compare_rows(const std::vector<std::vector<Row*>>& groups, bool streams) {
  std::vector<TimeComparison> comparisons;
  for (const std::vector<Row*>& group : groups) {
    const Row& first = *group[0];
    for (const Row* row : group) {
      if (row == &first || !row->error.empty() || !first.error.empty()) continue;
      TimeComparison& comparison = comparisons.emplace_back();
      comparison.first = text_of_row(first);
      comparison.second = text_of_row(*row);
      comparison.of_streams = streams;
      comparison.first_ms = streams ? quantile(first.turns_ms, 0.5) : first.ms.median;
      comparison.second_ms = streams ? quantile(row->turns_ms, 0.5) : row->ms.median;
      comparison.ratio = compare_turns(first.turns_ms, row->turns_ms);
    }
  }
  return comparisons;
}

double fp32_gflops(const Ceilings& peak) {
  return 1e-9 * peak.find(Products::fp32)->flops.best;
}
double read_gb_per_s(const Ceilings& peak) {
  return 1e-9 * peak.memory.back().read.best;
}

// The CPU's ceilings at each number of threads asked for.
std::vector<std::pair<int, Ceilings>> find_peaks(const std::vector<Row>& rows, bool quiet) {
  std::map<int, Ceilings> peaks;
  for (const Row& row : rows) {
    const int threads = row.setting.threads;
    if (!peaks.contains(threads))
      peaks[threads] = machine_ceilings(DeviceKind::cpu, 0, threads, note_printer(quiet));
  }
  return {peaks.begin(), peaks.end()};
}

nlohmann::ordered_json document_json(const BenchOptions& options, const std::vector<Row>& rows,
                                     const std::vector<TimeComparison>& comparisons,
                                     const std::vector<std::pair<int, Ceilings>>& peaks, bool slower) {
  const DeviceKind device = options.timing.common.device;
  nlohmann::ordered_json json;
  json["pipit"] = version();
  json["command"] = "bench";
  json["schema"] = kTimesSchema;
  json["device"] = device_name(device);
  json["machine"] = device == DeviceKind::cuda ? gpu_description(0) : cpu_description();
  json["results"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) json["results"].push_back(row_json(row, options.timing));
  for (const TimeComparison& comparison : comparisons)
    json["comparisons"].push_back(comparison_json(comparison));
  if (options.fail_above) {
    json["fail_above"] = *options.fail_above;
    json["failed"] = slower;
  }
  for (const auto& [threads, peak] : peaks) {
    json["peaks"].push_back(
        {{"threads", threads}, {"fp32_gflops", fp32_gflops(peak)}, {"read_gb_per_s", read_gb_per_s(peak)}});
  }
  return json;
}

// One for all rows, of the first that bf16 could make faster; none where bf16 is measured anyway.
void print_bf16_note(const std::vector<Row>& rows) {
  if (std::ranges::any_of(rows, [](const Row& row) { return row.setting.precision == "bf16"; })) return;
  const auto row = std::ranges::find_if(rows, [](const Row& r) { return r.error.empty() && r.bf16; });
  if (row != rows.end()) print_error(detail::bf16_note(row->model, *row->bf16));
}

int bench(const BenchOptions& options) {
  options.settings.check(options.timing.common);
  require_device(options.timing.common.device);
  const bool gpu = options.timing.common.device == DeviceKind::cuda;
  std::vector<Row> rows = combinations(options);
  const std::vector<std::vector<Row*>> groups = groups_of(options, rows);
  if (options.fail_above && groups.size() == rows.size())
    throw CLI::ValidationError("--fail-above",
                               "compares; it goes with --against or several precisions or --streams");
  std::vector<std::string> read = options.models;
  const CommonOptions& common = options.timing.common;
  read.insert(read.end(), {options.against, common.plan, common.tuning.file()});
  options.output.check(read);
  {
    Progress progress("bench", std::ssize(rows), options.timing.common.quiet);
    std::int64_t done = 0;
    for (const std::vector<Row*>& group : groups) {
      progress.update(done,
                      fmt::format("{}, {}", printable(group[0]->model), setting_text(group[0]->setting)));
      measure_in_turns(options.timing, group);
      done += std::ssize(group);
    }
  }
  const bool failed =
      std::ranges::any_of(rows, [](const Row& row) { return !row.error.empty() && !row.unsupported; });
  const bool unsupported = std::ranges::any_of(rows, &Row::unsupported);
  const std::vector<TimeComparison> comparisons = compare_rows(groups, options.timing.streams);
  const bool slower = options.fail_above && std::ranges::any_of(comparisons, [&](const TimeComparison& c) {
                        return c.fails_above(*options.fail_above);
                      });
  bool measured = false;
  for (const Row& row : rows) {
    measured |= row.error.empty();
    if (!row.error.empty()) {
      print_error(fmt::format("{}: {}", setting_text(row.setting), row.error));
    } else if (!options.timing.common.quiet) {
      const std::string note =
          busy_note(fmt::format("{}, {}", row.model, setting_text(row.setting)), row.samples_ms);
      if (!note.empty()) print_error(note);
    }
  }
  if (!options.timing.common.quiet) print_bf16_note(rows);
  std::vector<std::pair<int, Ceilings>> peaks;
  if (options.peak) peaks = find_peaks(rows, options.timing.common.quiet);
  const nlohmann::ordered_json document = document_json(options, rows, comparisons, peaks, slower);
  options.output.write(
      [&](OutputForm form) { return form == OutputForm::csv ? bench_csv(document) : json_text(document); });
  if (options.timing.common.json) {
    print_json(document);
  } else if (measured) {
    const int width = table_width(options.wide);
    print_table(rows, options.timing, width);
    for (const TimeComparison& comparison : comparisons)
      fmt::print("\n{}", comparison_text(comparison, width));
    for (const auto& [threads, peak] : peaks) {
      fmt::print("peak of {}: {:.1f} GFLOP/s in fp32, reading {:.1f} GB/s\n", counted(threads, "thread"),
                 fp32_gflops(peak), read_gb_per_s(peak));
    }
  }
  if (measured)
    print_next(options.timing.common.quiet,
               {"profile", options.models[0], gpu ? "--device" : "", gpu ? "cuda" : "", "--sort", "ms",
                "--top", "10"},
               "the layers that take the time");
  return failed ? kExitRuntime : unsupported ? kExitUnsupported : slower ? kExitCheckFailed : kExitOk;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      app.add_subcommand("bench", "Time whole runs of models, for every combination of the lists given");
  options->timing.common.add_shared_to(*command);
  command->add_option("MODEL", options->models, model_help())->required()->type_name("MODEL");
  options->settings.add_to(*command);
  options->settings.add_streams_to(*command);
  ModelOptions::add_extents(*command, options->timing.dims, options->timing.shapes, options->timing.values);
  add_byte_images_to(*command, options->timing.byte_images);
  command
      ->add_option(
          "--input", options->timing.inputs,
          "Input data: a .npy file of the input's shape or of one sample, or an image, prepared as in "
          "pipit classify; NAME=FILE.npy for a model with several inputs; may be repeated "
          "[random numbers]")
      ->type_name("FILE");
  CLI::Option* seconds = command
                             ->add_option("--seconds", options->timing.seconds,
                                          "Time box of each combination: no run begins after it")
                             ->check(nonnegative_number())
                             ->check(finite_number() & CLI::Range(0.0, 86400.0))
                             ->capture_default_str();
  command->add_option("--runs", options->timing.runs, "At most N timed runs; without --seconds: exactly N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{10000000}));
  command
      ->add_option("--warmup", options->timing.warmup,
                   "Runs before the first timed one, and at least a tenth of --seconds")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  options->output.add_to(*command, {OutputForm::json, OutputForm::csv});
  command
      ->add_option("--against", options->against,
                   "Another model, run in turns with each MODEL and compared with it")
      ->type_name("MODEL");
  command
      ->add_option(
          "--fail-above", options->fail_above,
          "Exit code 4 if a comparison shows a slowdown of more than N percent, or has too few runs to tell")
      ->check(nonnegative_number());
  add_wide_to(*command, options->wide);
  command->add_flag("--peak", options->peak,
                    "Also show the peak rates of the CPU with the same number of threads: fp32 multiply-adds "
                    "and reading memory, as stored by pipit ceilings or measured now");
  command->footer(
      "Values of a list are separated by commas, or the option is repeated. Times are of whole runs on "
      "random data, on a GPU including the copies in and out; p90 and p99 interpolate between ranks; cv is "
      "the standard deviation divided by the mean, and a warning says if it is above 5 % because the machine "
      "was busy. Load time lasts from opening the file to the first run. Peak memory is that of the process "
      "while the row was measured.\n"
      "Several precisions of a model, and the model of --against, run in turns of 10 ms, and each is "
      "compared with the first: the median of the turns' ratios with its 95 % interval. Differences below 1 "
      "% give no verdict, since the position of data in memory alone can cause them.\n"
      "With --streams, images/s are counted over all streams in turns of 100 ms, with p10 and p90; the time "
      "of a turn divided by its runs is compared. Times of runs are those of single runs while the other "
      "streams run.\n"
      "A combination that fails gets a row with its error, and the others continue. Exit code 1 if any "
      "failed, 3 if only unsupported combinations failed.\n"
      "Examples:\n"
      "  pipit bench resnet50 --batch 1,8,32 --threads 1,2\n"
      "  pipit bench resnet50 --streams 1,2 --batch 1,8\n"
      "  pipit bench a.onnx b.onnx --seconds 10 --json > times.json\n"
      "  pipit bench dense.onnx --against pruned.onnx --fail-above 0");
  command->callback([options, seconds, &exit_code] {
    options->timing.streams = !options->settings.streams.empty();
    options->timing.boxed = seconds->count() > 0 || !options->timing.runs;
    exit_code = bench(*options);
  });
}

}  // namespace pipit::internal::apps
