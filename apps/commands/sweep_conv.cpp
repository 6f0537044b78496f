// pipit sweep conv: convolutions over a grid of sizes, each precision and kernel against one base.
#include <algorithm>
#include <optional>

#include "apps/commands/commands.h"
#include "apps/display/html_report.h"
#include "apps/display/next_command.h"
#include "apps/display/progress.h"
#include "apps/display/terminal.h"
#include "apps/measuring/conv_rows.h"
#include "apps/measuring/json_lines.h"
#include "apps/measuring/problem_of.h"
#include "apps/measuring/runner.h"
#include "apps/measuring/sweep_file.h"
#include "apps/options/list_option.h"
#include "apps/options/sweep_options.h"
#include "apps/options/values.h"
#include "engine/base/file.h"
#include "engine/base/version.h"
#include "engine/platform/host_memory.h"

namespace pipit::apps {

namespace {

constexpr std::size_t kSampledPixels = 256;

struct SweepConvOptions {
  SweepOptions shared{.precisions = {"int8"}, .seconds = 0.04};
  ConvGrid grid;
  std::size_t sample = 0;
  unsigned seed = 1;
  std::vector<std::string> backends = {"auto"};
  std::string base;  // a precision; empty: fp32, on a GPU fp16
  std::size_t top = 10;
  bool wide = false;

  std::string base_precision() const {
    return !base.empty() ? base : shared.common.device == DeviceKind::cuda ? "fp16" : "fp32";
  }
};

// parse_layer(), where there is memory for the input and, in f32 at most, the inputs and outputs of two runs.
SparseLayer layer_of(const ConvPoint& point) {
  SparseLayer layer = parse_layer(point.name());
  const double bytes = 4.0 * static_cast<double>(3 * layer.x.elements() + 2 * layer.output().elements());
  if (bytes > static_cast<double>(available_host_memory()))
    fail("out of memory: needs {:.0f} MiB, the machine has {:.0f} left", bytes / 0x1p20,
         static_cast<double>(available_host_memory()) / 0x1p20);
  return layer;
}

// The input of the layer that is measured: to draw the largest takes longer than to measure with them.
class LastInput {
 public:
  const Tensor& of(const Shape& shape, int threads) {
    if (!shape_ || *shape_ != shape) {
      shape_.reset();
      x_ = Tensor();
      x_ = network_values(shape, threads);
      shape_ = shape;
    }
    return x_;
  }

 private:
  std::optional<Shape> shape_;
  Tensor x_;
};

// One convolution: its reference and the base are made once for all rows.
class ConvMeasurement {
 public:
  ConvMeasurement(const ConvPoint& point, const SweepConvOptions& options, LastInput& input)
      : layer_(layer_of(point)),
        options_(options),
        x_(input.of(layer_.x, options.shared.common.threads)),
        reference_(layer_, x_, kSampledPixels) {
    for (std::int64_t i = 0; i < point.in; ++i) inputs_.push_back(i);
    for (std::int64_t o = 0; o < point.out; ++o) outputs_.push_back(o);
    for (const float value : x_.values<float>()) ranges_.x = std::max(ranges_.x, std::abs(double{value}));
    ranges_.y = reference_.largest();
    base_ = run(options.base_precision(), {});
  }

  void measure(ConvRow& row) {
    const auto own = run(row.precision, row.backend == "auto" ? std::string() : row.backend);
    row.runs = own->kernel();
    row.base_runs = base_->kernel();
    row.bytes = own->bytes();
    row.arena_bytes = own->arena_bytes();
    row.error = reference_.error(own->results_at(reference_.elements()));
    row.times = time_in_turns(*own, *base_, options_.shared.seconds);
  }

 private:
  std::unique_ptr<LayerRun> run(const std::string& precision, const std::string& kernel) const {
    const LayerTarget target{options_.shared.common.device, precisions().at(precision),
                             options_.shared.common.threads, kernel};
    return std::make_unique<LayerRun>(layer_, layer_.weights, inputs_, outputs_, x_, target, ranges_);
  }

