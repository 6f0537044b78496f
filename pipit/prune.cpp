#include "pipit/prune.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/platform/float_mode.h"
#include "layers/cpu_kernels.h"
#include "models/onnx/write/writer.h"
#include "models/run_files.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/checked.h"
#include "pipit/detail/image_list.h"
#include "pipit/detail/importance.h"
#include "pipit/detail/load.h"
#include "pipit/detail/preparation.h"
#include "pipit/detail/preparation_notes.h"
#include "pipit/detail/quantized_file.h"
#include "pipit/detail/stages.h"
#include "pipit/detail/walked_images.h"
#include "pipit/measuring/drop_json.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/judged_images.h"
#include "pipit/measuring/runner.h"
#include "pipit/pruning/pruned_json.h"
#include "pipit/pruning/search.h"
#include "pipit/text.h"
#include "pipit/version.h"
#include "quant/kept_layers.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kPruneCacheBytes = std::size_t{256} << 20;
constexpr std::size_t kMinJudged = 50;  // images to judge steps on
constexpr std::int64_t kMaxJudged = 1000;
constexpr std::int64_t kProbeImages = 16;
constexpr std::int64_t kComparedImages = 1000;
constexpr std::int64_t kScaleImages = 100;  // that INT8 scales are of

bool takes_rows(const PruneOptions& options) {
  return options.mode == PruneMode::automatic || options.mode == PruneMode::rows;
}

bool for_int8(const PruneOptions& options) {
  return options.classifier.load.precision.kind() == Precision::int8;
}

// INT8 kernels leave out four neighbouring channels at a time.
std::int64_t group_size(const PruneOptions& options) {
  return options.group.value_or(for_int8(options) ? 4 : 1);
}

// Whether single outputs may lose their own rows besides those that whole panels lose, where that is better.
bool chooses_panels(const PruneOptions& options) {
  return !options.panel && !options.goal.keep && takes_rows(options) && !for_int8(options) &&
         group_size(options) == 1 && cpu_picks_inputs();
}

// Those that this machine computes together; a panel of half as many would leave out only what both halves do.
std::int64_t panel_outputs(const PruneOptions& options) {
  return options.panel.value_or(cpu_panel_outputs());
}

void check(const PruneGoal& goal, bool rows) {
  if ((goal.keep ? 1 : 0) + (goal.speedup ? 1 : 0) + (goal.max_drop ? 1 : 0) != 1)
    throw ArgumentError("set exactly one goal: a share to keep, a speedup or a largest drop");
  if (goal.keep && !(*goal.keep > 0 && *goal.keep <= 1))
    throw ArgumentError(fmt::format("keep is {}; expected a share above 0 and at most 1", *goal.keep));
  if (goal.global && !(goal.keep && rows)) throw ArgumentError("global needs keep, and the mode rows");
  if (goal.speedup && !(*goal.speedup > 1))
    throw ArgumentError(fmt::format("speedup is {}; expected a factor above 1", *goal.speedup));
  if (goal.max_drop && !(*goal.max_drop >= 0))
    throw ArgumentError(fmt::format("max_drop is {} points; expected 0 or more", *goal.max_drop));
  if (!goal.keep && !(goal.seconds > 0))
    throw ArgumentError(fmt::format("seconds is {}; expected more than 0", goal.seconds));
}

