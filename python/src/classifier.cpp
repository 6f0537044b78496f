// Classifiers. python/pipit/_classifier.py has what users see of them.
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <variant>

#include "python/src/fields.h"
#include "python/src/long_work.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

using Pixels = nb::ndarray<const std::uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;

// Work that was interrupted may use it for a while after its caller has left. enable_shared_from_this: such work owns
// it without owning the object of Python, which only a thread with the GIL may free.
struct SharedClassifier : std::enable_shared_from_this<SharedClassifier> {
  explicit SharedClassifier(Classifier made) : classifier(std::move(made)) {}
  Classifier classifier;
  std::atomic<int> runs = 0;  // of start(), that have not ended
};

std::shared_ptr<SharedClassifier> make(const std::string& model, const ClassifierOptions& options) {
  return std::make_shared<SharedClassifier>(
      run_long(nb::none(), nb::none(), [model, how = options](LongWork& work) mutable {
        how.load.progress = stages_of(work);
        return Classifier(model, how);
      }));
}

std::vector<Prediction> classify_file(SharedClassifier& shared, const std::filesystem::path& image, int top) {
  const nb::gil_scoped_release release;
  return shared.classifier.classify(image, top);
}

std::span<const std::byte> view_of(const nb::bytes& file) {
  return {static_cast<const std::byte*>(file.data()), file.size()};
}

