#include "pipit/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <map>
#include <optional>
#include <set>

#include "engine/base/ceil_div.h"
#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/printable.h"
#include "engine/platform/float_mode.h"
#include "engine/platform/thread_pool.h"
#include "engine/runtime/session.h"
#include "models/image/folder.h"
#include "models/run_files.h"
#include "models/sample_file.h"
#include "pipit/detail/calibration.h"
#include "pipit/detail/calibration_checks.h"
#include "pipit/detail/checked.h"
#include "pipit/detail/image_list.h"
#include "pipit/detail/load.h"
#include "pipit/detail/preparation.h"
#include "pipit/detail/preparation_notes.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/runner.h"
#include "pipit/text.h"
#include "quant/calibration.h"
#include "quant/export_scales.h"
#include "quant/hash.h"
#include "quant/kept_layers.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Of Calibrator::part().
constexpr char kPartKey[] = "pipit_calibration_part";
constexpr int kPartVersion = 1;

constexpr std::pair<RangeMethod, ThresholdMethod> kMethods[] = {
    {RangeMethod::minmax, ThresholdMethod::minmax},
    {RangeMethod::percentile, ThresholdMethod::percentile},
    {RangeMethod::entropy, ThresholdMethod::entropy},
    {RangeMethod::mse, ThresholdMethod::mse}};

ThresholdOptions threshold_options(const RangeOptions& range) {
  check_enumerator("range.method", range.method, RangeMethod::mse);
  if (!(range.percentile > 0 && range.percentile <= 100))
    throw ArgumentError(
        fmt::format("percentile is {}; expected more than 0 and at most 100", range.percentile));
  const auto* found =
      std::ranges::find(kMethods, range.method, &std::pair<RangeMethod, ThresholdMethod>::first);
  return {found->second, range.percentile};
}

RangeMethod method_of(const QuantizationPlan& plan) {
  return std::ranges::find(kMethods, plan.method.method, &std::pair<RangeMethod, ThresholdMethod>::second)
      ->first;
}

// Before the work begins.
void check_outputs(const PlanFiles& output, const std::vector<std::string>& inputs) {
  if (output.plan.empty()) throw ArgumentError("no file is named for the plan");
  if (!output.trt_cache.empty())
    to_trt_cache({}, output.trt_version);  // throws for a release that reads none
  check_output_file(output.plan, inputs);
  for (const fs::path& path : {output.trt_cache, output.ncnn_table}) {
    if (path.empty()) continue;
    check_output_file(path, inputs);
    if (same_file(path, output.plan))
      throw ArgumentError(fmt::format("{} would replace the plan: name another file", path.string()));
  }
  if (!output.trt_cache.empty() && !output.ncnn_table.empty() &&
      same_file(output.trt_cache, output.ncnn_table))
    throw ArgumentError(fmt::format("{} would be written twice", output.trt_cache.string()));
}

// What a run says besides its plan.
Json remarks_json(const QuantizationPlan& plan, const std::vector<std::string>& notes) {
  Json json = {{"notes", notes}};
  const Clipping clipping = clipping_of(plan);
  json["clipping"] = {{"above", kMuchClipped}, {"tensors", clipping.tensors}};
  if (clipping.worst != nullptr) {
    json["clipping"]["worst"] = clipping.worst->name;
    json["clipping"]["clipped"] = clipping.worst->clipped;
  }
  json["moved"] = std::ranges::count_if(plan.tensors, &TensorScale::moved);
  return json;
}

Precision precision_of(const QuantizationPlan::Kept& kept) {
  for (const Precision precision : {Precision::fp16, Precision::bf16}) {
    if (kept.precision == precision_name(precision)) return precision;
  }
  return Precision::fp32;
}

