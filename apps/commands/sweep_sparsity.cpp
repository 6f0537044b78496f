// pipit sweep sparsity: what structured pruning of single layers brings and costs, over modes, shares and precisions.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/print_json.h"
#include "apps/display/progress.h"
#include "apps/display/terminal.h"
#include "apps/measuring/sweep_file.h"
#include "apps/measuring/sweep_rows.h"
#include "apps/options/list_option.h"
#include "apps/options/sweep_options.h"
#include "apps/options/values.h"
#include "engine/base/file.h"
#include "engine/base/version.h"
#include "layers/cpu_kernels.h"
#include "layers/passes/pipeline.h"
#include "pipit/measuring/problem_of.h"
#include "pipit/measuring/runner.h"
#include "pipit/report/html_report.h"

namespace pipit::internal::apps {

namespace {

struct SweepSparsityOptions {
  SweepOptions shared{.precisions = {"fp32"}, .seconds = 0.5};
  ModelOptions model;
  std::vector<std::string> layers;
  std::vector<std::string> modes = {"k", "k-panel", "channel", "block", "input", "input-panel"};
  std::vector<double> keeps = {1, 0.85, 0.75, 0.65, 0.5, 0.35, 0.25};
  std::string importance = "second-order";
  std::int64_t group = 0;  // 0: what the precision takes together
  std::int64_t panel = cpu_panel_outputs();
  std::int64_t block = 16;
  bool no_refit = false;
  bool wide = false;
};

Importance importance_named(const std::string& name) {
  for (const Importance i : {Importance::l1, Importance::l2, Importance::activation}) {
    if (importance_name(i) == name) return i;
  }
  return Importance::second_order;
}

// The layers of MODEL, or of --layer, or without both two that are typical of convolutional networks.
std::vector<SparseLayer> layers_of(const SweepSparsityOptions& options) {
  std::vector<SparseLayer> layers;
  if (!options.model.model.empty()) {
    Model model = options.model.load();
    if (is_quantized(model.graph))
      fail_unsupported(
          "{} is quantized; give the model in floating point that it was made from, and --precision int8",
          model.name);
    layers = convolutions_of(fuse(std::move(model.graph)));
    if (layers.empty())
      fail_unsupported("{}: no convolution of one group, with constant weights and at least 8 input channels",
                       model.name);
    return layers;
  }
  const std::vector<std::string> defaults = {"16x64x56x56:128x3x3", "4x64x128x128:128x3x3"};
  for (const std::string& spec : options.layers.empty() ? defaults : options.layers) {
    try {
      layers.push_back(parse_layer(spec));
    } catch (const Error& e) {
      throw CLI::ValidationError("--layer", e.what());
    }
  }
  return layers;
}

// Channels that a kernel leaves out together.
std::int64_t group_of(const SweepSparsityOptions& options, Precision precision) {
  if (options.group != 0) return options.group;
  if (options.shared.common.device == DeviceKind::cuda) return 16;
  return precision == Precision::int8 ? 4 : stores_16_bits(precision) ? 2 : 1;
}

double largest(const std::span<const float> values) {
  double most = 0;
  for (const float v : values) most = std::max(most, std::abs(double{v}));
  return most;
}

// Rows of one layer, made as they are asked for: what they share is made once.
class LayerSweep {
 public:
  LayerSweep(const SparseLayer& layer, const SweepSparsityOptions& options, const LayerMachine& machine)
      : layer_(layer),
        options_(options),
        machine_(machine),
        x_(network_values(layer.x, machine.threads), machine.threads),
        pruner_(std::make_unique<LayerPruner>(layer_, x_.values(), *machine.pool)) {
    for (std::int64_t i = 0; i < layer.weights.weights.shape()[1]; ++i) inputs_.push_back(i);
    for (std::int64_t o = 0; o < layer.weights.weights.shape()[0]; ++o) outputs_.push_back(o);
    reference_ = LayerRun(layer_, layer.weights, inputs_, outputs_, x_,
                          LayerMachine(DeviceKind::cpu, machine.threads), {Precision::fp32}, ranges_)
                     .results();
    ranges_ = {x_.largest(), largest(reference_)};
  }

  void measure(SweepRow& row) {
    const LayerTarget target{precisions().at(row.precision), {}};
    if (!dense_ || dense_precision_ != target.precision) {
      dense_ = run(layer_.weights, inputs_, outputs_, target);
      dense_precision_ = target.precision;
    }
    row.dense_kernel = dense_->kernel();
    const std::int64_t outputs = std::ssize(outputs_);
    if (row.mode == "dense") {
      row.kernel = dense_->kernel();
      const auto other = run(layer_.weights, inputs_, outputs_, target);
      row.times = time_in_turns(*other, *dense_, options_.shared.seconds);
      row.error = layer_error(dense_->results(), reference_, outputs);
      return;
    }
    const SweepMode mode = sweep_mode(row.mode);
    const SelectionOptions how{importance_named(options_.importance), group_of(options_, target.precision),
                               options_.panel, options_.block};
    const bool refits = !options_.no_refit && LayerPruner::refits(mode);
    const PrunedLayer plain = pruner_->prune(mode, row.keep, how, false);
    row.kept = plain.kept;
    const auto pruned = run(plain.weights, plain.inputs, plain.outputs, target);
    row.kernel = pruned->kernel();
    row.error = layer_error(pruned->results(), reference_, outputs);
    row.times = time_in_turns(*pruned, *dense_, options_.shared.seconds);
    if (!refits) return;
    const PrunedLayer fitted = pruner_->prune(mode, row.keep, how, true);
    row.refit = layer_error(run(fitted.weights, fitted.inputs, fitted.outputs, target)->results(), reference_,
                            outputs);
  }

