// pipit profile MODEL: where the time of a run goes, layer by layer.
#include "pipit/profile.h"

#include <fmt/ranges.h>

#include <map>

#include "apps/commands/commands.h"
#include "apps/display/layer_table.h"
#include "apps/display/next_command.h"
#include "apps/display/stage_progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/output_option.h"
#include "apps/options/settings.h"
#include "apps/options/values.h"
#include "pipit/sweep.h"
#include "pipit/text.h"

namespace pipit::internal::apps {

namespace {

const std::map<std::string, LayerOrder> kOrders = {{"order", LayerOrder::order},
                                                   {"ms", LayerOrder::ms},
                                                   {"macs", LayerOrder::macs},
                                                   {"name", LayerOrder::name}};

struct ProfileOptions {
  CommonOptions common;  // without its threads and precision
  ModelOptions model;    // without its batch
  SettingLists settings;
  OutputOption output;
  tools::ProfileModelOptions how;
  std::string sweep;
  std::string sort;  // empty: as the layers run, groups by time
  int top = 0;
  std::string by = "layer";
  bool wide = false;
  bool memory = false;

  TableView view() const {
    const std::string order = sort.empty() ? (by == "layer" ? "order" : "ms") : sort;
    return {kOrders.at(order), top, table_width(wide), memory};
  }
};

void print_text(const ProfileOptions& options, const tools::ModelProfile& profile) {
  const TableView view = options.view();
  const std::string first_answer =
      fmt::format("first answer   {:9.1f} ms   reading the model {:.1f}, planning {:.1f}, one run {:.1f}\n",
                  profile.read_ms + profile.load_ms + profile.first_run_ms, profile.read_ms, profile.load_ms,
                  profile.first_run_ms);
  fmt::print("{}\n", wrapped(fmt::format("{}: {} on {} with {}\n", printable(options.model.model),
                                         precision_name(profile.precision), device_name(profile.device),
                                         counted(profile.threads, "thread")),
                             2, view.width));
  fmt::print(
      "{}{}",
      options.how.group_by ? group_table(profile, *options.how.group_by, view) : layer_table(profile, view),
      wrapped(profile_summary(profile) + first_answer, kSummaryIndent, view.width));
  if (options.memory) fmt::print("\n{}", memory_table(profile, view.width));
  if (profile.device == DeviceKind::cuda && !options.memory) {
    fmt::print("device memory  {:>9}      at worst {}\n", mebibytes(profile.memory.device_bytes),
               mebibytes(profile.memory.device_peak_bytes));
  }
}

// Several settings: one table of all.
void print_joined(const ProfileOptions& options, const tools::ProfileResult& result) {
  const bool batches = options.settings.batches.size() > 1;
  const TableView view = options.view();
  fmt::print(
      "{}\n{}",
      wrapped(fmt::format("{}: x is how many times as fast as with {}{}\n", printable(options.model.model),
                          result.profiles[0].label, batches ? ", for one image" : ""),
              2, view.width),
      joined_table(result, view));
}

void print_next_of(const ProfileOptions& options) {
  const bool gpu = options.common.device == DeviceKind::cuda;
  const std::string_view device = gpu ? "--device" : "", cuda = gpu ? "cuda" : "";
  const std::string& model = options.model.model;
  const std::vector<std::string>& precisions = options.settings.precisions;
  const std::string& plan = options.common.plan;
  if (precisions.size() > 1) {
    print_next(options.common.quiet,
               {"bench", model, device, cuda, "--precision", fmt::format("{}", fmt::join(precisions, ",")),
                plan.empty() ? "" : "--plan", plan},
               "whole runs of both, in turns");
  } else if (!options.how.floors) {
    print_next(options.common.quiet, {"profile", model, device, cuda, "--floor", "--output", "report.html"},
               "how far from what the machine could do; one page to look at");
  } else {
    print_next(options.common.quiet, {"inspect", model, device, cuda, "--why"},
               "why each layer runs the kernel that it does");
  }
}

tools::ProfileModelOptions library_options(const ProfileOptions& options) {
  tools::ProfileModelOptions how = options.how;
  how.timing.load = options.common.load_options();
  options.model.add_to(how.timing.load);
  options.settings.add_to(how.timing, options.common);
  return how;
}

void check(const ProfileOptions& options) {
  options.settings.check(options.common);
  const auto for_one_setting = [&](bool asked, const char* option, const char* what) {
    if (options.settings.count() > 1 && asked)
      throw CLI::ValidationError(option,
                                 fmt::format("{} for one precision, batch and number of threads", what));
  };
  const tools::ProfileModelOptions& how = options.how;
  for_one_setting(how.floors, "--floor", "is");
  for_one_setting(options.memory, "--memory", "is");
  for_one_setting(how.group_by.has_value(), "--by", "is");
  for_one_setting(options.output.has(OutputForm::trtexec), "--output", ".trtexec.json is");
  std::vector<std::string> read = {options.model.model, options.common.plan, options.common.tuning.file(),
                                   how.accuracy.string(), options.sweep};
  for (const std::string& text : how.timing.inputs) {
    read.push_back(text);
    read.push_back(text.substr(text.find('=') + 1));
  }
  options.output.check(read);
  if (!options.sweep.empty() && !options.output.has(OutputForm::html))
    throw CLI::ValidationError("--sweep", "is shown in the report: --output FILE.html");
}

int profile(const ProfileOptions& options) {
  check(options);
  const bool quiet = options.common.quiet;
  tools::ProfileModelOptions how = library_options(options);
  const std::string sweep = options.sweep.empty() ? "" : tools::read_sweep_document(options.sweep);
  StageProgress progress("profile", quiet);
  how.progress = progress.callbacks();
  how.timing.note = note_printer(quiet);
  const tools::ProfileResult result = tools::profile_model(options.model.model, how);
  progress.end();
  if (!quiet) {
    for (const tools::ModelProfile& one : result.profiles) print_notes(one.notes);
    print_notes(result.notes);
  }
  options.output.write(result.json, sweep);
  if (options.common.json) {
    fmt::print("{}", result.json);
  } else if (result.profiles.size() > 1) {
    print_joined(options, result);
  } else {
    print_text(options, result.profiles[0]);
  }
  print_next_of(options);
  return kExitOk;
}

}  // namespace

void add_profile(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<ProfileOptions>();
  CLI::App* command = app.add_subcommand("profile", "Time every layer of a model");
  options->common.add_shared_to(*command);
  options->model.add_to(*command, false);
  options->settings.add_to(*command);
  command
      ->add_option(
          "--input", options->how.timing.inputs,
          "Input data: a .npy file of the input's shape or of one sample, or an image, prepared as in pipit "
          "classify; NAME=FILE.npy for a model with several inputs; may be repeated [random numbers]")
      ->type_name("FILE");
  add_byte_images_to(*command, options->how.timing.image_bytes);
  options->output.add_to(*command, {OutputForm::json, OutputForm::csv, OutputForm::html, OutputForm::trace,
                                    OutputForm::trtexec});
  command
      ->add_option("--accuracy", options->how.accuracy,
                   "The JSON of pipit evaluate, to be included in the JSON and the report")
      ->type_name("FILE");
  command
      ->add_option("--sweep", options->sweep,
                   "The JSON of pipit sweep, to be included in the report (--output FILE.html)")
      ->type_name("FILE");
  one_of(command->add_option("--sort", options->sort,
                             "Sort the table by time, multiply-accumulates, name, or the order in which "
                             "layers run [order; with --by type and kernel: ms]"),
         {"ms", "macs", "name", "order"});
  command->add_option("--top", options->top, "Show only the first N rows of the table; 0: all")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  one_of(command->add_option("--by", options->by, "One row for each layer, layer type or kernel"),
         {"layer", "type", "kernel"})
      ->capture_default_str();
  add_wide_to(*command, options->wide);
  command
      ->add_option("--runs", options->how.runs,
                   "Timed runs; the table shows medians, and eight of ten runs lie between p10 and p90")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--warmup", options->how.warmup, "Runs before the first timed one")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  command->add_flag(
      "--floor", options->how.floors,
      "Also show each layer's floor, its share of the measured time, and what determines it. The floor is "
      "the longest of these times: its kernel's arithmetic, padding included, at the machine's ceiling; "
      "moving its bytes from the nearest memory that can hold them; and on a GPU a launch. Ceilings are "
      "those that 'pipit ceilings' has stored, or are measured now");
  command->add_flag(
      "--memory", options->memory,
      "Also show the memory of the weights (packed and as stored), of the arena and of the kernels' "
      "workspace, and the peak of the process; on a GPU also what the process holds there");
  command->footer(
      "Values of a list are separated by commas, or the option is repeated. Several precisions, batches or "
      "numbers of threads give one table, which shows for each layer its speed-up over the first. Layers are "
      "matched by the model's nodes that they compute: if one kernel does in one run what two do in another, "
      "it is one row.\n"
      "With --json all layers are listed in the order in which they run, with the times of all runs.\n"
      "Examples:\n"
      "  pipit profile resnet50 --runs 100\n"
      "  pipit profile model.onnx --batch 8 --threads 1 --json\n"
      "  pipit profile resnet50 --by type\n"
      "  pipit profile resnet50 --floor --output report.html --output run.trace.json\n"
      "  pipit profile resnet50 --precision fp32,int8-dynamic --sort ms --top 10");
  command->callback([options, &exit_code] {
    if (options->by != "layer")
      options->how.group_by = options->by == "type" ? tools::GroupBy::type : tools::GroupBy::kernel;
    exit_code = profile(*options);
  });
}

}  // namespace pipit::internal::apps
