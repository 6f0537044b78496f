// The decoder of each format, and the checks that come before it. Internal to models/image.
//
// decode_jpeg and decode_png exist twice: in libraries/ (libjpeg-turbo and libpng) and in stb/ (stb_image); so does
// decode_webp, both in webp/ (libwebp, and none). The build has one of each two (cmake/PipitImage.cmake).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "models/image/decode.h"

namespace pipit::internal::detail {

/// One file in memory and the name to use for it in messages.
struct Source {
  std::span<const std::uint8_t> bytes;
  const std::string& name;
};

/// No JPEG byte stands for more pixels: a DCT block of 64 takes at least one bit, and chroma subsampling can only lower
/// the ratio.
inline constexpr std::int64_t kJpegPixelsPerByte = 64 * 8;
/// Every scan of a progressive JPEG passes over the whole image, so a small file with thousands of them would take
/// hours. Encoders write about ten; 100 is also what libjpeg-turbo's documentation suggests.
inline constexpr int kMaxJpegScans = 100;
/// Deflate expands at most 1032 times, and a byte holds up to 8 pixels of 1 bit.
inline constexpr std::int64_t kPngPixelsPerByte = 1032 * 8;

/// Throws Error unless the sides are within the limits and not absurd for a file of this many bytes:
/// `pixels_per_byte` is the maximum that a byte of this format can stand for.
void check_dimensions(const Source& source, std::int64_t width, std::int64_t height,
                      std::int64_t pixels_per_byte, const DecodeLimits& limits);

/// One pixel of a 16-bit grey PNG, big-endian, as Pillow's convert('RGB') makes it: clipped to 255, not scaled.
inline std::uint8_t clipped_grey(std::uint8_t high, std::uint8_t low) {
  return high != 0 ? 255 : low;
}

Image decode_jpeg(const Source& source, const DecodeLimits& limits);
Image decode_png(const Source& source, const DecodeLimits& limits);
/// Lossy and lossless, no animations. Throws UnsupportedError in a build without libwebp.
Image decode_webp(const Source& source, const DecodeLimits& limits);
/// "libwebp 1.2.4", or empty in a build without it.
std::string webp_library();
/// Uncompressed: 1, 4, 8, 16, 24 or 32 bits, palette or bit fields, either row order.
Image decode_bmp(const Source& source, const DecodeLimits& limits);

}  // namespace pipit::internal::detail
