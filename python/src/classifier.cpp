// Classifiers. python/pipit/_classifier.py has what users see of them.
#include <nanobind/ndarray.h>

#include "python/src/fields.h"
#include "python/src/long_work.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

using Pixels = nb::ndarray<const std::uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;

Classifier make(const std::string& model, const ClassifierOptions& options) {
  return run_long(nb::none(), nb::none(), [model, how = options](LongWork& work) mutable {
    how.load.progress = stages_of(work);
    return Classifier(model, how);
  });
}

std::vector<Prediction> classify_file(Classifier& classifier, const std::filesystem::path& image, int top) {
  const nb::gil_scoped_release release;
  return classifier.classify(image, top);
}

std::vector<Prediction> classify_bytes(Classifier& classifier, const nb::bytes& file, int top) {
  const std::span bytes(static_cast<const std::byte*>(file.data()), file.size());
  const nb::gil_scoped_release release;
  return classifier.classify_encoded(bytes, top);
}

PixelView view_of(const Pixels& pixels) {
  // As many as no image has are refused with a number that an int holds.
  constexpr std::size_t kMost = 1 << 30;
  PixelView view;
  view.rgb = {pixels.data(), pixels.size()};
  view.height = static_cast<int>(std::min(pixels.shape(0), kMost));
  view.width = static_cast<int>(std::min(pixels.shape(1), kMost));
  return view;
}

std::vector<Prediction> classify_pixels(Classifier& classifier, const Pixels& pixels, int top) {
  const PixelView view = view_of(pixels);
  const nb::gil_scoped_release release;
  return classifier.classify(view, top);
}

using Answers = std::vector<std::vector<Prediction>>;

Answers classify_files(Classifier& classifier, const std::vector<std::filesystem::path>& images, int top) {
  const nb::gil_scoped_release release;
  return classifier.classify_all(images, top);
}

Answers classify_all_bytes(Classifier& classifier, const std::vector<nb::bytes>& files, int top) {
  std::vector<std::span<const std::byte>> views;
  for (const nb::bytes& file : files)
    views.emplace_back(static_cast<const std::byte*>(file.data()), file.size());
  const nb::gil_scoped_release release;
  return classifier.classify_all_encoded(views, top);
}

Answers classify_all_pixels(Classifier& classifier, const std::vector<Pixels>& images, int top) {
  std::vector<PixelView> views;
  for (const Pixels& pixels : images) views.push_back(view_of(pixels));
  const nb::gil_scoped_release release;
  return classifier.classify_all(views, top);
}

template <typename T>
std::vector<T> vector_of(std::span<const T> values) {
  return {values.begin(), values.end()};
}

}  // namespace

void bind_classifier(nb::module_& module) {
  ResultFields<Prediction>(module, "Prediction", "One class of an answer.")
      .field("index", &Prediction::index, "position among the model's scores")
      .field("probability", &Prediction::probability, "in [0, 1]")
      .field("label", &Prediction::label, "the class's name; 'class 7' where it has none");

  nb::class_<Classifier>(module, "Classifier", "pipit::Classifier")
      .def("copy", [](const Classifier& classifier) { return Classifier(classifier); })
      .def("classify_file", &classify_file, nb::arg("image"), nb::arg("top"))
      .def("classify_bytes", &classify_bytes, nb::arg("file"), nb::arg("top"))
      .def("classify_pixels", &classify_pixels, nb::arg("pixels"), nb::arg("top"),
           nb::sig("def classify_pixels(self, pixels: typing.Any, top: int) -> list[Prediction]"))
      .def("classify_files", &classify_files, nb::arg("images"), nb::arg("top"))
      .def("classify_all_bytes", &classify_all_bytes, nb::arg("files"), nb::arg("top"))
      .def("classify_all_pixels", &classify_all_pixels, nb::arg("images"), nb::arg("top"),
           nb::sig("def classify_all_pixels(self, images: list[typing.Any], top: int) -> "
                   "list[list[Prediction]]"))
      .def_prop_ro("labels", [](const Classifier& classifier) { return vector_of(classifier.labels()); })
      .def_prop_ro("classes", &Classifier::classes)
      .def_prop_ro("scores", &Classifier::scores)
      .def_prop_ro("preprocessing", &Classifier::preprocessing)
      .def_prop_ro("notes", [](const Classifier& classifier) { return vector_of(classifier.notes()); })
      .def_prop_ro("model", [](const Classifier& classifier) { return classifier.model(); });
  module.def("make_classifier", &make, nb::arg("model"), nb::arg("options"));
}

}  // namespace pipit::internal::python