  SparseLayer layer_;
  const SweepConvOptions& options_;
  const Tensor& x_;
  SampledReference reference_;
  std::vector<std::int64_t> inputs_, outputs_;
  LayerRanges ranges_;
  std::unique_ptr<LayerRun> base_;
};

nlohmann::ordered_json settings_of(const SweepConvOptions& options) {
  nlohmann::ordered_json settings = {{"pipit_sweep_conv", kConvSweepVersion}};
  settings.update(options.shared.machine_json());
  settings["base"] = options.base_precision();
  return settings;
}

// A list for each layer: what its rows share is made once.
std::vector<std::vector<ConvRow>> rows_of(const SweepConvOptions& options) {
  std::vector<std::vector<ConvRow>> layers;
  for (const ConvPoint& point : by_input(sample(options.grid.points(), options.sample, options.seed))) {
    std::vector<ConvRow>& rows = layers.emplace_back();
    for (const std::string& precision : options.shared.precisions) {
      for (const std::string& backend : options.backends) {
        ConvRow& row = rows.emplace_back();
        row.point = point;
        row.precision = precision;
        row.backend = backend;
      }
    }
  }
  return layers;
}

void measure_layer(std::vector<ConvRow>& rows, const SweepConvOptions& options, LastInput& input,
                   JsonLines& lines, bool& failed) {
  std::unique_ptr<ConvMeasurement> measurement;
  const std::string general = problem_of(
      [&] { measurement = std::make_unique<ConvMeasurement>(rows[0].point, options, input); }, failed);
  for (ConvRow& row : rows) {
    row.problem = general.empty() ? problem_of([&] { measurement->measure(row); }, failed) : general;
    lines.append(row.json());
  }
}

int sweep_conv(const SweepConvOptions& options) {
  const SweepOptions& shared = options.shared;
  shared.check({});
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
      found[row.key()] = std::move(row);
    } catch (const Error& e) {
      fail("{}: line {}: {}", shared.results, i + 2, e.what());
    }
  }
  std::vector<ConvRow> rows;
  bool failed = false;
  {
    Progress progress("sweep", std::ssize(planned), shared.common.quiet);
    LastInput input;
    std::int64_t done = 0;
    for (std::vector<ConvRow>& layer : planned) {
      progress.update(done++, layer[0].point.name());
      std::vector<ConvRow> missing;
      for (const ConvRow& row : layer) {
        if (!found.contains(row.key())) missing.push_back(row);
      }
      if (!missing.empty()) measure_layer(missing, options, input, lines, failed);
      for (ConvRow& row : missing) found[row.key()] = std::move(row);
      for (const ConvRow& row : layer) rows.push_back(found.at(row.key()));
    }
  }
  if (!shared.svg.empty()) write_file(shared.svg, conv_svg(rows, options.base_precision()));
  nlohmann::ordered_json json = {{"pipit", version()}, {"command", "sweep conv"}};
  json.update(settings);
  json["combinations"] = options.grid.points().size();
  json["sample"] = planned.size();
  json["summaries"] = summaries_json(rows);
  json["rows"] = nlohmann::ordered_json::array();
  for (const ConvRow& row : rows) json["rows"].push_back(row.json());
  shared.output.write([&](OutputForm form) {
    return form == OutputForm::csv    ? conv_csv(rows, settings)
           : form == OutputForm::html ? html_report(json)
                                      : json_text(json);
  });
  if (shared.common.json) {
    print_json(json);
  } else {
    fmt::print("{}", conv_table(rows, options.base_precision(), options.top, table_width(options.wide)));
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
      "conv", "Time convolutions over a grid of sizes and hold precisions and kernels against a base");
  ConvGrid& grid = options->grid;
  const auto extents = [](std::int64_t most) { return CLI::Range(std::int64_t{1}, most); };
  add_list(*command, "--n", grid.batch, extents(65536), "Images [1,4,8,16]");
  add_list(*command, "--in", grid.in, extents(65536), "Input channels [1,3,8,16,32]");
  add_list(*command, "--out", grid.out, extents(65536), "Output channels [3,8,16,32,64]");
  add_list(*command, "--size", grid.size, extents(65536), "Height and width [32,64,128,256,512]");
  add_list(*command, "--kernel", grid.kernel, extents(255), "Height and width of the window [1,3,5,7,9,11]");
  add_list(*command, "--stride", grid.stride, extents(255), "Strides [1,2]");
  command->add_flag("--all", grid.all,
                    "Also what is left out otherwise: fewer outputs than inputs, and large windows on large "
                    "images (3686 of 6000 stay)");
  command->add_option("--sample", options->sample, "Only N of the combinations, drawn at random; 0: all")
      ->check(count_value())
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Of --sample")->capture_default_str();
  std::vector<std::string> backends = kernel_names();
  backends.insert(backends.begin(), "auto");
  add_list(*command, "--backend", options->backends, one_of(backends),
           "Kernels by name (pipit inspect MODEL --why lists some); auto: the fastest of all [auto]")
      ->type_name("auto|KERNEL,...");
  one_of(command->add_option("--base", options->base,
                             "The precision that the others are held against, by the fastest of its kernels "
                             "[fp32, on a GPU fp16]"),
         {"fp32", "fp16", "int8"});
  command->add_option("--top", options->top, "Rows in the table, those with the largest speed-ups")
      ->check(count_value())
      ->capture_default_str();
  add_wide_to(*command, options->wide);
  options->shared.add_to(*command, "What is held against the base [int8]",
                         "Time box of a row: it and the base in turns",
                         "Also draw speed-ups over image size and input channels into this file",
                         {OutputForm::json, OutputForm::csv, OutputForm::html});
  command->footer(
      "Square convolutions with a bias, padding half of the window and no activation, in NHWC, on what a "
      "random\n"
      "convolution and a ReLU make of normal numbers. Speed-ups are medians over turns of both, with 95 % "
      "intervals;\n"
      "'faster' and 'slower' count those whose whole interval is more than 1 % away from 1. Errors are "
      "against sums\n"
      "in double precision of the same data, at 256 pixels of all channels. What does not run is a row with "
      "its\n"
      "reason.\n"
      "Examples:\n  pipit sweep conv --sample 200 --results conv.jsonl --output conv.csv --output conv.html\n"
      "  pipit sweep conv --n 1 --in 64,128 --out 64,128 --size 28,56 --kernel 3 --stride 1 --all "
      "--precision fp16,int8");
  command->callback([options, &exit_code] { exit_code = sweep_conv(*options); });
}

}  // namespace pipit::apps
