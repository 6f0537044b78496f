#include "models/classification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/image/decode.h"
#include "models/image/orientation.h"

namespace pipit {

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

}  // namespace

ClassOutput::ClassOutput(const Graph& graph, const std::string& model) {
  const TensorDesc& desc = graph.value(graph.outputs().at(0)).desc;
  const Shape& shape = desc.shape;
  bool fits = shape.rank() >= 2 && desc.dtype == DType::f32 && shape[1] >= 1;
  for (int d = 2; d < shape.rank(); ++d) fits = fits && shape[d] == 1;
  if (!fits)
    fail("{}: output '{}' is {}, expected f32 [N, classes]", model, graph.output_names()[0], desc.str());
  batch = shape[0];
  // A Reshape to [1, -1], say, puts all images of a batch into one row: its classes would be made up.
  const Value& input = graph.value(graph.inputs().at(0));
  if (input.desc.shape.rank() == 0 || input.desc.shape[0] != batch) {
    fail("{}: input '{}' is {}, but output '{}' is {}: expected one row of classes per image", model,
         input.name, input.desc.str(), graph.output_names()[0], desc.str());
  }
  classes = shape[1];
}

std::vector<ScoredClass> top_classes(std::span<const float> scores, int k, const std::string& image,
                                     const std::string& model, Precision precision) {
  if (std::any_of(scores.begin(), scores.end(), [](float s) { return std::isnan(s); })) {
    fail("{}: the output of {} for this image has NaN among its {} scores{}", image, model, scores.size(),
         precision == Precision::fp16 ? "; values beyond 65504 overflow in fp16: try precision fp32" : "");
  }
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
  const bool probabilities = *low >= 0 && *high <= 1 && std::abs(sum - 1) < 1e-3;
  double denominator = 0;
  for (const float s : scores) denominator += std::exp(static_cast<double>(s) - *high);

  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto count = std::min(static_cast<std::size_t>(k), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](int a, int b) {
                      const float sa = scores[static_cast<std::size_t>(a)];
                      const float sb = scores[static_cast<std::size_t>(b)];
                      return sa != sb ? sa > sb : a < b;
                    });
  std::vector<ScoredClass> top;
  for (std::size_t i = 0; i < count; ++i) {
    const float s = scores[static_cast<std::size_t>(order[i])];
    const double p = probabilities ? s : std::exp(static_cast<double>(s) - *high) / denominator;
    top.push_back({order[i], static_cast<float>(p)});
  }
  return top;
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
      pipit::preprocess(ready, preprocess, out, place.layout);
    }
  });
}

LoadedImage load_image(const std::filesystem::path& path, const Preprocess& preprocess, const Shape& input,
                       std::span<float> out) {
  return fill_input(decode_image(path), path.string(), preprocess, input, out);
}

LoadedImage load_image(const std::filesystem::path& path, const Preprocess& preprocess,
                       const TensorView& input, std::int64_t index) {
  const Shape& shape = input.desc.shape;
  const auto elements = static_cast<std::size_t>(shape.elements() / shape[0]);
  const std::size_t first = static_cast<std::size_t>(index) * elements;
  if (input.desc.dtype == DType::f32)
    return load_image(path, preprocess, shape, {input.as<float>() + first, elements});
  const ImageInput place{shape[3], shape[1], shape[2], Layout::channels_last};
  return prepare(decode_image(path), path.string(), preprocess, place, [&](const Image& ready) {
    resize_to_bytes(ready, preprocess, place.channels, {input.as<std::uint8_t>() + first, elements});
  });
}

}  // namespace pipit
