// What an image classifier needs around its run: image files in, probabilities out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/plan/kernel.h"
#include "models/image/preprocess.h"
#include "models/labels.h"
#include "pipit/scores.h"

namespace pipit::internal {

/// Output 0 of a classifier is [N, scores] in f32 (more extents of 1 allowed; [N]: one score); N is that of input 0.
/// Where that is one image, the scores may be all of the output ([scores], [scores, 1, 1]).
struct ClassOutput {
  ScoreKind kind = ScoreKind::logits;
  double threshold = 0.5;  ///< probability from which on the answer about an independent class is yes
  std::int64_t batch = 0;
  std::int64_t values = 0;  ///< scores of an image
  /// As many, or two where one score says yes or no: class 0 is no, class 1 yes.
  std::int64_t classes = 0;

  /// `kind`: of the model; one score that is said to be logits is a logit of yes. Throws Error, beginning with `model`,
  /// where the output is of another form.
  ClassOutput(const Graph& graph, const std::string& model, ScoreKind kind);
  bool yes_or_no() const { return values == 1 && are_independent(kind); }
  /// Whether an image may have any number of the classes.
  bool are_tags() const { return values > 1 && are_independent(kind); }
  /// Compared in f32, as scores are: 0.3 as a score reaches a threshold of 0.3.
  bool is_yes(double probability) const {
    return static_cast<float>(probability) >= static_cast<float>(threshold);
  }
  /// The score of that probability, which is finite.
  float threshold_score() const;
};

/// Whether an output of this form may be that of a classifier of images.
bool is_class_output(std::span<const TensorDesc> inputs, const TensorDesc& output);

/// nullopt where the output is of another form.
std::optional<ClassOutput> find_class_output(const Graph& graph, ScoreKind kind);

struct ScoredClass {
  int index = 0;
  float probability = 0;
};

/// Why the scores of an image are none of the output's kind, beginning with what they are; empty where they are: NaN
/// and infinity, and, of a kind that is probabilities or their logarithms, what lies outside of [0, 1] or adds up to
/// more than 1 by more than rounding to 8 bits explains.
std::string scores_problem(const ClassOutput& output, std::span<const float> scores);

/// The k most probable classes, best first, ties to the lower index; of yes and no the answer first. Their
/// probabilities() are those of the output's kind (layers/scores.h). Throws Error naming `image` and `model`, which
/// computed in `precision`, when there is a scores_problem().
std::vector<ScoredClass> top_classes(const ClassOutput& output, std::span<const float> scores, int k,
                                     const std::string& image, const std::string& model, Precision precision);

/// The classes that an image has by its scores, of which none is NaN, in ascending order: the most probable one, of
/// independent classes those from the threshold on, else yes or no.
std::vector<int> answer(const ClassOutput& output, std::span<const float> scores);

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

/// fill_input() into image `index` of `input`. Bytes are what a model takes by itself, or, with `normalizes`, the
/// pixels [N, H, W, C] that it normalizes as `preprocess` says (models/image/byte_image.h).
LoadedImage fill_input(Image image, const std::string& name, const Preprocess& preprocess,
                       const TensorView& input, std::int64_t index, bool normalizes);

/// The same from a file.
LoadedImage load_image(const std::filesystem::path& path, const Preprocess& preprocess,
                       const TensorView& input, std::int64_t index, bool normalizes);

}  // namespace pipit::internal
