#include "pipit/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "compile/mixed_model.h"
#include "engine/base/error.h"
#include "engine/platform/device.h"
#include "engine/platform/float_mode.h"
#include "layers/cpu_kernels.h"
#include "models/run_files.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/checked.h"
#include "pipit/detail/image_list.h"
#include "pipit/detail/load.h"
#include "pipit/detail/preparation.h"
#include "pipit/detail/preparation_notes.h"
#include "pipit/detail/stages.h"
#include "pipit/measuring/drop_json.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/judged_images.h"
#include "pipit/measuring/precision_ladder.h"
#include "pipit/measuring/runner.h"
#include "pipit/measuring/timing.h"
#include "quant/kept_layers.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kShareImages = 32;
constexpr char kCalibrating[] = "calibrating", kJudging[] = "judging layers", kMixing[] = "mixing precisions",
               kChecking[] = "checking";

Precision keep_as_of(const TuneOptions& options) {
  if (options.keep_as) return *options.keep_as;
  if (options.classifier.load.device.kind == DeviceKind::cuda) return Precision::fp16;
  return cpu_multiplies_bf16() ? Precision::bf16 : Precision::fp32;
}

// Whether the whole model in bf16 is worth measuring.
bool tries_bf16(const TuneOptions& options) {
  return options.classifier.load.device.kind == DeviceKind::cpu &&
         (keep_as_of(options) == Precision::bf16 || cpu_multiplies_bf16());
}

void check(const TuneOptions& options) {
  const ClassifierOptions& classifier = options.classifier;
  check_device(classifier.load.device);
  check_enumerator("keep_as", options.keep_as, Precision::w4);
  check_enumerator("judge_by", options.judge_by, JudgeBy::model);
  const Precision keep_as = keep_as_of(options);
  if (!(options.max_drop >= 0))
    throw ArgumentError(fmt::format("the largest drop is {} points; expected 0 or more", options.max_drop));
  if (!(options.confidence >= 50 && options.confidence < 100))
    throw ArgumentError(fmt::format("confidence is {} percent; expected 50 to 99.9", options.confidence));
  if (options.limit < 0 || options.calibrate_limit < 0)
    throw ArgumentError(fmt::format("limits of {} and {} images; expected 0 or more", options.limit,
                                    options.calibrate_limit));
  if (keep_as != Precision::fp32 && keep_as != Precision::fp16 && keep_as != Precision::bf16)
    throw ArgumentError(fmt::format("kept layers are to compute in {}; expected fp32, fp16 or bf16",
                                    precision_name(keep_as)));
  if (options.judge_by == JudgeBy::model && !classifier.labels.empty())
    throw ArgumentError("labels name classes, which do not matter where the model's own answers are right");
}

// One run of tune(), from the model that was read to the plan.
class Tuner {
 public:
  Tuner(const TuneOptions& options, const MixedModel& mixed, const ClassOutput& output, ImageSplit& split,
        const Preprocess& preprocess)
      : options_(options), mixed_(mixed), output_(output), split_(split), preprocess_(preprocess) {}

  void search() {
    const auto fp32 = mixed_.in_fp32();
    const SampleInputs inputs(fp32->graph());
    const std::shared_ptr<ThreadPool> pool = shared_pool(fp32->options().threads);
    PreparedImages images(paths_of(split_.search), preprocess_, inputs, pool,
                          PreparedImages::kUsualCacheBytes);
    if (!options_.strict) images.skip_unreadable();
    const ImageOutputs answers = run_outputs(fp32, images);
    drop_unreadable(split_.search, images, unreadable);
    const Judge judge(options_.judge_by, output_, labels_of(split_.search), answers);
    search_top1 = judge.fp32_top1();

    PreparedImages some(spread(paths_of(split_.search), kShareImages), preprocess_, inputs, pool,
                        PreparedImages::kUsualCacheBytes);
    found = search_mixed(mixed_, some, images, judge, tries_bf16(options_), told(kJudging), told(kMixing));
    const double limit = options_.max_drop / 100;
    const double confidence = options_.confidence / 100;
    const std::optional<MixedStep> best = found.choose(limit, confidence);
    sure = best.has_value();
    chosen = best.value_or(found.ladders[0].steps.back());
    if (found.bf16) bf16_enough = first_good_step({*found.bf16}, limit, confidence) == 0;
    int8_enough = first_good_step(found.ladders[0].steps, limit, confidence) == 0;
  }

