// pipit evaluate MODEL FOLDER: accuracy on a folder of labelled images.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "apps/commands/commands.h"
#include "apps/display/drop_text.h"
#include "apps/display/next_command.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/measuring/image_pipeline.h"
#include "apps/measuring/judged_images.h"
#include "apps/measuring/runner.h"
#include "apps/options/values.h"
#include "engine/base/clock.h"
#include "layers/passes/passes.h"
#include "models/catalogue.h"
#include "quant/hash.h"
#include "quant/quantization_plan.h"

namespace pipit::apps {

namespace {

struct EvaluateOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string folder;
  std::int64_t limit = 0;
  std::vector<int> devices;
  std::string against;
  double max_drop = -1;  // points; negative: not given
  bool strict = false;
};

struct Interval {
  double low = 0;
  double high = 0;
};

// Wilson's score interval at 95 %: unlike the normal one it stays in [0, 1] and holds near the ends.
Interval wilson(std::int64_t hits, std::int64_t n) {
  constexpr double z = 1.959963984540054;
  const double count = static_cast<double>(n);
  const double p = static_cast<double>(hits) / count;
  const double centre = (p + z * z / (2 * count)) / (1 + z * z / count);
  const double half = z / (1 + z * z / count) * std::sqrt(p * (1 - p) / count + z * z / (4 * count * count));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

struct DeviceScore {
  std::int64_t images = 0;
  double run_ms = 0;
};

constexpr int kUnread = -1;

struct Score {
  std::int64_t images = 0;
  std::int64_t top1 = 0;
  std::int64_t top5 = 0;
  double seconds = 0;                ///< from the first image's file to the last one's classes
  std::vector<DeviceScore> devices;  ///< one per runner
  std::vector<int> answers;  ///< the most probable class of every image, kUnread of those that are excluded
  std::vector<UnreadableImage> unreadable;
  ImageCounts counts;

  double images_per_s() const { return static_cast<double>(images) / seconds; }
  // What the devices would do if nothing kept them waiting: images over the time in kernels, summed over devices.
  double model_images_per_s() const {
    double sum = 0;
    for (const DeviceScore& d : devices) sum += model_images_per_s(d);
    return sum;
  }
  static double model_images_per_s(const DeviceScore& d) {
    return d.images > 0 ? 1000 * static_cast<double>(d.images) / d.run_ms : 0;
  }
};

// --batch, but no more than there are images: the slots beyond them would cost time and memory for nothing.
// The folder is read for it before the model, and again when the model's labels are known.
std::optional<std::int64_t> useful_batch(const EvaluateOptions& options) {
  if (options.model.batch.value_or(1) == 1) return options.model.batch;
  const auto images = static_cast<std::int64_t>(list_images(options.folder).paths.size());
  return std::min({*options.model.batch, images, options.limit > 0 ? options.limit : images});
}

// "0,2" as {0, 2}.
std::vector<int> parse_devices(const std::string& text) {
  constexpr std::size_t kMaxDevices = 64;
  std::vector<int> devices;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    int ordinal = -1;
    const auto [stop, error] = std::from_chars(at, end, ordinal);
    if (error != std::errc{} || ordinal < 0 || (stop != end && *stop != ',') ||
        devices.size() == kMaxDevices) {
      throw CLI::ValidationError(
          "--devices",
          fmt::format("'{}' is not a list of at most {} GPU numbers such as 0,1", text, kMaxDevices));
    }
    devices.push_back(ordinal);
    if (stop == end) return devices;
    at = stop + 1;
  }
}

nlohmann::ordered_json devices_json(const EvaluateOptions& options, const Score& score) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (std::size_t d = 0; d < score.devices.size(); ++d) {
    const DeviceScore& device = score.devices[d];
    json.push_back({{"gpu", options.devices[d]},
                    {"images", device.images},
                    {"images_per_s", static_cast<double>(device.images) / score.seconds},
                    {"model_images_per_s", Score::model_images_per_s(device)}});
  }
  return json;
}

// A model, compiled, and the images that it is to judge.
struct Candidate {
  Model model;  // its graph is in the runners
  bool quantized = false;
  Preparation preparation;
  std::vector<Runner> runners;
  ClassOutput output;
  std::vector<LabelledImage> images;
  LeftOut left_out;
};

