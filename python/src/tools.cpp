// The functions of pipit::tools. Each runs as long work: `progress(stage, done, total, found)` and `note(text)` are
// called in the calling thread and may be None.
#include "python/src/fields.h"
#include "python/src/long_work.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

using namespace tools;
using Paths = std::vector<std::filesystem::path>;
using Path = std::filesystem::path;

// Sets the callbacks of options.
template <typename Options>
void report_to(LongWork& work, Options& options) {
  if constexpr (requires { options.note; })
    options.note = [&work](const std::string& text) { work.note(text); };
  if constexpr (requires { options.timing.note; })
    options.timing.note = [&work](const std::string& text) { work.note(text); };
  if constexpr (requires { options.run.progress; }) {
    options.run.note = [&work](const std::string& text) { work.note(text); };
    options.run.progress = [&work](std::int64_t done, std::int64_t total, const std::string& next) {
      work.advance({{}, done, total, next});
    };
  } else if constexpr (requires { options.progress.update; }) {
    options.progress = stages_of(work);
  } else if constexpr (requires { options.progress = std::function<void(std::int64_t, std::int64_t)>(); }) {
    options.progress = [&work](std::int64_t done, std::int64_t total) {
      work.advance({{}, done, total, {}});
    };
  } else if constexpr (requires { options.progress; }) {
    options.progress = [&work](std::int64_t done, std::int64_t total, const std::string& found) {
      work.advance({{}, done, total, found});
    };
  }
}

// A tool as Python calls it: function(arguments..., options) becomes tool(arguments..., options, progress, note).
template <typename Options, typename Call>
auto run_tool(const Options& given, const nb::object& progress, const nb::object& note, Call call) {
  return run_long(progress, note, [call, options = given](LongWork& work) mutable {
    report_to(work, options);
    return call(options);
  });
}

template <typename Result, typename Options>
auto tool(Result (*function)(const Options&)) {
  return [function](const Options& given, const nb::object& progress, const nb::object& note) {
    return run_tool(given, progress, note, [=](const Options& options) { return function(options); });
  };
}

template <typename Result, typename A, typename Options>
auto tool(Result (*function)(const A&, const Options&)) {
  return [function](const A& a, const Options& given, const nb::object& progress, const nb::object& note) {
    return run_tool(given, progress, note, [=](const Options& options) { return function(a, options); });
  };
}

template <typename Result, typename A, typename B, typename Options>
auto tool(Result (*function)(const A&, const B&, const Options&)) {
  return [function](const A& a, const B& b, const Options& given, const nb::object& progress,
                    const nb::object& note) {
    return run_tool(given, progress, note, [=](const Options& options) { return function(a, b, options); });
  };
}

template <typename Result, typename A, typename B, typename C, typename Options>
auto tool(Result (*function)(const A&, const B&, const C&, const Options&)) {
  return [function](const A& a, const B& b, const C& c, const Options& given, const nb::object& progress,
                    const nb::object& note) {
    return run_tool(given, progress, note,
                    [=](const Options& options) { return function(a, b, c, options); });
  };
}

Calibration calibrate_paths(const std::string& model, const Paths& images, const PlanFiles& output,
                            const CalibrateOptions& options) {
  return calibrate(model, images, output, options);
}

Difference diff_paths(const std::string& model, const Paths& images, const Path& plan,
                      const DiffOptions& options) {
  return diff(model, images, plan, options);
}

Calibration merge(const Paths& plans, const PlanFiles& output, const std::optional<RangeOptions>& range) {
  return run_long(nb::none(), nb::none(),
                  [=](LongWork&) { return merge_calibrations(plans, output, range); });
}

std::string report_of(const std::string& json, ReportForm form) {
  const nb::gil_scoped_release release;
  return report(json, form);
}

FetchResult fetch_models(const std::vector<std::string>& names, const nb::object& note) {
  return run_long(nb::none(), note, [=](LongWork& work) {
    return fetch(names, [&work](const std::string& text) { work.note(text); });
  });
}

ModelList list() {
  return run_long(nb::none(), nb::none(), [](LongWork&) { return list_models(); });
}

MachineFacts examine() {
  return run_long(nb::none(), nb::none(), [](LongWork&) { return examine_machine(); });
}

}  // namespace

void bind_tools(nb::module_& module) {
  const auto progress = nb::arg("progress").none();
  const auto note = nb::arg("note").none();
  const auto model = nb::arg("model");
  const auto options = nb::arg("options");
  module.def("evaluate", tool(&evaluate), model, nb::arg("folder"), options, progress, note);
  module.def("tune", tool(&tune), model, nb::arg("images"), nb::arg("output"), options, progress, note);
  module.def("calibrate", tool(&calibrate_paths), model, nb::arg("images"), nb::arg("output"), options,
             progress, note);
  module.def("diff", tool(&diff_paths), model, nb::arg("images"), nb::arg("plan"), options, progress, note);
  module.def("quantize", tool(&quantize), model, nb::arg("plan"), nb::arg("output"), options, progress, note);
  module.def("annotate", tool(&annotate), model, nb::arg("output"), options, progress, note);
  module.def("merge_calibrations", &merge, nb::arg("plans"), nb::arg("output"), nb::arg("range").none());
  module.def("bench", tool(&bench), nb::arg("models"), options, progress, note);
  module.def("compare", tool(&compare), nb::arg("first"), nb::arg("second"), options, progress, note);
  module.def("verify", tool(&verify), nb::arg("folders"), options, progress, note);
  module.def("prune", tool(&prune), model, nb::arg("images"), nb::arg("output"), options, progress, note);
  module.def("sweep_convolutions", tool(&sweep_convolutions), options, progress, note);
  module.def("sweep_sparsity", tool(&sweep_sparsity), options, progress, note);
  module.def("measure_ceilings", tool(&measure_ceilings), options, progress, note);
  module.def("list_models", &list);
  module.def("fetch", &fetch_models, nb::arg("names"), note);
  module.def("pareto_svg", &pareto_svg, nb::arg("title"), nb::arg("points"), nb::arg("least").none(),
             nb::arg("what"));
  module.def("report", &report_of, nb::arg("json"), nb::arg("form"));
  module.def("examine_machine", &examine);
}

}  // namespace pipit::internal::python
