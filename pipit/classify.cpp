#include "pipit/classify.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/platform/device.h"
#include "engine/platform/float_mode.h"
#include "layers/passes/stored_weights.h"
#include "models/catalogue.h"
#include "models/image/folder.h"
#include "models/score_kind.h"
#include "pipit/detail/preparation_notes.h"
#include "pipit/measuring/image_pipeline.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/layer_json.h"
#include "pipit/measuring/profiled_run.h"
#include "pipit/measuring/runner.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

using Json = nlohmann::ordered_json;

// Folders stand for the images below them.
ImageFiles image_files(const std::vector<std::filesystem::path>& arguments) {
  ImageFiles all;
  for (const std::filesystem::path& argument : arguments) {
    if (is_folder(argument)) {
      add_images(all, argument);
    } else {
      all.paths.push_back(argument);  // whatever is wrong with it is said in its turn
    }
  }
  return all;
}

Json image_json(const ClassifiedImage& image) {
  Json json = {{"path", image.path.string()}};
  if (!image.error.empty()) {
    json["error"] = image.error;
    return json;
  }
  json["decode_ms"] = image.decode_ms;
  json["run_ms"] = image.run_ms;
  if (image.exif_orientation != 1) json["exif_orientation"] = image.exif_orientation;
  for (const RankedClass& ranked : image.top) {
    const Prediction& p = ranked.prediction;
    json["top"].push_back({{"class", p.index}, {"label", p.label}, {"probability", p.probability}});
    if (ranked.yes) json["top"].back()["yes"] = *ranked.yes;
  }
  return json;
}

// One run of classify(), from the compiled model on.
class ImageRun {
 public:
  ImageRun(const ClassifyOptions& options, Runner& runner, const Preprocess& preprocess,
           const ClassOutput& output, const Labels& labels)
      : options_(options), runner_(runner), preprocess_(preprocess), output_(output), labels_(labels) {}

  void classify(const ImageFiles& files, const Clock::time_point& begin) {
    for (const UnreadableImage& folder : files.left_out.folders) {
      ClassifiedImage image;
      image.path = folder.path;
      image.error = folder.error;
      add(std::move(image));
    }
    run_images({&runner_, 1}, preprocess_, output_, files.paths, [&](const ImageResult& result) {
      ClassifiedImage image = classified(result, files.paths[static_cast<std::size_t>(result.image)]);
      if (image.error.empty()) {
        if (last.empty()) first_answer_ms = milliseconds_since(begin);
        last = image.path.string();
        counts.add(result.loaded, output_, result.scores);
      }
      add(std::move(image));
    });
  }

  ProfiledRun profile(int runs) {
    Tensor input(first_input(*runner_.plan));
    for (std::int64_t i = 0; i < output_.batch; ++i)
      load_image(last, preprocess_, input.view(), i, runner_.normalizes);
    const ConstTensorView view = input.view();
    ProfiledRun run;
    run.model = runner_.model;
    run.plan = runner_.plan;
    run.profile = runner_.profile({&view, 1}, 0, runs);
    run.look_around(false, {});
    return run;
  }

  std::vector<ClassifiedImage> images;
  ImageCounts counts;
  std::string last;  // the last image that could be classified
  double first_answer_ms = 0;

 private:
  ClassifiedImage classified(const ImageResult& result, const std::filesystem::path& path) const {
    ClassifiedImage image;
    image.path = path;
    try {
      if (result.error) std::rethrow_exception(result.error);
      for (const ScoredClass& p : top_classes(output_, result.scores, options_.top, path.string(),
                                              runner_.model, options_.classifier.load.precision.kind())) {
        RankedClass& ranked = image.top.emplace_back();
        ranked.prediction = {p.index, p.probability, label_of(labels_, p.index)};
        if (output_.are_tags()) ranked.yes = output_.is_yes(p.probability);
      }
    } catch (const Error& e) {
      image.error = e.what();
      return image;
    }
    image.decode_ms = result.decode_ms;
    image.run_ms = result.run_ms;
    image.exif_orientation = result.loaded.exif_orientation;
    return image;
  }

