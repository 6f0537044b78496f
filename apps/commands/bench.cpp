// pipit bench MODEL...: how long a run takes, for every combination of model, precision, batch and threads.
#include "pipit/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "apps/commands/commands.h"
#include "apps/display/comparison_text.h"
#include "apps/display/next_command.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/output_option.h"
#include "apps/options/settings.h"
#include "apps/options/values.h"
#include "pipit/text.h"

namespace pipit::internal::apps {

namespace {

struct BenchOptions {
  CommonOptions common;  // without threads and precision
  ModelOptions model;    // its extents alone
  std::vector<std::string> models;
  SettingLists settings;
  OutputOption output;
  tools::BenchOptions how;
  double seconds = 2;
  bool wide = false;
};

void print_table(const std::vector<tools::BenchRow>& rows, const tools::BenchOptions& how, int width) {
  using enum Table::Align;
  const bool gpu = how.timing.load.device.kind == DeviceKind::cuda;
  const bool streams = !how.streams.empty();
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
  for (const tools::BenchRow& row : rows) {
    std::vector<std::string> cells = {row.model, std::string(precision_name(row.precision)),
                                      fmt::format("{}", row.batch), fmt::format("{}", row.threads)};
    if (streams) cells.push_back(fmt::format("{}", row.streams));
    if (row.error.empty()) {
      cells.insert(cells.end(),
                   {fmt::format("{}", row.runs), fmt::format("{:.3f}", row.median_ms),
                    fmt::format("{:.3f}", row.p90_ms), fmt::format("{:.3f}", row.p99_ms),
                    fmt::format("{:.1f}%", 100 * row.cv), fmt::format("{:.1f}", row.images_per_s)});
      if (streams)
        cells.push_back(fmt::format("{:.1f} to {:.1f}", *row.images_per_s_p10, *row.images_per_s_p90));
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

tools::BenchOptions library_options(const BenchOptions& options) {
  tools::BenchOptions how = options.how;
  how.timing.load = options.common.load_options();
  options.model.add_to(how.timing.load);
  options.settings.add_to(how.timing, options.common);
  how.streams = options.settings.streams;
  return how;
}

template <typename T>
bool has_several(const std::vector<T>& values) {
  return std::set<T>(values.begin(), values.end()).size() > 1;
}

int bench(const BenchOptions& options) {
  const CommonOptions& common = options.common;
  options.settings.check(common);
  tools::BenchOptions how = library_options(options);
  if (how.max_slowdown && how.against.empty() && !has_several(options.settings.precisions) &&
      !has_several(how.streams))
    throw CLI::ValidationError("--fail-above",
                               "needs a comparison: --against, several precisions or several --streams");
  std::vector<std::string> read = options.models;
  read.insert(read.end(), {how.against, common.plan, common.tuning.file()});
  options.output.check(read);
  std::optional<Progress> progress;
  how.progress = [&](std::int64_t done, std::int64_t total, const std::string& next) {
    if (!progress) progress.emplace("bench", total, common.quiet);
    progress->update(done, next);
  };
  how.timing.note = note_printer(common.quiet);
  const tools::BenchResult result = tools::bench(options.models, how);
  progress.reset();
  bool failed = false, unsupported = false, measured = false;
  for (const tools::BenchRow& row : result.rows) {
    measured |= row.error.empty();
    unsupported |= row.unsupported;
    failed |= !row.error.empty() && !row.unsupported;
    if (!row.error.empty()) print_error(fmt::format("{}: {}", row.setting, row.error));
    if (!row.note.empty() && !common.quiet) print_notes({row.note});
  }
  if (!common.quiet) print_notes(result.notes);
  options.output.write(result.json);
  if (common.json) {
    fmt::print("{}", result.json);
  } else if (measured) {
    const int width = table_width(options.wide);
    print_table(result.rows, how, width);
    for (const tools::TimeComparison& comparison : result.comparisons)
      fmt::print("\n{}", comparison_text(comparison, width));
    for (const tools::CpuPeak& peak : result.peaks) {
      fmt::print("peak of {}: {:.1f} GFLOP/s in fp32, reading {:.1f} GB/s\n", counted(peak.threads, "thread"),
                 peak.fp32_gflops, peak.read_gb_per_s);
    }
  }
  if (measured) {
    const bool gpu = common.device == DeviceKind::cuda;
    print_next(common.quiet,
               {"profile", options.models[0], gpu ? "--device" : "", gpu ? "cuda" : "", "--sort", "ms",
                "--top", "10"},
               "the layers that take the time");
  }
  return failed            ? kExitRuntime
         : unsupported     ? kExitUnsupported
         : result.too_slow ? kExitCheckFailed
                           : kExitOk;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* command =
      app.add_subcommand("bench", "Time whole runs of models, for every combination of the lists given");
  options->common.add_shared_to(*command);
  command->add_option("MODEL", options->models, model_help())->required()->type_name("MODEL");
  options->settings.add_to(*command);
  options->settings.add_streams_to(*command);
  ModelOptions& model = options->model;
  ModelOptions::add_extents(*command, model.dims, model.shapes, model.values);
  tools::BenchOptions& how = options->how;
  add_byte_images_to(*command, how.timing.image_bytes);
  command
      ->add_option(
          "--input", how.timing.inputs,
          "Input data: a .npy file of the input's shape or of one sample, or an image, prepared as in "
          "pipit classify; NAME=FILE.npy for a model with several inputs; may be repeated "
          "[random numbers]")
      ->type_name("FILE");
  CLI::Option* seconds =
      command
          ->add_option("--seconds", options->seconds, "Time box of each combination: no run begins after it")
          ->check(nonnegative_number())
          ->check(finite_number() & CLI::Range(0.0, 86400.0))
          ->capture_default_str();
  command->add_option("--runs", how.runs, "At most N timed runs; without --seconds: exactly N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{10000000}));
  command
      ->add_option("--warmup", how.warmup,
                   "Runs before the first timed one, and at least a tenth of --seconds")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  options->output.add_to(*command, {OutputForm::json, OutputForm::csv});
  command
      ->add_option("--against", how.against,
                   "Another model, run in turns with each MODEL and compared with it")
      ->type_name("MODEL");
  command
      ->add_option(
          "--fail-above", how.max_slowdown,
          "Exit code 4 if a comparison shows a slowdown of more than N percent, or has too few runs to tell")
      ->check(nonnegative_number());
  add_wide_to(*command, options->wide);
  command->add_flag("--peak", how.peaks,
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
    if (seconds->count() > 0) options->how.seconds = options->seconds;
    exit_code = bench(*options);
  });
}

}  // namespace pipit::internal::apps
