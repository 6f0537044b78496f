// pipit tune MODEL IMAGES: which layers to keep in floating point so that accuracy drops no more than allowed.
#include <algorithm>
#include <array>
#include <numeric>

#include "apps/commands/commands.h"
#include "apps/display/drop_text.h"
#include "apps/display/next_command.h"
#include "apps/display/output_files.h"
#include "apps/display/pareto_svg.h"
#include "apps/display/print_json.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/values.h"
#include "engine/base/file.h"
#include "engine/platform/device.h"
#include "layers/cpu_kernels.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/load.h"
#include "pipit/measuring/drop_json.h"
#include "pipit/measuring/judged_images.h"
#include "pipit/measuring/runner.h"
#include "pipit/measuring/timing.h"
#include "quant/kept_layers.h"

namespace pipit::internal::apps {

namespace {

constexpr std::int64_t kShareImages = 32;

struct TuneOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string images;
  std::string output;
  std::string svg;
  double max_drop = -1;  // points; negative: not given
  double confidence = 75;
  std::string judge_by = "labels";
  std::string keep_as;  // empty: what the device is fast in
  std::int64_t limit = 0;
  std::int64_t calibrate = 100;
  bool wide = false;
  bool strict = false;

  // The CPU computes in fp32 what is kept in fp16.
  Precision kept_as() const {
    if (!keep_as.empty()) return precisions().at(keep_as);
    if (common.device == DeviceKind::cuda) return Precision::fp16;
    return cpu_multiplies_bf16() ? Precision::bf16 : Precision::fp32;
  }
  // Whether the whole model in bf16 is worth measuring.
  bool tries_bf16() const {
    return common.device == DeviceKind::cpu && (kept_as() == Precision::bf16 || cpu_multiplies_bf16());
  }
  JudgeBy right() const { return judge_by == "labels" ? JudgeBy::labels : JudgeBy::model; }
};

Judge judge_of(const TuneOptions& options, const ClassOutput& output,
               const std::vector<LabelledImage>& images, const ImageOutputs& fp32) {
  return {options.right(), output, labels_of(images), fp32};
}

struct Outcome {
  ClassOutput output;
  std::vector<std::string> preprocess_differences;
  std::int64_t calibrated = 0;  // images, 0 with --plan
  Search search;
  std::vector<MixedStep> steps;
  MixedStep chosen;
  std::vector<std::string> kept;
  double search_top1 = 0;  // of fp32
  double unseen_top1 = 0;
  PairedAnswers unseen;       // of the chosen step
  PairedAnswers unseen_int8;  // of INT8 throughout
  tools::JudgedDrop judged;   // of the first
  bool int8_enough = false;   // throughout, as the search saw it
  bool sure = true;           // the search, of the chosen step
  bool bf16_enough = false;   // throughout, as the search saw it
  LeftOut left_out;
  std::vector<UnreadableImage> unreadable;

