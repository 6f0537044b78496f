#include "models/image/preprocess.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/error.h"

namespace pipit::internal {
namespace {

struct NamedPreset {
  std::string_view name;
  Preprocess preprocess;
};

std::span<const NamedPreset> presets() {
  static const std::array<NamedPreset, 4> kPresets = [] {
    Preprocess torchvision;
    torchvision.resize = 256;
    torchvision.crop = 224;
    torchvision.mean = {0.485f, 0.456f, 0.406f};
    torchvision.std = {0.229f, 0.224f, 0.225f};

    Preprocess timm = torchvision;
    timm.interpolation = Interpolation::bicubic;

    Preprocess caffe;
    caffe.resize = 256;
    caffe.crop = 224;
    caffe.bgr = true;
    caffe.scale = 1.0f;
    caffe.mean = {103.939f, 116.779f, 123.68f};

    Preprocess cifar;
    cifar.resize = 32;
    cifar.crop = 32;
    cifar.mean = {0.4914f, 0.4822f, 0.4465f};
    cifar.std = {0.2470f, 0.2435f, 0.2616f};
    return std::array<NamedPreset, 4>{
        {{"torchvision", torchvision}, {"timm", timm}, {"caffe", caffe}, {"cifar", cifar}}};
  }();
  return kPresets;
}

void check_side(std::string_view field, int value) {
  if (value < 0 || value > kMaxPreprocessSide) {
    fail("preprocess: {} is {}, expected 0 to {}", field, value, kMaxPreprocessSide);
  }
}

int scale_side(int side, int to, int from) {
  return static_cast<int>(std::lround(static_cast<double>(side) * to / from));
}

// Resized and cropped; still 8 bits.
Image resize_and_crop(const Image& image, const Preprocess& p) {
  Image out = image;
  if (p.resize > 0) {
    const Extent target = p.resize_mode == ResizeRule::stretch ? p.stretch_extent()
                                                               : short_side_extent(image.extent(), p.resize);
    out = resize(image, target, p.interpolation);
  }
  return p.crop > 0 ? center_crop(out, p.crop_extent()) : out;
}

void check_output(const Image& image, std::size_t channels, std::size_t available) {
  const std::size_t needed = channels * std::size_t(image.height) * std::size_t(image.width);
  if (available != needed) {
    fail(
        "preprocessing gives {} x {} x {} values (channels x height x width), but the input of the model has "
        "{}: "
        "set the crop to the input size",
        channels, image.height, image.width, available);
  }
}

// A byte has 256 values: a table gives each the nearest float of the exact result.
std::array<float, 256> channel_table(const Preprocess& p, std::size_t channel) {
  std::array<float, 256> table;
  for (int v = 0; v < 256; ++v) {
    table[std::size_t(v)] =
        static_cast<float>((v * static_cast<double>(p.scale) - p.mean[channel]) / p.std[channel]);
  }
  return table;
}

// `step`: from one pixel's value to the next.
void write_channel(const Image& image, std::size_t source_channel, std::span<const float, 256> table,
                   float* out, std::size_t step) {
  const std::uint8_t* from = image.pixels.data() + source_channel;
  const std::size_t pixels = image.pixels.size() / 3;
  for (std::size_t i = 0; i < pixels; ++i) out[i * step] = table[from[i * 3]];
}

// Weights in 1/65536 as Pillow's rgb2l.
void to_luma(Image& image) {
  std::uint8_t* p = image.pixels.data();
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    const std::uint32_t luma = (p[i] * 19595u + p[i + 1] * 38470u + p[i + 2] * 7471u + 0x8000u) >> 16;
    p[i] = p[i + 1] = p[i + 2] = static_cast<std::uint8_t>(luma);
  }
}

Image resized_luma(Image image, const Preprocess& p) {
  to_luma(image);
  return resize_and_crop(image, p);
}

}  // namespace

std::vector<std::string_view> preprocess_preset_names() {
  std::vector<std::string_view> names;
  for (const NamedPreset& preset : presets()) names.push_back(preset.name);
  return names;
}

Preprocess preprocess_preset(std::string_view name) {
  std::string known;
  for (const NamedPreset& preset : presets()) {
    if (preset.name == name) return preset.preprocess;
    known += known.empty() ? "" : ", ";
    known += preset.name;
  }
  fail("unknown preprocessing preset '{}': expected one of {}", name, known);
}

void check_preprocess(const Preprocess& p) {
  check_side("resize", p.resize);
  check_side("resize_width", p.resize_width);
  check_side("crop", p.crop);
  check_side("crop_width", p.crop_width);
  if (p.resize_width != 0 && (p.resize_mode != ResizeRule::stretch || p.resize == 0)) {
    fail("preprocess: a resize to {} x {} (height x width) needs resize_mode stretch and both sides",
         p.resize, p.resize_width);
  }
  if (p.crop == 0 && p.crop_width != 0) fail("preprocess: a crop needs a height as well as a width");
  for (std::size_t c = 0; c < 3; ++c) {
    if (!std::isfinite(p.mean[c])) fail("preprocess: mean[{}] is not a finite number", c);
    if (!std::isfinite(p.std[c]) || p.std[c] <= 0)
      fail("preprocess: std[{}] is {}, expected > 0", c, p.std[c]);
  }
  if (!std::isfinite(p.scale) || p.scale <= 0) fail("preprocess: scale is {}, expected > 0", p.scale);
  static_cast<void>(interpolation_name(p.interpolation));
}