Calibration result_of(const QuantizationPlan& plan, std::vector<std::string> notes, const Json& more) {
  Calibration result;
  result.model = plan.model;
  result.method = method_of(plan);
  for (const TensorScale& t : plan.tensors)
    result.tensors.push_back({t.name, t.min, t.max, t.threshold, t.scale, t.clipped});
  for (const QuantizationPlan::Kept& kept : plan.keep)
    result.kept.push_back({kept.node, precision_of(kept), kept.why});
  result.images = std::ssize(plan.images);
  result.notes = std::move(notes);
  Json json = Json::parse(to_json(plan, false));
  json.update(remarks_json(plan, result.notes));
  json.update(more);
  result.json = json_text(json);
  return result;
}

void write_trt_cache(const PlanFiles& output, const QuantizationPlan& plan) {
  if (!output.trt_cache.empty()) write_file(output.trt_cache, to_trt_cache(plan, output.trt_version));
}

// Images without those at the beginning that are left out, and of the others every n-th, so that all classes have a
// share.
void choose(std::vector<fs::path>& images, const CalibrateOptions& options) {
  if (options.skip < 0 || options.limit < 0)
    throw ArgumentError(fmt::format("skip {} and limit {}: expected 0 or more", options.skip, options.limit));
  const std::int64_t total = std::ssize(images);
  if (options.skip >= total)
    fail("skip is {}, but there {} only {}", options.skip, total == 1 ? "is" : "are",
         counted(total, "image"));
  images.erase(images.begin(), images.begin() + options.skip);
  images = spread(std::move(images), options.limit);
}

std::optional<ClassOutput> class_output_of(const Model& model, const std::optional<ScoreKind>& scores) {
  try {
    return class_output(model.graph, model, scores, 0.5);
  } catch (const Error&) {
    return std::nullopt;  // the model does something else
  }
}

// Images to compare with; none without a check.
std::vector<fs::path> images_to_check(const CheckOptions& check) {
  if (check.folder.empty()) return {};
  if (check.limit < 0) throw ArgumentError(fmt::format("a limit of {} images to check", check.limit));
  return spread(list_given(std::array{check.folder}, false).files.paths, check.limit);
}

Evaluation evaluate_plan(const std::string& model, const fs::path& plan, const CalibrateOptions& options) {
  EvaluateOptions how;
  how.classifier.load = options.load;
  how.classifier.load.precision = Int8{.plan = plan, .keep = {}};  // the plan says what is kept
  how.classifier.preprocess = options.preprocess;
  how.classifier.labels = options.check.labels;
  how.classifier.scores = options.check.scores;
  how.classifier.threshold = options.check.threshold;
  how.truth = options.check.truth;
  how.limit = options.check.limit;
  how.strict = options.strict;
  how.against = Baseline{};
  if (options.progress) {
    how.progress = [&](std::int64_t done, std::int64_t total, const std::string&) {
      options.progress(done, total);
    };
  }
  how.note = options.note;
  return evaluate(model, options.check.folder, how);
}

PlanOptions planning_of(const CalibrateOptions& options) {
  LoadOptions load;
  load.device.threads = options.load.device.threads;
  load.kernels.prefer = options.load.kernels.prefer;
  load.kernels.exclude = options.load.kernels.exclude;
  load.kernels.micro_batch = options.load.kernels.micro_batch;
  return compile_options(load).planning;
}

// What is known before any image is seen.
struct Prepared {
  Graph fused;
  Preparation preparation;
  QuantizationPlan plan;  // without tensors and images
  std::vector<std::string> notes;
};

// Takes the graph out of `model`.
Prepared prepare(Model& model, const CalibrateOptions& options, Preparation preparation) {
  Prepared prepared;
  prepared.preparation = std::move(preparation);
  for (const std::string& note : notes_on(model, prepared.preparation, true, false, {}, 0))
    if (options.note) options.note(note);
  QuantizationPlan& plan = prepared.plan;
  plan = empty_plan(model, prepared.preparation.preprocess);
  if (prepared.preparation.source == Preparation::Source::arrays) plan.preprocess.clear();
  plan.method = threshold_options(options.range);
  plan.weights_per_channel = options.per_channel_weights;
  prepared.fused = fuse(std::move(model.graph));
  plan.keep = kept_by_default(prepared.fused);
  prepared.notes = keep_nodes(plan, prepared.fused, kept_of(options.keep));
  return prepared;
}

