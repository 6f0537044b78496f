// pipit profile MODEL: where the time of a run goes, layer by layer.

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>

#include "apps/commands/commands.h"
#include "apps/display/html_report.h"
#include "apps/display/joined_table.h"
#include "apps/display/layer_json.h"
#include "apps/display/layer_table.h"
#include "apps/display/memory_report.h"
#include "apps/display/next_command.h"
#include "apps/display/print_json.h"
#include "apps/display/profile_files.h"
#include "apps/display/progress.h"
#include "apps/display/run_json.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/measuring/sweep_document.h"
#include "apps/options/output_option.h"
#include "apps/options/settings.h"
#include "apps/options/values.h"
#include "engine/base/clock.h"
#include "engine/base/version.h"
#include "engine/platform/device.h"
#include "engine/platform/host_memory.h"
#include "pipit/detail/preparation.h"
#include "pipit/measuring/accuracy_file.h"
#include "pipit/measuring/input_file.h"
#include "pipit/measuring/machine.h"
#include "pipit/measuring/machine_ceilings.h"
#include "pipit/measuring/runner.h"
#include "pipit/measuring/timing.h"

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
  std::vector<std::string> input;
  std::string accuracy, sweep;
  std::string sort;  // empty: as the layers run, groups by time
  int top = 0;
  std::string by = "layer";
  bool wide = false;
  int runs = 50;
  int warmup = 5;
  bool floor = false;
  bool memory = false;
  bool byte_images = false;

  TableView view() const {
    const std::string order = sort.empty() ? (by == "layer" ? "order" : "ms") : sort;
    return {kOrders.at(order), top, table_width(wide), memory};
  }
  GroupBy group() const { return by == "type" ? GroupBy::type : GroupBy::kernel; }
};

// What was found with one setting.
struct Measured {
  std::shared_ptr<const ExecutionPlan> plan;
  ProfiledSide side;
  Ceilings ceilings;  // with --floor
  double read_ms = 0;
  double load_ms = 0;
  double first_run_ms = 0;
  DeviceMemory memory;  // on a GPU
  ProcessMemory process;
  nlohmann::ordered_json header;

  bool on_gpu() const { return plan->options().device == DeviceKind::cuda; }
  double first_answer_ms() const { return read_ms + load_ms + first_run_ms; }
};

// What sets it apart from the others: "int8, 2 threads".
std::string setting_label(const SettingLists& lists, const Setting& setting, const ExecutionPlan& plan,
                          std::int64_t samples) {
  std::vector<std::string> parts;
  if (lists.precisions.size() > 1) parts.emplace_back(precision_name(computed_precision(plan)));
  if (lists.batches.size() > 1) parts.push_back(fmt::format("batch {}", samples));
  if (lists.threads.size() > 1) parts.push_back(counted(setting.threads, "thread"));
  return fmt::format("{}", fmt::join(parts, ", "));
}

Measured measure(const ProfileOptions& options, const Setting& setting, const ProgressReport& progress) {
  Measured measured;
  reset_peak_resident_memory();
  const auto begin = Clock::now();
  ModelOptions source = options.model;
  source.batch = setting.batch;
  Model model = source.load();
  measured.read_ms = milliseconds_since(begin);
  CommonOptions common = common_options(options.common, setting);
  if (options.byte_images) common.byte_images = detail::prepare_for(model, {}).preprocess;
  const InputFiles files(options.input, model, options.byte_images);
  Runner runner = common.make_runner(model.name, std::move(model.graph));
  const ExecutionPlan& plan = *runner.plan;
  measured.plan = runner.plan;
  measured.load_ms = runner.load_ms;
  const Graph& graph = plan.graph();
  const std::vector<Tensor> inputs = files.tensors(graph);
  std::vector<ConstTensorView> views;
  for (const Tensor& t : inputs) views.push_back(t.view());
  // The file or --dim may have set it as well as --batch.
  const Shape shape = inputs.empty() ? Shape{} : inputs[0].shape();
  ProfiledSide& side = measured.side;
  side.samples = shape.rank() > 0 ? std::max<std::int64_t>(shape[0], 1) : 1;
  side.label = setting_label(options.settings, setting, plan, side.samples);

  const auto first_begin = Clock::now();
  runner.run(views);
  measured.first_run_ms = milliseconds_since(first_begin);
  side.profile = runner.profile(views, options.warmup, options.runs,
                                [&](int done) { progress(done, options.warmup + options.runs); });
  // The memory first: measuring ceilings takes some.
  const PlanOptions& made = plan.options();
  measured.process = {resident_memory(), peak_resident_memory()};
  if (measured.on_gpu()) measured.memory = device_memory(made.gpu);
  if (options.floor)
    measured.ceilings =
        machine_ceilings(made.device, made.gpu, made.threads, note_printer(options.common.quiet));
  side.rows = layer_rows(plan, side.profile, measured.ceilings);
  measured.header = json_header("profile", model.name, plan);
  return measured;
}

