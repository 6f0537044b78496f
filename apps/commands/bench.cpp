// pipit bench MODEL...: how long a run takes, for every combination of model, precision, batch and threads.
#include <algorithm>
#include <limits>
#include <map>
#include <new>

#include "apps/commands/commands.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/measuring/runner.h"
#include "apps/measuring/timing.h"
#include "apps/options/settings.h"
#include "engine/base/clock.h"
#include "engine/base/statistics.h"
#include "engine/base/version.h"
#include "engine/platform/device.h"
#include "engine/platform/host_memory.h"
#include "layers/cpu_peak.h"

namespace pipit::apps {

namespace {

struct BenchOptions {
  CommonOptions common;  // without its threads and precision
  std::vector<std::string> models;
  SettingLists settings;
  std::vector<std::string> dims, shapes;
  double seconds = 2;
  std::optional<std::int64_t> runs;
  bool seconds_given = false;
  bool peak = false;
  int warmup = 2;
};

// One row of the result. `batch` is the one asked for until the model is loaded.
struct Row {
  std::string model;
  Setting setting;
  std::vector<double> samples_ms;
  Summary ms;
  double load_ms = 0;
  double first_run_ms = 0;
  double graph_ms = 0;  // on a GPU
  std::size_t arena_bytes = 0;
  std::size_t peak_rss_bytes = 0;
  std::string error;
};

// At most --runs runs and, unless only --runs is given, no new run once --seconds have passed.
std::vector<double> timed_runs(const BenchOptions& options, Runner& runner,
                               std::span<const ConstTensorView> inputs) {
  const std::int64_t most = options.runs.value_or(std::numeric_limits<std::int64_t>::max());
  const bool boxed = options.seconds_given || !options.runs;
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  do {
    const Clock::time_point begin = Clock::now();
    runner.run(inputs);
    times.push_back(milliseconds_since(begin));
  } while (static_cast<std::int64_t>(times.size()) < most &&
           (!boxed || milliseconds_since(start) < 1e3 * options.seconds));
  return times;
}

void measure(const BenchOptions& options, Row& row) {
  reset_peak_resident_memory();
  const Clock::time_point begin = Clock::now();
  const ModelOptions source{row.model, row.setting.batch, options.dims, options.shapes};
  Model model = source.load();
  Runner runner(model.name, std::move(model.graph), common_options(options.common, row.setting));
  row.load_ms = milliseconds_since(begin);
  row.arena_bytes = runner.plan->arena_bytes();
  row.setting.precision = precision_name(computed_precision(*runner.plan));

  const std::vector<Tensor> inputs = random_inputs(runner.plan->graph(), model.name);
  std::vector<ConstTensorView> views;
  for (const Tensor& t : inputs) views.push_back(t.view());
  if (!inputs.empty() && inputs[0].shape().rank() > 0) row.setting.batch = inputs[0].shape()[0];

  // At least a tenth of the time box too: a few runs of a small model do not bring a core to its speed.
  const Clock::time_point warm = Clock::now();
  for (int r = 0; r < options.warmup || milliseconds_since(warm) < 100 * options.seconds; ++r) {
    const Clock::time_point first = Clock::now();
    runner.run(views);
    if (r == 0) row.first_run_ms = milliseconds_since(first);
  }
  row.samples_ms = timed_runs(options, runner, views);
  row.ms = summarize(row.samples_ms);
  if (runner.session->device_session() != nullptr) {
    const auto runs = static_cast<int>(std::min<std::size_t>(row.ms.count, 100));
    row.graph_ms = runner.profile(views, 1, runs).graph_ms;
  }
  row.peak_rss_bytes = peak_resident_memory();
}

double images_per_s(const Row& row) {
  return 1e3 * static_cast<double>(row.setting.batch.value_or(1)) / row.ms.median;
}

nlohmann::ordered_json row_json(const Row& row, DeviceKind device) {
  nlohmann::ordered_json json;
  json["model"] = row.model;
  json["device"] = device_name(device);
  json["precision"] = row.setting.precision;
  json["batch"] = row.setting.batch.value_or(1);
  json["threads"] = row.setting.threads;
  if (!row.error.empty()) {
    json["error"] = row.error;
    return json;
  }
  json["runs"] = row.ms.count;
  json["median_ms"] = row.ms.median;
  json["p90_ms"] = row.ms.p90;
  json["p99_ms"] = row.ms.p99;
  json["mean_ms"] = row.ms.mean;
  json["cv"] = row.ms.cv;
  json["images_per_s"] = images_per_s(row);
  if (row.graph_ms > 0) json["graph_ms"] = row.graph_ms;
  json["load_ms"] = row.load_ms;
  json["first_run_ms"] = row.first_run_ms;
  json["arena_bytes"] = row.arena_bytes;
  json["peak_rss_bytes"] = row.peak_rss_bytes;
  json["samples_ms"] = row.samples_ms;
  return json;
}

void print_table(const std::vector<Row>& rows, DeviceKind device) {
  using enum Table::Align;
  const bool gpu = device == DeviceKind::cuda;
  std::vector<Table::Column> columns = {{"model"},           {"precision"},      {"batch", right},
                                        {"threads", right},  {"runs", right},    {"median ms", right},
                                        {"p90", right},      {"p99", right},     {"cv", right},
                                        {"images/s", right}, {"load ms", right}, {"peak memory", right}};
  if (gpu) columns.push_back({"graph ms", right});
  columns.push_back({"error"});
  Table table(columns);
  for (const Row& row : rows) {
    std::vector<std::string> cells = {row.model, row.setting.precision,
                                      fmt::format("{}", row.setting.batch.value_or(1)),
                                      fmt::format("{}", row.setting.threads)};
    if (row.error.empty()) {
      cells.insert(cells.end(),
                   {fmt::format("{}", row.ms.count), fmt::format("{:.3f}", row.ms.median),
                    fmt::format("{:.3f}", row.ms.p90), fmt::format("{:.3f}", row.ms.p99),
                    fmt::format("{:.1f}%", 100 * row.ms.cv), fmt::format("{:.1f}", images_per_s(row)),
                    fmt::format("{:.0f}", row.load_ms), mebibytes(row.peak_rss_bytes)});
      if (gpu) cells.push_back(fmt::format("{:.4f}", row.graph_ms));
    } else {
      cells.resize(columns.size() - 1);
      cells.push_back(row.error.substr(0, row.error.find('\n')));
    }
    table.add(std::move(cells));
  }
  fmt::print("{}", table.str());
}

// Every combination, models outermost, threads innermost.
std::vector<Row> combinations(const BenchOptions& options) {
  std::vector<Row> rows;
  for (const std::string& model : options.models) {
    for (const Setting& setting : options.settings.all()) {
      rows.emplace_back();
      rows.back().model = model;
      rows.back().setting = setting;
    }
  }
  return rows;
}

// The CPU's ceilings at each number of threads asked for.
std::vector<std::pair<int, MachinePeak>> measure_peaks(const std::vector<Row>& rows) {
  std::map<int, MachinePeak> peaks;
  for (const Row& row : rows) {
    if (!peaks.contains(row.setting.threads))
      peaks[row.setting.threads] = measure_cpu_peak(row.setting.threads);
  }
  return {peaks.begin(), peaks.end()};
}

int bench(const BenchOptions& options) {
  options.settings.check(options.common);
  require_device(options.common.device);
  std::vector<Row> rows = combinations(options);
  bool failed = false;       // with exit code 1
  bool unsupported = false;  // with exit code 3
  {
    Progress progress("bench", static_cast<std::int64_t>(rows.size()), options.common.quiet);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      Row& row = rows[i];
      progress.update(static_cast<std::int64_t>(i),
                      fmt::format("{}, {}", printable(row.model), setting_text(row.setting)));
      try {
        measure(options, row);
      } catch (const UnsupportedError& e) {
        row.error = e.what();
        unsupported = true;
      } catch (const Error& e) {
        row.error = e.what();
        failed = true;
      } catch (const std::bad_alloc&) {
        row.error = "out of memory";
        failed = true;
      }
    }
  }
  bool measured = false;
  for (const Row& row : rows) {
    measured |= row.error.empty();
    if (!row.error.empty()) {
      print_error(fmt::format("{}: {}", setting_text(row.setting), row.error));
    } else if (!options.common.quiet) {
      const std::string note =
          busy_note(fmt::format("{}, {}", row.model, setting_text(row.setting)), row.samples_ms);
      if (!note.empty()) print_error(note);
    }
  }
  std::vector<std::pair<int, MachinePeak>> peaks;
  if (options.peak) peaks = measure_peaks(rows);
  if (options.common.json) {
    nlohmann::ordered_json json;
    json["pipit"] = version();
    json["command"] = "bench";
    json["schema"] = kTimesSchema;
    json["device"] = device_name(options.common.device);
    json["machine"] = options.common.device == DeviceKind::cuda ? gpu_description(0) : cpu_description();
    json["results"] = nlohmann::ordered_json::array();
    for (const Row& row : rows) json["results"].push_back(row_json(row, options.common.device));
    for (const auto& [threads, peak] : peaks) {
      json["peaks"].push_back({{"threads", threads},
                               {"fp32_gflops", 1e-9 * peak.flops_per_second},
                               {"read_gb_per_s", 1e-9 * peak.bytes_per_second}});
    }
    print_json(json);
  } else if (measured) {
    print_table(rows, options.common.device);
    for (const auto& [threads, peak] : peaks) {
      fmt::print("peak of {} threads: {:.1f} GFLOP/s in fp32, reading {:.1f} GB/s\n", threads,
                 1e-9 * peak.flops_per_second, 1e-9 * peak.bytes_per_second);
    }
  }
  return failed ? kExitRuntime : unsupported ? kExitUnsupported : kExitOk;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      app.add_subcommand("bench", "Time whole runs of models, for every combination of the lists given");
  options->common.add_shared_to(*command);
  command->add_option("MODEL", options->models, model_help())->required();
  options->settings.add_to(*command);
  ModelOptions::add_extents(*command, options->dims, options->shapes);
  CLI::Option* seconds =
      command->add_option("--seconds", options->seconds, "Time box of a combination: no run begins after it")
          ->check(nonnegative_number())
          ->check(CLI::Range(0.0, 86400.0))
          ->capture_default_str();
  command
      ->add_option("--runs", options->runs, "At most so many timed runs; without --seconds: exactly so many")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{10000000}));
  command
      ->add_option("--warmup", options->warmup,
                   "Runs before the first timed one, and at least a tenth of --seconds")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_flag(
      "--peak", options->peak,
      "Also measure what the CPU reaches at most, with as many threads: fp32 multiply-adds and reading "
      "memory");
  command->footer(
      "A LIST is separated by commas, or the option repeated. Times are of whole runs on random data, on a "
      "GPU with "
      "the copies in and out; p90 and p99 interpolate between ranks; cv is the standard deviation over the "
      "mean, and "
      "above 5 % a warning says that the machine was busy. Load time reaches from opening the file to the "
      "first run. "
      "Peak memory is the process's while the row was made.\n"
      "A combination that fails leaves a row with its error; the others go on. Exit code 1 if any failed, 3 "
      "if "
      "nothing but unsupported combinations did.\n"
      "Examples:\n  pipit bench resnet50 --batch 1,8,32 --threads 1,2\n"
      "  pipit bench a.onnx b.onnx --seconds 10 --json > times.json");
  command->callback([options, seconds, &exit_code] {
    options->seconds_given = seconds->count() > 0;
    exit_code = bench(*options);
  });
}

}  // namespace pipit::apps
