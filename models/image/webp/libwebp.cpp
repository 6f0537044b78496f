// WebP by libwebp, as Pillow calls it: chroma interpolated smoothly, alpha left out.
#include <webp/decode.h>

#include <limits>

#include "engine/base/error.h"
#include "models/image/formats.h"

namespace pipit::internal::detail {
namespace {

// A lossless file is held as 32 bits a pixel, a lossy one with alpha as that plane beside some rows.
constexpr std::uint64_t kDecoderBytesPerPixel = 8;

const char* reason(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "it ends early";
    case VP8_STATUS_BITSTREAM_ERROR:
      return "an error in its bit stream";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "a feature that libwebp does not know";
    default:
      return "libwebp refuses it";
  }
}

// The container says how long the file is.
void check_length(const Source& source) {
  const auto& b = source.bytes;
  std::uint64_t size = 8;
  for (std::size_t i = 0; i < 4; ++i) size += std::uint64_t{b[4 + i]} << (8 * i);
  if (size > b.size())
    fail("{}: truncated WebP: its {} bytes end before the {} that its header says", source.name, b.size(),
         size);
}

}  // namespace

Image decode_webp(const Source& source, const DecodeLimits& limits) {
  check_length(source);
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) fail("{}: libwebp is of another version", source.name);
  const VP8StatusCode header = WebPGetFeatures(source.bytes.data(), source.bytes.size(), &config.input);
  if (header != VP8_STATUS_OK) fail("{}: damaged WebP: {}", source.name, reason(header));
  if (config.input.has_animation != 0)
    fail_unsupported("{}: an animated WebP is not read; convert a picture of it to JPEG, PNG or BMP",
                     source.name);
  // One code may stand for all pixels, so bytes bound nothing.
  check_dimensions(source, config.input.width, config.input.height, std::numeric_limits<std::int64_t>::max(),
                   limits);
  const std::uint64_t pixels =
      static_cast<std::uint64_t>(config.input.width) * static_cast<std::uint64_t>(config.input.height);
  if (pixels * kDecoderBytesPerPixel > limits.max_decoder_bytes)
    fail("{}: decoding {} x {} pixels may take more than {} bytes of memory", source.name, config.input.width,
         config.input.height, limits.max_decoder_bytes);
  Image image = make_image({config.input.height, config.input.width}, source.name.c_str());
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = image.pixels.data();
  config.output.u.RGBA.stride = image.width * 3;
  config.output.u.RGBA.size = image.pixels.size();
  const VP8StatusCode status = WebPDecode(source.bytes.data(), source.bytes.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) fail("{}: damaged WebP: {}", source.name, reason(status));
  return image;
}

std::string webp_library() {
  const int version = WebPGetDecoderVersion();
  return fmt::format("libwebp {}.{}.{}", version >> 16, version >> 8 & 255, version & 255);
}

}  // namespace pipit::internal::detail