void check(const PruneOptions& options, const fs::path& images) {
  const LoadOptions& load = options.classifier.load;
  check_device(load.device);
  check_enumerator("goal.judge_by", options.goal.judge_by, JudgeBy::model);
  check_enumerator("mode", options.mode, PruneMode::inputs);
  check_enumerator("importance", options.importance, Importance::second_order);
  check_enumerator("rows", options.rows, PrunedRows::channel);
  check(options.goal, takes_rows(options));
  const auto need = [](const char* what, std::int64_t value, std::initializer_list<std::int64_t> all) {
    if (std::ranges::find(all, value) == all.end())
      throw ArgumentError(fmt::format("{} {}; expected one of {}", what, value, fmt::join(all, ", ")));
  };
  if (load.device.kind != DeviceKind::cpu || (load.precision.kind() != Precision::fp32 && !for_int8(options)))
    throw ArgumentError(fmt::format("pruning for {} on {} is not possible; expected fp32 or int8 on cpu",
                                    load.precision.name(), device_name(load.device.kind)));
  if (const Int8* const int8 = load.precision.int8();
      int8 != nullptr && !(int8->plan.empty() && int8->keep.empty()))
    throw ArgumentError(
        "Int8::plan and Int8::keep are not for pruning, which calibrates the pruned model itself");
  need("neighbouring channels that are removed together:", group_size(options), {1, 4, 8, 16});
  if (options.panel) need("outputs of a panel:", *options.panel, {0, 1, 16, 32});
  need("channels of a block:", options.block, {4, 8, 16, 32});
  if (takes_rows(options) && panel_outputs(options) == 1 && group_size(options) != 1)
    throw ArgumentError(
        "a panel of 1 output needs a group of 1 channel: only there kernels can pick single inputs");
  if (!(options.ridge >= 0))
    throw ArgumentError(fmt::format("ridge is {}; expected 0 or more", options.ridge));
  if (options.limit < 0 || options.calibrate_limit < 0)
    throw ArgumentError(fmt::format("limit is {} and calibrate_limit {}; expected 0 or more", options.limit,
                                    options.calibrate_limit));
  if (options.goal.judge_by == JudgeBy::model && !options.classifier.labels.empty())
    throw ArgumentError("labels have no effect with JudgeBy::model");
  std::error_code ignored;
  if (!options.check.empty() && fs::equivalent(images, options.check, ignored))
    throw ArgumentError(fmt::format(
        "{}: the images to check on are those that the model is chosen and fitted on; without them every "
        "other one is kept back",
        options.check.string()));
}

PruningOptions pruning_options(const PruneOptions& options) {
  const bool keeps = options.goal.keep.has_value();
  const bool all = options.mode == PruneMode::automatic && !keeps;
  PruningOptions how;
  how.path.walk.threads = how.removal.walk.threads = options.classifier.load.device.threads;
  how.path.elimination.importance = importance_of(options.importance);
  how.path.rows = takes_rows(options);
  how.path.taps = options.rows == PrunedRows::channel               ? RowTaps::all
                  : options.rows == PrunedRows::automatic && !keeps ? RowTaps::both
                                                                    : RowTaps::single;
  how.path.families = all || !takes_rows(options);
  how.path.streams = all || options.mode == PruneMode::inputs;
  if (options.mode == PruneMode::blocks) how.path.block = static_cast<std::size_t>(options.block);
  how.branches = all;
  how.path.channels = group_size(options);
  how.path.panel = panel_outputs(options);
  how.path.shared_panel = cpu_panel_outputs();
  how.path.single_outputs = chooses_panels(options);
  how.removal.refits = options.refit;
  how.removal.refit.ridge = options.ridge;
  how.path.elimination.ridge = std::max(how.path.elimination.ridge, options.ridge);
  return how;
}

const char* goal_word(bool reached) {
  return reached ? "reached" : "missed";
}

// What weights were fitted on they fit too well: steps are judged on the others, where those are enough.
std::vector<LabelledImage> not_calibrated(const std::vector<LabelledImage>& images,
                                          const std::vector<fs::path>& calibrated) {
  const std::set<fs::path> known(calibrated.begin(), calibrated.end());
  std::vector<LabelledImage> others;
  for (const LabelledImage& image : images) {
    if (!known.contains(image.path)) others.push_back(image);
  }
  return others.size() < kMinJudged ? images : others;
}