Candidate load_candidate(const EvaluateOptions& options, const ModelOptions& from, CommonOptions common) {
  Model model = from.load(useful_batch(options));
  const Preparation preparation = options.image.resolve(model);
  const bool quantized = is_quantized(model.graph);
  common.preprocess = preparation.preprocess;
  if (common.device == DeviceKind::cuda) common.byte_images = preparation.preprocess;
  std::vector<Runner> runners = make_runners(model.name, std::move(model.graph), common, options.devices);
  ClassOutput output(runners[0].plan->graph(), model.name);
  const Labels labels = options.image.resolve_labels(model, output.classes);
  LabelledImages found = list_labelled_images(options.folder, labels, static_cast<int>(output.classes));
  return {std::move(model),         quantized, preparation,
          std::move(runners),       output,    spread(std::move(found.images), options.limit),
          std::move(found.left_out)};
}

// Why an image was excluded; what else went wrong is thrown again.
std::string reason_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.what();
  }
}

Score measure(Candidate& candidate, Progress& progress, std::int64_t done, bool strict) {
  const std::vector<std::filesystem::path> paths = paths_of(candidate.images);
  const std::vector<Runner>& runners = candidate.runners;

  Score score;
  score.devices.resize(runners.size());
  score.answers.resize(paths.size());
  const auto begin = Clock::now();
  run_images(candidate.runners, candidate.preparation.preprocess, candidate.output, paths,
             [&](const ImageResult& result) {
               const LabelledImage& image = candidate.images[static_cast<std::size_t>(result.image)];
               if (result.unreadable && !strict && paths.size() > 1) {
                 score.answers[static_cast<std::size_t>(result.image)] = kUnread;
                 score.unreadable.push_back({image.path, reason_of(result.error)});
                 return;
               }
               if (result.error) std::rethrow_exception(result.error);
               const std::vector<ScoredClass> top =
                   top_classes(result.scores, 5, image.path.string(), runners[0].model,
                               runners[0].plan->options().precision);
               score.answers[static_cast<std::size_t>(result.image)] = top[0].index;
               score.top1 += top[0].index == image.label ? 1 : 0;
               score.top5 += std::any_of(top.begin(), top.end(),
                                         [&](const ScoredClass& p) { return p.index == image.label; })
                                 ? 1
                                 : 0;
               ++score.images;
               score.counts.add(result.loaded);
               ++score.devices[result.runner].images;
               score.devices[result.runner].run_ms += result.run_ms;
               progress.update(done + result.image + 1,
                               fmt::format("top-1 {:.2f} %", 100.0 * static_cast<double>(score.top1) /
                                                                 static_cast<double>(score.images)));
             });
  score.seconds = milliseconds_since(begin) / 1e3;
  if (score.images == 0)
    fail("{} (none of {} images can be used)", score.unreadable.at(0).error, paths.size());
  return score;
}

// What --against names: the same model in another precision, or another one in fp32.
Candidate load_base(const EvaluateOptions& options) {
  ModelOptions from = options.model;
  CommonOptions common = options.common;
  common.plan.clear();
  common.keep.clear();
  common.group_size.reset();
  common.dynamic_scales.clear();
  common.precision = options.against == "fp16" ? Precision::fp16 : Precision::fp32;
  if (options.against != "fp32" && options.against != "fp16") from.model = options.against;
  return load_candidate(options, from, common);
}

void check_against(const std::string& against) {
  std::error_code ignored;
  if (against.empty() || against == "fp32" || against == "fp16" || find_named_model(against) != nullptr ||
      std::filesystem::exists(against, ignored))
    return;
  throw CLI::ValidationError(
      "--against",
      fmt::format("takes fp32, fp16, an ONNX file or the name of a model ({}); '{}' is none of these",
                  named_model_list(), against));
}

constexpr int kLabel = 10;  // columns before the text

// How far the model falls behind what --against names.
struct Compared {
  double top1 = 0;          // of the base
  PairedAnswers answers;    // the base is the first
  std::int64_t others = 0;  // images with another answer
  std::optional<JudgedDrop> judged;
};

Compared compare(const EvaluateOptions& options, const Candidate& base, const Score& of_base,
                 const Candidate& own, const Score& score) {
  Compared compared;
  for (std::size_t i = 0; i < own.images.size(); ++i) {
    if (of_base.answers[i] == kUnread || score.answers[i] == kUnread) continue;
    compared.answers.add(of_base.answers[i] == base.images[i].label, score.answers[i] == own.images[i].label);
    compared.others += score.answers[i] != of_base.answers[i] ? 1 : 0;
  }
  compared.top1 = static_cast<double>(of_base.top1) / static_cast<double>(of_base.images);
  if (options.max_drop >= 0) compared.judged = judge_drop(compared.answers, options.max_drop / 100);
  return compared;
}

nlohmann::ordered_json compared_json(const EvaluateOptions& options, const Compared& compared) {
  nlohmann::ordered_json json = {{"name", options.against}};
  json.update(drop_json(compared.answers, compared.top1));
  json["other_answers"] = compared.others;
  if (compared.judged) {
    json["max_drop"] = options.max_drop;
    json.update(verdict_json(*compared.judged));
  }
  return json;
}

