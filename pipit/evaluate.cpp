#include "pipit/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/platform/float_mode.h"
#include "layers/passes/stored_weights.h"
#include "models/image/folder.h"
#include "models/score_kind.h"
#include "pipit/detail/image_list.h"
#include "pipit/detail/load.h"
#include "pipit/detail/preparation.h"
#include "pipit/detail/preparation_notes.h"
#include "pipit/measuring/accuracy.h"
#include "pipit/measuring/drop_json.h"
#include "pipit/measuring/image_pipeline.h"
#include "pipit/measuring/json.h"
#include "pipit/text.h"
#include "quant/hash.h"
#include "quant/quantization_plan.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

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
  std::int64_t unnamed = 0;  // by EvaluateOptions::truth
};

// The batch, but no more than there are images: the slots beyond them would cost time and memory for nothing.
std::optional<std::int64_t> useful_batch(std::optional<std::int64_t> batch, const fs::path& folder,
                                         std::int64_t limit) {
  if (batch.value_or(1) <= 1) return batch;
  const auto images = static_cast<std::int64_t>(list_images(folder).paths.size());
  return std::min({*batch, images, limit > 0 ? limit : images});
}

Candidate load_candidate(const std::string& name, const LoadOptions& load, const fs::path& folder,
                         const EvaluateOptions& options) {
  // The folder is read for the batch before the model, and again when the model's labels are known.
  Model model = read_model(
      name, load, {.run_batch = useful_batch(load.shapes.batch, folder, options.limit), .classifies = true});
  const std::vector<fs::path> files = list_images(folder).paths;
  const ClassifierOptions& classifier = options.classifier;
  const Preparation preparation = prepare_files(model, classifier.preprocess, files);
  RunnerOptions how{load, {}, {}, {}};
  if (preparation.source != Preparation::Source::arrays) {
    how.preprocess = preparation.preprocess;
    if (load.device.kind == DeviceKind::cuda) how.byte_images = preparation.preprocess;
  }
  const bool quantized = is_quantized_beyond_weights(model.graph);
  std::vector<Runner> runners = make_runners(model.name, std::move(model.graph), how);
  const ClassOutput output =
      class_output(runners[0].plan->graph(), model, classifier.scores, classifier.threshold);
  Labels labels = labels_for(model, classifier.labels, output);
  ImageTruth truth = options.truth.empty()
                         ? read_truth(folder.string(), labels, output)
                         : read_truth(folder.string(), options.truth.string(), labels, output);
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

struct Score {
  Accuracy accuracy;
  double seconds = 0;  // from the first image's file to the last one's classes
  struct Device {
    std::int64_t images = 0;
    double run_ms = 0;

    // What it would do if nothing kept it waiting.
    double images_per_s() const { return images > 0 ? 1000 * static_cast<double>(images) / run_ms : 0; }
  };
  std::vector<Device> devices;  // one for each runner
  std::vector<UnreadableImage> unreadable;
  ImageCounts counts;

  double right() const {
    return static_cast<double>(accuracy.right()) / static_cast<double>(accuracy.images());
  }
  double images_per_s() const { return static_cast<double>(accuracy.images()) / seconds; }
  double model_images_per_s() const {
    double sum = 0;
    for (const Device& d : devices) sum += d.images_per_s();
    return sum;
  }
};

// Why an image was excluded; what else went wrong is thrown again.
std::string reason_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.what();
  }
}

Score measure(Candidate& candidate, const EvaluateOptions& options, std::int64_t before, std::int64_t total) {
  std::vector<fs::path> paths;
  for (const TruthImage& image : candidate.images) paths.push_back(image.path);
  const Runner& first = candidate.runners[0];
  Score score{.accuracy = Accuracy(candidate.output, candidate.images)};
  score.devices.resize(candidate.runners.size());
  const auto begin = Clock::now();
  run_images(candidate.runners, candidate.preparation.preprocess, candidate.output, paths,
             [&](const ImageResult& result) {
               if (result.unreadable && !options.strict && paths.size() > 1) {
                 score.unreadable.push_back(
                     {paths[static_cast<std::size_t>(result.image)], reason_of(result.error)});
                 return;
               }
               if (result.error) std::rethrow_exception(result.error);
               score.accuracy.add(static_cast<std::size_t>(result.image), result.scores, first.model,
                                  first.plan->options().precision);
               score.counts.add(result.loaded, candidate.output, result.scores);
               Score::Device& device = score.devices[result.runner];
               ++device.images;
               device.run_ms += result.run_ms;
               if (options.progress) {
                 options.progress(before + result.image + 1, total,
                                  fmt::format("{} {:.2f} %", score.accuracy.measure(), 100 * score.right()));
               }
             });
  score.seconds = milliseconds_since(begin) / 1e3;
  if (score.accuracy.images() == 0)
    fail("{} (none of {} images can be used)", score.unreadable.at(0).error, paths.size());
  return score;
}

