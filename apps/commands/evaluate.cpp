// pipit evaluate MODEL FOLDER: accuracy on a folder of labelled images.
#include <algorithm>
#include <charconv>
#include <set>

#include "apps/commands/accuracy_report.h"
#include "apps/commands/commands.h"
#include "apps/display/drop_text.h"
#include "apps/display/next_command.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/measuring/image_pipeline.h"
#include "apps/measuring/runner.h"
#include "apps/options/values.h"
#include "engine/base/clock.h"
#include "layers/passes/passes.h"
#include "models/catalogue.h"
#include "models/image/folder.h"
#include "models/score_kind.h"
#include "quant/hash.h"
#include "quant/quantization_plan.h"

namespace pipit::internal::apps {

namespace {

struct EvaluateOptions {
  CommonOptions common;
  ModelOptions model;
  ImageOptions image;
  std::string folder;
  std::string truth;
  std::int64_t limit = 0;
  std::vector<int> devices;
  std::string against;
  double max_drop = -1;  // points; negative: not given
  bool strict = false;
};

struct DeviceScore {
  std::int64_t images = 0;
  double run_ms = 0;
};

struct Score {
  Accuracy accuracy;
  double seconds = 0;                ///< from the first image's file to the last one's classes
  std::vector<DeviceScore> devices;  ///< one per runner
  std::vector<UnreadableImage> unreadable;
  ImageCounts counts;

