#include "apps/commands/prune_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "apps/display/output_files.h"
#include "apps/options/values.h"

namespace pipit::internal::apps {

namespace {

const std::map<std::string, tools::Importance> kImportances = {
    {"l1", tools::Importance::l1},
    {"l2", tools::Importance::l2},
    {"activation", tools::Importance::activation},
    {"second-order", tools::Importance::second_order}};
const std::map<std::string, tools::PruneMode> kModes = {{"auto", tools::PruneMode::automatic},
                                                        {"k", tools::PruneMode::rows},
                                                        {"channel", tools::PruneMode::channels},
                                                        {"block", tools::PruneMode::blocks},
                                                        {"input", tools::PruneMode::inputs}};
const std::map<std::string, tools::PrunedRows> kRows = {{"auto", tools::PrunedRows::automatic},
                                                        {"tap", tools::PrunedRows::tap},
                                                        {"channel", tools::PrunedRows::channel}};

}  // namespace

tools::PruneOptions PruneOptions::library_options() const {
  tools::PruneOptions all = how;
  ClassifierOptions& classifier = all.classifier;
  classifier.load = common.load_options();
  model.add_to(classifier.load);
  classifier.preprocess = image.preprocess_options();
  classifier.labels = image.labels;
  classifier.scores = image.score_kind();
  classifier.threshold = image.threshold;
  all.mode = kModes.at(mode);
  all.importance = kImportances.at(importance);
  all.rows = kRows.at(rows);
  all.refit = !no_refit;
  all.check = check;
  return all;
}

void PruneOptions::check_usage(const CLI::App& command) const {
  const tools::PruneGoal& goal = how.goal;
  const bool takes_rows = mode == "auto" || mode == "k";
  const int goals = (goal.keep ? 1 : 0) + (goal.speedup ? 1 : 0) + (goal.max_drop ? 1 : 0);
  if (goals != 1)
    throw CLI::ValidationError("prune", "needs exactly one of --keep-ratio, --target-speedup and --max-drop");
  if (goal.global && !goal.keep) throw CLI::ValidationError("--global", "is for --keep-ratio");
  if (goal.global && !takes_rows) throw CLI::ValidationError("--global", "is for --mode k");
  for (const char* option : {"--rows", "--group", "--panel"})
    refuse_given(command, option, !takes_rows,
                 fmt::format("is for --mode auto and k: in mode {} whole channels are removed", mode));
  refuse_given(command, "--block", mode != "block", fmt::format("is for --mode block, not {}", mode));
  refuse_given(command, "--search-seconds", goal.keep.has_value(),
               "is for --target-speedup and --max-drop: --keep-ratio does not search");
  refuse_given(
      command, "--ridge", no_refit && goal.keep && importance != "second-order",
      fmt::format("is for fitting and for --importance second-order; here --no-refit and {} leave it "
                  "nothing to do",
                  importance));
  if (goal.keep && (!(*goal.keep > 0) || *goal.keep > 1))
    throw CLI::ValidationError("--keep-ratio", "is a share above 0 and at most 1");
  if (goal.speedup && !(*goal.speedup > 1))
    throw CLI::ValidationError("--target-speedup", "is a factor above 1");
  if (how.panel == 1 && how.group.value_or(common.precision == Precision::int8 ? 4 : 1) != 1)
    throw CLI::ValidationError("--panel",
                               "of 1 is for fp32 and --group 1: kernels pick single inputs there only");
  if (goal.judge_by == tools::JudgeBy::model && !image.labels.empty())
    throw CLI::ValidationError("--labels", "has no effect with --judge-by model");
  std::error_code ignored;
  if (!check.empty() && std::filesystem::equivalent(images, check, ignored))
    throw CLI::ValidationError("--check",
                               "names the images that the model is chosen and fitted on; without it every "
                               "other one of them is kept back");
  if (output.empty()) throw CLI::RequiredError("--output");
  const std::vector<std::string> inputs = {model.model, images, check, image.labels, common.tuning.file()};
  check_output("--output", output, inputs);
  check_output("--save-svg", svg, inputs);
  check_apart("--save-svg", svg, "--output", output);
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
  tools::PruneGoal& goal = options->how.goal;
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
                  "least error that reaches it, by a measurement after the search")
      ->check(positive_number());
  command
      .add_option(
          "--max-drop", goal.max_drop,
          "Find the fastest model that loses at most N points of accuracy (1 point: 1 % of the images)")
      ->check(nonnegative_number());
  command
      .add_option("--search-seconds", goal.seconds,
                  "With --target-speedup or --max-drop: how long to measure whole selections in search of "
                  "the best; for "
                  "a quarter of that again, up to three times, while the result misses the target")
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
      .add_option("--output", options->output,
                  "The ONNX file to write; an existing file is replaced (required)")
      ->type_name("FILE");
  command.add_option("--save-svg", options->svg, "Also draw accuracy against time into this file")
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
            options->how.goal.judge_by = name == "labels" ? tools::JudgeBy::labels : tools::JudgeBy::model;
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
             "--group", options->how.group,
             "Neighbouring input channels that are removed together: 1 for fp32, 4 for INT8 on the "
             "CPU, 8 or 16 on a GPU [1, with --precision int8 4]"),
         {"1", "4", "8", "16"});
  one_of(command.add_option(
             "--panel", options->how.panel,
             "Neighbouring outputs that lose the same rows; 0: all of a layer, which GPUs "
             "need; 1: each output loses its own, and 16 neighbouring outputs lose equally "
             "many of 16 neighbouring channels, which fp32 kernels with AVX-512 leave out "
             "[the number that this CPU computes together: 16, or 32 with AVX-512; in fp32 with AVX-512, for "
             "--target-speedup or --max-drop, also 1, whichever is better for each set of layers]"),
         {"0", "1", "16", "32"});
  one_of(command.add_option("--block", options->how.block,
                            "With --mode block: neighbouring channels that are removed together"),
         {"4", "8", "16", "32"})
      ->capture_default_str();
  command.add_flag("--no-refit", options->no_refit, "Do not fit the kept weights, to see what fitting gains");
  command
      .add_option("--ridge", options->how.ridge,
                  "How strongly the kept weights are held to their old values, as a share of the variance of "
                  "what they multiply: more if there are few images")
      ->check(nonnegative_number())
      ->capture_default_str();
  command
      .add_option("--calibrate-limit", options->how.calibrate_limit,
                  "Choose and fit on N images; 0: all that fit in 1.9 GiB")
      ->check(count_value())
      ->capture_default_str();
  add_strict_to(command, options->how.strict);
  command
      .add_option("--limit", options->how.limit, "Use only N images, spread evenly over the folder; 0: all")
      ->check(count_value())
      ->capture_default_str();
  add_wide_to(command, options->wide);
  command.footer(
      "A row of a layer's im2col product (one tap of --group input channels, or all taps) is removed for "
      "--panel outputs at a time. Only zeros\n"
      "in the weights mark it: pipit finds them in any model. Batch normalization is folded.\n"
      "With --precision int8 the pruned model is calibrated on 100 of the images and written as pipit "
      "quantize does; drops\n"
      "are relative to the dense model in fp32.\n"
      "Exit code 4 means that all models that were timed after the search miss --target-speedup (the fastest "
      "is "
      "written), that\n"
      "no model is faster than the dense one or every faster one loses more than --max-drop (nothing is "
      "written), or that the\n"
      "drop is larger than --max-drop on unseen images.\n"
      "Examples:\n"
      "  pipit prune resnet20-cifar10 cifar10-train --check cifar10-test --target-speedup 1.5 --output "
      "pruned.onnx\n"
      "  pipit prune model.onnx photos --judge-by model --keep-ratio 0.5 --output pruned.onnx\n"
      "  pipit prune model.onnx photos --precision int8 --max-drop 1 --output pruned-int8.onnx");
}

}  // namespace pipit::internal::apps
