// pipit sweep conv: convolutions over a grid of sizes, each precision and kernel against one base.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/print_json.h"
#include "apps/display/progress.h"
#include "apps/display/terminal.h"
#include "apps/measuring/conv_measurement.h"
#include "apps/measuring/conv_summary.h"
#include "apps/measuring/json_lines.h"
#include "apps/measuring/sweep_file.h"
#include "apps/options/list_option.h"
#include "apps/options/sweep_options.h"
#include "apps/options/values.h"
#include "engine/base/file.h"
#include "engine/base/version.h"
#include "pipit/measuring/machine_ceilings.h"
#include "pipit/measuring/runner.h"
#include "pipit/report/html_report.h"

namespace pipit::internal::apps {

namespace {

struct SweepConvOptions {
  SweepOptions shared{.precisions = {"int8"}, .seconds = 0.04};
  ConvGrid grid;
  std::size_t sample = 0;
  unsigned seed = 1;
  std::vector<std::string> backends = {"auto"};
  std::vector<std::string> bases;  // empty: fp32, on a GPU fp16
  bool floor = false;
  std::size_t top = 10;
  bool wide = false;

  bool on_gpu() const { return shared.common.device == DeviceKind::cuda; }
  // No base twice.
  std::vector<std::string> all_bases() const {
    if (bases.empty()) return {on_gpu() ? "fp16" : "fp32"};
    std::vector<std::string> all;
    for (const std::string& base : bases) {
      if (std::ranges::find(all, base) == all.end()) all.push_back(base);
    }
    return all;
  }
};

nlohmann::ordered_json settings_of(const SweepConvOptions& options) {
  nlohmann::ordered_json settings = {{"pipit_sweep_conv", kConvSweepVersion}};
  settings.update(options.shared.machine_json());
  settings["bases"] = options.all_bases();
  settings["floor"] = options.floor;
  return settings;
}

// A list for each layer: what its rows share is made once. No row twice: means would count it twice.
std::vector<std::vector<ConvRow>> rows_of(const SweepConvOptions& options) {
  std::vector<std::vector<ConvRow>> layers;
  for (const ConvPoint& point : by_input(sample(options.grid.points(), options.sample, options.seed))) {
    std::vector<ConvRow>& rows = layers.emplace_back();
    for (const std::string& precision : options.shared.precisions) {
      for (const std::string& backend : options.backends) {
        ConvRow row;
        row.point = point;
        row.precision = precision;
        row.backend = backend;
        if (std::ranges::find(rows, row.key(), &ConvRow::key) == rows.end()) rows.push_back(std::move(row));
      }
    }
  }
  return layers;
}

// The rows of a layer that are still to be measured.
using MissingRows = std::vector<ConvRow>;

// Measures them, a row on the disk as soon as it is there.
ConvSweepSeconds measure(std::vector<MissingRows>& layers, std::int64_t there,
                         const SweepConvOptions& options, JsonLines& lines, bool& failed) {
  const SweepOptions& shared = options.shared;
  ConvSweepTarget target{
      shared.common.device, shared.common.threads, options.all_bases(), shared.seconds, {}};
  if (options.floor)
    target.ceilings =
        machine_ceilings(target.device, 0, target.threads == 0 ? default_threads() : target.threads,
                         note_printer(shared.common.quiet));
  ConvSweep sweep(std::move(target));
  Progress progress("sweep", there + std::ssize(layers), shared.common.quiet);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    MissingRows& rows = layers[l];
    progress.update(there + static_cast<std::int64_t>(l), rows[0].point.name());
    if (l % ConvSweep::kTogether == 0) {
      std::vector<ConvPoint> next;
      for (const MissingRows& layer :
           std::span(layers).subspan(l, std::min(ConvSweep::kTogether, layers.size() - l)))
        next.push_back(layer[0].point);
      sweep.prepare(next);
    }
    sweep.measure(rows, failed);
    for (const ConvRow& row : rows) lines.append(row.json());
  }
  return sweep.seconds();
}

// Seconds of a sweep, from which on it is said where they went.
constexpr double kWorthSaying = 10;

void print_seconds(const ConvSweepSeconds& s) {
  fmt::print(stderr,
             "pipit: {:.1f} s for inputs and references, {:.1f} for plans of libraries, {:.1f} to choose "
             "kernels, {:.1f} in turns, {:.1f} for errors\n",
             s.inputs, s.plans, s.kernels, s.turns, s.errors);
}

int sweep_conv(const SweepConvOptions& options) {
  const SweepOptions& shared = options.shared;
  shared.refuse_bf16_on_gpu("--base", options.bases);
  shared.check({});
  for (const std::string& base : options.all_bases()) {
    if (!options.on_gpu() && base.starts_with(kCudnnBase))
      throw CLI::ValidationError("--base", base + " runs on a GPU; give --device cuda with it");
  }
  std::vector<std::vector<ConvRow>> planned = rows_of(options);
  if (planned.empty())
    throw CLI::ValidationError(
        "--in", "and the other lists: the usual rule leaves every combination out; --all takes them");
  const nlohmann::ordered_json settings = settings_of(options);
  JsonLines lines(shared.results, settings, shared.resume);
  std::map<std::string, ConvRow> found;
  for (std::size_t i = 0; i < lines.found().size(); ++i) {
    try {
      ConvRow row = ConvRow::from_json(lines.found()[i]);
      const std::string key = row.key();
      if (!found.try_emplace(key, std::move(row)).second) fail_repeated(key);
    } catch (const Error& e) {
      fail("{}: line {}: {}", shared.results, i + 2, e.what());
    }
  }
  std::vector<MissingRows> missing;
  std::int64_t there = 0;
  for (const std::vector<ConvRow>& layer : planned) {
    MissingRows of_layer;
    for (const ConvRow& row : layer) {
      if (!found.contains(row.key())) of_layer.push_back(row);
    }
    if (of_layer.empty()) {
      ++there;
    } else {
      missing.push_back(std::move(of_layer));
    }
  }
  bool failed = false;
  if (!missing.empty()) {
    const ConvSweepSeconds seconds = measure(missing, there, options, lines, failed);
    if (!shared.common.quiet && seconds.all() > kWorthSaying) print_seconds(seconds);
  }
  for (MissingRows& layer : missing) {
    for (ConvRow& row : layer) found[row.key()] = std::move(row);
  }
  std::vector<ConvRow> rows;
  for (const std::vector<ConvRow>& layer : planned) {
    for (const ConvRow& row : layer) rows.push_back(found.at(row.key()));
  }
  const std::vector<std::string> bases = options.all_bases();
  if (!shared.svg.empty()) write_file(shared.svg, conv_svg(rows, bases));
  nlohmann::ordered_json json = {{"pipit", version()}, {"command", "sweep conv"}};
  json.update(settings);
  json["combinations"] = options.grid.points().size();
  json["sample"] = planned.size();
  json["summaries"] = summaries_json(rows, bases);
  json["rows"] = nlohmann::ordered_json::array();
  for (const ConvRow& row : rows) json["rows"].push_back(row.json());
  shared.output.write([&](OutputForm form) {
    return form == OutputForm::csv    ? conv_csv(rows, settings, bases)
           : form == OutputForm::html ? detail::html_report(json)
                                      : json_text(json);
  });
  if (shared.common.json) {
    print_json(json);
  } else {
    fmt::print("{}", conv_table(rows, bases, options.top, table_width(options.wide)));
  }
  print_next(shared.common.quiet,
             {"sweep", "conv", "--sample", "200", "--results", "conv.jsonl", "--output", "conv.html"},
             "a sample of the usual grid, as a page to look at");
  const bool nothing =
      std::all_of(rows.begin(), rows.end(), [](const ConvRow& row) { return !row.problem.empty(); });
  return nothing ? exit_without_rows(rows[0].problem, failed) : kExitOk;
}

}  // namespace