Model read_float_model(const std::string& name, const LoadOptions& options) {
  Model model = read_model(name, options);
  need_floating_point(model, "calibrate");
  return model;
}

void check_exports(const PlanFiles& output, bool equalize) {
  if (equalize && !(output.trt_cache.empty() && output.ncnn_table.empty()))
    throw ArgumentError("other engines would run the model as it is, not equalized: export no scales of it");
}

void need_no_weights(const PlanFiles& output) {
  if (!output.ncnn_table.empty())
    throw ArgumentError("an ncnn table needs the model's weights, which plans do not hold");
}

}  // namespace

Calibration calibrate(const std::string& name, std::span<const fs::path> given, const PlanFiles& output,
                      const CalibrateOptions& options) {
  const ScopedFloatMode mode;
  threshold_options(options.range);  // checks them before anything is read
  std::vector<std::string> inputs = {name};
  for (const fs::path& path : given) inputs.push_back(path.string());
  check_outputs(output, inputs);
  check_exports(output, options.equalize);
  Model model = read_float_model(name, options.load);
  ImageList list = list_given(given, options.strict);
  std::vector<fs::path>& images = list.files.paths;
  choose(images, options);
  const std::optional<ClassOutput> answers = class_output_of(model, options.check.scores);
  const ImageChecks compared = {images_to_check(options.check), first_stored_statistics(model.graph)};
  Preparation preparation = prepare_files(model, options.preprocess, images);
  Prepared prepared = prepare(model, options, std::move(preparation));
  QuantizationPlan& plan = prepared.plan;
  std::vector<std::string> notes = std::move(prepared.notes);
  const std::string input = prepared.fused.value(prepared.fused.inputs().at(0)).name;
  const Graph laid_out = output.ncnn_table.empty() ? Graph{} : lower(prepared.fused);
  const std::int64_t total = std::ssize(images);
  const Calibrated done =
      calibrate_on(plan, name, std::move(prepared.fused), prepared.preparation.preprocess, images,
                   ImageNames(given), planning_of(options), {options.equalize, options.bias_correction},
                   options.progress, options.strict, compared);
  notes.insert(notes.end(), done.notes.begin(), done.notes.end());
  add_image_notes(notes, list.files.left_out, done.unreadable, total);
  if (list.repeated > 0) {
    notes.push_back(list.repeated == 1
                        ? "1 image is given twice and counts once"
                        : fmt::format("{} images are given twice and count once", list.repeated));
  }
  const auto of_input = std::ranges::find(plan.tensors, input, &TensorScale::name);
  const CalibrationChecks checks =
      calibration_checks(done, std::ssize(plan.images), answers, model, prepared.preparation,
                         of_input == plan.tensors.end() ? nullptr : &*of_input);
  notes.insert(notes.end(), checks.notes.begin(), checks.notes.end());
  write_quantization_plan(output.plan, plan, output.histograms);
  write_trt_cache(output, plan);
  if (!output.ncnn_table.empty()) {
    write_file(output.ncnn_table,
               to_ncnn_table(plan, laid_out, weight_scales(laid_out, plan.weights_per_channel)));
  }
  Json more = excluded_json(list.files.left_out, done.unreadable);
  more["checks"] = checks.json;
  std::optional<Evaluation> checked;
  if (!options.check.folder.empty()) {
    checked = evaluate_plan(name, output.plan, options);
    more["check"] = Json::parse(checked->json);
  }
  Calibration result = result_of(plan, std::move(notes), more);
  result.excluded = excluded_images(list.files.left_out, done.unreadable);
  result.checked = std::move(checked);
  return result;
}

