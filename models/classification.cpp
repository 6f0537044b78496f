#include "models/classification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "layers/scores.h"
#include "models/image/decode.h"
#include "models/image/orientation.h"

namespace pipit::internal {

namespace {

bool is_grey(const Image& image) {
  const std::uint8_t* const end = image.pixels.data() + image.pixels.size();
  for (const std::uint8_t* p = image.pixels.data(); p < end; p += 3) {
    if (p[0] != p[1] || p[1] != p[2]) return false;
  }
  return true;
}

// Turns the image upright and calls write(image) where that is of the size that the model takes when it is resized.
template <typename Write>
LoadedImage prepare(Image image, const std::string& name, const Preprocess& preprocess,
                    const ImageInput& place, Write&& write) {
  LoadedImage loaded;
  if (preprocess.exif_transpose) {
    loaded.exif_orientation = image.exif_orientation;
    image = upright(std::move(image));
  }
  loaded.grey = is_grey(image);
  const Extent extent = preprocessed_extent(preprocess, image.extent());
  if (extent.height != place.height || extent.width != place.width) {
    fail("{}: {}x{} pixels after preprocessing, the model takes {}x{}; change crop or resize", name,
         extent.height, extent.width, place.height, place.width);
  }
  try {
    write(image);
  } catch (const Error& e) {
    fail("{}: {}", name, e.what());
  }
  return loaded;
}

constexpr std::string_view kSayOtherScores =
    "say what they are instead (--scores; pipit annotate --scores stores it in a copy of the model)";

// How an output holds the scores of images; nullopt where it holds none.
struct ScorePlaces {
  std::int64_t batch;
  std::int64_t values;
};

bool has_scores(const TensorDesc& output) {
  int wide = 0;
  for (int d = 1; d < output.shape.rank(); ++d) wide += output.shape[d] != 1 ? 1 : 0;
  return output.shape.rank() >= 1 && output.dtype == DType::f32 && output.shape.elements() >= 1 && wide <= 1;
}

std::int64_t images_in(const TensorDesc& input) {
  if (const std::optional<ImageInput> image = image_input(input.shape)) return image->batch;
  return input.shape.rank() > 0 ? input.shape[0] : 0;
}

std::optional<ScorePlaces> score_places(const TensorDesc& input, const TensorDesc& output) {
  if (!has_scores(output) || input.shape.rank() == 0) return std::nullopt;
  const std::int64_t images = images_in(input), first = output.shape[0];
  const bool flat = output.shape.elements() == first;
  if (images == 1 && flat && input.shape.rank() == 3) return ScorePlaces{1, first};
  if (images == first || input.shape[0] == first) return ScorePlaces{first, output.shape.elements() / first};
  // A Reshape to [1, -1], say, puts all images of a batch into one row: its classes would be made up.
  if (images == 1 && flat) return ScorePlaces{1, first};
  return std::nullopt;
}

// Why the first output is none of classes; empty where it is one.
std::string class_output_problem(const Graph& graph) {
  const TensorDesc& desc = graph.value(graph.outputs().at(0)).desc;
  std::string problem;
  if (!has_scores(desc)) {
    problem =
        fmt::format("output '{}' is {}, expected f32 [N, classes]", graph.output_names()[0], desc.str());
  } else {
    const Value& input = graph.value(graph.inputs().at(0));
    if (score_places(input.desc, desc)) return {};
    problem = fmt::format("input '{}' is {}, but output '{}' is {}: expected one row of classes per image",
                          input.name, input.desc.str(), graph.output_names()[0], desc.str());
  }
  for (std::size_t i = 1; i < graph.outputs().size(); ++i) {
    problem += fmt::format("{} '{}' is {}", i == 1 ? "; of the other outputs" : ",", graph.output_names()[i],
                           graph.value(graph.outputs()[i]).desc.str());
  }
  return problem;
}

}  // namespace

bool is_class_output(std::span<const TensorDesc> inputs, const TensorDesc& output) {
  return !inputs.empty() && score_places(inputs[0], output).has_value();
}

std::optional<ClassOutput> find_class_output(const Graph& graph, ScoreKind kind) {
  return !graph.inputs().empty() && class_output_problem(graph).empty()
             ? std::optional(ClassOutput(graph, {}, kind))
             : std::nullopt;
}

ClassOutput::ClassOutput(const Graph& graph, const std::string& model, ScoreKind of_model) : kind(of_model) {
  if (const std::string problem = class_output_problem(graph); !problem.empty())
    fail("{}: {}", model, problem);
  const auto places = score_places(graph.value(graph.inputs()[0]).desc, graph.value(graph.outputs()[0]).desc);
  batch = places->batch;
  values = places->values;
  if (values == 1 && kind == ScoreKind::logits) kind = ScoreKind::sigmoid_logits;
  classes = yes_or_no() ? 2 : values;
}

float ClassOutput::threshold_score() const {
  if (kind != ScoreKind::sigmoid_logits) return static_cast<float>(threshold);
  const double p = std::clamp(threshold, 1e-7, 1 - 1e-7);
  return static_cast<float>(std::log(p / (1 - p)));
}

std::string scores_problem(const ClassOutput& output, std::span<const float> scores) {
  constexpr double kRounding = 0.01, kRoundedSum = 0.25;
  if (std::ranges::any_of(scores, [](float s) { return std::isnan(s); }))
    return fmt::format("NaN among its {} scores", scores.size());
  const std::vector<double> all = probabilities(output.kind, scores);
  double sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    sum += all[i];
    if (!std::isfinite(all[i]) && std::isinf(scores[i]))
      return fmt::format("{} among its {} scores, from which no probabilities can be computed", scores[i],
                         scores.size());
    if (all[i] >= -kRounding && all[i] <= 1 + kRounding) continue;
    return fmt::format("{:g} among its {} scores, but {} scores lie {}: {}", scores[i], scores.size(),
                       score_kind_name(output.kind),
                       output.kind == ScoreKind::log_softmax ? "at or below 0" : "between 0 and 1",
                       kSayOtherScores);
  }
  const bool one_is_right = !are_independent(output.kind);
  if (one_is_right && sum > 1 + kRoundedSum + static_cast<double>(scores.size()) / 254)
    return fmt::format("probabilities that add up to {:g}, but those of {} add up to 1: {}", sum,
                       score_kind_name(output.kind), kSayOtherScores);
  return {};
}