std::vector<Prediction> classify_bytes(SharedClassifier& shared, const nb::bytes& file, int top) {
  const std::span bytes = view_of(file);
  const nb::gil_scoped_release release;
  return shared.classifier.classify_encoded(bytes, top);
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

std::vector<Prediction> classify_pixels(SharedClassifier& shared, const Pixels& pixels, int top) {
  const PixelView view = view_of(pixels);
  const nb::gil_scoped_release release;
  return shared.classifier.classify(view, top);
}

// Many images, of several kinds.
using AnyImage = std::variant<std::filesystem::path, std::span<const std::byte>, PixelView>;
using Answer = std::variant<std::vector<Prediction>, std::exception_ptr>;

class Classification {
 public:
  Classification(Classifier& classifier, std::span<const AnyImage> images, int top, bool skip_errors)
      : classifier_(classifier), images_(images), top_(top), skip_errors_(skip_errors) {
    const TensorInfo& input = classifier.model().inputs()[0];
    if (input.shape.rank() == 4) batch_ = static_cast<std::size_t>(input.shape[0]);
  }

  /// The answers to images in order: to all, or to the first ones and the error that ends them.
  std::vector<Answer> answers(LongWork& work) && {
    // The library decodes four images with each thread at once.
    const std::size_t at_once = std::max(32U, 4 * std::thread::hardware_concurrency());
    const std::size_t step = (at_once + batch_ - 1) / batch_ * batch_;
    for (std::size_t first = 0; first < images_.size() && !ended_;) {
      work.advance({});
      const auto begin = images_.begin() + static_cast<std::ptrdiff_t>(first);
      const auto most = images_.begin() + static_cast<std::ptrdiff_t>(std::min(first + step, images_.size()));
      const auto end =
          std::find_if(begin, most, [&](const AnyImage& image) { return image.index() != begin->index(); });
      classify({begin, end});
      first += static_cast<std::size_t>(end - begin);
    }
    return std::move(answers_);
  }

 private:
  // All of one kind. One that cannot be used is found by halves.
  void classify(std::span<const AnyImage> some) {
    if (ended_ || some.empty()) return;
    try {
      std::visit([&](const auto& first) { classify(first, some); }, some[0]);
    } catch (const Error&) {
      if (some.size() > 1) {
        const std::size_t half = some.size() / 2;
        const std::size_t left = half > batch_ ? half / batch_ * batch_ : half;
        classify(some.first(left));
        classify(some.subspan(left));
      } else {
        answers_.emplace_back(std::current_exception());
        ended_ = !skip_errors_;
      }
    }
  }

  template <typename Image>
  void classify(const Image& first, std::span<const AnyImage> some) {
    if (some.size() == 1) {
      if constexpr (std::is_same_v<Image, std::span<const std::byte>>)
        answers_.emplace_back(classifier_.classify_encoded(first, top_));
      else
        answers_.emplace_back(classifier_.classify(first, top_));
      return;
    }
    std::vector<Image> images;
    for (const AnyImage& image : some) images.push_back(std::get<Image>(image));
    std::vector<std::vector<Prediction>> found;
    if constexpr (std::is_same_v<Image, std::span<const std::byte>>)
      found = classifier_.classify_all_encoded(images, top_);
    else
      found = classifier_.classify_all(images, top_);
    std::move(found.begin(), found.end(), std::back_inserter(answers_));
  }

  Classifier& classifier_;
  std::span<const AnyImage> images_;
  int top_;
  bool skip_errors_;
  std::size_t batch_ = 1;
  std::vector<Answer> answers_;
  bool ended_ = false;
};

using StartedClassification = StartedWork<std::vector<Answer>>;

// What a classification reads of Python's objects.
struct Objects {
  std::vector<nb::bytes> files;
  std::vector<Pixels> pixels;
};

// `images`: str, bytes and arrays of pixels.
std::unique_ptr<StartedClassification> start(const std::shared_ptr<SharedClassifier>& shared,
                                             const nb::list& images, int top, bool skip_errors) {
  auto objects = std::make_shared<Objects>();
  std::vector<AnyImage> views;
  for (const nb::handle image : images) {
    if (nb::isinstance<nb::str>(image)) {
      views.emplace_back(nb::cast<std::filesystem::path>(image));
    } else if (nb::isinstance<nb::bytes>(image)) {
      views.emplace_back(view_of(objects->files.emplace_back(nb::cast<nb::bytes>(image))));
    } else {
      views.emplace_back(view_of(objects->pixels.emplace_back(nb::cast<Pixels>(image, false))));
    }
  }
  ++shared->runs;
  const std::shared_ptr<SharedClassifier> running(shared.get(),
                                                  [shared](SharedClassifier* of) { --of->runs; });
  const auto work = [running, views = std::move(views), top, skip_errors](LongWork& of) {
    return Classification(running->classifier, views, top, skip_errors).answers(of);
  };
  return std::make_unique<StartedClassification>(work, std::move(objects));
}

// Each answer, or the exception.
nb::list wait(StartedClassification& started) {
  nb::list found;
  for (Answer& answer : started.wait(nb::none(), nb::none())) {
    if (const auto* error = std::get_if<std::exception_ptr>(&answer))
      found.append(exception_of(*error));
    else
      found.append(std::get<std::vector<Prediction>>(std::move(answer)));
  }
  return found;
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

  nb::class_<StartedClassification>(module, "StartedClassification", "Images under way.")
      .def("wait", &wait, nb::sig("def wait(self) -> list[typing.Any]"))
      .def("stop", &StartedClassification::stop);

  const auto classifier_of = [](const SharedClassifier& shared) -> const Classifier& {
    return shared.classifier;
  };
  nb::class_<SharedClassifier>(module, "Classifier", "pipit::Classifier")
      .def("copy",
           [=](const SharedClassifier& shared) {
             return std::make_shared<SharedClassifier>(classifier_of(shared));
           })
      .def("classify_file", &classify_file, nb::arg("image"), nb::arg("top"))
      .def("classify_bytes", &classify_bytes, nb::arg("file"), nb::arg("top"))
      .def("classify_pixels", &classify_pixels, nb::arg("pixels"), nb::arg("top"),
           nb::sig("def classify_pixels(self, pixels: typing.Any, top: int) -> list[Prediction]"))
      .def("start", &start, nb::arg("images"), nb::arg("top"), nb::arg("skip_errors"),
           nb::sig("def start(self, images: list[typing.Any], top: int, skip_errors: bool) -> "
                   "StartedClassification"))
      .def_prop_ro("busy", [](const SharedClassifier& shared) { return shared.runs > 0; })
      .def_prop_ro("labels",
                   [=](const SharedClassifier& shared) { return vector_of(classifier_of(shared).labels()); })
      .def_prop_ro("classes", [=](const SharedClassifier& shared) { return classifier_of(shared).classes(); })
      .def_prop_ro("scores", [=](const SharedClassifier& shared) { return classifier_of(shared).scores(); })
      .def_prop_ro("preprocessing",
                   [=](const SharedClassifier& shared) { return classifier_of(shared).preprocessing(); })
      .def_prop_ro("notes",
                   [=](const SharedClassifier& shared) { return vector_of(classifier_of(shared).notes()); })
      .def_prop_ro("model", [=](const SharedClassifier& shared) { return classifier_of(shared).model(); });
  module.def("make_classifier", &make, nb::arg("model"), nb::arg("options"));
}

}  // namespace pipit::internal::python