// EvaluateOptions::against.
Candidate load_base(const std::string& model, const fs::path& folder, const EvaluateOptions& options) {
  const Baseline& base = *options.against;
  LoadOptions load = options.classifier.load;
  load.precision = base.precision;
  return load_candidate(base.model.empty() ? model : base.model, load, folder, options);
}

std::string name_of(const Baseline& base) {
  return base.model.empty() ? std::string(base.precision.name()) : base.model;
}

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

Evaluation::Comparison compare(const EvaluateOptions& options, const Candidate& base, const Score& of_base,
                               const Candidate& own, const Score& score) {
  Evaluation::Comparison compared;
  PairedAnswers answers;
  for (std::size_t i = 0; i < own.images.size(); ++i) {
    if (!of_base.accuracy.has(i) || !score.accuracy.has(i)) continue;
    answers.add(of_base.accuracy.is_right(i), score.accuracy.is_right(i));
    compared.other_answers +=
        same_answer(score.accuracy.answer(i), own.labels, of_base.accuracy.answer(i), base.labels) ? 0 : 1;
  }
  compared.drop = drop_of(answers, of_base.right());
  if (options.max_drop) compared.judged = judged(answers, *options.max_drop);
  return compared;
}

// Images of the folder that the plan was calibrated on: what INT8 costs on them says less about others.
std::int64_t calibrated_on(const fs::path& plan, const std::vector<TruthImage>& images,
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

std::vector<std::string> notes_of(const Candidate& own, const Score& score, const fs::path& folder,
                                  const EvaluateOptions& options) {
  const fs::path plan = plan_of(options.classifier.load);
  const ExecutionPlan& compiled = *own.runners[0].plan;
  std::vector<std::string> notes =
      notes_on(own.model, own.preparation, true, own.quantized, score.counts, image_channels(compiled));
  if (const std::int64_t known = calibrated_on(plan, own.images, score.accuracy); known > 0) {
    notes.push_back(fmt::format("{} of the {} images calibrated {}: on them INT8 looks better than it is",
                                known, score.accuracy.images(), plan.string()));
  }
  add_image_notes(notes, own.left_out, score.unreadable, std::ssize(own.images));
  if (own.unnamed > 0) {
    notes.push_back(fmt::format("{} of {} not named in {}, and left out", counted(own.unnamed, "image"),
                                folder.string(), options.truth.string()));
  }
  for (const std::string& note : {scores_note(own.output), heads_note(compiled.graph(), own.output.kind)})
    if (!note.empty()) notes.push_back(note);
  return notes;
}

void add_share(Json& json, const std::string& name, const Share& share) {
  json[name] = share.value;
  json[name + "_correct"] = share.count;
  json[name + "_interval95"] = {share.low, share.high};
}

void add_accuracy(Json& json, const Evaluation& result, const ClassOutput& output) {
  add_share(json, result.measure == "exact" ? "exact" : "top1", result.right);
  if (output.yes_or_no()) {
    const ClassAccuracy& yes = result.classes.at(0);
    json["accuracy"] = json["top1"];
    json["confusion"] = {{"true_yes", yes.yes},
                         {"false_yes", yes.false_yes},
                         {"true_no", result.right.of - yes.images - yes.false_yes},
                         {"false_no", yes.images - yes.yes}};
    json["average_precision"] = yes.images > 0 ? Json(yes.average_precision) : Json();
    return;
  }
  if (result.top5) add_share(json, "top5", *result.top5);
  if (!output.are_tags()) return;
  const std::optional<double>& mean = result.mean_average_precision;
  json["mean_average_precision"] = mean ? Json(*mean) : Json();
  json["classes"] = Json::array();
  for (const ClassAccuracy& of : result.classes) {
    json["classes"].push_back({{"class", of.index},
                               {"label", of.label},
                               {"images", of.images},
                               {"average_precision", of.average_precision},
                               {"true_yes", of.yes},
                               {"false_yes", of.false_yes}});
  }
}

void add_devices(Json& json, const Evaluation& result, double seconds) {
  json["devices"] = Json::array();
  for (const DeviceSpeed& device : result.devices) {
    json["devices"].push_back({{"gpu", device.gpu},
                               {"images", device.images},
                               {"images_per_s", static_cast<double>(device.images) / seconds},
                               {"model_images_per_s", device.model_images_per_s}});
  }
}

std::string json_of(const Candidate& own, const Score& score, const Evaluation& result,
                    const fs::path& folder, const EvaluateOptions& options) {
  const Runner& runner = own.runners[0];
  Json json = json_header("evaluate", own.model.name, *runner.plan);
  json["image_decoders"] = decoders_json();
  json["preprocessing"] = preparation_json(own.preparation);
  add_scores_to(json, own.output);
  json["input_type"] = dtype_name(first_input(*runner.plan).dtype);
  json["notes"] = result.notes;
  json["exif_transposed"] = score.counts.turned;
  if (!plan_of(options.classifier.load).empty())
    json["preprocess_differences"] = runner.preprocess_differences;
  json["folder"] = folder.string();
  json["batch"] = own.output.batch;
  json["images"] = result.right.of;
  json.update(excluded_json(own.left_out, score.unreadable));
  add_accuracy(json, result, own.output);
  json["images_per_s"] = result.images_per_s;
  json["model_images_per_s"] = result.model_images_per_s;
  if (!result.devices.empty()) add_devices(json, result, score.seconds);
  if (result.against) {
    Json against = {{"name", name_of(*options.against)}};
    against.update(drop_json(result.against->drop));
    against["other_answers"] = result.against->other_answers;
    if (result.against->judged) {
      against["max_drop"] = result.against->judged->max_points;
      against.update(verdict_json(*result.against->judged));
    }
    json["against"] = std::move(against);
  }
  return json_text(json);
}

void add_accuracy(Evaluation& result, const Accuracy& accuracy, const Labels& labels) {
  result.measure = accuracy.measure();
  result.right = share_of(accuracy.right(), accuracy.images());
  if (!accuracy.of_sets() && !accuracy.output().yes_or_no())
    result.top5 = share_of(accuracy.top5(), accuracy.images());
  result.classes = accuracy.classes();
  double sum = 0;
  for (ClassAccuracy& of : result.classes) {
    of.label = label_of(labels, of.index);
    sum += of.average_precision;
  }
  result.tags = accuracy.output().are_tags();
  if (result.tags && !result.classes.empty())
    result.mean_average_precision = sum / static_cast<double>(result.classes.size());
}

void check(const EvaluateOptions& options) {
  const LoadOptions& load = options.classifier.load;
  if (!load.device.gpus.empty() && load.device.kind != DeviceKind::cuda)
    throw ArgumentError("GPUs are named, but the device is the CPU");
  if (options.max_drop && !options.against)
    throw ArgumentError("a largest drop is one against something: set `against` as well");
  if (options.max_drop && !(*options.max_drop >= 0))
    throw ArgumentError(fmt::format("the largest drop is {} points; expected 0 or more", *options.max_drop));
  if (options.limit < 0)
    throw ArgumentError(fmt::format("a limit of {} images; expected 0 or more", options.limit));
}

void tell(const EvaluateOptions& options, const Candidate& candidate) {
  if (!options.note) return;
  for (const std::string& note : candidate.runners[0].notes) options.note(note);
}

}  // namespace