void add_sweep_conv(CLI::App& parent, int& exit_code) {
  const auto options = std::make_shared<SweepConvOptions>();
  CLI::App* command = parent.add_subcommand(
      "conv", "Time convolutions over a grid of sizes and compare precisions and kernels with a base");
  ConvGrid& grid = options->grid;
  const auto extents = [](std::int64_t most) { return CLI::Range(std::int64_t{1}, most); };
  add_list(*command, "--n", grid.batch, extents(65536), "Images [1,4,8,16]");
  add_list(*command, "--in", grid.in, extents(65536), "Input channels [1,3,8,16,32]");
  add_list(*command, "--out", grid.out, extents(65536), "Output channels [3,8,16,32,64]");
  add_list(*command, "--size", grid.size, extents(65536), "Height and width [32,64,128,256,512]");
  add_list(*command, "--kernel", grid.kernel, extents(255), "Height and width of the window [1,3,5,7,9,11]");
  add_list(*command, "--stride", grid.stride, extents(255), "Strides [1,2]");
  command->add_flag("--all", grid.all,
                    "Also include what is left out by default: fewer outputs than inputs, and large windows "
                    "on large images (without this option, 3686 of 6000 remain)");
  command->add_option("--sample", options->sample, "Only N of the combinations, drawn at random; 0: all")
      ->check(count_value())
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of --sample")->capture_default_str();
  std::vector<std::string> backends = kernel_names();
  backends.insert(backends.begin(), "auto");
  add_list(*command, "--backend", options->backends, one_of(backends),
           "Kernels by name (pipit inspect MODEL --why lists some); auto: the fastest of all [auto]")
      ->type_name("auto|KERNEL,...");
  add_choices(*command, "--base", options->bases,
              {"fp32", "fp16", "bf16", "int8", std::string(kCudnnBase), std::string(kCudnnBestBase)},
              "What the rows are compared with: a precision, with the fastest of its kernels; on a GPU also "
              "cudnn, fp16 as frameworks call it (the first plan of its heuristics, then a kernel that adds "
              "the bias), or cudnn-best (the fastest of its first four plans that include the bias), each in "
              "NHWC or NCHW, whichever is faster [fp32, on a GPU fp16]");
  command->add_flag("--floor", options->floor,
                    "Also show the least possible time of each row at the machine's ceilings (as in profile "
                    "--floor, on a GPU with operands in memory) and its share of the measured time");
  command
      ->add_option(
          "--top", options->top,
          "Number of rows in the table: those with the largest speed-ups by the lower end of their intervals")
      ->check(count_value())
      ->capture_default_str();
  add_wide_to(*command, options->wide);
  options->shared.add_to(*command, "What is compared with --base [int8]",
                         "Time limit of a row: everything that runs for a layer takes turns until the time "
                         "of all its rows is used up",
                         "Also draw speed-ups over image size and input channels into this file",
                         {OutputForm::json, OutputForm::csv, OutputForm::html});
  command->footer(
      "Square convolutions with a bias, padding half of the window and no activation, in NHWC, on normal\n"
      "numbers after a random convolution and a ReLU. Speed-ups are medians over turns of both, with\n"
      "95 % intervals; 'faster' and 'slower' count those whose whole interval is more than 1 % away from 1.\n"
      "Errors are against sums in double precision of the same data, at 256 pixels of all channels. What\n"
      "does not run gets a row with the reason.\n"
      "On a GPU a time is that of one of 3 to 20 launches in a captured graph, each with its own operands\n"
      "from memory: the L2 cache is overwritten first. A second time is that of launches that share\n"
      "their operands, in the cache.\n"
      "Examples:\n"
      "  pipit sweep conv --sample 200 --results conv.jsonl --output conv.csv --output conv.html\n"
      "  pipit sweep conv --n 1 --in 64,128 --out 64,128 --size 28,56 --kernel 3 --stride 1 --all "
      "--precision fp16,int8\n"
      "  pipit sweep conv --device cuda --precision int8,fp16 --base fp16,cudnn,cudnn-best --floor --output "
      "gpu.html");
  command->callback([options, &exit_code] { exit_code = sweep_conv(*options); });
}

}  // namespace pipit::internal::apps
