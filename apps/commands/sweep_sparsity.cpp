// pipit sweep sparsity: what structured pruning of single layers brings and costs, over modes, shares and precisions.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "apps/commands/commands.h"
#include "apps/commands/sweep_report.h"
#include "apps/display/next_command.h"
#include "apps/display/terminal.h"
#include "apps/options/list_option.h"
#include "apps/options/sweep_options.h"
#include "apps/options/values.h"

namespace pipit::internal::apps {

namespace {

const std::map<std::string, tools::Importance> kImportanceNames = {
    {"l1", tools::Importance::l1},
    {"l2", tools::Importance::l2},
    {"activation", tools::Importance::activation},
    {"second-order", tools::Importance::second_order}};

struct SweepSparsityOptions {
  SweepOptions shared{.precisions = {"fp32"}, .seconds = 0.5};
  ModelOptions model;
  tools::SparsitySweepOptions how;  // what the library takes as it is given here
  std::vector<std::string> modes = {"k", "k-panel", "channel", "block", "input", "input-panel"};
  std::string importance = "second-order";
  bool no_refit = false;
  bool wide = false;
};

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
  std::optional<Progress> bar;
  tools::SparsitySweepOptions how = options.how;
  for (const std::string& layer : how.layers) {
    try {
      tools::check_layer(layer);
    } catch (const ArgumentError& e) {
      throw CLI::ValidationError("--layer", e.what());
    }
  }
  how.run = shared.run(bar);
  how.precisions = shared.all_precisions();
  how.model = options.model.model;
  options.model.add_to(how.load);
  const std::vector<tools::SparsityMode> all = tools::SparsitySweepOptions{}.modes;
  how.modes.clear();
  for (const std::string& name : options.modes)
    how.modes.push_back(*std::ranges::find(all, name, tools::sparsity_mode_name));
  how.importance = kImportanceNames.at(options.importance);
  how.refit = !options.no_refit;
  const tools::SparsitySweep sweep = tools::sweep_sparsity(how);
  bar.reset();
  shared.write(
      sweep.json, [&] { return sparsity_svg(sweep); },
      [&] { return sparsity_table(sweep, table_width(options.wide)); });
  print_next(shared.common.quiet,
             {"prune", how.model.empty() ? "model.onnx" : how.model, "photos", "--keep-ratio", "0.5",
              "--output", "pruned.onnx"},
             "what a whole model loses on real images");
  return exit_of_rows(sweep.rows, sweep.failed);
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
      ->add_option("--layer", options->how.layers,
                   "NxCxHxW:OxRxS, then :sSTRIDE, :pPADDING and :dDILATION as needed: a convolution with "
                   "random weights; may be repeated [16x64x56x56:128x3x3, 4x64x128x128:128x3x3]")
      ->allow_extra_args(false)
      ->type_name("LAYER");
  command->add_option("--batch", options->model.batch, "Images of a run of MODEL [1, or what the file fixes]")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}));
  add_list(*command, "--keep-ratio", options->how.keeps, finite_number() & CLI::Range(0.05, 1.0),
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
  one_of(command->add_option("--group", options->how.group,
                             "Neighbouring input channels in a row of K or in mode input-panel; 0: 1 in "
                             "fp32, 2 in fp16 and bf16, 4 in INT8, on a GPU 16"),
         {"0", "1", "2", "4", "8", "16"})
      ->capture_default_str();
  one_of(command->add_option(
             "--panel", options->how.panel,
             "Outputs that share rows in modes k-panel and input-panel [the number that this CPU computes "
             "together: 16, or 32 with AVX-512]"),
         {"16", "32"});
  one_of(command->add_option("--block", options->how.block, "Outputs of a block"), {"4", "8", "16", "32"})
      ->capture_default_str();
  command->add_flag("--no-refit", options->no_refit, "Do not fit the kept weights and compare again");
  add_wide_to(*command, options->wide);
  options->shared.add_to(*command, "Arithmetic of the kernels [fp32]",
                         "Time limit of a row: pruned and dense layer in turns",
                         "Also draw time against the accuracy of the output into this file");
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
