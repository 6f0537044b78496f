// Tools that describe a model or the machine, and measure times.
#include <functional>

#include "pipit/capi/handles.h"
#include "pipit/compare.h"
#include "pipit/fetch.h"
#include "pipit/inspect.h"
#include "pipit/machine.h"
#include "pipit/report.h"

using namespace pipit;
using namespace pipit::internal::capi;

namespace {

std::function<void(std::int64_t, std::int64_t, const std::string&)> row_progress(const Progress& progress) {
  return [progress](std::int64_t rows, std::int64_t total, const std::string& next) {
    progress.advance(next.c_str(), rows, total);
  };
}

void add_run(tools::SweepRun& run, const pipit_options& all) {
  run.device = all.load.device;
  run.progress = row_progress(all.progress);
}

}  // namespace

char* pipit_profile_json(const pipit_model* model, const pipit_tensor* inputs, size_t input_count,
                         const pipit_options* options, pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    std::vector<ArrayView> arrays;
    if (inputs != nullptr || input_count > 0)
      arrays_of(inputs, input_count, model->model.inputs(), "input", arrays);
    const pipit_options& all = given(options);
    tools::ProfileOptions how = all.profile;
    how.progress = all.progress.of_stages();
    return new_string(tools::profile(model->model, arrays, how).json);
  });
}

char* pipit_inspect_json(const pipit_model* model, pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    return new_string(tools::inspect(model->model, {.why = true}).json);
  });
}

char* pipit_bench_json(const char* const* models, size_t model_count, const pipit_options* options,
                       pipit_status** status) {
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
    how.progress = row_progress(all.progress);
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

char* pipit_sweep_conv_json(const pipit_options* options, pipit_status** status) {
  return made(status, [&] {
    const pipit_options& all = given(options);
    tools::ConvSweepOptions how = all.conv;
    add_run(how.run, all);
    return new_string(tools::sweep_convolutions(how).json);
  });
}

char* pipit_sweep_sparsity_json(const char* model, const pipit_options* options, pipit_status** status) {
  return made(status, [&] {
    const pipit_options& all = given(options);
    tools::SparsitySweepOptions how = all.sparsity;
    add_run(how.run, all);
    if (model != nullptr) how.model = model;
    how.load = all.load;
    return new_string(tools::sweep_sparsity(how).json);
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

char* pipit_ceilings_json(const pipit_options* options, pipit_status** status) {
  return made(status, [&] {
    const pipit_options& all = given(options);
    tools::CeilingsOptions how;
    how.device = all.load.device;
    how.kept = all.kept_ceilings;
    how.progress = [&](std::int64_t part, std::int64_t total) { all.progress.advance("", part, total); };
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