  bool is_chosen(const MixedStep& step) const {
    return step.order == chosen.order && step.kept == chosen.kept;
  }
  // bf16 throughout is good enough and no slower than what is written.
  bool bf16_is_best() const { return bf16_enough && search.bf16->ms <= 1.01 * chosen.ms; }
};

nlohmann::ordered_json step_drop_json(const MixedStep& step, double base_top1) {
  nlohmann::ordered_json json = drop_json(drop_of(step.answers, base_top1));
  json["expected_drop_points"] = 100 * step.drop.mean;
  json["expected_drop_error"] = 100 * step.drop.standard_error;
  return json;
}

void print_as_json(const TuneOptions& options, const Model& model, const ExecutionPlan& plan,
                   const Outcome& outcome) {
  nlohmann::ordered_json json = json_header("tune", model, plan);
  json["precision"] = "int8";
  json["machine"] = machine_description(plan);
  json["output"] = options.output;
  if (!options.common.plan.empty()) json["preprocess_differences"] = outcome.preprocess_differences;
  add_scores_to(json, outcome.output);
  json["max_drop"] = options.max_drop;
  json["confidence"] = options.confidence;
  json["judged_by"] = options.judge_by;
  json["keep_as"] = precision_name(options.kept_as());
  json["calibration_images"] = outcome.calibrated;
  json.update(excluded_json(outcome.left_out, outcome.unreadable));
  json["kept"] = outcome.kept;
  for (std::size_t l = 0; l < outcome.search.ladders.size(); ++l)
    json["orders"][outcome.search.order_names[l]] = outcome.search.ladders[l].order;
  json["fp32"] = {{"ms", outcome.search.fp32_ms},
                  {"search_top1", outcome.search_top1},
                  {"unseen_top1", outcome.unseen_top1}};
  if (const std::optional<MixedStep>& bf16 = outcome.search.bf16) {
    json["bf16"] = {{"ms", bf16->ms}};
    json["bf16"].update(step_drop_json(*bf16, outcome.search_top1));
    json["bf16"]["enough"] = outcome.bf16_enough;
  }
  json["steps"] = nlohmann::ordered_json::array();
  for (const MixedStep& step : outcome.steps) {
    nlohmann::ordered_json entry = {
        {"order", outcome.search.order_names[static_cast<std::size_t>(step.order)]},
        {"kept", step.kept},
        {"ms", step.ms}};
    entry.update(step_drop_json(step, outcome.search_top1));
    entry["pareto"] = step.pareto;
    entry["chosen"] = outcome.is_chosen(step);
    json["steps"].push_back(std::move(entry));
  }
  json["unseen"] = drop_json(drop_of(outcome.unseen, outcome.unseen_top1));
  json["unseen_int8"] = drop_json(drop_of(outcome.unseen_int8, outcome.unseen_top1));
  json["int8_enough"] = outcome.int8_enough;
  json["sure"] = outcome.sure;
  json.update(verdict_json(outcome.judged));
  print_json(json);
}

void print_as_table(const TuneOptions& options, const Outcome& outcome) {
  using Align = Table::Align;
  constexpr int kLabel = 13;  // columns before the text
  const std::string measure = measure_name(options.right(), outcome.output, "fp32");
  Table table({{"order"},
               {"kept", Align::right},
               {"last one kept", Align::left, 3, true},
               {"ms", Align::right},
               {measure + " %", Align::right, 2},
               {"drop [95 %]", Align::right},
               {"expected drop", Align::right, 1},
               {""}});
  for (const MixedStep& step : outcome.steps) {
    const auto order = static_cast<std::size_t>(step.order);
    std::string mark = step.pareto ? "pareto" : "";
    if (outcome.is_chosen(step)) mark += mark.empty() ? "chosen" : ", chosen";
    table.add(
        {outcome.search.order_names[order], std::to_string(step.kept),
         step.kept == 0 ? "" : outcome.search.ladders[order].order[static_cast<std::size_t>(step.kept - 1)],
         fmt::format("{:.3f}", step.ms),
         fmt::format("{:.2f}", 100 * (outcome.search_top1 - paired_drop(step.answers))),
         drop_text(drop_of(step.answers, outcome.search_top1)),
         expected_drop_text(100 * step.drop.mean, 100 * step.drop.standard_error), mark});
  }
  const int width = table_width(options.wide);
  std::string text =
      fmt::format("fp32         {:.3f} ms, {} {:.2f} % on the {} images above\n", outcome.search.fp32_ms,
                  measure, 100 * outcome.search_top1, outcome.steps[0].answers.images);
  if (const std::optional<MixedStep>& bf16 = outcome.search.bf16)
    text += fmt::format(
        "bf16         {:.3f} ms, {} {:.2f} % there, drop {} points, expected {}: the whole model\n", bf16->ms,
        measure, 100 * (outcome.search_top1 - paired_drop(bf16->answers)),
        drop_text(drop_of(bf16->answers, outcome.search_top1)),
        expected_drop_text(100 * bf16->drop.mean, 100 * bf16->drop.standard_error));
  text += fmt::format("kept in {}", precision_name(options.kept_as()));
  if (outcome.kept.empty()) text += " nothing";
  for (const std::string& layer : outcome.kept) text += " " + printable(layer);
  text += fmt::format("\nunseen       {}: {} {:.2f} % in fp32, drop {} points (in INT8 throughout {})\n",
                      counted(outcome.unseen.images, "image"), measure, 100 * outcome.unseen_top1,
                      drop_text(drop_of(outcome.unseen, outcome.unseen_top1)),
                      drop_text(drop_of(outcome.unseen_int8, outcome.unseen_top1)));
  text += promise_line(outcome.judged, kLabel);
  if (outcome.int8_enough && outcome.chosen.kept > 0)
    text +=
        "note         INT8 throughout was good enough: these layers are kept because they are faster so\n";
  if (!outcome.sure)
    text += fmt::format(
        "note         not even with all layers in {} is the search {:g} % sure of the promise: --keep-as "
        "fp32 is\n",
        precision_name(options.kept_as()), options.confidence);
  if (outcome.bf16_is_best())
    text +=
        "note         the whole model in bf16 is good enough and no slower than this plan: --precision bf16 "
        "needs no plan\n";
  text += fmt::format("written      {}\n", printable(options.output));
  fmt::print("{}\n{}", table.str(0, width), wrapped(text, kLabel, width));
}

void save_svg(const TuneOptions& options, const Model& model, const Outcome& outcome) {
  std::vector<ParetoPoint> points;
  for (const MixedStep& step : outcome.steps) {
    const std::size_t all = outcome.search.ladders[0].order.size();
    points.push_back({step.ms, 100 * (outcome.search_top1 - step.drop.mean),
                      fmt::format("{} of {} layers in floating point", step.kept, all), step.pareto,
                      outcome.is_chosen(step)});
  }
  write_file(options.svg,
             pareto_svg(fmt::format("{}: accuracy and time in mixed precision", model.name), points,
                        100 * outcome.search_top1 - options.max_drop,
                        measure_name(options.right(), outcome.output, "fp32") + " by the expected drop, %"));
}

void search(const MixedModel& mixed, const TuneOptions& options, ImageSplit& split,
            const Preprocess& preprocess, Progress& progress, Outcome& outcome) {
  const auto fp32 = mixed.in_fp32();
  const SampleInputs inputs(fp32->graph());
  const std::shared_ptr<ThreadPool> pool = shared_pool(fp32->options().threads);
  PreparedImages images(paths_of(split.search), preprocess, inputs, pool, PreparedImages::kUsualCacheBytes);
  if (!options.strict) images.skip_unreadable();
  const ImageOutputs answers = run_outputs(fp32, images);
  drop_unreadable(split.search, images, outcome.unreadable);
  const Judge judge = judge_of(options, outcome.output, split.search, answers);
  outcome.search_top1 = judge.fp32_top1();

  PreparedImages some(spread(paths_of(split.search), kShareImages), preprocess, inputs, pool,
                      PreparedImages::kUsualCacheBytes);
  outcome.search = search_mixed(mixed, some, images, judge, options.tries_bf16(),
                                progress.stage("judging layers"), progress.stage("mixing precisions"));
  outcome.steps = outcome.search.all_steps();
  const double limit = options.max_drop / 100;
  const double confidence = options.confidence / 100;
  const std::optional<MixedStep> sure = outcome.search.choose(limit, confidence);
  outcome.sure = sure.has_value();
  outcome.chosen = sure.value_or(outcome.search.ladders[0].steps.back());
  if (outcome.search.bf16)
    outcome.bf16_enough = first_good_step({*outcome.search.bf16}, limit, confidence) == 0;
  outcome.int8_enough = first_good_step(outcome.search.ladders[0].steps, limit, confidence) == 0;
}

void check_unseen(const MixedModel& mixed, const TuneOptions& options, ImageSplit& split,
                  const Preprocess& preprocess, Progress& progress, Outcome& outcome) {
  const std::set<std::string> kept = outcome.search.kept(outcome.chosen);
  outcome.kept.assign(kept.begin(), kept.end());
  const auto fp32 = mixed.in_fp32();
  const SampleInputs inputs(fp32->graph());
  PreparedImages images(paths_of(split.unseen), preprocess, inputs, shared_pool(fp32->options().threads),
                        PreparedImages::kUsualCacheBytes);
  const auto stage = progress.stage("checking");
  const auto outputs = [&](const std::shared_ptr<const ExecutionPlan>& plan, std::int64_t before) {
    return run_outputs(plan, images, [&](std::int64_t done) {
      const std::int64_t count = images.size();
      stage(before * count + done, 3 * count);
    });
  };
  if (!options.strict) images.skip_unreadable();
  const ImageOutputs answers = outputs(fp32, 0);
  drop_unreadable(split.unseen, images, outcome.unreadable);
  const Judge judge = judge_of(options, outcome.output, split.unseen, answers);
  outcome.unseen_top1 = judge.fp32_top1();
  outcome.unseen = judge.compare(outputs(mixed.in_int8(kept), 1));
  outcome.unseen_int8 = judge.compare(outputs(mixed.in_int8(), 2));
  outcome.judged = judged(outcome.unseen, options.max_drop);
}

// Shares are images that run through the model.
std::vector<Progress::Stage> stages_of(const ImageSplit& split, const Graph& fused, std::int64_t calibrated) {
  const auto layers = static_cast<int>(std::ranges::count_if(
      fused.nodes(), [](const Node& node) { return node.layer->traits().weights.has_value(); }));
  const auto search = static_cast<double>(split.search.size());
  return {{"calibrating", 3 * static_cast<double>(calibrated)},
          {"judging layers", layers * (2 * std::min<double>(kShareImages, search) + search)},
          {"mixing precisions", 2 * static_cast<double>(kept_counts(layers).size()) * search},
          {"checking", 3 * static_cast<double>(split.unseen.size())}};
}

int tune(const TuneOptions& options) {
  const CommonOptions& common = options.common;
  if (options.max_drop < 0) throw CLI::RequiredError("--max-drop");
  if (options.output.empty()) throw CLI::RequiredError("--output");
  if (common.device == DeviceKind::cuda && options.keep_as == "bf16")
    throw CLI::ValidationError("--keep-as", "bf16 runs on the CPU only; a GPU keeps layers in fp16 or fp32");
  if (options.judge_by == "model" && !options.image.labels.empty())
    throw CLI::ValidationError("--labels", "names classes, which --judge-by model does not ask for");
  const std::vector<std::string> inputs = {options.model.model, options.images, options.image.labels,
                                           common.tuning.file()};
  check_output("--output", options.output, inputs);  // not --plan, which may be changed in place
  check_output("--save-svg", options.svg, inputs);
  check_output("--save-svg", options.svg, {common.plan});
  check_apart("--save-svg", options.svg, "--output", options.output);
  require_device(common.device);  // before images are calibrated on
  Model model = options.model.load();
  detail::need_floating_point(model, "tune");
  const std::vector<std::filesystem::path> files = list_images(options.images).paths;
  const Preprocess preprocess = noted_preprocess(model, options.image.resolve(model, files), common.quiet);
  std::optional<QuantizationPlan> plan;
  Outcome outcome{.output = options.image.resolve_output(model.graph, model)};
  if (!common.plan.empty()) {
    plan = detail::read_plan_for(common.plan, model.graph);
    if (!are_arrays(files)) outcome.preprocess_differences = common.compare_preprocess(*plan, preprocess);
    if (!common.quiet) print_notes(scale_notes(*plan));
  }
  QuantizationPlan made = plan ? QuantizationPlan{} : detail::empty_plan(model, preprocess);
  if (are_arrays(files)) made.preprocess.clear();
  Graph fused = fuse(std::move(model.graph));
  const LabelledImages judged =
      images_to_judge(options.images, options.right(), options.image.resolve_labels(model, outcome.output),
                      outcome.output, options.limit, "--judge-by model");
  outcome.left_out = judged.left_out;
  if (options.strict) outcome.left_out.end_at_folders();
  ImageSplit split = split_images(judged.images, plan ? &*plan : nullptr);
  const std::string copies = copies_note(split, "to check on", "layers are chosen on");
  if (!copies.empty() && !common.quiet) print_notes({copies});

  std::vector<std::filesystem::path> images;  // to calibrate on
  if (!plan) images = spread(paths_of(split.search), options.calibrate);
  outcome.calibrated = std::ssize(images);
  std::optional<Progress> progress;
  progress.emplace("tune", stages_of(split, fused, outcome.calibrated), common.quiet);
  if (!plan) {
    made.keep = kept_by_default(fused);
    const detail::ImageNames names(std::array{std::filesystem::path(options.images)});
    const detail::Calibrated done = detail::calibrate_on(made, model.name, fused, preprocess, images, names,
                                                         common.compile_options().planning, {},
                                                         progress->stage("calibrating"), options.strict);
    outcome.calibrated -= std::ssize(done.unreadable);
    if (!common.quiet) print_notes(done.notes);
    plan = std::move(made);
  }
  keep_defaults_as(options.kept_as(), *plan, fused);
  const std::vector<std::string> kept_notes = keep_nodes(*plan, fused, common.kept());
  if (!common.quiet) print_notes(kept_notes);
  CompileOptions how = common.compile_options();
  how.keep.clear();  // the plan has them
  const MixedModel mixed(std::move(fused), *plan, std::move(how), options.kept_as());
  naming(model.name, [&] {
    search(mixed, options, split, preprocess, *progress, outcome);
    check_unseen(mixed, options, split, preprocess, *progress, outcome);
  });
  progress.reset();
  std::vector<std::string> notes;
  add_image_notes(notes, outcome.left_out, outcome.unreadable, std::ssize(judged.images));
  if (!common.quiet) print_notes(notes);

  for (const std::string& layer : outcome.kept)
    plan->keep.push_back({layer, std::string(precision_name(options.kept_as()))});
  const bool histograms = std::all_of(plan->tensors.begin(), plan->tensors.end(),
                                      [](const TensorScale& t) { return t.histogram.has_value(); });
  write_quantization_plan(options.output, *plan, histograms);
  if (!options.svg.empty()) save_svg(options, model, outcome);
  if (common.json) {
    print_as_json(options, model, *mixed.in_fp32(), outcome);
  } else {
    print_as_table(options, outcome);
  }
  if (outcome.judged.within && outcome.bf16_is_best()) {
    print_next(common.quiet,
               {"evaluate", options.model.model, options.images, "--precision", "bf16", "--against", "fp32"},
               "the model in bf16, on all images");
  } else if (outcome.judged.within && options.kept_as() == Precision::bf16 && !outcome.kept.empty()) {
    print_next(common.quiet,
               {"bench", options.model.model, "--precision", "int8,bf16", "--plan", options.output},
               "what the plan gains in time");
  } else if (outcome.judged.within) {
    print_next(common.quiet,
               {"quantize", options.model.model, "--plan", options.output, "--output", "model-int8.onnx"},
               "the model with this plan as an INT8 file");
  } else {
    print_next(common.quiet,
               {"tune", options.model.model, options.images, common.plan.empty() ? "" : "--plan", common.plan,
                "--max-drop", fmt::format("{:g}", options.max_drop), "--confidence", "95", "--output",
                options.output, common.device == DeviceKind::cuda ? "--device" : "",
                common.device == DeviceKind::cuda ? "cuda" : ""},
               "a search that has to be surer, and keeps more layers");
  }
  return outcome.judged.within ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_tune(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<TuneOptions>();
  CLI::App* command = app.add_subcommand(
      "tune", "Find the layers to keep in floating point so that INT8 costs no more accuracy than allowed");
  options->model.add_to(*command, true);
  options->model.classifies = true;
  options->image.add_to(*command);
  options->image.add_threshold_to(*command);
  CommonOptions& common = options->common;
  common.add_plan_to(*command);
  common.add_keep_to(*command);
  common.add_device_to(*command);
  common.add_fallback_to(*command);
  common.add_kernels_to(*command);
  common.tuning.add_to(*command);
  common.add_threads_to(*command);
  common.add_output_to(*command);
  command->add_option("IMAGES", options->images, "Images with their classes, as pipit evaluate takes them")
      ->required()
      ->type_name("IMAGES");
  command
      ->add_option(
          "--max-drop", options->max_drop,
          "The most points of accuracy (percent of the images) that may be lost relative to fp32 (required)")
      ->check(nonnegative_number());
  command
      ->add_option("--output", options->output,
                   "The mixed plan to write, JSON; an existing file is replaced (required)")
      ->type_name("FILE");
  command->add_option("--save-svg", options->svg, "Also draw accuracy against time into this file")
      ->type_name("FILE");
  one_of(command->add_option(
             "--judge-by", options->judge_by,
             "What counts as right: the images' classes, or the answers of MODEL in fp32 (for images without "
             "classes)"),
         {"labels", "model"})
      ->capture_default_str();
  command
      ->add_option(
          "--confidence", options->confidence,
          "Percent: how sure the search must be, from its own images, that the drop is within --max-drop. 50 "
          "uses the measured drop as it is; higher values keep more layers and need many images")
      ->check(positive_number() & CLI::Range(50.0, 99.9))
      ->capture_default_str();
  one_of(
      command->add_option(
          "--keep-as", options->keep_as,
          "The precision of kept layers in the plan. fp16 is for a GPU, where it runs on tensor cores, which "
          "fp32 does not; the CPU computes it in fp32. bf16 is for CPUs with AMX or AVX512-BF16; a GPU "
          "refuses a plan with it. Both cost hardly any accuracy, although it may be too much for a "
          "--max-drop of 0 [with --device cuda fp16; on a CPU that multiplies bfloat16 bf16; else fp32]"),
      {"fp32", "fp16", "bf16"});
  command
      ->add_option("--calibrate-limit", options->calibrate,
                   "Without --plan: calibrate on N of the images that the search uses; 0: all of them")
      ->check(count_value())
      ->capture_default_str();
  command->add_option("--limit", options->limit, "Use only N images, spread evenly over the folder; 0: all")
      ->check(count_value())
      ->capture_default_str();
  add_strict_to(*command, options->strict);
  add_wide_to(*command, options->wide);
  command->footer(
      "Half of the images are for the search, the other half only for the check after it; images of --plan "
      "belong to the\n"
      "first half. Layers are ordered by the noise that each alone causes at the output, per millisecond "
      "that keeping\n"
      "it costs. Then more and more of them are kept; each step is evaluated, and timed in turns with INT8 "
      "throughout.\n"
      "A step is good enough if it and all later steps stay within --max-drop; the fastest of these is "
      "written.\n"
      "On a CPU that multiplies bfloat16 the whole model in bf16 is measured as well.\n"
      "With --device cuda, accuracy and times are those of the GPU, without copies to and from it; give the "
      "--batch that\n"
      "the plan is for. Without --plan, scales are found on the CPU, as by pipit calibrate.\n"
      "On the unseen images --max-drop is then proven, not proven (with the number of images that would "
      "prove it) or\n"
      "broken, by the 95 % interval of Bonett and Price 2012. Exit code 4 means that the drop measured there "
      "is larger.\n"
      "Examples:\n"
      "  pipit tune resnet20-cifar10 cifar10-test --max-drop 0.2 --output mixed.json --save-svg mixed.svg\n"
      "  pipit tune squeezenet.onnx photos --labels classes.txt --resize 256 --crop 227 --plan plan.json "
      "--max-drop 1 --output mixed.json\n"
      "  pipit tune resnet20-cifar10 cifar10-test --max-drop 0.2 --batch 32 --device cuda --output "
      "mixed.json\n"
      "  pipit evaluate squeezenet.onnx photos --precision int8 --plan mixed.json --resize 256 --crop 227");
  command->callback([options, &exit_code] { exit_code = tune(*options); });
}

}  // namespace pipit::internal::apps
