// How much of a quantized model's final error each layer causes.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compile/mixed_model.h"
#include "models/prepared_images.h"

namespace pipit::internal::detail {

/// The model's first output for all images: [N, values], one image after the other.
struct ImageOutputs {
  std::size_t values = 0;  ///< per image
  std::vector<float> all;

  std::span<const float> image(std::int64_t i) const {
    return std::span(all).subspan(static_cast<std::size_t>(i) * values, values);
  }
};

/// Runs `plan` on all images. Throws Error when its first output is not f32 with one row per image, or has NaN.
ImageOutputs run_outputs(const std::shared_ptr<const ExecutionPlan>& plan, PreparedImages& images,
                         const std::function<void(std::int64_t)>& progress = {});

/// Squared distance to `reference` over the square of `reference`; 0 where both are zero.
double relative_noise(const ImageOutputs& outputs, const ImageOutputs& reference);

struct LayerShare {
  std::string layer;
  /// Relative noise of the output with only this layer in INT8; not of a follower, which does not run in INT8 alone.
  std::optional<double> alone;
  /// With all in INT8 but this one; where it was measured.
  std::optional<double> without;

  /// Its part of the noise with all layers in INT8: what it causes alone, else what keeping it removes.
  double cause(double all) const { return alone ? *alone : without ? std::max(0.0, all - *without) : 0; }
};
struct LayerShares {
  double all = 0;  ///< with all layers in INT8
  std::vector<LayerShare> layers;
};

/// Measures MixedModel::layers() and followers() on `images`; those with `alone` also without each unless
/// `only_alone`. The noise of single layers adds up to that of all only as far as layers err independently.
LayerShares measure_shares(const MixedModel& model, PreparedImages& images, bool only_alone,
                           const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

}  // namespace pipit::internal::detail
