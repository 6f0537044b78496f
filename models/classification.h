// What an image classifier needs around its run: image files in, probabilities out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/plan/kernel.h"
#include "models/image/preprocess.h"
#include "models/labels.h"

namespace pipit {

/// Output 0 of a classifier is [N, classes] in f32 (trailing extents of 1 allowed), and N is that of input 0.
struct ClassOutput {
  std::int64_t batch = 0;
  std::int64_t classes = 0;
  /// Throws Error, beginning with `model`, where that is not so.
  ClassOutput(const Graph& graph, const std::string& model);
};

struct ScoredClass {
  int index = 0;
  float probability = 0;
};

/// The k most probable classes, best first, ties to the lower index. Applies a softmax unless the scores already are
/// probabilities (all in [0, 1], sum 1 within 1e-3). Throws Error naming `image` and `model`, which computed in
/// `precision`, when one of them is NaN.
std::vector<ScoredClass> top_classes(std::span<const float> scores, int k, const std::string& image,
                                     const std::string& model, Precision precision);

/// "cat", or "class 3" where there is no label.
std::string label_of(const Labels& labels, int index);

/// What an image turned out to be.
struct LoadedImage {
  int exif_orientation = 1;  ///< from which it was turned upright; 1: nothing was done
  bool grey = false;         ///< no pixel has a colour
};

/// Fills `out`, one image of `input`, the shape of a model's input for which image_input() must know the layout, with
/// what `preprocess` makes of `image`. Throws Error, beginning with `name`, when that is of another size.
LoadedImage fill_input(Image image, const std::string& name, const Preprocess& preprocess, const Shape& input,
                       std::span<float> out);

/// fill_input() from a file.
LoadedImage load_image(const std::filesystem::path& path, const Preprocess& preprocess, const Shape& input,
                       std::span<float> out);

/// load_image() into image `index` of the batch `input`: floats, or bytes [N, H, W, C] (models/image/byte_image.h).
LoadedImage load_image(const std::filesystem::path& path, const Preprocess& preprocess,
                       const TensorView& input, std::int64_t index);

}  // namespace pipit
