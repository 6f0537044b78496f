// From a decoded image to the input tensor of a model: resize, centre crop, normalize.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/tensor.h"
#include "models/image/image.h"
#include "models/image/resize.h"

namespace pipit::internal {

enum class ResizeRule {
  short_side,  ///< the short side to `resize`, the aspect ratio kept (torchvision Resize(n))
  stretch,     ///< exactly resize x resize_width, whatever the aspect ratio (torchvision Resize((h, w)))
};

/// What happens to an image before a model sees it. The value of output channel c is
///   (pixel * scale - mean[c]) / std[c]        with pixel in 0..255,
/// after resizing, then cropping. Channels, and with them the entries of mean and std, are in the order of
/// the OUTPUT: red, green, blue, or blue, green, red when `bgr` is set.
struct Preprocess {
  /// Short side in pixels (ResizeRule::short_side) or height (ResizeRule::stretch); 0: no resizing.
  int resize = 0;
  /// Width in pixels for ResizeRule::stretch, 0: the same as `resize`. Must be 0 for ResizeRule::short_side.
  int resize_width = 0;
  ResizeRule resize_mode = ResizeRule::short_side;
  Interpolation interpolation = Interpolation::bilinear;
  /// Height of the centre crop in pixels; 0: no cropping, the output is as large as the resized image.
  int crop = 0;
  /// Width of the centre crop, 0: the same as `crop`.
  int crop_width = 0;
  std::array<float, 3> mean = {0, 0, 0};
  std::array<float, 3> std = {1, 1, 1};
  bool bgr = false;
  /// Multiplies the pixel before the mean is taken off: 1/255 for models of [0, 1], 1 for models of 0..255.
  float scale = 1.0f / 255.0f;
  /// Photographs are turned upright first, as their EXIF orientation says; the decoder does it (upright()).
  bool exif_transpose = true;

  Extent crop_extent() const { return {crop, crop_width != 0 ? crop_width : crop}; }
  Extent stretch_extent() const { return {resize, resize_width != 0 ? resize_width : resize}; }
  friend bool operator==(const Preprocess&, const Preprocess&) = default;
};

/// The largest `resize` and `crop`.
inline constexpr int kMaxPreprocessSide = 16'384;

/// The names that preprocess_preset knows:
///   torchvision  short side 256, bilinear, crop 224, [0, 1], mean .485 .456 .406, std .229 .224 .225
///                (torchvision references/classification, the weights named IMAGENET1K_V1)
///   timm         the same with bicubic (timm's default crop_pct 0.875: 224 / 0.875 = 256)
///   caffe        short side 256, bilinear, crop 224, BGR, 0..255, mean 103.939 (B) 116.779 (G) 123.68 (R), std 1
///   cifar        32 x 32, [0, 1], mean .4914 .4822 .4465, std .2470 .2435 .2616 (statistics of CIFAR-10)
std::vector<std::string_view> preprocess_preset_names();

/// The preset of this name; throws Error, listing the names, when there is none.
Preprocess preprocess_preset(std::string_view name);

/// Throws Error, naming the field, when a size is negative or above kMaxPreprocessSide, a number is not
/// finite, a std or the scale is not positive, or resize_width is set without ResizeRule::stretch.
void check_preprocess(const Preprocess& preprocess);

/// The preset for a model whose input is `height` x `width` pixels: sets the crop to that size and, when the
/// crop was another size, changes `resize` by the same factor (rounded), so that the same part of the picture
/// is seen: 256/224 becomes 293/256 for a 256-pixel model. For a non-square input the factor of a short-side
/// resize is the larger of the two, so that the resized image covers the crop. Without a crop, a stretch goes
/// to the input size. It cannot know which fields a person chose: call it on the preset first, set their
/// values after it.
Preprocess fit_to_input(Preprocess preprocess, int height, int width);

/// The size that `preprocess` gives an image of this size.
Extent preprocessed_extent(const Preprocess& preprocess, Extent image);

/// How a model's input holds images.
struct ImageInput {
  std::int64_t channels = 3;  ///< 3, or 1 for luma
  std::int64_t height = 0;
  std::int64_t width = 0;
  Layout layout = Layout::row_major;  ///< [N, C, H, W], or channels_last: [N, H, W, C]
  std::int64_t batch = 1;             ///< N; 1 where there is no such dimension
};

/// Which dimension is the channels: dimension 1 where it is 1 or 3, as PyTorch exports; else dimension 3 where that
/// is 1 or 3, as TensorFlow exports. A shape that could be either ([N, 3, H, 3]) is therefore [N, C, H, W], ONNX's
/// own order: the image would be 3 pixels wide or 3 high. Three dimensions are the last three of these, one image.
/// Empty for all other shapes.
std::optional<ImageInput> image_input(const Shape& shape);

/// Writes the image as floats, H x W = preprocessed_extent: 3 x H x W (row_major), or H x W x 3 (channels_last). Throws
/// Error when `out` has another number of elements, or on any error of check_preprocess and resize.
void preprocess(const Image& image, const Preprocess& preprocess, std::span<float> out,
                Layout layout = Layout::row_major);

/// The same for models with one input channel: H x W floats of luma (ITU-R 601, Pillow's convert('L'), taken
/// before resizing), normalized with mean[0] and std[0].
void preprocess_gray(const Image& image, const Preprocess& preprocess, std::span<float> out);

/// The same up to normalizing, for models that do that themselves (models/image/byte_image.h): H x W x 3 bytes, red,
/// green, blue whatever `bgr` says, or with one channel H x W of luma.
void resize_to_bytes(const Image& image, const Preprocess& preprocess, std::int64_t channels,
                     std::span<std::uint8_t> out);

/// The floats of preprocess() or preprocess_gray(), rounded to bytes and cut at 0 and 255: for models that take bytes
/// and normalize them inside.
void preprocess_to_bytes(const Image& image, const Preprocess& preprocess, const ImageInput& place,
                         std::span<std::uint8_t> out);

/// What preprocess() and preprocess_gray() make of a byte of each channel of the output: `channels` x 256.
std::vector<float> normalization_table(const Preprocess& preprocess, std::int64_t channels);

/// The JSON form that models carry in the ONNX metadata under kPreprocessKey:
///   {"resize": 256, "crop": 224, "interpolation": "bilinear", "mean": [0.485, 0.456, 0.406],
///    "std": [0.229, 0.224, 0.225], "bgr": false, "scale": 0.003921569, "resize_mode": "short_side",
///    "exif_transpose": true}
/// "resize" is an integer, or [height, width] with "resize_mode": "stretch"; "crop" is an integer or
/// [height, width]; "mean" and "std" are three numbers, or one for all channels.
std::string to_json(const Preprocess& preprocess);

/// Reads that form. "resize", "crop", "mean" and "std" are required, unless "preset" names the preset that
/// all missing keys are taken from; the other keys have the defaults of struct Preprocess. Throws Error,
/// naming the key, for text that is not one JSON object, unknown or repeated keys, wrong types, and all that
/// check_preprocess refuses.
Preprocess preprocess_from_json(std::string_view json);

/// What differs, field by field as in the JSON form: "crop 200 instead of 224". Empty when both are the same.
std::vector<std::string> preprocess_differences(const Preprocess& actual, const Preprocess& expected);

inline constexpr std::string_view kPreprocessKey = "pipit.preprocess";

}  // namespace pipit::internal