  void check_unseen() {
    const auto fp32 = mixed_.in_fp32();
    const SampleInputs inputs(fp32->graph());
    PreparedImages images(paths_of(split_.unseen), preprocess_, inputs, shared_pool(fp32->options().threads),
                          PreparedImages::kUsualCacheBytes);
    const auto stage = told(kChecking);
    const auto outputs = [&](const std::shared_ptr<const ExecutionPlan>& plan, std::int64_t before) {
      return run_outputs(plan, images, [&](std::int64_t done) {
        const std::int64_t count = images.size();
        stage(before * count + done, 3 * count);
      });
    };
    if (!options_.strict) images.skip_unreadable();
    const ImageOutputs answers = outputs(fp32, 0);
    drop_unreadable(split_.unseen, images, unreadable);
    const Judge judge(options_.judge_by, output_, labels_of(split_.unseen), answers);
    unseen_top1 = judge.fp32_top1();
    unseen = judge.compare(outputs(mixed_.in_int8(found.kept(chosen)), 1));
    unseen_int8 = judge.compare(outputs(mixed_.in_int8(), 2));
  }

  TunedPlan result() const {
    TunedPlan result;
    result.measure = measure_name(options_.judge_by, output_, "fp32");
    const std::set<std::string> kept = found.kept(chosen);
    result.kept.assign(kept.begin(), kept.end());
    result.keep_as = keep_as_of(options_);
    for (std::size_t l = 0; l < found.ladders.size(); ++l)
      result.orders[found.order_names[l]] = found.ladders[l].order;
    for (const MixedStep& step : found.all_steps()) {
      result.steps.push_back(step_of(step));
      result.steps.back().chosen = step.order == chosen.order && step.kept == chosen.kept;
    }
    result.fp32_ms = found.fp32_ms;
    if (found.bf16) {
      result.bf16 = step_of(*found.bf16);
      result.bf16_enough = bf16_enough;
      result.bf16_is_best = bf16_enough && found.bf16->ms <= 1.01 * chosen.ms;
    }
    result.int8_enough = int8_enough;
    result.sure = sure;
    result.unseen = drop_of(unseen, unseen_top1);
    result.unseen_int8 = drop_of(unseen_int8, unseen_top1);
    result.judged = judged(unseen, options_.max_drop);
    return result;
  }

  Search found;
  MixedStep chosen;
  double search_top1 = 0;  // of fp32
  double unseen_top1 = 0;
  std::vector<UnreadableImage> unreadable;

 private:
  TuneStep step_of(const MixedStep& step) const {
    TuneStep result;
    result.order = found.order_names[static_cast<std::size_t>(step.order)];
    result.kept = step.kept;
    result.ms = step.ms;
    result.drop = drop_of(step.answers, search_top1);
    result.expected_drop = 100 * step.drop.mean;
    result.expected_drop_error = 100 * step.drop.standard_error;
    result.pareto = step.pareto;
    return result;
  }

  ImagesDone told(const char* stage) const { return stage_report(options_.progress, stage); }

  const TuneOptions& options_;
  const MixedModel& mixed_;
  const ClassOutput& output_;
  ImageSplit& split_;
  const Preprocess& preprocess_;
  bool sure = true;
  bool bf16_enough = false;
  bool int8_enough = false;
  PairedAnswers unseen;       // of the chosen step
  PairedAnswers unseen_int8;  // of INT8 throughout
};

// Shares are images that run through the model.
std::vector<Stage> stages_of(const ImageSplit& split, const Graph& fused, std::int64_t calibrated) {
  const auto layers = static_cast<int>(std::ranges::count_if(
      fused.nodes(), [](const Node& node) { return node.layer->traits().weights.has_value(); }));
  const auto search = static_cast<double>(split.search.size());
  return {{kCalibrating, 3 * static_cast<double>(calibrated)},
          {kJudging, layers * (2 * std::min<double>(kShareImages, search) + search)},
          {kMixing, 2 * static_cast<double>(kept_counts(layers).size()) * search},
          {kChecking, 3 * static_cast<double>(split.unseen.size())}};
}

Json step_json(const TuneStep& step) {
  Json json = drop_json(step.drop);
  json["expected_drop_points"] = step.expected_drop;
  json["expected_drop_error"] = step.expected_drop_error;
  return json;
}

void add_result(Json& json, const TunedPlan& result, const Tuner& tuner) {
  json["kept"] = result.kept;
  for (const std::string& name : tuner.found.order_names) json["orders"][name] = result.orders.at(name);
  json["fp32"] = {
      {"ms", result.fp32_ms}, {"search_top1", tuner.search_top1}, {"unseen_top1", tuner.unseen_top1}};
  if (result.bf16) {
    json["bf16"] = {{"ms", result.bf16->ms}};
    json["bf16"].update(step_json(*result.bf16));
    json["bf16"]["enough"] = result.bf16_enough;
  }
  json["steps"] = Json::array();
  for (const TuneStep& step : result.steps) {
    Json entry = {{"order", step.order}, {"kept", step.kept}, {"ms", step.ms}};
    entry.update(step_json(step));
    entry["pareto"] = step.pareto;
    entry["chosen"] = step.chosen;
    json["steps"].push_back(std::move(entry));
  }
  json["unseen"] = drop_json(result.unseen);
  json["unseen_int8"] = drop_json(result.unseen_int8);
  json["int8_enough"] = result.int8_enough;
  json["sure"] = result.sure;
  json.update(verdict_json(result.judged));
}