  double images_per_s() const { return static_cast<double>(accuracy.images()) / seconds; }
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
  Labels labels;
  std::vector<TruthImage> images;
  LeftOut left_out;
  std::int64_t unnamed = 0;  // by --truth
};

Candidate load_candidate(const EvaluateOptions& options, const ModelOptions& from, CommonOptions common) {
  Model model = from.load(useful_batch(options));
  const std::vector<std::filesystem::path> files = list_images(options.folder).paths;
  const Preparation preparation = options.image.resolve(model, files);
  const bool quantized = is_quantized(model.graph);
  if (!are_arrays(files)) {
    common.preprocess = preparation.preprocess;
    if (common.device == DeviceKind::cuda) common.byte_images = preparation.preprocess;
  }
  std::vector<Runner> runners = make_runners(model.name, std::move(model.graph), common, options.devices);
  const ClassOutput output = options.image.resolve_output(runners[0].plan->graph(), model);
  Labels labels = options.image.resolve_labels(model, output);
  ImageTruth truth = options.truth.empty() ? read_truth(options.folder, labels, output)
                                           : read_truth(options.folder, options.truth, labels, output);
  if (options.strict) truth.left_out.end_at_folders();
  return {std::move(model),
          quantized,
          preparation,
          std::move(runners),
          output,
          std::move(labels),
          spread(std::move(truth.images), options.limit),
          std::move(truth.left_out),
          truth.unnamed};
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
  std::vector<std::filesystem::path> paths;
  for (const TruthImage& image : candidate.images) paths.push_back(image.path);
  const std::vector<Runner>& runners = candidate.runners;

  Score score{.accuracy = Accuracy(candidate.output, candidate.images)};
  score.devices.resize(runners.size());
  const auto begin = Clock::now();
  run_images(candidate.runners, candidate.preparation.preprocess, candidate.output, paths,
             [&](const ImageResult& result) {
               if (result.unreadable && !strict && paths.size() > 1) {
                 score.unreadable.push_back(
                     {paths[static_cast<std::size_t>(result.image)], reason_of(result.error)});
                 return;
               }
               if (result.error) std::rethrow_exception(result.error);
               Accuracy& accuracy = score.accuracy;
               accuracy.add(static_cast<std::size_t>(result.image), result.scores, runners[0].model,
                            runners[0].plan->options().precision);
               score.counts.add(result.loaded, candidate.output, result.scores);
               ++score.devices[result.runner].images;
               score.devices[result.runner].run_ms += result.run_ms;
               progress.update(done + result.image + 1,
                               fmt::format("{} {:.2f} %", name_of_right(accuracy),
                                           100.0 * static_cast<double>(accuracy.right()) /
                                               static_cast<double>(accuracy.images())));
             });
  score.seconds = milliseconds_since(begin) / 1e3;
  if (score.accuracy.images() == 0)
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

// How much the model loses against what --against names.
struct Compared {
  double top1 = 0;          // of the base
  PairedAnswers answers;    // the base is the first
  std::int64_t others = 0;  // images with another answer
  std::optional<JudgedDrop> judged;
};

// Whether two answers name the same classes: models may have them in different orders. Without labels of both, and
// where these are the same, indices say it.
bool same_answer(const std::vector<int>& a, const Labels& labels_of_a, const std::vector<int>& b,
                 const Labels& labels_of_b) {
  if (labels_of_a.empty() || labels_of_b.empty() || labels_of_a == labels_of_b) return a == b;
  const auto names = [](const std::vector<int>& classes, const Labels& labels) {
    std::multiset<std::string> named;
    for (const int index : classes) named.insert(label_of(labels, index));
    return named;
  };
  return names(a, labels_of_a) == names(b, labels_of_b);
}

Compared compare(const EvaluateOptions& options, const Candidate& base, const Score& of_base,
                 const Candidate& own, const Score& score) {
  Compared compared;
  for (std::size_t i = 0; i < own.images.size(); ++i) {
    if (!of_base.accuracy.has(i) || !score.accuracy.has(i)) continue;
    compared.answers.add(of_base.accuracy.is_right(i), score.accuracy.is_right(i));
    compared.others +=
        same_answer(score.accuracy.answer(i), own.labels, of_base.accuracy.answer(i), base.labels) ? 0 : 1;
  }
  compared.top1 =
      static_cast<double>(of_base.accuracy.right()) / static_cast<double>(of_base.accuracy.images());
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

std::string compared_text(const EvaluateOptions& options, const std::string& right,
                          const Compared& compared) {
  const std::string text = fmt::format("against   {}: {} {:.2f} %, drop {} points; {} answered otherwise\n",
                                       printable(options.against), right, 100 * compared.top1,
                                       drop_text(compared.answers), counted(compared.others, "image"));
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
std::int64_t calibrated_on(const std::string& plan, const std::vector<TruthImage>& images,
                           const Accuracy& accuracy) {
  if (plan.empty()) return 0;
  const QuantizationPlan read = read_quantization_plan(plan);
  std::set<std::string> known;
  for (const CalibrationImage& image : read.images) known.insert(image.hash);
  if (known.empty()) return 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < images.size(); ++i)
    count += accuracy.has(i) && known.contains(hash_file(images[i].path)) ? 1 : 0;
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
  if (const std::int64_t known = calibrated_on(options.common.plan, own.images, score.accuracy); known > 0) {
    notes.push_back(fmt::format("{} of the {} images calibrated {}: on them INT8 looks better than it is",
                                known, score.accuracy.images(), options.common.plan));
  }
  add_image_notes(notes, own.left_out, score.unreadable, images);
  if (own.unnamed > 0)
    notes.push_back(fmt::format("{} of {} not named in {}, and left out", counted(own.unnamed, "image"),
                                options.folder, options.truth));
  for (const std::string& note :
       {detail::scores_note(own.output), heads_note(runner.plan->graph(), own.output.kind)}) {
    if (!note.empty()) notes.push_back(note);
  }
  if (!options.common.quiet) print_notes(notes);
  const int code = compared && compared->judged && !compared->judged->within ? kExitCheckFailed : kExitOk;
  if (options.common.json) {
    nlohmann::ordered_json json = json_header("evaluate", model, *runner.plan);
    json["image_decoders"] = decoders_json();
    json["preprocessing"] = preparation_json(preparation);
    add_scores_to(json, own.output);
    json["input_type"] = dtype_name(first_input(*runner.plan).dtype);
    json["notes"] = notes;
    json["exif_transposed"] = score.counts.turned;
    if (!options.common.plan.empty()) json["preprocess_differences"] = runner.preprocess_differences;
    json["folder"] = options.folder;
    json["batch"] = own.output.batch;
    json["images"] = score.accuracy.images();
    json.update(excluded_json(own.left_out, score.unreadable));
    json.update(accuracy_json(score.accuracy, own.labels));
    json["images_per_s"] = score.images_per_s();
    json["model_images_per_s"] = score.model_images_per_s();
    if (!options.devices.empty()) json["devices"] = devices_json(options, score);
    if (compared) json["against"] = compared_json(options, *compared);
    print_json(json);
    print_next_of(options, own.quantized, compared);
    return code;
  }
  std::string text =
      preparation.source == Preparation::Source::arrays
          ? "input     arrays as they are\n"
          : fmt::format("pixels    {}: {}\n", source_text(preparation), describe(preparation.preprocess));
  text += fmt::format("images    {}{}\n", score.accuracy.images(),
                      score.unreadable.empty()
                          ? ""
                          : fmt::format(", without {} that cannot be used", score.unreadable.size()));
  text += accuracy_text(score.accuracy, own.labels, kLabel);
  text += fmt::format("speed     {:.1f} images/s with decoding, {:.1f} images/s in the model alone\n",
                      score.images_per_s(), score.model_images_per_s());
  for (std::size_t d = 0; d < options.devices.size(); ++d) {
    text += fmt::format("GPU {:<5} {} images, {:.1f} images/s in the model alone\n", options.devices[d],
                        score.devices[d].images, Score::model_images_per_s(score.devices[d]));
  }
  if (compared) text += compared_text(options, name_of_right(score.accuracy), *compared);
  fmt::print("{}", wrapped(text, kLabel, terminal_width()));
  print_next_of(options, own.quantized, compared);
  return code;
}

}  // namespace

void add_evaluate(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<EvaluateOptions>();
  CLI::App* command =
      app.add_subcommand("evaluate", "Measure how often a model is right on a folder of images");
  options->common.add_to(*command);
  options->model.add_to(*command, true);
  options->model.classifies = true;
  options->image.add_to(*command);
  options->image.add_threshold_to(*command);
  command
      ->add_option("FOLDER", options->folder,
                   "Images or arrays in one sub-folder per class, all named by label or all by class index; "
                   "or files whose names begin with the class index and '_'")
      ->required()
      ->type_name("FOLDER");
  command
      ->add_option("--truth", options->truth,
                   "CSV file with the classes of the images, used instead of the names of folders and files: "
                   "one line per image with its path below FOLDER, a comma, and its classes (names or "
                   "indices), separated by ';'")
      ->type_name("FILE");
  command->add_option("--limit", options->limit, "Use only N images, spread evenly over the folder; 0: all")
      ->check(count_value())
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--devices", [options](const std::string& text) { options->devices = parse_devices(text); },
          "With --device cuda: divide the images among these GPUs, for example 0,1; one session for each "
          "number")
      ->type_name("N,...");
  command
      ->add_option("--against", options->against,
                   "Also run the same images in fp32 or fp16, or through another model (a file or a name) in "
                   "fp32, and show the loss of accuracy: paired, with its 95 % interval")
      ->type_name("fp32|fp16|MODEL");
  command
      ->add_option("--max-drop", options->max_drop,
                   "The most points of accuracy (percent of the images) that may be lost relative to "
                   "--against; exit code 4 if more are lost")
      ->check(nonnegative_number());
  add_strict_to(*command, options->strict);
  command->footer(
      "images_per_s is images divided by wall-clock time, decoding included. model_images_per_s counts only\n"
      "the time in the model's kernels, without waiting and without copies to and from a GPU; GPUs add up.\n"
      "Examples:\n"
      "  pipit evaluate resnet20-cifar10 cifar10-test --batch 32\n"
      "  pipit evaluate squeezenet.onnx photos --labels imagenet-classes.txt --resize 256 --crop 227 --json\n"
      "  pipit evaluate model.onnx val --precision int8 --plan plan.json --against fp32 --max-drop 1\n"
      "  pipit evaluate resnet50.onnx val --device cuda --devices 0,1 --precision fp16 --batch 32");
  command->callback([options, &exit_code] { exit_code = evaluate(*options); });
}

}  // namespace pipit::internal::apps
