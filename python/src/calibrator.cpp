// Calibrations in parts. python/pipit/_calibrator.py has what users see of them.
#include <nanobind/stl/shared_ptr.h>

#include <mutex>

#include "python/src/fields.h"
#include "python/src/long_work.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

using namespace tools;
using Bytes = std::vector<nb::bytes>;

// Work that was interrupted may use it for a while after its caller has left. enable_shared_from_this: such work owns
// it without owning the object of Python, which only a thread with the GIL may free.
class SharedCalibrator : public std::enable_shared_from_this<SharedCalibrator> {
 public:
  SharedCalibrator(const std::string& model, const CalibrateOptions& options)
      : model_(model), calibrator_(model, options) {}

  template <typename Act>
  auto use(Act act) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) throw Error(model_ + ": another thread uses this calibrator; give each thread its own");
    return act(calibrator_);
  }

 private:
  std::string model_;
  std::mutex mutex_;
  Calibrator calibrator_;
};

using Shared = std::shared_ptr<SharedCalibrator>;

std::string text_of(const nb::bytes& bytes) {
  return {bytes.c_str(), bytes.size()};
}

Shared make_calibrator(const std::string& model, const CalibrateOptions& given, const nb::object& note) {
  return run_long(nb::none(), note, [model, options = given](LongWork& work) mutable {
    options.note = [&work](const std::string& text) { work.note(text); };
    return std::make_shared<SharedCalibrator>(model, options);
  });
}

// Names are bytes because those of files may be any.
void update_calibrator(const Shared& shared, const Bytes& names, const Bytes& files,
                       const nb::object& progress) {
  std::vector<std::pair<std::string, std::string>> images;
  for (std::size_t i = 0; i < names.size(); ++i) images.emplace_back(text_of(names[i]), text_of(files.at(i)));
  run_long(progress, nb::none(), [shared, images = std::move(images)](LongWork& work) {
    std::vector<NamedImage> views;
    for (const auto& [name, file] : images) views.push_back({name, std::as_bytes(std::span(file))});
    shared->use([&](Calibrator& calibrator) {
      calibrator.update(views, [&](std::int64_t done, std::int64_t total) {
        work.advance({{}, done, total, {}});
      });
    });
  });
}

nb::bytes part_of(const Shared& shared) {
  const std::string part = run_long(nb::none(), nb::none(), [shared](LongWork&) {
    return shared->use([](Calibrator& calibrator) { return calibrator.part(); });
  });
  return nb::bytes(part.data(), part.size());
}

void merge_part(const Shared& shared, const nb::bytes& part) {
  run_long(nb::none(), nb::none(), [shared, part = text_of(part)](LongWork&) {
    shared->use([&](Calibrator& calibrator) { calibrator.merge(part); });
  });
}

Calibration write_plan(const Shared& shared, const PlanFiles& output) {
  return run_long(nb::none(), nb::none(), [shared, output](LongWork&) {
    return shared->use([&](Calibrator& calibrator) { return calibrator.write(output); });
  });
}

}  // namespace

void bind_calibrator(nb::module_& module) {
  nb::class_<SharedCalibrator>(module, "Calibrator", "pipit::tools::Calibrator")
      .def("update", &update_calibrator, nb::arg("names"), nb::arg("files"), nb::arg("progress").none())
      .def("part", &part_of)
      .def("merge", &merge_part, nb::arg("part"))
      .def("write", &write_plan, nb::arg("output"))
      .def_prop_ro("images",
                   [](const Shared& shared) {
                     return shared->use([](Calibrator& calibrator) { return calibrator.images(); });
                   })
      .def_prop_ro("excluded", [](const Shared& shared) {
        return shared->use([](Calibrator& calibrator) { return calibrator.excluded(); });
      });
  module.def("make_calibrator", &make_calibrator, nb::arg("model"), nb::arg("options"),
             nb::arg("note").none());
}

}  // namespace pipit::internal::python
