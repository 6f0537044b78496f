#include "apps/commands/prune_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "apps/display/output_files.h"
#include "apps/options/values.h"
#include "layers/cpu_kernels.h"

namespace pipit::internal::apps {

namespace {

const std::map<std::string, Importance> kImportances = {{"l1", Importance::l1},
                                                        {"l2", Importance::l2},
                                                        {"activation", Importance::activation},
                                                        {"second-order", Importance::second_order}};

}  // namespace

bool PruneOptions::takes_rows() const {
  return mode == "auto" || mode == "k";
}

std::int64_t PruneOptions::group_size() const {
  return group.value_or(common.precision == Precision::int8 ? 4 : 1);
}

std::int64_t PruneOptions::panel_outputs() const {
  return panel.value_or(cpu_panel_outputs());
}

PruningOptions PruneOptions::pruning() const {
  PruningOptions how;
  how.path.walk.threads = how.removal.walk.threads = common.threads;
  how.path.elimination.importance = kImportances.at(importance);
  const bool all = mode == "auto" && !goal.keep;
  how.path.rows = takes_rows();
  how.path.taps = rows == "channel"              ? RowTaps::all
                  : rows == "auto" && !goal.keep ? RowTaps::both
                                                 : RowTaps::single;
  how.path.families = all || !takes_rows();
  how.path.streams = all || mode == "input";
  if (mode == "block") how.path.block = static_cast<std::size_t>(block);
  how.branches = mode == "auto" && !goal.keep;
  how.path.channels = group_size();
  how.path.panel = panel_outputs();
  how.path.shared_panel = cpu_panel_outputs();
  how.removal.refits = !no_refit;
  how.removal.refit.ridge = ridge;
  how.path.elimination.ridge = std::max(how.path.elimination.ridge, ridge);
  return how;
}

void PruneOptions::check_usage(const CLI::App& command) const {
  const int goals = (goal.keep ? 1 : 0) + (goal.speedup ? 1 : 0) + (goal.max_drop ? 1 : 0);
  if (goals != 1)
    throw CLI::ValidationError("prune", "wants one of --keep-ratio, --target-speedup and --max-drop");
  if (goal.global && !goal.keep) throw CLI::ValidationError("--global", "is for --keep-ratio");
  if (goal.global && !takes_rows()) throw CLI::ValidationError("--global", "is for --mode k");
  for (const char* option : {"--rows", "--group", "--panel"})
    refuse_given(command, option, !takes_rows(),
                 fmt::format("is for --mode auto and k: in mode {} whole channels are removed", mode));
  refuse_given(command, "--block", mode != "block", fmt::format("is for --mode block, not {}", mode));
  refuse_given(command, "--search-seconds", goal.keep.has_value(),
               "is for --target-speedup and --max-drop: with --keep-ratio nothing is searched for");
  refuse_given(
      command, "--ridge", no_refit && goal.keep && importance != "second-order",
      fmt::format("is for fitting and for --importance second-order; here --no-refit and {} leave it "
                  "nothing to do",
                  importance));
  if (goal.keep && (!(*goal.keep > 0) || *goal.keep > 1))
    throw CLI::ValidationError("--keep-ratio", "is a share above 0 and at most 1");
  if (goal.speedup && !(*goal.speedup > 1))
    throw CLI::ValidationError("--target-speedup", "is a factor above 1");
  if (panel_outputs() == 1 && group_size() != 1)
    throw CLI::ValidationError("--panel",
                               "of 1 is for fp32 and --group 1: kernels pick single inputs there only");
  if (goal.judge_by == JudgeBy::model && !image.labels.empty())
    throw CLI::ValidationError("--labels", "names classes, which --judge-by model does not ask for");
  std::error_code ignored;
  if (!check.empty() && std::filesystem::equivalent(images, check, ignored))
    throw CLI::ValidationError("--check",
                               "names the images that the model is chosen and fitted on; without it every "
                               "other one of them is kept back");
  if (source.output.empty()) throw CLI::RequiredError("--output");
  const std::vector<std::string> inputs = {model.model, images, check, image.labels, common.tuning.file()};
  check_output("--output", source.output, inputs);
  check_output("--save-svg", source.svg, inputs);
  check_apart("--save-svg", source.svg, "--output", source.output);
}

void add_prune_options(const std::shared_ptr<PruneOptions>& options, CLI::App& command) {
  options->model.add_to(command, false);
  options->image.add_to(command);
  options->image.add_threshold_to(command);
  CommonOptions& common = options->common;
  common.add_precision_to(
      command, {"fp32", "int8"},
      "The precision on the CPU that the model is pruned for; int8 also calibrates the result [fp32]");
  common.add_kernels_to(command);
  common.tuning.add_to(command);
  common.add_threads_to(command);
  common.add_output_to(command);
  command.add_option("IMAGES", options->images, "Images with their classes, as pipit evaluate takes them")
      ->required()
      ->type_name("IMAGES");
  PruneGoal& goal = options->goal;
  command
      .add_option("--keep-ratio", goal.keep,
                  "Keep this share of every layer's weights or, depending on --mode, of its channels, for "
                  "example 0.5")
      ->check(positive_number());
  command.add_flag("--global", goal.global,
                   "With --keep-ratio: keep this share of all layers together, and remove what costs least");
  command
      .add_option("--target-speedup", goal.speedup,
                  "Target speed-up over the dense model in the same --precision: find the model with the "
                  "least error that reaches it, by measurement")
      ->check(positive_number());
  command
      .add_option(
          "--max-drop", goal.max_drop,
          "Find the fastest model that loses at most N points of accuracy (1 point: 1 % of the images)")
      ->check(nonnegative_number());
  command
      .add_option(
          "--search-seconds", goal.seconds,
          "With --target-speedup or --max-drop: how long to measure whole selections in search of the best")
      ->check(positive_number())
      ->capture_default_str();
  one_of(command.add_option(
             "--mode", options->mode,
             "What is removed: rows of K (k); channels that one layer writes (channel), which makes it and "
             "the layers that read them smaller; blocks of --block neighbouring channels (block); input "
             "channels, whatever layers write them, also in residual streams (input); or whichever is better "
             "for each layer with --target-speedup or --max-drop (auto; with --keep-ratio, rows)"),
         {"auto", "k", "channel", "block", "input"})
      ->capture_default_str();
  command
      .add_option("--output", options->source.output,
                  "The ONNX file to write; an existing file is replaced (required)")
      ->type_name("FILE");
  command.add_option("--save-svg", options->source.svg, "Also draw accuracy against time into this file")
      ->type_name("FILE");
  command
      .add_option("--check", options->check,
                  "Images to check the result on [every second image of IMAGES, used for nothing else]")
      ->check(CLI::ExistingPath.description(""))
      ->type_name("IMAGES");
  one_of(
      command.add_option_function<std::string>(
          "--judge-by",
          [options](const std::string& name) {
            options->goal.judge_by = name == "labels" ? JudgeBy::labels : JudgeBy::model;
          },
          "What counts as right: the images' classes, or the answers of MODEL (for images without classes) "
          "[labels]"),
      {"labels", "model"});
  one_of(command.add_option("--importance", options->importance,
                            "How the loss caused by removing a group is estimated"),
         {"l1", "l2", "activation", "second-order"})
      ->capture_default_str();
  one_of(command.add_option(
             "--rows", options->rows,
             "Which part of an input channel is removed from a panel of outputs at once: one tap (tap); in "
             "3x3 layers of stride 1 all taps, which Winograd kernels need (channel); or whichever is better "
             "for each set of layers with --target-speedup or --max-drop (auto; with --keep-ratio, one tap)"),
         {"auto", "tap", "channel"})
      ->capture_default_str();
  one_of(command.add_option(
             "--group", options->group,
             "Neighbouring input channels that are removed together: 1 for fp32, 4 for INT8 on the "
             "CPU, 8 or 16 on a GPU [1, with --precision int8 4]"),
         {"1", "4", "8", "16"});
  one_of(command.add_option("--panel", options->panel,
                            "Neighbouring outputs that lose the same rows; 0: all of a layer, which GPUs "
                            "need; 1: each output loses its own, and 16 neighbouring outputs lose equally "
                            "many of 16 neighbouring channels, which fp32 kernels with AVX-512 leave out "
                            "[the number that this CPU computes together: 16, or 32 with AVX-512]"),
         {"0", "1", "16", "32"});
  one_of(command.add_option("--block", options->block,
                            "With --mode block: neighbouring channels that are removed together"),
         {"4", "8", "16", "32"})
      ->capture_default_str();
  command.add_flag("--no-refit", options->no_refit, "Do not fit the kept weights, to see what fitting gains");
  command
      .add_option("--ridge", options->ridge,
                  "How strongly the kept weights are held to their old values, as a share of the variance of "
                  "what they multiply: more if there are few images")
      ->check(nonnegative_number())
      ->capture_default_str();
  command
      .add_option("--calibrate-limit", options->calibrate,
                  "Choose and fit on N images; 0: all that fit in 1.9 GiB")
      ->check(count_value())
      ->capture_default_str();
  add_strict_to(command, options->strict);
  command.add_option("--limit", options->limit, "Use only N images, spread evenly over the folder; 0: all")
      ->check(count_value())
      ->capture_default_str();
  add_wide_to(command, options->source.wide);
  command.footer(
      "A row of a layer's im2col product (one tap of --group input channels, or all taps) is removed for "
      "--panel outputs at a time. Only zeros\n"
      "in the weights mark it: pipit finds them in any model. Batch normalization is folded.\n"
      "With --precision int8 the pruned model is calibrated on 100 of the images and written as pipit "
      "quantize does; drops\n"
      "are relative to the dense model in fp32.\n"
      "Exit code 4 means that --target-speedup was not reached, that every faster model loses more than "
      "--max-drop (then nothing is written), or that the drop is larger on unseen images.\n"
      "Examples:\n"
      "  pipit prune resnet20-cifar10 cifar10-train --check cifar10-test --target-speedup 1.5 --output "
      "pruned.onnx\n"
      "  pipit prune model.onnx photos --judge-by model --keep-ratio 0.5 --output pruned.onnx\n"
      "  pipit prune model.onnx photos --precision int8 --max-drop 1 --output pruned-int8.onnx");
}

}  // namespace pipit::internal::apps