void print_profile_notes(const Measured& measured, const std::string& model) {
  const ProfiledSide& side = measured.side;
  if (const std::string note = reference_note(side.rows, side.profile); !note.empty()) print_error(note);
  const std::string what = side.label.empty() ? model : model + ", " + side.label;
  if (const std::string note = busy_note(what, side.profile.run_ms); !note.empty()) print_error(note);
  if (const std::string note = beaten_floors_note(side.rows, measured.on_gpu()); !note.empty())
    print_error(note);
}

// One for all settings, of the first that bf16 could make faster; none where bf16 is measured anyway.
void print_bf16_note(const std::vector<Measured>& all, const std::string& model) {
  const auto in_bf16 = [](const Measured& one) { return one.plan->options().precision == Precision::bf16; };
  if (std::ranges::any_of(all, in_bf16)) return;
  for (const Measured& one : all) {
    const std::optional<detail::Bf16Gain> gain = bf16_gain_here(*one.plan, one.ceilings);
    if (gain) return print_error(detail::bf16_note(model, *gain));
  }
}

nlohmann::ordered_json result_json(const ProfileOptions& options, const Measured& measured) {
  nlohmann::ordered_json json = measured.header;
  json["schema"] = kTimesSchema;
  json["machine"] = machine_description(*measured.plan);
  json["batch"] = measured.side.samples;
  if (!options.input.empty()) json["input"] = fmt::format("{}", fmt::join(options.input, " "));
  if (!measured.plan->graph().inputs().empty())
    json["input_type"] = dtype_name(first_input(*measured.plan).dtype);
  json["read_ms"] = measured.read_ms;
  json["load_ms"] = measured.load_ms;
  json["first_run_ms"] = measured.first_run_ms;
  json["first_answer_ms"] = measured.first_answer_ms();
  json["arena_bytes"] = measured.plan->arena_bytes();
  if (measured.on_gpu()) {
    json["device_memory_bytes"] = measured.memory.held;
    json["device_memory_peak_bytes"] = measured.memory.peak;
  }
  const ProfiledSide& side = measured.side;
  if (options.by != "layer") json["groups"] = group_json(side.rows, side.profile, options.group());
  json.update(layer_json(side.rows, *measured.plan, side.profile, measured.ceilings));
  json["memory"] = memory_json(*measured.plan, measured.process);
  json["run"] = run_json(side.profile.trace);
  json["arena"] = arena_json(*measured.plan);
  return json;
}

// What is said once however many settings there are.
struct Surroundings {
  std::string measured_at;
  std::vector<Finding> environment;
  nlohmann::ordered_json accuracy;

  void add_to(nlohmann::ordered_json& json) const {
    json["measured_at"] = measured_at;
    json["environment"] = nlohmann::ordered_json::array();
    for (const Finding& f : environment)
      json["environment"].push_back({{"name", f.name}, {"value", f.value}});
    if (!accuracy.is_null()) json["accuracy"] = accuracy;
  }
};

nlohmann::ordered_json document_json(const ProfileOptions& options, const Surroundings& surroundings,
                                     const std::vector<Measured>& measured) {
  nlohmann::ordered_json json;
  if (measured.size() == 1) {
    json = result_json(options, measured[0]);
    surroundings.add_to(json);
    return json;
  }
  json["pipit"] = version();
  json["command"] = "profile";
  json["schema"] = kTimesSchema;
  surroundings.add_to(json);
  json["results"] = nlohmann::ordered_json::array();
  std::vector<ProfiledSide> sides;
  for (const Measured& one : measured) {
    json["results"].push_back(result_json(options, one));
    sides.push_back(one.side);
  }
  json["joined"] = joined_json(sides);
  return json;
}

void print_text(const ProfileOptions& options, const Measured& measured) {
  const ExecutionPlan& plan = *measured.plan;
  const auto& [label, rows, profile, samples] = measured.side;
  const TableView view = options.view();
  const std::string first_answer =
      fmt::format("first answer   {:9.1f} ms   reading the model {:.1f}, planning {:.1f}, one run {:.1f}\n",
                  measured.first_answer_ms(), measured.read_ms, measured.load_ms, measured.first_run_ms);
  fmt::print("{}\n",
             wrapped(fmt::format("{}: {} on {} with {}\n", printable(options.model.model),
                                 precision_name(computed_precision(plan)), device_name(plan.options().device),
                                 counted(plan.options().threads, "thread")),
                     2, view.width));
  fmt::print("{}{}",
             options.by == "layer" ? layer_table(rows, profile, view)
                                   : group_table(rows, profile, options.group(), view),
             wrapped(profile_summary(rows, plan, profile, measured.ceilings) + first_answer, kSummaryIndent,
                     view.width));
  if (options.memory) fmt::print("\n{}", memory_table(plan, measured.process, measured.memory, view.width));
  if (measured.on_gpu() && !options.memory) {
    fmt::print("device memory  {:>9}      at worst {}\n", mebibytes(measured.memory.held),
               mebibytes(measured.memory.peak));
  }
}

