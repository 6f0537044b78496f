// Classifiers and their answers.
#include <algorithm>
#include <memory>

#include "pipit/capi/handles.h"

using namespace pipit;
using namespace pipit::internal::capi;

namespace {

void check_top(int top) {
  if (top < 1) throw ArgumentError("top is " + std::to_string(top) + "; expected at least 1");
}

const Prediction* ranked(const pipit_predictions* predictions, size_t rank) {
  return predictions != nullptr && rank < predictions->all.size() ? &predictions->all[rank] : nullptr;
}

}  // namespace

pipit_classifier* pipit_classifier_load(const char* model, const pipit_options* options,
                                        pipit_status** status) {
  return made(status, [&] {
    need(model, "model");
    const pipit_options& all = given(options);
    ClassifierOptions how = classifier_options(all);
    how.load.progress = all.progress.of_stages();
    Classifier classifier(model, how);
    std::string preprocessing = classifier.preprocessing();
    return new pipit_classifier{std::move(classifier), std::move(preprocessing)};
  });
}

pipit_classifier* pipit_classifier_clone(const pipit_classifier* classifier, pipit_status** status) {
  return made(status, [&] {
    need(classifier, "classifier");
    return new pipit_classifier(*classifier);
  });
}

void pipit_classifier_free(pipit_classifier* classifier) {
  delete classifier;
}

pipit_predictions* pipit_classifier_classify_file(pipit_classifier* classifier, const char* path, int top,
                                                  pipit_status** status) {
  return made(status, [&] {
    need(classifier, "classifier");
    need(path, "path");
    check_top(top);
    return new pipit_predictions{classifier->classifier.classify(std::filesystem::path(path), top)};
  });
}

pipit_predictions* pipit_classifier_classify_bytes(pipit_classifier* classifier, const void* bytes,
                                                   size_t size, int top, pipit_status** status) {
  return made(status, [&] {
    need(classifier, "classifier");
    need(bytes, "bytes");
    check_top(top);
    const std::span file(static_cast<const std::byte*>(bytes), size);
    return new pipit_predictions{classifier->classifier.classify_encoded(file, top)};
  });
}

pipit_predictions* pipit_classifier_classify_pixels(pipit_classifier* classifier, const uint8_t* rgb,
                                                    int height, int width, int top, pipit_status** status) {
  return made(status, [&] {
    need(classifier, "classifier");
    need(rgb, "rgb");
    check_top(top);
    constexpr int kMaxSide = 30000;
    if (height < 1 || height > kMaxSide || width < 1 || width > kMaxSide)
      throw ArgumentError("the image is " + std::to_string(height) + " x " + std::to_string(width) +
                          " pixels; expected 1 to 30000 a side");
    PixelView pixels;
    pixels.rgb = {rgb, static_cast<std::size_t>(height) * static_cast<std::size_t>(width) * 3};
    pixels.height = height;
    pixels.width = width;
    return new pipit_predictions{classifier->classifier.classify(pixels, top)};
  });
}

pipit_code pipit_classifier_classify_files(pipit_classifier* classifier, const char* const* paths,
                                           size_t count, int top, pipit_predictions** answers,
                                           pipit_status** status) {
  if (answers != nullptr) std::fill_n(answers, count, nullptr);
  return done(status, [&] {
    need(classifier, "classifier");
    check_top(top);
    if (count == 0) return;
    need(answers, "answers");
    const auto files = needed_all<std::filesystem::path>(paths, count, "paths", "a path");
    std::vector<std::unique_ptr<pipit_predictions>> handles;
    for (std::vector<Prediction>& all : classifier->classifier.classify_all(files, top))
      handles.push_back(std::make_unique<pipit_predictions>(pipit_predictions{std::move(all)}));
    for (size_t i = 0; i < count; ++i) answers[i] = handles[i].release();
  });
}

int64_t pipit_classifier_class_count(const pipit_classifier* classifier) {
  return classifier != nullptr ? classifier->classifier.classes() : 0;
}

const char* pipit_classifier_label(const pipit_classifier* classifier, int64_t index) {
  if (classifier == nullptr || index < 0) return nullptr;
  return text_at(classifier->classifier.labels(), static_cast<std::size_t>(index));
}

const char* pipit_classifier_preprocessing(const pipit_classifier* classifier) {
  return classifier != nullptr ? classifier->preprocessing.c_str() : nullptr;
}

size_t pipit_classifier_note_count(const pipit_classifier* classifier) {
  return classifier != nullptr ? classifier->classifier.notes().size() : 0;
}

const char* pipit_classifier_note(const pipit_classifier* classifier, size_t index) {
  return classifier != nullptr ? text_at(classifier->classifier.notes(), index) : nullptr;
}

size_t pipit_predictions_count(const pipit_predictions* predictions) {
  return predictions != nullptr ? predictions->all.size() : 0;
}

int pipit_predictions_index(const pipit_predictions* predictions, size_t rank) {
  const Prediction* prediction = ranked(predictions, rank);
  return prediction != nullptr ? prediction->index : -1;
}

float pipit_predictions_probability(const pipit_predictions* predictions, size_t rank) {
  const Prediction* prediction = ranked(predictions, rank);
  return prediction != nullptr ? prediction->probability : 0;
}

const char* pipit_predictions_label(const pipit_predictions* predictions, size_t rank) {
  const Prediction* prediction = ranked(predictions, rank);
  return prediction != nullptr ? prediction->label.c_str() : nullptr;
}

void pipit_predictions_free(pipit_predictions* predictions) {
  delete predictions;
}