TunedPlan write_tuned_plan(const std::string& name, const fs::path& folder, const fs::path& output,
                           const TuneOptions& options) {
  const ScopedFloatMode mode;
  check(options);
  const ClassifierOptions& classifier = options.classifier;
  // Not the plan, which may be changed in place.
  check_output_file(output, std::array{name, folder.string(), classifier.labels.string(),
                                       classifier.load.kernels.cache.string()});
  require_device(classifier.load.device.kind);  // before images are calibrated on
  const auto tell = [&](const std::vector<std::string>& notes) {
    for (const std::string& note : notes)
      if (options.note) options.note(note);
  };
  Model model = read_model(name, classifier.load, {.run_batch = {}, .classifies = true});
  need_floating_point(model, "tune");
  const std::vector<fs::path> files = list_images(folder).paths;
  const Preparation preparation = prepare_files(model, classifier.preprocess, files);
  const bool arrays = preparation.source == Preparation::Source::arrays;
  tell(notes_on(model, preparation, true, false, {}, 0));
  const ClassOutput scores = class_output(model.graph, model, classifier.scores, classifier.threshold);
  std::vector<std::string> preprocess_differences;
  const bool given = !options.plan.empty();
  QuantizationPlan plan =
      given ? read_plan_for(options.plan, model.graph) : empty_plan(model, preparation.preprocess);
  if (given) {
    if (!arrays) preprocess_differences = differences_from(plan, preparation.preprocess);
    if (!preprocess_differences.empty()) tell({differences_note(options.plan, preprocess_differences)});
    tell(scale_notes(plan));
  } else if (arrays) {
    plan.preprocess.clear();
  }
  Graph fused = fuse(std::move(model.graph));
  LabelledImages images =
      images_to_judge(folder, options.judge_by, labels_for(model, classifier.labels, scores), scores,
                      options.limit, "judge by the model's own answers, --judge-by model");
  if (options.strict) images.left_out.end_at_folders();
  const std::int64_t total = std::ssize(images.images);
  ImageSplit split = split_images(images.images, given ? &plan : nullptr);
  if (const std::string copies = copies_note(split, "to check on", "layers are chosen on"); !copies.empty())
    tell({copies});

  LoadOptions load = classifier.load;
  load.precision = Precision::fp32;
  std::vector<fs::path> calibrated_on;
  if (!given) calibrated_on = spread(paths_of(split.search), options.calibrate_limit);
  std::int64_t calibrated = std::ssize(calibrated_on);
  if (options.progress.planned) options.progress.planned(stages_of(split, fused, calibrated));
  if (!given) {
    plan.keep = kept_by_default(fused);
    const Calibrated done = calibrate_on(plan, model.name, fused, preparation.preprocess, calibrated_on,
                                         ImageNames(std::array{folder}), compile_options(load).planning, {},
                                         stage_report(options.progress, kCalibrating), options.strict);
    calibrated -= std::ssize(done.unreadable);
    tell(done.notes);
  }
  keep_defaults_as(keep_as_of(options), plan, fused);
  tell(keep_nodes(plan, fused, kept_of(options.keep)));
  const MixedModel mixed(std::move(fused), plan, compile_options(load), keep_as_of(options));
  Tuner tuner(options, mixed, scores, split, preparation.preprocess);
  naming(model.name, [&] {
    tuner.search();
    tuner.check_unseen();
  });
  TunedPlan result = tuner.result();
  result.calibration_images = calibrated;
  add_image_notes(result.notes, images.left_out, tuner.unreadable, total);
  result.excluded = excluded_images(images.left_out, tuner.unreadable);

  for (const std::string& layer : result.kept)
    plan.keep.push_back({layer, std::string(precision_name(result.keep_as))});
  const bool histograms =
      std::ranges::all_of(plan.tensors, [](const TensorScale& t) { return t.histogram.has_value(); });
  write_quantization_plan(output, plan, histograms);

  const std::shared_ptr<const ExecutionPlan> fp32 = mixed.in_fp32();
  Json json = json_header("tune", model.name, *fp32);
  json["precision"] = "int8";
  json["machine"] = machine_description(*fp32);
  json["output"] = output.string();
  if (given) json["preprocess_differences"] = preprocess_differences;
  add_scores_to(json, scores);
  json["max_drop"] = options.max_drop;
  json["confidence"] = options.confidence;
  json["judged_by"] = options.judge_by == JudgeBy::labels ? "labels" : "model";
  json["keep_as"] = precision_name(result.keep_as);
  json["calibration_images"] = calibrated;
  json.update(excluded_json(images.left_out, tuner.unreadable));
  add_result(json, result, tuner);
  result.json = json_text(json);
  return result;
}

}  // namespace

TunedPlan tune(const std::string& name, const fs::path& folder, const fs::path& output,
               const TuneOptions& options) {
  return passing_stops([&] { return write_tuned_plan(name, folder, output, options); });
}

}  // namespace pipit::tools