// Several settings: one table of all.
void print_joined(const ProfileOptions& options, const std::vector<Measured>& measured) {
  std::vector<ProfiledSide> sides;
  for (const Measured& one : measured) sides.push_back(one.side);
  const bool batches = options.settings.batches.size() > 1;
  const TableView view = options.view();
  fmt::print(
      "{}\n{}",
      wrapped(fmt::format("{}: x is how many times as fast as with {}{}\n", printable(options.model.model),
                          sides[0].label, batches ? ", for one image" : ""),
              2, view.width),
      joined_table(sides, view));
}

std::string file_content(OutputForm form, const nlohmann::ordered_json& document) {
  switch (form) {
    case OutputForm::json:
      return json_text(document);
    case OutputForm::csv:
      return profile_csv(document);
    case OutputForm::html:
      return html_report(document);
    case OutputForm::trace:
      return chrome_trace(document);
    case OutputForm::trtexec:
      return trtexec_profile(document);
  }
  return {};
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
  } else if (!options.floor) {
    print_next(options.common.quiet, {"profile", model, device, cuda, "--floor", "--output", "report.html"},
               "how far from what the machine could do; one page to look at");
  } else {
    print_next(options.common.quiet, {"inspect", model, device, cuda, "--why"},
               "why each layer runs the kernel that it does");
  }
}

int profile(const ProfileOptions& options) {
  options.settings.check(options.common);
  const std::vector<Setting> settings = options.settings.all();
  const auto for_one_setting = [&](bool asked, const char* option, const char* what) {
    if (settings.size() > 1 && asked)
      throw CLI::ValidationError(option,
                                 fmt::format("{} for one precision, batch and number of threads", what));
  };
  for_one_setting(options.floor, "--floor", "is");
  for_one_setting(options.memory, "--memory", "is");
  for_one_setting(options.by != "layer", "--by", "is");
  for_one_setting(options.output.has(OutputForm::trtexec), "--output", ".trtexec.json is");
  std::vector<std::string> read = {options.model.model, options.common.plan, options.common.tuning.file(),
                                   options.accuracy, options.sweep};
  for (const std::string& text : options.input) {
    read.push_back(text);
    read.push_back(text.substr(text.find('=') + 1));
  }
  options.output.check(read);
  Surroundings surroundings;
  nlohmann::ordered_json sweep;
  if (!options.sweep.empty()) {
    if (!options.output.has(OutputForm::html))
      throw CLI::ValidationError("--sweep", "is shown in the report: --output FILE.html");
    sweep = read_sweep_document(options.sweep);
  }
  if (!options.accuracy.empty()) surroundings.accuracy = read_accuracy(options.accuracy);
  surroundings.measured_at = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));
  // Before the measurement, which is load itself.
  surroundings.environment = measuring_environment(options.common.device == DeviceKind::cuda);
  std::vector<Measured> measured;
  {
    std::vector<Progress::Stage> stages;
    for (const Setting& setting : settings) stages.push_back({setting_text(setting)});
    Progress progress("profile", std::move(stages), options.common.quiet);
    for (const Setting& setting : settings) {
      measured.push_back(measure(options, setting, progress.stage(setting_text(setting))));
      if (!options.common.quiet) print_profile_notes(measured.back(), options.model.model);
    }
  }
  if (!options.common.quiet) print_bf16_note(measured, options.model.model);
  const nlohmann::ordered_json document = document_json(options, surroundings, measured);
  options.output.write([&](OutputForm form) {
    if (form != OutputForm::html || sweep.is_null()) return file_content(form, document);
    nlohmann::ordered_json with_sweep = document;
    with_sweep["sweep"] = sweep;
    return html_report(with_sweep);
  });
  if (options.common.json) {
    print_json(document);
  } else if (settings.size() > 1) {
    print_joined(options, measured);
  } else {
    print_text(options, measured[0]);
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
          "--input", options->input,
          "Input data: a .npy file of the input's shape or of one sample, or an image, prepared as in pipit "
          "classify; NAME=FILE.npy for a model with several inputs; may be repeated [random numbers]")
      ->type_name("FILE");
  add_byte_images_to(*command, options->byte_images);
  options->output.add_to(*command, {OutputForm::json, OutputForm::csv, OutputForm::html, OutputForm::trace,
                                    OutputForm::trtexec});
  command
      ->add_option("--accuracy", options->accuracy,
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
      ->add_option("--runs", options->runs,
                   "Timed runs; the table shows medians, and eight of ten runs lie between p10 and p90")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--warmup", options->warmup, "Runs before the first timed one")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  command->add_flag(
      "--floor", options->floor,
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
  command->callback([options, &exit_code] { exit_code = profile(*options); });
}

}  // namespace pipit::internal::apps