  void add(ClassifiedImage image) {
    images.push_back(std::move(image));
    if (options_.image) options_.image(images.back());
  }

  const ClassifyOptions& options_;
  Runner& runner_;
  const Preprocess& preprocess_;
  const ClassOutput& output_;
  const Labels& labels_;
};

void check(const ClassifyOptions& options) {
  if (options.top < 1) throw ArgumentError(fmt::format("top is {}; expected 1 or more", options.top));
  if (options.profile_runs && *options.profile_runs < 1)
    throw ArgumentError(fmt::format("profile_runs is {}; expected 1 or more", *options.profile_runs));
}

}  // namespace

Classification classify(const std::string& name, const std::vector<std::filesystem::path>& paths,
                        const ClassifyOptions& options) {
  check(options);
  const ScopedFloatMode mode;
  const auto begin = Clock::now();
  const ClassifierOptions& classifier = options.classifier;
  Model model = read_model(name, classifier.load, {.run_batch = {}, .classifies = true});
  const Preparation preparation = prepare_for(model, classifier.preprocess);
  const bool quantized = is_quantized_beyond_weights(model.graph);
  ImageFiles files = image_files(paths);
  RunnerOptions how{classifier.load, {}, preparation.preprocess, {}};
  if (classifier.load.device.kind == DeviceKind::cuda) how.byte_images = preparation.preprocess;
  Runner runner(model.name, std::move(model.graph), how);
  if (options.note) {
    for (const std::string& note : runner.notes) options.note(note);
  }
  const ExecutionPlan& plan = *runner.plan;
  const ClassOutput output = class_output(plan.graph(), model, classifier.scores, classifier.threshold);
  const Labels labels = labels_for(model, classifier.labels, output);
  ImageRun run(options, runner, preparation.preprocess, output, labels);
  run.classify(files, begin);
  files.left_out.folders.clear();

  Classification result;
  result.failed = std::ranges::any_of(run.images, [](const auto& image) { return !image.error.empty(); });
  result.preprocessing = describe(preparation.preprocess);
  result.preprocessing_source = source_text(preparation);
  result.preprocessing_guessed = preparation.source == Preparation::Source::guessed;
  result.preset = preparation.preset;
  result.labelled = !labels.empty();
  Json json = json_header("classify", model.name, plan);
  json["image_decoders"] = decoders_json();
  json["preprocessing"] = preparation_json(preparation);
  add_scores_to(json, output);
  json["input_type"] = dtype_name(first_input(plan).dtype);
  if (!plan_of(classifier.load).empty()) json["preprocess_differences"] = runner.preprocess_differences;
  json["images"] = Json::array();
  for (const ClassifiedImage& image : run.images) json["images"].push_back(image_json(image));
  if (!run.last.empty()) json["first_answer_ms"] = run.first_answer_ms;
  if (options.profile_runs && !run.last.empty()) {
    const ProfiledRun profiled = run.profile(*options.profile_runs);
    result.profile = model_profile(profiled);
    json["profile"] = layer_json(profiled.rows, plan, profiled.profile);
  }
  if (plan.options().device == DeviceKind::cuda) {
    const DeviceMemory memory = device_memory(plan.options().gpu);
    json["device_memory_bytes"] = memory.held;
    json["device_memory_peak_bytes"] = memory.peak;
  }
  result.notes = notes_on(model, preparation, result.labelled, quantized, run.counts, image_channels(plan));
  add_image_notes(result.notes, files.left_out, {}, 0);
  for (const std::string& note : {scores_note(output), heads_note(plan.graph(), output.kind)}) {
    if (!note.empty()) result.notes.push_back(note);
  }
  if (!files.left_out.empty()) result.left_out = left_out_note(files.left_out);
  std::vector<std::string> notes = result.notes;
  if (!options.model_note.empty()) notes.insert(notes.begin(), options.model_note);
  json["notes"] = notes;
  json.update(excluded_json(files.left_out, {}));
  result.json = json_text(json);
  result.images = std::move(run.images);
  return result;
}

bool is_for_images(const std::string& path) {
  return find_named_model(path) == nullptr && (is_folder(path) || counts_as_image(path));
}

}  // namespace pipit::tools