std::string check_text(const Evaluation& checked) {
  if (!checked.against) throw ArgumentError("the evaluation compares with nothing");
  const Drop& drop = checked.against->drop;
  const auto hundredths = [](double points) { return std::round(100 * points) / 100 + 0.0; };  // never -0.00
  return fmt::format(
      "INT8 costs {:.2f} points of {} (95 % interval {:.2f} to {:.2f}) on {}: {:.2f} % after {:.2f} %",
      hundredths(drop.points), checked.measure, hundredths(drop.low), hundredths(drop.high),
      counted(drop.images, "image"), 100 * checked.right.value, 100 * drop.base);
}

Calibration merge_calibrations(std::span<const fs::path> paths, const PlanFiles& output,
                               const std::optional<RangeOptions>& range) {
  std::vector<std::string> inputs;
  for (const fs::path& path : paths) inputs.push_back(path.string());
  check_outputs(output, inputs);
  need_no_weights(output);
  std::vector<QuantizationPlan> plans;
  for (const fs::path& path : paths) plans.push_back(read_quantization_plan(path));
  QuantizationPlan merged = merge_plans(plans);
  if (range) {  // the histograms serve every method
    merged.method = threshold_options(*range);
    set_scales(merged);
  }
  write_quantization_plan(output.plan, merged, output.histograms);
  write_trt_cache(output, merged);
  return result_of(merged, scale_notes(merged), Json::object());
}

// The members that are defined below are inline, so that the shared library does not export them.
struct Calibrator::State {
  using Batch = std::vector<Tensor>;  // one for each input

