// pipit prune MODEL IMAGES: takes structured groups of weights out of a model and fits the others, without training.
#include <algorithm>

#include "apps/commands/commands.h"
#include "apps/commands/prune_report.h"
#include "apps/display/next_command.h"
#include "apps/display/output_files.h"
#include "apps/display/progress.h"
#include "apps/display/terminal.h"
#include "apps/measuring/judged_images.h"
#include "apps/measuring/prune_search.h"
#include "apps/measuring/runner.h"
#include "apps/options/values.h"
#include "engine/base/file.h"
#include "engine/base/version.h"
#include "engine/platform/host_memory.h"
#include "models/onnx/write/writer.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/quantized_file.h"
#include "quant/kept_layers.h"

namespace pipit::apps {

namespace {

constexpr std::size_t kPruneCacheBytes = std::size_t{256} << 20;
// Of the values that walk_layers() holds; the sums of a layer of depth 4608 come on top, about 0.7 GiB.
constexpr std::size_t kPruneWalkBytes = std::size_t{1900} << 20;
constexpr std::size_t kFewest = 50;  // images to judge steps on
constexpr std::int64_t kProbeImages = 32;
constexpr std::int64_t kScaleImages = 100;  // that INT8 scales are of

const std::map<std::string, Importance> kImportances = {{"l1", Importance::l1},
                                                        {"l2", Importance::l2},
                                                        {"activation", Importance::activation},
                                                        {"second-order", Importance::second_order}};

struct PruneCommand {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string images;
  PruneGoal goal;
  PruneSource source;
  std::string check;
  std::string mode = "auto";
  std::string importance = "second-order";
  std::optional<std::int64_t> group;
  std::int64_t panel = 16;
  std::int64_t block = 16;
  bool no_refit = false;
  double ridge = RefitOptions{}.ridge;
  std::int64_t limit = 0;
  std::int64_t calibrate = 512;
};

std::vector<LabelledImage> images_of(const PruneCommand& options, const std::string& folder,
                                     const Model& model, std::int64_t classes) {
  return images_to_judge(folder, options.goal.against, options.image, model, classes, options.limit,
                         "--against dense");
}

// The images of --check are unseen; without, every other image of the sorted folder.
ImageSplit split_for_pruning(const PruneCommand& options, const Model& model, std::int64_t classes) {
  std::vector<LabelledImage> images = images_of(options, options.images, model, classes);
  ImageSplit split;
  if (!options.check.empty()) {
    split.search = std::move(images);
    split.unseen = images_of(options, options.check, model, classes);
  } else {
    for (std::size_t i = 0; i < images.size(); ++i)
      (i % 2 == 0 ? split.search : split.unseen).push_back(images[i]);
  }
  if (split.search.empty() || split.unseen.empty())
    fail("too few images: {} to prune on and {} to check on", split.search.size(), split.unseen.size());
  return split;
}

bool takes_rows(const PruneCommand& options) {
  return options.mode == "auto" || options.mode == "k";
}

void check_prune_usage(const PruneCommand& options) {
  const PruneGoal& goal = options.goal;
  const int goals = (goal.keep ? 1 : 0) + (goal.speedup ? 1 : 0) + (goal.max_drop ? 1 : 0);
  if (goals != 1) throw CLI::ValidationError("prune", "wants one of --keep, --target-speedup and --max-drop");
  if (goal.global && !goal.keep) throw CLI::ValidationError("--global", "is for --keep");
  if (goal.global && !takes_rows(options)) throw CLI::ValidationError("--global", "is for --mode k");
  if (goal.keep && (!(*goal.keep > 0) || *goal.keep > 1))
    throw CLI::ValidationError("--keep", "is a share above 0 and at most 1");
  if (goal.speedup && !(*goal.speedup > 1))
    throw CLI::ValidationError("--target-speedup", "is a factor above 1");
  if (options.source.output.empty()) throw CLI::RequiredError("--output");
  const std::vector<std::string> inputs = {options.model.model, options.images, options.check,
                                           options.image.labels};
  check_output("--output", options.source.output, inputs);
  check_output("--save-svg", options.source.svg, inputs);
  if (!options.source.svg.empty() && std::filesystem::weakly_canonical(options.source.svg) ==
                                         std::filesystem::weakly_canonical(options.source.output))
    throw CLI::ValidationError("--save-svg", "is the same file as --output");
}

// What weights were fitted on they fit too well: steps are judged on the others, where those are enough.
std::vector<LabelledImage> not_calibrated(const std::vector<LabelledImage>& images,
                                          const std::vector<std::filesystem::path>& calibrated) {
  const std::set<std::filesystem::path> known(calibrated.begin(), calibrated.end());
  std::vector<LabelledImage> others;
  for (const LabelledImage& image : images) {
    if (!known.contains(image.path)) others.push_back(image);
  }
  return others.size() < kFewest ? images : others;
}

// INT8 kernels leave out four neighbouring channels at a time.
std::int64_t group_of(const PruneCommand& options) {
  return options.group.value_or(options.common.precision == Precision::int8 ? 4 : 1);
}

PruningOptions pruning_options(const PruneCommand& options) {
  PruningOptions how;
  how.path.walk.threads = how.removal.walk.threads = options.common.threads;
  how.path.elimination.importance = kImportances.at(options.importance);
  const bool all = options.mode == "auto" && !options.goal.keep;
  how.path.rows = takes_rows(options);
  how.path.families = all || !takes_rows(options);
  how.path.streams = all || options.mode == "input";
  if (options.mode == "block") how.path.block = static_cast<std::size_t>(options.block);
  how.branches = options.mode == "auto" && !options.goal.keep;
  how.path.channels = group_of(options);
  how.path.panel = options.panel;
  how.removal.refits = !options.no_refit;
  how.removal.refit.ridge = options.ridge;
  how.path.elimination.ridge = std::max(how.path.elimination.ridge, options.ridge);
  return how;
}

CompileOptions fp32_options(const PruneCommand& options) {
  CompileOptions how = options.common.compile_options();
  how.planning.precision = Precision::fp32;
  return how;
}

PruneCompiler compiler_for(const PruneCommand& options, const Model& model, const Preprocess& preprocess,
                           const Graph& dense, QuantizationPlan plan,
                           const std::vector<std::filesystem::path>& calibration,
                           const ProgressReport& progress) {
  CompileOptions how = fp32_options(options);
  if (options.common.precision == Precision::fp32) return PruneCompiler(std::move(how));
  plan.keep = kept_by_default(dense);
  PruneCompiler compiler(
      std::move(how),
      {model.name, std::move(plan), preprocess, spread(calibration, kScaleImages), options.images}, dense,
      progress);
  if (!options.common.quiet) print_notes(compiler.notes());
  return compiler;
}

// As many images as are asked for and fit the memory.
std::int64_t images_to_fit_on(const PruneCommand& options, const Graph& dense, std::int64_t batch,
                              std::size_t images) {
  const auto fit =
      static_cast<std::int64_t>(kPruneWalkBytes / (walk_bytes(dense) / static_cast<std::size_t>(batch)));
  const std::int64_t wanted = std::min<std::int64_t>(options.calibrate == 0 ? fit : options.calibrate,
                                                     static_cast<std::int64_t>(images));
  if (wanted <= fit) return wanted;
  const std::int64_t most = std::max(fit, batch);
  if (!options.common.quiet)
    print_notes(
        {fmt::format("{} of the images are used to choose and fit weights: what lies between the layers of "
                     "more does not fit {}",
                     most, mebibytes(kPruneWalkBytes))});
  return most;
}

std::string written(const Model& model, const Graph& graph, bool symbolic_batch) {
  OnnxWriteOptions writing;
  writing.metadata = model.metadata;
  writing.producer_version = version();
  writing.symbolic_batch = symbolic_batch;
  return naming(model.name, [&] { return write_onnx(graph, writing); });
}

// The bytes of the pruned model's file.
std::string written(const Model& model, PruneOutcome& outcome, bool symbolic_batch) {
  const PrunedModel& pruned = outcome.pruned;
  if (outcome.int8) {
    detail::QuantizedFile file = detail::quantized_file(model.name, pruned.graph, *pruned.scales,
                                                        model.metadata, DType::u8, symbolic_batch);
    outcome.int8->nodes = file.quantized;
    outcome.int8->kept = file.kept;
    return std::move(file.bytes);
  }
  return written(model, pruned.graph, symbolic_batch);
}

// Shares are guesses: what takes how long depends on the model and the images.
std::vector<Progress::Stage> stages_of(const PruneGoal& goal, bool int8) {
  std::vector<Progress::Stage> stages = {{"the dense model", 1}};
  if (int8) stages.push_back({"calibrating", 1});
  stages.push_back({"ordering groups", 3});
  if (!goal.keep) stages.push_back({"timing candidates", 4});
  if (goal.speedup) stages.push_back({"timing selections", 4});
  for (int step = 0; step < most_steps(goal); ++step) {
    stages.push_back({"fitting weights", 4});
    if (int8) stages.push_back({"calibrating", 1});
  }
  return stages;
}

int prune(PruneCommand options) {
  check_prune_usage(options);
  const bool quiet = options.common.quiet;
  Model model = options.model.load();
  if (is_quantized(model.graph))
    fail_unsupported("{} is quantized; prune the model that it was made from", model.name);
  const Preprocess preprocess = options.image.resolve(model).preprocess;
  const bool symbolic_batch = !model.fixed_batch;
  QuantizationPlan plan = detail::empty_plan(model, preprocess);
  Graph dense = fuse(std::move(model.graph));
  const ClassOutput output(dense, model.name);
  if (takes_rows(options) && prunable_layers(dense).empty())
    fail_unsupported(
        "{}: nothing to prune: no convolution or matrix product of at least 8 channels between the first "
        "and the last layer",
        model.name);
  const ImageSplit split = split_for_pruning(options, model, output.classes);
  const TensorDesc input = dense.value(dense.inputs()[0]).desc;
  const std::shared_ptr<ThreadPool> pool = shared_pool(options.common.threads);
  const std::int64_t calibrated = images_to_fit_on(options, dense, output.batch, split.search.size());
  std::optional<Progress> bar;
  bar.emplace("prune", stages_of(options.goal, options.common.precision == Precision::int8), quiet);
  const auto stage = [&bar](const char* name) -> ProgressReport { return bar->stage(name); };

  // Every image is read before anything takes long, so that a damaged one is found now.
  PreparedImages calibration(spread(paths_of(split.search), calibrated), preprocess, input, pool);
  std::vector<Tensor> runs = read_runs(calibration);
  const std::vector<LabelledImage> judged = spread(not_calibrated(split.search, calibration.paths()), 1000);
  PreparedImages search(paths_of(judged), preprocess, input, pool, kPruneCacheBytes);
  PreparedImages probe(spread(search.paths(), kProbeImages), preprocess, input, pool, kPruneCacheBytes);
  PreparedImages unseen(paths_of(split.unseen), preprocess, input, pool, kPruneCacheBytes);
  PruneImages images{calibration.size(),      search, labels_of(judged), {}, probe, unseen,
                     labels_of(split.unseen), {}};
  const PruneCompiler compiler = naming(model.name, [&] {
    const auto dense_plan = PruneCompiler(fp32_options(options)).in_fp32(dense);
    const std::int64_t all = search.size() + unseen.size();
    const ProgressReport progress = stage("the dense model");
    images.search_answers = run_outputs(dense_plan, search, [&](std::int64_t done) { progress(done, all); });
    images.unseen_answers =
        run_outputs(dense_plan, unseen, [&](std::int64_t done) { progress(search.size() + done, all); });
    return compiler_for(options, model, preprocess, dense, std::move(plan), calibration.paths(),
                        stage("calibrating"));
  });

  const Pruning pruning = naming(model.name, [&] {
    return Pruning(std::move(dense), std::move(runs), pruning_options(options), compiler,
                   stage("ordering groups"));
  });
  if (!takes_rows(options) && pruning.paths().channels.empty())
    fail_unsupported("{}: no channels between two layers can be removed", model.name);
  std::string missed;
  PruneOutcome outcome = naming(model.name, [&] {
    try {
      return search_pruned(pruning, options.goal, images, stage);
    } catch (const GoalMissed& e) {
      missed = e.what();
      return PruneOutcome{};
    }
  });
  bar.reset();
  if (!missed.empty()) {
    print_error(fmt::format("{}: {}", model.name, missed));
    return kExitCheckFailed;
  }

  const std::string bytes = written(model, outcome, symbolic_batch);
  outcome.bytes = bytes.size();
  outcome.dense_bytes = written(model, pruning.dense(), symbolic_batch).size();
  write_file(options.source.output, bytes);
  if (!options.source.svg.empty())
    write_file(options.source.svg, prune_svg(model.name, options.goal, outcome));
  options.source.mode = options.mode == "auto" && options.goal.keep ? "k" : options.mode;
  options.source.importance = options.importance;
  options.source.group = group_of(options);
  options.source.panel = options.panel;
  options.source.refits = !options.no_refit;
  if (options.common.json) {
    print_json(prune_json(json_header("prune", model, *outcome.plan), options.source, options.goal, outcome));
  } else {
    print_pruned(options.source, options.goal, outcome);
  }
  print_next(quiet, {"bench", options.model.model, "--against", options.source.output},
             "both in turns, whole runs");
  return outcome.passed ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_prune(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<PruneCommand>();
  CLI::App* command = app.add_subcommand(
      "prune",
      "Take groups of weights out of a model, fit the others without training, and write it as ONNX");
  options->model.add_to(*command, false);
  options->image.add_to(*command);
  CommonOptions& common = options->common;
  common.add_precision_to(*command, {"fp32", "int8"},
                          "What it is pruned for, on the CPU; int8 calibrates the result, too [fp32]");
  common.add_kernels_to(*command);
  common.tuning.add_to(*command);
  common.add_threads_to(*command);
  common.add_output_to(*command);
  command->add_option("IMAGES", options->images, "Images with their classes, as pipit evaluate takes them")
      ->required()
      ->type_name("IMAGES");
  PruneGoal& goal = options->goal;
  command->add_option("--keep", goal.keep, "Keep this share of every layer, for example 0.5")
      ->check(positive_number());
  command->add_flag("--global", goal.global,
                    "With --keep: of all layers together, each losing what costs it least");
  command
      ->add_option("--target-speedup", goal.speedup,
                   "Become so many times as fast as the dense model in the same --precision, measured, at "
                   "the least error")
      ->check(positive_number());
  command
      ->add_option(
          "--max-drop", goal.max_drop,
          "Become as fast as is possible for at most so many points of top-1 (percent of the images)")
      ->check(nonnegative_number());
  one_of(
      command->add_option(
          "--mode", options->mode,
          "What falls: rows of K; channels that one layer writes, which becomes smaller as those that read "
          "them; blocks of --block neighbours of them; input channels, of whatever layers write them, "
          "residual "
          "streams, too; or for each layer what is better by --target-speedup or --max-drop (with --keep, "
          "rows)"),
      {"auto", "k", "channel", "block", "input"})
      ->capture_default_str();
  command
      ->add_option("--output", options->source.output,
                   "The ONNX file to write; replaced when it exists (required)")
      ->type_name("FILE");
  command->add_option("--save-svg", options->source.svg, "Also draw accuracy against time into this file")
      ->type_name("FILE");
  command
      ->add_option(
          "--check", options->check,
          "Images to check the result on [every other one of IMAGES, which are then not used otherwise]")
      ->check(CLI::ExistingPath.description(""))
      ->type_name("IMAGES");
  one_of(command->add_option_function<std::string>(
             "--against",
             [options](const std::string& name) {
               options->goal.against = name == "labels" ? Against::labels : Against::fp32;
             },
             "What is right: the images' classes, or what the dense model says (for images without classes) "
             "[labels]"),
         {"labels", "dense"});
  one_of(command->add_option("--importance", options->importance, "How the loss of a group is judged"),
         {"l1", "l2", "activation", "second-order"})
      ->capture_default_str();
  one_of(command->add_option("--group", options->group,
                             "Neighbouring input channels that fall together: 1 for fp32, 4 for INT8 on the "
                             "CPU, 8 or 16 on a GPU [1, with --precision int8 4]"),
         {"1", "4", "8", "16"});
  one_of(
      command->add_option("--panel", options->panel,
                          "Neighbouring outputs that lose the same rows; 0: all of a layer, as GPUs want it"),
      {"0", "16", "32"})
      ->capture_default_str();
  one_of(command->add_option("--block", options->block,
                             "With --mode block: neighbouring channels that fall together"),
         {"4", "8", "16", "32"})
      ->capture_default_str();
  command->add_flag("--no-refit", options->no_refit,
                    "Leave the kept weights as they are, to see what fitting brings");
  command
      ->add_option(
          "--ridge", options->ridge,
          "How strongly the kept weights are held to what they were, as a share of the variance of what they "
          "multiply: more where images are few")
      ->check(nonnegative_number())
      ->capture_default_str();
  command
      ->add_option("--calibrate-limit", options->calibrate,
                   "Choose and fit on N images; 0: as many as fit the memory for it (1.9 GiB)")
      ->check(count_value())
      ->capture_default_str();
  command->add_option("--limit", options->limit, "Use only N images, spread evenly over the folder; 0: all")
      ->check(count_value())
      ->capture_default_str();
  command->footer(
      "A row of a layer's im2col product (one tap of --group input channels) falls for --panel outputs at a "
      "time. Zeros\n"
      "in the weights are all that marks it: pipit finds them in any model. Batch normalization is folded.\n"
      "With --precision int8 what is pruned is calibrated on 100 of the images and written as pipit quantize "
      "does; drops\n"
      "are against the dense model in fp32.\n"
      "Exit code 4 says that --target-speedup was not reached, that no faster model drops as little as "
      "--max-drop "
      "says (nothing is written then), or that it does not hold on unseen images.\n"
      "Examples:\n"
      "  pipit prune resnet20-cifar10 cifar10-train --check cifar10-test --target-speedup 1.5 --output "
      "pruned.onnx\n"
      "  pipit prune model.onnx photos --against dense --keep 0.5 --output pruned.onnx\n"
      "  pipit prune model.onnx photos --precision int8 --max-drop 1 --output pruned-int8.onnx");
  command->callback([options, &exit_code] { exit_code = prune(*options); });
}

}  // namespace pipit::apps