std::vector<ScoredClass> top_classes(const ClassOutput& output, std::span<const float> scores, int k,
                                     const std::string& image, const std::string& model,
                                     Precision precision) {
  if (const std::string problem = scores_problem(output, scores); !problem.empty()) {
    const bool overflow = problem.starts_with("NaN") && precision == Precision::fp16;
    fail("{}: the output of {} for this image has {}{}", image, model, problem,
         overflow ? "; values beyond 65504 overflow in fp16: try precision bf16 or fp32" : "");
  }
  std::vector<double> all = probabilities(output.kind, scores);
  for (double& p : all) p = std::clamp(p, 0.0, 1.0);
  std::vector<ScoredClass> top;
  if (output.yes_or_no()) {
    const int said = answer(output, scores)[0];
    for (const int index : {said, 1 - said})
      top.push_back({index, static_cast<float>(index == 1 ? all[0] : 1 - all[0])});
    top.resize(std::min(static_cast<std::size_t>(k), top.size()));
    return top;
  }
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto count = std::min(static_cast<std::size_t>(k), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](int a, int b) {
                      const float sa = scores[static_cast<std::size_t>(a)];
                      const float sb = scores[static_cast<std::size_t>(b)];
                      return sa != sb ? sa > sb : a < b;
                    });
  for (std::size_t i = 0; i < count; ++i)
    top.push_back({order[i], static_cast<float>(all[static_cast<std::size_t>(order[i])])});
  return top;
}

std::vector<int> answer(const ClassOutput& output, std::span<const float> scores) {
  if (!are_independent(output.kind))
    return {static_cast<int>(std::max_element(scores.begin(), scores.end()) - scores.begin())};
  const std::vector<double> all = probabilities(output.kind, scores);
  if (output.yes_or_no()) return {output.is_yes(all[0]) ? 1 : 0};
  std::vector<int> classes;
  for (std::size_t c = 0; c < all.size(); ++c) {
    if (output.is_yes(all[c])) classes.push_back(static_cast<int>(c));
  }
  return classes;
}

std::string label_of(const Labels& labels, int index) {
  const auto i = static_cast<std::size_t>(index);
  return i < labels.size() && !labels[i].empty() ? labels[i] : fmt::format("class {}", index);
}

LoadedImage fill_input(Image image, const std::string& name, const Preprocess& preprocess, const Shape& input,
                       std::span<float> out) {
  const ImageInput place = image_input(input).value();
  return prepare(std::move(image), name, preprocess, place, [&](const Image& ready) {
    if (place.channels == 1) {
      preprocess_gray(ready, preprocess, out);
    } else {
      pipit::internal::preprocess(ready, preprocess, out, place.layout);
    }
  });
}

LoadedImage fill_input(Image image, const std::string& name, const Preprocess& preprocess,
                       const TensorView& input, std::int64_t index, bool normalizes) {
  const Shape& shape = input.desc.shape;
  const ImageInput whole = image_input(shape).value();
  const auto elements = static_cast<std::size_t>(shape.elements() / whole.batch);
  const std::size_t first = static_cast<std::size_t>(index) * elements;
  if (input.desc.dtype == DType::f32)
    return fill_input(std::move(image), name, preprocess, shape, {input.as<float>() + first, elements});
  const std::span<std::uint8_t> out{input.as<std::uint8_t>() + first, elements};
  if (!normalizes) {
    return prepare(std::move(image), name, preprocess, whole,
                   [&](const Image& ready) { preprocess_to_bytes(ready, preprocess, whole, out); });
  }
  const ImageInput place{shape[3], shape[1], shape[2], Layout::channels_last};
  return prepare(std::move(image), name, preprocess, place,
                 [&](const Image& ready) { resize_to_bytes(ready, preprocess, place.channels, out); });
}

LoadedImage load_image(const std::filesystem::path& path, const Preprocess& preprocess,
                       const TensorView& input, std::int64_t index, bool normalizes) {
  return fill_input(decode_image(path), path.string(), preprocess, input, index, normalizes);
}

}  // namespace pipit::internal
