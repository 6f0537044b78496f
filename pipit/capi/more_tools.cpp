// Searching for mixed precision, comparing layers, sweeps, tests, named models and the machine, as JSON.
#include "pipit/annotate.h"
#include "pipit/capi/handles.h"
#include "pipit/fetch.h"
#include "pipit/machine.h"
#include "pipit/report.h"

using namespace pipit;
using namespace pipit::internal::capi;

namespace {

tools::StageProgress stage_progress(pipit_progress progress, void* user) {
  tools::StageProgress stages;
  stages.update = [progress, user](const std::string&, std::int64_t part, std::int64_t total) {
    advance(progress, user, part, total);
  };
  return stages;
}

void add_run(tools::SweepRun& run, const pipit_options& all, pipit_progress progress, void* user) {
  run.device = all.load.device;
  run.progress = [progress, user](std::int64_t rows, std::int64_t total, const std::string&) {
    advance(progress, user, rows, total);
  };
}

}  // namespace

char* pipit_tune_json(const char* model, const char* images, const char* output, const pipit_options* options,
                      pipit_progress progress, void* user, pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    need(images, "images");
    need(output, "output");
    const pipit_options& all = given(options);
    tools::TuneOptions how = all.tune;
    how.classifier = {all.load, all.preprocess, all.labels, all.scores, all.threshold};
    how.keep = all.int8.keep;
    how.progress = stage_progress(progress, user);
    return new_string(tools::tune(model, images, output, how).json);
  });
}

char* pipit_diff_json(const char* model, const char* const* images, size_t image_count, const char* plan,
                      const pipit_options* options, pipit_progress progress, void* user,
                      pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    need(plan, "plan");
    const auto paths = needed_all<std::filesystem::path>(images, image_count, "images", "an image");
    const pipit_options& all = given(options);
    tools::DiffOptions how = all.diff;
    how.load = all.load;
    how.keep = all.int8.keep;
    how.preprocess = all.preprocess;
    how.progress = stage_progress(progress, user);
    return new_string(tools::diff(model, paths, plan, how).json);
  });
}

char* pipit_annotate_json(const char* model, const char* output, const pipit_options* options,
                          pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    need(output, "output");
    return new_string(tools::annotate(model, output, {classifier_options(given(options))}).json);
  });
}

char* pipit_sweep_conv_json(const pipit_options* options, pipit_progress progress, void* user,
                            pipit_status** status) {
  return made(status, [&] {
    const pipit_options& all = given(options);
    tools::ConvSweepOptions how = all.conv;
    add_run(how.run, all, progress, user);
    return new_string(tools::sweep_convolutions(how).json);
  });
}

char* pipit_sweep_sparsity_json(const char* model, const pipit_options* options, pipit_progress progress,
                                void* user, pipit_status** status) {
  return made(status, [&] {
    const pipit_options& all = given(options);
    tools::SparsitySweepOptions how = all.sparsity;
    add_run(how.run, all, progress, user);
    if (model != nullptr) how.model = model;
    how.load = all.load;
    return new_string(tools::sweep_sparsity(how).json);
  });
}

char* pipit_verify_json(const char* const* folders, size_t folder_count, const pipit_options* options,
                        pipit_progress progress, void* user, pipit_status** status) {
  return made(status, [&] {
    const auto paths = needed_all<std::filesystem::path>(folders, folder_count, "folders", "a folder");
    const pipit_options& all = given(options);
    tools::VerifyOptions how = all.verify;
    how.load = load_options(all);
    how.progress = [&](std::int64_t tests, std::int64_t total) { advance(progress, user, tests, total); };
    return new_string(tools::verify(paths, how).json);
  });
}

char* pipit_models_json(pipit_status** status) {
  return made(status, [] { return new_string(tools::list_models().json); });
}

char* pipit_fetch_json(const char* const* names, size_t name_count, pipit_status** status) {
  return made(status, [&] {
    return new_string(tools::fetch(needed_all<std::string>(names, name_count, "names", "a name")).json);
  });
}

char* pipit_doctor_json(pipit_status** status) {
  return made(status, [] { return new_string(tools::examine_machine().json); });
}

char* pipit_ceilings_json(const pipit_options* options, pipit_progress progress, void* user,
                          pipit_status** status) {
  return made(status, [&] {
    const pipit_options& all = given(options);
    tools::CeilingsOptions how;
    how.device = all.load.device;
    how.kept = all.kept_ceilings;
    how.progress = [&](std::int64_t part, std::int64_t total) { advance(progress, user, part, total); };
    return new_string(tools::measure_ceilings(how).json);
  });
}

char* pipit_report(const char* json, const char* form, pipit_status** status) {
  return made(status, [&] {
    need(json, "json");
    need(form, "form");
    using Form = tools::ReportForm;
    const std::string_view wanted = form;
    for (const auto& [name, value] : {std::pair{"csv", Form::csv},
                                      {"html", Form::html},
                                      {"trace", Form::trace},
                                      {"trtexec", Form::trtexec}}) {
      if (wanted == name) return new_string(tools::report(json, value));
    }
    throw ArgumentError("form is '" + std::string(wanted) + "'; expected one of csv, html, trace, trtexec");
  });
}
