// pipit prune MODEL IMAGES: takes structured groups of weights out of a model and fits the others, without training.
#include <algorithm>

#include "apps/commands/commands.h"
#include "apps/commands/prune_options.h"
#include "apps/commands/prune_report.h"
#include "apps/display/next_command.h"
#include "apps/display/print_json.h"
#include "apps/display/progress.h"
#include "apps/display/terminal.h"
#include "apps/measuring/prune_search.h"
#include "engine/base/file.h"
#include "engine/base/version.h"
#include "engine/platform/host_memory.h"
#include "models/onnx/write/writer.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/quantized_file.h"
#include "pipit/measuring/judged_images.h"
#include "pipit/measuring/runner.h"
#include "quant/kept_layers.h"

namespace pipit::internal::apps {

namespace {

constexpr std::size_t kPruneCacheBytes = std::size_t{256} << 20;
// A limit of the values that walk_layers() holds; the sums of a layer of depth 4608 need about 0.7 GiB more.
constexpr std::size_t kPruneWalkBytes = std::size_t{1900} << 20;
constexpr std::size_t kMinImages = 50;  // images to judge steps on
constexpr std::int64_t kProbeImages = 16;
constexpr std::int64_t kComparedImages = 1000;
constexpr std::int64_t kScaleImages = 100;  // that INT8 scales are of

std::vector<LabelledImage> images_of(const PruneOptions& options, const std::string& folder,
                                     const Model& model, const ClassOutput& output, LeftOut& left_out) {
  LabelledImages found =
      images_to_judge(folder, options.goal.judge_by, options.image.resolve_labels(model, output), output,
                      options.limit, "--judge-by model");
  if (options.strict) found.left_out.end_at_folders();
  left_out.add(found.left_out);
  return std::move(found.images);
}

// The images of --check are unseen; without, every other image of the sorted folder.
ImageSplit split_for_pruning(const PruneOptions& options, const Model& model, const ClassOutput& output,
                             LeftOut& left_out) {
  std::vector<LabelledImage> images = images_of(options, options.images, model, output, left_out);
  ImageSplit split;
  if (!options.check.empty()) {
    split.search = std::move(images);
    split.unseen = images_of(options, options.check, model, output, left_out);
  } else {
    for (std::size_t i = 0; i < images.size(); ++i)
      (i % 2 == 0 ? split.search : split.unseen).push_back(images[i]);
  }
  if (split.search.empty() || split.unseen.empty())
    fail("too few images: {} to prune on and {} to check on", split.search.size(), split.unseen.size());
  const std::string note = copies_note(split, options.check.empty() ? "to check on" : "of --check",
                                       "the model is chosen and fitted on");
  if (!note.empty() && !options.common.quiet) print_notes({note});
  return split;
}

// What weights were fitted on they fit too well: steps are judged on the others, where those are enough.
std::vector<LabelledImage> not_calibrated(const std::vector<LabelledImage>& images,
                                          const std::vector<std::filesystem::path>& calibrated) {
  const std::set<std::filesystem::path> known(calibrated.begin(), calibrated.end());
  std::vector<LabelledImage> others;
  for (const LabelledImage& image : images) {
    if (!known.contains(image.path)) others.push_back(image);
  }
  return others.size() < kMinImages ? images : others;
}

// What Pruning::sketch() has not fitted weights on, where that is any.
std::vector<std::filesystem::path> paths_to_compare_on(const std::vector<LabelledImage>& images,
                                                       const PreparedImages& calibration, std::size_t runs) {
  std::set<std::filesystem::path> fitted;
  const std::size_t batch = calibration.paths().size() / runs;
  for (const std::size_t run : sketch_runs(runs)) {
    for (std::size_t i = 0; i < batch; ++i) fitted.insert(calibration.paths()[run * batch + i]);
  }
  std::vector<std::filesystem::path> others;
  for (const LabelledImage& image : images) {
    if (!fitted.contains(image.path)) others.push_back(image.path);
  }
  return spread(others.empty() ? paths_of(images) : others, kComparedImages);
}

CompileOptions fp32_options(const PruneOptions& options) {
  CompileOptions how = options.common.compile_options();
  how.planning.precision = Precision::fp32;
  return how;
}

PruneCompiler compiler_for(const PruneOptions& options, const Model& model, const Preprocess& preprocess,
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
std::int64_t images_to_fit_on(const PruneOptions& options, const Graph& dense, std::int64_t batch,
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
  if (!goal.keep) stages.push_back({"timing candidates", 8});
  const int steps = most_steps(goal);
  for (int step = 0; step < steps; ++step) {
    if (goal.speedup && step == 0) stages.push_back({"measuring selections", 0, goal.seconds});
    if (goal.max_drop) stages.push_back({"measuring selections", 0, goal.seconds / steps});
    stages.push_back({"fitting weights", 6});
    if (int8) stages.push_back({"calibrating", 1});
  }
  stages.push_back({"checking", 2});
  return stages;
}

int prune(PruneOptions options) {
  const bool quiet = options.common.quiet;
  Model model = options.model.load();
  detail::need_floating_point(model, "prune");
  const Preprocess preprocess = noted_preprocess(model, options.image.resolve(model), quiet);
  const bool symbolic_batch = !model.fixed_batch;
  QuantizationPlan plan = detail::empty_plan(model, preprocess);
  Graph dense = fuse(std::move(model.graph));
  const ClassOutput output = options.image.resolve_output(dense, model);
  if (options.takes_rows() && prunable_layers(dense).empty())
    fail_unsupported(
        "{}: nothing to prune: no convolution or matrix product of at least 8 channels between the first "
        "and the last layer",
        model.name);
  LeftOut left_out;
  ImageSplit split = split_for_pruning(options, model, output, left_out);
  const std::int64_t found = std::ssize(split.search) + std::ssize(split.unseen);
  std::vector<UnreadableImage> unreadable;
  const SampleInputs input(dense);
  const std::shared_ptr<ThreadPool> pool = shared_pool(options.common.threads);
  const std::int64_t calibrated = images_to_fit_on(options, dense, output.batch, split.search.size());
  std::optional<Progress> bar;
  bar.emplace("prune", stages_of(options.goal, options.common.precision == Precision::int8), quiet);
  const auto stage = [&bar](const char* name) -> ProgressReport { return bar->stage(name); };

  // Every image is read before anything takes long, so that a damaged one is found now.
  PreparedImages calibration(spread(paths_of(split.search), calibrated), preprocess, input, pool);
  if (!options.strict) calibration.skip_unreadable();
  std::vector<Tensor> runs = read_runs(calibration);
  drop_unreadable(split.search, calibration, unreadable);
  std::vector<LabelledImage> judged = spread(not_calibrated(split.search, calibration.paths()), 1000);
  PreparedImages search(paths_of(judged), preprocess, input, pool, kPruneCacheBytes);
  PreparedImages probe(spread(search.paths(), kProbeImages), preprocess, input, pool, kPruneCacheBytes);
  PreparedImages compared(paths_to_compare_on(split.search, calibration, runs.size()), preprocess, input,
                          pool, kPruneCacheBytes);
  PreparedImages unseen(paths_of(split.unseen), preprocess, input, pool, kPruneCacheBytes);
  if (!options.strict) {
    for (PreparedImages* images : {&search, &probe, &compared, &unseen}) images->skip_unreadable();
  }
  const std::int64_t fitted = std::ssize(runs) * output.batch;  // whole batches
  PruneImages images{output, fitted, search, {}, {}, probe, compared, {}, unseen, {}, {}};
  const PruneCompiler compiler = naming(model.name, [&] {
    const auto dense_plan = PruneCompiler(fp32_options(options)).in_fp32(dense);
    const std::int64_t all = search.size() + unseen.size();
    const ProgressReport progress = stage("the dense model");
    images.search_answers = run_outputs(dense_plan, search, [&](std::int64_t done) { progress(done, all); });
    if (!options.goal.keep) images.compared_answers = run_outputs(dense_plan, compared);
    images.unseen_answers =
        run_outputs(dense_plan, unseen, [&](std::int64_t done) { progress(search.size() + done, all); });
    drop_unreadable(judged, search, unreadable);
    drop_unreadable(split.search, compared, unreadable);
    drop_unreadable(split.unseen, unseen, unreadable);
    images.search_labels = labels_of(judged);
    images.unseen_labels = labels_of(split.unseen);
    return compiler_for(options, model, preprocess, dense, std::move(plan), calibration.paths(),
                        stage("calibrating"));
  });

  std::vector<std::string> notes;
  add_image_notes(notes, left_out, unreadable, found);
  if (!quiet) print_notes(notes);

  const Pruning pruning = naming(model.name, [&] {
    return Pruning(std::move(dense), std::move(runs), options.pruning(), compiler, stage("ordering groups"));
  });
  if (!options.takes_rows() && pruning.paths().channels.empty())
    fail_unsupported("{}: no channels between two layers can be removed", model.name);
  PruneOutcome outcome =
      naming(model.name, [&] { return search_pruned(pruning, options.goal, images, stage); });
  bar.reset();
  std::shared_ptr<const ExecutionPlan> plan_shown = outcome.plan;
  if (outcome.missed.empty()) {
    const std::string bytes = written(model, outcome, symbolic_batch);
    outcome.bytes = bytes.size();
    outcome.dense_bytes = written(model, pruning.dense(), symbolic_batch).size();
    write_file(options.source.output, bytes);
  } else {
    print_error(fmt::format("{}: {}", model.name, outcome.missed));
    plan_shown = compiler.for_times(pruning.dense());
  }
  if (!options.source.svg.empty())
    write_file(options.source.svg, prune_svg(model.name, options.goal, outcome));
  options.source.mode = options.mode == "auto" && options.goal.keep ? "k" : options.mode;
  options.source.importance = options.importance;
  if (options.takes_rows())
    options.source.rows = {options.rows, options.group_size(), options.panel_outputs()};
  if (options.mode == "block") options.source.block = options.block;
  options.source.refits = !options.no_refit;
  if (options.common.json) {
    nlohmann::ordered_json head = json_header("prune", model.name, *plan_shown);
    add_scores_to(head, images.output);
    head.update(excluded_json(left_out, unreadable));
    print_json(prune_json(std::move(head), options.source, options.goal, outcome));
  } else {
    print_pruned(options.source, options.goal, outcome);
  }
  if (outcome.missed.empty())
    print_next(quiet, {"bench", options.model.model, "--against", options.source.output},
               "both in turns, whole runs");
  return outcome.passed ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_prune(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<PruneOptions>();
  CLI::App* command = app.add_subcommand(
      "prune",
      "Remove groups of weights from a model, fit the others without training, and write it as ONNX");
  add_prune_options(options, *command);
  command->callback([options, command, &exit_code] {
    options->check_usage(*command);
    exit_code = prune(*options);
  });
}

}  // namespace pipit::internal::apps