 private:
  std::unique_ptr<LayerRun> run(const NewWeights& weights, const std::vector<std::int64_t>& inputs,
                                const std::vector<std::int64_t>& outputs, const LayerTarget& target) {
    return std::make_unique<LayerRun>(layer_, weights, inputs, outputs, x_, machine_, target, ranges_);
  }

  const SparseLayer& layer_;
  const SweepSparsityOptions& options_;
  const LayerMachine& machine_;
  LayerInput x_;
  std::unique_ptr<LayerPruner> pruner_;
  std::vector<std::int64_t> inputs_, outputs_;
  std::vector<float> reference_;
  LayerRanges ranges_;
  std::unique_ptr<LayerRun> dense_;
  Precision dense_precision_ = Precision::fp32;
};

// What is swept, precisions inside of layers, so that a dense run is made once.
std::vector<SweepRow> rows_of(const SweepSparsityOptions& options, const SparseLayer& layer) {
  std::vector<SweepRow> rows;
  for (const std::string& precision : options.shared.precisions) {
    SweepRow row;
    row.layer = layer.name;
    row.precision = precision;
    if (std::find(options.keeps.begin(), options.keeps.end(), 1.0) != options.keeps.end()) {
      row.mode = "dense";
      rows.push_back(row);
    }
    for (const std::string& mode : options.modes) {
      for (const double keep : options.keeps) {
        if (keep == 1) continue;
        row.mode = mode;
        row.keep = keep;
        rows.push_back(row);
      }
    }
  }
  return rows;
}

nlohmann::ordered_json settings_of(const SweepSparsityOptions& options) {
  nlohmann::ordered_json settings = {{"pipit_sweep", kSparsitySweepVersion}};
  settings.update(options.shared.machine_json());
  settings.update({{"importance", options.importance},
                   {"group", options.group},
                   {"panel", options.panel},
                   {"block", options.block},
                   {"refit", !options.no_refit}});
  return settings;
}

void check_usage(const SweepSparsityOptions& options, const CLI::App& command) {
  const bool of_model = !options.model.model.empty();
  refuse_given(command, "--layer", of_model, "names layers beside those of MODEL; give one of both");
  refuse_given(command, "--batch", !of_model, "is for MODEL: the first number of a --layer is its batch");
  const auto refuse_but_for = [&](const std::vector<std::string>& modes, const char* option,
                                  const std::string& what = "is") {
    const bool any = std::ranges::any_of(options.modes, [&](const std::string& mode) {
      return std::ranges::find(modes, mode) != modes.end();
    });
    refuse_given(command, option, !any,
                 fmt::format("{} for --mode {}, not {}", what, fmt::join(modes, ", "),
                             fmt::join(options.modes, ", ")));
  };
  const std::vector<std::string> fitted = {"k", "k-panel", "input", "input-panel"};
  refuse_but_for({"k", "k-panel", "input-panel"}, "--group");
  refuse_but_for({"k-panel", "input-panel"}, "--panel");
  refuse_but_for({"block"}, "--block");
  refuse_but_for(fitted, "--no-refit");
  if (options.importance == "activation" || options.importance == "second-order")
    refuse_but_for(fitted, "--importance", options.importance + " is");
}

int sweep_sparsity(const SweepSparsityOptions& options) {
  const SweepOptions& shared = options.shared;
  shared.check({options.model.model});
  const std::vector<SparseLayer> layers = layers_of(options);
  const nlohmann::ordered_json settings = settings_of(options);
  SweepFile file(shared.results, settings, shared.resume);
  std::vector<std::vector<SweepRow>> planned;
  std::int64_t total = 0;
  for (const SparseLayer& layer : layers) {
    planned.push_back(rows_of(options, layer));
    total += std::ssize(planned.back());
  }
  std::set<std::string> wanted;
  bool failed = false;
  const LayerMachine machine(shared.common.device, shared.common.threads);
  {
    Progress progress("sweep", total, shared.common.quiet);
    std::int64_t done = 0;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      std::unique_ptr<LayerSweep> measuring;
      std::string general;  // what keeps all rows of the layer
      for (SweepRow& row : planned[l]) {
        wanted.insert(row.key());
        progress.update(done++, printable(row.key()));
        if (file.has(row)) continue;
        if (!measuring && general.empty())
          general = problem_of([&] { measuring = std::make_unique<LayerSweep>(layers[l], options, machine); },
                               failed);
        row.problem = general.empty() ? problem_of([&] { measuring->measure(row); }, failed) : general;
        file.append(row);
      }
    }
  }
  std::vector<SweepRow> rows;
  for (const SweepRow& row : file.rows()) {
    if (wanted.contains(row.key())) rows.push_back(row);
  }
  if (!shared.svg.empty()) write_file(shared.svg, sweep_svg(rows));
  nlohmann::ordered_json json = {{"pipit", version()}, {"command", "sweep sparsity"}};
  json.update(settings);
  json["rows"] = nlohmann::ordered_json::array();
  for (const SweepRow& row : rows) json["rows"].push_back(row.json());
  shared.output.write([&](OutputForm form) {
    return form == OutputForm::csv    ? sweep_csv(rows, settings)
           : form == OutputForm::html ? detail::html_report(json)
                                      : json_text(json);
  });
  if (shared.common.json) {
    print_json(json);
  } else {
    fmt::print("{}", sweep_table(rows, table_width(options.wide)));
  }
  const std::string& model = options.model.model;
  print_next(shared.common.quiet,
             {"prune", model.empty() ? "model.onnx" : model, "photos", "--keep-ratio", "0.5", "--output",
              "pruned.onnx"},
             "what a whole model loses on real images");
  const bool nothing =
      std::all_of(rows.begin(), rows.end(), [](const SweepRow& row) { return !row.problem.empty(); });
  return nothing && !rows.empty() ? exit_without_rows(rows[0].problem, failed) : kExitOk;
}

}  // namespace

