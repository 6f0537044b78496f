/// @file
/// INT8 scales from images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pipit/accuracy.h"
#include "pipit/classifier.h"
#include "pipit/evaluate.h"
#include "pipit/export.h"

namespace pipit::tools {

/// How far the range of a tensor reaches.
enum class RangeMethod : std::uint8_t {
  minmax,      ///< to the largest magnitude
  percentile,  ///< to RangeOptions::percentile percent of the magnitudes
  entropy,     ///< where the KL divergence between both distributions is least
  mse,         ///< where the mean squared error of rounding and clipping is least
};

/// How ranges are chosen from histograms.
struct RangeOptions {
  RangeMethod method = RangeMethod::mse;  ///< how far they reach
  double percentile = 99.99;              ///< for RangeMethod::percentile, in (0, 100]
};

/// What is written of a calibration.
struct PlanFiles {
  std::filesystem::path plan = {};  ///< a JSON file for Int8::plan (docs/quantization-plan.md)
  /// The plan holds the histograms, which merge_calibrations() and another RangeMethod need; it is larger.
  bool histograms = true;
  std::filesystem::path trt_cache = {};  ///< also the ranges as a calibration cache of TensorRT; empty: none
  /// The release of TensorRT that reads `trt_cache`, up to 10: it refuses a cache of another one.
  std::string trt_version = "10.3.0";
  /// Also the scales as a table of ncnn; empty: none. Needs the model, so not of merge_calibrations().
  std::filesystem::path ncnn_table = {};
};

/// How a new plan is checked on images whose classes are known.
struct CheckOptions {
  std::filesystem::path folder =
      {};  ///< as evaluate() takes it, of other images than those calibrated on; empty: none
  std::filesystem::path truth = {};      ///< EvaluateOptions::truth
  std::string labels = {};               ///< ClassifierOptions::labels
  std::optional<ScoreKind> scores = {};  ///< ClassifierOptions::scores
  double threshold = 0.5;                ///< ClassifierOptions::threshold
  std::int64_t limit = 0;                ///< images to use, spread evenly over the folder; 0: all
};

/// How scales are found.
struct CalibrateOptions {
  /// How the model is read, threads, and kernels. It runs in fp32 on the CPU.
  LoadOptions load = {};
  /// Layers that the plan keeps in floating point, or not, as Int8::keep.
  std::vector<std::string> keep = {};
  PreprocessOptions preprocess = {};  ///< how the images are prepared
  RangeOptions range = {};            ///< how far ranges reach
  bool per_channel_weights = true;    ///< a scale per output channel; else one for all weights of a layer
  bool equalize = false;              ///< cross-layer equalization (Nagel et al. 2019, section 4.1)
  bool bias_correction = false;       ///< bias correction (the same, section 4.2)
  std::int64_t skip = 0;              ///< images at the beginning that are left out
  std::int64_t limit = 0;             ///< images to use of the others, spread evenly; 0: all
  /// Throw Error for the first image or folder that cannot be used, instead of excluding it.
  bool strict = false;
  CheckOptions check = {};  ///< what the plan costs
  /// Called as images are done, in any thread, one call at a time. May be empty. An exception from it ends the work.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  /// Called with each note for the user, one sentence, before anything runs. May be empty.
  std::function<void(const std::string& note)> note = {};
};

/// The range of one tensor.
struct TensorRange {
  std::string name;      ///< of the tensor in the model
  double min = 0;        ///< of all values
  double max = 0;        ///< of all values
  double threshold = 0;  ///< the magnitude that becomes 127
  double scale = 1;      ///< the value of one step
  double clipped = 0;    ///< share of the values beyond the threshold
};

/// A layer that stays in floating point.
struct KeptLayer {
  std::string name;                       ///< in the model
  Precision precision = Precision::fp32;  ///< what it computes in
  std::string why;                        ///< in words; empty if CalibrateOptions::keep names the layer
};

/// What calibrate() found and wrote.
struct Calibration {
  std::string model;                      ///< as it was given
  RangeMethod method = RangeMethod::mse;  ///< of the ranges
  std::vector<TensorRange> tensors;       ///< in the order of the model
  std::vector<KeptLayer> kept;            ///< layers that stay in floating point
  std::int64_t images = 0;                ///< that were used
  std::vector<ExcludedImage> excluded;    ///< that could not be used
  /// Notes for the user, among them what seems to be wrong with the images (docs/quantization.md).
  std::vector<std::string> notes;
  /// With CalibrateOptions::check: the model in INT8 with the plan against fp32. Its notes are its own.
  std::optional<Evaluation> checked;
  std::string json;  ///< all of it, as `pipit calibrate --json` writes it
};

/// Runs a model in fp32 on the CPU over `images` (files, or folders of them, also arrays; a hundred of all kinds are a
/// good start) and writes the ranges and INT8 scales of its tensors. The same kernels run every time, so the same
/// images give the same plan. An image that is given twice counts once, copies count each. Throws Error where no image
/// can be used, for a model that cannot be read and a file that cannot be written, which is there in full or not at
/// all; before anything runs, for an output that is, under whatever name, the model, one of the images or what pipit
/// keeps in its cache; UnsupportedError for a model that is quantized already or has nothing to quantize; ArgumentError
/// for invalid options. CalibrateOptions::check comes after the plan is written, which stays whatever becomes of it; it
/// throws what evaluate() does. May be called from any thread.
PIPIT_API Calibration calibrate(const std::string& model, std::span<const std::filesystem::path> images,
                                const PlanFiles& output, const CalibrateOptions& options = {});

/// What Calibration::checked found, in one sentence: "INT8 costs 0.40 points of top-1 (95 % interval -0.21 to 1.01) on
/// 500 images". Throws ArgumentError for an evaluation without a comparison.
PIPIT_API std::string check_text(const Evaluation& checked);

/// Adds up plans of one model that were calibrated on different images with the same options, and sets the scales anew:
/// the result is that of one calibration on all images. `range`: another method than that of the plans. Throws Error
/// where they differ in model, preprocessing, kept layers or method, an image is in two of them, or one has no
/// histograms. May be called from any thread.
PIPIT_API Calibration merge_calibrations(std::span<const std::filesystem::path> plans,
                                         const PlanFiles& output,
                                         const std::optional<RangeOptions>& range = {});

/// An encoded image, and what a plan calls it.
struct NamedImage {
  std::string name;  ///< of this image alone: a path below the folder of all images, a key, an address
  std::span<const std::byte> file;  ///< the bytes of a JPEG, PNG, BMP or WebP file
};

/// A calibration in parts: in several processes or machines, each of which counts other images. Parts merge in any
/// order and tree, and the plan has the bytes of that which calibrate() writes for all images with these names: of a
/// folder, by their paths below it. One thread at a time may use a Calibrator.
class PIPIT_API Calibrator {
 public:
  /// Reads and compiles the model. CalibrateOptions::progress is not called. Throws what calibrate() does;
  /// ArgumentError for the options that need all images at once: bias_correction, skip and limit.
  explicit Calibrator(const std::string& model, const CalibrateOptions& options = {});
  Calibrator(Calibrator&& other) noexcept;  ///< `other` may only be assigned to or destroyed after it.
  Calibrator& operator=(Calibrator&& other) noexcept;  ///< As the constructor.
  ~Calibrator();                                       ///< Frees the memory.

  /// Runs the model over images and counts the values of its tensors. An image that cannot be used is left out, and
  /// excluded() says why; with CalibrateOptions::strict it is an Error. `progress`: as in CalibrateOptions. Throws
  /// Error for a name that was counted before, and counts nothing then. After another exception from it it is not
  /// known which images count, and every other call throws Error.
  void update(std::span<const NamedImage> images,
              const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});
  /// All that was counted, as bytes for merge() in another process, of the same version of the library.
  std::string part() const;
  /// Adds what another Calibrator of this model and these options counted. Throws Error, and changes nothing, where
  /// these differ, an image is in both, or `part` is none.
  void merge(std::string_view part);
  /// Images that count.
  std::int64_t images() const;
  /// Images that could not be used, by name.
  std::vector<ExcludedImage> excluded() const;
  /// Sets the scales and writes the plan. Throws what calibrate() does, ArgumentError for an ncnn table.
  Calibration write(const PlanFiles& output) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pipit::tools