// What Pruning::sketch() has not fitted weights on, where that is any.
std::vector<fs::path> paths_to_compare_on(const std::vector<LabelledImage>& images,
                                          const PreparedImages& calibration, std::size_t runs) {
  std::set<fs::path> fitted;
  const std::size_t batch = calibration.paths().size() / runs;
  for (const std::size_t run : sketch_runs(runs)) {
    for (std::size_t i = 0; i < batch; ++i) fitted.insert(calibration.paths()[run * batch + i]);
  }
  std::vector<fs::path> others;
  for (const LabelledImage& image : images) {
    if (!fitted.contains(image.path)) others.push_back(image.path);
  }
  return spread(others.empty() ? paths_of(images) : others, kComparedImages);
}

// Shares are guesses: what takes how long depends on the model and the images.
std::vector<Stage> stages_of(const PruneGoal& goal, bool int8) {
  std::vector<Stage> stages = {{"the dense model", 1}};
  if (int8) stages.push_back({"calibrating", 1});
  stages.push_back({"ordering groups", 3});
  if (!goal.keep) stages.push_back({"timing candidates", 8});
  const int steps = most_steps(goal);
  for (int step = 0; step < steps; ++step) {
    if (!goal.keep) stages.push_back({"measuring selections", 0, search_seconds(goal, step)});
    stages.push_back({"fitting weights", 6});
    if (int8) stages.push_back({"calibrating", 1});
    if (!goal.max_drop || step + 1 == steps)
      stages.push_back({"timing the result", 0, 2 * (1 + kWarmupShare) * kBenchSeconds});
  }
  stages.push_back({"checking", 2});
  return stages;
}

// One run of prune(), from the model that was read to the file.
class Pruner {
 public:
  Pruner(Model model, fs::path folder, const PruneOptions& options)
      : options_(options),
        folder_(std::move(folder)),
        model_(std::move(model)),
        compiling_(fp32_options(options)) {
    need_floating_point(model_, "prune");
    const Preparation preparation = prepare_for(model_, options.classifier.preprocess);
    preprocess_ = preparation.preprocess;
    tell(notes_on(model_, preparation, true, false, {}, 0));
    symbolic_batch_ = !model_.fixed_batch && !options.classifier.load.shapes.batch;
    plan_ = empty_plan(model_, preprocess_);
    dense_ = fuse(std::move(model_.graph));
    output_.emplace(class_output(dense_, model_, options.classifier.scores, options.classifier.threshold));
    if (takes_rows(options) && prunable_layers(dense_).empty())
      fail_unsupported(
          "{}: nothing to prune: no convolution or matrix product of at least 8 channels between the first "
          "and the last layer",
          model_.name);
    split();
  }

