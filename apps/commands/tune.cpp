// pipit tune MODEL IMAGES: which layers to keep in floating point so that accuracy drops no more than allowed.
#include "pipit/tune.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/commands/commands.h"
#include "apps/display/drop_text.h"
#include "apps/display/next_command.h"
#include "apps/display/output_files.h"
#include "apps/display/stage_progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/values.h"
#include "pipit/output_file.h"
#include "pipit/report.h"

namespace pipit::internal::apps {

namespace {

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
};

tools::TuneOptions library_options(const TuneOptions& options) {
  tools::TuneOptions how;
  ClassifierOptions& classifier = how.classifier;
  classifier.load = options.common.load_options();
  options.model.add_to(classifier.load);
  classifier.preprocess = options.image.preprocess_options();
  classifier.labels = options.image.labels;
  classifier.scores = options.image.score_kind();
  classifier.threshold = options.image.threshold;
  how.plan = options.common.plan;
  how.keep = options.common.keep;
  how.max_drop = options.max_drop;
  how.confidence = options.confidence;
  how.judge_by = options.judge_by == "labels" ? tools::JudgeBy::labels : tools::JudgeBy::model;
  if (!options.keep_as.empty()) how.keep_as = precisions().at(options.keep_as);
  how.limit = options.limit;
  how.calibrate_limit = options.calibrate;
  how.strict = options.strict;
  return how;
}

// Of the model and not the base, in percent.
double percent_right(const tools::Drop& drop) {
  return 100 * drop.base - drop.points;
}

std::string steps_table(const tools::TunedPlan& tuned, int width) {
  using Align = Table::Align;
  Table table({{"order"},
               {"kept", Align::right},
               {"last one kept", Align::left, 3, true},
               {"ms", Align::right},
               {tuned.measure + " %", Align::right, 2},
               {"drop [95 %]", Align::right},
               {"expected drop", Align::right, 1},
               {""}});
  for (const tools::TuneStep& step : tuned.steps) {
    std::string mark = step.pareto ? "pareto" : "";
    if (step.chosen) mark += mark.empty() ? "chosen" : ", chosen";
    const std::vector<std::string>& order = tuned.orders.at(step.order);
    table.add({step.order, std::to_string(step.kept),
               step.kept == 0 ? "" : order[static_cast<std::size_t>(step.kept - 1)],
               fmt::format("{:.3f}", step.ms), fmt::format("{:.2f}", percent_right(step.drop)),
               drop_text(step.drop), expected_drop_text(step.expected_drop, step.expected_drop_error), mark});
  }
  return table.str(0, width);
}

void print_as_table(const TuneOptions& options, const tools::TunedPlan& tuned) {
  constexpr int kLabel = 13;  // columns before the text
  const std::string& measure = tuned.measure;
  const int width = table_width(options.wide);
  const tools::Drop& searched = tuned.steps.at(0).drop;
  std::string text = fmt::format("fp32         {:.3f} ms, {} {:.2f} % on the {} images above\n",
                                 tuned.fp32_ms, measure, 100 * searched.base, searched.images);
  if (tuned.bf16) {
    text += fmt::format(
        "bf16         {:.3f} ms, {} {:.2f} % there, drop {} points, expected {}: the whole model\n",
        tuned.bf16->ms, measure, percent_right(tuned.bf16->drop), drop_text(tuned.bf16->drop),
        expected_drop_text(tuned.bf16->expected_drop, tuned.bf16->expected_drop_error));
  }
  text += fmt::format("kept in {}", precision_name(tuned.keep_as));
  if (tuned.kept.empty()) text += " nothing";
  for (const std::string& layer : tuned.kept) text += " " + printable(layer);
  text += fmt::format("\nunseen       {}: {} {:.2f} % in fp32, drop {} points (in INT8 throughout {})\n",
                      counted(tuned.unseen.images, "image"), measure, 100 * tuned.unseen.base,
                      drop_text(tuned.unseen), drop_text(tuned.unseen_int8));
  text += promise_line(tuned.judged, kLabel);
  if (tuned.int8_enough && !tuned.kept.empty())
    text +=
        "note         INT8 throughout was good enough: these layers are kept because they are faster so\n";
  if (!tuned.sure)
    text += fmt::format(
        "note         not even with all layers in {} is the search {:g} % sure of the promise: --keep-as "
        "fp32 is\n",
        precision_name(tuned.keep_as), options.confidence);
  if (tuned.bf16_is_best)
    text +=
        "note         the whole model in bf16 is good enough and no slower than this plan: --precision bf16 "
        "needs no plan\n";
  text += fmt::format("written      {}\n", printable(options.output));
  fmt::print("{}\n{}", steps_table(tuned, width), wrapped(text, kLabel, width));
}

void save_svg(const TuneOptions& options, const tools::TunedPlan& tuned) {
  std::vector<tools::ParetoPoint> points;
  for (const tools::TuneStep& step : tuned.steps) {
    points.push_back(
        {step.ms, 100 * step.drop.base - step.expected_drop,
         fmt::format("{} of {} layers in floating point", step.kept, tuned.orders.at(step.order).size()),
         step.pareto, step.chosen});
  }
  tools::write_file(
      options.svg,
      tools::pareto_svg(fmt::format("{}: accuracy and time in mixed precision", options.model.model), points,
                        100 * tuned.steps.at(0).drop.base - options.max_drop,
                        tuned.measure + " by the expected drop, %"));
}

void print_next_of(const TuneOptions& options, const tools::TunedPlan& tuned) {
  const CommonOptions& common = options.common;
  if (tuned.judged.within && tuned.bf16_is_best) {
    print_next(common.quiet,
               {"evaluate", options.model.model, options.images, "--precision", "bf16", "--against", "fp32"},
               "the model in bf16, on all images");
  } else if (tuned.judged.within && tuned.keep_as == Precision::bf16 && !tuned.kept.empty()) {
    print_next(common.quiet,
               {"bench", options.model.model, "--precision", "int8,bf16", "--plan", options.output},
               "what the plan gains in time");
  } else if (tuned.judged.within) {
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
}

int tune(const TuneOptions& options) {
  const CommonOptions& common = options.common;
  if (options.max_drop < 0) throw CLI::RequiredError("--max-drop");
  if (options.output.empty()) throw CLI::RequiredError("--output");
  if (options.judge_by == "model" && !options.image.labels.empty())
    throw CLI::ValidationError("--labels", "has no effect with --judge-by model");
  const std::vector<std::string> inputs = {options.model.model, options.images, options.image.labels,
                                           common.tuning.file()};
  check_output("--output", options.output, inputs);  // not --plan, which may be changed in place
  check_output("--save-svg", options.svg, inputs);
  check_output("--save-svg", options.svg, {common.plan});
  check_apart("--save-svg", options.svg, "--output", options.output);
  tools::TuneOptions how = library_options(options);
  StageProgress progress("tune", common.quiet);
  how.progress = progress.callbacks();
  how.note = note_printer(common.quiet);
  const tools::TunedPlan tuned = tools::tune(options.model.model, options.images, options.output, how);
  progress.end();
  if (!common.quiet) print_notes(tuned.notes);
  if (!options.svg.empty()) save_svg(options, tuned);
  if (common.json) {
    fmt::print("{}", tuned.json);
  } else {
    print_as_table(options, tuned);
  }
  print_next_of(options, tuned);
  return tuned.judged.within ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_tune(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<TuneOptions>();
  CLI::App* command = app.add_subcommand(
      "tune", "Find the layers to keep in floating point so that INT8 costs no more accuracy than allowed");
  options->model.add_to(*command, true);
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
          "fp32 does not; the CPU computes it in fp32. bf16 is for CPUs with AMX or AVX512-BF16, and nearly "
          "as fast as fp16 on a GPU. Both cost hardly any accuracy, although it may be too much for a "
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
