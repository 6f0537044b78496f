/// @file
/// How often models are right: shares, losses, verdicts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "pipit/export.h"

namespace pipit::tools {

/// A share of images, with its 95 % interval by Wilson's score, which holds near 0 and 1 as well.
struct Share {
  std::int64_t count = 0;  ///< images in the share
  std::int64_t of = 0;     ///< all images
  double value = 0;        ///< count / of
  double low = 0;          ///< of the interval
  double high = 0;         ///< of the interval
};

/// The share with its interval. Throws Error for `of` below 1 and a count outside of [0, of]. May be called from any
/// thread.
PIPIT_API Share share_of(std::int64_t count, std::int64_t of);

/// How much less often a model is right than a base, on the same images. In points, percent of the images.
struct Drop {
  std::int64_t images = 0;            ///< that both answered
  double base = 0;                    ///< share of images on which the base is right, in [0, 1]
  std::int64_t only_base_right = 0;   ///< images on which the base alone is right
  std::int64_t only_model_right = 0;  ///< images on which the model alone is right
  double points = 0;                  ///< only_base_right less only_model_right, in percent of the images
  double low = 0;   ///< of its 95 % interval: the adjusted Wald interval of Bonett and Price (2012)
  double high = 0;  ///< of that interval
};

/// What a measured drop says of the largest one that is allowed.
enum class Verdict : std::uint8_t {
  proven,      ///< the whole interval lies within the limit
  not_proven,  ///< the images are too few to tell
  broken,      ///< the whole interval lies above it
};

/// "proven", "not proven" or "broken".
PIPIT_API std::string_view verdict_name(Verdict verdict);

/// A drop held against the largest one that is allowed.
struct JudgedDrop {
  double max_points = 0;                  ///< that limit
  Verdict verdict = Verdict::not_proven;  ///< by the interval
  bool within = false;                    ///< whether the drop as it was measured is within the limit
  /// About how many images would prove this drop to be within the limit; 0 where it is proven, or none would.
  std::int64_t images_needed = 0;
  /// The verdict in words: "not proven there: measured within, about 1200 images there would prove it".
  std::string text;
};

/// What counts as right.
enum class JudgeBy : std::uint8_t {
  labels,  ///< the images' classes
  model,   ///< the answers of the model in fp32, for images without classes
};

/// An image or a folder that could not be used.
struct ExcludedImage {
  std::filesystem::path path;  ///< of the image or folder
  std::string error;           ///< why
  bool is_folder = false;      ///< it is a folder that cannot be read
};

}  // namespace pipit::tools