  PrunedModel run(const fs::path& output) {
    const SampleInputs input(dense_);
    const std::shared_ptr<ThreadPool> pool = shared_pool(options_.classifier.load.device.threads);
    const std::int64_t found = std::ssize(split_.search) + std::ssize(split_.unseen);
    const std::int64_t calibrated = images_to_fit_on();
    if (options_.progress.planned) options_.progress.planned(stages_of(options_.goal, for_int8(options_)));

    // Every image is read before anything takes long, so that a damaged one is found now.
    PreparedImages calibration(spread(paths_of(split_.search), calibrated), preprocess_, input, pool);
    if (!options_.strict) calibration.skip_unreadable();
    std::vector<Tensor> runs = read_runs(calibration);
    drop_unreadable(split_.search, calibration, unreadable_);
    std::vector<LabelledImage> judged =
        spread(not_calibrated(split_.search, calibration.paths()), kMaxJudged);
    PreparedImages search(paths_of(judged), preprocess_, input, pool, kPruneCacheBytes);
    PreparedImages probe(spread(search.paths(), kProbeImages), preprocess_, input, pool, kPruneCacheBytes);
    PreparedImages compared(paths_to_compare_on(split_.search, calibration, runs.size()), preprocess_, input,
                            pool, kPruneCacheBytes);
    PreparedImages unseen(paths_of(split_.unseen), preprocess_, input, pool, kPruneCacheBytes);
    if (!options_.strict) {
      for (PreparedImages* images : {&search, &probe, &compared, &unseen}) images->skip_unreadable();
    }
    const std::int64_t fitted = std::ssize(runs) * output_->batch;  // whole batches
    PruneImages images{*output_, fitted, search, {}, {}, probe, compared, {}, unseen, {}, {}};
    const PruneCompiler compiler = naming(model_.name, [&] {
      const auto dense_plan = PruneCompiler(compiling_).in_fp32(dense_);
      const std::int64_t all = search.size() + unseen.size();
      const ImagesDone progress = stage("the dense model");
      images.search_answers =
          run_outputs(dense_plan, search, [&](std::int64_t done) { progress(done, all); });
      if (!options_.goal.keep) images.compared_answers = run_outputs(dense_plan, compared);
      images.unseen_answers =
          run_outputs(dense_plan, unseen, [&](std::int64_t done) { progress(search.size() + done, all); });
      drop_unreadable(judged, search, unreadable_);
      drop_unreadable(split_.search, compared, unreadable_);
      drop_unreadable(split_.unseen, unseen, unreadable_);
      images.search_labels = labels_of(judged);
      images.unseen_labels = labels_of(split_.unseen);
      return compiler_for(calibration.paths());
    });
    std::vector<std::string> notes;
    add_image_notes(notes, left_out_, unreadable_, found);
    tell(notes);

    const Pruning pruning = naming(model_.name, [&] {
      return Pruning(std::move(dense_), std::move(runs), pruning_options(options_), compiler,
                     stage("ordering groups"));
    });
    if (!takes_rows(options_) && pruning.paths().channels.empty())
      fail_unsupported("{}: no channels between two layers can be removed", model_.name);
    PruneOutcome outcome = naming(model_.name, [&] {
      return search_pruned(pruning, options_.goal, images, [&](const char* name) { return stage(name); });
    });
    PrunedModel& result = outcome.found;
    std::shared_ptr<const ExecutionPlan> plan_shown = outcome.plan;
    if (result.problem.empty()) {
      const std::string bytes = written(outcome);
      result.bytes = std::ssize(bytes);
      result.dense_bytes = std::ssize(written(pruning.dense()));
      write_file(output, bytes);
    } else {
      plan_shown = compiler.for_times(pruning.dense());
    }
    result.notes = std::move(notes);
    result.excluded = excluded_images(left_out_, unreadable_);
    result.remarks = remarks_on(result, outcome.removes_rows);
    Json json = json_header("prune", model_.name, *plan_shown);
    add_scores_to(json, *output_);
    json.update(excluded_json(left_out_, unreadable_));
    if (result.problem.empty()) json["output"] = output.string();
    add_result(json, result);
    result.json = json_text(json);
    return std::move(result);
  }

 private:
  static CompileOptions fp32_options(const PruneOptions& options) {
    LoadOptions load = options.classifier.load;
    load.precision = Precision::fp32;
    return compile_options(load);
  }

  void tell(const std::vector<std::string>& notes) const {
    for (const std::string& note : notes) {
      if (options_.note) options_.note(note);
    }
  }

  ImagesDone stage(const char* name) const { return stage_report(options_.progress, name); }

  std::vector<LabelledImage> images_of(const fs::path& folder) {
    LabelledImages found = images_to_judge(folder, options_.goal.judge_by,
                                           labels_for(model_, options_.classifier.labels, *output_), *output_,
                                           options_.limit, "--judge-by model");
    if (options_.strict) found.left_out.end_at_folders();
    left_out_.add(found.left_out);
    return std::move(found.images);
  }

  // The images of PruneOptions::check are unseen; without, every other image of the sorted folder.
  void split() {
    std::vector<LabelledImage> images = images_of(folder_);
    if (!options_.check.empty()) {
      split_.search = std::move(images);
      split_.unseen = images_of(options_.check);
    } else {
      for (std::size_t i = 0; i < images.size(); ++i)
        (i % 2 == 0 ? split_.search : split_.unseen).push_back(images[i]);
    }
    if (split_.search.empty() || split_.unseen.empty())
      fail("too few images: {} to prune on and {} to check on", split_.search.size(), split_.unseen.size());
    const std::string note = copies_note(split_, options_.check.empty() ? "to check on" : "of --check",
                                         "the model is chosen and fitted on");
    if (!note.empty()) tell({note});
  }