std::string compared_text(const EvaluateOptions& options, const Compared& compared) {
  const std::string text = fmt::format(
      "against   {}: top-1 {:.2f} %, drop {} points; {} answered otherwise\n", printable(options.against),
      100 * compared.top1, drop_text(compared.answers), counted(compared.others, "image"));
  return compared.judged ? text + promise_line(options.max_drop, *compared.judged, kLabel) : text;
}

void print_next_of(const EvaluateOptions& options, bool quantized, const std::optional<Compared>& compared) {
  const bool quiet = options.common.quiet;
  const std::string& model = options.model.model;
  const std::string& plan = options.common.plan;
  const std::string precision(precision_name(options.common.precision));
  if (options.common.precision == Precision::fp32 && !quantized) {
    print_next(quiet, {"calibrate", model, options.folder, "--limit", "100", "--output", "plan.json"},
               "scales for INT8, the first step to a faster model");
  } else if (!quantized && !compared) {
    print_next(quiet,
               {"evaluate", model, options.folder, "--precision", precision, plan.empty() ? "" : "--plan",
                plan, "--against", "fp32"},
               "what that precision loses, image by image");
  } else if (compared && compared->judged && !compared->judged->within && !plan.empty()) {
    print_next(quiet,
               {"tune", model, options.folder, "--plan", plan, "--max-drop",
                fmt::format("{:g}", options.max_drop), "--output", "mixed.json"},
               "which layers to keep in floating point");
  } else {
    print_next(quiet,
               {"bench", model, "--precision", quantized ? precision : "fp32," + precision,
                plan.empty() ? "" : "--plan", plan},
               "what it gains in time");
  }
}

// Images of the folder that the plan was calibrated on: what INT8 costs on them says less about others.
std::int64_t calibrated_on(const std::string& plan, const std::vector<LabelledImage>& images,
                           const std::vector<int>& answers) {
  if (plan.empty()) return 0;
  const QuantizationPlan read = read_quantization_plan(plan);
  std::set<std::string> known;
  for (const CalibrationImage& image : read.images) known.insert(image.hash);
  if (known.empty()) return 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < images.size(); ++i)
    count += answers[i] != kUnread && known.contains(hash_file(images[i].path)) ? 1 : 0;
  return count;
}

