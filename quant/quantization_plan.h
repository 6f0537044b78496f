// QuantizationPlan: which range and scale every tensor has and which nodes stay in floating point. What calibrate
// writes, people edit and INT8 plans are made from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quant/histogram.h"
#include "quant/threshold.h"

namespace pipit::internal {

/// The version of the JSON form.
inline constexpr int kQuantizationPlanVersion = 2;

/// One calibrated tensor. Symmetric int8: q = clamp(round_to_nearest_even(x / scale), -127, 127).
struct TensorScale {
  std::string name;
  float min = 0;  ///< of all values observed
  float max = 0;
  double threshold = 0;  ///< the magnitude that becomes 127
  float scale = 1;       ///< default_scale(threshold)
  int zero_point = 0;    ///< always 0
  double clipped = 0;    ///< clipped_share()
  bool moved = false;    ///< Threshold::moved; not part of the JSON form
  std::optional<Histogram> histogram;
};

/// A calibration image: its path below the folder and the XXH3-128 of its bytes (what the tool xxh128sum prints).
struct CalibrationImage {
  std::string path;  ///< UTF-8; no two images of a plan share one
  std::string hash;
  friend bool operator==(const CalibrationImage&, const CalibrationImage&) = default;
};

struct QuantizationPlan {
  std::string model;       ///< as given when it was calibrated
  std::string model_hash;  ///< XXH3-128 of the graph's nodes and constants
  std::string preprocess;  ///< JSON of models/image/preprocess.h; empty: arrays as they are
  ThresholdOptions method;
  bool weights_per_channel = true;
  std::vector<CalibrationImage> images;
  std::vector<TensorScale> tensors;  ///< in the order of the graph
  /// Nodes that do not run in INT8.
  struct Kept {
    std::string node;
    std::string precision;  ///< "fp32", "fp16" or "bf16"
    std::string why = {};   ///< for people: decides nothing
    friend bool operator==(const Kept&, const Kept&) = default;
  };
  std::vector<Kept> keep;
  /// Cross-layer equalization (quant/equalize.h): what the channels between two convolutions are divided by. The
  /// tensors above are those of the equalized graph.
  struct Equalized {
    std::string first;
    std::string second;
    std::vector<float> factors;  ///< positive, one per channel
    friend bool operator==(const Equalized&, const Equalized&) = default;
  };
  std::vector<Equalized> equalized;
  /// Bias correction (quant/bias_correction.h): what is added to the bias of a node that computes in INT8.
  struct Corrected {
    std::string node;
    std::vector<float> deltas;  ///< one per output channel
  };
  std::vector<Corrected> corrected;
};

/// threshold / 127; 1 where that is 0 or too small for a normal number: the scale of a tensor of zeros is never seen in
/// a result, that of such small values hardly.
float default_scale(double threshold);

/// Sets threshold, scale and clipped share of every tensor from its histogram, by the plan's method. Throws Error,
/// naming the tensor, where there is no histogram.
void set_scales(QuantizationPlan& plan);

/// Tensors of which more than this is clipped are worth a word.
inline constexpr double kMuchClipped = 0.01;

/// Which tensors a plan clips by more than kMuchClipped.
struct Clipping {
  std::int64_t tensors = 0;
  const TensorScale* worst = nullptr;  ///< null where there is none
};
Clipping clipping_of(const QuantizationPlan& plan);

/// What a user should know of what set_scales() did: what is clipped, and where the method's threshold was moved.
std::vector<std::string> scale_notes(const QuantizationPlan& plan);

/// What makes an image of one plan the same as an image of another.
enum class SameImage : std::uint8_t {
  bytes,  ///< its bytes: plans name images relative to different folders
  name,   ///< its name, which is one for all plans: copies count each
};

/// Adds `plan` to `merged`, whose images are then in any order and whose scales are not set anew. Throws Error, and
/// leaves `merged` as it was, when they differ in model, preprocessing, method, what they keep or their equalization,
/// when biases are corrected (that needs the model), when an image is in both, or when one has no histograms.
void merge_plan(QuantizationPlan& merged, const QuantizationPlan& plan, SameImage same);

/// Sorts the images by path, so that the plan does not depend on their order.
void sort_images(QuantizationPlan& plan);

/// One plan of what several calibrated on different images, scales set anew; throws as merge_plan() does.
QuantizationPlan merge_plans(const std::vector<QuantizationPlan>& plans);

/// A hash over all images, independent of their order.
std::string image_list_hash(const std::vector<CalibrationImage>& images);

/// A hash over factors and deltas: they are hardly edited by hand, and a slip in one would be hard to find.
std::string corrections_hash(const QuantizationPlan& plan);

/// The plan as JSON (docs/quantization-plan.md); histograms last, or not at all.
std::string to_json(const QuantizationPlan& plan, bool with_histograms);
/// Writes that form. Throws Error, and leaves what was there, where the file could not be written, or would not be read
/// as this plan: keys that are not unique, values out of range.
void write_quantization_plan(const std::filesystem::path& path, const QuantizationPlan& plan,
                             bool with_histograms);
/// Reads that form. Throws Error naming the key and value for anything that is not a plan: missing, unknown and
/// repeated keys, wrong types, a count or hash of images that is not that of the files, scales that are not positive
/// and normal or whose 127 steps reach more than 1024 times as far as the values observed or less than a 1024th of
/// that, zero points other than 0, repeated tensors.
QuantizationPlan quantization_plan_from_json(std::string_view json);
/// Likewise from a file of at most 1 GiB; errors begin with its path.
QuantizationPlan read_quantization_plan(const std::filesystem::path& path);

}  // namespace pipit::internal