std::string Evaluation::label(int index) const {
  return label_of(labels, index);
}

Evaluation evaluate(const std::string& model, const fs::path& folder, const EvaluateOptions& options) {
  const ScopedFloatMode mode;
  check(options);
  Candidate own = load_candidate(model, options.classifier.load, folder, options);
  tell(options, own);
  // Before anything is measured, so that what is wrong with it does not cost a whole evaluation.
  std::optional<Candidate> base;
  if (options.against) {
    base = load_base(model, folder, options);
    tell(options, *base);
    if (base->output.classes != own.output.classes) {
      fail("{} has {} classes, {} has {}: they cannot be compared", name_of(*options.against),
           base->output.classes, own.model.name, own.output.classes);
    }
  }
  const std::int64_t images = std::ssize(own.images);
  const std::int64_t total = base ? 2 * images : images;
  const Score score = measure(own, options, 0, total);
  Evaluation result;
  if (base) result.against = compare(options, *base, measure(*base, options, images, total), own, score);
  add_accuracy(result, score.accuracy, own.labels);
  result.excluded = excluded_images(own.left_out, score.unreadable);
  result.images_per_s = score.images_per_s();
  result.model_images_per_s = score.model_images_per_s();
  const std::vector<int>& gpus = options.classifier.load.device.gpus;
  for (std::size_t d = 0; d < gpus.size(); ++d)
    result.devices.push_back({gpus[d], score.devices[d].images, score.devices[d].images_per_s()});
  result.quantized = own.quantized;
  result.preprocessing = own.preparation.source == Preparation::Source::arrays
                             ? "arrays as they are"
                             : source_text(own.preparation) + ": " + describe(own.preparation.preprocess);
  result.labels = own.labels;
  result.threshold = own.output.threshold;
  result.notes = notes_of(own, score, folder, options);
  result.json = json_of(own, score, result, folder, options);
  return result;
}

}  // namespace pipit::tools