  State(std::string model, Prepared prepared, const CalibrateOptions& options, std::exception_ptr images)
      : name(std::move(model)),
        preprocess(prepared.preparation.preprocess),
        no_images(std::move(images)),
        no_arrays(options.preprocess != PreprocessOptions{}),
        plan(std::move(prepared.plan)),
        notes(std::move(prepared.notes)),
        strict(options.strict),
        session(calibration_session(
            name, options.equalize ? equalized(plan, prepared.fused, notes) : std::move(prepared.fused),
            planning_of(options), notes)),
        observer(session.plan(), session.pool()),
        inputs(session.plan().graph()) {
    session.set_observer(&observer);
    set_observed(plan, observer);
    if (!plan.preprocess.empty())
      plan.preprocess = Json::parse(plan.preprocess).dump();  // as a plan that is read
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void check_usable() const {
    if (broken) fail("{}: a call of Calibrator::update() failed: make another Calibrator", name);
  }

  void take(bool arrays);
  void update(std::span<const NamedImage> images, const ImagesDone& progress);
  bool load(std::vector<const NamedImage*>& images, std::vector<Batch>& batches, ThreadPool& pool);

  // Of all that was counted; without scales.
  QuantizationPlan counted() const {
    QuantizationPlan all = plan;
    all.images = seen;
    set_observed(all, observer);
    merge_plan(all, plan, SameImage::name);
    sort_images(all);
    return all;
  }

  std::string name;
  Preprocess preprocess;
  std::exception_ptr no_images;  // why the model takes none
  bool no_arrays;                // for images are prepared as options say
  std::optional<bool> arrays;    // what was counted, instead of images
  QuantizationPlan plan;         // of other parts
  std::vector<std::string> notes;
  bool strict;
  bool broken = false;
  Session session;
  CalibrationObserver observer;
  SampleInputs inputs;
  std::vector<CalibrationImage> seen;  // by the observer
  std::set<std::string> names;         // of these and the other parts' images
  std::map<std::string, std::string> unreadable;
};

// A plan is of images, whose preprocessing it says, or of arrays.
inline void Calibrator::State::take(bool are_arrays) {
  if (arrays && *arrays != are_arrays) throw ArgumentError("images and arrays cannot be in one calibration");
  if (!are_arrays && no_images) std::rethrow_exception(no_images);
  if (are_arrays && no_arrays)
    throw ArgumentError("preprocessing applies to images only; arrays are taken as they are");
  if (are_arrays) plan.preprocess.clear();
  arrays = are_arrays;
}

// Decodes as many images together as keep all threads busy, then runs them.
inline void Calibrator::State::update(std::span<const NamedImage> images, const ImagesDone& progress) {
  const std::shared_ptr<ThreadPool> pool = shared_pool(session.plan().options().threads);
  const std::int64_t samples = inputs.samples;
  const std::int64_t together = ceil_div(std::int64_t{2} * pool->size(), samples) * samples;
  std::vector<Batch> batches(static_cast<std::size_t>(together / samples));
  for (Batch& batch : batches) {
    for (const TensorDesc& desc : inputs.descs) {
      Tensor& tensor = batch.emplace_back(desc);
      std::fill_n(tensor.view().data, desc.bytes(), std::byte{});
    }
  }
  for (std::int64_t first = 0; first < std::ssize(images); first += together) {
    std::vector<const NamedImage*> some;
    for (std::int64_t i = first; i < std::min(first + together, std::ssize(images)); ++i)
      some.push_back(&images[static_cast<std::size_t>(i)]);
    // Without those that cannot be used the others move up.
    while (!some.empty() && load(some, batches, *pool)) {
    }
    for (std::int64_t begin = 0; begin < std::ssize(some); begin += samples) {
      std::vector<ConstTensorView> views;
      for (const Tensor& tensor : batches[static_cast<std::size_t>(begin / samples)])
        views.push_back(tensor.view());
      observer.begin(views, inputs.rows(std::min(samples, std::ssize(some) - begin)));
      naming(name, [&] { session.run(views); });
    }
    for (const NamedImage* image : some)
      seen.push_back({printable_key(image->name), hash_bytes(image->file)});
    if (progress) progress(std::min(first + together, std::ssize(images)), std::ssize(images));
  }
}

// Fills batches with `images`. Takes those out that cannot be used, and says whether there were some.
inline bool Calibrator::State::load(std::vector<const NamedImage*>& images, std::vector<Batch>& batches,
                                    ThreadPool& pool) {
  std::vector<std::string> errors(images.size());
  pool.parallel_for(std::ssize(images), [&](std::int64_t i, int) {
    const NamedImage& image = *images[static_cast<std::size_t>(i)];
    std::vector<TensorView> views;
    for (Tensor& tensor : batches[static_cast<std::size_t>(i / inputs.samples)])
      views.push_back(tensor.view());
    try {
      load_sample(image.file, image.name, inputs, preprocess, views, i % inputs.samples, false);
    } catch (const Error& e) {
      if (strict) throw;
      errors[static_cast<std::size_t>(i)] = e.what();
    }
  });
  std::vector<const NamedImage*> usable;
  for (std::size_t i = 0; i < images.size(); ++i) {
    if (errors[i].empty())
      usable.push_back(images[i]);
    else
      unreadable.emplace(images[i]->name, errors[i]);
  }
  images.swap(usable);
  return images.size() < usable.size();
}

Calibrator::Calibrator(const std::string& model, const CalibrateOptions& options) {
  const ScopedFloatMode mode;
  threshold_options(options.range);
  if (options.bias_correction || options.skip != 0 || options.limit != 0)
    throw ArgumentError("bias correction, skip and limit need all images at once: use calibrate()");
  Model read = read_float_model(model, options.load);
  Preparation preparation;
  preparation.source = Preparation::Source::arrays;
  std::exception_ptr no_images;
  try {
    preparation = prepare_for(read, options.preprocess);
  } catch (const Error&) {
    no_images = std::current_exception();
  }
  state_ = std::make_unique<State>(model, prepare(read, options, std::move(preparation)), options,
                                   std::move(no_images));
}

Calibrator::Calibrator(Calibrator&& other) noexcept = default;
Calibrator& Calibrator::operator=(Calibrator&& other) noexcept = default;
Calibrator::~Calibrator() = default;

void Calibrator::update(std::span<const NamedImage> images,
                        const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  const ScopedFloatMode mode;
  State& state = *state_;
  state.check_usable();
  std::set<std::string> added;
  for (const NamedImage& image : images) {
    std::string key = printable_key(image.name);
    if (state.names.contains(key) || !added.insert(std::move(key)).second)
      fail("image '{}' was already counted: images need different names", image.name);
  }
  if (images.empty()) return;
  state.take(is_array_file(images[0].name));
  for (const NamedImage& image : images) state.take(is_array_file(image.name));
  state.broken = true;
  state.update(images, progress);
  state.names.merge(added);
  state.broken = false;
}

// The first line is JSON, the rest the plan.
std::string Calibrator::part() const {
  state_->check_usable();
  Json head = {{kPartKey, kPartVersion}, {"excluded", state_->unreadable}};
  QuantizationPlan plan = state_->counted();
  std::string text = head.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (plan.images.empty()) return text;
  set_scales(plan);
  return text + to_json(plan, true);
}

void Calibrator::merge(std::string_view part) {
  State& state = *state_;
  state.check_usable();
  const std::size_t line = std::min(part.find('\n'), part.size());
  std::map<std::string, std::string> excluded;
  try {
    const Json head = Json::parse(part.substr(0, line));
    if (head.at(kPartKey) != kPartVersion) fail("its version is {}", head.at(kPartKey).dump());
    head.at("excluded").get_to(excluded);
  } catch (const std::exception& e) {
    fail("{}: not a part of a calibration by this version of pipit: {}", state.name, e.what());
  }
  if (const std::string_view plan = part.substr(std::min(line + 1, part.size())); !plan.empty()) {
    const QuantizationPlan other = quantization_plan_from_json(plan);
    for (const CalibrationImage& image : other.images) {
      if (state.names.contains(image.path))
        fail("image '{}' was already counted: parts must not overlap", image.path);
    }
    // What differs otherwise is said by merge_plan().
    if (!state.arrays && other.preprocess.empty() && !state.no_arrays) state.take(true);
    merge_plan(state.plan, other, SameImage::name);
    state.arrays = other.preprocess.empty();
    for (const CalibrationImage& image : other.images) state.names.insert(image.path);
  }
  state.unreadable.merge(excluded);
}

std::int64_t Calibrator::images() const {
  return std::ssize(state_->seen) + std::ssize(state_->plan.images);
}

std::vector<ExcludedImage> Calibrator::excluded() const {
  std::vector<ExcludedImage> excluded;
  for (const auto& [name, error] : state_->unreadable) excluded.push_back({name, error, false});
  return excluded;
}

Calibration Calibrator::write(const PlanFiles& output) const {
  const State& state = *state_;
  state.check_usable();
  check_outputs(output, {state.name});
  check_exports(output, !state.plan.equalized.empty());
  need_no_weights(output);
  QuantizationPlan plan = state.counted();
  std::vector<UnreadableImage> unreadable;
  for (const auto& [name, error] : state.unreadable) unreadable.push_back({name, error});
  if (plan.images.empty()) {
    if (unreadable.empty()) fail("{}: no images were given to calibrate on", state.name);
    fail("{} (none of {} can be used)", unreadable[0].error, counted(std::ssize(unreadable), "image"));
  }
  set_scales(plan);
  std::vector<std::string> notes = state.notes;
  for (std::string& note : calibration_notes(plan)) notes.push_back(std::move(note));
  const std::int64_t total = std::ssize(plan.images) + std::ssize(unreadable);
  add_image_notes(notes, {}, unreadable, total);
  write_quantization_plan(output.plan, plan, output.histograms);
  write_trt_cache(output, plan);
  Calibration result = result_of(plan, std::move(notes), excluded_json({}, unreadable));
  result.excluded = excluded();
  return result;
}

}  // namespace pipit::tools
