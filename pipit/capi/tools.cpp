// Calibrating, quantizing, pruning, and what a model is and how long it takes as JSON.
#include "pipit/capi/handles.h"
#include "pipit/compare.h"
#include "pipit/inspect.h"

using namespace pipit;
using namespace pipit::internal::capi;

pipit_code pipit_calibrate(const char* model, const char* const* images, size_t image_count, const char* plan,
                           const pipit_options* options, pipit_progress progress, void* user, char** notes,
                           pipit_status** status) {
  return done(status, [&] {
    if (notes != nullptr) *notes = nullptr;
    need(model, "model");
    need(plan, "plan");
    const auto paths = needed_all<std::filesystem::path>(images, image_count, "images", "an image");
    const pipit_options& all = given(options);
    tools::CalibrateOptions how = all.calibrate;
    how.load = all.load;
    how.keep = all.int8.keep;
    how.preprocess = all.preprocess;
    how.progress = [&](std::int64_t images_done, std::int64_t total) {
      advance(progress, user, images_done, total);
    };
    how.check.truth = all.evaluate.truth;
    how.check.labels = all.labels;
    how.check.scores = all.scores;
    how.check.threshold = all.threshold;
    tools::Calibration made = tools::calibrate(model, paths, {.plan = plan}, how);
    if (made.checked) made.notes.push_back(tools::check_text(*made.checked));
    set_notes(notes, made.notes);
  });
}

pipit_code pipit_quantize(const char* model, const char* plan, const char* output,
                          const pipit_options* options, char** notes, pipit_status** status) {
  return done(status, [&] {
    if (notes != nullptr) *notes = nullptr;
    need(model, "model");
    need(plan, "plan");
    need(output, "output");
    const pipit_options& all = given(options);
    tools::QuantizeOptions how;
    how.load = all.load;
    how.keep = all.int8.keep;
    how.signed_activations = all.signed_activations;
    how.target = all.target;
    set_notes(notes, tools::quantize(model, plan, output, how).notes);
  });
}

char* pipit_evaluate_json(const char* model, const char* folder, const pipit_options* options,
                          pipit_progress progress, void* user, pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    need(folder, "folder");
    const pipit_options& all = given(options);
    tools::EvaluateOptions how = all.evaluate;
    how.classifier = classifier_options(all);
    how.progress = [&](std::int64_t images_done, std::int64_t total, const std::string&) {
      advance(progress, user, images_done, total);
    };
    return new_string(tools::evaluate(model, folder, how).json);
  });
}

char* pipit_profile_json(const pipit_model* model, const pipit_tensor* inputs, size_t input_count,
                         const pipit_options* options, pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    std::vector<ArrayView> arrays;
    if (inputs != nullptr || input_count > 0)
      arrays_of(inputs, input_count, model->model.inputs(), "input", arrays);
    return new_string(tools::profile(model->model, arrays, given(options).profile).json);
  });
}

char* pipit_inspect_json(const pipit_model* model, pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    return new_string(tools::inspect(model->model, {.why = true}).json);
  });
}

char* pipit_bench_json(const char* const* models, size_t model_count, const pipit_options* options,
                       pipit_progress progress, void* user, pipit_status** status) {
  return made(status, [&] {
    const auto names = needed_all<std::string>(models, model_count, "models", "a model");
    const pipit_options& all = given(options);
    tools::BenchOptions how = all.bench;
    how.timing.load = load_options(all);
    if (all.evaluate.against) {
      const tools::Baseline& base = *all.evaluate.against;
      how.against = base.model;
      if (base.model.empty()) how.timing.precisions = {base.precision, how.timing.load.precision};
    }
    how.progress = [&](std::int64_t rows, std::int64_t total, const std::string&) {
      advance(progress, user, rows, total);
    };
    return new_string(tools::bench(names, how).json);
  });
}

char* pipit_compare_json(const char* first, const char* second, const pipit_options* options,
                         pipit_status** status) {
  return made(status, [&] {
    need(first, "first");
    need(second, "second");
    return new_string(tools::compare(first, second, {given(options).bench.max_slowdown}).json);
  });
}

char* pipit_prune_json(const char* model, const char* images, const char* output,
                       const pipit_options* options, pipit_progress progress, void* user,
                       pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    need(images, "images");
    need(output, "output");
    const pipit_options& all = given(options);
    tools::PruneOptions how = all.prune;
    how.classifier = classifier_options(all);
    how.progress.update = [&](const std::string&, std::int64_t part, std::int64_t total) {
      advance(progress, user, part, total);
    };
    return new_string(tools::prune(model, images, output, how).json);
  });
}
