/// @file
/// Images in, labels with probabilities out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipit/compiled_model.h"
#include "pipit/scores.h"

namespace pipit {

/// How images are prepared. What is not set here is as the model stores it (`pipit annotate`), else as the preset says.
struct PreprocessOptions {
  /// "torchvision", "timm", "caffe" or "cifar", fitted to the model's input. Empty: what the model stores, else
  /// "torchvision".
  std::string preset = {};
  /// Short side after resizing, in pixels; 0: not resized.
  std::optional<int> resize = {};
  /// Side of the square cut from the centre, in pixels.
  std::optional<int> crop = {};
  /// Filter of the resize: "nearest", "bilinear" or "bicubic", antialiased, bit for bit Pillow's.
  std::string interpolation = {};
  /// Subtracted from each channel after scaling to [0, 1], in the order of the model's channels.
  std::optional<std::array<float, 3>> mean = {};
  /// Divides each channel after that; positive.
  std::optional<std::array<float, 3>> std = {};
  /// Channels in the order blue, green, red.
  bool bgr = false;
  /// Photographs are left as they are stored, instead of turned upright as their EXIF data says.
  bool ignore_exif_orientation = false;
  /// The largest `resize` and `crop`.
  static constexpr int kMaxSide = 16'384;

  /// Whether all members are equal.
  friend bool operator==(const PreprocessOptions&, const PreprocessOptions&) = default;
};

/// The names that PreprocessOptions::preset takes.
PIPIT_API std::vector<std::string> preprocess_presets();

/// How a classifier is made.
struct ClassifierOptions {
  LoadOptions load = {};              ///< how the model is read and compiled
  PreprocessOptions preprocess = {};  ///< how images are prepared
  /// File with one class name per line, or a JSON list. Empty: the names that the model stores, if any.
  std::filesystem::path labels = {};
  /// What the model's scores are. Empty: what the model stores, else what its graph says.
  std::optional<ScoreKind> scores = {};
  /// Probability, in [0, 1], from which on one score alone says yes.
  double threshold = 0.5;
};

/// Pixels that the caller owns.
struct PixelView {
  /// 8 bits per channel: red, green, blue interleaved, rows from top to bottom without padding; height * width * 3
  /// bytes.
  std::span<const std::uint8_t> rgb;
  int height = 0;  ///< rows, from 1 to 65535
  int width = 0;   ///< columns, from 1 to 65535; up to 178,956,970 pixels in all
};

/// One class of an answer.
struct Prediction {
  int index = 0;  ///< position among the model's scores; where there is one alone, 0 is no and 1 is yes
  float probability = 0;  ///< in [0, 1]; they add up to 1 over all classes, unless these are independent
  std::string label;      ///< the class's name; "class 7" where it has none
};

/// An image classifier: a model with one input [N, 3, H, W], [N, 1, H, W] (luma) or the same with channels last or
/// without N, in f32 or u8 (bytes as they are), and an output [N, classes], the first one or the only one of that form.
/// Where that is one score alone there are two classes, no and yes. RunShapes::batch says how many images a run
/// takes; where there are fewer, the rest is zeros. One thread at a time may use a Classifier; copies share the model
/// and have memory of their own, so give every thread a copy.
class PIPIT_API Classifier {
 public:
  /// Loads a model: an ONNX file, or one of the names that `pipit models` lists. Throws what CompiledModel does; Error
  /// for a model that is no image classifier, for options that do not fit it, and for a file of labels that cannot be
  /// read or has another number of classes.
  explicit Classifier(const std::string& model, const ClassifierOptions& options = {});
  Classifier(const Classifier& other);             ///< Shares the model. Throws Error where memory runs out.
  Classifier& operator=(const Classifier& other);  ///< As the constructor.
  Classifier(Classifier&& other) noexcept;         ///< `other` may only be assigned to or destroyed after it.
  Classifier& operator=(Classifier&& other) noexcept;  ///< As the constructor.
  ~Classifier();                                       ///< Frees the memory.

  /// The `top` most probable classes of an image file, best first, ties to the lower index; all where there are fewer.
  /// What is done to the model's scores is a matter of their kind, scores(); logits that are in [0, 1] and add up to 1
  /// are taken for probabilities. Of yes and no the answer comes first. Throws Error, beginning with the path, when
  /// the file cannot be read as an image (up to 178,956,970 pixels), does not give the model's input size, or
  /// makes the model answer NaN; UnsupportedError for another format than JPEG, PNG, BMP and, in builds with libwebp,
  /// WebP.
  std::vector<Prediction> classify(const std::filesystem::path& image, int top = 5);
  /// The same of pixels, which are upright. Throws Error when their number is not height * width * 3.
  std::vector<Prediction> classify(const PixelView& image, int top = 5);
  /// The same of the bytes of such a file.
  std::vector<Prediction> classify_encoded(std::span<const std::byte> file, int top = 5);

  /// The same for many image files, with one answer for each in their order. Decodes with all threads of the model, and
  /// runs the model on RunShapes::batch images at a time. The answers have the same bits as those of classify(),
  /// unless the model mixes the samples of a batch. If classify() would throw for an image, throws its exception for
  /// the first such image, and returns no answers.
  std::vector<std::vector<Prediction>> classify_all(std::span<const std::filesystem::path> images,
                                                    int top = 5);
  /// The same for pixels.
  std::vector<std::vector<Prediction>> classify_all(std::span<const PixelView> images, int top = 5);
  /// The same for encoded files in memory.
  std::vector<std::vector<Prediction>> classify_all_encoded(std::span<const std::span<const std::byte>> files,
                                                            int top = 5);

  /// The name of every class; empty where neither model nor options have them ("no" and "yes" where these are the
  /// classes).
  std::span<const std::string> labels() const;
  /// The number of classes; 2 for a single score, yes or no.
  std::int64_t classes() const;
  /// What the model's scores are.
  ScoreKind scores() const;
  /// What happens to images, in words: "stored in the model: short side 256, bilinear, crop 224x224, ...".
  std::string preprocessing() const;
  /// CompiledModel::notes(), and what a user should know of the preprocessing: that it is guessed, or another one than
  /// the plan's images had.
  std::span<const std::string> notes() const;
  /// The model underneath.
  const CompiledModel& model() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pipit