  // The number of images to fit on: PruneOptions::calibrate_limit, limited by memory.
  std::int64_t images_to_fit_on() const {
    const std::int64_t fit = walkable_images(dense_, output_->batch);
    const std::int64_t wanted = std::min<std::int64_t>(
        options_.calibrate_limit == 0 ? fit : options_.calibrate_limit, std::ssize(split_.search));
    if (wanted <= fit) return wanted;
    tell(
        {fmt::format("{} of the images are used to choose and fit weights: what lies between the layers of "
                     "more does not fit {}",
                     fit, mebibytes(kWalkBytes))});
    return fit;
  }

  PruneCompiler compiler_for(const std::vector<fs::path>& calibration) {
    if (!for_int8(options_)) return PruneCompiler(compiling_);
    plan_.keep = kept_by_default(dense_);
    PruneCompiler compiler(compiling_,
                           {model_.name, plan_, preprocess_, spread(calibration, kScaleImages), folder_},
                           dense_, stage("calibrating"));
    tell(compiler.notes());
    return compiler;
  }

  std::string written(const Graph& graph) const {
    OnnxWriteOptions writing;
    writing.metadata = model_.metadata;
    writing.producer_version = version();
    writing.symbolic_batch = symbolic_batch_;
    return naming(model_.name, [&] { return write_onnx(graph, writing); });
  }

  // The bytes of the pruned model's file.
  std::string written(PruneOutcome& outcome) const {
    if (!outcome.found.int8) return written(outcome.pruned.graph);
    internal::detail::QuantizedFile file =
        quantized_file(model_.name, outcome.pruned.graph, *outcome.pruned.scales, model_.metadata,
                       {.symbolic_batch = symbolic_batch_});
    outcome.found.int8->int8_layers = file.quantized;
    outcome.found.int8->float_layers = file.kept;
    return std::move(file.bytes);
  }

  // As the command names modes; rows are what stays of all of them for a share.
  std::string_view mode_name() const {
    switch (options_.mode) {
      case PruneMode::automatic:
        return options_.goal.keep ? "k" : "auto";
      case PruneMode::rows:
        return "k";
      case PruneMode::channels:
        return "channel";
      case PruneMode::blocks:
        return "block";
      case PruneMode::inputs:
        return "input";
    }
    return "auto";
  }

  std::vector<std::string> remarks_on(const PrunedModel& result, bool removes_rows) const;
  void add_result(Json& json, const PrunedModel& result) const;

  const PruneOptions& options_;
  fs::path folder_;
  Model model_;  // without its graph
  CompileOptions compiling_;
  Preprocess preprocess_;
  bool symbolic_batch_ = false;
  QuantizationPlan plan_;
  Graph dense_;
  std::optional<ClassOutput> output_;  // of the dense model
  LeftOut left_out_;
  ImageSplit split_;
  std::vector<UnreadableImage> unreadable_;
};

std::vector<std::string> Pruner::remarks_on(const PrunedModel& result, bool removes_rows) const {
  const PruneGoal& goal = options_.goal;
  std::vector<std::string> remarks;
  if (result.time_was_short)
    remarks.push_back(fmt::format(
        "--search-seconds {:g} was short: it ended before {} selections, the minimum, were measured for a "
        "speed-up; with more time a better one may be found",
        goal.seconds, kMinSelections));
  if (!result.problem.empty()) return remarks;
  constexpr double kFar = 0.1;
  if (goal.keep && result.macs_kept > *goal.keep + kFar)
    remarks.push_back(
        fmt::format("{:.0f} % of the MACs are left, the goal was {:.0f} %: groups of mode '{}' "
                    "are removed as a whole, and not every layer has any that can be removed",
                    100 * result.macs_kept, 100 * *goal.keep, mode_name()));
  if (goal.keep && options_.mode == PruneMode::inputs && result.macs_kept < *goal.keep - kFar)
    remarks.push_back(fmt::format(
        "{:.0f} % of the channels stay, and {:.0f} % of the MACs: most layers lose inputs and outputs",
        100 * *goal.keep, 100 * result.macs_kept));
  if (removes_rows && group_size(options_) % 4 != 0)
    remarks.push_back(
        fmt::format("INT8 kernels leave out 4 neighbouring channels at a time: what --group {} removes makes "
                    "{} no faster; --group 4 does{}",
                    group_size(options_), result.int8 ? "this model" : "INT8",
                    result.int8 ? "" : ", as --precision int8 has it"));
  return remarks;
}