void add_sweep_sparsity(CLI::App& parent, int& exit_code) {
  const auto options = std::make_shared<SweepSparsityOptions>();
  CLI::App* command = parent.add_subcommand(
      "sparsity",
      "Remove rows of K, channels, blocks and inputs of layers; time and compare with the dense layer");
  command->add_option("MODEL", options->model.model, model_help() + "; its convolutions instead of --layer")
      ->type_name("MODEL");
  command
      ->add_option("--layer", options->layers,
                   "NxCxHxW:OxRxS, then :sSTRIDE, :pPADDING and :dDILATION as needed: a convolution with "
                   "random weights; may be repeated [16x64x56x56:128x3x3, 4x64x128x128:128x3x3]")
      ->allow_extra_args(false)
      ->type_name("LAYER");
  command->add_option("--batch", options->model.batch, "Images of a run of MODEL [1, or what the file fixes]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}));
  add_list(*command, "--keep-ratio", options->keeps, finite_number() & CLI::Range(0.05, 1.0),
           "Shares that are kept, from 0.05 to 1; 1 is the dense layer "
           "[1,0.85,0.75,0.65,0.5,0.35,0.25]");
  add_choices(*command, "--mode", options->modes,
              {"k", "k-panel", "channel", "block", "input", "input-panel"},
              "What is removed: rows of K for all outputs (k) or chosen for each panel of outputs (k-panel), "
              "outputs (channel), blocks of outputs (block), input channels for all outputs (input) or "
              "chosen for each panel (input-panel) [all]");
  one_of(
      command->add_option("--importance", options->importance,
                          "How the loss caused by removing a group is estimated; outputs only by l1 or l2"),
      {"l1", "l2", "activation", "second-order"})
      ->capture_default_str();
  one_of(command->add_option("--group", options->group,
                             "Neighbouring input channels in a row of K or in mode input-panel; 0: 1 in "
                             "fp32, 2 in fp16 and bf16, 4 in INT8, on a GPU 16"),
         {"0", "1", "2", "4", "8", "16"})
      ->capture_default_str();
  one_of(command->add_option(
             "--panel", options->panel,
             "Outputs that share rows in modes k-panel and input-panel [the number that this CPU computes "
             "together: 16, or 32 with AVX-512]"),
         {"16", "32"});
  one_of(command->add_option("--block", options->block, "Outputs of a block"), {"4", "8", "16", "32"})
      ->capture_default_str();
  command->add_flag("--no-refit", options->no_refit, "Do not fit the kept weights and compare again");
  add_wide_to(*command, options->wide);
  options->shared.add_to(*command, "Arithmetic of the kernels [fp32]",
                         "Time limit of a row: pruned and dense layer in turns",
                         "Also draw time against the accuracy of the output into this file",
                         {OutputForm::json, OutputForm::csv, OutputForm::html});
  command->footer(
      "Layers run by themselves, in NHWC and without activation, on normal numbers after a random "
      "convolution and a ReLU;\n"
      "'pipit prune' measures the loss on real images. The dense layer runs with the fastest of its kernels, "
      "and so does the pruned\n"
      "one; both are timed in turns. Errors are relative to the dense layer in fp32; top-10 is the share of "
      "the ten largest\n"
      "outputs of a pixel that are still among the ten.\n"
      "Examples:\n"
      "  pipit sweep sparsity --precision fp32,int8 --results sweep.jsonl --output sweep.csv --output "
      "sweep.html\n"
      "  pipit sweep sparsity resnet50 --mode k-panel --keep-ratio 0.5,0.25 --json");
  command->callback([options, command, &exit_code] {
    check_usage(*options, *command);
    exit_code = sweep_sparsity(*options);
  });
}

}  // namespace pipit::internal::apps