Preprocess fit_to_input(Preprocess p, int height, int width) {
  check_preprocess(p);
  if (height < 1 || width < 1 || height > kMaxPreprocessSide || width > kMaxPreprocessSide) {
    fail("the model's input of {} x {} pixels (height x width) is outside 1 to {}", height, width,
         kMaxPreprocessSide);
  }
  const Extent crop = p.crop_extent();
  if (p.crop == 0) {
    if (p.resize > 0 && p.resize_mode == ResizeRule::stretch) {
      p.resize = height;
      p.resize_width = width == height ? 0 : width;
    }
  } else if (crop != Extent{height, width} && p.resize > 0) {
    if (p.resize_mode == ResizeRule::stretch) {
      const Extent stretch = p.stretch_extent();
      p.resize = scale_side(stretch.height, height, crop.height);
      p.resize_width = scale_side(stretch.width, width, crop.width);
    } else {
      p.resize = std::max(scale_side(p.resize, height, crop.height), scale_side(p.resize, width, crop.width));
    }
    // Out of bounds only for a tiny crop of a huge resize.
    p.resize = std::clamp(p.resize, 1, kMaxPreprocessSide);
    if (p.resize_mode == ResizeRule::stretch)
      p.resize_width = std::clamp(p.resize_width, 1, kMaxPreprocessSide);
  }
  p.crop = height;
  p.crop_width = width == height ? 0 : width;
  return p;
}

Extent preprocessed_extent(const Preprocess& p, Extent image) {
  check_preprocess(p);
  if (p.crop > 0) return p.crop_extent();
  if (p.resize == 0) return image;
  return p.resize_mode == ResizeRule::stretch ? p.stretch_extent() : short_side_extent(image, p.resize);
}

std::optional<ImageInput> image_input(const Shape& shape) {
  const auto counts_channels = [](std::int64_t extent) { return extent == 1 || extent == 3; };
  const int first = shape.rank() - 3;  // of the image's own dimensions
  if (first < 0 || first > 1 || shape.elements() == 0) return std::nullopt;
  const std::int64_t batch = first == 1 ? shape[0] : 1;
  const std::int64_t a = shape[first], b = shape[first + 1], c = shape[first + 2];
  if (counts_channels(a)) return ImageInput{a, b, c, Layout::row_major, batch};
  if (counts_channels(c)) return ImageInput{c, a, b, Layout::channels_last, batch};
  return std::nullopt;
}

std::vector<float> normalization_table(const Preprocess& p, std::int64_t channels) {
  check_preprocess(p);
  std::vector<float> table;
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::array<float, 256> own = channel_table(p, static_cast<std::size_t>(c));
    table.insert(table.end(), own.begin(), own.end());
  }
  return table;
}

void preprocess(const Image& image, const Preprocess& p, std::span<float> out, Layout layout) {
  check_image(image, "preprocess");
  check_preprocess(p);
  const Image ready = resize_and_crop(image, p);
  check_output(ready, 3, out.size());
  const bool pixels = layout == Layout::channels_last;
  for (std::size_t c = 0; c < 3; ++c) {
    write_channel(ready, p.bgr ? 2 - c : c, channel_table(p, c),
                  out.data() + c * (pixels ? 1 : out.size() / 3), pixels ? 3 : 1);
  }
}

void preprocess_gray(const Image& image, const Preprocess& p, std::span<float> out) {
  check_image(image, "preprocess");
  check_preprocess(p);
  const Image ready = resized_luma(image, p);
  check_output(ready, 1, out.size());
  write_channel(ready, 0, channel_table(p, 0), out.data(), 1);
}

void preprocess_to_bytes(const Image& image, const Preprocess& p, const ImageInput& place,
                         std::span<std::uint8_t> out) {
  std::vector<float> floats(out.size());
  if (place.channels == 1) {
    preprocess_gray(image, p, floats);
  } else {
    preprocess(image, p, floats, place.layout);
  }
  std::ranges::transform(floats, out.begin(), [](float value) {
    return static_cast<std::uint8_t>(std::lround(std::clamp(value, 0.0F, 255.0F)));
  });
}

void resize_to_bytes(const Image& image, const Preprocess& p, std::int64_t channels,
                     std::span<std::uint8_t> out) {
  check_image(image, "preprocess");
  check_preprocess(p);
  if (channels != 1 && channels != 3) fail("preprocess: {} channels, expected 1 or 3", channels);
  const Image ready = channels == 1 ? resized_luma(image, p) : resize_and_crop(image, p);
  check_output(ready, static_cast<std::size_t>(channels), out.size());
  const std::size_t step = channels == 1 ? 3 : 1;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = ready.pixels[i * step];
}

}  // namespace pipit::internal
