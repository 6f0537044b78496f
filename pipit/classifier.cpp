#include "pipit/classifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "engine/base/ceil_div.h"
#include "engine/base/error.h"
#include "engine/graph/tensor.h"
#include "engine/platform/float_mode.h"
#include "engine/platform/thread_pool.h"
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

static_assert(PreprocessOptions::kMaxSide == kMaxPreprocessSide);

std::vector<std::string> preprocess_presets() {
  const std::vector<std::string_view> names = preprocess_preset_names();
  return {names.begin(), names.end()};
}

namespace {

using detail::SharedClassifier;

std::shared_ptr<const SharedClassifier> load(const std::string& name, const ClassifierOptions& options) {
  const ScopedFloatMode mode;
  detail::plan_loading(options.load);
  Model model = detail::read_model(name, options.load, {.run_batch = {}, .classifies = true});
  const detail::Preparation preparation = detail::prepare_for(model, options.preprocess);
  const ClassOutput output = detail::class_output(model.graph, model, options.scores, options.threshold);
  Labels labels = detail::labels_for(model, options.labels, output);
  const std::string heads = heads_note(model.graph, output.kind);
  auto shared = std::make_shared<SharedClassifier>(CompiledModel(
      detail::compile_model(std::move(model), options.load, {.preprocess = &preparation.preprocess})));
  shared->preparation = preparation;
  shared->labels = std::move(labels);
  shared->output = output;
  shared->precision = options.load.precision.kind();
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

namespace {

// A thread that finds no image left to decode waits for the slowest one: with four each that is little.
constexpr std::int64_t kImagesPerThread = 4;

constexpr char kInMemory[] = "image in memory";

std::string name_in_memory(std::size_t index) {
  return fmt::format("image {} in memory", index);
}

Image decoded(std::span<const std::byte> file, const std::string& name) {
  return decode_image(std::span(reinterpret_cast<const std::uint8_t*>(file.data()), file.size()), name);
}

Image copied(const PixelView& image) {
  Image copy;
  copy.height = image.height;
  copy.width = image.width;
  copy.pixels.assign(image.rgb.begin(), image.rgb.end());
  check_image(copy, "classify");
  return copy;
}

}  // namespace

struct Classifier::State {
  explicit State(std::shared_ptr<const SharedClassifier> all)
      : shared(std::move(all)),
        session(shared->model.session()),
        info(shared->model.inputs()[0]),
        batch(std::max<std::int64_t>(shared->output->batch, 1)) {}

  std::vector<Prediction> classify(Image image, const std::string& name, int top) {
    const ScopedFloatMode mode;
    check(top);
    room_for(1);
    fill(0, std::move(image), name);
    std::vector<std::vector<Prediction>> answers;
    run(
        0, 1, [&](std::int64_t) -> const std::string& { return name; }, top, answers);
    return std::move(answers[0]);
  }

  // `decode` and `name`: of image i. The images of several runs are decoded together, so that all threads have some.
  template <typename Decode, typename Name>
  std::vector<std::vector<Prediction>> classify_all(std::size_t images, const Decode& decode,
                                                    const Name& name, int top) {
    const ScopedFloatMode mode;
    check(top);
    const std::shared_ptr<ThreadPool> pool = shared_pool(shared->model.state().plans[0]->options().threads);
    const auto total = static_cast<std::int64_t>(images);
    const std::int64_t together = ceil_div(kImagesPerThread * pool->size(), batch) * batch;
    std::vector<std::vector<Prediction>> answers;
    answers.reserve(images);
    for (std::int64_t first = 0; first < total; first += together) {
      const std::int64_t count = std::min(together, total - first);
      room_for(count);
      std::vector<std::exception_ptr> errors(static_cast<std::size_t>(count));
      pool->parallel_for(count, [&](std::int64_t i, int) {
        try {
          fill(i, decode(static_cast<std::size_t>(first + i)), name(static_cast<std::size_t>(first + i)));
        } catch (...) {
          errors[static_cast<std::size_t>(i)] = std::current_exception();
        }
      });
      for (std::int64_t i = 0; i < count; i += batch) {
        // What comes before the first image that cannot be read may throw first.
        const std::int64_t run_count = std::min(batch, count - i);
        const auto begin = errors.begin() + i;
        const auto failed = std::find_if(begin, begin + run_count, [](const auto& error) { return !!error; });
        const auto name_of = [&](std::int64_t k) {
          return std::string(name(static_cast<std::size_t>(first + i + k)));
        };
        if (failed != begin) run(i / batch, failed - begin, name_of, top, answers);
        if (failed != begin + run_count) std::rethrow_exception(*failed);
      }
    }
    return answers;
  }

  std::shared_ptr<const SharedClassifier> shared;

 private:
  static void check(int top) {
    if (top < 1) throw ArgumentError(fmt::format("top is {}; expected at least 1", top));
  }

  // Inputs of runs for that many images.
  void room_for(std::int64_t images) {
    const auto runs = static_cast<std::size_t>(ceil_div(images, batch));
    while (inputs.size() < runs) inputs.emplace_back(TensorDesc{info.shape, info.dtype});
  }

  // May be called for several images at once.
  void fill(std::int64_t image, Image pixels, const std::string& name) {
    fill_input(std::move(pixels), name, shared->preparation.preprocess,
               inputs[static_cast<std::size_t>(image / batch)].view(), image % batch, false);
  }

  // The answers about the first `count` images of that run, after those of others; the others are zeros.
  template <typename Name>
  void run(std::int64_t index, std::int64_t count, const Name& name, int top,
           std::vector<std::vector<Prediction>>& answers) {
    const TensorView input = inputs[static_cast<std::size_t>(index)].view();
    const std::size_t used =
        input.desc.bytes() / static_cast<std::size_t>(batch) * static_cast<std::size_t>(count);
    std::fill_n(input.data + used, input.desc.bytes() - used, std::byte{});
    ArrayView pixels;
    pixels.dtype = info.dtype;
    pixels.shape = info.shape;
    pixels.data = input.data;
    const std::span<const float> scores = session.run({pixels})[0].values<float>();
    const auto values = static_cast<std::size_t>(shared->output->values);
    for (std::int64_t i = 0; i < count; ++i) {
      std::vector<Prediction>& predictions = answers.emplace_back();
      for (const ScoredClass& scored :
           top_classes(*shared->output, scores.subspan(static_cast<std::size_t>(i) * values, values), top,
                       name(i), shared->model.name(), shared->precision)) {
        predictions.push_back({scored.index, scored.probability, label_of(shared->labels, scored.index)});
      }
    }
  }

  ModelSession session;
  TensorInfo info;
  std::int64_t batch;
  std::vector<Tensor> inputs;  // of as many runs as there are images at a time
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
  return state_->classify(copied(image), kInMemory, top);
}

std::vector<Prediction> Classifier::classify_encoded(std::span<const std::byte> file, int top) {
  return state_->classify(decoded(file, kInMemory), kInMemory, top);
}

std::vector<std::vector<Prediction>> Classifier::classify_all(std::span<const std::filesystem::path> images,
                                                              int top) {
  return state_->classify_all(
      images.size(), [&](std::size_t i) { return decode_image(images[i]); },
      [&](std::size_t i) { return images[i].string(); }, top);
}

std::vector<std::vector<Prediction>> Classifier::classify_all(std::span<const PixelView> images, int top) {
  return state_->classify_all(
      images.size(), [&](std::size_t i) { return copied(images[i]); }, name_in_memory, top);
}

std::vector<std::vector<Prediction>> Classifier::classify_all_encoded(
    std::span<const std::span<const std::byte>> files, int top) {
  return state_->classify_all(
      files.size(), [&](std::size_t i) { return decoded(files[i], name_in_memory(i)); }, name_in_memory, top);
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