// All but the head.
void Pruner::add_result(Json& json, const PrunedModel& result) const {
  const PruneGoal& goal = options_.goal;
  json["mode"] = mode_name();
  json["importance"] = importance_name(importance_of(options_.importance));
  if (takes_rows(options_)) {
    json["group"] = group_size(options_);
    json["panel"] = chooses_panels(options_) ? Json("auto") : Json(panel_outputs(options_));
    json["rows"] = options_.rows == PrunedRows::automatic ? "auto"
                   : options_.rows == PrunedRows::tap     ? "tap"
                                                          : "channel";
  }
  if (options_.mode == PruneMode::blocks) json["block"] = options_.block;
  json["refit"] = options_.refit;
  json["judged_by"] = goal.judge_by == JudgeBy::labels ? "labels" : "model";
  if (goal.keep) {
    json["keep"] = *goal.keep;
    json["global"] = goal.global;
  }
  if (goal.speedup) json["target_speedup"] = *goal.speedup;
  if (goal.max_drop) json["max_drop"] = *goal.max_drop;
  json["calibration_images"] = result.calibration_images;
  if (!goal.keep) json["time_was_short"] = result.time_was_short;
  json["dense"] = {{"ms", result.dense_ms}};
  if (!result.problem.empty()) {
    json["steps"] = steps_json(result);
    json["selections"] = selections_json(result);
    json["problem"] = result.problem;
    if (result.reached) json["goal"] = goal_word(*result.reached);
    json["passed"] = result.passed;
    return;
  }
  const auto chosen = std::ranges::find_if(result.steps, &PruneStep::chosen);
  json["dense"]["bytes"] = result.dense_bytes;
  json["pruned"] = {{"ms", result.dense_ms / result.speedup.median}};
  json["pruned"].update(speed_json(result.speedup));
  if (!goal.keep) json["pruned"]["estimated_speedup"] = chosen->speedup.median;
  json["pruned"]["macs_kept"] = result.macs_kept;
  json["pruned"]["bytes"] = result.bytes;
  json["unseen"] = drop_json(result.unseen);
  if (result.int8) {
    json["dense_fp32"] = {{"ms", result.int8->fp32_ms}};
    json["dense_fp32"].update(speed_json(result.int8->over_fp32));
    json["dense_unseen"] = drop_json(result.int8->dense_unseen);
    json["int8_nodes"] = result.int8->int8_layers;
    json["kept_nodes"] = result.int8->float_layers;
  }
  json["notes"] = result.remarks;
  json["zero_before"] = {{"rows", result.zero_rows}, {"others", result.other_zeros}};
  json["steps"] = steps_json(result);
  if (!goal.keep) json["selections"] = selections_json(result);
  json["layers"] = layers_json(result);
  if (result.judged) json.update(verdict_json(*result.judged));
  if (result.reached) json["goal"] = goal_word(*result.reached);
  json["passed"] = result.passed;
}

}  // namespace

PrunedModel prune(const std::string& name, const fs::path& folder, const fs::path& output,
                  const PruneOptions& options) {
  const ScopedFloatMode mode;
  check(options, folder);
  const ClassifierOptions& classifier = options.classifier;
  check_output_file(output, std::array{name, folder.string(), options.check.string(),
                                       classifier.labels.string(), classifier.load.kernels.cache.string()});
  Pruner pruner(read_model(name, classifier.load), folder, options);
  return passing_stops([&] { return pruner.run(output); });
}

}  // namespace pipit::tools
