#include "pipit/classifier.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/graph/tensor.h"
#include "engine/platform/float_mode.h"
#include "models/classification.h"
#include "models/image/decode.h"
#include "models/score_kind.h"
#include "pipit/detail/load.h"
#include "pipit/detail/preparation.h"

namespace pipit {

using namespace internal;

namespace internal::detail {

// What copies of a classifier share.
struct SharedClassifier {
  explicit SharedClassifier(CompiledModel compiled) : model(std::move(compiled)) {}
  CompiledModel model;
  Preparation preparation;
  Labels labels;
  std::optional<ClassOutput> output;
  Precision precision = Precision::fp32;
  std::vector<std::string> notes;
};

}  // namespace internal::detail

namespace {

using detail::SharedClassifier;

std::shared_ptr<const SharedClassifier> load(const std::string& name, const ClassifierOptions& options) {
  const ScopedFloatMode mode;
  if (options.load.batch.value_or(1) != 1)
    fail("{}: a classifier runs one image at a time; load it with batch 1 instead of {}", name,
         *options.load.batch);
  Model model = detail::read_model(name, options.load, {.run_batch = {}, .classifies = true});
  const detail::Preparation preparation = detail::prepare_for(model, options.preprocess);
  const ClassOutput output = detail::class_output(model.graph, model, options.scores, options.threshold);
  Labels labels = detail::labels_for(model, options.labels, output);
  const std::string heads = heads_note(model.graph, output.kind);
  auto shared = std::make_shared<SharedClassifier>(
      CompiledModel(detail::compile_model(std::move(model), options.load, &preparation.preprocess)));
  shared->preparation = preparation;
  shared->labels = std::move(labels);
  shared->output = output;
  shared->precision = options.load.precision;
  shared->notes.assign(shared->model.notes().begin(), shared->model.notes().end());
  if (preparation.source == detail::Preparation::Source::guessed) {
    shared->notes.push_back(
        fmt::format("preprocessing {} ({}); where the model was trained with another its answers suffer",
                    detail::source_text(preparation), detail::describe(preparation.preprocess)));
  }
  for (const std::string& note : {detail::scores_note(output), heads}) {
    if (!note.empty()) shared->notes.push_back(note);
  }
  return shared;
}

}  // namespace

struct Classifier::State {
  explicit State(std::shared_ptr<const SharedClassifier> all)
      : shared(std::move(all)),
        session(shared->model.session()),
        info(shared->model.inputs()[0]),
        input(TensorDesc{info.shape, info.dtype}) {
    std::fill_n(input.view().data, input.desc().bytes(), std::byte{});  // of a batch one image is used
  }

  std::vector<Prediction> classify(Image image, const std::string& name, int top) {
    const ScopedFloatMode mode;
    if (top < 1) fail("{} classes are asked for; at least 1", top);
    fill_input(std::move(image), name, shared->preparation.preprocess, input.view(), 0, false);
    ArrayView pixels;
    pixels.dtype = info.dtype;
    pixels.shape = info.shape;
    pixels.data = input.view().data;
    const std::span<const float> scores =
        session.run({pixels})[0].values<float>().first(static_cast<std::size_t>(shared->output->values));
    std::vector<Prediction> predictions;
    for (const ScoredClass& scored :
         top_classes(*shared->output, scores, top, name, shared->model.name(), shared->precision)) {
      predictions.push_back({scored.index, scored.probability, label_of(shared->labels, scored.index)});
    }
    return predictions;
  }

  std::shared_ptr<const SharedClassifier> shared;
  ModelSession session;
  TensorInfo info;
  Tensor input;
};

Classifier::Classifier(const std::string& model, const ClassifierOptions& options)
    : state_(std::make_unique<State>(load(model, options))) {}
Classifier::Classifier(const Classifier& other) : state_(std::make_unique<State>(other.state_->shared)) {}
Classifier& Classifier::operator=(const Classifier& other) {
  state_ = std::make_unique<State>(other.state_->shared);
  return *this;
}
Classifier::Classifier(Classifier&& other) noexcept = default;
Classifier& Classifier::operator=(Classifier&& other) noexcept = default;
Classifier::~Classifier() = default;

std::vector<Prediction> Classifier::classify(const std::filesystem::path& image, int top) {
  return state_->classify(decode_image(image), image.string(), top);
}

std::vector<Prediction> Classifier::classify(const PixelView& image, int top) {
  Image copy;
  copy.height = image.height;
  copy.width = image.width;
  copy.pixels.assign(image.rgb.begin(), image.rgb.end());
  check_image(copy, "classify");
  return state_->classify(std::move(copy), "image in memory", top);
}

std::vector<Prediction> Classifier::classify_encoded(std::span<const std::byte> file, int top) {
  const std::span bytes(reinterpret_cast<const std::uint8_t*>(file.data()), file.size());
  return state_->classify(decode_image(bytes), "image in memory", top);
}

std::span<const std::string> Classifier::labels() const {
  return state_->shared->labels;
}

std::int64_t Classifier::classes() const {
  return state_->shared->output->classes;
}

ScoreKind Classifier::scores() const {
  return state_->shared->output->kind;
}

std::string Classifier::preprocessing() const {
  const detail::Preparation& preparation = state_->shared->preparation;
  return detail::source_text(preparation) + ": " + detail::describe(preparation.preprocess);
}

std::span<const std::string> Classifier::notes() const {
  return state_->shared->notes;
}

const CompiledModel& Classifier::model() const {
  return state_->shared->model;
}

}  // namespace pipit
