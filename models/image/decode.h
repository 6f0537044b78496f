// Reads JPEG, PNG and BMP into 8-bit RGB.
//
// The result is what Pillow's Image.open(path).convert('RGB') gives: exactly for PNG and BMP, within a few
// steps of 255 for JPEG, whose inverse transform and chroma interpolation are implementation-defined.
//   - Grey is replicated to the three channels; palettes are looked up.
//   - Alpha is dropped, not composited: a transparent pixel keeps the colour that is stored for it.
//   - 16 bits per channel keep their top 8 bits.
//   - Colour profiles and gamma chunks are ignored.
//   - The EXIF orientation of a JPEG is ignored, as torchvision's image folders do: models are trained and
//     evaluated on the stored orientation.
//   - The format is told by content, never by the file's name.
// Refused as damaged: a file that ends before its end marker (JPEG EOI, PNG IEND, the last BMP row), and a
// PNG chunk whose checksum is wrong. Bytes after the end marker are ignored: cameras and editors append their
// own.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "models/image/image.h"

namespace pipit {

/// What a file may ask for; checked against its header before any pixel is decoded.
struct DecodeLimits {
  int max_side = kMaxImageSide;
  std::int64_t max_pixels = kMaxImagePixels;
  /// Compressed bytes. 256 MiB hold every uncompressed image within max_pixels at up to 32 bits per pixel.
  std::uint64_t max_file_bytes = std::uint64_t{256} << 20;
  /// Bytes the decoder may hold at once beside the file itself (stb_image needs 12 per pixel for a
  /// progressive JPEG without subsampling, up to 14 for a 16-bit RGBA PNG of common size).
  std::uint64_t max_decoder_bytes = std::uint64_t{1} << 30;
};

/// Reads an image file. Throws Error with the path and the reason: missing, a directory, not a regular file,
/// empty, above a limit, truncated, damaged. Throws UnsupportedError for another image format or for a
/// variant that is not supported (arithmetic or lossless JPEG, run-length BMP).
Image decode_image(const std::filesystem::path& path, const DecodeLimits& limits = {});

/// The same from the bytes of a file; `name` stands for the path in messages.
Image decode_image(std::span<const std::uint8_t> bytes, const std::string& name = "image in memory",
                   const DecodeLimits& limits = {});

}  // namespace pipit