int evaluate(const EvaluateOptions& options) {
  if (!options.devices.empty() && options.common.device != DeviceKind::cuda)
    throw CLI::ValidationError("--devices", "numbers GPUs: it needs --device cuda");
  if (options.max_drop >= 0 && options.against.empty())
    throw CLI::ValidationError("--max-drop", "is a drop against something; it goes with --against");
  check_against(options.against);
  Candidate own = load_candidate(options, options.model, options.common);
  // Before anything is measured, so that what is wrong with it does not cost a whole evaluation.
  std::optional<Candidate> base;
  if (!options.against.empty()) {
    base = load_base(options);
    if (base->output.classes != own.output.classes)
      fail("--against {}: {} classes, {} has {}", options.against, base->output.classes, own.model.name,
           own.output.classes);
  }
  const std::int64_t images = std::ssize(own.images);
  const Model& model = own.model;
  const Preparation& preparation = own.preparation;
  const Runner& runner = own.runners[0];
  std::optional<Score> measured;
  std::optional<Compared> compared;
  {
    Progress progress("evaluate", base ? 2 * images : images, options.common.quiet);
    measured = measure(own, progress, 0, options.strict);
    if (base)
      compared = compare(options, *base, measure(*base, progress, images, options.strict), own, *measured);
  }
  const Score& score = *measured;
  std::vector<std::string> notes =
      notes_on(model, preparation, true, own.quantized, score.counts, image_channels(*runner.plan));
  if (const std::int64_t known = calibrated_on(options.common.plan, own.images, score.answers); known > 0) {
    notes.push_back(fmt::format("{} of the {} images calibrated {}: on them INT8 looks better than it is",
                                known, score.images, options.common.plan));
  }
  add_image_notes(notes, own.left_out, score.unreadable, images);
  if (!options.common.quiet) print_notes(notes);
  const int code = compared && compared->judged && !compared->judged->within ? kExitCheckFailed : kExitOk;
  const auto n = static_cast<double>(score.images);
  const Interval top1 = wilson(score.top1, score.images);
  const Interval top5 = wilson(score.top5, score.images);
  if (options.common.json) {
    nlohmann::ordered_json json = json_header("evaluate", model, *runner.plan);
    json["image_decoders"] = decoders_json();
    json["preprocessing"] = preparation_json(preparation);
    json["input_type"] = dtype_name(first_input(*runner.plan).dtype);
    json["notes"] = notes;
    json["exif_transposed"] = score.counts.turned;
    if (!options.common.plan.empty()) json["preprocess_differences"] = runner.preprocess_differences;
    json["folder"] = options.folder;
    json["batch"] = own.output.batch;
    json["images"] = score.images;
    json.update(excluded_json(own.left_out, score.unreadable));
    json["top1"] = static_cast<double>(score.top1) / n;
    json["top1_correct"] = score.top1;
    json["top1_interval95"] = {top1.low, top1.high};
    json["top5"] = static_cast<double>(score.top5) / n;
    json["top5_correct"] = score.top5;
    json["top5_interval95"] = {top5.low, top5.high};
    json["images_per_s"] = score.images_per_s();
    json["model_images_per_s"] = score.model_images_per_s();
    if (!options.devices.empty()) json["devices"] = devices_json(options, score);
    if (compared) json["against"] = compared_json(options, *compared);
    print_json(json);
    print_next_of(options, own.quantized, compared);
    return code;
  }
  std::string text =
      fmt::format("pixels    {}: {}\n", source_text(preparation), describe(preparation.preprocess));
  text += fmt::format("images    {}{}\n", score.images,
                      score.unreadable.empty()
                          ? ""
                          : fmt::format(", without {} that cannot be used", score.unreadable.size()));
  text += fmt::format("top-1     {:.2f} %  [{:.2f}, {:.2f}]\n", 100.0 * static_cast<double>(score.top1) / n,
                      100 * top1.low, 100 * top1.high);
  text += fmt::format("top-5     {:.2f} %  [{:.2f}, {:.2f}]   (95 % Wilson intervals)\n",
                      100.0 * static_cast<double>(score.top5) / n, 100 * top5.low, 100 * top5.high);
  text += fmt::format("speed     {:.1f} images/s with decoding, {:.1f} images/s in the model alone\n",
                      score.images_per_s(), score.model_images_per_s());
  for (std::size_t d = 0; d < options.devices.size(); ++d) {
    text += fmt::format("GPU {:<5} {} images, {:.1f} images/s in the model alone\n", options.devices[d],
                        score.devices[d].images, Score::model_images_per_s(score.devices[d]));
  }
  if (compared) text += compared_text(options, *compared);
  fmt::print("{}", wrapped(text, kLabel, terminal_width()));
  print_next_of(options, own.quantized, compared);
  return code;
}

}  // namespace

void add_evaluate(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<EvaluateOptions>();
  CLI::App* command =
      app.add_subcommand("evaluate", "Measure top-1 and top-5 accuracy on a folder of images");
  options->common.add_to(*command);
  options->model.add_to(*command, true);
  options->image.add_to(*command);
  command
      ->add_option(
          "FOLDER", options->folder,
          "Images in one sub-folder per class, named by its label or all by their class indices; or images "
          "named with the class index and '_' first")
      ->required()
      ->type_name("FOLDER");
  command->add_option("--limit", options->limit, "Use only N images, spread evenly over the folder; 0: all")
      ->check(count_value())
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--devices", [options](const std::string& text) { options->devices = parse_devices(text); },
          "With --device cuda: share the images out among these GPUs, for example 0,1; one session for each "
          "number")
      ->type_name("N,...");
  command
      ->add_option("--against", options->against,
                   "Also run the same images in fp32 or fp16, or through another model (a file or a name) in "
                   "fp32, and say "
                   "what was lost: paired, with its 95 % interval")
      ->type_name("fp32|fp16|MODEL");
  command
      ->add_option("--max-drop", options->max_drop,
                   "Points of top-1 that may be lost --against it; exit code 4 where more were measured")
      ->check(nonnegative_number());
  add_strict_to(*command, options->strict);
  command->footer(
      "images_per_s is images over wall-clock time, decoding included. model_images_per_s is images over the "
      "time\n"
      "in the model's kernels alone, without waiting and without copies to and from a GPU; GPUs add up.\n"
      "Examples:\n"
      "  pipit evaluate resnet20-cifar10 cifar10-test --batch 32\n"
      "  pipit evaluate squeezenet.onnx photos --labels imagenet-classes.txt --resize 256 --crop 227 --json\n"
      "  pipit evaluate model.onnx val --precision int8 --plan plan.json --against fp32 --max-drop 1\n"
      "  pipit evaluate resnet50.onnx val --device cuda --devices 0,1 --precision fp16 --batch 32");
  command->callback([options, &exit_code] { exit_code = evaluate(*options); });
}

}  // namespace pipit::apps
