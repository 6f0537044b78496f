// Tools that change a model or judge its answers.
#include "pipit/annotate.h"
#include "pipit/capi/handles.h"

using namespace pipit;
using namespace pipit::internal::capi;

pipit_code pipit_calibrate(const char* model, const char* const* images, size_t image_count, const char* plan,
                           const pipit_options* options, char** notes, pipit_status** status) {
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
    how.progress = [&](std::int64_t part, std::int64_t total) { all.progress.advance("", part, total); };
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
    need(output, "output");
    const pipit_options& all = given(options);
    tools::QuantizeOptions how;
    how.load = all.load;
    const bool int8 = !all.has_precision || all.precision == Precision::int8;
    how.precision = int8 ? ModelPrecision(Precision::int8) : model_precision(all);
    how.keep = all.int8.keep;
    how.signed_activations = all.signed_activations;
    how.weight_bits = all.weight_bits;
    how.target = all.target;
    how.progress = all.progress.of_stages();
    how.rounding = all.rounding;
    how.images = all.round_images;
    if (!how.images.empty()) {
      how.preprocess = all.preprocess;
      how.limit = all.calibrate.limit;
      how.strict = all.calibrate.strict;
    }
    set_notes(notes, tools::quantize(model, plan == nullptr ? "" : plan, output, how).notes);
  });
}

char* pipit_evaluate_json(const char* model, const char* folder, const pipit_options* options,
                          pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    need(folder, "folder");
    const pipit_options& all = given(options);
    tools::EvaluateOptions how = all.evaluate;
    how.classifier = classifier_options(all);
    how.progress = [&](std::int64_t part, std::int64_t total, const std::string&) {
      all.progress.advance("", part, total);
    };
    return new_string(tools::evaluate(model, folder, how).json);
  });
}

char* pipit_verify_json(const char* const* folders, size_t folder_count, const pipit_options* options,
                        pipit_status** status) {
  return made(status, [&] {
    const auto paths = needed_all<std::filesystem::path>(folders, folder_count, "folders", "a folder");
    const pipit_options& all = given(options);
    tools::VerifyOptions how = all.verify;
    how.load = load_options(all);
    how.progress = [&](std::int64_t part, std::int64_t total) { all.progress.advance("", part, total); };
    return new_string(tools::verify(paths, how).json);
  });
}

char* pipit_tune_json(const char* model, const char* images, const char* output, const pipit_options* options,
                      pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    need(images, "images");
    need(output, "output");
    const pipit_options& all = given(options);
    tools::TuneOptions how = all.tune;
    how.classifier = {all.load, all.preprocess, all.labels, all.scores, all.threshold};
    how.keep = all.int8.keep;
    how.progress = all.progress.of_stages();
    return new_string(tools::tune(model, images, output, how).json);
  });
}

char* pipit_diff_json(const char* model, const char* const* images, size_t image_count, const char* plan,
                      const pipit_options* options, pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    need(plan, "plan");
    const auto paths = needed_all<std::filesystem::path>(images, image_count, "images", "an image");
    const pipit_options& all = given(options);
    tools::DiffOptions how = all.diff;
    how.load = all.load;
    how.keep = all.int8.keep;
    how.preprocess = all.preprocess;
    how.progress = all.progress.of_stages();
    return new_string(tools::diff(model, paths, plan, how).json);
  });
}

char* pipit_prune_json(const char* model, const char* images, const char* output,
                       const pipit_options* options, pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    need(images, "images");
    need(output, "output");
    const pipit_options& all = given(options);
    tools::PruneOptions how = all.prune;
    how.classifier = classifier_options(all);
    how.progress = all.progress.of_stages();
    return new_string(tools::prune(model, images, output, how).json);
  });
}

char* pipit_annotate_json(const char* model, const char* output, const pipit_options* options,
                          pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    need(output, "output");
    const pipit_options& all = given(options);
    return new_string(
        tools::annotate(model, output, {classifier_options(all), all.progress.of_stages()}).json);
  });
}
