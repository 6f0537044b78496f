// Reads JPEG, PNG, BMP and, in builds with libwebp, WebP into 8-bit RGB.
//
// The result is what Pillow's Image.open(path).convert('RGB') gives, bit for bit, with libjpeg-turbo and libpng.
// With stb_image that holds for PNG and BMP, and within a few steps of 255 for JPEG, whose inverse transform and
// chroma interpolation are implementation-defined.
//   - Grey is replicated to the three channels; palettes are looked up.
//   - Alpha is dropped, not composited: a transparent pixel keeps the colour that is stored for it.
//   - 16 bits per channel keep their top 8 bits, except in grey PNGs without alpha: Pillow clips these to 255.
//   - CMYK and YCCK have inverted inks, as Adobe writes them; their profiles are not applied.
//   - Colour profiles and gamma chunks are ignored.
//   - Pixels stay as they are stored; Image::exif_orientation says how upright() (orientation.h) would turn them.
//   - The format is told by content, never by the file's name.
// Refused as damaged: a file that ends before its last pixel or, in JPEG and WebP, before its end (JPEG EOI, what a
// WebP says of its size), and a PNG header or palette whose checksum is wrong. A PNG is whole once its pixels are,
// and rows that its compressed data lacks are black; stb_image refuses both. Corrupt data within the scans of a JPEG
// is decoded as far as it goes, as Pillow does: nothing in the format tells it. Bytes after the end marker are
// ignored: cameras and editors append their own.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "models/image/image.h"

namespace pipit::internal {

/// What a file may ask for; checked against its header before any pixel is decoded.
struct DecodeLimits {
  int max_side = kMaxImageSide;
  std::int64_t max_pixels = kMaxImagePixels;
  /// Compressed bytes. 768 MiB hold every uncompressed image within max_pixels at up to 32 bits per pixel.
  std::uint64_t max_file_bytes = std::uint64_t{768} << 20;
  /// Bytes that a decoder may hold at once beside the file and the pixels. A progressive JPEG without subsampling
  /// needs 6 per pixel; stb_image 12, and up to 14 for a 16-bit RGBA PNG of common size.
  std::uint64_t max_decoder_bytes = std::uint64_t{5} << 28;
};

/// What decodes each format in this build, with the version where there is one: "libjpeg-turbo 2.1.5", "stb_image".
struct ImageDecoders {
  std::string jpeg;
  std::string png;
  std::string webp;  ///< empty: WebP is not read
};
ImageDecoders image_decoders();

/// Reads an image file. Throws Error with the path and the reason: missing, a directory, not a regular file,
/// empty, above a limit, truncated, damaged. Throws UnsupportedError for another image format or for a
/// variant that is not supported (arithmetic or lossless JPEG).
Image decode_image(const std::filesystem::path& path, const DecodeLimits& limits = {});

/// The same from the bytes of a file; `name` stands for the path in messages.
Image decode_image(std::span<const std::uint8_t> bytes, const std::string& name = "image in memory",
                   const DecodeLimits& limits = {});

}  // namespace pipit::internal
